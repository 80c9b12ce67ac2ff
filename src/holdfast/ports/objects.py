"""Cold storage, and what lies there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.core.errors import ObjectMissingError, ObjectStoreUnavailableError
from holdfast.core.records import Subject

if TYPE_CHECKING:
    from holdfast.ports.coordination import Lease


class ObjectReader(Protocol):
    """Reads and lists objects."""

    @property
    def url(self) -> str:
        """Where it is, as it may be shown: without secrets."""

    def get(self, name: str) -> bytes:
        """All of an object; ``ObjectMissingError`` if there is none of this name."""

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        """All of an object, and the tag by which ``put`` knows whether it is still the same."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names of all objects below a prefix of whole parts (``archive/ab/``), in no particular order.

        They are read as they are asked for, a thousand or a folder at a time.
        """

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """The same, each with the number of its bytes as they lie there: nothing of them is read."""


class ObjectWriter(Protocol):
    """Writes and deletes objects."""

    def prepare(self) -> None:
        """Make the place ready to be written, before it is noted anywhere that something lies there."""

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        """Write an object; it is durable when this returns, and at no moment can part of it be read. Its tag.

        What had the name before is replaced; writing the same again changes nothing. With ``absent``, only if nothing
        has the name: else ``ConflictError``. With ``match``, only if what has the name is what ``get_with_tag`` gave
        that tag: else ``StaleError``. Of any number of writers on the same condition, one succeeds.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects, durably; those that are not there are passed over, so that it can be repeated.

        If it raises, any of them may be left. It also clears away what puts that were killed left behind, where that
        can be seen.
        """

    def check(self) -> Sequence[str]:
        """Write, read, list and delete an object of its own; raises what goes wrong, and leaves nothing behind.

        What works and should be known nonetheless is the answer: that deleted objects are kept as old versions, that
        conditions are not heeded, that nothing is encrypted on its way.
        """


class ObjectStore(ObjectReader, ObjectWriter, Protocol):
    """Whole objects under names, written once, read rarely, deleted for good.

    A name is parts of lower-case letters, digits, ``.``, ``_``, ``=`` and ``-`` with ``/`` between them; none may be
    the beginning (up to a ``/``) of another. ``InvalidInputError`` for any other name, before anything is done.

    What fails in passing is tried again for some seconds. Then every method raises ``ObjectStoreUnavailableError``
    (retryable) where the store does not answer in time, ``StoreFullError`` (retryable) where it has no room, and
    ``ObjectStoreError`` where it refuses. To ``get`` and ``delete``, a place that is gone is never an empty one: an
    archive on a disk that is not mounted has lost nothing, and nothing in it has been erased.

    A write that raises has left what had the name before; where it was unavailable, the new object may be there
    instead. Either is whole. An object that is written on a condition is never written without one.
    """


def find_object(objects: ObjectStore, name: str) -> tuple[bytes | None, str | None]:
    """An object and its tag; ``None`` for both if there is none, or nothing was ever kept there."""
    try:
        return objects.get_with_tag(name)
    except ObjectMissingError:
        return None, None
    except ObjectStoreUnavailableError:
        if any(objects.names(f"{name.rpartition('/')[0]}/")):  # one that is away says so here, too
            raise
        return None, None  # the place has not been made


class Pack(NamedTuple):
    """A cold object: records of one subject, packed together."""

    number: int
    subject: Subject
    name: str
    state: str
    records: int
    digest: bytes


class NewPack(NamedTuple):
    """A cold object that is to be written."""

    subject: Subject
    alias: str | None
    """The pseudonym that the subject goes by; ``None`` for whatever it has, or gets."""
    name: str
    records: int
    size: int
    digest: bytes


class PackPlan(NamedTuple):
    """A subject's pseudonym, a pack of theirs, and the records that lie in that and are to stay."""

    alias: str
    pack: Pack | None
    members: frozenset[str]


#: A pack, by its subject and its number.
PackKey = tuple[Subject, int]


class PackReader(Protocol):
    """Which cold objects there are."""

    def alias(self, subject: Subject) -> str:
        """The subject's pseudonym; ``NotFoundError`` if nothing is kept of it, because it was erased or never seen."""

    def plans(self, wanted: Sequence[tuple[Subject, int | None]], *, below: int = 0) -> list[PackPlan | None]:
        """Of each subject, the pack of that number, if it is kept or stale; without a number, the smallest that is kept
        and has fewer bytes than ``below``. ``None`` for a subject of whom nothing is kept.
        """

    def get(self, subject: Subject, number: int) -> Pack | None:
        """A pack that is kept, or stale."""

    def are_open(self, packs: Sequence[PackKey]) -> list[bool]:
        """Whether each of them is still noted as being written."""

    def unsettled(self, tenant: str) -> list[Pack]:
        """The packs that something is to be done with."""

    def members(self, subject: Subject, number: int) -> list[str]:
        """The records that lie in a pack and are to stay."""

    def oldest(self, limit: int) -> list[Pack]:
        """The oldest pack that is kept, or stale, of each subject; of those who have the oldest, up to ``limit``."""


class Swap(NamedTuple):
    """A pack that takes the place of another, which had so many members when the new one was written."""

    subject: Subject
    old: int
    new: int
    members: int


class PackWriter(Protocol):
    """Notes what becomes of cold objects."""

    def open(self, new: Sequence[NewPack], *, now: int) -> list[int | None]:
        """Note objects before they are written; their numbers. Records move into them by ``RecordStore.transition``.

        ``None``, if the subject does not go by the pseudonym (any more).
        """

    def swap(self, swaps: Sequence[Swap], *, lease: Lease | None = None) -> list[bool]:
        """Let the members of one pack lie in another, and those being deleted in none; the old pack is leaving.

        ``False``, changing nothing, if there are not so many members any more, or the new pack was given up.
        """

    def settle(self, packs: Sequence[PackKey]) -> list[str | None]:
        """The states that packs are in by the records that lie in them, set; ``None`` for one that is leaving."""

    def leaving(self, packs: Sequence[PackKey]) -> list[Pack]:
        """Those of the packs that are leaving."""

    def forget(self, packs: Sequence[PackKey]) -> None:
        """Their objects are gone."""


class PackStore(PackReader, PackWriter, Protocol):
    """Which cold objects there are, and what is to become of them.

    A pack is ``writing`` until records have moved into it, then ``kept``; ``stale`` while it holds more than the
    records that still lie in it, and ``leaving`` until its object is gone.
    """
