"""Records in a relational engine: the ``RecordStore``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.audit import current_actor
from holdfast.core.decisions import Hold, excess, held_error, refuse
from holdfast.core.errors import StaleError, StorageError
from holdfast.core.records import (
    BIN,
    DELETED_BY_USER,
    LIVE,
    NAME_SEPARATOR,
    TYPES,
    Cause,
    Entry,
    Kind,
    Move,
    Outcome,
    Record,
    Scope,
    State,
    Subject,
    Usage,
)
from holdfast.core.rules import Labels, labels_of
from holdfast.core.texts import hash_text, texts_within
from holdfast.core.values import Origin, agent_source, to_json, value_class
from holdfast.ports.records import Added, Put, PutOutcome, Recycled, kept_out_error
from holdfast.storage.relational import moves as record_moves
from holdfast.storage.relational import rows as record_rows
from holdfast.storage.relational.database import (
    AgainError,
    Guess,
    GuessError,
    Instead,
    Question,
    Transaction,
    Transactions,
)
from holdfast.storage.relational.moves import MoveBatch
from holdfast.storage.relational.rules import Book, Profiles, scope_of

if TYPE_CHECKING:
    from holdfast.ports.coordination import Lease
    from holdfast.storage.relational.rows import CurrentRow


class RefreshedRow(NamedTuple):
    """A record whose time is to count anew."""

    key: int
    id: str


class QuotaRow(NamedTuple):
    """A quota that was set. ``None`` is the default, -1 is no limit."""

    max_memories: int | None
    max_bytes: int | None


@value_class
class _Insertion:
    """Records to be added, and what was found to be in their way."""

    subject: Subject
    kind: Kind
    scopes: Sequence[Scope]
    """Of those who write."""
    entries: Sequence[Entry]
    prune: bool
    now: int
    dedupe: bool
    skip_kept_out: bool
    stored: Mapping[str, record_rows.Stored]
    """The stored forms of the records' texts, by the records' ids."""
    puts: Mapping[str, Put] = field(default_factory=dict)
    """Where a record takes the place of the live one that goes by its name: what is to become of each name."""
    pruned: list[str] = field(default_factory=list)
    kept: list[tuple[Move, Hold]] = field(default_factory=list)
    """A record that a hold keeps, where nothing is done for that reason."""
    replaced: dict[str, PutOutcome] = field(default_factory=dict)
    """What became of the live records that puts found, by their names."""

    @property
    def is_single(self) -> bool:
        """Whether it is one record that was derived from nothing."""
        return len(self.entries) == 1 and len(self.puts) <= 1 and not self.entries[0].record.derived_from


class SqlRecords(record_rows.SqlRecordReader):
    """The ``RecordStore`` of the relational engines."""

    def __init__(self, database: Transactions) -> None:
        super().__init__(database)
        self._models: dict[str | None, int | None] = {}
        self._profiles = Profiles()

    def insert(
        self,
        subject: Subject,
        kind: Kind,
        entries: Sequence[Entry],
        *,
        prune: bool,
        now: int,
        dedupe: bool = False,
        skip_kept_out: bool = False,
    ) -> Added:
        scopes = [record.scope for record, _ in entries]
        how = (prune, now, dedupe, skip_kept_out)
        return self._write(_Insertion(subject, kind, scopes, entries, *how, _to_stored(entries)))

    def put(
        self, scope: Scope, kind: Kind, puts: Sequence[Put], *, now: int, prune: bool = False
    ) -> tuple[list[PutOutcome], Added]:
        entries = [put.entry for put in puts if put.entry is not None]
        named = {put.name: put for put in puts if put.name is not None}
        new = _Insertion(scope.subject, kind, [scope], entries, prune, now, False, False, _to_stored(entries), named)
        added = self._write(new)
        outcomes = []
        for put in puts:
            made = PutOutcome(None, None, None) if put.entry is None else PutOutcome(put.entry.record.id, None, 1)
            outcomes.append(new.replaced.get(put.name or "", made))
        return outcomes, added

    def _write(self, new: _Insertion) -> Added:
        subject, kind = new.subject, new.kind
        try:
            try:
                return self._insert(new, guesses=True)
            except GuessError:
                return self._insert(new)
        except AgainError as unsure:
            try:
                return self._insert(replace(new, pruned=[]), before=new.pruned)
            except StorageError as problem:
                raise unsure.doubt or problem from problem
        finally:
            if new.kept:  # nothing of it was done, but that it was refused is written down
                with self._database.write(subject) as tx:
                    batch = MoveBatch(tx, subject, tx.number_for(subject), now=new.now, is_held=False)
                    for move, hold in new.kept:
                        batch.refuse(move, kind.name.value, hold=hold.id)
                    batch.save()

    def _insert(self, new: _Insertion, before: Sequence[str] | None = None, *, guesses: bool = False) -> Added:
        """Insert at one attempt; ``before`` has what an attempt pruned that may have been made already."""
        subject, kind = new.subject, new.kind
        asked = record_rows.context_query(subject, kind, {scope.agent_id for scope in new.scopes})
        can_rely = before is None and not (new.puts and any(put.expected is not None for put in new.puts.values()))
        with self._database.write(subject, asked if can_rely else None) as tx, record_moves.unique(kind.name):
            number = tx.number_for(subject)
            context = tx.first(record_rows.WriteContext, *asked)
            batch = MoveBatch(tx, subject, number, now=new.now, is_held=context.is_held)
            counter = batch.counter(kind, context.counts)
            maximum = context.limits(kind)
            kept_out = _find_kept_out(tx, number, new) if context.keeps_out else {}
            if kept_out and not new.skip_kept_out:
                raise kept_out_error("nothing was added", next(iter(kept_out.values())))
            new = _without(new, kept_out) if kept_out else new
            guesses = guesses and tx.can_guess and new.is_single
            found: dict[str, str] = {}
            ended = frozenset[str]()
            if new.dedupe and guesses and new.entries[0].record.name is None:
                tx.guess(Guess(is_unique=True, agent=_agent_of(new)))
            elif new.dedupe and new.entries:
                hashes = _hash_texts(new)
                found, ended = record_rows.find_same(tx, number, new.kind, hashes, _agent_of(new), now=new.now)
            new = _without(new, found) if found else new
            left_out = (found, kept_out, ended)
            if before is not None and _was_done(tx, number, new):  # only the answer was lost
                return Added(counter.usage(maximum), len(before), tuple(before), *left_out)
            if context.is_removed:
                record_moves.refuse_removed_agents(tx, new.scopes)
            if new.entries or new.puts:
                book = self._profiles.book(tx, subject.tenant, context.version)
                self._add(batch, new, counter, maximum, book, guesses=guesses)
            tx.expect(context.after(number, counter.counts))
            added = Added(counter.usage(maximum), len(new.pruned), tuple(new.pruned), *left_out)
            if guesses:
                tx.then(partial(_expect_instead, tx, number, context))
        return added if tx.instead is None else _found_instead(new, added, context, tx.instead)

    def _add(
        self,
        batch: MoveBatch,
        new: _Insertion,
        counter: record_rows.ScopeCounter,
        maximum: tuple[int | None, int | None],
        book: Book,
        *,
        guesses: bool,
    ) -> None:
        """Write new records; room is made for them first, if there is none."""
        tx = batch.tx
        if new.puts and guesses and tx.can_guess:
            source = new.entries[0].record.written_by
            tx.guess(Guess(False, None, True, current_actor(), source, book.is_selective, maximum[1]))
        else:
            live = batch.free_names(new.kind, [*new.puts] or [record.name for record, _ in new.entries])
            new = self._put_named(batch, new, live, maximum) if new.puts else new
        size = sum(new.stored[record.id].size for record, _ in new.entries)
        if excess(counter.usage(maximum), len(new.entries), size):
            _make_room(batch, new, maximum, size)
        rows = self._rows(batch, new, counter=counter, book=book)
        if len(rows) == 1 and (new.puts or new.entries[0].record.name is None):  # nothing can be in its way
            tx.later("records.insert", rows[0])
        else:
            tx.run_many("records.insert", rows)
        derived = [(key, entry.record.derived_from) for (key, *_), entry in zip(rows, new.entries, strict=True)]
        record_rows.note_derivations(tx, batch.number, derived)
        counter.count(len(rows), size)
        batch.save()

    def _model_code(self, tx: Transaction, model: str | None) -> int | None:
        """The code of a model. What has been committed stays as it is, and need not be asked for again."""
        code = self._models.get(model)
        if code is None and model is not None:
            code = record_moves.model_code(tx, model)
            tx.then(partial(self._models.__setitem__, model, code))
        return code

    def _put_named(
        self, batch: MoveBatch, new: _Insertion, live: Mapping[str, CurrentRow], maximum: tuple[int | None, int | None]
    ) -> _Insertion:
        """Change or recycle the live records that puts are about; what is to be added beside that."""
        for name, put in new.puts.items():
            version = live[name].revision if name in live else 0
            if put.expected not in (None, version):
                raise _unexpected(new.kind, put, version)
        removed = [live[name] for name, put in new.puts.items() if put.entry is None and name in live]
        moves = [batch.to_bin(row, DELETED_BY_USER, Cause.USER) for row in removed]
        for move, row in zip(moves, removed, strict=True):
            if (hold := batch.holds.covering(row)) is not None:
                new.kept.append((move, hold))
                raise held_error(row.id)
        batch.move_all(moves)
        added: list[Entry] = []
        for entry in new.entries:
            there = live.get(entry.record.name or "")
            if there is None:
                added.append(entry)
            else:
                changed, stored = _in_place(entry, there, new.subject), new.stored[entry.record.id]
                differs = there.has_twins and stored.text_hash != there.text_hash
                twins = _find_twins(batch.tx, batch.number, changed.record) if differs else []
                self._rewrite(batch, there, changed, stored, maximum)
                self._rewrite_twins(batch, twins, changed, stored, maximum)
        for name, row in live.items():
            new.replaced[name] = PutOutcome(
                row.id, row.pack, None if new.puts[name].entry is None else row.revision + 1
            )
        return replace(new, entries=added)

    def _rows(
        self, batch: MoveBatch, new: _Insertion, *, counter: record_rows.ScopeCounter, book: Book
    ) -> list[tuple[Any, ...]]:
        """The rows of new records, as ``records.insert`` takes them."""
        tx, kind_name, kind_code = batch.tx, str(new.kind.name), new.kind.code
        rows: list[tuple[Any, ...]] = []
        last: tuple[Scope, str | None, Labels | None, int | None, str | None] | None = None
        profile, code = 0, None
        for record, (model, vectors, terms) in new.entries:
            metadata, content, body, size, text_hash = new.stored[record.id]
            scope, aged_from, derived_from = record.scope, record.aged_from, record.derived_from
            labels = labels_of(record.metadata) if book.is_selective else None
            about = (scope, record.id if record.id in book.singled else None, labels, record.ttl, model)
            if about != last:  # most are like the one before
                profile = self._profiles.find(tx, kind_name, *about[:3], ttl=record.ttl, book=book)
                code, last = self._model_code(tx, model), about
            rows.append(
                (
                    *(counter.new_key(), batch.number, kind_code, profile),
                    *(record.id, scope.agent_id, scope.session_id, record.name),
                    *(record.created_at, record.updated_at, record.dated_at),
                    *(record.dated_at if aged_from is None else aged_from, size, code, vectors, terms),
                    *(metadata, content, body, record.source, to_json(derived_from) if derived_from else None),
                    *(text_hash, record.ttl),
                )
            )
        return rows

    def replace(
        self,
        entry: Entry,
        *,
        from_cold: bool = False,
        agent: Scope | None = None,
        reason: str | None = None,
        with_twins: bool = False,
    ) -> Usage | None:
        record, kind = entry.record, TYPES[entry.record.kind]
        questions = partial(_questions, record, agent, with_twins=with_twins)
        with self._write_for(record.scope.subject, questions) as (tx, number), record_moves.unique(record.kind):
            record_moves.refuse_removed_agents(tx, [agent])
            row = record_moves.find_current(tx, record.id, number)
            if number is None or row is None or row.state not in LIVE or row.version != record.version:
                return None
            if (row.pack is not None) != from_cold:
                return None  # what lies in the object store is brought back before it is changed
            context = record_rows.read_context(tx, record.scope.subject, kind)
            stored = record_rows.to_stored(record.content, record.metadata, record.body)
            kept_out = record_rows.find_kept_out(tx, number, [stored.text_hash]) if context.keeps_out else {}
            if kept_out:
                raise kept_out_error(f"memory {record.id} was not changed", *kept_out.values())
            batch = MoveBatch(tx, record.scope.subject, number, now=record.updated_at, is_held=context.is_held)
            counter, limits = batch.counter(kind, context.counts), context.limits(kind)
            twins = _find_twins(tx, number, record) if with_twins and stored.text_hash != row.text_hash else []
            self._rewrite(batch, row, entry, stored, limits, reason=reason)
            self._rewrite_twins(batch, twins, entry, stored, limits)
            batch.save()
            return counter.usage(limits)

    def _rewrite_twins(
        self,
        batch: MoveBatch,
        twins: Iterable[record_rows.RecordRow],
        entry: Entry,
        stored: record_rows.Stored,
        maximum: tuple[int | None, int | None],
    ) -> None:
        """Let what said the same as a record, until that was corrected, say what it says now."""
        record, kind = entry.record, TYPES[entry.record.kind]
        for found in twins:
            there = record_moves.find_current(batch.tx, found.id, batch.number)
            grown = stored.size - (there.size if there else 0)
            if there is None or (there.pack is not None and excess(batch.counter(kind).usage(maximum), 0, grown)):
                continue  # there is no room to bring it back: what is archived is found by those alone who ask for it
            twin = record_rows.as_record(record.scope.subject, found)
            sources = tuple(one for one in record.derived_from if one != twin.id)
            origin = Origin(record.written_by, sources).fields(twin.scope.agent_id)
            now = record.updated_at
            changed = replace(twin, content=record.content, updated_at=now, aged_from=now, **origin)
            own = record_rows.to_stored(changed.content, changed.metadata, None)
            reason = f"it said the same as memory {record.id}, which was corrected"
            self._rewrite(batch, there, Entry(changed, entry.encoding), own, maximum, reason=reason)

    def _rewrite(
        self,
        batch: MoveBatch,
        row: CurrentRow,
        entry: Entry,
        stored: record_rows.Stored,
        maximum: tuple[int | None, int | None],
        *,
        reason: str | None = None,
    ) -> None:
        """Write a new version of a live record; the one before ends. One in cold storage is brought back with that."""
        tx, record, counter = batch.tx, entry.record, batch.counter(TYPES[entry.record.kind])
        batch.holds.check_stays(record, row.metadata)
        tx.later("versions.end", (record.updated_at, current_actor(), reason, row.key))
        if row.pack is not None:
            batch.bring_back(row, entry)
            row = record_moves.find_current(tx, record.id, batch.number) or row
        grown = stored.size - row.size
        if grown > 0 and (problem := excess(counter.usage(maximum), 0, grown)):
            raise refuse(record.kind, record.scope.user_id, problem)
        model, vectors, terms = entry.encoding
        found_by = (self._model_code(tx, model), vectors, terms)
        texts = (stored.metadata, stored.content, stored.body)
        listed = to_json(record.derived_from) if record.derived_from else None
        life = (stored.text_hash, record.ttl, record.aged_from if record.ttl is None else record.updated_at)
        origin = (record.source, listed)
        tx.later("records.replace", (record.updated_at, stored.size, *found_by, *texts, *origin, *life, row.key))
        if record.name != row.name:
            tx.run("records.rename", (record.name, row.key))  # it may be taken
        from holdfast.storage.relational.attachments import is_long, trim

        if is_long(row) and batch.holds.covering(row) is None:
            trim(batch, row)
        is_same = stored.metadata == row.metadata
        if record.ttl != row.ttl or not (is_same or labels_of(record.metadata) == labels_of(json.loads(row.metadata))):
            self._relabel(tx, record, row.key)
        if listed != row.derived_from:
            record_rows.note_other_derivations(tx, batch.number, row.key, record.derived_from)
        counter.count(0, grown)
        batch.shift(TYPES[record.kind], row.state, 0, grown)
        counter.note_change(record.id)

    def refresh(
        self, subject: Subject, kind: Kind, record_ids: Sequence[str], *, now: int, agent: Scope | None = None
    ) -> int:
        with self._database.write(subject) as tx:
            number = tx.number_of(subject)
            record_moves.refuse_removed_agents(tx, [agent])
            asked = (now, number, to_json(record_ids))
            found = [] if number is None else tx.all(RefreshedRow, "records.refreshable", asked)
            if number is not None and found:
                tx.run_many("records.refresh", [(now, row.key) for row in found])
                counter = record_rows.ScopeCounter(tx, number, kind)
                for row in found:
                    counter.note_change(row.id)
                counter.save()
            return len(found)

    def _relabel(self, tx: Transaction, record: Record, key: int) -> None:
        """Let other rules apply to a record whose labels, or whose time to live, have changed."""
        book = self._profiles.book(tx, record.scope.tenant)
        labels = labels_of(record.metadata) if book.is_selective else None
        about = (record.kind.value, record.scope, record.id, labels)
        profile = self._profiles.find(tx, *about, ttl=record.ttl, book=book)
        tx.run("rules.assign_record", (profile, key))

    def recycle(
        self, scope: Scope, record_id: str, check: Callable[[Record | None], Record], *, reason: str, now: int
    ) -> Recycled:
        subject = scope.subject

        def questions(number: int) -> list[Question]:
            moved = record_moves.questions(scope, subject, [record_id], number)
            return [*moved, ("records.get", (number, subject, record_id)), ("records.is_source", (number, record_id))]

        with self._write_for(subject, questions) as (tx, known):
            number = known or 0
            record_moves.refuse_removed_agents(tx, [scope])
            row = tx.find(record_rows.RecordRow, "records.get", (number, subject, record_id))
            record = check(None if row is None else record_rows.as_record(subject, row))
            is_source = tx.find(int, "records.is_source", (number, record_id)) is not None
            batch = MoveBatch(tx, subject, number, now=now)
            states = (record.id, record.version, record.state, State.RECYCLED)
            outcome = batch.move(Move(*states, reason, purge_at=now + BIN))
            batch.save()
            return Recycled(record, outcome, is_source)

    def transition(
        self, subject: Subject, moves: Sequence[Move], *, now: int, agent: Scope | None = None
    ) -> list[Outcome]:
        questions = partial(record_moves.questions, agent, subject, [move.id for move in moves])
        with self._write_for(subject, questions) as (tx, _):
            record_moves.refuse_removed_agents(tx, [agent])
            return record_moves.transition(tx, [(subject, moves)], record_moves.move_records, now=now)[0]

    @property
    def writers(self) -> int:
        return self._database.writers

    def transition_all(
        self,
        batches: Sequence[tuple[Subject, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        return record_moves.transition_all(
            self._database, batches, record_moves.move_records, now=now, lease=lease, rules=rules
        )

    def usage(self, subject: Subject, kind: Kind) -> Usage:
        (context,) = self._database.ask(record_rows.WriteContext, *record_rows.context_query(subject, kind, ()))
        return Usage(context.memories, context.bytes, *context.limits(kind))

    def set_quota(
        self, tenant: str, user_id: str | None, kind: Kind, limits: Mapping[str, int | None]
    ) -> dict[str, int | None]:
        who = (tenant, user_id or "", kind.code)
        with self._database.govern(tenant) as tx:
            quota = tx.find(QuotaRow, "records.quota", who) or QuotaRow(None, None)
            tx.run("records.put_quota", (*who, *quota._replace(**limits)))
            return quota._asdict()


def _without(new: _Insertion, left_out: Mapping[str, str]) -> _Insertion:
    return replace(new, entries=[one for one in new.entries if one.record.id not in left_out])


def _questions(record: Record, agent: Scope | None, number: int, *, with_twins: bool) -> list[Question]:
    """What will be asked when a record is changed."""
    kind = TYPES[record.kind]
    return [
        *([] if agent is None else [("records.removed_agent", (agent.tenant, agent.agent_id))]),
        ("records.current", (record.id, number)),
        record_rows.context_query(record.scope.subject, kind, ()),
        *([_twins_question(number, record)] if with_twins and kind.is_text else []),
    ]


def _twins_question(number: int, record: Record) -> Question:
    """How is asked for what says the same as a record, which is to say something else."""
    kind = TYPES[record.kind]
    agent = record.scope.agent_id if "agent" in kind.scope else None
    return "records.twins", (number, record.id, kind.code, record.updated_at, agent)


def _find_twins(tx: Transaction, number: int, record: Record) -> list[record_rows.RecordRow]:
    is_text = TYPES[record.kind].is_text
    return tx.all(record_rows.RecordRow, *_twins_question(number, record)) if is_text else []


def _hash_texts(new: _Insertion) -> dict[str, int]:
    """The hashes of new texts, by the records' ids. What has a name of its own is never the same as another."""
    named = new.kind.has_names
    return {one.id: new.stored[one.id].text_hash for one, _ in new.entries if not (one.name and named)}


def _find_kept_out(tx: Transaction, number: int, new: _Insertion) -> dict[str, str]:
    """The entries whose texts are kept out, with the memories that were deleted for it."""
    hashes = [(record.id, new.stored[record.id].text_hash) for record, _ in new.entries]
    hashes += [(record.id, hash_text(text)) for record, _ in new.entries for text in texts_within(record.body)]
    kept = record_rows.find_kept_out(tx, number, {text_hash for _, text_hash in hashes})
    return {record_id: kept[text_hash] for record_id, text_hash in hashes if text_hash in kept}


def _agent_of(new: _Insertion) -> str | None:
    """The agent that new records of some kinds are of; ``None`` where they are the user's."""
    return new.entries[0].record.scope.agent_id if "agent" in new.kind.scope else None


def _expect_instead(tx: Transaction, number: int, context: record_rows.WriteContext) -> None:
    if tx.instead is not None:
        tx.expect(context.after(number, context.counts_after(tx.instead)))


def _was_done(tx: Transaction, number: int, new: _Insertion) -> bool:
    """Whether an insertion was made already: its first record is there, or another has taken that one's place."""
    from holdfast.storage.relational.attachments import find_rewritten

    for row in find_rewritten(tx, number, new.kind, [*new.puts], new.now) if new.puts else ():
        new.replaced[row.name] = PutOutcome(row.id, None, row.revision)
    first = new.entries[0].record.id if new.entries else ""
    return bool(new.replaced) or record_moves.find_current(tx, first, number) is not None


def _found_instead(new: _Insertion, added: Added, context: record_rows.WriteContext, instead: Instead) -> Added:
    """What an insert comes to that found another record, or has changed it."""
    (own,) = (record.id for record, _ in new.entries)
    counts = context.counts_after(instead)
    usage = added.usage._replace(memories=counts.memories, bytes=counts.bytes)
    for name in new.puts:
        new.replaced[name] = PutOutcome(instead.id, None, instead.revision)
    if new.puts:
        return added._replace(usage=usage)
    return added._replace(usage=usage, found={own: instead.id}, ended=frozenset([] if instead.revision else [own]))


def _make_room(batch: MoveBatch, new: _Insertion, maximum: tuple[int | None, int | None], size: int) -> None:
    """Make room for new records of so many bytes, or raise what says that there is none."""
    counter = batch.counter(new.kind)
    batch.recycle_expired(new.kind)
    while problem := excess(counter.usage(maximum), len(new.entries), size):
        moved, oldest = batch.prune_oldest(new.kind) if new.prune else ([], None)
        new.pruned.extend(moved)
        if not moved and oldest is not None:
            new.kept.append(oldest)
            raise refuse(new.kind.name, new.subject.user_id, problem, hold=oldest[1])
        if not moved:
            raise refuse(new.kind.name, new.subject.user_id, problem, pruned=new.prune)


def _to_stored(entries: Sequence[Entry]) -> dict[str, record_rows.Stored]:
    """The stored forms of records' texts, by the records' ids."""
    return {one.id: record_rows.to_stored(one.content, one.metadata, one.body) for one, _ in entries}


def _in_place(entry: Entry, row: CurrentRow, subject: Subject) -> Entry:
    """A new record as the next version of the one whose place it takes."""
    scope = scope_of(subject, row.agent_id, row.session_id)
    source = None if entry.record.written_by == agent_source(row.agent_id) else entry.record.written_by
    now = entry.record.updated_at
    record = replace(entry.record, id=row.id, scope=scope, source=source, version=row.version, aged_from=now)
    return entry._replace(record=record)


def _unexpected(kind: Kind, put: Put, version: int) -> StaleError:
    """The error for a put that relies on what is not so."""
    what = f"{kind.name} memory {(put.name or '').replace(NAME_SEPARATOR, '/')!r}"
    if not put.expected:
        return StaleError(f"{what} is there already, at version {version}; nothing was written")
    now = f"is at version {version}" if version else "is not there any more"
    return StaleError(f"{what} {now}, not at version {put.expected}; nothing was written; read it again and retry")
