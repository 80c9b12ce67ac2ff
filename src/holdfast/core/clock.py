"""Trust in the time: what a store has seen, and how far a clock that is ahead of it is believed. Pure functions."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.core.rules import spoken
from holdfast.core.times import DAY, SECOND, iso

#: So far two clocks may differ before one of them is distrusted: time servers correct them by less.
SKEW: Final = 300 * SECOND
#: How long a time that is ahead has to go on before its first sighting is believed.
BORNE_OUT: Final = DAY
_MINUTE: Final = 60 * SECOND


class Seen(NamedTuple):
    """What a store knows of the time."""

    at: int
    """The latest time that it believes: of a committed write, a sweep or a job's slot."""
    sighted: int | None = None
    """The earliest time ahead of that which a process has come with, while it is not believed."""


class Belief(NamedTuple):
    """How far the time is believed that a process has on its clock."""

    now: int
    upto: int
    """What cannot be undone is done up to this time."""
    since: int | None = None
    """When the time that is not believed was first sighted, by its own clock; ``None`` if the time is believed."""

    def until(self, at: int) -> int:
        """Up to when a sweep for a moment does what cannot be undone. A forecast takes the time to be believed then."""
        return at if self.is_whole or at > self.now else min(at, self.upto)

    @property
    def is_whole(self) -> bool:
        """Whether the time is believed as it is."""
        return self.since is None

    def explain(self) -> str:
        """Why something waits, and what to do about it, in words."""
        ahead = self.now - self.upto
        distance = spoken(ahead // DAY * DAY if ahead >= DAY else ahead // _MINUTE * _MINUTE)
        return (
            f"the clock says {iso(self.now)}, which is {distance} later than the latest time that the store has seen "
            f"({iso(self.upto)}); what cannot be undone waits: check the clock, then confirm (holdfast sweep "
            "--confirm), or let it go on for a day"
        )


def sight(seen: Seen | None, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
    """What a store knows of the time after a process has come with the time ``now``.

    A time within the tolerance is believed, and one that is ``trusted`` always is; a sighting that was ahead of it is
    forgotten then. One that is further ahead, or ``doubted``, is noted. A later one that is at least a day after it
    bears it out: the earlier one is believed then. A new store believes the first time that it sees.
    """
    if seen is None:
        return Seen(now)
    if now < seen.at:
        return seen
    if trusted or (not doubted and now <= seen.at + tolerance):
        return Seen(now)
    if seen.sighted is None or now < seen.sighted:
        return Seen(seen.at, now)
    if now < seen.sighted + BORNE_OUT:
        return seen
    return Seen(now) if now <= seen.sighted + tolerance else Seen(seen.sighted, now)


def believe(seen: Seen, now: int) -> Belief:
    """How far the time ``now`` is believed by a store that has just been told of it."""
    if now <= seen.at:
        return Belief(now, now)
    return Belief(now, seen.at, now if seen.sighted is None else seen.sighted)
