"""After the master key was lost: what nobody can open is set aside, and the store goes on with other keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import ConfirmationNeededError, MasterKeyError, ObjectDamagedError
from holdfast.privacy.keys.master import new_master_text
from homes import Homes, on_sqlite
from privacy.backups.losses import alias_of
from privacy.backups.stores import catalog_of


def keys_in(home: Path, name: str = "") -> set[str]:
    """The keys that lie in a home, by their paths."""
    return {str(path.relative_to(home / "keys")) for path in (home / "keys").rglob("*.json") if name in path.name}


@pytest.fixture
def lost(home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """A home with a backup and cold memories, whose master key is another by now; the backup's id, and a memory's."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        cold = holdfast.manager("ann", "guide").add("ann was in Rome once. " * 20, "long_term")["memory_id"]
        clock.advance(days=366)
        holdfast.sweep()
        for user in ("ann", "bob"):
            holdfast.manager(user, "guide").add(f"{user} likes tea", "long_term")
        made = holdfast.backups.create().id
        assert holdfast.backups.verify(made, restore=True)
        clock.advance(days=1)
    (home / "keys" / "master.key").unlink()
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", new_master_text())
    return home, made, cold


def test_the_store_can_be_backed_up_again_once_the_lost_keys_are_abandoned(
    lost: tuple[Path, str, str], clock: FakeClock
) -> None:
    home, made, cold = lost
    with Holdfast.open(home=home, clock=clock) as holdfast:
        with pytest.raises(MasterKeyError):
            holdfast.backups.create()
        with pytest.raises(
            ConfirmationNeededError, match=r"4 of the keys \(2 of users, the one of the store, .*\): .*"
        ):
            holdfast.abandon_keys()
        with pytest.raises(MasterKeyError):
            holdfast.backups.create()

        done = holdfast.abandon_keys(confirm=True)

        said = {"users": 2, "store": True, "signing": True, "backups": [made], "objects": 1, "keyring": None}
        assert done.as_dict() == said
        entry = next(one for one in holdfast.audit.tail() if one["action"] == "keys.abandoned")
        assert entry["detail"] == done.as_dict()
        assert not holdfast.abandon_keys(confirm=True), "once"
        assert "abandoned" in (holdfast.backups.get(made).problem or "")
        second = holdfast.backups.create()
        assert second.written == second.bytes - sum(held.bytes for held in catalog_of(holdfast).get(second.id).packs)
        assert holdfast.backups.verify(second.id, restore=True), "nothing of it is sealed under an old key"
        with pytest.raises(ObjectDamagedError, match="abandoned because its master key was lost"):
            holdfast.backups.restore(made, user_id="ann")
        assert "abandoned because" in holdfast.backups.verify(made, restore=True).problems[0]
        with pytest.raises(ObjectDamagedError, match="abandoned because its master key was lost"):
            holdfast.manager("ann", "guide").rehydrate(cold)
        assert holdfast.certificates.verify(holdfast.erase_user("bob").certificate or {})


def test_what_is_new_is_archived_again(lost: tuple[Path, str, str], clock: FakeClock) -> None:
    home, _, _ = lost
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.abandon_keys(confirm=True)
        fresh = holdfast.manager("ann", "guide").add("ann was in Oslo once. " * 20, "long_term")["memory_id"]
        clock.advance(days=366)
        holdfast.sweep()
        assert "Oslo" in holdfast.manager("ann", "guide").rehydrate(fresh)["content"]


def test_erasing_a_user_destroys_the_keys_that_were_set_aside(lost: tuple[Path, str, str], clock: FakeClock) -> None:
    home, made, _ = lost
    with Holdfast.open(home=home, clock=clock) as holdfast:
        alias = alias_of(holdfast, "ann") or ""
        before = keys_in(home, alias)
        holdfast.abandon_keys(confirm=True)
        aside = {str(path.relative_to(home / "keys")) for path in (home / "keys" / "abandoned" / alias).iterdir()}
        assert (len(before), len(aside)) == (1, 1)
        holdfast.backups.create()

        erasure = holdfast.erase_user("ann")

        assert not erasure.pending
        assert next(one for one in erasure.places if one.name == "data key")[1:] == (2, 2, 0)
        assert not [path for path in (home / "keys").rglob("*") if alias in str(path)]
        holdfast.backups.rotate()
        assert catalog_of(holdfast).get(made).subjects == 1, "taken out of what nobody can read, too"


@on_sqlite
def test_no_key_is_abandoned_while_the_master_key_is_merely_not_there(
    lost: tuple[Path, str, str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, _ = lost
    before = keys_in(home)
    for setting in ("", f"file:{home}/nowhere.key", "command:false"):
        monkeypatch.setenv("HOLDFAST_MASTER_KEY", setting)
        with Holdfast.open(home=home, clock=clock) as holdfast, pytest.raises(MasterKeyError):
            holdfast.abandon_keys(confirm=True)
    assert keys_in(home) == before


@on_sqlite
def test_keys_that_the_master_key_opens_are_left_alone(holdfast: Holdfast, homes: Homes) -> None:
    for user in ("ann", "bob"):
        holdfast.manager(user, "guide").add(f"{user} likes tea", "long_term")
    first = holdfast.backups.create().id
    alias = alias_of(holdfast, "ann") or ""
    (path,) = (holdfast.settings.home / "keys").rglob(f"{alias}.json")
    path.write_text("nonsense")

    done = holdfast.abandon_keys(confirm=True)

    assert (done.users, done.store, done.signing, done.backups) == (1, False, False, (first,))
    assert "abandoned because" in holdfast.backups.verify(first).problems[0]
    second = holdfast.backups.create().id
    assert holdfast.backups.verify(second, restore=True)
    assert [one for one in holdfast.backups.list() if one.problem is None] == [holdfast.backups.get(second)]
