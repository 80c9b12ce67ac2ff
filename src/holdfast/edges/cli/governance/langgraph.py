"""Govern the threads of a LangGraph database: its checkpoints live and go by the rules for conversations.

Examples:
    holdfast langgraph status
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.errors import NotFoundError, quote
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.output import Cell, Part, Rows, good, indent, minute, plural, table, warn

langgraph = add_group(__name__, "langgraph", __doc__)

_NONE = "No LangGraph database is governed; begin with: holdfast langgraph govern URL"


def _show_governed(found: Mapping[str, Any]) -> Iterator[Part]:
    whose = f"{plural(found['threads'], 'thread')} of {plural(found['users'], 'user')}"
    yield good(f"{found['place']} is governed as {found['name']!r}: {whose}.")
    if found["unowned_as"] is not None:
        yield f"Without an owner: {plural(found['without_owner'], 'thread')}, now of user {found['unowned_as']}."
    yield from _show_left(found)
    yield "Threads that are idle for as long as conversations may be go to the recycle bin with the next sweep."
    yield "See which: holdfast sweep --dry-run"


def _show_left(found: Mapping[str, Any]) -> Iterator[Part]:
    left: Sequence[Mapping[str, Any]] = found["left_alone"]
    if left:
        most = "" if len(left) < 100 else ", of which these are the first"
        count = found["without_owner"] if found["unowned_as"] is None else 0
        yield warn(f"Left alone: {plural(max(count + found['without_time'], len(left)), 'thread')}{most}")
        yield from (indent(f"{one['thread_id']}: {one['reason']}") for one in left)
        if count:
            yield "Say whose threads without an owner are: holdfast langgraph govern URL --unowned-as USER"


def _show_status(found: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    if not found:
        yield _NONE
        return
    yield Rows(
        "name!, database, threads>, users>, in the bin>, thinned>, without owner>, idle for longest since!",
        (
            [
                one["name"],
                one["place"],
                one["threads"],
                one["users"],
                one["in_bin"],
                one["thinned"],
                one["without_owner"],
                one["longest_idle_since"] or "never",
            ]
            for one in found
        ),
    )
    for one in found:
        yield from _show_left(one)


def _show_thinned(found: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    if not found:
        yield _NONE
    for one in found:
        yield f"{one['name']}: {plural(one['threads'], 'thread')} thinned by {plural(one['rows'], 'row')}."
        if one["held"]:
            yield warn(f"Holds keep {plural(one['held'], 'thread')} whole.")
        yield from (indent(f"{left['thread_id']}: {left['reason']}") for left in one["left_alone"])


@command(langgraph, "govern", render=_show_governed)
def govern(
    call: Call,
    *,
    database: str,
    user_from: str = "user_id",
    agent_from: str = "assistant_id",
    unowned_as: str | None = None,
    schema: str = "public",
    name: str = "langgraph",
) -> Any:
    """Let the threads of a database that LangGraph's saver writes live by the rules for conversations, from now on.

    The application stays as it is. A thread is a session of the user and the agent that its checkpoints name: idle for
    30 days, it goes to the recycle bin for 15 days, with what was said in the session; holds keep it, exports show it,
    erasures remove it. The bin is in the same database, in tables of its own.

    Options:
        DATABASE  Where the saver writes: a SQLite file, sqlite:///…, or postgresql://….
        --user-from KEY  The key of configurable (or metadata) that says which user a thread is of.
        --agent-from KEY  The one that says which agent it is with.
        --unowned-as USER  Whose threads are whose owner cannot be read; if not given, they are left alone.
        --schema SCHEMA  The schema of the tables, in PostgreSQL.
        --name NAME  What certificates and exports call the database; each governed database has another name.

    Examples:
        python -c 'from langgraph.checkpoint.sqlite import SqliteSaver
        with SqliteSaver.from_conn_string("threads.db") as saver: saver.setup()'
        holdfast langgraph govern threads.db --user-from user_id --agent-from assistant_id
    """
    from holdfast.integrations.langgraph.threads import Threads  # noqa: PLC0415 - not needed for --help

    return Threads(
        database,
        user_from=user_from,
        agent_from=agent_from,
        unowned_as=unowned_as,
        schema=schema,
        name=name,
        engine=call.engine,
    ).status()


@command(langgraph, "status", render=_show_status)
def status(call: Call) -> Any:
    """Show the governed databases: how many threads they have, and which are left alone because nobody can tell whose
    they are or when they were active.

    Examples:
        holdfast langgraph status

        holdfast langgraph status --json
    """
    from holdfast.integrations.langgraph.threads import Threads  # noqa: PLC0415 - not needed for --help

    return [threads.status() for threads in Threads.governed(call.engine)]


@table("thread, agent, state!, last active!, checkpoints>, bytes>, due!", empty="This user has no thread.")
def _show_threads(one: Mapping[str, Any]) -> list[Cell]:
    rows, size = one["rows"], one["bytes"]
    return [
        one["session_id"],
        one["agent_id"],
        one["state"],
        minute(one["active_at"]),
        "" if rows is None else rows,
        "" if size is None else size,
        minute(one["due_at"]),
    ]


@command(langgraph, "threads", render=_show_threads)
def list_threads(call: Call, *, user: str) -> Any:
    """List the threads of a user: their state, checkpoints, size, and when they are due to go.

    Options:
        USER  Whose threads.

    Examples:
        holdfast langgraph threads alice
    """
    return list(call.engine.parts.contents(user))


@command(langgraph, "thin", render=_show_thinned)
def thin(call: Call, *, keep_last: int, name: str | None = None) -> Any:
    """Send the checkpoints that threads do not need beside their last ones to the recycle bin.

    Threads resume as before; what is gone is the way back to earlier states, and for 15 days it can be brought back by
    holdfast langgraph restore. What delta channels are put together from is kept, so that such threads may stay as long
    as they are. Threads under a hold stay whole.

    Options:
        --keep-last N  How many checkpoints of each namespace to keep.
        --name NAME  Only the database of this name.

    Examples:
        holdfast langgraph thin --keep-last 5
    """
    from holdfast.integrations.langgraph.threads import Threads  # noqa: PLC0415 - not needed for --help

    done = []
    for threads in Threads.governed(call.engine):
        if name in (None, threads.name):
            with call.progress("thinning", threads.status()["threads"]) as advance:
                done.append(threads.thin(keep_last=keep_last, progress=advance))
    return done


@command(langgraph, "release", render=lambda found: [f"{found['name']} ({found['url']}) is not governed any more."])
def release(call: Call, *, name: str, confirm: bool = False) -> Any:
    """Let a database live without Holdfast's rules again: nothing of it is removed, and no erasure reaches it any more.

    While threads are in its recycle bin it needs --confirm, for nobody looks after them then.

    Options:
        NAME  What the database is called: see holdfast langgraph status.
        --confirm  Threads in the recycle bin may stay there; or the database cannot be reached.

    Examples:
        python -c 'from langgraph.checkpoint.sqlite import SqliteSaver
        with SqliteSaver.from_conn_string("threads.db") as saver: saver.setup()'
        holdfast langgraph govern threads.db
        holdfast langgraph release langgraph
    """
    return call.engine.parts.remove(name, confirm=confirm)


def _show_restored(found: Mapping[str, Any]) -> Iterator[Part]:
    yield good(f"Restored {plural(found['rows'], 'row')} of thread {found['thread_id']}.")


@command(langgraph, "restore", render=_show_restored)
def restore(call: Call, *, thread: str, name: str | None = None) -> Any:
    """Bring the earlier checkpoints of a thread back that thinning or pruning sent to the recycle bin.

    A thread that is in the bin as a whole comes back with its session: holdfast recycle restore --session THREAD.

    Options:
        THREAD  The id of the thread.
        --name NAME  Only in the database of this name.
    """
    from holdfast.integrations.langgraph.threads import Threads  # noqa: PLC0415 - not needed for --help

    came = sum(threads.restore(thread) for threads in Threads.governed(call.engine) if name in (None, threads.name))
    if not came:
        raise NotFoundError(f"no earlier checkpoints of thread {quote(thread)} are in the recycle bin")
    return {"thread_id": thread, "rows": came}
