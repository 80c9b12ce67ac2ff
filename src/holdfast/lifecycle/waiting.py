"""What waits until the time is believed: all that is due by the clock, and could not be undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from holdfast.core.clock import Belief
from holdfast.core.decisions import BIN_REASON, reason_for, split_window, windows
from holdfast.core.types import State
from holdfast.lifecycle.plan import ACTIONS, Line, Waiting, added_up
from holdfast.lifecycle.survey import EVERYTHING, Extent
from holdfast.ports import Census, DueStore, RegistryStore

_DELETE: Final = ACTIONS[State.DELETED]


def find_waiting(
    dues: DueStore, registry: RegistryStore, tenant: str, *, at: int, belief: Belief, extent: Extent = EVERYTHING
) -> Waiting | None:
    """What of a sweep for a moment waits; ``None`` if nothing does. Nothing is read while the time is believed."""
    upto = belief.until(at)
    if upto >= at:
        return None
    lines = list(_archives(dues, tenant, at, upto, extent))
    if extent.bin:
        lines += _deletions(dues, tenant, at, upto)
        later = {(entry.sort, entry.id) for entry in registry.due(tenant, now=at)}
        later -= {(entry.sort, entry.id) for entry in registry.due(tenant, now=upto)}
        lines += [Line(sort, _DELETE, BIN_REASON, 1, 0) for sort, _ in later]
    return Waiting(belief, added_up(lines)) if lines else None


def _archives(dues: DueStore, tenant: str, at: int, upto: int, extent: Extent) -> Iterator[Line]:
    """Archiving in place, which clears what an episode was made of."""
    if State.ARCHIVED not in extent.targets:
        return
    for profile in dues.profiles(tenant):
        if not extent.takes(profile.kind, profile.life):
            continue
        for window in windows(profile.life, State.ACTIVE, at):
            _, later = split_window(profile.kind, profile.life, window, upto)
            if later is not None:
                reason = reason_for(profile.kind, profile.life, later.target)
                for census in dues.census(profile, State.ACTIVE, later):
                    if extent.is_about(census.subject):
                        yield Line(census.kind, ACTIONS[later.target], reason, census.records, census.bytes)


def _deletions(dues: DueStore, tenant: str, at: int, upto: int) -> Iterator[Line]:
    """What has had its time in the recycle bin by the clock, and has not up to the time that is believed."""
    now = chain(dues.bin_census(tenant, at), dues.message_census(tenant, at))
    believed = chain(dues.bin_census(tenant, upto), dues.message_census(tenant, upto))
    totals = _by_kind(now)
    done = _by_kind(believed)
    for kind, (records, size) in totals.items():
        records_done, size_done = done.get(kind, (0, 0))
        if records > records_done:
            yield Line(kind, _DELETE, BIN_REASON, records - records_done, size - size_done)


def _by_kind(found: Iterable[Census]) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for census in found:
        records, size = totals.get(census.kind, (0, 0))
        totals[census.kind] = (records + census.records, size + census.bytes)
    return totals
