"""Backups leave when their time has come and something better is there; the erased leave all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bench.servers import S3Server, s3

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.layout import SEGMENTS, manifest_name, name_backup
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import ClockError, ConfirmationNeededError, NotFoundError
from holdfast.privacy.keys.master import new_master_text
from homes import Homes, on_sqlite
from lifecycle.fuses import DeathError
from privacy.backups.stores import catalog_of, check_all, digests, docs, objects, rows_of, said

pytestmark = on_sqlite


@pytest.fixture
def small(holdfast: Holdfast) -> Holdfast:
    for user in ("ann", "bob", "eve"):
        holdfast.manager(user, "guide", "s").add_many([f"{user} likes {what}" for what in ("tea", "rain")], "long_term")
        holdfast.manager(user, "guide", "s").add("speaks slowly", "persona")
    return holdfast


def good(holdfast: Holdfast, kinds: Any = None) -> str:
    """A backup that was restored on trial."""
    made = holdfast.backups.create(kinds).id
    assert holdfast.backups.verify(made, restore=True)
    return made


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kinds", "days"), [(DAILY, 30), (WEEKLY, 90), (None, 30)])
def test_a_backup_leaves_after_its_time_if_a_later_one_is_good(
    small: Holdfast, clock: FakeClock, kinds: Any, days: int
) -> None:
    first = good(small, kinds)
    clock.advance(days=days - 1)
    second = small.backups.create(kinds).id
    assert small.backups.rotate().as_dict() == {
        "removed": [], "kept": [], "rewritten": [], "damaged": [], "ahead": [],
        "waiting": [], "waiting_for": None, "objects": 0,
    }  # fmt: skip
    clock.advance(days=1)
    assert small.backups.rotate().kept == [first], "nobody knows whether the later one is good"
    assert small.backups.verify(second, restore=True)
    done = small.backups.rotate()
    assert (done.removed, done.kept) == ([first], [])
    assert [one.id for one in small.backups.list()] == [second]
    clock.advance(days=1_000)
    done = small.backups.rotate()
    assert (done.removed, done.kept) == ([], [second]), "the last good one stays, whatever its age"
    assert small.backups.verify(second, restore=True), "with all that it refers to in segments of the one that left"


def test_a_kind_that_no_later_backup_has_keeps_an_old_one(small: Holdfast, clock: FakeClock) -> None:
    everything = good(small)
    clock.advance(days=31)
    daily = good(small, DAILY)
    assert small.backups.rotate().kept == [everything], "it is the last one with persona"
    weekly = good(small, WEEKLY)
    assert small.backups.rotate().removed == [everything]
    assert check_all(small, restore=True) == sorted([daily, weekly])


def test_files_that_are_nobodys_stay_and_what_was_cut_short_goes(small: Holdfast, clock: FakeClock) -> None:
    made = good(small)
    store = catalog_of(small).objects
    strange = {
        "backups/notes.txt": b"mine",
        f"backups/{made}/notes.txt": b"mine",
        "segments/mine": b"mine",
        f"{SEGMENTS}{made}-x": b"mine",
        "packs/readme.txt": b"mine",
        "packs/archive/mine": b"mine",
        f"packs/archive/ab/{'ab' * 16}/mine.txt": b"mine",
        "else/where": b"mine",
    }
    for name, data in strange.items():
        store.put(name, data)
    unfinished = name_backup(small.services.new_id(1), 1)
    store.put(f"{SEGMENTS}{unfinished}-1", b"of a backup without a manifest")
    store.put(f"backups/{unfinished}/index", b"of a backup without a manifest")

    store.put(f"packs/archive/ab/{'ab' * 16}/{unfinished}.pack", b"of a backup without a manifest")

    assert small.backups.rotate().objects == 3

    assert objects(small).items() >= strange.items()
    assert not [name for name in objects(small) if unfinished in name]
    assert check_all(small) == [made]


def test_while_a_manifest_cannot_be_read_nothing_goes_that_it_may_refer_to(small: Holdfast, clock: FakeClock) -> None:
    first = good(small)
    small.manager("ann", "guide").add("news", "long_term")
    second = good(small)
    right = objects(small)[manifest_name(first)]
    catalog_of(small).objects.put(manifest_name(first), b"{}\n")
    small.erase_user("eve")
    before = set(objects(small))

    done = small.backups.rotate()

    assert (done.damaged, done.objects, done.rewritten) == ([first], 0, [second])
    assert before <= set(objects(small))
    catalog_of(small).objects.put(manifest_name(first), right)
    assert check_all(small, restore=True) == [first, second]


@pytest.mark.parametrize("what", ["segments", "index", "shorter"])
def test_no_backup_goes_on_the_word_of_one_that_lacks_something_by_now(
    small: Holdfast, clock: FakeClock, what: str
) -> None:
    first = good(small)
    clock.advance(days=31)
    second = small.backups.create(full=True).id
    assert small.backups.verify(second, restore=True)
    store, manifest = catalog_of(small).objects, catalog_of(small).get(second)
    if what == "shorter":
        store.put(manifest.segments[0].name, store.get(manifest.segments[0].name)[:-1])
    else:
        store.delete([manifest.segments[0].name if what == "segments" else manifest.index.name])

    done = small.backups.rotate()

    assert (done.removed, done.kept, done.damaged) == ([], [first], [second])
    assert small.backups.verify(first, restore=True)
    third = small.backups.create(full=True).id
    assert small.backups.verify(third, restore=True)
    done = small.backups.rotate()
    assert (done.removed, done.damaged) == ([first], [second]), "there is a good one again"


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_backup_that_is_dated_ahead_is_left_out_of_everything(small: Holdfast, clock: FakeClock) -> None:
    clock.advance(days=3_650)
    future = good(small)
    clock.advance(days=-3_650)
    first = small.backups.create()
    assert list(small.backups.latest()) == [first.id]
    assert first.written == first.bytes, "it does not build upon it"
    assert "dated later than now" in (small.backups.get(future).problem or "")
    clock.advance(days=31)
    second = small.backups.create().id

    done = small.backups.rotate()

    assert (done.removed, done.kept, done.ahead) == ([], [first.id], [future]), "first is past its time, and not tried"
    assert small.backups.verify(second, restore=True)
    done = small.backups.rotate(confirm=True)
    assert (done.removed, done.kept, done.ahead) == ([first.id], [], [future])
    small.erase_user("eve")
    assert small.backups.rotate().rewritten == [second, future], "but nobody who was erased stays in it"


def test_no_backup_is_made_or_removed_by_a_clock_that_is_not_trusted(holdfast: Holdfast, clock: FakeClock) -> None:
    clock.now = clock.now.replace(year=2190)
    holdfast.sweep()
    home = holdfast.settings.home
    holdfast.close()
    with Holdfast.open(home=home) as honest:
        for verb in (honest.backups.create, honest.backups.rotate):
            with pytest.raises(ClockError, match="nothing was done"):
                verb()
        assert honest.backups.list() == []
        honest.backups.create(confirm=True)
        honest.backups.create()
        honest.backups.rotate()


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_a_backup_is_removed_by_hand_and_what_others_refer_to_stays(small: Holdfast, clock: FakeClock) -> None:
    first, second = good(small), good(small)
    with pytest.raises(ConfirmationNeededError, match="would be removed for good"):
        small.backups.remove(first)

    done = small.backups.remove(first, confirm=True)

    assert (done.removed, done.damaged) == ([first], [])
    assert check_all(small, restore=True) == [second]
    assert not [name for name in objects(small) if name.startswith(f"backups/{first}")]
    with pytest.raises(NotFoundError):
        small.backups.remove(first, confirm=True)


def test_the_last_good_backup_of_a_kind_goes_only_if_that_is_said(small: Holdfast, clock: FakeClock) -> None:
    everything = good(small)
    clock.advance(days=3_650)
    good(small)
    clock.advance(days=-3_650)
    good(small, DAILY)
    small.backups.create(WEEKLY)
    with pytest.raises(ConfirmationNeededError, match="last good one of persona; nothing was removed"):
        small.backups.remove(everything, confirm=True)
    assert len(small.backups.list()) == 4
    good(small, WEEKLY)
    assert small.backups.remove(everything, confirm=True).removed == [everything]
    for one in small.backups.list():
        small.backups.remove(one.id, confirm=True, even_last=True)
    assert objects(small) == {}


def test_a_backup_that_cannot_be_read_goes_only_if_that_is_said(small: Holdfast) -> None:
    bad, other = small.backups.create().id, good(small)
    catalog_of(small).objects.put(manifest_name(bad), b"{}\n")
    with pytest.raises(ConfirmationNeededError, match="which cannot be read"):
        small.backups.remove(bad, confirm=True)
    small.backups.remove(bad, confirm=True, even_last=True)
    assert check_all(small, restore=True) == [other]


# --- the erased -------------------------------------------------------------------------------------------------------


def test_what_was_sealed_for_the_erased_is_taken_out_of_every_backup(full: Holdfast, clock: FakeClock) -> None:
    first = full.backups.create().id
    full.manager("bob", "travel", "s2").add("news of bob", "long_term")
    second = full.backups.create().id
    assert "zoë" in said(full, first)
    before, held = digests(full, first), objects(full)
    alias = next(row[2].hex() for row in rows_of(full)["subjects"] if row[1] == "default/zoë")
    sealed = [held[doc.segment][doc.at : doc.at + doc.size] for doc in docs(full, first) if doc.key == alias]
    assert sealed
    users = [one.users for one in full.backups.list()]
    full.erase_user("zoë")
    assert full.backups.verify(first, restore=True).erased == 1, "nobody can read it, from the first instant"

    done = full.backups.rotate()

    assert done.rewritten == [first, second]
    left = objects(full)
    assert not [name for name, data in left.items() if any(part[:64] in data for part in sealed)]
    assert not [name for name, data in left.items() if alias.encode() in data or alias in name]
    assert not [name for name in held if name.startswith(SEGMENTS) and name in left and held[name] != left[name]]
    assert digests(full, first).items() <= before.items(), "the others are as they were"
    assert [one.users for one in full.backups.list()] == [count - 1 for count in users]
    assert full.backups.verify(first, restore=True).erased == 0
    assert full.backups.verify(second, restore=True)
    assert full.backups.rotate().as_dict()["rewritten"] == [], "once"
    assert full.backups.verify(full.backups.create().id, restore=True)


def test_one_damaged_backup_does_not_keep_the_erased_in_the_others(
    small: Holdfast, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, third = (small.backups.create(full=True).id for _ in range(3))
    catalog, store = catalog_of(small), catalog_of(small).objects
    store.put(catalog.get(one).index.name, b"damaged")
    store.put(catalog.get(other).segments[0].name, b"damaged")
    small.erase_user("eve")

    done = small.backups.rotate()

    assert (done.damaged, done.rewritten) == ([one, other], [third])
    assert "is left as it is" in caplog.text
    assert small.backups.verify(third, restore=True)
    assert (bool(small.backups.verify(one)), bool(small.backups.verify(other))) == (False, False)


# --- cut short --------------------------------------------------------------------------------------------------------


class Fuse:
    """Lets an engine die before its n-th effect on the place where backups are, and stay dead."""

    def __init__(self, holdfast: Holdfast, burns_at: int) -> None:
        self.left, self.last = burns_at, ""
        store: Any = catalog_of(holdfast).objects
        for name in ("put", "delete"):
            setattr(store, name, self._before(name, getattr(store, name)))

    @property
    def is_dead(self) -> bool:
        return self.left < 0

    def _before(self, what: str, effect: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(first: Any, *arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.is_dead:
                self.last = f"{what} {first}"
                raise DeathError(self.last)
            return effect(first, *arguments, **options)

        return guarded


def die(home: Path, clock: FakeClock, at: int, work: Callable[[Holdfast], object]) -> Fuse:
    """Do some work in an engine that dies before an effect."""
    with Holdfast.open(home=home, clock=clock) as dying:
        fuse = Fuse(dying, at)
        with suppress(DeathError):
            work(dying)
        return fuse


def test_a_backup_that_is_cut_short_anywhere_is_none_and_the_next_one_is(
    full: Holdfast, homes: Homes, clock: FakeClock
) -> None:
    first = full.backups.create().id
    home, effects = full.settings.home, 0
    while (fuse := die(home, clock, effects, lambda holdfast: holdfast.backups.create(full=True))).is_dead:
        assert check_all(full) == [first], fuse.last
        assert full.backups.rotate().removed == []
        assert not [name for name in objects(full) if name.startswith(SEGMENTS) and first not in name], fuse.last
        effects += 1
    assert effects >= 3
    assert len(check_all(full, restore=True)) == 2


def test_a_rotation_that_is_cut_short_anywhere_leaves_every_backup_whole(homes: Homes, clock: FakeClock) -> None:
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        for user in ("ann", "bob", "dan", "eve"):
            holdfast.manager(user, "guide").add_many([f"{user} likes {n}" for n in range(9)], "long_term")
        old = good(holdfast)
        clock.advance(days=20)
        for user in ("ann", "bob"):  # each goes on with fewer documents of the segment that all of them share
            holdfast.manager(user, "guide").add(f"{user} likes rain", "long_term")
            good(holdfast)
        clock.advance(days=15)
        holdfast.erase_user("eve")
        listed = [one.id for one in holdfast.backups.list()]
    effects = 0
    while True:
        home = homes.copy(before, f"crash {effects}")
        fuse = die(home, clock, effects, lambda holdfast: holdfast.backups.rotate())
        with Holdfast.open(home=home, clock=clock) as again:
            assert [one for one in check_all(again) if one != old] == listed[1:], fuse.last
            again.backups.rotate()
            assert check_all(again, restore=True) == listed[1:], fuse.last
            needed = {held.name for one in listed[1:] for held in catalog_of(again).get(one).segments}
            assert {name for name in objects(again) if name.startswith(SEGMENTS)} == needed, fuse.last
            assert not [one for one in listed[1:] if "eve" in said(again, one)], fuse.last
        if not fuse.is_dead:
            break
        effects += 1
    assert effects > 6


# --- in a bucket ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    with s3() as server:
        yield server


def test_backups_in_a_bucket_are_made_verified_rotated_and_restored(
    homes: Homes, clock: FakeClock, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("BACKUP", "STATE"):
        monkeypatch.setenv(f"HOLDFAST_{name}_URL", f"{bucket.new_bucket()}/{name.lower()}")
    home = homes.new()
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", f"file:{home}/master.key")
    home.mkdir()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for user in ("ann", "bob"):
            holdfast.manager(user, "guide").add(f"{user} likes tea", "long_term")
        (home / "master.key").write_text(new_master_text())
        first = good(holdfast)
        holdfast.erase_user("ann")
        assert holdfast.backups.rotate().rewritten == [first]
        clock.advance(days=31)
        second = good(holdfast)
        assert holdfast.backups.rotate().removed == [first]
        before = rows_of(holdfast)
        names = set(objects(holdfast))
    assert all(second in name for name in names if not name.startswith(SEGMENTS))
    with Holdfast.open(home=homes.new("elsewhere"), clock=clock) as again:
        restored = again.backups.restore(second)
        assert (restored.whole, restored.memories) == (True, 1)
        assert rows_of(again)["records"] == before["records"]
        assert [one["content"] for one in again.manager("bob", "guide").retrieve("tea")] == ["bob likes tea"]
