"""The stops of the tour that let time pass: forecast, archive, recycle bin, hold, explanation, audit chain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HeldError
from holdfast.core.records import MemoryType
from holdfast.core.rules import DEFAULTS, Terms
from holdfast.core.times import FOREVER, describe_duration
from holdfast.edges.cli.output import printable

if TYPE_CHECKING:
    from holdfast.edges.cli.tour import Tour


class SimulatedClock:
    """The present, as far ahead as the tour has let time pass."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def advance(self, days: int) -> None:
        """Let days pass."""
        self._ahead += timedelta(days=days)


def lives(kind: str) -> str:
    """How long a kind lives by default, in a few words."""
    if kind == MemoryType.WORKING:
        return "until its task ends"
    if kind == MemoryType.SHORT_TERM:
        return f"{describe_duration(DEFAULTS[kind].delete_after or 0)} after the last message"
    terms: Terms = DEFAULTS[kind]
    if (terms.keep_for or 0) >= FOREVER:
        return "for ever"
    whole = None if terms.archive_after is None else describe_duration(terms.archive_after)
    if terms.delete_after is None:
        return "until removed" if whole is None else f"until removed; cold after {whole}"
    in_all = describe_duration(terms.delete_after)
    return in_all if whole is None else f"{whole} in full, {in_all} in all"


def forecast(tour: Tour) -> None:
    stage = tour.stage
    stage.say("Every kind has its time. What a sweep would do can be seen before it does it: today, or in a year.")
    stage.code("holdfast.sweep(dry_run=True, at=in_a_year)")
    plan: Any = tour.holdfast.sweep(dry_run=True, at=tour.clock() + timedelta(days=366))
    rows = [(line.memory_type, line.action, f"{line.records:,}", line.reason) for line in plan.lines]
    stage.rows(("kind", "action", "records>", "because"), rows)
    stage.say("Nothing was changed. On the command line: holdfast sweep --dry-run --at +366d")


def archive_in_place(tour: Tour) -> None:
    episodic, stage = tour.memory.episodic, tour.stage
    rows = []
    for then in ("today", "91 days later"):
        if then != "today":
            tour.clock.advance(91)
            tour.holdfast.sweep()
        (best, *_) = episodic.query_similar_episodes("airline trouble", top_k=1)
        messages = episodic.get_messages(best["episode_id"])
        kept = messages if isinstance(messages, str) else f"{len(messages)}"
        rows.append((then, kept, tour.cut(best["summary"], 60)))
    stage.say("After 90 days a sweep archives an episode in place: its messages go, its summary is still found.")
    stage.code("holdfast.sweep()")
    stage.rows(("then", "messages>", "found for 'airline trouble'"), rows)


def fifteen_days(tour: Tour) -> None:
    memory, stage = tour.memory, tour.stage
    memory_id = memory.add("The spare key is under the blue pot")["memory_id"]
    memory.delete(memory_id)
    rows = []
    for days in (0, 10):
        tour.clock.advance(days)
        (item,) = (item for item in tour.holdfast.recycle.list(user_id="alice") if item.get("memory_id") == memory_id)
        rows.append((f"{days} days later", tour.cut(item["content"], 40), str(item["reason"]), f"{item['days_left']}"))
    stage.say("What was removed, by whomever, can come back for 15 days; then it is deleted for good.")
    stage.code('holdfast.recycle.list(user_id="alice")')
    stage.rows(("", "memory", "removed because", "days left>"), rows)
    stage.code("holdfast.recycle.restore(memory_id=memory_id)")
    count = tour.holdfast.recycle.restore(memory_id=memory_id)
    stage.say(f"{count} came back: {memory.get(memory_id)['content']}")


def holds(tour: Tour) -> None:
    holdfast, stage = tour.holdfast, tour.stage
    contract = tour.memory.add("Signed the rental contract for the chalet", "long_term", {"topic": "contract"})
    stage.code('holdfast.holds.add(tag="topic=contract", reason="Case 4711", author="legal")')
    holdfast.holds.add(tag="topic=contract", reason="Case 4711", author="legal")
    stage.code("memory.delete(contract_id)")
    try:
        tour.memory.delete(contract["memory_id"])
    except HeldError as problem:
        stage.refusal(problem)
    tour.held_id = contract["memory_id"]


def explanations(tour: Tour) -> None:
    stage = tour.stage
    stage.say("Why is this still here, and for how long?")
    stage.code("memory.explain(contract_id)")
    stage.say(tour.memory.explain(tour.held_id)["summary"])
    (episode, *_) = tour.memory.episodic.query_similar_episodes("airline trouble", top_k=1)
    stage.code("memory.explain(episode_id)")
    stage.say(tour.memory.explain(episode["episode_id"])["summary"])


def audit_chain(tour: Tour) -> None:
    stage = tour.stage
    stage.say("Every move and every refusal is an entry of a chain in which each hashes the one before it.")
    stage.code("holdfast.audit.tail(3)")
    rows = [(entry["at"][:10], entry["action"], _why(entry["detail"])) for entry in tour.holdfast.audit.tail(3)]
    stage.rows(("on", "what happened", "why"), rows)
    stage.code("holdfast.audit.verify()")
    verdict = tour.holdfast.audit.verify()
    whole = "whole" if verdict else "NOT whole"
    stage.say(f"{verdict.entries:,} entries in {verdict.chains} chains were read again: the chain is {whole}.")


def _why(detail: Mapping[str, Any]) -> str:
    return printable(str(detail.get("reason") or ("a hold stands" if "hold" in detail else "")))
