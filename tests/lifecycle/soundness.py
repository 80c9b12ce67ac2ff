"""What must be true of a store between any two verbs, whatever happened before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retain import Retain
from retain.storage.sqlite.database import rows


def asked(retain: Retain, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """Rows of the store, past every port."""
    with retain.database.read() as connection:
        return rows(connection, statement, bindings)


def objects_of(retain: Retain) -> set[str]:
    """The names of the cold objects that lie in the archive's folder."""
    folder = retain.settings.home / "archive"
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in found}


def object_path(retain: Retain, name: str) -> Path:
    """Where a cold object lies."""
    return retain.settings.home / "archive" / name


def packs_of(retain: Retain) -> set[str]:
    """The names of the cold objects that the store knows."""
    return {row[0] for row in asked(retain, "SELECT name FROM packs")}


def check_counts(retain: Retain) -> None:
    """What is counted for quotas is what is there."""
    counted = asked(retain, "SELECT scope, memories, bytes FROM scopes WHERE memories != 0 OR bytes != 0 ORDER BY 1")
    there = asked(
        retain,
        "SELECT key >> 29, count(*), sum(size) FROM records WHERE state IN ('active', 'archived') GROUP BY 1 ORDER BY 1",
    )
    assert counted == there
    messages = asked(retain, "SELECT no, messages FROM sessions WHERE state = 'active' ORDER BY no")
    kept = "SELECT count(*) FROM history WHERE key >> 24 = ? AND purge_at IS NULL"
    for number, held in messages:
        assert asked(retain, kept, number) == [(held,)]


def check_chain(retain: Retain) -> None:
    """The audit chain is whole."""
    verdict = retain.audit.verify()
    assert verdict.ok, verdict.findings


def check_cold(retain: Retain) -> None:
    """Every cold record's object is there, and no object is there for nothing; nothing is half done with any."""
    assert objects_of(retain) == packs_of(retain)
    assert asked(retain, "SELECT name, state FROM packs WHERE state != 'kept'") == []
    short = asked(
        retain,
        "SELECT name FROM packs WHERE records != (SELECT count(*) FROM records WHERE pack = packs.no)",
    )
    assert short == [], "an object holds more, or less, than the records that lie in it"
    assert asked(retain, "SELECT id FROM records WHERE pack IS NOT NULL AND pack NOT IN (SELECT no FROM packs)") == []


def check_settled(retain: Retain) -> None:
    """After a sweep nothing is half done."""
    assert asked(retain, "SELECT id FROM records WHERE state = 'deleting'") == []
    assert asked(retain, "SELECT id FROM sessions WHERE state = 'deleting'") == []
    assert asked(retain, "SELECT id FROM rules WHERE pending IS NOT NULL") == []
    assert asked(retain, "SELECT id FROM registry WHERE unfinished IS NOT NULL") == []
    orphans = "SELECT key FROM history WHERE key >> 24 NOT IN (SELECT no FROM sessions)"
    assert asked(retain, orphans) == []
    check_cold(retain)


def check_sound(retain: Retain) -> None:
    """All of it, after a sweep."""
    check_settled(retain)
    check_counts(retain)
    check_chain(retain)
