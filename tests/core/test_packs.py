"""Packs come back as they were sealed, or not at all."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidInputError
from holdfast.core.packs import (
    PACK_BYTES,
    PackDamagedError,
    Packed,
    PackTooNewError,
    groups,
    open_pack,
    pack_digest,
    pack_folder,
    pack_name,
    read_header,
    seal_pack,
)

ALIAS = "3f" * 16
TEXT = st.text(st.characters(exclude_categories=()))  # with lone surrogates: JSON can hold them
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ITEMS = st.lists(st.builds(Packed, TEXT, st.dictionaries(TEXT, JSON, max_size=4)), max_size=8)


def sample(count: int = 3) -> list[Packed]:
    return [
        Packed(
            f"id-{n}", {"content": f"User enjoys skiing, trip {n}", "metadata": {"tags": ["ski", "été"]}, "version": n}
        )
        for n in range(count)
    ]


def forge(first: bytes, header: object, payload: bytes) -> bytes:
    """A pack of whatever parts, with the digest that is right for them."""
    body = b"%s\n%s\n%s" % (first, json.dumps(header).encode(), payload)
    return body + hashlib.sha256(body).digest()


def forge_lines(plain: bytes, **header: Any) -> bytes:
    told = {"codec": "zlib", "count": 1, "subject": ALIAS, "sha256": hashlib.sha256(plain).hexdigest(), **header}
    return forge(b"holdfast-pack 1", told, zlib.compress(plain))


# --- round trips -------------------------------------------------------------------------------------------------


@given(ITEMS)
def test_any_records_come_back_as_they_were_in_their_order(items: list[Packed]) -> None:
    data = seal_pack(ALIAS, items)

    found = open_pack(data)

    assert repr(found) == repr(items)  # repr tells 1 from 1.0 and True, and 0.0 from -0.0
    assert seal_pack(ALIAS, items) == data


def test_a_pack_says_whose_records_it_holds_and_how_many() -> None:
    header = read_header(seal_pack(ALIAS, sample(7)))

    assert (header.subject, header.count, header.codec) == (ALIAS, 7, "zlib")


def test_a_pack_begins_with_a_line_that_says_what_it_is_and_one_of_json() -> None:
    magic, header, payload = seal_pack(ALIAS, sample()).split(b"\n", 2)
    plain = zlib.decompress(payload[:-32])

    assert magic == b"holdfast-pack 1"
    assert json.loads(header)["sha256"] == hashlib.sha256(plain).hexdigest()
    assert [json.loads(line)["id"] for line in plain.splitlines()] == ["id-0", "id-1", "id-2"]


def test_the_digest_is_the_sha256_of_all_bytes() -> None:
    data = seal_pack(ALIAS, sample())

    assert pack_digest(data) == hashlib.sha256(data).digest()


def test_repeated_text_takes_little_room() -> None:
    assert len(seal_pack(ALIAS, sample(1_000))) < 12_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        seal_pack(ALIAS, [Packed("id", {"content": value})])


# --- damage ------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found() -> None:
    data = seal_pack(ALIAS, sample())

    for at, bit in itertools.product(range(len(data)), range(8)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        with pytest.raises(PackDamagedError):
            open_pack(bytes(damaged))


def test_every_truncation_is_found() -> None:
    data = seal_pack(ALIAS, sample())

    for length in range(len(data)):
        with pytest.raises(PackDamagedError):
            open_pack(data[:length])


@given(st.binary(min_size=1, max_size=100))
def test_appended_and_prepended_bytes_are_found(extra: bytes) -> None:
    data = seal_pack(ALIAS, sample())

    for changed in (data + extra, extra + data):
        with pytest.raises(PackDamagedError):
            open_pack(changed)


@given(ITEMS, st.randoms(use_true_random=False))
def test_any_changed_byte_of_any_pack_is_found(items: list[Packed], chance: random.Random) -> None:
    damaged = bytearray(seal_pack(ALIAS, items))
    damaged[chance.randrange(len(damaged))] ^= chance.randint(1, 255)

    with pytest.raises(PackDamagedError):
        open_pack(bytes(damaged))
    with pytest.raises(PackDamagedError):
        read_header(bytes(damaged))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_pack_are_damage(data: bytes) -> None:
    for tried in (data, b"holdfast-pack 1\n" + data):
        with pytest.raises(PackDamagedError):
            open_pack(tried)


@pytest.mark.parametrize(
    "data",
    [
        forge_lines(b'{"id":"a","document":{}}\n', count=2),
        forge_lines(b'{"id":"a","document":{}}\n', sha256="0" * 64),
        forge_lines(b'{"id":"a","document":{}}\n', count="1"),
        forge_lines(b'{"id":"a","document":{}}\n', count=True),
        forge_lines(b'{"id":"a","document":{}}\n', subject=None),
        forge_lines(b'{"id":"a","document":{}}'),
        forge_lines(b'{"id":"a"}\n'),
        forge_lines(b'{"id":1,"document":{}}\n'),
        forge_lines(b'{"id":"a","document":[]}\n'),
        forge_lines(b'["id","document"]\n'),
        forge_lines(b"not json\n"),
        forge_lines(b"\xff\xfe\n"),
        forge(b"holdfast-pack 1", {"codec": "zlib"}, b""),
        forge(b"holdfast-pack 1", ["zlib", 0, ALIAS, ""], b""),
        forge(b"holdfast-pack 1", {"codec": "zlib", "count": 0, "subject": ALIAS, "sha256": ""}, b"not zlib"),
    ],
)
def test_a_pack_that_contradicts_itself_is_damaged_whatever_its_digest(data: bytes) -> None:
    with pytest.raises(PackDamagedError):
        open_pack(data)


@pytest.mark.parametrize(
    "data",
    [
        forge(b"holdfast-pack 2", {"anything": "new"}, b"\x00\x01"),
        forge(b"holdfast-pack 10", {}, b""),
        forge_lines(b"", codec="zlib+aes-256-gcm", count=0),
    ],
)
def test_a_pack_of_a_newer_version_or_codec_is_not_damaged_and_asks_for_an_upgrade(data: bytes) -> None:
    with pytest.raises(PackTooNewError, match="this version of Holdfast knows") as raised:
        open_pack(data)
    assert not isinstance(raised.value, PackDamagedError)


# --- names and groups --------------------------------------------------------------------------------------------


def test_packs_of_a_subject_lie_in_a_folder_of_its_own() -> None:
    name = pack_name(ALIAS, "01890a5d-ac96-774b-bcce-b302099a8057")

    assert name == f"archive/3f/{ALIAS}/01890a5d-ac96-774b-bcce-b302099a8057.pack"
    assert name.startswith(pack_folder(ALIAS))


@pytest.mark.parametrize("alias", ["", "a", "../..", "AB12", "3f/3f", "user_123", "3f\n", "3f" * 65])
def test_an_alias_that_is_not_hexadecimal_names_no_pack(alias: str) -> None:
    with pytest.raises(InvalidInputError, match="alias"):
        pack_name(alias, "1")
    with pytest.raises(InvalidInputError, match="alias"):
        pack_folder(alias)


@pytest.mark.parametrize("pack_id", ["", "..", "a/b", "A", "-a", "a-", "a.b", "a\n", "a" * 65])
def test_an_id_that_is_not_plain_names_no_pack(pack_id: str) -> None:
    with pytest.raises(InvalidInputError, match="pack's id"):
        pack_name(ALIAS, pack_id)


@given(st.lists(st.integers(0, 40)), st.integers(1, 50))
def test_groups_hold_every_record_once_in_order_and_no_more_than_they_may(sizes: list[int], most: int) -> None:
    found = list(groups(iter(sizes), most))

    assert [size for group in found for size in sizes[group]] == sizes
    for group in found:
        assert len(sizes[group]) == 1 or 0 < sum(sizes[group]) <= most or not any(sizes[group])
    for group, following in itertools.pairwise(found):
        assert sum(sizes[group]) + sizes[following.start] > most


def test_a_record_larger_than_a_group_has_one_of_its_own() -> None:
    assert list(groups([10, 3 * PACK_BYTES, 10])) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert list(groups([])) == []


def test_groups_that_can_hold_nothing_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 1 byte"):
        list(groups([1], 0))
