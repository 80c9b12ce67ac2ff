"""The allowance of a sweep: how many records it may let go by the memory domain's policy."""

from __future__ import annotations

from holdfast.core.decisions import Decision
from holdfast.core.types import State
from holdfast.lifecycle.survey import DueClass


class Allowance:
    """How many of the records that are due to be collected may go in one sweep."""

    def __init__(self, most: int, due: int) -> None:
        self.left = most
        self.is_short = due > most

    def less(self, gone: int) -> Allowance:
        """The same, after some have gone already."""
        self.left = max(0, self.left - gone)
        return self

    def take(self, decisions: list[Decision]) -> list[Decision]:
        """The first of them, as far as it goes."""
        taken = decisions[: self.left]
        self.left -= len(taken)
        return taken


def is_collected(one: DueClass) -> bool:
    """Whether a class is of records that the memory domain's policy removes."""
    chosen = [rule.name for rule in one.profile.rules if rule.selection is not None and not rule.is_spent]
    return one.window.target is State.RECYCLED and one.profile.life.delete_by in chosen
