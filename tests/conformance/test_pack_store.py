"""What every ``PackStore`` does: it always knows which records lie in which object, and what is to become of it."""

from __future__ import annotations

import pytest

from conformance.engines import Engine
from conformance.samples import MODEL, NOW, Person, entry, move, new_id, there
from holdfast.core.errors import LeaseLostError, NotFoundError
from holdfast.core.records import TYPES, Encoding, Keeping, MemoryType, Outcome, Record, State
from holdfast.core.values import SECOND
from holdfast.ports.coordination import Lease
from holdfast.ports.objects import NewPack, Pack, PackStore, Swap

LONG_TERM = TYPES[MemoryType.LONG_TERM]
DIGEST = bytes(range(32))


@pytest.fixture
def packs(engine: Engine) -> PackStore:
    return engine.packs


def opened(engine: Engine, who: Person, records: int, *, size: int = 1_000) -> int:
    return note(engine.packs, who, f"archive/{new_id()}", records, size)


def note(packs: PackStore, who: Person, name: str, records: int, size: int) -> int:
    (number,) = packs.open([NewPack(who.subject, None, name, records, size, DIGEST)], now=NOW)
    assert number is not None
    return number


def settle(engine: Engine, who: Person, number: int) -> str | None:
    (state,) = engine.packs.settle([(who.subject, number)])
    return state


def leaving(engine: Engine, who: Person, number: int) -> list[Pack]:
    return engine.packs.leaving([(who.subject, number)])


def forget(engine: Engine, who: Person, number: int) -> None:
    engine.packs.forget([(who.subject, number)])


def swap(engine: Engine, who: Person, old: int, new: int, *, members: int, lease: Lease | None = None) -> bool:
    (done,) = engine.packs.swap([Swap(who.subject, old, new, members)], lease=lease)
    return done


def small(engine: Engine, who: Person, *, below: int) -> int | None:
    """The number of the smallest pack that is kept and has fewer bytes than that."""
    (plan,) = engine.packs.plans([(who.subject, None)], below=below)
    return None if plan is None or plan.pack is None else plan.pack.number


def fill(engine: Engine, who: Person, number: int, count: int) -> list[Record]:
    """New records that lie in a pack."""
    entries = [entry(who, f"memory {n}") for n in range(count)]
    engine.records.insert(who.subject, LONG_TERM, entries, prune=False, now=NOW)
    kept = Keeping("m", None, {}, Encoding(MODEL, b"\x00\x3c\x00\x00", b"m"), number)
    steps = [move(item.record, State.ARCHIVED, keeping=kept) for item in entries]
    assert engine.records.transition(who.subject, steps, now=NOW) == [Outcome.DONE] * count
    return [there(engine.records, who, item.record.id) for item in entries]


def packed(engine: Engine, who: Person, count: int, *, size: int = 1_000) -> tuple[int, list[Record]]:
    """A pack that is kept, and the records in it."""
    number = opened(engine, who, count, size=size)
    records = fill(engine, who, number, count)
    assert settle(engine, who, number) == "kept"
    return number, records


def step_on(engine: Engine, who: Person, record: Record, *targets: State) -> Record:
    for target in targets:
        step = move(there(engine.records, who, record.id), target)
        assert engine.records.transition(who.subject, [step], now=NOW) == [Outcome.DONE]
    return there(engine.records, who, record.id)


def bring_back(engine: Engine, who: Person, record: Record) -> None:
    whole = Keeping("whole again", None, {}, Encoding(MODEL, b"\x00\x3c\x00\x00", b"whole"), None)
    step = move(there(engine.records, who, record.id), State.ACTIVE, keeping=whole)
    assert engine.records.transition(who.subject, [step], now=NOW) == [Outcome.DONE]


def state_of(engine: Engine, who: Person, number: int) -> str | None:
    found = engine.packs.get(who.subject, number)
    return None if found is None else found.state


# --- opening ------------------------------------------------------------------------------------------------------


def test_a_pack_comes_back_as_it_was_noted(packs: PackStore, elsewhere: Engine, me: Person) -> None:
    name = f"archive/{new_id()}"
    number = note(packs, me, name, 3, 500)

    expected = Pack(number, me.subject, name, "writing", 3, DIGEST)
    assert elsewhere.packs.get(me.subject, number) == expected
    assert elsewhere.packs.unsettled(me.tenant) == [expected]
    assert packs.members(me.subject, number) == []
    assert packs.leaving([(me.subject, number)]) == []


def test_packs_have_numbers_of_their_own(engine: Engine, me: Person) -> None:
    first = opened(engine, me, 1)
    settle(engine, me, first)
    forget(engine, me, first)
    assert opened(engine, me, 1) != first, "a number is never given twice"
    assert engine.packs.get(me.subject, first) is None
    assert engine.packs.get(me.subject, 2**40) is None


def test_a_pseudonym_is_the_subjects_own_and_stays(engine: Engine, elsewhere: Engine, me: Person) -> None:
    packs, other = engine.packs, me.other("other")
    with pytest.raises(NotFoundError):
        packs.alias(me.subject)
    opened(engine, me, 1)
    opened(engine, other, 1)

    mine = packs.alias(me.subject)
    assert elsewhere.packs.alias(me.subject) == mine
    assert packs.alias(other.subject) != mine
    assert me.user_id not in mine
    assert len(bytes.fromhex(mine)) == 16


# --- what becomes of it -------------------------------------------------------------------------------------------


def test_a_pack_that_nothing_moved_into_is_given_up(engine: Engine, me: Person) -> None:
    number = opened(engine, me, 2)

    assert settle(engine, me, number) == "leaving"

    assert engine.packs.get(me.subject, number) is None
    (pack,) = leaving(engine, me, number)
    assert (pack.number, pack.state) == (number, "leaving")
    assert engine.packs.unsettled(me.tenant) == [pack]
    assert settle(engine, me, number) is None
    forget(engine, me, number)
    assert leaving(engine, me, number) == engine.packs.unsettled(me.tenant) == []


def test_a_pack_that_all_moved_into_is_kept_and_there_is_nothing_to_do(engine: Engine, me: Person) -> None:
    number, records = packed(engine, me, 3)

    assert engine.packs.members(me.subject, number) == [record.id for record in records]
    assert engine.packs.unsettled(me.tenant) == []
    assert settle(engine, me, number) == "kept"
    assert leaving(engine, me, number) == []


def test_a_pack_that_only_some_moved_into_is_stale(engine: Engine, me: Person) -> None:
    number = opened(engine, me, 3)
    fill(engine, me, number, 2)

    assert settle(engine, me, number) == "stale"

    assert [pack.number for pack in engine.packs.unsettled(me.tenant)] == [number]
    assert state_of(engine, me, number) == "stale"


def test_only_what_is_leaving_is_forgotten(engine: Engine, me: Person) -> None:
    number, _ = packed(engine, me, 1)
    forget(engine, me, number)
    assert state_of(engine, me, number) == "kept"


@pytest.mark.parametrize("leave", ["brought back", "deleted"])
def test_a_record_that_left_makes_its_pack_stale_and_the_last_one_lets_it_go(
    engine: Engine, me: Person, leave: str
) -> None:
    number, (one, two) = packed(engine, me, 2)

    def go(record: Record) -> None:
        if leave == "brought back":
            bring_back(engine, me, record)
        else:
            step_on(engine, me, record, State.RECYCLED, State.DELETING)

    go(one)
    assert state_of(engine, me, number) == "stale", "at once, so that a crash leaves a note"
    assert engine.packs.members(me.subject, number) == [two.id]
    assert settle(engine, me, number) == "stale"
    go(two)
    assert engine.packs.members(me.subject, number) == []

    assert settle(engine, me, number) == "leaving"
    assert [there(engine.records, me, record.id).pack for record in (one, two)] == [None, None]


def test_a_record_in_the_bin_still_lies_in_its_pack(engine: Engine, me: Person) -> None:
    number, (record,) = packed(engine, me, 1)
    step_on(engine, me, record, State.RECYCLED)

    assert engine.packs.members(me.subject, number) == [record.id]
    assert settle(engine, me, number) == "kept"
    step_on(engine, me, record, State.ARCHIVED)
    assert there(engine.records, me, record.id).pack == number


# --- one for another ------------------------------------------------------------------------------------------------


def test_members_move_together_and_the_old_pack_leaves(engine: Engine, me: Person) -> None:
    old, (gone, one, two) = packed(engine, me, 3)
    step_on(engine, me, gone, State.RECYCLED, State.DELETING)
    settle(engine, me, old)
    new = opened(engine, me, 2)

    assert swap(engine, me, old, new, members=2) is True

    assert engine.packs.members(me.subject, new) == [one.id, two.id]
    assert settle(engine, me, new) == "kept"
    assert engine.packs.get(me.subject, old) is None
    assert [pack.number for pack in leaving(engine, me, old)] == [old]
    assert there(engine.records, me, gone.id).pack is None, "what is being deleted lies in none"
    deleted = move(there(engine.records, me, gone.id), State.DELETED)
    assert engine.records.transition(me.subject, [deleted], now=NOW) == [Outcome.DONE]


def test_members_stay_where_they_are_if_one_of_them_left_meanwhile(engine: Engine, me: Person) -> None:
    old, (one, two) = packed(engine, me, 2)
    new = opened(engine, me, 2)
    bring_back(engine, me, one)

    assert swap(engine, me, old, new, members=2) is False

    assert (engine.packs.members(me.subject, old), engine.packs.members(me.subject, new)) == ([two.id], [])
    assert state_of(engine, me, old) == "stale"
    assert settle(engine, me, new) == "leaving"


def test_members_stay_where_they_are_if_the_new_pack_was_given_up(engine: Engine, me: Person) -> None:
    old, (one,) = packed(engine, me, 1)
    new = opened(engine, me, 1)
    settle(engine, me, new)

    assert swap(engine, me, old, new, members=1) is False

    assert engine.packs.members(me.subject, old) == [one.id]
    assert state_of(engine, me, old) == "kept"


def test_a_lease_that_changed_hands_swaps_nothing(engine: Engine, me: Person) -> None:
    old, (one,) = packed(engine, me, 1)
    new = opened(engine, me, 1)
    lost = engine.leases.acquire(f"sweep {me.tenant}", "host:1:a", now=NOW, ttl=SECOND)
    current = engine.leases.acquire(f"sweep {me.tenant}", "host:2:b", now=NOW + SECOND, ttl=SECOND)
    assert lost is not None

    with pytest.raises(LeaseLostError):
        swap(engine, me, old, new, members=1, lease=lost)
    assert engine.packs.members(me.subject, old) == [one.id]

    assert swap(engine, me, old, new, members=1, lease=current) is True


# --- of several subjects at once -----------------------------------------------------------------------------------


def test_packs_of_several_subjects_are_noted_swapped_settled_and_forgotten_together(engine: Engine, me: Person) -> None:
    people = [me.other(f"person {n}") for n in range(3)]
    old = {who.user_id: packed(engine, who, 1)[0] for who in people}
    gone = me.other("gone")
    opened(engine, gone, 1)
    aliases = {who.user_id: engine.packs.alias(who.subject) for who in (*people, gone)}
    wanted = [NewPack(who.subject, aliases[who.user_id], new_id(), 1, 9, DIGEST) for who in reversed(people)]
    other = [NewPack(gone.subject, "0" * 32, new_id(), 1, 9, DIGEST), NewPack(me.subject, "0" * 32, "x", 1, 9, DIGEST)]

    numbers = engine.packs.open([*wanted, *other], now=NOW)

    assert numbers[3:] == [None, None], "one who goes by another pseudonym, and one whom nobody knows"
    new = [number for number in numbers if number is not None]
    assert len(set(new)) == 3
    swaps = [
        Swap(who.subject, old[who.user_id], number, members)
        for who, number, members in zip(reversed(people), new, (1, 2, 1), strict=True)
    ]
    assert engine.packs.swap(swaps) == [True, False, True], "one of them had another number of members"
    keys = [(one.subject, number) for one in swaps for number in (one.old, one.new)]
    assert engine.packs.settle(keys) == [None, "kept", "kept", "leaving", None, "kept"]
    leaving = engine.packs.leaving(keys)
    assert [pack.number for pack in leaving] == [swaps[0].old, swaps[1].new, swaps[2].old]
    engine.packs.forget([(pack.subject, pack.number) for pack in leaving])
    assert engine.packs.leaving(keys) == []
    plans = engine.packs.plans([*((one.subject, one.new) for one in swaps), (me.subject, None)])
    assert [None if plan is None else (plan.pack is not None, len(plan.members)) for plan in plans] == [
        (True, 1),
        (False, 0),
        (True, 1),
        None,
    ]


# --- small ones, and counts -----------------------------------------------------------------------------------------


def test_the_smallest_pack_that_is_kept_is_found(engine: Engine, me: Person) -> None:
    assert small(engine, me, below=10_000) is None
    opened(engine, me, 1, size=10)  # still being written
    large, _ = packed(engine, me, 1, size=900)
    smallest, (record,) = packed(engine, me, 1, size=300)
    packed(engine, me.other("other"), 1, size=20)

    assert small(engine, me, below=301) == smallest
    assert small(engine, me, below=300) is None

    bring_back(engine, me, record)
    assert small(engine, me, below=901) == large, "one that is stale is not joined"


def test_a_tenant_is_told_of_its_own_packs_only(engine: Engine, me: Person) -> None:
    mine = opened(engine, me, 1)
    theirs = opened(engine, me.other("other"), 1)
    for suffix in ("0", ".", "x"):
        opened(engine, Person(me.tenant + suffix, me.user_id), 1)

    assert [pack.number for pack in engine.packs.unsettled(me.tenant)] == [mine, theirs]


def test_the_oldest_pack_of_each_of_some_subjects_is_found(engine: Engine, me: Person) -> None:
    you = me.other("you")
    opened(engine, me, 1)  # still being written
    first, (record,) = packed(engine, me, 1)
    yours, _ = packed(engine, you, 1)
    second, _ = packed(engine, me, 1)
    packed(engine, you, 1)

    def oldest() -> list[int]:
        return [pack.number for pack in engine.packs.oldest(1_000_000) if pack.subject in {me.subject, you.subject}]

    assert oldest() == [first, yours]
    bring_back(engine, me, record)
    assert oldest() == [first, yours], "a stale one can be read as well"
    assert settle(engine, me, first) == "leaving"
    assert oldest() == [yours, second]
    assert len(engine.packs.oldest(1)) == 1
