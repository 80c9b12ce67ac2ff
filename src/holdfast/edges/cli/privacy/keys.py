"""Make and change the master key, and look after the keys that are wrapped with it.

Examples:
    holdfast key new

    holdfast key list
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import InvalidInputError, NotFoundError
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Limit, of_store, only_json
from holdfast.edges.cli.output import Cell, ExitCode, Output, Part, bad, good, indent, minute, plural, table, warn

_OTHERS: Final = {"store": "of the store", "signing": "that signs"}

key = add_group(__name__, "key", __doc__)


@command(key, "new", only_json)
def new_key(_: Call) -> Any:
    """Print a new master key: 32 random bytes in base64, for HOLDFAST_MASTER_KEY or a file that it names.

    Examples:
        holdfast key new
    """
    from holdfast.privacy.keys.master import new_master_text  # noqa: PLC0415 - not needed for --help

    made = new_master_text()
    return Output({"master_key": made}, text=f"{made}\n")


@table("id!, for, master key!, made!", empty="There are no keys yet.")
def _show_keys(one: Mapping[str, Any]) -> list[Cell]:
    return [one["id"], one["purpose"], one["master"] or bad("damaged"), minute(one["made_at"], "unknown")]


@command(key, "list", of_store, render=_show_keys)
def list_keys(call: Call, *, limit: Limit = 100) -> Any:
    """List the keys of users, each by its pseudonym, and the key that certificates are signed with.

    Examples:
        holdfast key list

        holdfast key list --json
    """
    if limit < 1:
        raise InvalidInputError(f"--limit must be at least 1, not {limit}")
    found = [one._asdict() for one in islice(call.keyring.list_keys(), limit)]
    return sorted(found, key=lambda one: (one["purpose"], one["made_at"] or "", one["id"]))


def _show_check(said: Mapping[str, Any]) -> Iterator[Part]:
    if said["ok"]:
        yield good(f"The master key opens every key ({said['keys']:,}).")
        return
    yield bad(f"{len(said['wrong']):,} of {plural(said['keys'], 'key')} cannot be opened by it:")
    yield from map(indent, said["wrong"])


@command(key, "check", of_store, render=_show_check)
def check_keys(call: Call) -> Any:
    """Try whether the master key opens every key. Ends with exit code 3 if it does not, and says which.

    Examples:
        holdfast key check
    """
    kept = sum(1 for _ in call.keyring.list_keys())
    wrong = [key_id for _, key_id in call.keyring.find_unopened()]
    return Output({"ok": not wrong, "keys": kept, "wrong": wrong}, code=ExitCode.UNHEALTHY if wrong else 0)


def _show_signing(said: Mapping[str, Any]) -> str:
    return (
        f"Certificates are signed with key {said['signing_key']} from now on. Hand out its public half: "
        "holdfast key public. Older certificates are verified with the older ones, which stay."
    )


def _show_rotated(done: Mapping[str, Any]) -> Iterator[Part]:
    yield good(f"Wrapped {plural(done['rewrapped'], 'key')} with master key {done['master']}.")
    if done["file"] is not None:
        yield f"It is in {done['file']}. Keep a copy of it in a safe place."
    else:
        yield warn(
            f"Now {done['next']} wherever this store is used, restart what uses it, and keep a copy of the new key in "
            "a safe place."
        )
    if done["left"]:
        yield bad(f"{plural(len(done['left']), 'key')} could not be opened and stayed as before:")
        yield from map(indent, done["left"])


@command(key, "rotate", of_store)
def rotate_key(call: Call, *, new: str | None = None, signing: bool = False) -> Any:
    """Change the master key: wrap all keys with another one. Nothing that was sealed or signed is touched.

    Cut short, the same command goes on where it stopped. With --new, change HOLDFAST_MASTER_KEY afterwards, wherever it
    is set.

    Options:
        --new KEY  The new master key: file:PATH, command:COMMAND, or itself in base64 (which others on this machine may
            see). If not given, one is made and put in the file of the old one.
        --signing  Change the key that certificates are signed with, not the master key.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        holdfast key rotate

        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        holdfast key rotate --signing

        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        file=$(mktemp)
        holdfast key new > $file
        holdfast key rotate --new file:$file
        rm $file
    """
    if signing and new is not None:
        raise InvalidInputError("--signing makes its key itself; leave out --new")
    now = time.time_ns() // 1_000
    if signing:
        return Output({"signing_key": call.signing.rotate(now=now).id}, _show_signing)
    done = _rotate(call, new, now)
    return Output(done, _show_rotated, code=ExitCode.UNHEALTHY if done["left"] else 0)


def _rotate(call: Call, new: str | None, now: int) -> dict[str, Any]:
    from holdfast.privacy.keys.keyring import rotate_master  # noqa: PLC0415 - not needed for --help

    if not call.has_keys:
        raise NotFoundError(f"there are no keys in {call.state.url}; the first is made when it is needed")
    settings = call.settings
    with call.progress("wrapping keys", sum(1 for _ in call.keyring.list_keys())) as advance:
        done = rotate_master(
            call.state, settings.master_key, settings.master_path(), new=new, now=now, progress=advance
        )
    return {
        "master": done.master,
        "rewrapped": done.rewrapped,
        "left": list(done.left),
        "file": None if done.file is None else str(done.file),
        "next": None if new is None else _advise(new),
    }


def _advise(new: str) -> str:
    """What is to be done after a change to a key that was given; it never shows a key."""
    scheme, _, rest = new.partition(":")
    if scheme == "file":
        return f"set HOLDFAST_MASTER_KEY=file:{Path(rest).expanduser().absolute()}"
    return f"set HOLDFAST_MASTER_KEY={new}" if scheme == "command" else "set HOLDFAST_MASTER_KEY to the new key"


def _show_abandoned(done: Mapping[str, Any]) -> Iterator[Part]:
    if done["keyring"] is not None:
        yield f"The store belonged to keyring {done['keyring']}, and belongs to the one that is there now."
    elif not (done["users"] or done["store"] or done["signing"]):
        yield good("The master key opens every key; nothing was changed.")
        return
    also = "".join(f", the one {how}" for name, how in _OTHERS.items() if done[name])
    backups, objects = plural(len(done["backups"]), "backup"), plural(done["objects"], "cold object")
    yield warn(
        f"Set aside {plural(done['users'], 'key')} of users{also}. {backups} and {objects} cannot be read any more."
    )
    yield "Make another backup now: holdfast backup create"
    if done["signing"]:
        yield "Certificates are signed with another key from now on; hand it out: holdfast key public"


@command(key, "abandon", of_store, render=_show_abandoned)
def abandon_keys(call: Call, *, confirm: bool = False) -> Any:
    """After the master key was lost for good: set aside the keys that the present one does not open.

    Others are made in their place, so that the store can be backed up and archived again. Backups and cold memories
    that were sealed under the old ones cannot be read again: without --confirm it says how many those are.

    Where the store belongs to another keyring than the one that is there, and that one is lost too, the store belongs
    to the present one afterwards. Look for the other keyring first: HOLDFAST_HOME or HOLDFAST_STATE_URL may be wrong.

    Options:
        --confirm  The master key is lost for good; you have read what goes with it.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        holdfast key abandon
    """
    call.purpose = "abandon"
    return call.engine.abandon_keys(confirm=confirm).as_dict()


@command(key, "public", of_store)
def public_key(call: Call, *, key_id: str | None = None) -> Any:
    """Print the public half of the key that certificates are signed with, for those who are to verify them.

    Options:
        [ID]  A key that was signed with; the one in use, if not given.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        holdfast key public
    """
    from holdfast.privacy.keys.signatures import public_pem  # noqa: PLC0415 - not needed for --help

    wanted = key_id or (call.signing.current_id() if call.has_keys else None)
    if wanted is None:
        raise NotFoundError("there is no signing key yet; it is made with the first certificate")
    public = call.signing.public(wanted) if call.has_keys else None
    if public is None:
        raise NotFoundError(f"there is no signing key {wanted} in {call.state.url}")
    pem = public_pem(public).decode()
    return Output({"id": wanted, "public": pem}, text=pem)
