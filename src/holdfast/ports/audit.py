"""What happened, in a chain that shows every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from holdfast.core.audit import Checkpoint, Event, Finding, Sizes
from holdfast.core.audit import Entry as AuditEntry
from holdfast.core.records import Subject


class AuditStore(Protocol):
    """Chains of events, one per subject, and the checkpoints that seal them."""

    def append(self, subject: Subject, events: Sequence[Event]) -> None:
        """Put events at the end of a subject's chain, in their order; all of them or none. Those in a row that differ
        only in their item share one entry.
        """

    def of_item(self, subject: Subject, item: str) -> list[AuditEntry]:
        """What a subject's chain says of one item, oldest first."""

    def tail(self, tenant: str, *, limit: int, subject: Subject | None = None) -> list[AuditEntry]:
        """The ``limit`` latest events of a tenant's chains, or of one subject's, the newest last."""

    def seal(self, at: int) -> Checkpoint:
        """Seal the heads of all chains of the store; the last checkpoint, where none has moved since.

        A chain that no longer has the entry that was sealed stays sealed as it was, so that ``verify`` goes on finding
        it. Raises ``StorageError``, changing nothing, if the sealed heads are not those of the last checkpoint.
        """

    def checkpoints(self, *, limit: int | None = None) -> list[Checkpoint]:
        """The checkpoints, or the ``limit`` last ones, the newest last."""

    def sizes(self) -> Sizes:
        """How many chains, entries and checkpoints there are."""

    def verify(self, progress: Callable[[int], None]) -> Iterator[Finding]:
        """Walk every chain and every checkpoint, as they are at one moment, and give what is wrong, in constant
        memory. ``progress`` hears now and then how many more entries have been read.
        """

    def cut(self, before: int, *, at: int) -> int:
        """Remove entries of before a moment: from the beginning of each chain, no further than its last sealed entry,
        and only what verifies. Each chain that is cut gets an entry that says so. How many entries went. Several
        transactions, each of them whole.
        """
