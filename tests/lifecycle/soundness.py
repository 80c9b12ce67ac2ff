"""What must be true of a store between any two verbs, whatever happened before."""

from __future__ import annotations

from pathlib import Path

import raw
from retain import Retain


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
    return {row[0] for row in raw.rows(retain, "SELECT name FROM packs")}


def check_counts(retain: Retain) -> None:
    """What is counted for quotas is what is there."""
    counted = raw.rows(retain, "SELECT scope, memories, bytes FROM scopes WHERE memories != 0 OR bytes != 0 ORDER BY 1")
    there = raw.rows(
        retain,
        "SELECT key >> 29, count(*), sum(size) FROM records WHERE state IN ('active', 'archived') GROUP BY 1 ORDER BY 1",
    )
    assert counted == there
    messages = raw.rows(retain, "SELECT no, messages FROM sessions WHERE state = 'active' ORDER BY no")
    kept = "SELECT count(*) FROM history WHERE key >> 24 = ? AND purge_at IS NULL"
    for number, held in messages:
        assert raw.rows(retain, kept, (number,)) == [(held,)]


def check_chain(retain: Retain) -> None:
    """The audit chain is whole."""
    verdict = retain.audit.verify()
    assert verdict.ok, verdict.findings


def check_cold(retain: Retain) -> None:
    """Every cold record's object is there, and no object is there for nothing; nothing is half done with any."""
    assert objects_of(retain) == packs_of(retain)
    assert raw.rows(retain, "SELECT name, state FROM packs WHERE state != 'kept'") == []
    short = raw.rows(
        retain,
        "SELECT name FROM packs WHERE records != (SELECT count(*) FROM records WHERE pack = packs.no)",
    )
    assert short == [], "an object holds more, or less, than the records that lie in it"
    lost = raw.rows(retain, "SELECT id FROM records WHERE pack IS NOT NULL AND pack NOT IN (SELECT no FROM packs)")
    assert lost == []


def check_settled(retain: Retain) -> None:
    """After a sweep nothing is half done."""
    assert raw.rows(retain, "SELECT id FROM records WHERE state = 'deleting'") == []
    assert raw.rows(retain, "SELECT id FROM sessions WHERE state = 'deleting'") == []
    assert raw.rows(retain, "SELECT id FROM rules WHERE pending IS NOT NULL") == []
    assert raw.rows(retain, "SELECT id FROM registry WHERE unfinished IS NOT NULL") == []
    orphans = "SELECT key FROM history WHERE key >> 24 NOT IN (SELECT no FROM sessions)"
    assert raw.rows(retain, orphans) == []
    check_cold(retain)


def check_sound(retain: Retain) -> None:
    """All of it, after a sweep."""
    check_settled(retain)
    check_counts(retain)
    check_chain(retain)
