"""What an entry's text is, how entries hang together, and how a broken chain is told from a whole one."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.audit import Action, Checkpoint, Event
from holdfast.core.chain import (
    GENESIS,
    MOST_ITEMS,
    Chain,
    Draft,
    Head,
    Link,
    Seal,
    check_chain,
    check_checkpoints,
    closing_of,
    cut_event,
    drafts,
    entry_text,
    link,
    parse_entries,
)
from holdfast.core.errors import InvalidInputError, StorageError

ALIAS = bytes(range(16))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=6,
)
EVENTS = st.builds(
    Event,
    st.integers(0, 2**50),
    st.sampled_from([action for action in Action if action is not Action.AUDIT_CUT]),
    st.none() | st.text(st.characters(codec="utf-8")),
    st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3),
)


#: What happened to several records at once: the same moment, action and details for each of them.
SEVERAL = st.builds(
    lambda event, items: [event._replace(item=item) for item in items],
    EVENTS,
    st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=4),
)
#: Events as they come: alone, and several at once.
RUNS = st.lists(EVENTS.map(lambda event: [event]) | SEVERAL, min_size=1, max_size=6).map(
    lambda runs: [event for run in runs for event in run]
)


def chained(events: list[Event], floor: int = 0, floor_hash: bytes = GENESIS) -> tuple[list[Link], Chain]:
    """Events as an engine would keep them."""
    hashed, entries = floor_hash, []
    for seq, draft in enumerate(drafts(events), floor + 1):
        text = entry_text(ALIAS, 100 + seq, seq, draft, closing_of(draft.event, "python"))
        hashed = link(hashed, text)
        first, last = (None if item is None else item.encode() for item in draft.ends)
        entries.append(Link(100 + seq, seq, draft.event.at, first, last, text.encode(), hashed))
    return entries, Chain(floor + len(entries), hashed, floor, floor_hash)


def text_of(no: int, seq: int, event: Event) -> str:
    (draft,) = drafts([event])
    return entry_text(ALIAS, no, seq, draft, closing_of(event, "python"))


def test_the_text_of_an_entry_is_canonical() -> None:
    one = text_of(7, 2, Event(5, Action.RECYCLED, "m1", {"b": 1, "a": "é"}))

    assert one == (
        '{"chain":"000102030405060708090a0b0c0d0e0f","no":7,"seq":2,"at":5,"item":"m1","action":"recycled",'
        '"actor":"python","detail":{"a":"é","b":1}}'
    )
    assert one == text_of(7, 2, Event(5, Action.RECYCLED, "m1", {"a": "é", "b": 1}))


def test_a_hash_covers_the_text_and_the_hash_before_it() -> None:
    assert link(GENESIS, "é") == hashlib.sha256(bytes(32) + "é".encode()).digest()


@pytest.mark.parametrize(
    ("detail", "why"),
    [({"a": float("nan")}, "nan"), ({"a": object()}, "object"), ({"a": b"x"}, "bytes"), ({"a": "\ud800"}, "surrogate")],
)
def test_a_detail_that_is_not_json_is_refused(detail: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        text_of(1, 1, Event(0, Action.RECYCLED, None, detail))


@given(RUNS)
def test_entries_say_what_their_events_said_each_of_them_in_its_order(events: list[Event]) -> None:
    entries, _ = chained(events)
    said = [entry for one in entries for entry in parse_entries(one.text, one.hash)]

    assert [Event(entry.at, Action(entry.action), entry.item, entry.detail) for entry in said] == events
    assert {entry.actor for entry in said} == {"python"}
    assert {entry.chain for entry in said} == {ALIAS.hex()}
    assert [entry.hash for entry in said] == [one.hash.hex() for one in entries for _ in parse_entries(one.text, b"")]


def test_events_in_a_row_that_differ_only_in_their_item_are_one_entry() -> None:
    why = {"reason": "365 days after it was made"}
    events = [Event(5, Action.ARCHIVED, item, why) for item in ("m2", "m1", "m3")]

    (entry,), _ = chained(events)

    assert entry.text == (
        b'{"chain":"000102030405060708090a0b0c0d0e0f","no":101,"seq":1,"at":5,"item":["m2","m1","m3"],'
        b'"action":"archived","actor":"python","detail":{"reason":"365 days after it was made"}}'
    )
    assert (entry.item, entry.last_item) == (b"m1", b"m3"), "so that each of them can be looked up"


def test_events_that_differ_in_more_or_are_not_in_a_row_have_entries_of_their_own() -> None:
    why, other = {"a": 1}, {"a": 2}
    one = Event(5, Action.ARCHIVED, "m1", why)
    for second in (
        one._replace(at=6, item="m2"),
        one._replace(action=Action.RECYCLED, item="m2"),
        one._replace(detail=other, item="m2"),
        one._replace(item=None),
    ):
        assert list(drafts([one, second])) == [Draft(one, ["m1"]), Draft(second, [] if second.item is None else ["m2"])]
    between = [one, Event(5, Action.REFUSED, "m2", other), one._replace(item="m3")]
    assert [draft.items for draft in drafts(between)] == [["m1"], ["m2"], ["m3"]]
    assert [draft.items for draft in drafts([one._replace(item=None)] * 2)] == [[], []]


def test_an_entry_is_about_so_many_items_at_most() -> None:
    why = {"a": 1}
    events = [Event(5, Action.ARCHIVED, f"m{number}", why) for number in range(2 * MOST_ITEMS + 1)]

    assert [len(draft.items) for draft in drafts(events)] == [MOST_ITEMS, MOST_ITEMS, 1]


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b"3"])
def test_an_entry_that_cannot_be_read_says_what_to_do(text: bytes) -> None:
    with pytest.raises(StorageError, match="audit verify"):
        parse_entries(text, b"")


@given(RUNS, st.data())
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
    entries, chain = chained([Event(n, Action.RECYCLED, None, {}) for n in range(6)])

    (gap,) = check_chain(ALIAS, chain, None, entries[:2] + entries[4:])
    (end,) = check_chain(ALIAS, chain, None, entries[:4])
    (all_of_it,) = check_chain(ALIAS, chain, None, [])

    assert (gap.seq, gap.problem) == (3, "is missing, with all up to 4")
    assert end.seq == 5
    assert all_of_it.seq == 1


def test_one_changed_entry_does_not_make_all_that_follow_wrong() -> None:
    entries, chain = chained([Event(n, Action.RECYCLED, None, {"n": n}) for n in range(6)])
    entries[2] = entries[2]._replace(text=entries[2].text.replace(b'"n":2', b'"n":9'))

    (found,) = check_chain(ALIAS, chain, None, entries)

    assert (found.chain, found.seq) == (ALIAS.hex(), 3)


def test_a_chain_begins_where_it_says_that_it_was_cut_and_nowhere_else() -> None:
    events = [Event(n, Action.RECYCLED, None, {}) for n in range(5)]
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
    entries, chain = chained([Event(1, Action.AUDIT_CUT, None, detail)])

    assert [found.seq for found in check_chain(ALIAS, chain, None, entries)] == [1]


def test_columns_that_are_no_text_are_found_and_break_nothing() -> None:
    entries, chain = chained([Event(1, Action.RECYCLED, "m1", {})])

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
    text = text_of(1, 1, Event(0, Action.CHANGED, None, {"seq": 9, "chain": "x"}))

    assert list(json.loads(text)) == ["chain", "no", "seq", "at", "item", "action", "actor", "detail"]
