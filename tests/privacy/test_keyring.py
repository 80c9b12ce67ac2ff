"""Keys: each user's own, wrapped by the master key, gone for good when they are destroyed."""

from __future__ import annotations

import base64
import secrets
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import (
    InvalidSettingsError,
    KeyMissingError,
    MasterKeyError,
    ObjectDamagedError,
    ObjectMissingError,
)
from holdfast.privacy.keys.encryption import DataKey, SealBrokenError, new_key, seal, sealed_under, unseal
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.master import MasterKey, make_master, read_master
from holdfast.privacy.sealed_objects import SealedObjects
from holdfast.storage.objects import open_objects

NOW = 1_768_478_400_000_000
ANN, BOB = "a" * 32, "b" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def ring(folder: Path, setting: str = "") -> Keyring:
    file = folder / "keys" / "master.key"
    return Keyring(open_objects(folder.as_uri()), setting, file)


def as_text() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


# --- sealing -----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.text(max_size=20), st.data())
def test_what_was_sealed_comes_back_and_any_changed_byte_is_found(
    content: bytes, name: str, data: st.DataObject
) -> None:
    key = new_key(ANN)
    sealed = seal(key, name, content)

    assert unseal(key, name, sealed) == content
    assert sealed_under(sealed) == ANN
    place = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:place] + bytes([sealed[place] ^ data.draw(st.integers(1, 255))]) + sealed[place + 1 :]
    with pytest.raises(SealBrokenError):
        unseal(key, name, changed)
    with pytest.raises(SealBrokenError):
        unseal(key, name, sealed[:place])


def test_a_seal_holds_for_its_name_and_its_key_alone() -> None:
    key = new_key(ANN)
    sealed = seal(key, "one", b"content")

    for other, name in ((key, "two"), (new_key(ANN), "one")):
        with pytest.raises(SealBrokenError):
            unseal(other, name, sealed)
    assert b"content" not in sealed
    assert seal(key, "one", b"content") != sealed, "each time with a nonce of its own"
    assert key.secret.hex() not in repr(key)


# --- the keyring -------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_is_the_same_for_everyone_who_asks(folder: Path) -> None:
    key = ring(folder).ensure(ANN, now=NOW)

    assert ring(folder).ensure(ANN, now=NOW + 1) == ring(folder).get(ANN) == key
    assert ring(folder).ensure(BOB, now=NOW).secret != key.secret
    assert sorted(ring(folder).ids()) == [ANN, BOB]


def test_a_destroyed_key_is_gone_and_the_next_one_is_another(folder: Path) -> None:
    key = ring(folder).ensure(ANN, now=NOW)

    assert ring(folder).destroy(ANN)
    assert not ring(folder).destroy(ANN)
    with pytest.raises(KeyMissingError, match=ANN):
        ring(folder).get(ANN)
    assert ring(folder).ensure(ANN, now=NOW).secret != key.secret


def test_no_key_lies_anywhere_in_clear(folder: Path) -> None:
    setting = as_text()
    key = ring(folder, setting).ensure(ANN, now=NOW)
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    for secret in (key.secret, base64.b64decode(setting)):
        for form in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert form not in written


def test_a_lost_master_key_is_not_replaced_by_another(folder: Path) -> None:
    ring(folder).ensure(ANN, now=NOW)
    (folder / "keys" / "master.key").unlink()

    with pytest.raises(MasterKeyError, match="missing"):
        ring(folder).get(ANN)
    with pytest.raises(MasterKeyError, match="missing"):
        ring(folder).ensure(BOB, now=NOW)
    assert not (folder / "keys" / "master.key").exists()


def test_the_wrong_master_key_is_refused_by_name(folder: Path) -> None:
    ring(folder, as_text()).ensure(ANN, now=NOW)
    wrong = as_text()

    with pytest.raises(MasterKeyError, match="wrapped with master key") as caught:
        ring(folder, wrong).get(ANN)
    assert wrong not in str(caught.value)
    assert list(ring(folder, wrong).find_unopened()) == [("data", ANN)]


def test_the_master_key_is_changed_without_changing_the_keys(folder: Path) -> None:
    old, new = as_text(), as_text()
    keys = [ring(folder, old).ensure(who, now=NOW) for who in (ANN, BOB)]
    master = read_master(new, folder / "none")
    assert isinstance(master, MasterKey)

    assert ring(folder, old).rewrap(master, now=NOW) == 2
    assert ring(folder, old).rewrap(master, now=NOW) == 0, "and once more does nothing"
    assert [ring(folder, new).get(who) for who in (ANN, BOB)] == keys
    with pytest.raises(MasterKeyError):
        ring(folder, old).get(ANN)


def test_a_master_key_comes_from_a_file_a_command_or_the_setting_itself(tmp_path: Path) -> None:
    text = as_text()
    file = tmp_path / "key"
    file.write_text(text + "\n")
    ways = [text, f"file:{file}", f"command:{sys.executable} -c \"print('{text}')\""]

    assert {read_master(way, tmp_path / "none") for way in ways} == {read_master(text, tmp_path / "none")}
    assert read_master("", tmp_path / "none") is None


@pytest.mark.parametrize("setting", ["short", "aGVsbG8=", "file:/nowhere/at/all", "command:false", "command:/no/such"])
def test_what_is_no_master_key_is_said_without_showing_it(setting: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidSettingsError, MasterKeyError)) as caught:
        read_master(setting, tmp_path / "none")
    assert "aGVsbG8" not in str(caught.value)


def test_the_master_keys_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    make_master(tmp_path / "keys" / "master.key")

    assert (tmp_path / "keys" / "master.key").stat().st_mode & 0o077 == 0
    assert make_master(tmp_path / "keys" / "master.key") == read_master("", tmp_path / "keys" / "master.key")


def test_a_damaged_key_is_told_from_a_destroyed_one(folder: Path) -> None:
    ring(folder).ensure(ANN, now=NOW)
    (path,) = (folder / "keys").rglob(f"{ANN}.json")
    path.write_bytes(path.read_bytes().replace(b'"wrapped":"', b'"wrapped":"A', 1))

    with pytest.raises(ObjectDamagedError, match="damaged"):
        ring(folder).get(ANN)


# --- sealed objects ----------------------------------------------------------------------------------------------------


def test_what_belongs_to_a_user_is_sealed_and_unreadable_once_the_key_is_gone(folder: Path, tmp_path: Path) -> None:
    plain = open_objects((tmp_path / "archive").as_uri())
    keys = ring(folder)
    objects = SealedObjects(plain, keys, lambda: NOW)
    name = f"archive/aa/{ANN}/1.pack"

    objects.put(name, b"what Ann said")

    assert objects.get(name) == b"what Ann said"
    assert objects.get_with_tag(name)[0] == b"what Ann said"
    assert b"Ann said" not in plain.get(name)
    keys.destroy(ANN)
    with pytest.raises(KeyMissingError):
        objects.get(name)


def test_a_key_that_is_not_there_is_called_destroyed_only_where_the_ledger_says_so(
    folder: Path, tmp_path: Path
) -> None:
    plain = open_objects((tmp_path / "archive").as_uri())
    name = f"archive/aa/{ANN}/1.pack"
    SealedObjects(plain, ring(folder), lambda: NOW).put(name, b"what Ann said")
    elsewhere = ring(tmp_path / "another home")
    (tmp_path / "another home").mkdir()

    with pytest.raises(KeyMissingError, match=r"is not in the keyring in file:.*check HOLDFAST_STATE_URL") as caught:
        SealedObjects(plain, elsewhere, lambda: NOW).get(name)
    assert "destroyed" not in str(caught.value)
    with pytest.raises(ObjectMissingError, match=f"{ANN} was erased"):
        SealedObjects(plain, elsewhere, lambda: NOW, lambda alias: alias == ANN).get(name)


def test_an_object_put_in_anothers_place_is_not_taken_for_it(folder: Path, tmp_path: Path) -> None:
    plain = open_objects((tmp_path / "archive").as_uri())
    objects = SealedObjects(plain, ring(folder), lambda: NOW)
    objects.put(f"archive/aa/{ANN}/1.pack", b"one")
    plain.put(f"archive/aa/{ANN}/2.pack", plain.get(f"archive/aa/{ANN}/1.pack"))

    with pytest.raises(ObjectDamagedError):
        objects.get(f"archive/aa/{ANN}/2.pack")


def test_what_was_written_before_there_were_keys_is_read_as_it_is(folder: Path, tmp_path: Path) -> None:
    plain = open_objects((tmp_path / "archive").as_uri())
    plain.put(f"archive/aa/{ANN}/1.pack", b"holdfast-pack 1\n")

    assert SealedObjects(plain, ring(folder), lambda: NOW).get(f"archive/aa/{ANN}/1.pack") == b"holdfast-pack 1\n"


def test_a_key_shows_nothing_of_itself() -> None:
    assert "secret" not in repr(DataKey(ANN, b"secret" * 5 + b"xx"))
    assert "secret" not in repr(MasterKey("1", b"secret"))
