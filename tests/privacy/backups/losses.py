"""What a user has before something is lost, how it is lost for good, and how it is looked at row by row."""

from __future__ import annotations

from typing import Any

import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.storage.catalog import TABLES

#: What a restored row has of its own: whose number, which place, and numbers of rows that others have.
_OWN = {"subject", "key", "no", "profile", "model", "pack"}
LONG = "the whole story of the journey to the sea and back again, " * 40


def columns(table: str) -> list[str]:
    """The columns of a table that a restore brings back as they were."""
    found = next(one for one in TABLES if one.name == table)
    return [name for name in found.columns if name not in _OWN]


def record_row(holdfast: Holdfast, memory_id: str) -> tuple[Any, ...]:
    """All of a record that is the same wherever it is kept: model and cold object by their names."""
    asked = ", ".join(f"records.{name}" for name in columns("records"))
    found = raw.rows(
        holdfast,
        f"SELECT {asked}, models.id, packs.name FROM records LEFT JOIN models ON models.code = records.model "  # noqa: S608
        "LEFT JOIN packs ON packs.no = records.pack AND packs.subject = records.subject WHERE records.id = ?",
        (memory_id,),
    )
    assert len(found) <= 1, "nothing is there twice"
    return found[0] if found else ()


def rows_in(holdfast: Holdfast, table: str, user_id: str) -> list[tuple[Any, ...]]:
    """All rows of a user, as far as they are the same wherever they are kept."""
    asked = ", ".join(f"{table}.{name}" for name in columns(table))
    whose = f"{holdfast.tenant}/{user_id}"
    by = "subjects.no = (SELECT subject FROM sessions WHERE no = history.key >> 24)"
    by = by if table == "history" else f"subjects.no = {table}.subject"
    found = raw.rows(
        holdfast,
        f"SELECT {asked} FROM {table} JOIN subjects ON {by} WHERE subjects.subject = ?",  # noqa: S608
        (whose,),
    )
    return sorted(found, key=repr)


def alias_of(holdfast: Holdfast, user_id: str) -> str | None:
    """The pseudonym of a user."""
    found = raw.rows(holdfast, "SELECT alias FROM subjects WHERE subject = ?", (f"{holdfast.tenant}/{user_id}",))
    return bytes(found[0][0]).hex() if found else None


def lose(holdfast: Holdfast, clock: FakeClock, user_id: str, *memory_ids: str) -> None:
    """Delete memories of a user for good: their time in the recycle bin is over, and a sweep has come."""
    memory = holdfast.manager(user_id, "guide", "trip")
    for memory_id in memory_ids:
        memory.delete(memory_id)
    clock.advance(days=16)
    holdfast.sweep(confirm=True)
    assert not any(record_row(holdfast, memory_id) for memory_id in memory_ids)


def remember(holdfast: Holdfast, user_id: str) -> dict[str, str]:
    """Something of every kind; the ids, by what it is."""
    memory = holdfast.manager(user_id, "guide", "trip")
    first = memory.add(f"{user_id} likes the window seat", "long_term", {"tags": ["travel"], "n": 1.5})["memory_id"]
    kept = {
        "plain": first,
        "long": memory.add(LONG, "long_term", source="tool:search", derived_from=[first])["memory_id"],
        "persona": memory.add(f"{user_id} speaks plainly", "persona")["memory_id"],
        "episode": memory.episodic.record_episode(
            "book a train", ["look", "pay"], messages=["which one?", "the first"]
        ),
        "document": memory.structured.put("trips", {"city": "Rome", "days": 3}, key="rome"),
        "entity": memory.entity.add(f"{user_id} Smith", attributes={"city": "Paris"}),
        "friend": memory.entity.add("Carla", "person"),
    }
    memory.entity.relate(kept["entity"], "knows", kept["friend"])
    for n in range(4):
        memory.short_term.add_message("user" if n % 2 == 0 else "assistant", f"message {n}")
    return kept
