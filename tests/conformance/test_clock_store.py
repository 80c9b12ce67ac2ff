"""The contract of the ``ClockStore``: what a store has seen of the time."""

from __future__ import annotations

from conformance.engines import Engine
from conformance.samples import NOW, Person
from holdfast.core.audit import Action, Event
from holdfast.core.clock import Seen
from holdfast.core.values import DAY, SECOND

TOLERANCE = 3 * DAY


def reset(engine: Engine, me: Person, at: int) -> None:
    engine.clock_store.accept(at, me.tenant, Event(NOW, Action.CLOCK_ACCEPTED, None, {"jobs": []}))


def test_the_latest_time_that_was_seen_is_kept(engine: Engine, elsewhere: Engine, me: Person) -> None:
    reset(engine, me, NOW)
    engine.clock_store.sight(NOW + 5, TOLERANCE)
    assert engine.clock_store.sight(NOW + 3, TOLERANCE) == Seen(NOW + 5)
    assert elsewhere.clock_store.seen() == Seen(NOW + 5)


def test_an_earlier_time_can_be_accepted_and_that_is_audited(engine: Engine, elsewhere: Engine, me: Person) -> None:
    reset(engine, me, NOW + 5)
    reset(engine, me, NOW - 5)
    assert elsewhere.clock_store.seen() == Seen(NOW - 5)
    assert [entry.action for entry in elsewhere.audit.tail(me.tenant, limit=1)] == ["clock.accepted"]


def test_a_time_that_is_too_far_ahead_is_noted_and_borne_out_by_one_a_day_later(
    engine: Engine, elsewhere: Engine, me: Person
) -> None:
    reset(engine, me, NOW)
    far = NOW + 20 * DAY
    assert engine.clock_store.sight(far, TOLERANCE) == Seen(NOW, far)
    assert elsewhere.clock_store.seen() == Seen(NOW, far)
    assert elsewhere.clock_store.sight(far + DAY - SECOND, TOLERANCE) == Seen(NOW, far)
    assert elsewhere.clock_store.sight(far + DAY, TOLERANCE) == Seen(far + DAY)
    assert engine.clock_store.seen() == Seen(far + DAY)


def test_a_sighting_is_forgotten_when_the_time_is_right_again_or_confirmed(engine: Engine, me: Person) -> None:
    reset(engine, me, NOW)
    engine.clock_store.sight(NOW + 20 * DAY, TOLERANCE)
    assert engine.clock_store.sight(NOW + SECOND, TOLERANCE) == Seen(NOW + SECOND)
    engine.clock_store.sight(NOW + 20 * DAY, TOLERANCE)
    reset(engine, me, NOW + 20 * DAY)
    assert engine.clock_store.seen() == Seen(NOW + 20 * DAY)
