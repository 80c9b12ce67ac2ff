"""What is due in a tenant at a moment. It is counted at once, and read from the store when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import Life, RecordFacts, Window, split_window, windows
from holdfast.core.records import HISTORY, State, Subject
from holdfast.ports.rules import Census, DueStore, Profile

#: Of whom more than this is due at once, the records are read in the order in which they lie.
_TOGETHER: Final = 500
_PAGE: Final = 5_000


class Extent(NamedTuple):
    """What a sweep looks at."""

    kinds: frozenset[str] | None = None
    """``None``: every kind."""
    targets: frozenset[State] = frozenset({State.ARCHIVED, State.RECYCLED})
    bin: bool = True
    subject: Subject | None = None
    shorter_than: int | None = None
    """Only kinds that live for less than this."""

    def takes(self, kind: str, life: Life) -> bool:
        """Whether records of a kind with this life are within it."""
        short = [after for after in life[:2] if after is not None and after < (self.shorter_than or 0)]
        return (self.kinds is None or kind in self.kinds) and (self.shorter_than is None or bool(short))

    def is_about(self, subject: Subject) -> bool:
        """Whether a subject is within it."""
        return self.subject in (None, subject)


EVERYTHING: Final = Extent()


class DueClass(NamedTuple):
    """Records that are due the same move for the same reason: a range of the index of what is due."""

    profile: Profile
    state: State
    window: Window


class DueRecords:
    """What is due in a tenant at a moment, as far as an extent goes; of what cannot be undone, what was due ``upto``
    another.
    """

    def __init__(self, dues: DueStore, tenant: str, at: int, extent: Extent, *, upto: int) -> None:
        self._dues = dues
        self._tenant = tenant
        self.at = at
        self._upto = upto
        self.extent = extent
        self.due = {one: self.census(one) for one in self._classes()}
        """How much of each class each subject has."""

    def _classes(self) -> Iterator[DueClass]:
        for profile in self._dues.profiles(self._tenant):
            if self.extent.takes(profile.kind, profile.life):
                for state in (State.ACTIVE, State.ARCHIVED):
                    for whole in windows(profile.life, state, self.at):
                        window, _ = split_window(profile.kind, profile.life, whole, self._upto)
                        if window is not None and window.target in self.extent.targets:
                            yield DueClass(profile, state, window)

    def census(self, one: DueClass, *, without: Iterable[str] = ()) -> list[Census]:
        """How much of a class each subject has, without some agents' records."""
        found = self._dues.census(*one, without=without)
        return [census for census in found if self.extent.is_about(census.subject)]

    def bin_census(self) -> list[Census]:
        """How much of each subject's recycle bin has had its time."""
        found = self._dues.bin_census(self._tenant, self._upto)
        return [census for census in found if self.extent.is_about(census.subject)]

    def pages(self, one: DueClass, *, tags: bool) -> Iterator[list[RecordFacts]]:
        """The records of a class. Those of subjects who have many lie together; the others come by their age."""
        due = self.due[one]
        whole = self.extent.subject is not None
        many = {census.subject for census in due if census.records > _TOGETHER or whole}
        if one.profile.kind == HISTORY:
            many = set()
        for subject in sorted(many):
            yield from self._pages_of(subject, one, tags=tags)
        if len(many) < len(due):
            for page in self._all_pages(one, tags=tags):
                yield [standing for standing in page if standing.subject not in many]

    def _pages_of(self, subject: Subject, one: DueClass, *, tags: bool) -> Iterator[list[RecordFacts]]:
        place = 0
        while True:
            standings, place = self._dues.due_of(subject, *one, after=place, limit=_PAGE, tags=tags)
            yield standings
            if len(standings) < _PAGE:
                return

    def _all_pages(self, one: DueClass, *, tags: bool) -> Iterator[list[RecordFacts]]:
        after: Any = {}
        while True:
            page = self._dues.due(*one, **after, limit=_PAGE, tags=tags)
            yield self._order(page.records)
            if len(page.records) < _PAGE:
                return
            after = {"after": page.last}

    def binned(self, *, tags: bool) -> Iterator[list[RecordFacts]]:
        """What has had its time in the recycle bin: records, then conversations."""
        for sessions in (False, True):
            after: Any = {}
            while True:
                page = self._dues.binned(self._tenant, self._upto, **after, limit=_PAGE, tags=tags, sessions=sessions)
                yield self._order(page.records)
                if len(page.records) < _PAGE:
                    break
                after = {"after": page.last}

    def _order(self, standings: Iterable[RecordFacts]) -> list[RecordFacts]:
        """Those within the extent, each subject's together."""
        wanted = (standing for standing in standings if self.extent.is_about(standing.subject))
        return sorted(wanted, key=lambda standing: standing.subject)
