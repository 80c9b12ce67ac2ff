"""All that is held on a person, and what is left of a name while it is erased."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.core.records import Fact, Kind, MemoryType, Message, Record, Subject

if TYPE_CHECKING:
    from holdfast.core.audit import AuditEntry
    from holdfast.core.decisions import Hold
    from holdfast.ports.conversations import Session

#: No tenant has a control character, so that no user can have such a name.
_BEGINNING: Final = "\x01erasing"
#: So long does a store keep the mark of an erasure.
MARK_DAYS: Final = 7


class Tombstone(NamedTuple):
    """What is left of a subject's name while it is being erased."""

    number: int
    alias: str
    """The pseudonym, under which the data key and the cold objects go."""
    mark: str
    """By which the subject's name can be told to have been this one."""
    subject: Subject | None
    """The name, as long as something that is found by it only may be left elsewhere."""

    def is_of(self, subject: Subject) -> bool:
        """Whether this was the subject's name."""
        return self.mark == _mark(self.alias, subject)

    @property
    def name(self) -> str:
        """The name it goes by now."""
        parts = (_BEGINNING, self.alias, self.mark, *([] if self.subject is None else [self.subject]))
        return "/".join(parts)


def tombstone_for(number: int, alias: str, subject: Subject) -> Tombstone:
    """The tombstone of a subject that is to be erased."""
    return Tombstone(number, alias, _mark(alias, subject), subject)


def read_tombstone(number: int, name: str) -> Tombstone:
    """The tombstone that goes by a name."""
    _, alias, mark, *subject = name.split("/", 3)
    return Tombstone(number, alias, mark, Subject.parse(subject[0]) if subject else None)


def is_tombstone(subject: str) -> bool:
    """Whether a subject is being erased, by its name."""
    return subject.startswith(_BEGINNING)


class ErasureMark(NamedTuple):
    """That a subject was erased, for those who have its name: nobody else can read whose mark it is."""

    salt: bytes
    digest: bytes
    age_seconds: float = 0.0

    def is_of(self, subject: Subject) -> bool:
        """Whether this subject was erased."""
        return self.digest == _digest(self.salt, subject)


def mark_erasure(subject: Subject, salt: bytes) -> ErasureMark:
    """The mark of a subject that is being erased; the salt is random, and used once."""
    return ErasureMark(salt, _digest(salt, subject))


def _digest(salt: bytes, subject: Subject) -> bytes:
    return hashlib.sha256(salt + subject.encode()).digest()


def _mark(alias: str, subject: Subject) -> str:
    return hashlib.sha256(f"{alias}/{subject}".encode()).hexdigest()[:32]


class KeptMessage(NamedTuple):
    """A message of a conversation, and until when it is in the recycle bin, if it was deleted by itself."""

    message: Message
    purge_at: int | None


class SetQuota(NamedTuple):
    """A limit that was set for a user. ``None``: nothing was set; -1: no limit."""

    kind: Kind
    max_memories: int | None
    max_bytes: int | None


class UserSummary(NamedTuple):
    """A user of whom something is kept."""

    user_id: str
    memories: dict[MemoryType, int]
    """How many live memories there are of each durable kind; 0 where all of a kind are in the recycle bin."""
    sessions: int
    """How many conversations there are that are not in the recycle bin."""
    last_active_at: int
    """When the newest memory was made, or the last message came."""


class UserDirectory(Protocol):
    """The users of a tenant."""

    def users(self, tenant: str, *, after: str = "", limit: int) -> list[UserSummary]:
        """The users of whom memories or conversations are kept, in whatever state, by their ids, beginning with the
        next after ``after``. Fewer than ``limit`` means that no more follow. It costs what it answers.
        """


class SubjectNames(Protocol):
    """Who a subject is."""

    def alias(self, subject: Subject) -> str | None:
        """The subject's pseudonym; ``None`` if nothing was ever kept of it. Another, and it was erased meanwhile."""

    def size(self, subject: Subject) -> int:
        """How many records and messages there are, more or less."""

    def own_sessions(self, subject: Subject, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that are sessions of the subject, and of nobody else in its tenant."""

    def quotas(self, tenant: str, user_id: str) -> list[SetQuota]:
        """The limits that were set for a user."""


class SubjectPages(Protocol):
    """What there is of a subject, page by page."""

    def records(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        """Some records of a kind, and where to go on from."""

    def sessions(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Session], int]:
        """Some conversations, and where to go on from."""

    def messages(self, subject: Subject, item_id: str, *, after: int = 0, limit: int) -> tuple[list[KeptMessage], int]:
        """Some messages of a conversation, in their order, and where to go on from."""

    def facts(self, subject: Subject, *, after: str = "", limit: int) -> tuple[list[Fact], str]:
        """Some facts, current and ended, and where to go on from."""

    def audit(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[AuditEntry], int]:
        """The events of ``limit`` entries of the subject's chain at most, oldest first, and where to go on from."""


class SubjectReader(UserDirectory, SubjectNames, SubjectPages, Protocol):
    """All that a store keeps of a subject, in whatever state, to be read from beginning to end.

    It is read in pages, each of them consistent, of ``limit`` at most and fewer where they are large; ``after`` is
    where the page before ended, and an empty page is the end. What is there from the first page to the last is given
    exactly once, whatever happens to it meanwhile.
    """


class Found(NamedTuple):
    """What there was of a subject."""

    rows: dict[str, int]
    """By what they are."""
    kinds: dict[str, int]
    """Memories of each durable kind, in whatever state."""


class NameEraser(Protocol):
    """Takes a subject's name away."""

    def detach(
        self,
        subject: Subject,
        *,
        alias: str | None = None,
        even_held: bool = False,
        now: int,
        begin: Callable[[str], None],
        defer: Callable[[str], None] = lambda _alias: None,
        beside: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Tombstone | None, Found]:
        """Take a subject's name away, with all that is found by it: from that instant nobody finds anything of it, and
        a user who comes back under the name begins anew. ``None``, if there is no such subject. ``beside`` is how much
        there is of it elsewhere, which is on the record with the rest.

        ``HeldError`` (audited), changing nothing, while a hold stands that names the user or covers anything of theirs.
        ``begin`` is called with the pseudonym once that is settled, before anything is changed, while nobody can add a
        hold; ``defer`` if there is such a hold. A mark of the erasure is left for other processes, whether there is
        such a subject or not. With ``alias``, an erasure that began before is gone on with: for the subject of that
        pseudonym only. It is audited once that a hold keeps it; with ``even_held``, holds are those of
        an old copy, and keep nothing.
        """

    def make_known(self, subject: Subject) -> None:
        """Let there be such a subject, so that its erasure can be gone on with."""

    def check(self, subject: Subject) -> None:
        """Raise the ``HeldError`` of ``detach``, if it would; nothing is audited."""

    def survey(self, subject: Subject, progress: Callable[[int, str], None]) -> tuple[Found | None, list[Hold]]:
        """What there is of a subject (``None``: nothing was ever kept of it), and the holds that name the user or cover
        anything of theirs; nothing is changed. ``progress`` hears how much more was found in which step.
        """

    def having(self, aliases: Sequence[str]) -> list[tuple[str, Subject]]:
        """Those of the pseudonyms that a subject goes by which is not being erased, and the subject."""

    def tombstones(self) -> list[Tombstone]:
        """Every subject that is being erased."""

    def found(self, tombstone: Tombstone) -> Found:
        """What there was when the name was taken away."""

    def forget_name(self, tombstone: Tombstone) -> None:
        """Nothing is left that is found by the name only."""


class RowEraser(Protocol):
    """Removes what there is of a subject whose name is gone."""

    def objects(self, tombstone: Tombstone) -> list[str]:
        """The names of the cold objects that are noted."""

    def forget_objects(self, tombstone: Tombstone) -> None:
        """The cold objects are gone."""

    def remove(self, tombstone: Tombstone, *, limit: int) -> int:
        """Remove some rows; how many. Fewer than ``limit`` means that none is left."""

    def left(self, tombstone: Tombstone) -> dict[str, int]:
        """How many rows there still are, by what they are."""

    def scrub(self, seconds: float = 2.0) -> bool:
        """Leave nothing of removed rows in the store's files, as far as the engine can; ``False`` where somebody's
        reading prevents it for so many seconds, for which writers may wait, too.
        """

    def bury(self, tombstone: Tombstone) -> None:
        """Remove the tombstone: nothing is left."""


class ErasureTimes(NamedTuple):
    """When an erasure came how far; what is ``None`` stays as it is known."""

    requested_at: int | None = None
    hidden_at: int | None = None
    gone_at: int | None = None
    certified_at: int | None = None


class ErasureMemory(Protocol):
    """What a store knows of erasures."""

    def erased_within(self, seconds: float) -> list[ErasureMark]:
        """The marks of the erasures of the last so many seconds, by the store's own clock. ``StoreAwayError`` at once,
        or nearly, where the store does not answer.
        """

    def note_times(self, alias: str, times: ErasureTimes) -> None:
        """Note how far an erasure has come. That it was asked for is noted when the name is taken away."""

    def forget_marks(self) -> None:
        """Remove the marks of erasures that are older than ``MARK_DAYS``."""

    def ledger_seen(self) -> tuple[int, str] | None:
        """The last entry of the ledger that the store has been held against: its number and hash."""

    def see_ledger(self, number: int, entry_hash: str) -> None:
        """The store has been held against the ledger up to this entry."""


class SubjectStore(NameEraser, RowEraser, ErasureMemory, Protocol):
    """How a subject is erased: the name first, then what there is of it in batches, the tombstone last.

    Every step can be repeated, and several may take it at once.
    """
