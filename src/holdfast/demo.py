"""The tour that ``holdfast demo`` shows: a real engine, in a folder and a year of its own."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import HeldError, QuotaExceededError
from holdfast.engine import Holdfast
from holdfast.settings import Settings

NEXT: Final = """\
from holdfast import MemoryManager
memory = MemoryManager(user_id="user_123", agent_id="travel_agent")
memory.add("Enjoys skiing and mountain views", "long_term", {"topic": "sports"})
print(memory.retrieve("a holiday in the mountains"))"""
_NOTES: Final = 2_000
_KINDS: Final[tuple[tuple[str, Any], ...]] = (
    ("working", "Comparing flights for the trip in May"),
    ("short_term", "I would rather fly in the morning"),
    ("long_term", "Enjoys skiing and mountain views"),
    ("persona", "Answer briefly, in a friendly tone"),
    ("episodic", "Moved the dinner to Friday because of rain"),
    ("entity", "Maria is Alice's sister and travels with her"),
    ("structured", {"booking": "ZRH-771", "nights": 3}),
)


#: What a stop shows: sentences, calls (which begin with ``>>>``), and tables: the names of columns, and rows.
Shown = Iterator[str | tuple[str, Sequence[Sequence[str]]]]


class Tour:
    """The engine, a clock that the tour moves, and one user's memory. The docstring of a stop is its title."""

    def __init__(self, holdfast: Holdfast, clock: list[timedelta]) -> None:
        self.holdfast, self._clock = holdfast, clock
        self._memory = holdfast.manager("alice", "travel_agent", "sess_1")

    def show_kinds(self) -> Shown:
        """Seven kinds of memory"""
        self.holdfast.manager("warm", "up").add("The first write loads the embedder's weights")
        rules = {rule["memory_type"]: rule for rule in self._memory.rules()["kinds"]}
        rows = []
        for kind, content in _KINDS:
            took = self._memory.add(content, kind)["latency_ms"]
            days = (rules[kind]["archive_after_days"], rules[kind]["delete_after_days"])
            ends = "never" if kind != "working" else "its task"
            lives = (ends if one is None else f"{one:g} days" if one >= 1 else f"{one * 24:g} h" for one in days)
            rows.append((kind, content if kind != "structured" else json.dumps(content), *lives, f"{took:.2f} ms"))
        yield "kind, memory, archived after>, deleted after>, written in>", rows

    def recall(self) -> Shown:
        """Recall by meaning, words and filters"""
        self._memory.add("Is allergic to peanuts and shellfish", "long_term", {"topic": "health"})
        self._memory.add("Adores spicy noodles from street stalls", "long_term", {"topic": "food", "price": 8})
        self._memory.add("Had a fine dinner at the harbour restaurant", "long_term", {"topic": "food", "price": 85})
        took = self._memory.add_many([_note(n) for n in range(_NOTES)], "long_term", {"topic": "work"})["latency_ms"]
        yield f"{_NOTES:,} notes from work went in as one transaction, in {took:,.0f} ms."
        yield from self._search("what food is she allergic to?", top_k=1)
        yield "Filters apply before the best are taken, so none of the notes is in the way:"
        yield from self._search("a spicy dinner", filters={"topic": "food", "price": {"lt": 20}})
        yield "Every kind at once: working memory comes first, the others by score; what is unrelated stays away."
        yield from self._search("flight", memory_types="all")

    def _search(self, query: str, **options: Any) -> Shown:
        yield f">>> memory.retrieve({query!r}, {', '.join(f'{name}={value!r}' for name, value in options.items())})"
        found = self._memory.retrieve(query, **options)
        yield "score>, kind, memory", [(f"{r['score']:.2f}", r["memory_type"], r["content"]) for r in found]

    def reach_quota(self) -> Shown:
        """A quota says so when it is reached"""
        self.holdfast.quotas.set("long_term", max_memories=20, user_id="bob")
        memory = self.holdfast.manager("bob", "travel_agent")
        memory.add_many([_note(n) for n in range(20)])
        yield '>>> memory.add("One too many")'
        try:
            memory.add("One too many")
        except QuotaExceededError as problem:
            yield f"QuotaExceededError: {problem}"
        pruned = memory.add_with_auto_prune("One too many")["pruned"]
        yield f"With auto_prune, {pruned} oldest went to the recycle bin and one was added."

    def delete(self) -> Shown:
        """Deletes are seen at once, and can be undone"""
        memory_id = self._memory.add("The door code of the chalet is 4711" + " and more" * 500)["memory_id"]
        self._memory.delete(memory_id)
        found = any(one["memory_id"] == memory_id for one in self._memory.retrieve("door code of the chalet"))
        yield f"A deleted memory is {'NOT ' if found else ''}out of recall at once, and in the recycle bin for 15 days."
        self._clock[0] += timedelta(days=10)
        (left,) = (one["days_left"] for one in self.holdfast.recycle.list() if one.get("memory_id") == memory_id)
        self.holdfast.recycle.restore(memory_id=memory_id)
        content = self._memory.get(memory_id)["content"]
        yield f"10 days later it has {left} days left, and comes back whole: {content[:35]}…"

    def date_facts(self) -> Shown:
        """Facts have dates"""
        entity = self._memory.entity
        entity.add("Maria", "person", {"city": "Porto"})
        entity.relate("Maria", "works_at", "Acme", since=datetime(2023, 2, 1, tzinfo=UTC))
        entity.relate("Maria", "works_at", "Globex", since=datetime(2025, 6, 1, tzinfo=UTC), replace=True)
        facts = entity.history("Maria", "works_at")
        rows = [(f"Maria works at {one['target']}", one["since"][:10], (one["until"] or "now")[:10]) for one in facts]
        yield "fact, since, until", rows

    def age_episode(self) -> Shown:
        """Episodes are archived in place"""
        steps = ["Looked for another flight and found none", "Offered a night train", "Booked two berths to Vienna"]
        messages = [{"role": "user", "content": "My flight to Vienna was cancelled. What now?"}]
        self._memory.episodic.record_episode("Rebook a cancelled flight", steps, messages=messages)
        rows = []
        for then, days in (("today", 0), ("91 days later", 91)):
            self._clock[0] += timedelta(days=days)
            self.holdfast.sweep()
            (best, *_) = self._memory.episodic.query_similar_episodes("airline trouble", top_k=1)
            kept = self._memory.episodic.get_messages(best["episode_id"])
            rows.append((then, kept if isinstance(kept, str) else f"{len(kept)}", best["summary"][:60]))
        yield "then, messages>, found for 'airline trouble'", rows

    def hold(self) -> Shown:
        """A hold refuses, and every memory can be explained"""
        kept = self._memory.add("Signed the contract for the chalet", "long_term", {"topic": "contract"})["memory_id"]
        self.holdfast.holds.add(tag="topic=contract", reason="Case 4711", author="legal")
        yield ">>> memory.delete(contract_id)"
        try:
            self._memory.delete(kept)
        except HeldError as problem:
            yield f"HeldError: {problem}"
        yield ">>> memory.explain(contract_id)"
        yield self._memory.explain(kept)["summary"]

    def pass_year(self) -> Shown:
        """A year passes"""
        memory = self.holdfast.manager("carol", "travel_agent", "sess_9")
        for kind, content in _KINDS[1:]:
            memory.add(content, kind)
        yield "What a sweep will do can be seen before: holdfast sweep --dry-run --at +366d"
        plan: Any = self.holdfast.sweep(dry_run=True, at=self.holdfast.services.clock() + timedelta(days=366))
        lines = [(line.memory_type, line.action, f"{line.records:,}", line.reason) for line in plan.lines]
        yield "kind, action, records>, because", lines
        yield "Carol leaves a memory of each kind and does not come back. The schedule runs every night:"
        rows = []
        for month in range(14):
            self._clock[0] += timedelta(days=30 if month else 0)
            runs = self.holdfast.schedule.run_due() if month else []
            done = sum((Counter((run.get("result") or {}).get("counts") or {}) for run in runs), Counter[str]())
            left = [one for kind, _ in _KINDS[2:] for one in memory.list_memories(kind, include_archived=True)]
            words = ", ".join(f"{action} {count:,}" for action, count in done.items()) or "nothing"
            rows.append((f"{month * 30}", f"{len(left)} ({sum(one['is_archived'] for one in left)} archived)", words))
        yield "day>, her memories, what was done that month to anyone", rows

    def erase(self) -> Shown:
        """A backup that was tried, and an erasure that is proven"""
        made = self.holdfast.backups.create()
        check = self.holdfast.backups.verify(made.id, restore=True)
        same = "the same as what it holds" if check else f"NOT the same: {check.problems[0]}"
        yield f"A backup of {check.memories:,} memories was restored on trial in {check.seconds:.2f} s: {same}."
        yield '>>> holdfast.erase_user("carol")'
        erased = self.holdfast.erase_user("carol")
        places = [(one.name, f"{one.found}", f"{one.removed}", f"{one.left}") for one in erased.places if one.found]
        yield "place, found>, removed>, left>", places
        lost = self.holdfast.backups.verify(made.id).erased
        yield f"Her key is destroyed: {lost} user of the backup cannot be read any more, by anyone."
        genuine = self.holdfast.certificates.verify(erased.certificate or {})
        yield f"The certificate names her by pseudonym, is signed, and is {'' if genuine else 'NOT '}genuine."
        chain = self.holdfast.audit.verify()
        yield f"The audit chain has {chain.entries:,} entries and is {'' if chain else 'NOT '}whole."

    def measure(self) -> Shown:
        """How fast it was"""
        for n in range(50):
            self._memory.retrieve(f"{('invoice', 'skiing', 'contract')[n % 3]} {n}")
            self._memory.add(_note(_NOTES + n))
        measured = [one for one in self.holdfast.latencies.summary() if one["count"] >= 20]
        times = [(f"{one['p50_ms']:.2f} ms", f"{one['p95_ms']:.2f} ms") for one in measured]
        rows = [(one["operation"], one["memory_type"], *cells) for one, cells in zip(measured, times, strict=True)]
        yield "operation, kind, p50>, p95>", rows

    stops = (show_kinds, recall, reach_quota, delete, date_facts, age_episode, hold, pass_year, erase, measure)


@contextmanager
def open_tour() -> Iterator[Tour]:
    """A tour in a temporary folder, with the default settings."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as home:
        settings, clock = Settings(home=Path(home), url=f"sqlite:///{home}/holdfast.db"), [timedelta()]
        with Holdfast(settings, clock=lambda: datetime.now(UTC) + clock[0]) as holdfast:
            yield Tour(holdfast, clock)


def _note(n: int) -> str:
    """A dull note from work, another for each number."""
    who, what = ("Priya", "Jonas", "Mei", "Omar", "Lucia")[n % 5], ("invoice", "contract", "budget", "audit")[n % 4]
    return f"{who} {('approved', 'postponed', 'signed')[n % 3]} {what} {n + 1_000}"
