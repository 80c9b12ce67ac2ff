"""What a store and its state know of each other: one keyring for each store, and no empty store in the place of a lost one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import psycopg
import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import ConfirmationNeededError, KeyringError, OtherKeyringError, StoreLostError
from holdfast.ports.coordination import Identity
from holdfast.privacy.keys.master import new_master_text
from holdfast.privacy.store_state import FOLDER
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.stores import store_url
from homes import ENGINES, Homes, database_of, on_sqlite, settings_of

MASTER = new_master_text()
STORY = "ann was in Rome once, and walked along the river until it was dark. " * 20


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def another_machine(home: Path, name: str = "another") -> Path:
    """A home of its own for the same store, as on a second machine."""
    other = home.with_name(name)
    other.mkdir(mode=0o700)
    (other / "holdfast.toml").write_text(f"url = {json.dumps(settings_of(home).url)}\n")
    return other


def configure(home: Path, **settings: str) -> None:
    """Set something in the settings of a home."""
    home.mkdir(mode=0o700, exist_ok=True)
    with (home / "holdfast.toml").open("a") as file:
        file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def files_of(home: Path) -> set[str]:
    """All files of a home but for the store's own."""
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(("holdfast.db", "holdfast.toml"))}


def archive(holdfast: Holdfast, clock: FakeClock, user: str = "ann") -> str:
    """A memory of a user in cold storage."""
    memory_id = str(holdfast.manager(user, "guide").add(STORY, "long_term")["memory_id"])
    clock.advance(days=366)
    holdfast.sweep()
    return memory_id


@pytest.fixture(autouse=True)
def tables(home: Path, engine_name: str) -> Iterator[None]:
    """Whoever gets the database next finds tables in it."""
    yield
    if engine_name == "postgres":
        database_of(home).close()


def drop(home: Path) -> None:
    """Lose the store of a home, whichever engine keeps it."""
    settings = settings_of(home)
    if settings.url.startswith("sqlite"):
        for path in home.glob("holdfast.db*"):
            path.unlink()
        return
    with psycopg.connect(settings.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")


def is_made(home: Path) -> bool:
    """Whether there is anything of a store at the URL of a home."""
    settings = settings_of(home)
    if settings.url.startswith("sqlite"):
        return bool(list(home.glob("holdfast.db*")))
    with psycopg.connect(settings.url) as connection:
        return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'holdfast'").fetchone() is not None


# --- one keyring for each store ---------------------------------------------------------------------------------------


def test_a_second_machine_with_keys_of_its_own_is_refused_before_it_makes_any(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        archive(holdfast, clock)
    other = another_machine(home)

    with pytest.raises(
        KeyringError, match=r"HOLDFAST_STATE_URL .* HOLDFAST_MASTER_KEY .* holdfast key abandon"
    ) as caught:
        Holdfast.open(home=other, clock=clock)

    assert "there is none" in str(caught.value)
    assert files_of(other) == set(), "nothing was made there"


def test_two_machines_that_are_open_do_not_both_make_keys(home: Path, clock: FakeClock) -> None:
    other = another_machine(home)
    with Holdfast.open(home=home, clock=clock) as first, Holdfast.open(home=other, clock=clock) as second:
        cold = archive(first, clock)
        before = files_of(other)

        for use in (second.backups.create, lambda: second.erase_user("ann")):
            with pytest.raises(KeyringError, match=f"belongs to keyring {first.keyring.id()}"):
                use()

        assert files_of(other) == before, "neither a key nor anything else was made"
        assert "Rome" in first.manager("ann", "guide").rehydrate(cold)["content"], "and nobody was erased"
    assert not (other / "keys").exists()


def test_an_erasure_on_one_machine_tells_the_other_which_state_to_name(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        holdfast.erase_user("ann")
    with pytest.raises(KeyringError, match="HOLDFAST_STATE_URL"):
        Holdfast.open(home=another_machine(home), clock=clock)


def test_machines_that_name_one_state_and_master_key_share_a_store(
    home: Path, clock: FakeClock, tmp_path: Path
) -> None:
    other = another_machine(home)
    for one in (home, other):
        configure(
            one, state_url=(tmp_path / "shared").as_uri(), archive_url=(tmp_path / "cold").as_uri(), master_key=MASTER
        )
    with Holdfast.open(home=home, clock=clock) as first, Holdfast.open(home=other, clock=clock) as second:
        cold = archive(first, clock)
        assert "Rome" in second.manager("ann", "guide").rehydrate(cold)["content"]
        second.erase_user("ann")
        assert second.keyring.id() == first.keyring.id()
    Holdfast.open(home=home, clock=clock).close()


def test_the_id_of_a_keyring_stays_when_its_keys_change(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.keyring.id() is None, "none was needed yet"
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        holdfast.backups.create()
        known = holdfast.keyring.id()
        assert known is not None
        holdfast.erase_user("ann")
        with holdfast.database.read() as tx:
            found = tx.find(Identity, "coordination.identity")
        assert found is not None
        assert found == holdfast.services.identity.read()
        assert found.keyring == known
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.keyring.id() == known


def test_what_was_sealed_under_another_keyring_is_not_called_damaged(homes: Homes, clock: FakeClock) -> None:
    ours = homes.new("ours")
    with Holdfast.open(home=ours, clock=clock) as holdfast:
        cold = archive(holdfast, clock)
        holdfast.backups.create()
    # another key of the same pseudonym, as a machine with a keyring of its own would have made it
    (key,) = [path for path in (ours / "keys").glob("[0-9a-f][0-9a-f]/*.json") if path.stem in _owners(ours)]
    key.unlink()
    with Holdfast.open(home=ours, clock=clock) as holdfast:
        (pseudonym,) = _owners(ours)
        holdfast.keyring.ensure(pseudonym, now=0)

        with pytest.raises(OtherKeyringError, match=r"sealed under another keyring .* HOLDFAST_STATE_URL") as caught:
            holdfast.manager("ann", "guide").rehydrate(cold)
        assert "damaged" not in str(caught.value)
        (check,) = [holdfast.backups.verify(one.id, restore=True) for one in holdfast.backups.list()]
        assert "sealed under another keyring" in check.problems[0]


def _owners(home: Path) -> set[str]:
    """Whose cold objects there are."""
    return {path.parent.name for path in (home / "archive").rglob("*") if path.is_file()}


def test_a_store_whose_keyring_is_lost_for_good_goes_on_with_another(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        archive(holdfast, clock)
    shutil.rmtree(home / "keys")
    configure(home, master_key=MASTER)
    with pytest.raises(KeyringError, match="holdfast key abandon"):
        Holdfast.open(home=home, clock=clock)

    with Holdfast(settings_of(home), clock=clock, purpose="abandon") as holdfast:
        with pytest.raises(KeyringError):
            holdfast.backups.create()
        with pytest.raises(ConfirmationNeededError, match=r"belongs to keyring .*cold objects: 1"):
            holdfast.abandon_keys()
        done = holdfast.abandon_keys(confirm=True)
        assert (done.keyring is not None, done.objects) == (True, 1)
        holdfast.backups.create()

    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("bob", "guide").add("likes tea", "long_term")
        assert not holdfast.abandon_keys(confirm=True), "once"


# --- a store that was lost --------------------------------------------------------------------------------------------


def kept(home: Path, clock: FakeClock) -> str:
    """A store with a memory in it and a backup; the backup's id."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        return holdfast.backups.create().id


def test_no_empty_store_takes_the_place_of_one_that_was_lost(home: Path, clock: FakeClock) -> None:
    made = kept(home, clock)
    drop(home)

    with pytest.raises(StoreLostError, match=f"last backup .{made} of .*, 1 memor.* new_store=True"):
        Holdfast.open(home=home, clock=clock)

    with pytest.raises(StoreLostError):
        Holdfast.open(home=home, clock=clock)
    assert not is_made(home), "nothing was made"
    with Holdfast(settings_of(home), clock=clock, purpose="restore") as holdfast:
        assert [one.id for one in holdfast.backups.list()] == [made]
    with pytest.raises(StoreLostError):
        Holdfast.open(home=home, clock=clock)


def test_a_backup_is_restored_into_the_place_of_a_lost_store(home: Path, clock: FakeClock) -> None:
    made = kept(home, clock)
    drop(home)
    with Holdfast(settings_of(home), clock=clock, purpose="restore") as holdfast:
        assert holdfast.backups.restore(made).memories == 1
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("tea")
        holdfast.backups.create()


def test_one_may_begin_anew_by_saying_so(home: Path, clock: FakeClock) -> None:
    kept(home, clock)
    drop(home)
    with Holdfast.open(home=home, clock=clock, new_store=True) as holdfast:
        assert not holdfast.manager("ann", "guide").retrieve("tea")
    Holdfast.open(home=home, clock=clock).close()


def test_a_store_that_was_emptied_is_still_the_same_store(home: Path, clock: FakeClock) -> None:
    kept(home, clock)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.erase_user("ann")
    Holdfast.open(home=home, clock=clock).close()


def test_a_store_that_never_held_anything_may_go(home: Path, clock: FakeClock) -> None:
    Holdfast.open(home=home, clock=clock).close()
    drop(home)
    Holdfast.open(home=home, clock=clock).close()


@on_sqlite
def test_an_empty_file_is_as_good_as_none(home: Path, clock: FakeClock) -> None:
    kept(home, clock)
    drop(home)
    (home / "holdfast.db").touch()
    with pytest.raises(StoreLostError):
        Holdfast.open(home=home, clock=clock)
    assert (home / "holdfast.db").stat().st_size == 0
    SqliteDatabase(
        home / "holdfast.db"
    ).close()  # as another program may leave it: a store in which nothing was ever kept
    with pytest.raises(StoreLostError):
        Holdfast.open(home=home, clock=clock)


def test_what_is_noted_of_a_store_has_neither_user_nor_password(home: Path, clock: FakeClock) -> None:
    kept(home, clock)
    (note,) = (home / FOLDER).glob("*.json")
    said = json.loads(note.read_text())
    assert said["held_data"] is True
    assert said["url"] == store_url(settings_of(home))
    assert "@" not in said["url"]
    assert "?" not in said["url"]


def test_urls_are_noted_without_what_is_secret(tmp_path: Path) -> None:
    url = "postgresql://me:secret@db:6000/mine?sslmode=disable&password=secret&options=-csearch_path%3Dx"
    assert store_url(replace(settings_of(tmp_path), url=url)) == "postgresql://db:6000/mine?schema=x"


def test_a_damaged_note_does_not_keep_a_store_from_being_opened(home: Path, clock: FakeClock) -> None:
    kept(home, clock)
    (note,) = (home / FOLDER).glob("*.json")
    whole = json.loads(note.read_text())
    note.write_text("{")

    Holdfast.open(home=home, clock=clock).close()

    assert json.loads(note.read_text()) == whole
    note.write_text("{")
    drop(home)
    with pytest.raises(StoreLostError):
        Holdfast.open(home=home, clock=clock)
