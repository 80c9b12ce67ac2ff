"""Whatever happens to a backup is found when it is looked at, and nothing is restored from what is not whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.layout import manifest_name, trial_name
from holdfast.core.errors import LedgerError, MasterKeyError, NotFoundError, ObjectDamagedError
from homes import Homes, on_sqlite
from privacy.backups.stores import catalog_of, docs, lose_machine, objects, rows_of

pytestmark = on_sqlite


def changed(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """An object as it should not be: other at some byte, or cut short."""
    for place in (0, *(chance.randrange(len(data)) for _ in range(3))):
        yield data[:place] + bytes([data[place] ^ chance.randrange(1, 256)]) + data[place + 1 :]
    for size in (0, len(data) - 1):
        yield data[:size]
    yield data + b"\n"


def test_every_changed_cut_or_missing_object_of_a_backup_is_found(full: Holdfast) -> None:
    full.backups.create()
    full.manager("bob", "travel", "s2").add("news of bob", "long_term")
    made = full.backups.create().id
    assert full.backups.verify(made, restore=True)
    manifest, store = catalog_of(full).get(made), catalog_of(full).objects
    held = [manifest.index, *manifest.segments, *manifest.packs]
    names = {manifest_name(made), trial_name(made), *(one.name for one in held)}
    before = {name: data for name, data in objects(full).items() if name in names}
    assert len(before) == len(names) > 5
    chance = random.Random(4711)

    for name, data in before.items():
        for other in changed(data, chance):
            store.put(name, other)
            check = full.backups.verify(made, restore=chance.random() < 0.1)
            assert not check, name
            assert check.problems
            assert full.backups.get(made).good is not True if name != manifest_name(made) else full.backups.list()
            store.put(name, data)
            store.put(trial_name(made), before[trial_name(made)])
        store.delete([name])
        if name == manifest_name(made):
            with pytest.raises(NotFoundError):
                full.backups.verify(made)
            assert made not in [one.id for one in full.backups.list()]
        elif name == trial_name(made):
            assert full.backups.get(made).good is None
        else:
            assert f"{name} is missing" in full.backups.verify(made).problems[0]
        store.put(name, data)
        store.put(trial_name(made), before[trial_name(made)])
    assert full.backups.verify(made, restore=True)


def test_an_object_of_another_backup_in_its_place_is_found(full: Holdfast) -> None:
    one, other = full.backups.create(full=True).id, full.backups.create(full=True).id
    store, catalog = catalog_of(full).objects, catalog_of(full)
    for place, name in (
        (manifest_name(other), manifest_name(one)),
        (catalog.get(other).index.name, catalog.get(one).index.name),
        (catalog.get(other).segments[0].name, catalog.get(one).segments[0].name),
    ):
        right = store.get(place)
        store.put(place, store.get(name))
        assert not full.backups.verify(other), place
        store.put(place, right)
    full.backups.verify(one, restore=True)
    store.put(trial_name(other), store.get(trial_name(one)))
    assert full.backups.get(other).good is None
    assert not full.backups.verify(other)


def test_a_list_says_which_backups_cannot_be_trusted_and_the_others_are_as_they_were(full: Holdfast) -> None:
    one, other = full.backups.create().id, full.backups.create().id
    catalog_of(full).objects.put(manifest_name(one), b"{}\n")

    first, second = full.backups.list()

    assert (first.id, first.good, second.id, second.problem) == (one, False, other, None)
    assert "damaged" in (first.problem or "")
    assert full.backups.verify(other, restore=True)


def test_damage_is_not_handed_on_to_the_next_backup(full: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    store, catalog = catalog_of(full).objects, catalog_of(full)
    first = catalog.get(full.backups.create().id)
    store.delete([first.segments[0].name, first.packs[0].name])
    second = catalog.get(full.backups.create().id)
    assert full.backups.verify(second.id, restore=True), "what was missing is there again"

    store.put(second.segments[0].name, b"damaged")
    assert not full.backups.verify(second.id)
    third = catalog.get(full.backups.create().id)
    assert full.backups.verify(third.id, restore=True), "what was found to be damaged was copied anew"

    store.put(third.index.name, b"damaged")
    store.put(third.packs[0].name, b"damaged")
    fourth = full.backups.create()
    assert full.backups.verify(fourth.id, restore=True)
    assert "cannot be used by the next one" in caplog.text


def test_nothing_is_restored_from_a_backup_that_is_not_whole(full: Holdfast, homes: Homes, clock: FakeClock) -> None:
    made = full.backups.create().id
    segment = catalog_of(full).get(made).segments[-1].name
    with Holdfast.open(home=lose_machine(full.settings.home, homes), clock=clock) as again:
        empty = rows_of(again)
        store = catalog_of(again).objects
        whole = store.get(segment)
        store.put(segment, whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ObjectDamagedError, match="not as it was written"):
            again.backups.restore(made)
        assert rows_of(again) == empty
        store.put(segment, whole)
        assert again.backups.restore(made).whole


# --- without what belongs to it ---------------------------------------------------------------------------------------


@pytest.fixture
def lost(full: Holdfast) -> tuple[Path, str]:
    """A home of which there is a backup from before one user was erased."""
    made = full.backups.create().id
    full.erase_user("ann")
    return full.settings.home, made


def test_without_the_keyring_it_is_another_stores_backup(
    lost: tuple[Path, str], homes: Homes, clock: FakeClock
) -> None:
    home, made = lost
    with Holdfast.open(home=lose_machine(home, homes, kept=("backups",)), clock=clock) as stranger:
        assert "HOLDFAST_STATE_URL" in (stranger.backups.list()[0].problem or "")
        with pytest.raises(ObjectDamagedError, match="keyring does not know"):
            stranger.backups.restore(made)
        stranger.manager("eve", "guide").add("life goes on", "long_term")
        own = stranger.backups.create().id
        assert stranger.backups.rotate().damaged == [made], "it is left as it is"
        assert stranger.backups.verify(own, restore=True)
    with Holdfast.open(home=lose_machine(home, homes, "right"), clock=clock) as right:
        assert right.backups.restore(made).erased == 1


@pytest.mark.parametrize("goes_on", [False, True])
def test_by_an_older_copy_of_the_state_nothing_is_restored_or_rotated(
    full: Holdfast, homes: Homes, clock: FakeClock, goes_on: bool
) -> None:
    home, first = full.settings.home, full.backups.create().id
    old = lose_machine(home, homes, "old", kept=("keys", "ledger", "erased", "certificates"))
    full.erase_user("ann")
    clock.advance(days=1)
    second = full.backups.create().id
    shutil.copytree(home / "backups", old / "backups")
    with Holdfast.open(home=old, clock=clock) as mistaken:
        if goes_on:  # the ledger has as many entries again, and is another
            mistaken.manager("eve", "guide").add("a note", "long_term")
            mistaken.erase_user("eve")
        before = rows_of(mistaken)
        for verb in (
            lambda: mistaken.backups.restore(first),
            lambda: mistaken.backups.restore(first, user_id="ann"),
            lambda: mistaken.backups.verify(second, restore=True),
            mistaken.backups.rotate,
        ):
            with pytest.raises(LedgerError, match="bring back the newest copy of the state store"):
                verb()
        assert rows_of(mistaken) == before
    with Holdfast.open(home=lose_machine(home, homes, "right"), clock=clock) as right:
        assert right.backups.restore(first).erased == 1


def test_without_the_ledger_a_destroyed_key_is_a_lost_one(
    lost: tuple[Path, str], homes: Homes, clock: FakeClock
) -> None:
    home, made = lost
    with Holdfast.open(home=lose_machine(home, homes, kept=("backups", "keys")), clock=clock) as forgetful:
        empty = rows_of(forgetful)
        assert "ledger of erasures does not say" in forgetful.backups.verify(made).problems[0]
        with pytest.raises(LedgerError, match="bring back the newest copy of the state store"):
            forgetful.backups.restore(made)
        assert rows_of(forgetful) == empty


def test_without_the_master_key_nothing_is_done(lost: tuple[Path, str], homes: Homes, clock: FakeClock) -> None:
    home, made = lost
    elsewhere = lose_machine(home, homes)
    (elsewhere / "keys" / "master.key").unlink()
    with Holdfast.open(home=elsewhere, clock=clock) as locked:
        empty = rows_of(locked)
        for verb in (locked.backups.restore, locked.backups.verify):
            with pytest.raises(MasterKeyError, match="master key"):
                verb(made)
        assert rows_of(locked) == empty
    shutil.copy(home / "keys" / "master.key", elsewhere / "keys")
    with Holdfast.open(home=elsewhere, clock=clock) as unlocked:
        assert unlocked.backups.restore(made).whole


def test_a_key_that_was_lost_is_a_problem_and_not_an_erasure(full: Holdfast) -> None:
    made = full.backups.create().id
    user = next(doc for doc in docs(full, made) if doc.sort == "user")
    full.keyring.destroy(user.key)

    check = full.backups.verify(made)

    assert not check
    assert user.key in check.problems[0]
    assert "copy of the keyring" in check.problems[0]
