"""A store in which there is something of everything, and all the answers that it gives."""

from __future__ import annotations

from typing import Any

from clocks import FakeClock
from holdfast import EpisodicRetentionPolicy, Holdfast, MemoryType
from holdfast.core.records import DURABLE
from holdfast.ports.session_parts import PartRegistration

LONG = "Ann takes the window seat. She likes tea with milk. The dog is called Rex. " * 30
USERS = ("ann", "bob", "zoë")
KEPT_OUT = "Snores at night."


def fill(holdfast: Holdfast, clock: FakeClock) -> None:
    """Every kind and every state: live, corrected, archived in place, cold, in the bin, kept out, gone, held, ruled,
    sealed.
    """
    _rule(holdfast)
    old = holdfast.manager("ann", "travel", "s1")
    old.add(LONG, "long_term", {"tags": ["a", "ü"], "n": 1.5, "nothing": None})
    old.structured.define("orders", {"type": "object", "required": ["n"]})
    old.structured.put("orders", {"n": 1, "text": LONG}, key="one")
    clock.advance(days=300)
    old.episodic.record_episode("book a flight", ["look", "pay"], messages=[{"role": "user", "content": LONG}])
    clock.advance(days=95)
    holdfast.sweep(confirm=True)  # into cold storage, and the episode in place
    for user in USERS:
        _live(holdfast, user, clock)
    holdfast.manager("erased", "travel", "s2").add("to be erased", "long_term")
    holdfast.erase_user("erased")
    lose(holdfast, clock)
    _remove(holdfast)
    holdfast.audit.seal()
    holdfast.holds.add(user_id="bob", reason="Case 4711", author="dpo")  # entries after the seal
    holdfast.schedule.run("daily")


def _rule(holdfast: Holdfast) -> None:
    holdfast.policies.set("long_term", user_id="ann", delete_after_days=4_000, confirm=True, author="dpo")
    holdfast.policies.set_episodic("travel", EpisodicRetentionPolicy(60, 800), confirm=True)
    holdfast.policies.set("history", agent_id="travel", delete_after_days=60, author="dpo")
    holdfast.quotas.set("long_term", max_memories=500, user_id="ann")
    holdfast.quotas.set("persona", max_bytes=10**6)
    holdfast.schedule.set("daily", cron="5 3 * * *")
    holdfast.access.create("phone", rights=["read"], tenant="default", users=["ann", "zoë"], expires_at="2040-01-01")
    holdfast.services.parts.add(PartRegistration("other", "rows", "rows", "sqlite:///rows.db", {"a": 1}, "zoë"))
    holdfast.access.revoke(holdfast.access.create("old", rights=["admin"], tenant="*")[0].id)


def _live(holdfast: Holdfast, user: str, clock: FakeClock) -> None:
    memory = holdfast.manager(user, "travel", "s2")
    moved = memory.add("Lives in Rome.", "long_term", key="home")["memory_id"]
    clock.advance(minutes=1)
    memory.correct(moved, "Lives in Oslo.", reason="moved")
    memory.delete(memory.add(KEPT_OUT, "long_term")["memory_id"], keep_out=True)
    memory.add_many([f"{user} enjoys {what}" for what in ("skiing", "tea", "long walks", "music")], "long_term")
    changed = memory.add("said twice", "long_term")["memory_id"]
    memory.update(changed, "said in other words, and at length: " + LONG, {"by": user})
    memory.add("Formal, and brief.", "persona", source="import:crm", derived_from=[changed])
    memory.episodic.record_episode("plan a trip", ["ask", "book"], tool_calls=[{"name": "search", "arguments": {}}])
    memory.entity.add("Rex", "dog", {"age": 3}, since="2020-01-01")
    memory.entity.set("Rex", {"age": 4})
    memory.entity.relate("Rex", "lives_with", user)
    memory.entity.end("Rex", "age")
    memory.structured.put("orders", {"n": 2, "user": user}, key="two")
    for n in range(3):
        said = f"message {n} of {user}: {LONG if n == 1 else 'hello'}"
        memory.short_term.add_message("user", said, external_id=f"msg {n}" if n else None)
    clock.advance(minutes=1)


def lose(holdfast: Holdfast, clock: FakeClock) -> None:
    """One of each sort of thing is gone for good, the latest: its number must not be given again."""
    lost = holdfast.manager("lost", "lost", "lost")
    lost.delete(lost.add("soon gone for good", "long_term")["memory_id"])
    lost.short_term.add_message("user", "soon gone for good")
    holdfast.sessions.remove("lost", "lost")
    holdfast.agents.add("lost")
    holdfast.agents.remove("lost")
    clock.advance(days=16)
    holdfast.recycle.purge()
    holdfast.sweep(confirm=True)


def _remove(holdfast: Holdfast) -> None:
    """Some of everything into the bin."""
    ann, bob = holdfast.manager("ann", "travel", "s2"), holdfast.manager("bob", "travel", "s2")
    ann.delete(ann.list_memories("long_term")[0]["memory_id"])
    ann.short_term.add_message("user", "the last one")
    bob.delete(bob.list_memories("long_term")[0]["memory_id"])
    bob.entity.delete("Rex")
    bob.short_term.add_message("user", "still there")
    bob.short_term.delete(bob.short_term.get_full_history()[0]["message_id"])
    holdfast.manager("ann", "travel", "s3").short_term.add_message("user", "to be removed")
    holdfast.sessions.remove("travel", "s3", user_id="ann")
    holdfast.agents.add("gone", "an agent that is removed")
    holdfast.manager("zoë", "gone", "s9").add("belongs to an agent that is gone", "persona")
    holdfast.agents.remove("gone")
    holdfast.tools.add("hammer", "a tool", {"weight": 2})
    hold = holdfast.holds.add(tag="by=ann", reason="Case 1", author="dpo")
    holdfast.holds.release(hold.id, author="dpo")


def answers(holdfast: Holdfast) -> dict[str, Any]:
    """All that a store says of itself and of what is in it."""
    said: dict[str, Any] = {
        "bin": holdfast.recycle.list(limit=1000),
        "holds": holdfast.holds.list(released=True),
        "rules": holdfast.policies.list(),
        "agents": holdfast.agents.list(include_removed=True),
        "tools": holdfast.tools.list(include_removed=True),
        "jobs": holdfast.schedule.list(),
        "keys": holdfast.access.list(),
        "audit": holdfast.audit.tail(1000),
        "verdict": holdfast.audit.verify(),
        "plan": holdfast.sweep(dry_run=True, at="2030-01-01").digest,
    }
    for user in USERS:
        said[user] = _answers_of(holdfast, user)
    return said


def _answers_of(holdfast: Holdfast, user: str) -> dict[str, Any]:
    memory = holdfast.manager(user, "travel", "s2")
    listed = {kind: memory.list_memories(kind, limit=1000, include_archived=True) for kind in DURABLE}
    ids = [one["memory_id"] for found in listed.values() for one in found]
    home = memory.history(key="home")
    return {
        "listed": listed,
        "got": [memory.get(memory_id) for memory_id in ids],
        "explained": [memory.explain(memory_id) for memory_id in ids],
        "recalled": [
            memory.retrieve(query, list(DURABLE), top_k=20, include_archived=True, explain=True)
            for query in ("tea and skiing", "what is the dog called?", "book a trip")
        ],
        "versions": [memory.history(memory_id) for memory_id in ids],
        "then": memory.retrieve("Where is home?", ["long_term"], as_of=home[0]["started_at"], explain=True),
        "kept_out": memory.kept_out(),
        "window": memory.short_term.get_conversation_history(),
        "history": memory.short_term.get_full_history(),
        "sessions": holdfast.sessions.list(user),
        "facts": [memory.entity.history(one["memory_id"]) for one in listed[MemoryType.ENTITY]],
        "order": memory.structured.get("orders", "one"),
        "orders": memory.structured.find("orders"),
        "quota": [holdfast.quotas.get(kind, user) for kind in DURABLE],
        "audit": holdfast.audit.tail(1000, user_id=user),
    }
