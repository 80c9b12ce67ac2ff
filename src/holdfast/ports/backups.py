"""What backups need of a store: its rows as of one moment, and ways to write rows into it.

Tables go by their names. Rows have the canonical form that ``storage/catalog.py`` describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.ports.records import KeptText

if TYPE_CHECKING:
    from holdfast.core.records import Subject
    from holdfast.ports.objects import ObjectStore

Row = tuple[Any, ...]
#: A row by the names of its columns.
Values = Mapping[str, Any]


class RowReader(Protocol):
    """A store as it was at one moment."""

    def count(self, table: str, /) -> int:
        """How many rows a table has."""

    def rows(self, table: str, /) -> Iterator[Row]:
        """The rows of a table, in the order of its key, as they come."""

    def owned(self, table: str, subjects: Sequence[int], codes: Sequence[int], /) -> Iterator[Row]:
        """The rows of some subjects, one subject after the other and in the table's order for each; of scopes and
        records, those of the kinds that have these codes.
        """

    def counters(self) -> dict[str, int]:
        """For each table whose rows are numbered: the largest number that was ever given."""


class RowWriter(Protocol):
    """A store that nothing was ever kept in, to be filled within one transaction."""

    def used(self) -> list[str]:
        """The tables with rows that a store does not have when it is first opened."""

    def clear(self) -> None:
        """Remove the rows that every store has from the start."""

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row], /) -> None:
        """Write rows, of which these columns are given."""

    def finish(self, counters: Mapping[str, int], /) -> None:
        """Number new rows after the largest numbers that were ever given."""


class Owner(NamedTuple):
    """Whom rows of a backup belong to: a subject, and the pseudonym that it had when they were backed up."""

    subject: Subject
    alias: str

    @property
    def tenant(self) -> str:
        """The subject's tenant."""
        return self.subject.tenant


class PackRow(NamedTuple):
    """A cold object, as a backup knows it."""

    name: str
    records: int
    size: int
    digest: bytes
    made_at: int


#: Cold objects by their numbers in a backup.
Packs = Mapping[int, PackRow]


class ConversationRows(NamedTuple):
    """A session, and some of its messages."""

    session: Values
    messages: Sequence[Values]


class Merged(NamedTuple):
    """What a batch has restored."""

    counts: Counter[str]
    entities: frozenset[str] = frozenset()
    """The entities that were made."""
    outdated: frozenset[str] = frozenset()
    """The entities whose texts may no longer be true."""


class StrangerError(Exception):
    """Another user has the owner's name; nothing was written."""


class ErasedError(Exception):
    """The owner was erased; nothing was written."""


class RowMerger(Protocol):
    """Adds what is missing to a store that is in use, in batches, each of them whole or not at all.

    Within the transaction of a batch it is asked whether the owner was erased (``ErasedError``), or whether another has
    the name by now (``StrangerError``). What is there is known by its id, so a merge that was cut short is finished by
    doing it again. Quotas are not checked.
    """

    def records(
        self, owner: Owner, rows: Sequence[Values], packs: Packs, *, overwrite: bool, alone: bool = False
    ) -> Merged:
        """Add records that are missing; with ``overwrite``, also replace those that are there and that no hold keeps.

        ``packs`` has the cold objects that they lie in, by their numbers in the backup; ``alone`` says that one record
        was asked for.
        """

    def versions(self, owner: Owner, rows: Sequence[Values], ids: Mapping[int, str]) -> None:
        """Add ended versions that are missing, of records that are there and say something newer; ``ids`` has the ids
        of the records by their keys in the backup.
        """

    def conversations(self, owner: Owner, conversations: Sequence[ConversationRows]) -> Merged:
        """Add conversations that are missing, and messages that are missing of those that are there."""

    def facts(self, owner: Owner, rows: Sequence[Values], made: Container[str]) -> Merged:
        """Add facts that are missing, of entities that are there; those that this restore has added were ``made``,
        and their texts are true already.
        """

    def holds(self, owner: Owner, rows: Sequence[Values]) -> Merged:
        """Add holds on a subject that are missing."""

    def common_holds(self, tenant: str, rows: Sequence[Values]) -> Merged:
        """Add holds of a tenant that name no user and are missing; one on a memory, a conversation or a message only
        if that is there: its user may have been erased.
        """


class Origin(NamedTuple):
    """The backup that rows come from."""

    backup_id: str
    models: Mapping[int, str]
    """The models of their vectors, by the codes that they have there."""
    fetch: Callable[[str], bytes | None]
    """Reads a cold object as it was backed up; ``None`` if it was not."""


#: Keeps the texts of a pseudonym out from a moment on; how many memories went to the recycle bin for it.
Adopt = Callable[[str, Sequence[KeptText], int], int]


class RowStore(Protocol):
    """A store that can be read and written row by row."""

    @property
    def engine(self) -> str:
        """``sqlite`` or ``postgresql``."""

    @property
    def schema(self) -> tuple[int, int]:
        """The numbers of the last migrations that this version knows, of SQLite and of PostgreSQL."""

    def read(self) -> AbstractContextManager[RowReader]:
        """The store as it is now, for as long as the block lasts. Others go on writing."""

    def fill(self) -> AbstractContextManager[tuple[RowWriter, Adopt, Callable[[], None]]]:
        """The store, to be filled; what keeps texts out of it; and what removes holds on memories that are not there.
        Nobody sees anything of it before the block has ended, and nobody else writes; if the block raises, nothing was
        done.
        """

    def trial(self) -> AbstractContextManager[tuple[RowWriter, RowReader]]:
        """An empty store to fill and then to read, which is gone when the block or the process ends."""

    def merge(
        self,
        origin: Origin,
        *,
        is_erased: Callable[[str], bool],
        cold: Callable[[], ObjectStore],
        now: int,
        kept_out: Mapping[str, Sequence[KeptText]],
    ) -> RowMerger:
        """Adds rows of a backup to the store. ``cold`` is where cold objects lie, as they are; ``kept_out`` has the
        texts that each pseudonym keeps out.
        """
