"""What may be stored, and what is refused before anything is written."""

from __future__ import annotations

import math
import tracemalloc
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import (
    HoldfastError,
    InvalidContentError,
    InvalidInputError,
    InvalidMetadataError,
    InvalidScopeError,
)
from holdfast.core.values import (
    COMPRESS_OVER_BYTES,
    MAX_CONTENT_BYTES,
    MAX_ID_CHARS,
    MAX_METADATA_BYTES,
    check_content,
    check_count,
    check_id,
    check_metadata,
    check_tenant,
    dump_json,
    dump_metadata,
    list_as_json,
    pack,
    parse_json_object,
    same_json,
    to_json,
    unpack,
)

Text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | Text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(Text, inner, max_size=4),
    max_leaves=12,
)


def nested(depth: int) -> Any:
    value: Any = "innermost"
    for level in range(depth):
        value = {"in": value} if level % 2 else [value]
    return value


# --- content -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["a", " a ", "Grüße aus 東京 🎿", "\ufeffBOM", "a\r\n\tb", "\x01", "0", "null"])
def test_text_is_content(content: str) -> None:
    assert check_content(content) is content


@pytest.mark.parametrize("content", ["", " ", "\n\t ", "\u2003\u00a0"])
def test_empty_content_is_refused(content: str) -> None:
    with pytest.raises(InvalidContentError, match="cannot be empty"):
        check_content(content)


@pytest.mark.parametrize("content", [None, b"bytes", 5, 1.5, ["text"], {"text": 1}, object()])
def test_what_is_not_text_is_refused_with_what_it_is(content: object) -> None:
    with pytest.raises(InvalidContentError, match=f"must be text, not {type(content).__name__}"):
        check_content(content)


def test_a_nul_character_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidContentError, match="NUL character at position 5"):
        check_content("hello\x00world")


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidContentError, match=r"lone surrogate \(U\+D83C\) at position 3"):
        check_content("ski\ud83c")


def test_content_may_have_as_many_bytes_as_allowed_and_not_one_more() -> None:
    assert check_content("x" * MAX_CONTENT_BYTES)
    for over in ("x" * (MAX_CONTENT_BYTES + 1), "ü" * (MAX_CONTENT_BYTES // 2) + "x"):
        with pytest.raises(InvalidContentError, match=r"too large \(max: 8,388,608 bytes\); split it"):
            check_content(over)
    assert check_content("ü" * 5, max_bytes=10)
    with pytest.raises(InvalidContentError, match="max: 9 bytes"):
        check_content("ü" * 5, max_bytes=9)


def test_fifty_megabytes_are_refused_without_being_copied() -> None:
    content = "ü" * 50_000_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidContentError, match="50,000,000 characters is too large"):
            check_content(content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.text(max_size=50))
def test_what_is_accepted_can_be_stored_and_read_back(content: str) -> None:
    try:
        accepted = check_content(content)
    except InvalidContentError:
        return
    assert accepted.encode().decode() == content
    assert unpack(pack(accepted)) == content


# --- packing -----------------------------------------------------------------------------------------------------


@given(Text | Text.map(lambda text: text * 200))
def test_what_is_packed_comes_back_as_it_was(text: str) -> None:
    stored = pack(text)

    assert unpack(stored) == text
    assert len(stored.encode() if isinstance(stored, str) else stored) <= len(text.encode())


def test_long_text_is_compressed_and_short_text_is_not() -> None:
    assert isinstance(pack("x" * COMPRESS_OVER_BYTES), str)
    assert isinstance(pack("x" * (COMPRESS_OVER_BYTES + 1)), bytes)
    assert isinstance(pack("ü" * COMPRESS_OVER_BYTES), bytes), "bytes count, not characters"


# --- metadata ----------------------------------------------------------------------------------------------------


@given(st.dictionaries(Text, Json, max_size=4))
def test_json_objects_are_metadata_and_come_back_equal(metadata: dict[str, Any]) -> None:
    kept = {key: value for key, value in metadata.items() if key != "is_compressed"}

    assert same_json(check_metadata(metadata), kept)
    assert same_json(parse_json_object(dump_metadata(metadata)), kept)


def test_metadata_is_a_copy() -> None:
    mine = {"tags": ["a"]}
    checked = check_metadata(mine)
    mine["tags"].append("b")

    assert checked == {"tags": ["a"]}


def test_none_is_no_metadata() -> None:
    assert check_metadata(None) == {}


def test_what_holdfast_adds_to_metadata_is_ignored_where_it_is_handed_back() -> None:
    assert check_metadata({"is_compressed": True, "a": 1}) == {"a": 1}


class Colour(IntEnum):
    RED = 1


def test_things_that_json_can_hold_under_another_name_are_taken() -> None:
    odd = {"proxy": MappingProxyType({"a": OrderedDict(b=(1, 2))}), "enum": Colour.RED}

    assert check_metadata(odd) == {"proxy": {"a": {"b": [1, 2]}}, "enum": 1}
    assert check_metadata(MappingProxyType(odd)) == check_metadata(odd)


@pytest.mark.parametrize("metadata", [[], "text", 5, True, [("a", 1)], {"a"}])
def test_metadata_that_is_no_object_is_refused(metadata: object) -> None:
    with pytest.raises(InvalidMetadataError, match=r"must be an object \(a dict\), not"):
        check_metadata(metadata)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, r"a\[0\]\.b is nan, which JSON cannot hold"),
        (math.inf, "is inf"),
        (-math.inf, "is -inf"),
        (2**63, "a whole number beyond 64 bits"),
        (-(2**63) - 1, "a whole number beyond 64 bits"),
        pytest.param(10**5_000, "a whole number beyond 64 bits", id="huge"),
        ({1: "x"}, r"the key 1 of a\[0\]\.b is not text"),
        ({None: "x"}, "the key None of"),
        (datetime(2026, 1, 15, tzinfo=UTC), r"is a datetime \(datetime.datetime\(2026.*; use \.isoformat\(\)"),
        (b"bytes", "is a bytes"),
        ({"a"}, "is a set"),
        (Decimal("1.5"), "is a Decimal"),
        (UUID(int=1), "is a UUID"),
        (1j, "is a complex"),
        (object(), "is a object"),
        (nested(70), "nested more than 64 deep"),
        ("nul \x00", "NUL character"),
        ({"nul \x00": 1}, "NUL character"),
        ("lone \ud800", r"lone surrogate \(U\+D800\)"),
        ({"lone \udfff": 1}, r"lone surrogate \(U\+DFFF\)"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(InvalidMetadataError, match=message):
        check_metadata({"a": [{"b": value}]})
    with pytest.raises(InvalidContentError, match=message):
        dump_json({"a": [{"b": value}]}, InvalidContentError, "the document")


def test_the_escape_of_a_nul_written_out_is_text_like_any_other() -> None:
    assert check_metadata({"a": "\\u0000"}) == {"a": "\\u0000"}


@pytest.mark.parametrize("key", [1, 1.5, True, None, ("a",), b"a"])
def test_a_key_that_is_not_text_is_refused(key: object) -> None:
    with pytest.raises(InvalidMetadataError, match="is not text"):
        check_metadata({key: 1})


def test_metadata_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop, loop]

    with pytest.raises(InvalidMetadataError, match="nested more than 64 deep"):
        check_metadata(loop)


def test_metadata_may_be_nested_deeply_but_not_endlessly() -> None:
    assert check_metadata({"a": nested(60)}) == {"a": nested(60)}


def test_metadata_may_have_as_many_bytes_as_allowed_and_not_one_more() -> None:
    frame = len('{"a":""}')
    assert check_metadata({"a": "x" * (MAX_METADATA_BYTES - frame)})
    for over in ("x" * (MAX_METADATA_BYTES - frame + 1), "ü" * (MAX_METADATA_BYTES // 2)):
        with pytest.raises(
            InvalidMetadataError, match=r"too large \(max: 262,144\); put large values into the content"
        ):
            check_metadata({"a": over})


@given(
    st.recursive(
        st.from_type(object) | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=6,
    )
)
def test_whatever_is_given_as_metadata_is_stored_or_refused_in_our_words(metadata: object) -> None:
    try:
        text = dump_metadata(metadata)
    except HoldfastError:
        return
    assert dump_metadata(parse_json_object(text)) == text
    assert text.encode()


# --- JSON equality -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [True], False),
        ([1], [1, 1], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([], {}, False),
    ],
)
def test_json_values_are_equal_as_json_sees_it(one: object, other: object, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


@given(Json)
def test_every_json_value_equals_itself(value: object) -> None:
    assert same_json(value, parse_json_object(dump_json({"v": value}, InvalidInputError, "it"))["v"])


# --- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["a", "user_123", "ann@example.com", "a b", "ü", "東京", "a/b", "%", "x" * MAX_ID_CHARS, "**"]
)
def test_printable_text_is_an_id(value: str) -> None:
    assert check_id(value, "user_id") is value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must be a text that is not empty"),
        ("  ", "must be a text that is not empty"),
        (None, "must be a text that is not empty, not None"),
        (5, "must be a text that is not empty, not 5"),
        (b"a", "must be a text"),
        ("x" * (MAX_ID_CHARS + 1), r"of 257 characters is too long \(max: 256\)"),
        ("*", "maintenance verbs only; name one"),
        ("a\x00b", "control or unprintable"),
        ("a\nb", "control or unprintable"),
        ("a\x1fb", "control or unprintable"),
        ("a\u202eb", "control or unprintable"),
        ("a\ud800", "lone surrogate"),
    ],
)
def test_what_cannot_be_an_id_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(InvalidScopeError, match=f"user_id.*{message}"):
        check_id(value, "user_id")


def test_a_tenant_has_no_slash_so_that_no_two_subjects_share_a_key() -> None:
    assert check_tenant("acme.eu") == "acme.eu"
    with pytest.raises(InvalidScopeError, match="tenant 'a/b' has a slash"):
        check_tenant("a/b")
    with pytest.raises(InvalidScopeError):
        check_tenant("")


@pytest.mark.parametrize("value", [1, 5, 1_000])
def test_a_count_is_a_whole_number_in_its_range(value: int) -> None:
    assert check_count(value, "top_k") == value


@pytest.mark.parametrize("value", [0, -1, 1_001, 1.0, True, "5", None, math.nan])
def test_any_other_count_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"top_k must be a whole number from 1 to 1,000, not"):
        check_count(value, "top_k")


@given(st.lists(st.text(), max_size=5))
def test_a_list_of_texts_is_the_same_json_however_it_is_written(texts: list[str]) -> None:
    assert list_as_json(texts) == to_json(texts)


@pytest.mark.parametrize("text", ["", "x", '{"a":}', '{"a": 1'])
def test_what_is_no_json_is_refused_with_the_place_of_the_flaw(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1 column \d+ \(char \d+\)"):
        parse_json_object(text)
