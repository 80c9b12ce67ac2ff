"""Make backups, see that they are good, and bring back what is in them.

Examples:
    holdfast backup create
    holdfast backup verify latest --restore
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

from rich.filesize import decimal
from rich.text import Text

from holdfast.core.errors import InvalidInputError, NotFoundError
from holdfast.core.records import DURABLE, MemoryType
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Yes, declare, of_store, of_tenant
from holdfast.edges.cli.output import Cell, ExitCode, Output, Part, Rows, bad, good, minute, plural, table, warn

if TYPE_CHECKING:
    from holdfast.backups.catalog import Backup
    from holdfast.backups.restore import Restored
    from holdfast.engine import Holdfast

_LATEST: Final = "latest"

backup = add_group(__name__, "backup", __doc__)
Which = Annotated[str, declare("ID|latest", "Which backup; latest is the latest whole one.")]
_TRUST: Final = "The clock is right, although it leaped, or is behind what the store has seen or far ahead of it."
TrustClock = Annotated[bool, declare("--confirm", _TRUST)]


def _show_made(made: Mapping[str, Any]) -> Iterator[Part]:
    yield good(f"Backup {made['id']}: {_memories_of(made)} ({_join_kinds(made['kinds'])}).")
    written, size = decimal(made["written"]), decimal(made["bytes"])
    yield f"{written} were written, {size} belong to it; kept until {minute(made['keeps_until'])}."
    if made["problem"]:
        yield bad(f"NOT EVERYONE is in it: {made['problem']}")


@command(backup, "create", of_store, render=_show_made)
def create(call: Call, *, kind: list[str] | None = None, full: bool = False, confirm: TrustClock = False) -> Any:
    """Make a backup of the store as it is now, while others go on using it.

    What belongs to a user is sealed under the user's key. Without --kind it has memories of every kind, with rules,
    agents, conversations and the audit chain; working and short-term memory are never in a backup. Ends with exit
    code 3 if a user is not in it whose key cannot be opened.

    Options:
        --kind KIND  Only memories of this kind, and what goes with them; repeatable.
        --full  Copy everything, also what has not changed since the backup before.

    Examples:
        holdfast backup create --kind persona

        holdfast backup create --full --json
    """
    total = call.engine.backups.count_memories(kind or None) if call.is_watched else 0
    with call.progress("backing up", total) as advance:
        made = call.engine.backups.create(kind or None, full=full, confirm=confirm, progress=advance)
    return Output(made.as_dict(), code=ExitCode.UNHEALTHY if made.left_out else 0)


@table(
    "backup!, made!, kinds, users>, memories>, size>, new>, kept until!, trial",
    empty="No backup has been made yet; make one with: holdfast backup create",
)
def _show_backups(one: Mapping[str, Any]) -> list[Cell]:
    trial = warn("not tried yet") if one["good"] is None else good(f"good ({minute(one['tried_at'])})")
    made, kept = (minute(one[name], "unknown") for name in ("created_at", "keeps_until"))
    sizes = [decimal(one[name]) for name in ("bytes", "written")]
    counts = [one["users"], one["memories"], *sizes]
    return [one["id"], made, _join_kinds(one["kinds"]), *counts, kept, bad(one["problem"]) if one["problem"] else trial]


@command(backup, "list", of_store, render=_show_backups)
def list_backups(call: Call) -> Any:
    """List all backups, the oldest first: what each holds, until when it is kept, and what came of its last trial.

    Examples:
        holdfast backup list
    """
    call.purpose, call.only_reads = "restore", True
    return [one.as_dict() for one in call.engine.backups.list()]


def _show_check(check: Mapping[str, Any]) -> Iterator[Part]:
    looked = f"{_memories_of(check)}, {decimal(check['bytes'])} in {check['seconds']:,.1f} s"
    gone = f"; {plural(check['erased'], 'erased user')} cannot be read any more" if check["erased"] else ""
    if check["good"]:
        how = "Good: restored on trial and compared" if check["restored"] else "Whole: each byte is as it was written"
        yield good(f"{how}: {looked}{gone}.")
        if not check["restored"]:
            yield f"To try it out too: holdfast backup verify {check['id']} --restore"
        return
    yield Rows("what is wrong", [(problem,) for problem in check["problems"]])
    yield bad(f"DAMAGED: backup {check['id']}, {looked}{gone}.")
    yield "Make another that copies everything: holdfast backup create --full"


@command(backup, "verify", of_store, render=_show_check)
def verify(call: Call, *, which: Which, restore: bool = False) -> Any:
    """Read all of a backup and see that each byte is as it was written.

    Only one that was restored on trial counts as good, and only when a later one is good may an old one go. Ends with
    exit code 3 if something is wrong, and says what.

    Options:
        --restore  Also restore it into a store of its own, read that again and compare.

    Examples:
        holdfast backup create
        holdfast backup verify latest

        holdfast backup verify latest --restore --json
    """
    call.purpose, call.only_reads = "restore", True
    backups = call.engine.backups
    chosen = max(backups.latest(), default="") if which == _LATEST else which
    if not chosen:
        _refuse(call.engine)
    # One that cannot be trusted has no number here: that is for verify to tell of.
    total = next((one.memories for one in backups.list() if one.id == chosen), 0)
    with call.progress("restoring on trial" if restore else "verifying", total) as advance:
        check = backups.verify(chosen, restore=restore, progress=advance)
    return Output(check.as_dict(), code=0 if check else ExitCode.UNHEALTHY)


@command(backup, "restore", of_tenant)
def restore(
    call: Call,
    *,
    which: Which,
    user: str | None = None,
    memory: str | None = None,
    overwrite: bool = False,
    yes: Yes = False,
) -> Any:
    """Bring back what a backup holds; nobody who was erased since comes back.

    Into a store that nothing was ever kept in: all of it, exactly as it was. Into one in use: the memories,
    conversations, facts and holds that are missing. With "latest", what the latest backups hold together: the one with
    long-term memory first, then those of the kinds that it has not.

    Options:
        --user -u USER  Only what is this user's.
        --memory ID  Only this memory of the user's.
        --overwrite  Memories that are there become what they were.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast backup create
        holdfast backup restore latest --yes

        holdfast backup restore latest --user alice --yes --json
    """
    if memory is not None and user is None:
        raise InvalidInputError("say whose memory it is, too: --user USER --memory ID")
    call.purpose = "restore"
    engine = call.engine
    chosen = _together(engine.backups.list()) if which == _LATEST else [engine.backups.get(which)]
    if not chosen:
        _refuse(engine)
    if not yes and (user is not None or engine.backups.is_store_used()):
        says = _describe_restore(chosen, user, memory, overwrite=overwrite)
        call.ask("Bring it back?", [f"{says[0].upper()}{says[1:]}."], otherwise=says)
    with call.progress("restoring", sum(one.memories for one in chosen)) as advance:
        options = {"user_id": user, "memory_id": memory, "overwrite": overwrite, "progress": advance}
        done = _restore_each(engine, chosen, options)

    def show(said: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
        yield from _show_restored(said, "what it holds" if overwrite else "what was missing")
        if binned := sum(one["binned"] for one in said):
            yield f"The recycle bin has {binned:,} of them: {_bin_command(user, memory, call.tenant)}"

    return Output([one.as_dict() for one in done], show)


def _show_rotated(done: Mapping[str, Any]) -> Iterator[Part]:
    words = {
        "removed": Text("removed: past its time"),
        "kept": warn("kept past its time: no later one is good"),
        "rewritten": Text("rewritten: without the erased"),
        "damaged": bad("DAMAGED: left as it is"),
        "waiting": warn("must wait for the clock: only by it is it past its time"),
        "ahead": warn("dated later than now: left alone; see holdfast backup remove"),
    }
    rows = [(one, said) for name, said in words.items() for one in done[name]]
    if rows:
        yield Rows("backup!, what was done", rows)
    if done["waiting_for"]:
        yield warn(f"Backups must wait: {done['waiting_for']}.")
    yield f"Removed {plural(done['objects'], 'object')} that no backup refers to."


@command(backup, "rotate", of_store, render=_show_rotated)
def rotate(call: Call, *, confirm: TrustClock = False) -> Any:
    """Remove the backups past their time, and take what was sealed for the erased out of the others.

    30 days, 90 for those of persona alone; never the last good one of a kind. The schedule does it every day. Those
    that are dated later than now are left alone, and named.

    Examples:
        holdfast backup rotate
    """
    return call.engine.backups.rotate(confirm=confirm).as_dict()


def _show_removed(done: Mapping[str, Any]) -> Iterator[Part]:
    yield good(f"Removed backup {done['removed'][0]}.")
    if done["damaged"]:
        yield "What it alone referred to stays while another backup cannot be read: holdfast backup list"
    yield f"Removed {plural(done['objects'], 'object')} that no backup refers to."


@command(backup, "remove", of_store, render=_show_removed)
def remove(call: Call, *, which: str, confirm: bool = False, even_last: bool = False) -> Any:
    """Remove one backup for good, such as one that is damaged, or was made under a clock that ran ahead.

    What other backups refer to stays. Refused while no other backup that is good has all of its kinds.

    Options:
        ID  Which backup.
        --confirm  It is to go, for good.
        --even-last  Even if it may be the last good one of a kind.

    Examples:
        holdfast backup create
        id=$(holdfast backup list --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p' | tail -n 1)
        holdfast backup remove $id --confirm --even-last
    """
    return call.engine.backups.remove(which, confirm=confirm, even_last=even_last).as_dict()


# --- which, and how much ----------------------------------------------------------------------------------------------


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


def _refuse(engine: Holdfast) -> NoReturn:
    """Say why no backup is of use. If the newest cannot even be read, that is raised: another may not help."""
    found = engine.backups.list()
    if found and not found[-1].created_at:
        engine.backups.get(found[-1].id)
    why = f" ({found[-1].id}: {found[-1].problem})" if found and found[-1].problem else ""
    advice = "see holdfast backup list, and make one with: holdfast backup create"
    raise NotFoundError(f"there is no whole backup{why}; {advice}")


# --- restoring --------------------------------------------------------------------------------------------------------


def _describe_restore(chosen: Sequence[Backup], user: str | None, memory: str | None, *, overwrite: bool) -> str:
    every = "what is there and what is missing" if overwrite else "what is missing"
    what = every if memory is None else f"memory {memory}"
    whom = "of everyone" if user is None else f"of {user}"
    then = "memories that are there become what they were" if overwrite else "what is there stays as it is"
    named = " and ".join(f"{one.id} ({', '.join(one.kinds)}, {minute(one.created_at)})" for one in chosen)
    return f"the store is in use: {what} {whom} would be brought back from {named}; {then}"


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


#: What a restore brings back and counts, and what else it counts; what is 0 is left out.
_BACK: Final = ("memories", "sessions", "messages", "facts", "holds", "objects")
_COUNTED: Final = {
    **{name: f"{name} brought back" for name in _BACK},
    "objects": "cold objects brought back",
    "expired": "memories past their time by the rules in force: nobody sees them, and the next sweep takes them",
    "kept": "memories that were there already, and stay as they are",
    "lost": "memories that stay lost: the backup does not have their cold objects",
    "erased": "users who were erased since, and stay so",
    "strangers": "users who were left out: somebody else has their name by now",
}


def _show_restored(done: Sequence[Mapping[str, Any]], how: str) -> Iterator[Part]:
    for one in done:
        whence = f"from backup {one['backup_id']} ({_join_kinds(one['kinds'])})"
        if one["whole"] or any(one[name] for name in _BACK):
            what = "the whole store" if one["whole"] else how
            yield good(f"Restored {what} {whence}: {plural(one['users'], 'user')}.")
        else:
            yield f"Nothing was brought back {whence}."
        rows = [(words, one[name]) for name, words in _COUNTED.items() if one.get(name)]
        if rows:
            yield Rows("what, how many>", rows)
        elif not one["whole"] and not one["binned"]:
            yield "Nothing was missing."


def _bin_command(user: str | None, memory: str | None, tenant: str) -> str:
    """How what is in the recycle bin is brought back."""
    whose = "" if user is None else f" --user {user}"
    where = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    how = "list" if user is None else "restore" if memory is None else f"restore --memory {memory}"
    return f"holdfast recycle {how}{whose}{where}"


def _memories_of(said: Mapping[str, Any]) -> str:
    return f"{plural(said['memories'], 'memory')} of {plural(said['users'], 'user')}"


def _join_kinds(kinds: Sequence[str]) -> str:
    return "every kind" if set(kinds) == {kind.value for kind in DURABLE} else ", ".join(kinds)
