"""What every ``ReplyStore`` does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from conformance.engines import Engine
from conformance.samples import NOW
from holdfast.core.records import TYPES, MemoryType, Scope, Subject
from holdfast.core.values import is_id
from holdfast.ports.coordination import REQUEST, Claim, ClaimedError, OnceRequest, StoredReply

REQUEST_MARK, OTHER = b"r" * 32, b"o" * 32
MINE, THEIRS = b"m" * 16, b"t" * 16
KEPT = 1_000
_ROWS = itertools.count()
EPISODIC = TYPES[MemoryType.EPISODIC]


@pytest.fixture
def row() -> bytes:
    return next(_ROWS).to_bytes(32, "big")


def claim(row: bytes, whose: bytes, *, now: int = NOW, request: bytes = REQUEST_MARK) -> Claim:
    return Claim(row, request, whose, b"seed" + row, now, now - KEPT)


def begin(engine: Engine, wanted: Claim, *, joins: bool = True) -> OnceRequest:
    return engine.replies.begin(wanted, lambda _claim: None, joins=joins)


def begin_steps(engine: Engine, wanted: Claim) -> OnceRequest:
    request = begin(engine, wanted)
    request.begin_steps()
    return request


@contextmanager
def at_work(request: OnceRequest) -> Iterator[OnceRequest]:
    """What is written in the block belongs to a request."""
    here = REQUEST.set(request)
    try:
        yield request
    finally:
        REQUEST.reset(here)
        request.abandon()


def quota(engine: Engine, tenant: str) -> int | None:
    return engine.records.usage(Subject(tenant, "someone"), EPISODIC).max_memories


def set_quota(engine: Engine, tenant: str, most: int) -> None:
    engine.records.set_quota(tenant, None, EPISODIC, {"max_memories": most})


@pytest.fixture
def tenant(row: bytes) -> str:
    return f"t{row.hex()[-8:]}"


# --- one transaction --------------------------------------------------------------------------------------------------


def test_what_a_request_writes_is_there_with_its_reply_and_not_before(
    engine: Engine, elsewhere: Engine, row: bytes, tenant: str
) -> None:
    before = quota(engine, tenant)
    with at_work(begin(engine, claim(row, MINE))) as request:
        set_quota(engine, tenant, 7)
        engine.history.touch(Scope(tenant, "ann", "guide"), now=NOW)
        assert quota(engine, tenant) == 7, "it sees itself what it has written"
        assert quota(elsewhere, tenant) == before
        assert elsewhere.replies.find(row, old=0) is None
        request.keep(b"\x00done")
    assert quota(elsewhere, tenant) == 7
    assert len(elsewhere.history.sessions(Subject(tenant, "ann"), now=NOW)) == 1
    assert elsewhere.replies.find(row, old=0) == StoredReply(REQUEST_MARK, NOW, MINE, b"\x00done", False)


def test_what_a_request_wrote_is_gone_if_it_breaks_off(
    engine: Engine, elsewhere: Engine, row: bytes, tenant: str
) -> None:
    before = quota(engine, tenant)
    with at_work(begin(engine, claim(row, MINE))):
        set_quota(engine, tenant, 7)
    assert quota(elsewhere, tenant) == before
    assert elsewhere.replies.find(row, old=0) is None
    with at_work(begin(elsewhere, claim(row, THEIRS, request=OTHER))) as again:
        again.keep(b"another may have the key")


def test_a_write_that_raises_undoes_itself_alone(engine: Engine, row: bytes, tenant: str) -> None:
    with at_work(begin(engine, claim(row, MINE))) as request:
        for most in (5, 6):
            with pytest.raises(ZeroDivisionError):
                write_and_fail(engine, tenant)
            assert quota(engine, tenant) != 999
            set_quota(engine, tenant, most)
        request.keep(b"done")
    assert quota(engine, tenant) == 6


def write_and_fail(engine: Engine, tenant: str) -> None:
    with engine.records._database.govern(tenant) as tx:  # type: ignore[attr-defined]
        tx.run("records.put_quota", (tenant, "", EPISODIC.code, 999, None))
        raise ZeroDivisionError


def test_a_refusal_that_is_on_the_record_stays_there_and_the_key_is_free(
    engine: Engine, elsewhere: Engine, row: bytes, tenant: str
) -> None:
    with at_work(begin(engine, claim(row, MINE))) as request:
        set_quota(engine, tenant, 7)
        request.release()
    assert quota(elsewhere, tenant) == 7
    assert elsewhere.replies.find(row, old=0) is None


def test_of_many_who_do_the_same_at_once_one_does_it_and_the_others_find_its_reply(
    engine: Engine, elsewhere: Engine, row: bytes, tenant: str
) -> None:
    who = Scope(tenant, "ann", "guide")

    def send(pair: tuple[Engine, bytes]) -> bytes | None:
        store, whose = pair
        with at_work(begin(store, claim(row, whose))) as request:
            try:
                store.registry.put(tenant, "tool", whose.hex(), description="", metadata={}, now=NOW)
                request.keep(whose)
            except ClaimedError as before:
                return before.found.body
        return whose

    senders = [bytes([number]) * 16 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(send, zip(itertools.cycle((engine, elsewhere)), senders, strict=False)))
    assert len(told) == 1
    assert [tool.id for tool in engine.registry.list(who.tenant, "tool")] == [(told.pop() or b"").hex()]


def test_no_lease_can_be_had_inside_of_a_request(engine: Engine, row: bytes) -> None:
    with at_work(begin(engine, claim(row, MINE))):
        assert engine.leases.acquire(f"lease {row.hex()}", "me", now=NOW, ttl=10) is None


# --- several transactions ---------------------------------------------------------------------------------------------


def test_a_request_in_steps_is_claimed_once(engine: Engine, elsewhere: Engine, row: bytes) -> None:
    begin_steps(engine, claim(row, MINE))
    first = StoredReply(REQUEST_MARK, NOW, MINE, None, True)

    assert elsewhere.replies.find(row, old=0) == first
    for wanted in (claim(row, THEIRS, now=NOW + KEPT - 1), claim(row, THEIRS, request=OTHER)):
        with pytest.raises(ClaimedError) as refused:
            begin_steps(elsewhere, wanted)
        assert refused.value.found == first


def test_the_steps_of_a_request_are_there_at_once_and_the_rest_with_its_reply(
    engine: Engine, elsewhere: Engine, row: bytes, tenant: str
) -> None:
    with at_work(begin_steps(engine, claim(row, MINE))) as request:
        set_quota(engine, tenant, 5)
        assert quota(elsewhere, tenant) == 5
        request.join_rest()
        set_quota(engine, tenant, 6)
        assert quota(elsewhere, tenant) == 5
        request.keep(b"done")
    assert quota(elsewhere, tenant) == 6


def test_long_work_is_in_steps_to_its_end(engine: Engine, elsewhere: Engine, row: bytes, tenant: str) -> None:
    with at_work(begin(engine, claim(row, MINE), joins=False)) as request:
        request.begin_steps()
        request.join_rest()
        set_quota(engine, tenant, 5)
        assert quota(elsewhere, tenant) == 5
        request.keep(b"done")
    assert elsewhere.replies.find(row, old=0) is not None


def test_whoever_has_written_cannot_begin_steps(engine: Engine, row: bytes, tenant: str) -> None:
    with at_work(begin(engine, claim(row, MINE))) as request:
        set_quota(engine, tenant, 5)
        with pytest.raises(RuntimeError, match="has written before"):
            request.begin_steps()


def run_out(engine: Engine, row: bytes, *, by: int) -> None:
    """Let the lease of a claim end some microseconds from now; it may be in the past."""
    with engine.records._database.write() as tx:  # type: ignore[attr-defined]
        tx.run("access.renew", (row, MINE, by))


@pytest.mark.parametrize("by", [-1, 3_600_000_000], ids=["run out", "longer than leases are"])
def test_a_request_that_was_cut_short_is_gone_on_with(engine: Engine, elsewhere: Engine, row: bytes, by: int) -> None:
    first = begin_steps(engine, claim(row, MINE))
    ids = first.new_ids(3)
    run_out(engine, row, by=by)
    found = engine.replies.find(row, old=0)
    assert found is not None
    assert not found.is_leased

    with pytest.raises(ClaimedError):
        begin_steps(elsewhere, claim(row, THEIRS, now=NOW + 9, request=OTHER))
    second = begin_steps(elsewhere, claim(row, THEIRS, now=NOW + 9))
    assert (second.began_at, second.new_ids(3)) == (NOW, ids), "the ids are those of the first time"
    with pytest.raises(ClaimedError):
        first.keep(b"late")
    first.abandon()
    second.keep(b"done")
    found = engine.replies.find(row, old=0)
    assert found is not None
    assert (found.claim, found.body) == (THEIRS, b"done")


def test_whoever_was_taken_over_writes_nothing_more(engine: Engine, elsewhere: Engine, row: bytes, tenant: str) -> None:
    before = quota(engine, tenant)
    with at_work(begin_steps(engine, claim(row, MINE))) as first:
        run_out(engine, row, by=-1)
        second = begin_steps(elsewhere, claim(row, THEIRS))
        first.join_rest()
        set_quota(engine, tenant, 5)
        with pytest.raises(ClaimedError):
            first.keep(b"late")
    assert quota(engine, tenant) == before
    second.keep(b"done")


def test_a_lease_is_renewed_by_whose_claim_it_is(engine: Engine, elsewhere: Engine, row: bytes) -> None:
    mine = claim(row, MINE)
    begin_steps(engine, mine)
    run_out(engine, row, by=-1)
    elsewhere.replies.renew([claim(row, THEIRS)])
    found = engine.replies.find(row, old=0)
    assert found is not None
    assert not found.is_leased
    engine.replies.renew([mine])
    with pytest.raises(ClaimedError):
        begin_steps(elsewhere, claim(row, THEIRS))


def test_a_claim_that_was_given_back_is_free(engine: Engine, row: bytes) -> None:
    begin_steps(engine, claim(row, MINE)).release()
    begin_steps(engine, claim(row, THEIRS, request=OTHER)).keep(b"done")
    found = engine.replies.find(row, old=0)
    assert found is not None
    assert (found.fingerprint, found.body) == (OTHER, b"done")


def test_ids_follow_from_the_request_and_sort_by_when_it_was_begun(engine: Engine, row: bytes) -> None:
    ids = begin_steps(engine, claim(row, MINE)).new_ids(50)
    others = begin_steps(engine, claim(b"o" + row[1:], MINE)).new_ids(50)
    assert all(map(is_id, ids))
    assert sorted(set(ids)) == ids
    assert not set(ids) & set(others)


# --- what is old ------------------------------------------------------------------------------------------------------


def test_what_is_old_is_as_if_it_was_not_there(engine: Engine, row: bytes) -> None:
    begin_steps(engine, claim(row, MINE)).keep(b"old")
    later = NOW + KEPT
    assert engine.replies.find(row, old=later - KEPT) is None
    with at_work(begin(engine, claim(row, THEIRS, now=later, request=OTHER))) as request:
        request.keep(b"new")
    assert engine.replies.find(row, old=0) == StoredReply(OTHER, later, THEIRS, b"new", False)


def test_what_is_old_is_removed_some_at_a_time_and_the_oldest_first(engine: Engine) -> None:
    long_ago = NOW - 10**12
    rows = [next(_ROWS).to_bytes(32, "big") for _ in range(5)]
    for age, row in enumerate(rows):
        begin_steps(engine, claim(row, MINE, now=long_ago + age)).keep(b"done")

    assert engine.replies.forget(long_ago + 3, limit=3) == 3
    assert engine.replies.find(rows[3], old=0) is not None
    assert engine.replies.forget(long_ago + 3, limit=3) == 1
    assert engine.replies.forget(long_ago + 3, limit=3) == 0
    assert engine.replies.find(rows[4], old=0) is not None
    assert engine.replies.forget(long_ago + 4, limit=10) == 1
