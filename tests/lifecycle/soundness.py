"""What must be true of a store between any two verbs, whatever happened before."""

from __future__ import annotations

from pathlib import Path

import raw
from holdfast import Holdfast
from holdfast.core.records import COUNT_BITS, Subject


def objects_of(holdfast: Holdfast) -> set[str]:
    """The names of the cold objects that lie in the archive's folder."""
    folder = holdfast.settings.home / "archive"
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in found}


def object_path(holdfast: Holdfast, name: str) -> Path:
    """Where a cold object lies."""
    return holdfast.settings.home / "archive" / name


def packs_of(holdfast: Holdfast) -> set[str]:
    """The names of the cold objects that the store knows."""
    return {row[0] for row in raw.rows(holdfast, "SELECT name FROM packs")}


def check_counts(holdfast: Holdfast) -> None:
    """What is counted for quotas is what is there."""
    counted = raw.rows(
        holdfast, "SELECT scope, memories, bytes FROM scopes WHERE memories != 0 OR bytes != 0 ORDER BY 1"
    )
    there = raw.rows(
        holdfast,
        f"SELECT key >> {COUNT_BITS}, count(*), sum(size) FROM records "  # noqa: S608 - a number of our own
        "WHERE state IN ('active', 'archived') GROUP BY 1 ORDER BY 1",
    )
    assert counted == there
    for column, states in (("archived", "'archived'"), ("binned", "'recycled', 'deleting'")):
        counted = raw.rows(
            holdfast,
            f"SELECT scope, {column}, {column}_bytes FROM scopes "  # noqa: S608 - names of our own
            f"WHERE {column} != 0 OR {column}_bytes != 0 ORDER BY 1",
        )
        there = raw.rows(
            holdfast,
            f"SELECT key >> {COUNT_BITS}, count(*), sum(size) FROM records "  # noqa: S608 - a number of our own
            f"WHERE state IN ({states}) GROUP BY 1 ORDER BY 1",
        )
        assert counted == there
    messages = raw.rows(holdfast, "SELECT no, messages FROM sessions WHERE state = 'active' ORDER BY no")
    kept = "SELECT count(*) FROM history WHERE key >> 24 = ? AND purge_at IS NULL"
    for number, held in messages:
        assert raw.rows(holdfast, kept, (number,)) == [(held,)]


def check_chain(holdfast: Holdfast) -> None:
    """The audit chain is whole."""
    verdict = holdfast.audit.verify()
    assert verdict.ok, verdict.findings


def check_cold(holdfast: Holdfast) -> None:
    """Every cold record's object is there, and no object is there for nothing; nothing is half done with any."""
    assert objects_of(holdfast) == packs_of(holdfast)
    assert raw.rows(holdfast, "SELECT name, state FROM packs WHERE state != 'kept'") == []
    short = raw.rows(
        holdfast, "SELECT name FROM packs WHERE records != (SELECT count(*) FROM records WHERE pack = packs.no)"
    )
    assert short == [], "an object holds more, or less, than the records that lie in it"
    lost = raw.rows(holdfast, "SELECT id FROM records WHERE pack IS NOT NULL AND pack NOT IN (SELECT no FROM packs)")
    assert lost == []
    whose = "SELECT packs.no, subjects.subject FROM packs JOIN subjects ON subjects.no = packs.subject"
    for number, subject in raw.rows(holdfast, whose):
        inside = holdfast.services.archives.contents(Subject.parse(subject), number) or {}
        members = {row[0] for row in raw.rows(holdfast, f"SELECT id FROM records WHERE pack = {int(number)}")}  # noqa: S608
        assert inside.keys() == members, "an object has what was deleted, or lacks what was not"


def check_settled(holdfast: Holdfast) -> None:
    """After a sweep nothing is half done."""
    assert raw.rows(holdfast, "SELECT id FROM records WHERE state = 'deleting'") == []
    assert raw.rows(holdfast, "SELECT id FROM sessions WHERE state = 'deleting'") == []
    assert raw.rows(holdfast, "SELECT id FROM rules WHERE pending IS NOT NULL") == []
    assert raw.rows(holdfast, "SELECT id FROM registry WHERE unfinished IS NOT NULL") == []
    for table in ("versions", "derivations"):
        left = f"SELECT key FROM {table} WHERE key NOT IN (SELECT key FROM records)"  # noqa: S608 - a name of our own
        assert raw.rows(holdfast, left) == [], "something is left of a memory that was deleted"
    orphans = "SELECT key FROM history WHERE key >> 24 NOT IN (SELECT no FROM sessions)"
    assert raw.rows(holdfast, orphans) == []
    check_cold(holdfast)


def check_sound(holdfast: Holdfast) -> None:
    """All of it, after a sweep."""
    check_settled(holdfast)
    check_counts(holdfast)
    check_chain(holdfast)
