"""After the master key was lost: what nobody can open is set aside, and the store goes on with other keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import FakeClock
from homes import Homes, on_sqlite
from privacy.backups.losses import alias_of
from privacy.backups.stores import catalog_of
from retain import Retain
from retain.core.errors import ConfirmationNeededError, MasterKeyError, ObjectDamagedError
from retain.privacy.master import new_master_text


def keys_in(home: Path, name: str = "") -> set[str]:
    """The keys that lie in a home, by their paths."""
    return {str(path.relative_to(home / "keys")) for path in (home / "keys").rglob("*.json") if name in path.name}


@pytest.fixture
def lost(home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """A home with a backup and cold memories, whose master key is another by now; the backup's id, and a memory's."""
    with Retain.open(home=home, clock=clock) as retain:
        cold = retain.manager("ann", "guide").add("ann was in Rome once. " * 20, "long_term")["memory_id"]
        clock.advance(days=366)
        retain.sweep()
        for user in ("ann", "bob"):
            retain.manager(user, "guide").add(f"{user} likes tea", "long_term")
        made = retain.backups.create().id
        assert retain.backups.verify(made, restore=True)
        clock.advance(days=1)
    (home / "keys" / "master.key").unlink()
    monkeypatch.setenv("RETAIN_MASTER_KEY", new_master_text())
    return home, made, cold


def test_the_store_can_be_backed_up_again_once_the_lost_keys_are_abandoned(
    lost: tuple[Path, str, str], clock: FakeClock
) -> None:
    home, made, cold = lost
    with Retain.open(home=home, clock=clock) as retain:
        with pytest.raises(MasterKeyError):
            retain.backups.create()
        with pytest.raises(
            ConfirmationNeededError, match=r"4 of the keys \(2 of users, the one of the store, .*\): .*"
        ):
            retain.abandon_keys()
        with pytest.raises(MasterKeyError):
            retain.backups.create()

        done = retain.abandon_keys(confirm=True)

        said = {"users": 2, "store": True, "signing": True, "backups": [made], "objects": 1, "keyring": None}
        assert done.as_dict() == said
        entry = next(one for one in retain.audit.tail() if one["action"] == "keys.abandoned")
        assert entry["detail"] == done.as_dict()
        assert not retain.abandon_keys(confirm=True), "once"
        assert "abandoned" in (retain.backups.get(made).problem or "")
        second = retain.backups.create()
        assert second.written == second.bytes - sum(held.bytes for held in catalog_of(retain).get(second.id).packs)
        assert retain.backups.verify(second.id, restore=True), "nothing of it is sealed under an old key"
        with pytest.raises(ObjectDamagedError, match="abandoned because its master key was lost"):
            retain.backups.restore(made, user_id="ann")
        assert "abandoned because" in retain.backups.verify(made, restore=True).problems[0]
        with pytest.raises(ObjectDamagedError, match="abandoned because its master key was lost"):
            retain.manager("ann", "guide").rehydrate(cold)
        assert retain.certificates.verify(retain.erase_user("bob").certificate or {})


def test_what_is_new_is_archived_again(lost: tuple[Path, str, str], clock: FakeClock) -> None:
    home, _, _ = lost
    with Retain.open(home=home, clock=clock) as retain:
        retain.abandon_keys(confirm=True)
        fresh = retain.manager("ann", "guide").add("ann was in Oslo once. " * 20, "long_term")["memory_id"]
        clock.advance(days=366)
        retain.sweep()
        assert "Oslo" in retain.manager("ann", "guide").rehydrate(fresh)["content"]


def test_erasing_a_user_destroys_the_keys_that_were_set_aside(lost: tuple[Path, str, str], clock: FakeClock) -> None:
    home, made, _ = lost
    with Retain.open(home=home, clock=clock) as retain:
        alias = alias_of(retain, "ann") or ""
        before = keys_in(home, alias)
        retain.abandon_keys(confirm=True)
        aside = {str(path.relative_to(home / "keys")) for path in (home / "keys" / "abandoned" / alias).iterdir()}
        assert (len(before), len(aside)) == (1, 1)
        retain.backups.create()

        erasure = retain.erase_user("ann")

        assert not erasure.pending
        assert next(one for one in erasure.places if one.name == "data key")[1:] == (2, 2, 0)
        assert not [path for path in (home / "keys").rglob("*") if alias in str(path)]
        retain.backups.rotate()
        assert catalog_of(retain).get(made).subjects == 1, "taken out of what nobody can read, too"


@on_sqlite
def test_no_key_is_abandoned_while_the_master_key_is_merely_not_there(
    lost: tuple[Path, str, str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, _ = lost
    before = keys_in(home)
    for setting in ("", f"file:{home}/nowhere.key", "command:false"):
        monkeypatch.setenv("RETAIN_MASTER_KEY", setting)
        with Retain.open(home=home, clock=clock) as retain, pytest.raises(MasterKeyError):
            retain.abandon_keys(confirm=True)
    assert keys_in(home) == before


@on_sqlite
def test_keys_that_the_master_key_opens_are_left_alone(retain: Retain, homes: Homes) -> None:
    for user in ("ann", "bob"):
        retain.manager(user, "guide").add(f"{user} likes tea", "long_term")
    first = retain.backups.create().id
    alias = alias_of(retain, "ann") or ""
    (path,) = (retain.settings.home / "keys").rglob(f"{alias}.json")
    path.write_text("nonsense")

    done = retain.abandon_keys(confirm=True)

    assert (done.users, done.store, done.signing, done.backups) == (1, False, False, (first,))
    assert "abandoned because" in retain.backups.verify(first).problems[0]
    second = retain.backups.create().id
    assert retain.backups.verify(second, restore=True)
    assert [one for one in retain.backups.list() if one.problem is None] == [retain.backups.get(second)]
