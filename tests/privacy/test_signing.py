"""The signing key: made when it is needed, wrapped by the master key, replaced at will; public halves stay for ever."""

from __future__ import annotations

import base64
import secrets
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from holdfast.core.errors import InvalidInputError, MasterKeyError, ObjectDamagedError
from holdfast.privacy.keys.keyring import Keyring, rotate_master
from holdfast.privacy.keys.master import MasterKey, begin_change, end_change, master_file, read_master
from holdfast.privacy.keys.signatures import SigningKeys, is_signature, public_id, public_pem, read_public
from holdfast.storage.objects import open_objects

NOW = 1_768_478_400_000_000
ANN = "a" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def ring(folder: Path, setting: str = "") -> Keyring:
    return Keyring(open_objects(folder.as_uri()), setting, folder / "keys" / "master.key")


def keys(folder: Path, setting: str = "") -> SigningKeys:
    return SigningKeys(open_objects(folder.as_uri()), ring(folder, setting))


def as_text() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def master(setting: str, folder: Path) -> MasterKey:
    found = read_master(setting, folder / "none")
    assert found is not None
    return found


# --- the key in use ----------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_the_same_for_everyone(folder: Path) -> None:
    assert keys(folder).current_id() is None
    with ThreadPoolExecutor(6) as pool:
        made = set(pool.map(lambda _: keys(folder).current(now=NOW), range(6)))

    (key,) = made
    assert keys(folder).current_id() == key.id == public_id(key.public)
    assert list(keys(folder).public_ids()) == [key.id], "those who were slower have left nothing"
    assert is_signature(key.sign(b"words"), b"words", key.public)
    assert not is_signature(key.sign(b"words"), b"other words", key.public)
    assert key.secret.hex() not in repr(key)


def test_the_private_half_lies_nowhere_in_clear(folder: Path) -> None:
    key = keys(folder, as_text()).current(now=NOW)
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    for form in (key.secret, key.secret.hex().encode(), base64.b64encode(key.secret)):
        assert form not in written


def test_a_signing_key_is_no_users_key(folder: Path) -> None:
    keys(folder).current(now=NOW)
    ring(folder).ensure(ANN, now=NOW)

    assert list(ring(folder).ids()) == [ANN]
    assert sorted(key.purpose for key in ring(folder).list_keys()) == ["data", "signing"]


def test_after_a_rotation_another_key_signs_and_the_old_public_half_stays(folder: Path) -> None:
    old = keys(folder).current(now=NOW)
    new = keys(folder).rotate(now=NOW + 1)

    assert keys(folder).current(now=NOW) == new != old
    assert (keys(folder).public(old.id), keys(folder).public(new.id)) == (old.public, new.public)
    kept = [key.id for key in ring(folder).list_keys()]
    assert kept == [new.id], "the private half of the old one is destroyed"


def test_rotations_at_once_leave_one_key_that_can_be_used(folder: Path) -> None:
    keys(folder).current(now=NOW)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda place: keys(folder).rotate(now=NOW + place), range(4)))

    assert keys(folder).current(now=NOW) in made
    assert [key.id for key in ring(folder).list_keys()] == [keys(folder).current_id()]


def test_a_lost_master_key_leaves_public_halves_and_a_way_to_go_on(folder: Path) -> None:
    lost, other = as_text(), as_text()
    old = keys(folder, lost).current(now=NOW)

    with pytest.raises(MasterKeyError, match="rotate --signing"):
        keys(folder, other).current(now=NOW)
    assert keys(folder, other).public(old.id) == old.public
    new = keys(folder, other).rotate(now=NOW)
    assert keys(folder, other).current(now=NOW) == new


def test_a_master_key_is_not_made_anew_where_a_signing_key_needs_the_old_one(folder: Path) -> None:
    keys(folder).current(now=NOW)
    (folder / "keys" / "master.key").unlink()

    with pytest.raises(MasterKeyError, match="missing"):
        ring(folder).ensure(ANN, now=NOW)
    assert not (folder / "keys" / "master.key").exists()


@pytest.mark.parametrize("what", ["current", "private"])
def test_a_damaged_key_is_said_to_be_damaged_and_a_rotation_mends_it(folder: Path, what: str) -> None:
    key = keys(folder).current(now=NOW)
    below = folder / "keys" / "signing"
    if what == "current":
        (below / "current").write_text("nonsense")
    else:
        (below / f"{key.id}.json").unlink()

    with pytest.raises(ObjectDamagedError):
        keys(folder).current(now=NOW)
    new = keys(folder).rotate(now=NOW)
    assert keys(folder).current(now=NOW) == new


@pytest.mark.parametrize("content", [public_pem(bytes(31) + b"\1"), b"nonsense"])
def test_a_public_half_that_was_put_in_anothers_place_is_not_taken_for_it(folder: Path, content: bytes) -> None:
    key = keys(folder).current(now=NOW)
    (folder / "keys" / "signing" / f"{key.id}.pub").write_bytes(content)

    with pytest.raises(ObjectDamagedError):
        keys(folder).public(key.id)


def test_an_id_that_no_key_can_have_is_no_key(folder: Path) -> None:
    assert keys(folder).public("../master") is None
    assert keys(folder).public("f" * 32) is None


# --- public halves -----------------------------------------------------------------------------------------------------


def test_a_public_half_is_read_in_pem_and_in_base64(folder: Path) -> None:
    public = keys(folder).current(now=NOW).public

    for text in (public_pem(public), public_pem(public).decode(), base64.b64encode(public), f" {_b64(public)}\n"):
        assert read_public(text) == public


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "aGVsbG8=", "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----", "ä", "\ud800"],
)
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no public key"):
        read_public(text)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- changing the master key -------------------------------------------------------------------------------------------


def test_rewrapping_takes_the_signing_key_along_and_keeps_when_keys_were_made(folder: Path) -> None:
    old, new = as_text(), as_text()
    key = keys(folder, old).current(now=NOW)
    ring(folder, old).ensure(ANN, now=NOW)
    made = {one.id: one.made_at for one in ring(folder).list_keys()}

    assert ring(folder, old).rewrap(master(new, folder), now=NOW + 10**9) == 2
    assert keys(folder, new).current(now=NOW) == key
    assert {one.id: one.made_at for one in ring(folder).list_keys()} == made
    assert {one.master for one in ring(folder).list_keys()} == {master(new, folder).id}


def test_what_cannot_be_opened_does_not_keep_the_rest_from_being_rewrapped(folder: Path) -> None:
    lost, old, new = as_text(), as_text(), as_text()
    ring(folder, lost).ensure(ANN, now=NOW)
    ring(folder, old).ensure("b" * 32, now=NOW)

    assert ring(folder, old).rewrap(master(new, folder), now=NOW) == 1
    assert list(ring(folder, new).find_unopened()) == [("data", ANN)]


def test_a_key_destroyed_during_a_rewrap_stays_destroyed(folder: Path) -> None:
    ids = [f"{number:032x}" for number in range(6)]
    old, new = as_text(), as_text()
    for key_id in ids:
        ring(folder, old).ensure(key_id, now=NOW)
    working = ring(folder, old)

    def destroy_the_rest(_count: int) -> None:
        for one in list(working.list_keys()):
            if one.master != master(new, folder).id:
                working.destroy(one.id)

    assert working.rewrap(master(new, folder), now=NOW, progress=destroy_the_rest) == 1
    assert len(list(ring(folder, new).ids())) == 1


@pytest.mark.parametrize("given", [True, False], ids=["given", "in its file"])
@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_change_that_is_cut_short_anywhere_loses_no_key_and_is_gone_on_with(
    folder: Path, after: int, *, given: bool
) -> None:
    ids = [f"{number:032x}" for number in range(5)]
    before = {key_id: ring(folder).ensure(key_id, now=NOW) for key_id in ids}
    signing, new = keys(folder).current(now=NOW), as_text() if given else None
    file = folder / "keys" / "master.key"
    done = count(1)

    def cut_short(_count: int) -> None:
        if next(done) == after:
            raise KeyboardInterrupt

    objects = open_objects(folder.as_uri())
    with pytest.raises(KeyboardInterrupt):
        rotate_master(objects, "", file, new=new, now=NOW, progress=cut_short)
    if not given:
        assert {key_id: ring(folder).get(key_id) for key_id in ids} == before, "both master keys are known meanwhile"
    again = rotate_master(objects, "", file, new=new, now=NOW)

    assert (again.rewrapped, again.left) == (6 - after, ())
    assert {key_id: ring(folder, new or "").get(key_id) for key_id in ids} == before
    assert keys(folder, new or "").current(now=NOW) == signing
    assert not file.with_name("master.key.old").exists()


def test_a_change_in_the_file_is_noticed_by_those_who_have_the_keyring_open(folder: Path) -> None:
    open_before = ring(folder)
    key = open_before.ensure(ANN, now=NOW)
    file = folder / "keys" / "master.key"

    change = begin_change(file)
    assert begin_change(file) == change, "begun again, it is the same change"
    assert open_before.get(ANN) == ring(folder).get(ANN) == key, "before the keys are rewrapped"
    late = open_before.ensure("b" * 32, now=NOW)
    assert ring(folder).rewrap(change.new, now=NOW) == 1, "the late one is under the new master key already"
    assert open_before.get(ANN) == ring(folder).get(ANN) == key, "and after"
    end_change(file, change)
    assert not file.with_name("master.key.old").exists()
    assert open_before.get(ANN) == ring(folder).get(ANN) == key
    assert ring(folder).get("b" * 32) == late
    assert file.stat().st_mode & 0o077 == 0


def test_a_change_that_was_cut_short_before_the_new_key_was_written_is_gone_on_with(folder: Path) -> None:
    ring(folder).ensure(ANN, now=NOW)
    file = folder / "keys" / "master.key"
    file.with_name("master.key.old").write_text(file.read_text())

    change = begin_change(file)

    assert change.new != change.old
    assert ring(folder).rewrap(change.new, now=NOW) == 1


def test_the_end_of_a_change_leaves_a_later_one_alone(folder: Path) -> None:
    ring(folder).ensure(ANN, now=NOW)
    file = folder / "keys" / "master.key"
    first = begin_change(file)
    ring(folder).rewrap(first.new, now=NOW)
    end_change(file, first)
    second = begin_change(file)

    end_change(file, first)

    assert file.with_name("master.key.old").exists()
    assert second.old == first.new
    ring(folder).get(ANN)


def test_only_a_file_can_be_changed_in_place(folder: Path) -> None:
    assert master_file("", folder / "master.key") == folder / "master.key"
    assert master_file("file:/there/key", folder) == Path("/there/key")
    assert master_file("command:cat key", folder) is master_file(as_text(), folder) is None
    with pytest.raises(MasterKeyError, match="no master key"):
        begin_change(folder / "keys" / "master.key")
