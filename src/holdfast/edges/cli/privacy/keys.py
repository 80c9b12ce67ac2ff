"""``holdfast key new | list | check | rotate | abandon | public``: the keys that things are sealed and signed with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import InvalidInputError, NotFoundError
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import Home, Json, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.progress import show_progress
from holdfast.edges.cli.render import counted, minute, show_rows
from holdfast.edges.cli.state import State, open_state
from holdfast.edges.cli.store import open_engine

_OTHERS: Final = {"store": "of the store", "signing": "that signs"}
_PEOPLE: Final = "holdfast add 'Likes tea' --user alice\nholdfast erase alice --yes"

key = add_group(
    "key",
    about="Make and change the master key, and look after the keys that are wrapped with it.",
    examples=["holdfast key new", "holdfast key list"],
)


@command(key, "new", examples=("holdfast key new",))
def new_key(*, as_json: Json = False) -> None:
    """Print a new master key: 32 random bytes in base64, for HOLDFAST_MASTER_KEY or a file that it names."""
    from holdfast.privacy.keys.master import new_master_text  # noqa: PLC0415 - not needed for --help

    show({"master_key": new_master_text()}, lambda _, said: typer.echo(said["master_key"]), as_json=as_json)


@command(key, "list", examples=("holdfast key list", "holdfast key list --json"))
def list_keys(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many at most.", min=1)] = 100,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """List the keys of users, each by its pseudonym, and the key that certificates are signed with."""
    state = open_state(home)
    found = [one._asdict() for one in islice(state.keyring.kept(), limit)]
    found.sort(key=lambda one: (one["purpose"], one["made_at"] or "", one["id"]))
    show(found, _show_keys, as_json=as_json)


@command(key, "check", examples=("holdfast key check",))
def check_keys(*, home: Home = None, as_json: Json = False) -> None:
    """Try whether the master key opens every key. Ends with exit code 3 if it does not, and says which."""
    state = open_state(home)
    kept = sum(1 for _ in state.keyring.kept())
    wrong = state.keyring.check()
    show({"ok": not wrong, "keys": kept, "wrong": wrong}, _show_check, as_json=as_json)
    if wrong:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(
    key,
    "rotate",
    examples=(
        f"{_PEOPLE}\nholdfast key rotate",
        f"{_PEOPLE}\nholdfast key rotate --signing",
        f"{_PEOPLE}\nfile=$(mktemp)\nholdfast key new > $file\nholdfast key rotate --new file:$file\nrm $file",
    ),
)
def rotate_key(
    *,
    new: Annotated[
        str | None,
        typer.Option(
            "--new",
            metavar="KEY",
            help="The new master key: file:PATH, command:COMMAND, or itself in base64 (which others on this machine "
            "may see). If not given, one is made and put in the file of the old one.",
        ),
    ] = None,
    signing: Annotated[
        bool, typer.Option("--signing", help="Change the key that certificates are signed with, not the master key.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Change the master key: wrap all keys with another one. Nothing that was sealed or signed is touched.

    Cut short, the same command goes on where it stopped. With --new, change HOLDFAST_MASTER_KEY afterwards, wherever it
    is set.
    """
    if signing and new is not None:
        raise InvalidInputError("--signing makes its key itself; leave out --new")
    state = open_state(home)
    now = time.time_ns() // 1_000
    if signing:
        made = state.signing.rotate(now=now)
        show({"signing_key": made.id}, _show_signing, as_json=as_json)
        return
    done = _rotate(state, new, now, silent=as_json)
    show(done, _show_rotated, as_json=as_json)
    if done["left"]:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(key, "abandon", examples=(f"{_PEOPLE}\nholdfast key abandon",))
def abandon_keys(
    *,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The master key is lost for good; you have read what goes with it.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """After the master key was lost for good: set aside the keys that the present one does not open.

    Others are made in their place, so that the store can be backed up and archived again. Backups and cold memories
    that were sealed under the old ones cannot be read again: without --confirm it says how many those are.
    """
    with open_engine(home, url, quiet=as_json, purpose="abandon") as engine:
        done = engine.abandon_keys(confirm=confirm)
    show(done.as_dict(), _show_abandoned, as_json=as_json)


@command(key, "public", examples=(f"{_PEOPLE}\nholdfast key public",))
def public_key(
    *,
    key_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A key that was signed with; the one in use, if not given.")
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Print the public half of the key that certificates are signed with, for those who are to verify them."""
    from holdfast.privacy.keys.signing import public_pem  # noqa: PLC0415 - not needed for --help

    state = open_state(home)
    wanted = key_id or (state.signing.current_id() if _is_there(state) else None)
    if wanted is None:
        raise NotFoundError("there is no signing key yet; it is made with the first certificate")
    public = state.signing.public(wanted) if _is_there(state) else None
    if public is None:
        raise NotFoundError(f"there is no signing key {printable(wanted)} in {state.objects.url}")
    said = {"id": wanted, "public": public_pem(public).decode()}
    show(said, lambda _, one: typer.echo(one["public"], nl=False), as_json=as_json)


def _is_there(state: State) -> bool:
    """Whether anything has been kept there at all: a folder that is missing has no keys, and is no error here."""
    return next(state.objects.names("keys/"), None) is not None


def _rotate(state: State, new: str | None, now: int, *, silent: bool) -> dict[str, Any]:
    from holdfast.privacy.keys.rotation import rotate_master  # noqa: PLC0415 - not needed for --help

    if not _is_there(state):
        raise NotFoundError(f"there are no keys in {state.objects.url}; the first is made when it is needed")
    settings = state.settings
    total = sum(1 for _ in state.keyring.kept())
    with show_progress("wrapping keys", total, silent=silent) as advance:
        done = rotate_master(
            state.objects, settings.master_key, settings.master_path(), new=new, now=now, progress=advance
        )
    return {
        "master": done.master,
        "rewrapped": done.rewrapped,
        "left": list(done.left),
        "file": None if done.file is None else str(done.file),
        "next": None if new is None else _advice(new),
    }


def _advice(new: str) -> str:
    """What is to be done after a change to a key that was given; it never shows a key."""
    scheme, _, rest = new.partition(":")
    if scheme == "file":
        return f"set HOLDFAST_MASTER_KEY=file:{Path(rest).expanduser().absolute()}"
    return f"set HOLDFAST_MASTER_KEY={new}" if scheme == "command" else "set HOLDFAST_MASTER_KEY to the new key"


def _show_keys(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("There are no keys yet.")
        return
    rows = [
        (one["id"], one["purpose"], one["master"] or Text("damaged", style="bold red"), minute(one["made_at"]))
        for one in found
    ]
    show_rows(console, ("id!", "for", "master key!", "made!"), rows)


def _show_check(console: Console, said: Mapping[str, Any]) -> None:
    if said["ok"]:
        console.print(f"The master key opens all {said['keys']:,} keys.", style="green")
        return
    console.print(f"{len(said['wrong']):,} of {said['keys']:,} keys are not opened by it:", style="bold red")
    for key_id in said["wrong"]:
        console.print(f"  {key_id}")


def _show_signing(console: Console, said: Mapping[str, Any]) -> None:
    console.print(
        f"Certificates are signed with key {said['signing_key']} from now on. Hand out its public half: "
        "holdfast key public. Older certificates are verified with the older ones, which stay.",
        soft_wrap=True,
    )


def _show_abandoned(console: Console, done: Mapping[str, Any]) -> None:
    if done["keyring"] is not None:
        console.print(f"The store belonged to keyring {done['keyring']}, and belongs to the one that is there now.")
    elif not (done["users"] or done["store"] or done["signing"]):
        console.print("The master key opens every key; nothing was changed.", style="green")
        return
    also = "".join(f", the one {how}" for name, how in _OTHERS.items() if done[name])
    console.print(
        f"Set aside {counted(done['users'], 'key')} of users{also}. {counted(len(done['backups']), 'backup')} and "
        f"{counted(done['objects'], 'cold object')} cannot be read any more.",
        style="yellow",
        soft_wrap=True,
    )
    console.print("Make another backup now: holdfast backup create", soft_wrap=True)
    if done["signing"]:
        console.print("Certificates are signed with another key from now on; hand it out: holdfast key public")


def _show_rotated(console: Console, done: Mapping[str, Any]) -> None:
    console.print(f"Wrapped {done['rewrapped']:,} keys with master key {done['master']}.", style="green")
    if done["file"] is not None:
        console.print(f"It is in {printable(done['file'])}. Keep a copy of it in a safe place.", soft_wrap=True)
    else:
        console.print(
            f"Now {printable(done['next'])} wherever this store is used, restart what uses it, and keep a copy of the "
            "new key in a safe place.",
            style="yellow",
            soft_wrap=True,
        )
    if done["left"]:
        console.print(f"{len(done['left']):,} keys could not be opened and were left as they are:", style="bold red")
        for key_id in done["left"]:
            console.print(f"  {key_id}")
