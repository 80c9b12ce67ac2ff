"""The audit chain in a relational engine: the ``AuditStore``, and ``append`` for the transactions of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core import audit as core_audit
from holdfast.core import chain as chains
from holdfast.core.audit import AuditEntry, Event
from holdfast.core.errors import InvalidInputError, NotFoundError, StorageError
from holdfast.core.records import Subject
from holdfast.core.values import SECOND, to_json
from holdfast.ports.records import AuditQuery, FoundEntry
from holdfast.storage.relational.database import NOBODY, Question, SqlStore, Transaction

#: Cutting is done in transactions of this many chains or entries, whichever is reached first.
_CHAINS_AT_ONCE: Final = 200
_ENTRIES_AT_ONCE: Final = 5_000
#: How many entries are verified from one word of progress to the next.
_STRIDE: Final = 1_000
#: So many entries are looked at for a page.
_MOST_LOOKED: Final = 20_000
#: So far may the clocks of those who write entries differ.
_SKEW: Final = 3_600 * SECOND
_LAST_NO: Final = 2**63 - 1
_FIRST_PLACE: Final = -(2**63)


class HeadRow(NamedTuple):
    """The last entry of a chain."""

    alias: bytes | None
    seq: int | None
    hash: bytes | None


class EntryRow(NamedTuple):
    """An entry, as it is stored."""

    text: bytes
    hash: bytes
    seq: int = 0


class PageRow(NamedTuple):
    """An entry, where it is, and when it was written."""

    no: int
    at: int
    text: bytes
    hash: bytes


class ChainRow(NamedTuple):
    """A chain, and how far it was sealed; a chain that was tampered with may lack any of it."""

    subject: int
    seq: Any
    hash: Any
    floor: Any
    floor_hash: Any
    sealed_alias: Any
    sealed_seq: Any
    sealed_hash: Any
    alias: Any


class CutLimits(NamedTuple):
    """How far a chain was sealed and cut."""

    alias: bytes
    sealed_seq: int
    floor: int
    floor_hash: bytes


def append(tx: Transaction, subject: int, events: Sequence[Event]) -> None:
    """Put events at the end of a subject's chain, within the transaction that ``tx`` is in.

    The entries name the current actor. ``InvalidInputError`` where that names a user.
    """
    append_all(tx, [(subject, events)])


def append_all(tx: Transaction, chained: Iterable[tuple[int, Sequence[Event]]]) -> None:
    """The same for several subjects, whose entries are written together."""
    drafts = {subject: list(chains.drafts(events)) for subject, events in chained if events}
    if not drafts:
        return
    actor = core_audit.current_actor(tx.author)
    tx.ask_ahead(questions(drafts, count := sum(map(len, drafts.values()))))
    heads = {subject: _find_head(tx, subject, actor) for subject in drafts}
    numbers = iter(tx.all(int, "audit.numbers", (count,)))
    added: list[tuple[object, ...]] = []
    closings: dict[tuple[str, int], str] = {}
    for subject, head in heads.items():
        alias, seq, hashed = head
        for draft in drafts[subject]:
            event, no = draft.event, next(numbers)
            seq += 1
            shared = (event.action, id(event.detail))  # the same details object, the same text
            if shared not in closings:
                closings[shared] = chains.closing_of(event, actor)
            text = chains.entry_text(alias, no, seq, draft, closings[shared])
            hashed = chains.link(hashed, text)
            added.append((no, subject, seq, event.at, *draft.ends, text, hashed))
        heads[subject] = (alias, seq, hashed)
    for row in added:
        tx.later("audit.append", row)
    for subject, (_, seq, hashed) in heads.items():
        tx.later("audit.move_head", (subject, seq, hashed, chains.GENESIS))


def questions(subjects: Iterable[int], count: int = 1) -> list[Question]:
    """What will be asked before so many entries are put at the ends of the chains of subjects."""
    return [*(("audit.head", (subject,)) for subject in subjects), ("audit.numbers", (count,))]


def _find_head(tx: Transaction, subject: int, actor: str) -> tuple[bytes, int, bytes]:
    """The pseudonym of a chain, and its last entry; ``InvalidInputError`` if the actor names a user."""
    head = tx.find(HeadRow, "audit.head", (subject,)) or tx.find(HeadRow, "audit.head_of_erased", (subject,))
    if head is None or head.alias is None:
        raise NotFoundError(f"there is no subject number {subject} to audit; make it known with ensure_subject first")
    if not core_audit.is_own_actor(actor):
        _check_actor(tx, subject, actor)
    return head.alias, head.seq or 0, head.hash or chains.GENESIS


def _check_actor(tx: Transaction, subject: int, actor: str) -> None:
    """Refuse an author that names the user whose chain it is, or that is the id of another user of the tenant."""
    whose = tx.find(Subject, "audit.name", (subject,)) or NOBODY
    named = bool(whose.user_id) and core_audit.names_user(actor, whose.user_id)
    if named or tx.find(int, "audit.known", (Subject(whose.tenant, actor),)) is not None:
        raise InvalidInputError(
            f"author {actor!r} names a user, and the audit chain must not: it is kept when the user is erased; "
            "give a role or a department instead. Nothing was changed"
        )


class SqlAudit(SqlStore):
    """The ``AuditStore`` of the relational engines."""

    def append(self, subject: Subject, events: Sequence[Event]) -> None:
        if events:
            with self._database.write() as tx:
                append(tx, tx.number_for(subject), events)

    # --- reading -----------------------------------------------------------------------------------------------

    def of_item(self, subject: Subject, item: str) -> list[AuditEntry]:
        found = self._ask_about(subject, EntryRow, "audit.of_item", item)
        return [entry for row in found for entry in chains.parse_entries(row.text, row.hash) if entry.item == item]

    def tail(self, tenant: str, *, limit: int, subject: Subject | None = None) -> list[AuditEntry]:
        latest: list[AuditEntry] = []
        with self._database.read() as tx:
            whose = tenant if subject is None else tx.number_of(subject)
            statement = "audit.tail_of_tenant" if subject is None else "audit.tail_of_subject"
            for row in tx.each(EntryRow, statement, (whose, limit)):
                latest += reversed(chains.parse_entries(row.text, row.hash))
                if len(latest) >= limit:
                    break
        return latest[:limit][::-1]

    def page(
        self, tenant: str, query: AuditQuery, *, subject: Subject | None = None, before: int | None = None, limit: int
    ) -> tuple[list[FoundEntry], int | None]:
        found: list[FoundEntry] = []
        with self._database.read() as tx:
            whose = tenant if subject is None else tx.number_of(subject)
            statement = "audit.page_of_tenant" if subject is None else "audit.page_of_subject"
            last = _LAST_NO if before is None else before
            if query.until is not None:
                last = min(last, _find_no(tx, query.until + _SKEW))
            looked = 0
            for row in tx.each(PageRow, statement, (whose, last, _MOST_LOOKED)):
                looked, last = looked + 1, row.no
                if query.since is not None and row.at < query.since - _SKEW:
                    return found, None
                if (one := _match(row, query)) is not None:
                    found.append(one)
                    if len(found) == limit:
                        return found, last
        return found, last if looked == _MOST_LOOKED else None

    def checkpoints(self, *, limit: int | None = None) -> list[core_audit.Checkpoint]:
        with self._database.read() as tx:
            return _last_checkpoints(tx, limit)

    def sizes(self) -> core_audit.Sizes:
        (sizes,) = self._database.ask(core_audit.Sizes, "audit.sizes")
        return sizes

    # --- sealing -----------------------------------------------------------------------------------------------

    def seal(self, at: int) -> core_audit.Checkpoint:
        self._check_sealed()
        with self._database.alone("seal") as tx:
            last = next(iter(_last_checkpoints(tx, 1)), None)
            moved = tx.run("audit.seal_heads")
            if last is not None and not moved:
                return last
            made = _read_seal(tx).checkpoint(last, at)
            tx.run("audit.add_checkpoint", made)
            return made

    def _check_sealed(self) -> None:
        """Refuse to seal anew over heads that are not those of the last checkpoint: the difference would be lost.

        Before the sealing transaction, since it reads every head and nobody should wait for that.
        """
        with self._database.read() as tx:
            last = next(iter(_last_checkpoints(tx, 1)), None)
            agrees = _read_seal(tx).agrees(last)
        if not agrees:
            raise StorageError(
                f"the audit chain cannot be sealed: what checkpoint {last.no if last else 0} sealed was changed since; "
                "see what with: holdfast audit verify, then restore a backup"
            )

    # --- verifying ---------------------------------------------------------------------------------------------

    def verify(self, progress: Callable[[int], None] = lambda _count: None) -> Iterator[core_audit.Finding]:
        with self._database.read() as tx:
            written, sealed, pace = 0, chains.Seal(), _Pace(progress)
            for row in tx.each(ChainRow, "audit.all_chains"):
                chain = None if row.seq is None else chains.Chain(row.seq, row.hash, row.floor, row.floor_hash)
                sealed_at = (row.sealed_seq, row.sealed_hash)
                head = None if row.sealed_alias is None else chains.Head(row.subject, row.sealed_alias, *sealed_at)
                written += chain.seq if chain else 0
                if head is not None:
                    sealed.add(head)
                entries = pace.count(tx.each(chains.Link, "audit.links", (row.subject, _FIRST_PLACE)))
                if chain is None or row.alias is None:
                    name = f"subject number {row.subject}" if row.alias is None else row.alias.hex()
                    yield core_audit.Finding(
                        name, head.seq if head else 0, "the chain's end is gone, or all of the chain"
                    )
                else:
                    yield from chains.check_chain(row.alias, chain, head, entries)
            pace.end()
            counted = tx.find(int, "audit.written", ("audit",))
            if counted is not None and counted != written:
                yield core_audit.Finding(
                    core_audit.ALL_CHAINS, 0, f"{counted} entries were written, but the chains come to {written}"
                )
            stored = tx.each(core_audit.Checkpoint, "audit.checkpoints")
            yield from chains.check_checkpoints(stored, sealed, tx.find(int, "audit.written", ("audit_checkpoints",)))

    # --- cutting -----------------------------------------------------------------------------------------------

    def cut(self, before: int, *, at: int) -> int:
        removed = after = 0
        while True:
            due = self._database.ask(int, "audit.overdue", (after, before, _CHAINS_AT_ONCE))
            if not due:
                return removed
            room = _ENTRIES_AT_ONCE
            with self._database.write() as tx:
                for subject in due:
                    tx.lock_subject(subject)
                    room -= _cut_chain(tx, subject, before, at, room)
                    if room == 0:  # the rest of this chain comes with the next transaction
                        break
                    after = subject
            removed += _ENTRIES_AT_ONCE - room


def _find_no(tx: Transaction, at: int) -> int:
    """A number that all entries of before a moment are below: their times rise with their numbers, but for clocks that
    differ.
    """
    low, high = 0, (tx.find(int, "audit.last_no") or 0) + 1
    while low < high:
        middle = (low + high) // 2
        found = tx.find(int, "audit.time_at", (middle,))
        low, high = (middle + 1, high) if found is None or found < at else (low, middle)
    return low


def _match(row: PageRow, query: AuditQuery) -> FoundEntry | None:
    """What an entry says, if it is one that is looked for. Most that are not are told by a look at their bytes."""
    wanted = (query.item, query.actor, query.action)
    if any(one is not None and to_json(one).encode() not in row.text for one in wanted):
        return None
    if (query.since is not None and row.at < query.since) or (query.until is not None and row.at >= query.until):
        return None
    entries = chains.parse_entries(row.text, row.hash)
    first = entries[0]
    if query.actor not in (None, first.actor) or query.action not in (None, first.action):
        return None
    about = next((entry for entry in entries if query.item in (None, entry.item)), None)
    return None if about is None else FoundEntry(about, len(entries))


class _Pace:
    """Says how many more entries were verified, now and then."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._since = 0

    def count(self, entries: Iterable[chains.Link]) -> Iterator[chains.Link]:
        """Some entries, counted as they go by."""
        for entry in entries:
            yield entry
            self._since += 1
            if self._since == _STRIDE:
                self.end()

    def end(self) -> None:
        """Say how many there were since the last word."""
        if self._since:
            self._progress(self._since)
            self._since = 0


def _last_checkpoints(tx: Transaction, limit: int | None) -> list[core_audit.Checkpoint]:
    return tx.all(core_audit.Checkpoint, "audit.last_checkpoints", (-1 if limit is None else limit,))[::-1]


def _read_seal(tx: Transaction) -> chains.Seal:
    """All heads as they are sealed."""
    seal = chains.Seal()
    for head in tx.each(chains.Head, "audit.sealed"):
        seal.add(head)
    return seal


def _cut_chain(tx: Transaction, subject: int, before: int, at: int, most: int) -> int:
    """Cut a chain's entries of before a moment, as far as they are sealed and whole, and ``most`` of them; how many.

    What does not verify is evidence, and is left as it is.
    """
    limits = tx.find(CutLimits, "audit.cut_limits", (subject,))
    if limits is None:
        return 0
    floor = limits.floor
    walk = chains.Walk(limits.alias, floor, limits.floor_hash)
    upto, upto_hash = floor, limits.floor_hash
    for entry in tx.each(chains.Link, "audit.links", (subject, floor + 1)):
        if entry.at >= before or entry.seq > min(limits.sealed_seq, floor + most):
            break
        if walk.step(entry):
            return 0
        upto, upto_hash = entry.seq, entry.hash
    if upto == floor:
        return 0
    append(tx, subject, [chains.cut_event(at, count=upto - floor, upto=upto, upto_hash=upto_hash)])
    tx.run("audit.cut", (subject, upto))
    tx.run("audit.move_floor", (upto, upto_hash, subject))
    return upto - floor
