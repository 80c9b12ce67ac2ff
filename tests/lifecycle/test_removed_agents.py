"""An agent in the recycle bin changes nothing, by any verb; what people do for a user goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from clocks import FakeClock
from effort import sampled
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, ConflictError, HeldError
from holdfast.core.records import Subject
from holdfast.manager import Memory
from holdfast.memory.entity import Entity
from holdfast.memory.episodic import Episodic
from holdfast.memory.services import Services
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.structured import Structured
from holdfast.memory.text import TextMemory
from holdfast.memory.working import Working

LONG = "notes " * 200


class Ids(NamedTuple):
    """What there is to change."""

    shared: str
    corrected: str
    kept_out: str
    binned: str
    cold: str
    message: str
    note: str


Verb = Callable[[MemoryManager, Ids], Any]

#: Every verb that changes what a store keeps, as an agent does it.
REFUSED: dict[str, Verb] = {
    "Memory.add": lambda memory, _: memory.add("new"),
    "Memory.add (persona)": lambda memory, _: memory.add("new", "persona"),
    "Memory.add (short_term)": lambda memory, _: memory.add("new", "short_term"),
    "Memory.add (episodic)": lambda memory, _: memory.add("new", "episodic"),
    "Memory.add (entity)": lambda memory, _: memory.add("new", "entity"),
    "Memory.add (structured)": lambda memory, _: memory.add({"new": 1}, "structured"),
    "Memory.add_with_auto_prune": lambda memory, _: memory.add_with_auto_prune("new"),
    "Memory.add_many": lambda memory, _: memory.add_many(["new", "newer"]),
    "Memory.add (dedupe)": lambda memory, _: memory.add("likes tea", dedupe=True),
    "Memory.add (key)": lambda memory, _: memory.add("lives in Bonn", key="home_city"),
    "Memory.add (supersedes)": lambda memory, ids: memory.add("changed", supersedes=ids.shared),
    "Memory.remember": lambda memory, _: memory.remember([{"role": "user", "content": "new"}], lambda _: ["new"]),
    "Memory.remember (known message)": lambda memory, ids: memory.remember(
        [{"role": "user", "content": "hello", "message_id": ids.message}], lambda _: ["new"]
    ),
    "Memory.update": lambda memory, ids: memory.update(ids.shared, "changed"),
    "Memory.update (metadata)": lambda memory, ids: memory.update(ids.shared, metadata={"changed": True}),
    "Memory.correct": lambda memory, ids: memory.correct(ids.shared, "changed"),
    "Memory.correct (cold)": lambda memory, ids: memory.correct(ids.cold, {"city": "changed"}),
    "Memory.revert": lambda memory, ids: memory.revert(ids.corrected, 1),
    "Memory.delete": lambda memory, ids: memory.delete(ids.shared),
    "Memory.delete (with_derived)": lambda memory, ids: memory.delete(ids.shared, with_derived=True),
    "Memory.delete (keep_out)": lambda memory, ids: memory.delete(ids.shared, keep_out=True),
    "Memory.delete (message)": lambda memory, ids: memory.delete(ids.message),
    "Memory.restore": lambda memory, ids: memory.restore(ids.binned),
    "Memory.rehydrate": lambda memory, ids: memory.rehydrate(ids.cold),
    "Memory.import_memories": lambda memory, _: memory.import_memories(
        [{"key": "1", "content": "new"}], source="import:elsewhere"
    ),
    "TextMemory.add": lambda memory, _: memory.long_term.add("new"),
    "ShortTerm.add_message": lambda memory, _: memory.short_term.add_message("user", "new"),
    "ShortTerm.add_messages": lambda memory, _: memory.short_term.add_messages([{"role": "user", "content": "new"}]),
    "ShortTerm.pop_message": lambda memory, _: memory.short_term.pop_message(),
    "ShortTerm.append": lambda memory, _: memory.short_term.append("user", ["new"], None),
    "ShortTerm.delete": lambda memory, ids: memory.short_term.delete(ids.message),
    "Episodic.record_episode": lambda memory, _: memory.episodic.record_episode("a trip", ["went"]),
    "Entity.add": lambda memory, _: memory.entity.add("Rome", attributes={"country": "changed"}),
    "Entity.add (new)": lambda memory, _: memory.entity.add("Bonn"),
    "Entity.set": lambda memory, _: memory.entity.set("Rome", {"country": "changed"}),
    "Entity.relate": lambda memory, _: memory.entity.relate("Rome", "near", "Ostia"),
    "Entity.end": lambda memory, _: memory.entity.end("Rome", "country"),
    "Entity.delete": lambda memory, _: memory.entity.delete("Rome"),
    "Structured.define": lambda memory, _: memory.structured.define("trips", None),
    "Structured.put": lambda memory, _: memory.structured.put("trips", {"city": "changed"}, key="rome"),
    "Structured.put (cold)": lambda memory, _: memory.structured.put("trips", {"city": "changed"}, key="cold"),
    "Structured.put (new)": lambda memory, _: memory.structured.put("trips", {"city": "Bonn"}, key="bonn"),
    "Structured.put_many": lambda memory, _: memory.structured.put_many(
        [
            {"collection": "trips", "key": "rome", "document": {"city": "changed"}},
            {"collection": "trips", "key": "bonn", "document": {"city": "Bonn"}},
        ]
    ),
    "Structured.put_many (to the bin)": lambda memory, _: memory.structured.put_many(
        [{"collection": "trips", "key": "rome", "document": None}]
    ),
    "Structured.refresh": lambda memory, _: memory.structured.refresh("trips", ["soon"]),
    "Structured.delete": lambda memory, _: memory.structured.delete("trips", "rome"),
}
#: What is done for a user, or to keep the store in order, whichever memory it is called on; and what ends with a process.
ALLOWED: dict[str, Verb] = {
    "Memory.lift": lambda memory, ids: memory.lift(ids.kept_out),
    "Memory.archive_due": lambda memory, _: memory.archive_due("long_term"),
    "Memory.delete_user_memories": lambda memory, _: memory.delete_user_memories("ann"),
    "Memory.gdpr_delete_user_data": lambda memory, _: memory.gdpr_delete_user_data("ann"),
    "Memory.end_task": lambda memory, _: memory.end_task(),
    "TextMemory.archive_old_memories": lambda memory, _: memory.long_term.archive_old_memories(),
    "TextMemory.delete_all": lambda memory, _: memory.long_term.delete_all("ann"),
    "Episodic.cleanup_old_episodes": lambda memory, _: memory.episodic.cleanup_old_episodes(),
    "Entity.delete_user_entities": lambda memory, _: memory.entity.delete_user_entities("ann"),
    "Structured.delete_user_data": lambda memory, _: memory.structured.delete_user_data("ann"),
    "Working.add": lambda memory, _: memory.working.add("new"),
    "Working.put": lambda memory, _: memory.working.put(["new"], None, prune=False),
    "Working.update": lambda memory, _: memory.working.update(memory.working.items()[0]),
    "Working.delete": lambda memory, ids: memory.working.delete(ids.note),
    "Working.clear": lambda memory, _: memory.working.clear(),
}
READS = {
    "Memory.retrieve",
    "Memory.context",
    "Memory.conflicts",
    "Memory.history",
    "Memory.kept_out",
    "Memory.list_memories",
    "Memory.get",
    "Memory.derived",
    "Memory.count_memories",
    "Memory.explain",
    "Memory.gdpr_export_user_data",
    "Memory.export_kind",
    "TextMemory.retrieve",
    "Memory.rules",
    "TextMemory.export_all",
    "TextMemory.list",
    "TextMemory.count",
    "ShortTerm.messages",
    "ShortTerm.get_conversation_history",
    "ShortTerm.get_full_history",
    "ShortTerm.get_ttl",
    "Episodic.query_similar_episodes",
    "Episodic.query_messages",
    "Episodic.get_messages",
    "Episodic.get_steps",
    "Episodic.get_tool_calls",
    "Entity.get",
    "Entity.history",
    "Entity.neighbours",
    "Entity.export_all",
    "Structured.get",
    "Structured.read",
    "Structured.collections",
    "Structured.find",
    "Structured.export_all",
    "Working.items",
    "Working.get",
}


def test_every_verb_is_known_to_change_something_or_not() -> None:
    verbs = {
        f"{kind.__name__}.{name}"
        for kind in (Memory, TextMemory, ShortTerm, Episodic, Entity, Structured, Working)
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    known = {name.split(" ")[0] for name in (*REFUSED, *ALLOWED)} | READS
    assert verbs - known == set(), "say of a new verb whether a removed agent may use it"
    assert known - verbs == set()


@pytest.fixture
def ids(holdfast: Holdfast, clock: FakeClock) -> Ids:
    memory = holdfast.manager("ann", "guide", "trip")
    cold = memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="cold")
    clock.advance(days=181)
    holdfast.sweep()
    assert holdfast.services.records.get(Subject("default", "ann"), cold).pack is not None  # type: ignore[union-attr]
    memory.entity.add("Rome", attributes={"country": "Italy"})
    memory.structured.put("trips", {"city": "Rome"}, key="rome")
    binned = memory.add("likes coffee")["memory_id"]
    memory.delete(binned)
    memory.structured.put("trips", {"city": "Oslo"}, key="soon", ttl=600)
    clock.advance(seconds=60)
    corrected = memory.add("lives in Paris", key="home_city")["memory_id"]
    memory.correct(corrected, "lives in Lyon")
    kept_out = memory.add("was ill in May")["memory_id"]
    memory.delete(kept_out, keep_out=True)
    made = Ids(
        memory.add("likes tea")["memory_id"],
        corrected,
        kept_out,
        binned,
        cold,
        memory.short_term.add_message("user", "hello"),
        memory.working.add("a note"),
    )
    holdfast.agents.remove("guide")
    return made


def whole(holdfast: Holdfast) -> dict[str, Any]:
    """All that is kept of the user."""
    export = holdfast.export_user("ann")
    return {name: value for name, value in export.items() if name not in ("export_date", "audit")}


@sampled
@pytest.mark.parametrize("verb", REFUSED)
def test_a_removed_agent_changes_nothing(holdfast: Holdfast, ids: Ids, verb: str) -> None:
    before = whole(holdfast)

    with pytest.raises(AgentRemovedError, match="agent 'guide' is in the recycle bin") as refused:
        REFUSED[verb](holdfast.manager("ann", "guide", "trip"), ids)

    assert not refused.value.retryable
    assert whole(holdfast) == before


#: Verbs that ask for the agent once more in the transaction that writes.
IN_TIME = [
    name
    for name in REFUSED
    if name.startswith(
        (
            "Memory.update",
            "Memory.correct",
            "Memory.revert",
            "Memory.delete",
            "Memory.restore",
            "Entity.",
            "Structured.put",
            "Structured.refresh",
            "Structured.delete",
        )
    )
    and "message" not in name
]


@sampled
@pytest.mark.parametrize("verb", IN_TIME)
def test_an_agent_that_is_removed_between_the_first_look_and_the_write_changes_nothing(
    holdfast: Holdfast, ids: Ids, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = whole(holdfast)
    monkeypatch.setattr(Services, "check_agent", lambda *_: None)  # it was there when it was asked for first

    with pytest.raises(AgentRemovedError, match="agent 'guide' is in the recycle bin"):
        REFUSED[verb](holdfast.manager("ann", "guide", "trip"), ids)

    assert whole(holdfast) == before


@sampled
@pytest.mark.parametrize("verb", ALLOWED)
def test_what_is_done_for_a_user_goes_on_after_an_agent_was_removed(holdfast: Holdfast, ids: Ids, verb: str) -> None:
    ALLOWED[verb](holdfast.manager("ann", "guide", "trip"), ids)


def test_another_agent_and_a_restored_one_change_what_they_like(holdfast: Holdfast, ids: Ids) -> None:
    holdfast.manager("ann", "other").update(ids.shared, "likes green tea")
    holdfast.agents.restore("guide")
    memory = holdfast.manager("ann", "guide", "trip")
    memory.structured.put("trips", {"city": "Oslo"}, key="rome")
    assert memory.get(ids.shared)["content"] == "likes green tea"
    assert memory.structured.get("trips", "rome") == {"city": "Oslo"}


# --- documents in cold storage ------------------------------------------------------------------------------------------


def archived(holdfast: Holdfast, clock: FakeClock) -> tuple[MemoryManager, str]:
    memory = holdfast.manager("ann", "guide")
    made = memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="rome", metadata={"case": "7"})
    clock.advance(days=181)
    holdfast.sweep()
    return memory, made


def test_a_put_that_a_hold_refuses_leaves_a_document_in_cold_storage_as_it_was(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory, made = archived(holdfast, clock)
    holdfast.holds.add(tag="case=7", reason="case 7", author="legal")
    clock.advance(days=5)
    before = holdfast.services.records.get(Subject("default", "ann"), made)
    assert before is not None
    assert before.pack is not None

    with pytest.raises(HeldError, match="leave the tag in its metadata"):
        memory.structured.put("trips", {"city": "Oslo"}, key="rome")

    assert holdfast.services.records.get(Subject("default", "ann"), made) == before
    assert memory.structured.get("trips", "rome") == {"city": "Rome", "notes": LONG}
    assert holdfast.explain(made)["is_archived"]


def test_a_put_over_a_document_in_cold_storage_brings_it_back_changed(holdfast: Holdfast, clock: FakeClock) -> None:
    memory, made = archived(holdfast, clock)
    holdfast.holds.add(tag="case=7", reason="case 7", author="legal")
    before = holdfast.quotas.get("structured", "ann")
    clock.advance(days=5)

    again = memory.structured.put("trips", {"city": "Oslo"}, key="rome", metadata={"case": "7", "new": True})

    assert again == made
    record = holdfast.services.records.get(Subject("default", "ann"), made)
    assert record is not None
    assert (record.state, record.pack, record.metadata["new"]) == ("active", None, True)
    assert record.aged_from == holdfast.services.now(), "its age counts anew"
    assert memory.structured.get("trips", "rome") == {"city": "Oslo"}
    assert [one["document"] for one in memory.structured.find("trips")] == [{"city": "Oslo"}]
    assert [one["content"] for one in memory.retrieve("Oslo", memory_type="structured")] == ['{"city":"Oslo"}']
    after = holdfast.quotas.get("structured", "ann")
    assert (after.memories, after.bytes < before.bytes) == (1, True)
    actions = [entry["action"] for entry in holdfast.audit.tail(99, user_id="ann") if entry["item"] == made]
    assert actions[-1] == "rehydrated"
    clock.advance(days=1)
    holdfast.sweep()
    assert list(holdfast.services.objects().names()) == [], "nothing of the old one is left in cold storage"


def test_agent_removed_is_a_conflict_and_not_one_to_try_again() -> None:
    assert issubclass(AgentRemovedError, ConflictError)
    assert not AgentRemovedError.retryable
