"""``holdfast backup create | list | verify | restore | rotate | remove``: copies of the store, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import ConfirmationNeededError, InvalidInputError, NotFoundError
from holdfast.core.records import DURABLE, MemoryType
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import console, error_console, printable, show
from holdfast.edges.cli.progress import is_watched, show_progress
from holdfast.edges.cli.render import counted, minute, show_rows
from holdfast.edges.cli.store import open_engine

if TYPE_CHECKING:
    from holdfast.backups.restore import Restored
    from holdfast.backups.service import Backup
    from holdfast.engine import Holdfast

_LATEST: Final = "latest"
_ID: Final = """id=$(holdfast backup list --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p')"""
_CLOCK: Final = "The clock is right, although it leaped, or is behind what the store has seen or far ahead of it."

backup = add_group(
    "backup",
    about="Make backups, see that they are good, and bring back what is in them.",
    examples=["holdfast backup create\nholdfast backup verify latest --restore"],
)
Which = Annotated[str, typer.Argument(metavar="ID|latest", help="Which backup; latest is the latest whole one.")]


@command(
    backup,
    "create",
    examples=("holdfast backup create --kind persona", "holdfast backup create --full --json"),
)
def create(
    *,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only memories of this kind, and what goes with them; repeatable."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Copy everything, also what has not changed since the backup before.")
    ] = False,
    confirm: Annotated[bool, typer.Option("--confirm", help=_CLOCK)] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a backup of the store as it is now, while others go on using it.

    What belongs to a user is sealed under the user's key. Without --kind it has memories of every kind, with rules,
    agents, conversations and the audit chain; working and short-term memory are never in a backup. Ends with exit
    code 3 if a user is not in it whose key cannot be opened.
    """
    with open_engine(home, url, quiet=as_json) as engine:
        total = _count(engine, kinds) if is_watched(silent=as_json) else 0
        with show_progress("backing up", total, silent=as_json) as advance:
            made = engine.backups.create(kinds or None, full=full, confirm=confirm, progress=advance)
    show(made.as_dict(), _show_made, as_json=as_json)
    if made.left_out:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(backup, "list", examples=("holdfast backup list",))
def list_backups(*, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """List all backups, the oldest first: what each holds, until when it is kept, and what came of its last trial."""
    with open_engine(home, url, quiet=as_json, purpose="restore") as engine:
        found = [one.as_dict() for one in engine.backups.list()]
    show(found, _show_list, as_json=as_json)


@command(
    backup,
    "verify",
    examples=(
        "holdfast backup create\nholdfast backup verify latest",
        "holdfast backup verify latest --restore --json",
    ),
)
def verify(
    *,
    which: Which,
    restore: Annotated[
        bool, typer.Option("--restore", help="Also restore it into a store of its own, read that again and compare.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Read all of a backup and see that each byte is as it was written.

    Only one that was restored on trial counts as good, and only when a later one is good may an old one go. Ends with
    exit code 3 if something is wrong, and says what.
    """
    with open_engine(home, url, quiet=as_json, purpose="restore") as engine:
        chosen = _latest(engine) if which == _LATEST else which
        total = _memories_in(engine, chosen)
        with show_progress("restoring on trial" if restore else "verifying", total, silent=as_json) as advance:
            check = engine.backups.verify(chosen, restore=restore, progress=advance)
    show(check.as_dict(), _show_check, as_json=as_json)
    if not check:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(
    backup,
    "restore",
    examples=(
        "holdfast add 'Likes tea' --user alice\nholdfast backup create\nholdfast backup restore latest --yes",
        "holdfast backup restore latest --user alice --yes --json",
    ),
)
def restore(
    *,
    which: Which,
    user: Annotated[str | None, typer.Option("--user", "-u", metavar="USER", help="Only what is this user's.")] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="ID", help="Only this memory of the user's.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Memories that are there become what they were.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a store in use is changed.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Bring back what a backup holds; nobody who was erased since comes back.

    Into a store that nothing was ever kept in: all of it, exactly as it was. Into one in use: the memories,
    conversations, facts and holds that are missing. With "latest", what the latest backups hold together: the one with
    long-term memory first, then those of the kinds that it has not.
    """
    if memory is not None and user is None:
        raise InvalidInputError("say whose memory it is, too: --user USER --memory ID")
    with open_engine(home, url, tenant, quiet=as_json, purpose="restore") as engine:
        chosen = _all_latest(engine) if which == _LATEST else [engine.backups.get(which)]
        if not yes and (user is not None or engine.backups.is_store_used()):
            _ask(chosen, user, memory, overwrite=overwrite, silent=as_json)
        total = sum(one.memories for one in chosen)
        with show_progress("restoring", total, silent=as_json) as advance:
            options: dict[str, Any] = {"user_id": user, "memory_id": memory, "overwrite": overwrite}
            done = _restore_each(engine, chosen, {**options, "progress": advance})
    how = "what it holds" if overwrite else "what was missing"
    show([one.as_dict() for one in done], lambda console, said: _show_restored(console, said, how), as_json=as_json)
    if any(one.binned for one in done) and not as_json:
        _point_to_bin(sum(one.binned for one in done), user, memory, tenant)


@command(backup, "rotate", examples=("holdfast backup rotate",))
def rotate(
    *,
    confirm: Annotated[bool, typer.Option("--confirm", help=_CLOCK)] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove the backups past their time, and take what was sealed for the erased out of the others.

    30 days, 90 for those of persona alone; never the last good one of a kind. The schedule does it every day. Those
    that are dated later than now are left alone, and named.
    """
    with open_engine(home, url, quiet=as_json) as engine:
        done = engine.backups.rotate(confirm=confirm)
    show(done.as_dict(), _show_rotated, as_json=as_json)


@command(
    backup,
    "remove",
    examples=(f"holdfast backup create\n{_ID}\nholdfast backup remove $id --confirm --even-last",),
)
def remove(
    *,
    which: Annotated[str, typer.Argument(metavar="ID", help="Which backup.")],
    confirm: Annotated[bool, typer.Option("--confirm", help="It is to go, for good.")] = False,
    even_last: Annotated[
        bool, typer.Option("--even-last", help="Even if it may be the last good one of a kind.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove one backup for good, such as one that is damaged, or was made under a clock that ran ahead.

    What other backups refer to stays. Refused while no other backup that is good has all of its kinds.
    """
    with open_engine(home, url, quiet=as_json) as engine:
        done = engine.backups.remove(which, confirm=confirm, even_last=even_last)
    show(done.as_dict(), _show_removed, as_json=as_json)


# --- which, and how much ----------------------------------------------------------------------------------------------


def _latest(engine: Holdfast) -> str:
    """The latest backup whose manifest is as it was signed."""
    whole = engine.backups.latest()
    if not whole:
        raise _none_there(engine, engine.backups.list())
    return max(whole)  # ids sort by the moment that they were made at


def _all_latest(engine: Holdfast) -> list[Backup]:
    """What is restored by "latest"."""
    found = engine.backups.list()
    chosen = _together(found)
    if not chosen:
        raise _none_there(engine, found)
    return chosen


def _together(found: Sequence[Backup]) -> list[Backup]:
    """The latest backups that nothing is known to be wrong with, and that have no kind in common: the one with
    long-term memory, with which goes all that belongs to everybody, and then the others.
    """
    whole = [one for one in reversed(found) if one.created_at and one.problem is None]
    whole.sort(key=lambda one: MemoryType.LONG_TERM.value not in one.kinds)
    chosen: list[Backup] = []
    for one in whole:
        if not any(set(one.kinds) & set(other.kinds) for other in chosen):
            chosen.append(one)
    return chosen


def _none_there(engine: Holdfast, found: Sequence[Backup]) -> NotFoundError:
    """Why no backup is of use. If the newest cannot even be read, that is raised: another may not help."""
    if found and not found[-1].created_at:
        engine.backups.get(found[-1].id)
    why = f" ({found[-1].id}: {found[-1].problem})" if found and found[-1].problem else ""
    return NotFoundError(
        f"there is no whole backup{why}; see holdfast backup list, and make one with: holdfast backup create"
    )


def _count(engine: Holdfast, kinds: Sequence[str] | None) -> int:
    """About how many memories a backup will hold."""
    return engine.backups.count_memories(kinds or None)


def _memories_in(engine: Holdfast, backup_id: str) -> int:
    """How many memories a backup says that it has; one that cannot be trusted is for ``verify`` to tell of."""
    return next((one.memories for one in engine.backups.list() if one.id == backup_id), 0)


# --- restoring --------------------------------------------------------------------------------------------------------


def _ask(chosen: Sequence[Backup], user: str | None, memory: str | None, *, overwrite: bool, silent: bool) -> None:
    every = "what is there and what is missing" if overwrite else "what is missing"
    what = every if memory is None else f"memory {printable(memory)}"
    whom = "of everyone" if user is None else f"of {printable(user)}"
    then = "; memories that are there become what they were" if overwrite else "; what is there stays as it is"
    says = f"the store is in use: {what} {whom} would be brought back from {_named(chosen)}{then}"
    if silent or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfirmationNeededError(f"{says}. Nothing was changed: confirm with --yes")
    error_console().print(f"{says[0].upper()}{says[1:]}.", soft_wrap=True)
    typer.confirm("Bring it back?", err=True, abort=True)


def _named(chosen: Sequence[Backup]) -> str:
    return " and ".join(f"{one.id} ({', '.join(one.kinds)}, {minute(one.created_at)})" for one in chosen)


def _restore_each(engine: Holdfast, chosen: Sequence[Backup], options: Mapping[str, Any]) -> list[Restored]:
    """Restore one after the other; it is enough if one of several has what was asked for."""
    done: list[Restored] = []
    missing: NotFoundError | None = None
    for one in chosen:
        try:
            done.append(engine.backups.restore(one.id, **options))
        except NotFoundError as problem:
            missing = problem
    if missing is not None and not done:
        raise missing
    return done


# --- how it looks -----------------------------------------------------------------------------------------------------


def _show_made(console: Console, made: Mapping[str, Any]) -> None:
    console.print(
        f"Backup {made['id']}: {_memories(made)} ({_kinds(made['kinds'])}).",
        style="green",
        soft_wrap=True,
    )
    console.print(
        f"{_size(made['written'])} were written, {_size(made['bytes'])} belong to it; kept until "
        f"{minute(made['keeps_until'])}.",
        soft_wrap=True,
    )
    if made["problem"]:
        console.print(f"NOT EVERYONE is in it: {printable(made['problem'])}", style="bold red", soft_wrap=True)


def _show_list(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("No backup has been made yet; make one with: holdfast backup create")
        return
    rows = [
        (
            one["id"],
            minute(one["created_at"] or None, "?"),
            _kinds(one["kinds"]),
            f"{one['users']:,}",
            f"{one['memories']:,}",
            _size(one["bytes"]),
            _size(one["written"]),
            minute(one["keeps_until"] or None, "?"),
            _trial(one),
        )
        for one in found
    ]
    columns = ("backup!", "made!", "kinds", "users>", "memories>", "size>", "new>", "kept until!", "trial")
    show_rows(console, columns, rows)


def _trial(one: Mapping[str, Any]) -> Text:
    if one["problem"]:
        return Text(printable(one["problem"]), style="bold red")
    if one["good"] is None:
        return Text("not tried yet", style="yellow")
    return Text(f"good ({minute(one['tried_at'])})", style="green")


def _show_check(console: Console, check: Mapping[str, Any]) -> None:
    looked = f"{_memories(check)}, {_size(check['bytes'])} in {check['seconds']:,.1f} s"
    gone = f"; {counted(check['erased'], 'erased user')} cannot be read any more" if check["erased"] else ""
    if check["good"]:
        how = "Good: restored on trial and compared" if check["restored"] else "Whole: each byte is as it was written"
        console.print(f"{how}: {looked}{gone}.", style="green", soft_wrap=True)
        if not check["restored"]:
            console.print(f"To try it out too: holdfast backup verify {check['id']} --restore", soft_wrap=True)
        return
    show_rows(console, ("what is wrong",), [(printable(problem),) for problem in check["problems"]])
    console.print(f"DAMAGED: backup {check['id']}, {looked}{gone}.", style="bold red", soft_wrap=True)
    console.print("Make another that copies everything: holdfast backup create --full")


#: What a restore counts, in words for one and for more; what is 0 is left out.
_COUNTED: Final = {
    "memories": ("memory is back", "memories are back"),
    "expired": (
        "memory is past its time by the rules in force: nobody sees it, and the next sweep takes it",
        "memories are past their time by the rules in force: nobody sees them, and the next sweep takes them",
    ),
    "kept": (
        "memory was there already, and was left as it is",
        "memories were there already, and were left as they are",
    ),
    "lost": (
        "memory cannot be brought back: the backup has not the cold object that it lies in",
        "memories cannot be brought back: the backup has not the cold object that they lie in",
    ),
    "sessions": ("conversation is back", "conversations are back"),
    "messages": ("message is back", "messages are back"),
    "facts": ("fact is back", "facts are back"),
    "holds": ("hold is back", "holds are back"),
    "objects": ("cold object is back", "cold objects are back"),
    "erased": ("user was erased since, and stays so", "users were erased since, and stay so"),
    "strangers": (
        "user was left out: the name belongs to somebody else by now",
        "users were left out: their name belongs to somebody else by now",
    ),
}
_BACK: Final = ("memories", "sessions", "messages", "facts", "holds", "objects")


def _show_restored(console: Console, done: Sequence[Mapping[str, Any]], how: str) -> None:
    for one in done:
        whence = f"from backup {one['backup_id']} ({_kinds(one['kinds'])})"
        if one["whole"] or any(one[name] for name in _BACK):
            what = "the whole store" if one["whole"] else how
            said, style = f"Restored {what} {whence}: {counted(one['users'], 'user')}.", "green"
        else:
            said, style = f"Nothing was brought back {whence}.", ""
        console.print(said, style=style, soft_wrap=True)
        rows = [(words[one[name] != 1], f"{one[name]:,}") for name, words in _COUNTED.items() if one.get(name)]
        if rows:
            show_rows(console, ("what", "how many>"), rows)
        elif not one["whole"] and not one["binned"]:
            console.print("Nothing was missing.")


def _point_to_bin(count: int, user: str | None, memory: str | None, tenant: str) -> None:
    """Say how what is in the recycle bin is brought back."""
    whose = "" if user is None else f" --user {printable(user)}"
    where = "" if tenant == DEFAULT_TENANT else f" --tenant {printable(tenant)}"
    how = "list" if user is None else "restore" if memory is None else f"restore --memory {printable(memory)}"
    are = "is" if count == 1 else "are"
    console().print(f"{count:,} {are} in the recycle bin: holdfast recycle {how}{whose}{where}", soft_wrap=True)


def _show_rotated(console: Console, done: Mapping[str, Any]) -> None:
    words = {
        "removed": ("removed: past its time", ""),
        "kept": ("kept past its time: no later one is good", "yellow"),
        "rewritten": ("rewritten: without the erased", ""),
        "damaged": ("DAMAGED: left as it is", "bold red"),
        "waiting": ("waits: past its time by the clock alone", "yellow"),
        "ahead": ("dated later than now: left alone; see holdfast backup remove", "yellow"),
    }
    rows = [(one, Text(said, style=style)) for name, (said, style) in words.items() for one in done[name]]
    if rows:
        show_rows(console, ("backup!", "what was done"), rows)
    if done["waiting_for"]:
        console.print(f"Backups wait: {done['waiting_for']}.", style="yellow", soft_wrap=True)
    _show_objects(console, done)


def _show_removed(console: Console, done: Mapping[str, Any]) -> None:
    console.print(f"Removed backup {done['removed'][0]}.", style="green")
    if done["damaged"]:
        console.print("What it alone referred to stays while another backup cannot be read: holdfast backup list")
    _show_objects(console, done)


def _show_objects(console: Console, done: Mapping[str, Any]) -> None:
    were = "was" if done["objects"] == 1 else "were"
    console.print(f"{counted(done['objects'], 'object')} that no backup refers to {were} removed.")


def _memories(said: Mapping[str, Any]) -> str:
    return f"{counted(said['memories'], 'memory', 'memories')} of {counted(said['users'], 'user')}"


def _kinds(kinds: Sequence[str]) -> str:
    return "every kind" if set(kinds) == {kind.value for kind in DURABLE} else ", ".join(kinds)


def _size(count: int) -> str:
    """A number of bytes, as people read it."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
