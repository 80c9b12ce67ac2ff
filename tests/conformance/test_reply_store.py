"""What every ``ReplyStore`` does."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.engines import Engine
from conformance.samples import NOW
from retain.ports import StoredReply

REQUEST, OTHER = b"r" * 32, b"o" * 32
MINE, THEIRS = b"m" * 16, b"t" * 16
LIMIT, KEPT = 60, 1_000
_ROWS = itertools.count()


@pytest.fixture
def row() -> bytes:
    return next(_ROWS).to_bytes(32, "big")


def claim(engine: Engine, row: bytes, whose: bytes, *, now: int = NOW, request: bytes = REQUEST) -> StoredReply:
    return engine.replies.claim(row, request, whose, now=now, stale=now - LIMIT, old=now - KEPT)


def test_a_request_is_claimed_once(engine: Engine, elsewhere: Engine, row: bytes) -> None:
    first = claim(engine, row, MINE)

    assert first == StoredReply(REQUEST, NOW, MINE, None)
    assert claim(elsewhere, row, THEIRS, now=NOW + LIMIT - 1) == first
    assert claim(elsewhere, row, THEIRS, request=OTHER) == first


def test_a_reply_is_kept_by_whose_claim_it_is(engine: Engine, elsewhere: Engine, row: bytes) -> None:
    claim(engine, row, MINE)

    assert not elsewhere.replies.keep(row, THEIRS, b"wrong")
    assert elsewhere.replies.keep(row, MINE, b"\x00right")
    assert not engine.replies.keep(row, MINE, b"again")
    assert claim(engine, row, THEIRS, now=NOW + KEPT - 1) == StoredReply(REQUEST, NOW, MINE, b"\x00right")


def test_a_claim_that_was_given_back_is_free(engine: Engine, row: bytes) -> None:
    claim(engine, row, MINE)
    assert not engine.replies.release(row, THEIRS)
    assert engine.replies.release(row, MINE)
    assert not engine.replies.release(row, MINE)

    assert claim(engine, row, THEIRS, request=OTHER).claim == THEIRS
    assert engine.replies.keep(row, THEIRS, b"done")
    assert not engine.replies.release(row, THEIRS), "a reply stays"


def test_a_request_that_was_cut_short_is_claimed_anew_after_its_time(engine: Engine, row: bytes) -> None:
    claim(engine, row, MINE)
    later = NOW + LIMIT

    assert claim(engine, row, THEIRS, now=later, request=OTHER).claim == MINE, "another request does not take its place"
    assert claim(engine, row, THEIRS, now=later) == StoredReply(REQUEST, later, THEIRS, None)
    assert not engine.replies.keep(row, MINE, b"late"), "the first one finds out"
    assert engine.replies.keep(row, THEIRS, b"done")


def test_what_is_old_is_as_if_it_was_not_there(engine: Engine, row: bytes) -> None:
    claim(engine, row, MINE)
    engine.replies.keep(row, MINE, b"old")
    later = NOW + KEPT

    assert claim(engine, row, THEIRS, now=later, request=OTHER) == StoredReply(OTHER, later, THEIRS, None)


def test_what_is_old_is_removed_some_at_a_time_and_the_oldest_first(engine: Engine) -> None:
    long_ago = NOW - 10**12
    rows = [next(_ROWS).to_bytes(32, "big") for _ in range(5)]
    for age, row in enumerate(rows):
        claim(engine, row, MINE, now=long_ago + age)

    assert engine.replies.forget(long_ago + 3, limit=3) == 3
    assert claim(engine, rows[3], THEIRS, now=long_ago + 3).claim == MINE
    assert engine.replies.forget(long_ago + 3, limit=3) == 1
    assert engine.replies.forget(long_ago + 3, limit=3) == 0
    assert claim(engine, rows[4], THEIRS, now=long_ago + 4).claim == MINE
    assert engine.replies.forget(long_ago + 4, limit=10) == 1


def test_of_many_who_claim_at_once_one_has_it(engine: Engine, elsewhere: Engine, row: bytes) -> None:
    whose = [bytes([number]) * 16 for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        stores = itertools.cycle((engine, elsewhere))
        found = list(pool.map(lambda pair: claim(pair[0], row, pair[1]), zip(stores, whose, strict=False)))

    assert len(set(found)) == 1
    assert found[0].claim in whose
