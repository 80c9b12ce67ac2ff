"""Erasure: what erasing a user costs among a million memories, and what backups, trials and restores do."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import scale
from bench.lifecycle import Figure, Reader, fill, low_priority
from bench.servers import postgres
from bench.speed import USER_MEMORIES, sentences
from holdfast import Holdfast
from holdfast.core.audit import Action, Event
from holdfast.core.records import MemoryType, Subject

_READER = "reader"
_ENTRIES = scale(500_000)
#: What of a home must be kept apart from backups, and is needed to read them.
_STATE = ("keys", "ledger", "erased", "state")


def measure(users: int, folder: Path | None = None) -> list[Figure]:
    """Every figure, over a store of so many users with 10,000 memories each."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=folder))
    try:
        return [*_embedded(place, users), *_server(place, users), *_audit(place)]
    finally:
        shutil.rmtree(place)


def _embedded(place: Path, users: int) -> Iterator[Figure]:
    total = users * USER_MEMORIES
    home = place / "home"
    with Holdfast.open(home=home) as holdfast:
        holdfast.quotas.set("long_term", max_memories=2 * USER_MEMORIES)
        fill(holdfast, users, MemoryType.LONG_TERM)
        holdfast.manager(_READER, "agent").add_many(sentences(USER_MEMORIES, 2))
        reader = Reader(home)
        idle = min(reader.during(lambda: time.sleep(6)) for _ in range(2))
        took, during = _beside(reader, holdfast.backups.create)
        reader.close()
        rate = (total + USER_MEMORIES) / took
        yield Figure(f"backup of {total:,} memories", f"{rate:,.0f} a second", "≥ 50,000", rate >= 50_000)
        slower = during[1] / idle[1]
        yield Figure("recall p99 in another process meanwhile", f"{slower:.2f} x idle", "≤ 1.25 x", slower <= 1.25)
        yield Figure("recall p50 in another process meanwhile", f"{during[0] / idle[0]:.2f} x idle", "", None)
        holdfast.manager("user 1", "agent").add("one more", "long_term")
        took = _seconds(holdfast.backups.create)
        last = holdfast.backups.list()[-1]
        yield Figure("the next one, one user changed", f"{took:.2f} s, {last.written / 2**20:.1f} MiB", "", None)
        for name, restore in (("verify", False), ("trial restore, compared", True)):
            took = _seconds(lambda restore=restore: _checked(holdfast, last.id, restore=restore))  # type: ignore[misc]
            rate = last.memories / took
            yield Figure(f"{name} of {last.memories:,} memories", f"{rate:,.0f} a second", "≥ 20,000", rate >= 20_000)
        memory_id = holdfast.manager("user 2", "agent").list_memories("long_term", limit=1)[0]["memory_id"]
        took = _seconds(
            lambda: holdfast.backups.restore(last.id, user_id="user 2", memory_id=memory_id, overwrite=True)
        )
        yield Figure("one memory restored into the store", f"{took:.2f} s", "≤ 2 s", took <= 2)
        took = _seconds(lambda: holdfast.erase_user("user 3"))
        yield Figure(f"user of 10,000 erased among {total:,}", f"{took:.2f} s", "≤ 1 s", took <= 1)
        check = holdfast.backups.verify(last.id)
        yield Figure("backups that still tell anything of them", f"{1 - check.erased}", "0", check.erased == 1)
    yield _restored(place, home, last.id)


def _restored(place: Path, home: Path, backup_id: str) -> Figure:
    """All of it into a store that is empty, with the keys and the ledger of the old one."""
    other = place / "other"
    for name in (*_STATE, "backups"):
        if (home / name).exists():
            shutil.copytree(home / name, other / name)
    with Holdfast.open(home=other) as holdfast:
        start = time.perf_counter()
        restored = holdfast.backups.restore(backup_id)
        rate = restored.memories / (time.perf_counter() - start)
    shutil.rmtree(other)
    return Figure(
        f"restore of {restored.memories:,} memories into an empty store",
        f"{rate:,.0f} a second",
        "≥ 20,000",
        rate >= 20_000,
    )


def _server(place: Path, users: int) -> Iterator[Figure]:
    total = users * USER_MEMORIES
    with postgres() as server, Holdfast.open(server.new_database(), home=place / "served") as holdfast:
        fill(holdfast, users, MemoryType.LONG_TERM)
        took = _seconds(holdfast.backups.create)
        rate = total / took
        yield Figure(f"PostgreSQL: backup of {total:,} memories", f"{rate:,.0f} a second", "≥ 50,000", rate >= 50_000)
        took = _seconds(lambda: holdfast.erase_user("user 3"))
        yield Figure(f"PostgreSQL: user of 10,000 erased among {total:,}", f"{took:.2f} s", "≤ 2 s", took <= 2)
        backup_id = holdfast.backups.list()[-1].id
        erased = holdfast.backups.verify(backup_id).erased
        yield Figure("PostgreSQL: backups that still tell of them", f"{1 - erased}", "0", erased == 1)
    with postgres() as server, Holdfast.open(server.new_database(), home=place / "served") as holdfast:
        start = time.perf_counter()
        restored = holdfast.backups.restore(backup_id)
        rate = restored.memories / (time.perf_counter() - start)
        yield Figure(
            f"PostgreSQL: restore of {restored.memories:,} memories into an empty store",
            f"{rate:,.0f} a second",
            "≥ 20,000",
            rate >= 20_000,
        )


def _audit(place: Path) -> Iterator[Figure]:
    with Holdfast.open(home=place / "audited") as holdfast:
        now = holdfast.services.now()
        for user in range(_ENTRIES // 5_000):
            detail = {"kind": "long_term", "to": "recycled", "cause": "rule", "reason": "it was a year old"}
            ids = holdfast.services.new_ids(now, 5_000)
            holdfast.services.audit.append(
                Subject("default", f"user {user}"), [Event(now, Action.RECYCLED, one, detail) for one in ids]
            )
        holdfast.audit.seal()
        start = time.perf_counter()
        assert holdfast.audit.verify()
        rate = _ENTRIES / (time.perf_counter() - start)
    yield Figure(f"audit chain of {_ENTRIES:,} entries verified", f"{rate:,.0f} a second", "≥ 200,000", rate >= 200_000)


def _checked(holdfast: Holdfast, backup_id: str, *, restore: bool) -> None:
    assert holdfast.backups.verify(backup_id, restore=restore)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _beside(reader: Reader, work: Callable[[], object]) -> tuple[float, tuple[float, float]]:
    """How long something took, and what recalls in another process took meanwhile."""
    took: list[float] = []
    with low_priority():
        during = reader.during(lambda: took.append(_seconds(work)))
    return took[0], during
