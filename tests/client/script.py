"""One program that uses every verb of a memory, and what it saw."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

from clocks import FakeClock
from holdfast import HoldfastError, MemoryType
from holdfast.core.records import Message
from holdfast.results.memory import Context

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=\[)[0-9a-f]{8}(?= )|[0-9a-f]{16,}")


#: How long it took, when, and who is named as the actor: a program, or a service.
_OTHERS = {"latency_ms", "tokens", "export_date", "ended_by", "author", "actor"}
START = datetime(2026, 1, 16, 12, tzinfo=UTC)


class Seen:
    """What verbs gave, with the ids in the order in which they came instead of what they are."""

    def __init__(self, memory: Any, clock: FakeClock, runner: asyncio.Runner | None = None) -> None:
        self.memory, self.clock, self.runner = memory, clock, runner
        clock.now = START
        self.called: set[str] = set()
        self.results: list[tuple[str, Any]] = []
        self._ids: dict[str, str] = {}

    def __call__(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        part, _, name = verb.rpartition(".")
        self.called.add(verb)
        self.clock.advance(seconds=1)  # so that of equals the newer is known
        try:
            found = getattr(getattr(self.memory, part) if part else self.memory, name)(*args, **kwargs)
            found = found if self.runner is None else self.runner.run(found)
        except HoldfastError as problem:
            found = None
            self.results.append((verb, (type(problem).__name__, self._normalize(str(problem)), problem.needs)))
        else:
            self.results.append((verb, self._normalize(found)))
        return found

    def _normalize(self, value: Any) -> Any:
        if isinstance(value, str):
            return _ID.sub(lambda found: self._ids.setdefault(found[0], f"id {len(self._ids)}"), value)
        if isinstance(value, dict):
            return {
                self._normalize(name): "…" if name in _OTHERS else self._normalize(one) for name, one in value.items()
            }
        if isinstance(value, Context):
            return ("Context", self._normalize(value.to_dict()))
        if hasattr(value, "_fields"):
            return (type(value).__name__, *(self._normalize(one) for one in value))
        return [self._normalize(one) for one in value] if isinstance(value, list | tuple) else value


def use_memories(call: Seen) -> None:
    """Add, recall, change, delete and restore."""
    day = datetime(2026, 1, 17, tzinfo=UTC)
    tea = call("add", "Ann likes green tea.", MemoryType.LONG_TERM, {"topic": "drinks"}, similar=3)["memory_id"]
    call("add", "Ann lives in Leeds.", key="home", source="import:crm")
    call("add", "Ann lives in Lyon.", key="home")
    call("add", "", "long_term")
    call("add", "tea", "no_such_kind")
    call("add", "Tea is on the list.", derived_from=[tea], dedupe=True)
    call("add_many", ["one cup", "two cups"], metadata=[{"n": 1}, None])
    call("import_memories", [{"key": "1", "content": "Ann skis."}, {"key": "2"}], source="import:crm")
    call("add_with_auto_prune", "Ann swims.", "persona")
    call("retrieve", "What does Ann drink?", "all", 3, explain=True)
    call("retrieve", "tea", memory_type="long_term", filters={"topic": "drinks"}, as_of=day, min_score=0.1)
    call("retrieve", "tea", filters={"topic": {"no": 1}})
    call("context", "What does Ann drink?", max_tokens=200)
    call("list_memories", limit=2)
    call("get", tea)
    call("get", "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77")
    call("derived", tea, deep=True)
    call("conflicts")
    call("count_memories")
    call("update", tea, metadata={"topic": "tea"})
    call("correct", tea, "Ann likes white tea.", reason="She said so.")
    call("history", tea)
    call("history")
    call("revert", tea, 1)
    call("explain", tea)
    call("rules")
    call("delete", tea)
    call("restore", tea)
    call("rehydrate", tea)
    gone = call("add", "Ann had the flu.")["memory_id"]
    call("delete", gone, keep_out=True)
    call("add", "Ann had the flu.")
    call("long_term.add", "Ann had the flu.")
    call("kept_out")
    call("lift", gone)


def use_parts(call: Seen) -> None:
    """Use what the parts of a memory have of their own."""
    note = call("working.add", "a note")
    call("working.put", ["another"], None, prune=False)
    call("working.items")
    call("working.get", note)
    call("working.update", Message(note, "note", "a changed note", 0, {}))
    call("working.delete", note)
    call("working.clear")
    call("end_task")
    said = call("short_term.add_message", "user", "Where is my order?", external_id="m1")
    call("short_term.add_messages", [{"role": "assistant", "content": "On its way."}, {"role": "user", "content": ""}])
    call("short_term.append", "user", ["Thanks."], None)
    for verb in ("messages", "get_conversation_history", "get_full_history", "get_ttl", "pop_message"):
        call(f"short_term.{verb}")
    call("short_term.delete", said)
    for part in ("long_term", "persona"):
        call(f"{part}.add", "Ann cycles.")
        call(f"{part}.retrieve", "cycling")
        call(f"{part}.list")
        call(f"{part}.count")
        call(f"{part}.export_all", call.memory.user_id)
        call(f"{part}.archive_old_memories")
    episode = call(
        "episodic.record_episode", "Book a train", ["looked"], messages=[{"role": "user", "content": "Leeds"}]
    )
    call("episodic.query_similar_episodes", "a journey")
    call("episodic.query_messages", "Leeds")
    for verb in ("get_messages", "get_steps", "get_tool_calls"):
        call(f"episodic.{verb}", episode)
    call("episodic.cleanup_old_episodes")
    call("entity.add", "Ann", "person", {"age": 30})
    call("entity.set", "Ann", {"age": 31})
    call("entity.relate", "Ann", "works_at", "Acme")
    call("entity.get", "Ann")
    call("entity.history", "Ann")
    call("entity.neighbours", "Ann")
    call("entity.end", "Ann", "works_at")
    call("entity.export_all", call.memory.user_id)
    call("entity.delete", "Acme")
    call("structured.define", "books", {"type": "object"})
    call("structured.put", "books", {"title": "Emma"}, key="emma")
    call("structured.put", "books", {"title": "Emma"}, key="emma", if_version=7)
    call("structured.put_many", [{"collection": "books", "document": {"title": "Persuasion"}, "key": "p"}])
    call("structured.get", "books", "emma")
    call("structured.read", "books", "emma")
    call("structured.find", "books", {"title": "Emma"})
    call("structured.collections")
    call("structured.refresh", "books", ["emma"])
    call("structured.delete", "books", "emma")
    call("structured.export_all", call.memory.user_id)


def end(call: Seen) -> None:
    """Let all of it go."""
    call("export_kind", call.memory.user_id, "long_term")
    call("archive_due", "long_term")
    call("entity.delete_user_entities", call.memory.user_id)
    call("structured.delete_user_data", call.memory.user_id)
    for part in ("long_term", "persona"):
        call(f"{part}.delete_all", call.memory.user_id)
    call("delete_user_memories", call.memory.user_id)
    call("gdpr_export_user_data", call.memory.user_id)
    call("gdpr_delete_user_data", call.memory.user_id)


def use_all(call: Seen) -> None:
    """The whole program."""
    use_memories(call)
    use_parts(call)
    end(call)
