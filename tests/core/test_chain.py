"""What an entry's text is, how entries hang together, and how a broken chain is told from a whole one."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retain.core.chain import (
    GENESIS,
    Chain,
    Checkpoint,
    Event,
    Head,
    Link,
    Seal,
    check_chain,
    check_checkpoints,
    cut_event,
    entry_text,
    link,
    parse_entry,
)
from retain.core.errors import InvalidInputError, StorageError

ALIAS = bytes(range(16))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=6,
)
EVENTS = st.builds(
    Event,
    st.integers(0, 2**50),
    st.sampled_from(["recycle", "hold.add", "refuse"]),
    st.none() | st.text(st.characters(codec="utf-8")),
    st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3),
)


def chained(events: list[Event], floor: int = 0, floor_hash: bytes = GENESIS) -> tuple[list[Link], Chain]:
    """Events as an engine would keep them."""
    hashed, entries = floor_hash, []
    for seq, event in enumerate(events, floor + 1):
        text = entry_text(ALIAS, 100 + seq, seq, event)
        hashed = link(hashed, text)
        item = None if event.item is None else event.item.encode()
        entries.append(Link(100 + seq, seq, event.at, item, text.encode(), hashed))
    return entries, Chain(floor + len(events), hashed, floor, floor_hash)


def test_the_text_of_an_entry_is_canonical() -> None:
    one = entry_text(ALIAS, 7, 2, Event(5, "recycle", "m1", {"b": 1, "a": "é"}))

    assert one == (
        '{"chain":"000102030405060708090a0b0c0d0e0f","no":7,"seq":2,"at":5,"item":"m1","action":"recycle",'
        '"detail":{"a":"é","b":1}}'
    )
    assert one == entry_text(ALIAS, 7, 2, Event(5, "recycle", "m1", {"a": "é", "b": 1}))


def test_a_hash_covers_the_text_and_the_hash_before_it() -> None:
    assert link(GENESIS, "é") == hashlib.sha256(bytes(32) + "é".encode()).digest()


@pytest.mark.parametrize(
    ("detail", "why"),
    [({"a": float("nan")}, "nan"), ({"a": object()}, "object"), ({"a": b"x"}, "bytes"), ({"a": "\ud800"}, "surrogate")],
)
def test_a_detail_that_is_not_json_is_refused(detail: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        entry_text(ALIAS, 1, 1, Event(0, "recycle", None, detail))


@given(EVENTS)
def test_an_entry_says_what_its_event_said(event: Event) -> None:
    entry = parse_entry(entry_text(ALIAS, 9, 3, event).encode(), b"\x01")

    assert entry == (ALIAS.hex(), 3, event.at, event.action, event.item, event.detail, "01")


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b"3"])
def test_an_entry_that_cannot_be_read_says_what_to_do(text: bytes) -> None:
    with pytest.raises(StorageError, match="audit verify"):
        parse_entry(text, b"")


@given(st.lists(EVENTS, min_size=1, max_size=6), st.data())
def test_a_whole_chain_has_nothing_wrong_and_any_change_of_an_entry_is_found(
    events: list[Event], data: st.DataObject
) -> None:
    entries, chain = chained(events)
    sealed = data.draw(st.sampled_from(entries))
    head = Head(1, ALIAS, sealed.seq, sealed.hash)
    assert list(check_chain(ALIAS, chain, head, entries)) == []

    place = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(Link._fields))
    old = getattr(entries[place], field)
    other: st.SearchStrategy[Any] = st.integers(-5, 2**62) if isinstance(old, int) else st.binary()
    changed = entries[place]._replace(**{field: data.draw(other.filter(lambda new: new != old))})
    tampered = sorted([*entries[:place], changed, *entries[place + 1 :]], key=lambda entry: entry.seq)
    assert list(check_chain(ALIAS, chain, head, tampered))


def test_what_is_missing_is_named() -> None:
    entries, chain = chained([Event(n, "recycle", None, {}) for n in range(6)])

    (gap,) = check_chain(ALIAS, chain, None, entries[:2] + entries[4:])
    (end,) = check_chain(ALIAS, chain, None, entries[:4])
    (all_of_it,) = check_chain(ALIAS, chain, None, [])

    assert (gap.seq, gap.problem) == (3, "is missing, with all up to 4")
    assert end.seq == 5
    assert all_of_it.seq == 1


def test_one_changed_entry_does_not_make_all_that_follow_wrong() -> None:
    entries, chain = chained([Event(n, "recycle", None, {"n": n}) for n in range(6)])
    entries[2] = entries[2]._replace(text=entries[2].text.replace(b'"n":2', b'"n":9'))

    (found,) = check_chain(ALIAS, chain, None, entries)

    assert (found.chain, found.seq) == (ALIAS.hex(), 3)


def test_a_chain_begins_where_it_says_that_it_was_cut_and_nowhere_else() -> None:
    events = [Event(n, "recycle", None, {}) for n in range(5)]
    entries, chain = chained(events)
    second = entries[1].hash
    allowed, shorter = chained([*events[2:], cut_event(9, count=2, upto=2, upto_hash=second)], 2, second)

    assert list(check_chain(ALIAS, shorter, None, allowed)) == []
    assert list(check_chain(ALIAS, chain._replace(floor=2, floor_hash=second), None, entries[2:])), "nobody cut it"
    assert list(check_chain(ALIAS, shorter._replace(floor=3, floor_hash=entries[2].hash), None, allowed[1:]))
    assert list(check_chain(ALIAS, shorter, Head(1, ALIAS, 1, entries[0].hash), allowed)), "cut, but was not sealed"
    assert list(check_chain(ALIAS, shorter, Head(1, ALIAS, 2, second), allowed)) == []


@pytest.mark.parametrize("detail", [{}, {"upto": 0}])
def test_a_cut_that_does_not_say_where_is_wrong(detail: dict[str, Any]) -> None:
    entries, chain = chained([Event(1, "audit.cut", None, detail)])

    assert [found.seq for found in check_chain(ALIAS, chain, None, entries)] == [1]


def test_columns_that_are_no_text_are_found_and_break_nothing() -> None:
    entries, chain = chained([Event(1, "recycle", "m1", {})])

    assert list(check_chain(ALIAS, chain, None, [entries[0]._replace(item=b"\xff")]))
    assert list(check_chain(ALIAS, chain, None, [entries[0]._replace(text=b"\xff{")]))


def checkpointed() -> tuple[list[Checkpoint], Seal]:
    made: list[Checkpoint] = []
    for round_ in range(1, 4):
        seal = Seal()
        for subject in range(1, 4):
            seal.add(Head(subject, ALIAS, round_, bytes([round_]) * 32))
        made.append(seal.checkpoint(made[-1] if made else None, round_))
    return made, seal


def test_checkpoints_count_what_they_seal() -> None:
    made, seal = checkpointed()

    assert [(one.no, one.chains, one.entries) for one in made] == [(1, 3, 3), (2, 3, 6), (3, 3, 9)]
    assert list(check_checkpoints(made, seal, 3)) == []
    assert list(check_checkpoints([], Seal(), 0)) == []


@given(st.data())
def test_any_change_of_a_checkpoint_is_found(data: st.DataObject) -> None:
    made, seal = checkpointed()
    place = data.draw(st.integers(0, 2))
    field = data.draw(st.sampled_from(Checkpoint._fields))
    old = getattr(made[place], field)
    other: st.SearchStrategy[Any] = st.integers(-5, 99) if isinstance(old, int) else st.binary()
    made[place] = made[place]._replace(**{field: data.draw(other.filter(lambda new: new != old))})

    assert list(check_checkpoints(sorted(made), seal, 3))


@pytest.mark.parametrize("kept", [[], [0], [0, 1], [1, 2], [0, 2]])
def test_a_missing_checkpoint_is_found(kept: list[int]) -> None:
    made, seal = checkpointed()

    assert list(check_checkpoints([made[place] for place in kept], seal, 3))


def test_the_order_of_keys_in_a_text_does_not_depend_on_the_detail() -> None:
    text = entry_text(ALIAS, 1, 1, Event(0, "a", None, {"seq": 9, "chain": "x"}))

    assert list(json.loads(text)) == ["chain", "no", "seq", "at", "item", "action", "detail"]
