"""Graphs without a model, and the places that LangGraph keeps their threads in."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypedDict

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from psycopg.rows import dict_row

from databases import postgres_server
from holdfast.integrations.langgraph.checkpoints import Thread, to_sessions
from holdfast.integrations.langgraph.parts import ThreadPart, open_part
from holdfast.ports.session_parts import PartMove, PartRegistration

_schemas = count()


class Place(NamedTuple):
    """A database in which a saver of LangGraph has made its tables."""

    saver: BaseCheckpointSaver[Any]
    url: str
    schema: str


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    """A SQLite file."""
    file = folder / f"threads-{next(_schemas)}.db"
    connection = sqlite3.connect(file, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    yield Place(saver, f"sqlite:///{file}", "public")
    connection.close()


@contextmanager
def postgres_place(_folder: Path) -> Iterator[Place]:
    """A schema of its own in a PostgreSQL database, which is not the first of the search path of who governs it."""
    url, schema = _database(), f"graphs {next(_schemas)}"
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        connection.execute(f'SET search_path TO "{schema}"'.encode())
        saver = PostgresSaver(connection)
        saver.setup()
        yield Place(saver, url, schema)
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


_databases: list[str] = []


def _database() -> str:
    if not _databases:
        _databases.append(postgres_server().new_database())
    return _databases[0]


def open_threads(place: Place, **options: Any) -> ThreadPart:
    """The threads of a place, as what belongs to sessions."""
    unowned_as = options.pop("unowned_as", None)
    options["schema"] = place.schema
    return open_part(PartRegistration("default", "threads", "langgraph", place.url, options, unowned_as), place.url)


def recycle(threads: ThreadPart, bin_id: str, thread: Thread, *, now: int = 7) -> dict[str, int]:
    """Send a thread to the bin, unless it was active since; when it was, then."""
    (session,) = to_sessions([thread])
    return threads.recycle([PartMove(bin_id, session, thread.active_at)], now=now)


PLACES = {"sqlite": sqlite_place, "postgres": postgres_place}


@contextmanager
def langgraph_time(clock: Callable[[], datetime]) -> Iterator[None]:
    """Let LangGraph tell the time by a clock of ours: it is in the ids of checkpoints."""
    kept = {"time": ids.time, "_last_v6_timestamp": ids._last_v6_timestamp}  # type: ignore[attr-defined]
    moved = SimpleNamespace(time_ns=lambda: round(clock().timestamp() * 1_000_000) * 1_000)
    vars(ids).update(time=moved, _last_v6_timestamp=None)
    try:
        yield
    finally:
        vars(ids).update(kept)


# --- graphs -----------------------------------------------------------------------------------------------------------


def _join(items: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(items or []), *(item for write in writes for item in write)]


class Talk(TypedDict):
    """A channel with a reducer, one that is stored as a difference, and one that is overwritten."""

    said: Annotated[list[str], operator.add]
    noted: Annotated[list[str], DeltaChannel(_join, list, snapshot_frequency=4)]
    last: dict[str, Any]


class Question(TypedDict):
    """What the subgraph knows."""

    said: Annotated[list[str], operator.add]


def talk(saver: BaseCheckpointSaver[Any], *, ask: bool = False, fan_out: int = 0) -> Any:
    """A graph that notes what is said. With ``ask``, a subgraph stops for an answer; with ``fan_out``, so many tasks
    run at once.
    """

    def note(state: Talk) -> dict[str, Any]:
        count_said = len(state["said"])
        return {"said": [f"heard {count_said}"], "noted": [f"note {count_said}"], "last": {"count": count_said}}

    def echo(state: Talk) -> dict[str, Any]:
        return {"noted": [f"echo of {len(state['said'])}"]}

    def go_on(state: Talk) -> list[Any]:
        ways: list[Any] = [Send("echo", state) for _ in range(fan_out)]
        return [*ways, "ask"] if ask else ways or [END]

    graph = StateGraph(Talk)
    graph.add_node("note", note)
    graph.add_node("echo", echo)
    graph.add_node("ask", _question())
    graph.add_edge(START, "note")
    graph.add_conditional_edges("note", go_on, ["echo", "ask", END])
    return graph.compile(checkpointer=saver)


def _question() -> Any:
    graph = StateGraph(Question)
    graph.add_node("wait", lambda _state: {"said": [f"answered {interrupt('well?')}"]})
    graph.add_edge(START, "wait")
    return graph.compile()


class Knots(TypedDict):
    """The channels of a graph that is made at random."""

    said: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    last: dict[str, Any]


def random_graph(saver: BaseCheckpointSaver[Any], kinds: Sequence[str], frequency: int) -> Any:
    """A graph whose nodes follow each other, each of a kind: ``note`` writes, ``fan`` lets some tasks run at once,
    ``stop`` waits for an answer, ``ask`` does so in a subgraph, ``own`` is a subgraph that remembers. What a node writes
    depends on the state alone.
    """
    noted = Annotated[list[str], DeltaChannel(_join, list, snapshot_frequency=frequency)]
    graph = StateGraph(TypedDict("Made", {**Knots.__annotations__, "noted": noted}))  # type: ignore[operator]
    names = [f"{kind}{number}" for number, kind in enumerate(kinds)]
    graph.add_edge(START, names[0])
    for kind, name, after in zip(kinds, names, [*names[1:], END], strict=True):
        if kind in ("ask", "own"):
            graph.add_node(name, _question() if kind == "ask" else _memory())
        else:
            graph.add_node(name, partial(_stop if kind == "stop" else _note, name))
        if kind == "fan":
            graph.add_node(f"{name}-task", partial(_echo, name))
            graph.add_conditional_edges(name, partial(_spread, f"{name}-task"), [f"{name}-task"])
        graph.add_edge(f"{name}-task" if kind == "fan" else name, after)
    return graph.compile(checkpointer=saver)


def _note(name: str, state: Any) -> dict[str, Any]:
    said = len(state["said"])
    return {"said": [f"{name} {said}"], "noted": [f"{name} notes {said}"], "total": said, "last": {name: said}}


def _echo(name: str, state: Any) -> dict[str, Any]:
    return {"said": [f"{name} echoes {state['said'][-1]}"], "noted": [state["said"][-1]], "total": 1}


def _stop(name: str, state: Any) -> dict[str, Any]:
    return {"noted": [f"{name} {interrupt(len(state['said']))}"], "last": {name: True}}


def _spread(task: str, state: Any) -> list[Send]:
    return [Send(task, {**state, "said": [*state["said"], str(number)]}) for number in range(2)]


def _memory() -> Any:
    """A subgraph with a namespace of its own, which goes on from run to run."""
    graph = StateGraph(Question)
    graph.add_node("recall", lambda state: {"said": [f"remembered {len(state['said'])}"]})
    graph.add_edge(START, "recall")
    return graph.compile(checkpointer=True)


def config_of(thread_id: str, user_id: str | None = "ann", agent_id: str | None = "helper") -> RunnableConfig:
    """What a run is called with."""
    named = {"user_id": user_id, "assistant_id": agent_id}
    return {"configurable": {"thread_id": thread_id, **{name: value for name, value in named.items() if value}}}


def say(graph: Any, config: RunnableConfig, text: str) -> Any:
    """Run a graph with something that is said."""
    return graph.invoke({"said": [text], "noted": [], "last": {}}, config)


def look(graph: Any, config: RunnableConfig) -> tuple[Any, ...]:
    """All that can be seen of a thread, but for ids and times."""
    now = graph.get_state(config, subgraphs=True)
    below = [task.state.values for task in now.tasks if task.state is not None]
    stops = [(task.name, [stop.value for stop in task.interrupts]) for task in now.tasks]
    past = [(state.values, state.next, state.metadata["step"]) for state in graph.get_state_history(config)]
    return now.values, now.next, below, stops, past


def stored_bytes(place: Place, folder: Path) -> bytes:
    """All bytes of a database: its files, or every row of every table, and the samples that the server keeps."""
    if place.url.startswith("sqlite"):
        return b"".join(file.read_bytes() for file in folder.glob("threads-*.db*"))
    found = b""
    with psycopg.connect(place.url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (place.schema,)).fetchall()
        for (table,) in tables:
            with connection.cursor().copy(f'COPY "{place.schema}"."{table}" TO STDOUT'.encode()) as copy:
                text = b"".join(copy)
            found += text + b"".join(bytes.fromhex(part) for part in _hex_of(text))
        samples = "SELECT concat_ws(' ', most_common_vals, histogram_bounds) FROM pg_stats WHERE schemaname = %s"
        found += b"".join(str(sample).encode() for (sample,) in connection.execute(samples, (place.schema,)))
    return found


def take_samples(place: Place) -> None:
    """Let a server look at its tables, as it does by itself when many rows have changed."""
    if place.url.startswith("postgresql"):
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def _hex_of(text: bytes) -> list[str]:
    return [
        field[3:].decode() for line in text.splitlines() for field in line.split(b"\t") if field.startswith(b"\\\\x")
    ]
