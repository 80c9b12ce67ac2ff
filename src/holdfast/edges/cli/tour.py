"""The tour that ``holdfast demo`` takes: its stops, in order, over a real engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from holdfast.core.errors import QuotaExceededError
from holdfast.edges.cli.lifetimes import (
    SimulatedClock,
    archive_in_place,
    audit_chain,
    explanations,
    fifteen_days,
    forecast,
    holds,
    lives,
)
from holdfast.edges.cli.output import printable
from holdfast.edges.cli.render import bar, score_parts
from holdfast.edges.cli.stage import Stage
from holdfast.edges.cli.year import a_year, backups, erasure
from holdfast.engine import Holdfast, MemoryManager
from holdfast.settings import Settings

_BULK: Final = 2_000
_QUERIES, _WRITES = 200, 50
_NEXT: Final = """\
from holdfast import MemoryManager
memory = MemoryManager(user_id="user_123", agent_id="travel_agent")
memory.add("Enjoys skiing and mountain views", "long_term", {"topic": "sports"})
print(memory.retrieve("a holiday in the mountains"))"""


class Tour:
    """The engine, its clock, the memory of one user in it, and the stage."""

    def __init__(self, holdfast: Holdfast, clock: SimulatedClock, stage: Stage) -> None:
        self.holdfast = holdfast
        self.clock = clock
        self.memory: MemoryManager = holdfast.manager("alice", "travel_agent", "sess_1")
        self.stage = stage
        self.held_id = ""

    def cut(self, text: str, most: int) -> str:
        """Text as a cell of a table."""
        return _cut(text, most)

    def show(self, results: Sequence[Mapping[str, Any]]) -> None:
        """What was recalled."""
        rows = [(bar(r["score"]), r["memory_type"], _cut(r["content"], 60)) for r in results]
        self.stage.rows(("score", "kind", "memory"), rows)


def seven_kinds(tour: Tour) -> None:
    memory = tour.memory
    contents: list[tuple[str, str | dict[str, Any]]] = [
        ("working", "Comparing flights for the trip in May"),
        ("short_term", "I would rather fly in the morning"),
        ("long_term", "Enjoys skiing and mountain views"),
        ("persona", "Answer briefly, in a friendly tone"),
        ("episodic", "Moved the dinner for six to Friday because of the storm"),
        ("entity", "Maria is Alice's sister and travels with her"),
        ("structured", {"booking": "ZRH-771", "nights": 3, "price": 420}),
    ]
    tour.holdfast.manager("warm", "up").add("The first write loads the embedder's weights")
    rows = []
    for kind, content in contents:
        added = memory.add(content, kind)
        rows.append(
            (
                kind,
                _cut(content if isinstance(content, str) else json.dumps(content), 34),
                lives(kind),
                f"{added['latency_ms']:.2f} ms",
            )
        )
    tour.stage.rows(("kind", "memory", "lives", "written in>"), rows)


def by_meaning(tour: Tour) -> None:
    memory, stage = tour.memory, tour.stage
    memory.add("Is allergic to peanuts and shellfish", "long_term", {"topic": "health"})
    memory.add("Adores spicy noodles from street stalls", "long_term", {"topic": "food", "price": 8})
    memory.add("Had a fine dinner at the harbour restaurant", "long_term", {"topic": "food", "price": 85})
    added = memory.add_many([_note(n) for n in range(_BULK)], "long_term", {"topic": "work"})
    stage.say(f"{_BULK:,} notes from work went in as one transaction, in {added['latency_ms']:,.0f} ms.")
    for query in ("skiing in the mountains", "food allergy"):
        stage.code(f"memory.retrieve({query!r}, top_k=2)")
        tour.show(memory.retrieve(query, top_k=2))


def by_filter(tour: Tour) -> None:
    stage = tour.stage
    stage.say("Filters apply before the best are taken, so none of the 2,000 notes is in the way.")
    stage.code('memory.retrieve("something to eat", filters={"topic": "food", "price": {"lt": 20}})')
    tour.show(tour.memory.retrieve("something to eat", filters={"topic": "food", "price": {"lt": 20}}))


def several_kinds(tour: Tour) -> None:
    kinds = ["long_term", "working", "short_term", "episodic", "entity"]
    tour.stage.say("Working memory comes first, the others by score; every score can be explained.")
    tour.stage.code(f"memory.retrieve('flight', {kinds}, explain=True)")
    found = tour.memory.retrieve("flight", kinds, explain=True)
    rows = [(bar(r["score"]), r["memory_type"], _cut(r["content"], 34), score_parts(r)) for r in found]
    tour.stage.rows(("score", "kind", "memory", "because"), rows)


def quotas(tour: Tour) -> None:
    holdfast, stage = tour.holdfast, tour.stage
    holdfast.quotas.set("long_term", max_memories=20, user_id="bob")
    memory = holdfast.manager("bob", "travel_agent")
    memory.add_many([_note(n) for n in range(20)])
    stage.code('memory.add("One too many")')
    try:
        memory.add("One too many")
    except QuotaExceededError as problem:
        stage.refusal(problem)
    stage.code('memory.add_with_auto_prune("One too many")')
    added = memory.add_with_auto_prune("One too many")
    left = memory.count_memories()
    stage.say(f"{added['pruned']} oldest went to the recycle bin, one was added: {left} of 20 are there.")


def deletes(tour: Tour) -> None:
    memory, stage = tour.memory, tour.stage
    memory_id = memory.add("The door code of the chalet is 4711")["memory_id"]
    query = "door code of the chalet"
    before = memory.retrieve(query, top_k=1)
    memory.delete(memory_id)
    after = memory.retrieve(query, top_k=1)
    memory.restore(memory_id)
    back = memory.retrieve(query, top_k=1)
    stage.say("What is deleted is out of recall at once, and can come back exactly as it was.")
    stages = (("added", before), ("deleted", after), ("restored", back))
    stage.rows(
        ("then", "score", "best match for 'door code of the chalet'"), [_best(name, found) for name, found in stages]
    )


def compression(tour: Tour) -> None:
    text = "The itinerary in full. " + " ".join(_note(n) for n in range(200))
    memory_id = tour.memory.add(text)["memory_id"]
    found = tour.memory.get(memory_id)
    same = "the same" if found["content"] == text else "NOT the same"
    flag = found["metadata"].get("is_compressed")
    tour.stage.say(f"{len(text):,} characters were stored compressed (is_compressed: {flag}) and came back {same}.")


def facts(tour: Tour) -> None:
    entity, stage = tour.memory.entity, tour.stage
    entity.add("Maria", "person", {"city": "Porto"})
    entity.relate("Maria", "works_at", "Acme", since=datetime(2023, 2, 1, tzinfo=UTC))
    entity.relate("Maria", "works_at", "Globex", since=datetime(2025, 6, 1, tzinfo=UTC), replace=True)
    stage.say("A fact that is replaced ends; it is not overwritten.")
    stage.code('memory.entity.relate("Maria", "works_at", "Globex", since=june, replace=True)')
    history = entity.history("Maria", "works_at")
    rows = [(f"Maria works at {f['target']}", f["since"][:10], (f["until"] or "now")[:10]) for f in history]
    stage.rows(("fact", "since", "until"), rows)
    then = entity.get("Maria", at=datetime(2024, 1, 1, tzinfo=UTC))["relations"][0]["target"]
    now = entity.get("Maria")["relations"][0]["target"]
    stage.say(f"Asked as of January 2024 the answer is {then}; asked now it is {now}.")


def episodes(tour: Tour) -> None:
    episodic, stage = tour.memory.episodic, tour.stage
    episodic.record_episode(
        "Rebook a cancelled flight",
        ["Looked for another flight and found none", "Offered a night train", "Booked two berths to Vienna"],
        messages=[
            {"role": "user", "content": "My flight to Vienna was cancelled. What now?"},
            {"role": "assistant", "content": "The night train leaves at 21:40 and has two berths left."},
        ],
    )
    stage.say("An episode keeps its steps and messages; a summary is made without any model service.")
    stage.code('memory.episodic.query_similar_episodes("airline trouble", top_k=1)')
    (best, *_) = episodic.query_similar_episodes("airline trouble", top_k=1)
    stage.rows(("score", "date", "summary"), [(bar(best["score"]), best["date"][:10], _cut(best["summary"], 140))])
    (message, *_) = episodic.query_messages("when does the train leave?", top_k=1)
    stage.say(f"Single messages can be found too: {message['content']}")


def latencies(tour: Tour) -> None:
    words = ("invoice", "deadline", "contract", "skiing", "noodles", "peanuts", "review", "meeting")
    for n in range(_QUERIES):
        tour.memory.retrieve(f"{words[n % len(words)]} {words[n // len(words) % len(words)]}")
    for n in range(_WRITES):
        tour.memory.add(_note(_BULK + n))
        tour.memory.add(_note(n), "working")
        tour.memory.add(_note(n), "short_term")
    for _ in range(_WRITES):
        tour.memory.retrieve("contract", ["working", "short_term", "long_term"])
    rows = [
        (
            row["operation"],
            row["memory_type"],
            f"{row['count']:,}",
            f"{row['p50_ms']:.2f} ms",
            f"{row['p95_ms']:.2f} ms",
        )
        for row in tour.holdfast.latencies.summary()
        if row["count"] >= 20
    ]
    tour.stage.say("Measured during this tour, on this machine; a durable write is on the disk when it returns.")
    tour.stage.rows(("operation", "kind", "calls>", "p50>", "p95>"), rows)


STOPS: Final = (
    ("Seven kinds of memory", seven_kinds),
    ("Recall by meaning", by_meaning),
    ("Recall with filters", by_filter),
    ("Several kinds at once", several_kinds),
    ("A quota says so when it is reached", quotas),
    ("Deletes are seen at once", deletes),
    ("Long contents are compressed", compression),
    ("Facts have dates", facts),
    ("Episodes", episodes),
    ("What time will bring", forecast),
    ("Episodes are archived in place", archive_in_place),
    ("The recycle bin", fifteen_days),
    ("A hold refuses", holds),
    ("Every memory can be explained", explanations),
    ("The audit chain", audit_chain),
    ("A year passes", a_year),
    ("Backups that were tried", backups),
    ("Erased, and proven", erasure),
    ("How fast it was", latencies),
)


def take(stage: Stage, home: str) -> dict[str, Any]:
    """Take the tour in a folder of its own, with the default settings; what was measured on the way."""
    settings = Settings(home=Path(home), url=f"sqlite:///{home}/holdfast.db")
    clock = SimulatedClock()
    with Holdfast(settings, clock=clock) as holdfast:
        tour = Tour(holdfast, clock, stage)
        stage.open("Holdfast", f"Memory for AI agents that knows when to let go. A tour in {len(STOPS)} stops.")
        for number, (title, stop) in enumerate(STOPS, start=1):
            stage.heading(number, title)
            stop(tour)
            stage.rest()
        measured = holdfast.latencies.summary()
    stage.console.print()
    stage.say("Your turn, in four lines:")
    stage.listing(_NEXT)
    stage.say("Then: holdfast doctor, holdfast --help. This tour's store is gone.")
    return {"stops": [title for title, _ in STOPS], "latencies": measured}


def _best(name: str, found: Sequence[Mapping[str, Any]]) -> tuple[str | Text, ...]:
    return (name, bar(found[0]["score"]), _cut(found[0]["content"], 60)) if found else (name, "", "nothing")


def _cut(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _note(n: int) -> str:
    """A dull note from work, another for each number."""
    who = ("Priya", "Jonas", "Mei", "Omar", "Lucia")[n % 5]
    what = ("invoice", "contract", "test report", "budget", "roadmap", "audit")[n % 6]
    did = ("approved", "postponed", "questioned", "signed", "returned", "updated", "archived")[n % 7]
    return f"{who} {did} {what} {n + 1_000}"
