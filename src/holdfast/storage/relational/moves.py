"""Moves: the one place where a stored record changes its state, with holds, counts and the audit chain."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Held, Hold, excess, find_hold, prune_count
from holdfast.core.errors import ConflictError, HeldError, QuotaExceededError, StaleError
from holdfast.core.records import (
    BIN,
    HISTORY,
    LIVE,
    NEXT,
    Cause,
    Entry,
    Keeping,
    Kind,
    MemoryType,
    Move,
    Outcome,
    Record,
    Scope,
    State,
    Subject,
)
from holdfast.core.values import to_json
from holdfast.ports.conversations import SessionWindow
from holdfast.ports.coordination import Lease
from holdfast.ports.registry import removed_agent
from holdfast.storage.relational import audit
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import DuplicateError, Question, Transaction, Transactions
from holdfast.storage.relational.rows import (
    KINDS,
    Counts,
    ScopeCounter,
    Stored,
    find_kept_out,
    key_range,
    read_context,
    scope_number,
    to_stored,
)
from holdfast.storage.relational.rules import check_rules

#: So many alike removals are worth a statement of their own.
_MANY: Final = 8
#: Why something does not come back, as the audit chain says it.
REFUSALS: Final = {
    Outcome.TAKEN: "another goes by its name",
    Outcome.FULL: "the quota has no room for it",
    Outcome.PARTED: "its agent is in the recycle bin",
    Outcome.KEPT_OUT: "its text is kept out",
}
_PLAIN: Final = frozenset({State.RECYCLED, State.DELETING, State.DELETED})
#: Where each state is counted in a scope's row, beside what is live; what is being deleted is in the bin still.
_COUNTED: Final = {State.ARCHIVED: 0, State.RECYCLED: 2, State.DELETING: 2}


class CurrentRow(NamedTuple):
    """A record as a move finds it; its metadata only where there are holds to ask."""

    key: int
    kind: int
    state: State
    version: int
    size: int
    agent_id: str
    session_id: str | None
    metadata: str
    pack: int | None
    name: str | None
    derived_from: str | None
    id: str
    ttl: int | None
    revision: int
    text_hash: int
    most_versions: int | None
    """How many ended versions its rules keep; ``None``: all."""
    is_over: bool = False
    """Whether its time is over, where that was asked."""
    has_twins: bool = True
    """Whether others may have its text."""


class MovedRow(NamedTuple):
    """A record that was moved with others like it."""

    id: str
    kind: int
    size: int
    pack: int | None


#: What a statement found of records, or moved; ``None`` if there was none to ask.
Found = list[CurrentRow] | list[MovedRow] | None


class Holds:
    """The holds that may cover something of a subject."""

    def __init__(self, tx: Transaction, subject: Subject, *, is_held: bool = True) -> None:
        self._user_id = subject.user_id
        self.active = tx.all(Hold, *self.question(subject)) if is_held else []

    @staticmethod
    def question(subject: Subject) -> Question:
        """How they are asked for."""
        return "records.active_holds", (subject.tenant, subject.user_id)

    def find(self, agent_id: str, session_id: str | None, item_id: str, metadata: str = "{}") -> Hold | None:
        """The hold that covers something, if one does; by its metadata as it is stored."""
        if not self.active:
            return None
        return find_hold(Held(self._user_id, agent_id, session_id, item_id, json.loads(metadata)), self.active)

    def check_stays(self, record: Record, metadata: str) -> None:
        """``HeldError`` if a change of its metadata would take a record out of a hold that it is under."""
        if not self.active:
            return
        scope = record.scope
        was = Held(scope.user_id, scope.agent_id, scope.session_id, record.id, json.loads(metadata))
        for hold in self.active:
            if hold.covers(was) and not hold.covers(was._replace(metadata=record.metadata)):
                raise HeldError(
                    f"memory {record.id} is kept by hold {hold.id} for its tag {hold.tag!r}, and was not changed: "
                    f"leave the tag in its metadata, or release the hold first: holdfast hold release {hold.id}"
                )

    def covering(self, row: CurrentRow) -> Hold | None:
        """The hold that covers a record."""
        return self.find(row.agent_id, row.session_id, row.id, row.metadata)


class MoveBatch:
    """Moves records of one subject within one transaction; ``save`` writes what goes with them."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, *, now: int, is_held: bool = True) -> None:
        self.tx = tx
        self.subject = subject
        self.number = number
        self.now = now
        self.holds = Holds(tx, subject, is_held=is_held)
        self.ended: list[SessionWindow] = []
        """The short-term windows that end with conversations that were moved."""
        self._counters: dict[int, ScopeCounter] = {}
        self._events: list[Event] = []
        self._models: dict[str | None, int | None] = {}
        self._packs: dict[int, bool] = {}
        self._limits: dict[int, tuple[int | None, int | None]] = {}
        self._notes: dict[tuple[Any, ...], tuple[Action, dict[str, Any]]] = {}
        self._moved: dict[tuple[Any, ...], int] = defaultdict(int)
        self._shifts: dict[int, list[int]] = {}
        self._kept: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)

    def counter(self, kind: Kind, counts: Counts | None = None) -> ScopeCounter:
        """The counting row of a kind."""
        if kind.code not in self._counters:
            self._counters[kind.code] = ScopeCounter(self.tx, self.number, kind, counts)
        return self._counters[kind.code]

    def shift(self, kind: Kind, state: State, records: int, size: int) -> None:
        """Count records that came into a state (or left it), and their bytes; what is live is counted apart."""
        place = _COUNTED.get(state)
        if place is not None:
            counts = self._shifts.setdefault(kind.code, [0, 0, 0, 0])
            counts[place] += records
            counts[place + 1] += size

    def move(self, move: Move) -> Outcome:
        """Carry out a move, or say why not."""
        row = find_current(self.tx, move.id, self.number)
        if row is not None and row.kind not in self._counters:
            self.counter(KINDS[row.kind], self.tx.find(Counts, "records.scope_of", (move.id, self.number)))
        outcome = self._move(move, row)
        self._write_kept()
        return outcome

    def _move(self, move: Move, row: CurrentRow | None) -> Outcome:
        """The same for a record as it stands."""
        if row is None or (row.state, row.version) != (move.source, move.version):
            return Outcome.STALE
        if move.target not in NEXT[move.source] or (move.target is State.DELETED and row.pack is not None):
            return Outcome.STALE  # in the latter case, part of it still lies elsewhere
        kind = KINDS[row.kind]
        if move.target in LIVE and move.source not in LIVE:
            if "agent" in kind.scope and removed_until(self.tx, self.subject.tenant, row.agent_id) is not None:
                return self.answer(move, kind.name.value, Outcome.PARTED)
            if find_kept_out(self.tx, self.number, [row.text_hash]):
                return self.answer(move, kind.name.value, Outcome.KEPT_OUT)
            self.free_names(kind, [row.name])
        if _is_removal(move) and (hold := self.holds.covering(row)) is not None:
            self.refuse(move, kind.name.value, hold=hold.id)
            return Outcome.HELD
        return self.answer(move, kind.name.value, self._carry_out(move, kind, row))

    def bring_back(self, row: CurrentRow, entry: Entry) -> None:
        """Bring a record back from cold storage within the transaction that changes it; its age counts anew."""
        record = entry.record
        kept = Keeping(record.content, None, record.metadata, entry.encoding, None)
        states = (row.id, row.version, row.state, State.ACTIVE)
        why = "brought back from cold storage, to be changed"
        outcome = self.move(Move(*states, why, Cause.RESTORE, aged_from=record.updated_at, keeping=kept))
        if outcome is Outcome.FULL:
            raise QuotaExceededError(
                f"memory {record.id} cannot be brought back from cold storage and changed: the quota for {record.kind} "
                f"memories of user {record.scope.user_id!r} has no room for it; delete old memories or upgrade the "
                "quota first"
            )
        if outcome is not Outcome.DONE:
            raise StaleError(f"memory {record.id} was changed by another writer meanwhile; try again")

    def move_all(self, moves: Sequence[Move]) -> list[Outcome]:
        """Carry out moves in their order, or say why not."""
        return self.carry_out(moves, self.find_all(self.question(moves)))

    def question(self, moves: Sequence[Move], least: int = _MANY) -> Question | None:
        """The one statement that looks up many records that are to be archived, or carries out many alike removals with
        no hold to ask for; ``None`` if there is none for these moves.
        """
        if len(moves) < least or len({move.id for move in moves}) < len(moves):
            return None
        if all(move.target is State.ARCHIVED for move in moves):
            return "records.current_all", (to_json([move.id for move in moves]), self.number, bool(self.holds.active))
        first = moves[0]
        alike = first.target in _PLAIN and first.target in NEXT[first.source] and first.keeping is None
        if not alike or self.holds.active or any(move[2:] != first[2:] for move in moves):
            return None
        listed = to_json([[move.id, move.version] for move in moves])
        if first.target is State.DELETED:
            return "records.erase_all", (listed, self.number, first.source)
        how = (first.target, self.now, first.reason, first.purge_at, first.bundle, first.aged_from)
        return "records.move_all", (*how, listed, self.number, first.source)

    def find_all(self, question: Question | None) -> Found:
        """What that statement gives."""
        if question is None:
            return None
        is_look = question[0] == "records.current_all"
        return self.tx.all(CurrentRow, *question) if is_look else self.tx.all(MovedRow, *question)

    def needs(self, moves: Sequence[Move], found: Found) -> Iterator[Question]:
        """What will be asked when moves are carried out."""
        for code in {row.kind for row in found or ()} - self._counters.keys():
            yield "records.scope", (scope_number(self.number, KINDS[code]),)
        kept = [move.keeping for move in moves if move.keeping is not None]
        for number in {keeping.pack for keeping in kept} - {None}:
            yield "packs.is_writing", (self.number, number)
        for model in {keeping.encoding.model for keeping in kept} - {None}:
            yield "records.model", (model,)

    def carry_out(self, moves: Sequence[Move], found: Found) -> list[Outcome]:
        """Carry out moves by what was found for them."""
        if found is None:
            return [self.move(move) for move in moves]
        known: dict[str, Any] = {row.id: row for row in found}
        if moves[0].target is State.ARCHIVED:
            outcomes = [self._move(move, known.get(move.id)) for move in moves]
            self._write_kept()
            return outcomes
        if moves[0].target is State.DELETING:
            for number in sorted({row.pack for row in known.values()} - {None}):
                self.tx.later("packs.mark_stale", (self.number, number))
        for move in moves:
            if move.id in known:
                self._note_removal(move, known[move.id])
        return [Outcome.DONE if move.id in known else Outcome.STALE for move in moves]

    def _note_removal(self, move: Move, row: MovedRow) -> None:
        """What goes with a removal that has been written."""
        kind = KINDS[row.kind]
        if move.source in LIVE:
            counter = self.counter(kind)
            counter.count(-1, -row.size)
            counter.note_change(move.id)
        self.shift(kind, move.source, -1, -row.size)
        self.shift(kind, move.target, 1, row.size)
        if kind.has_facts and move.target is State.DELETED:
            self.tx.run("records.forget_facts", (self.number, move.id))
        self._note(move, kind.name.value)

    def move_session(self, move: Move, hold: Hold | None, carry_out: Callable[[], Outcome]) -> Outcome:
        """Carry out a move of a conversation in the way given, unless it is a removal and a hold stands."""
        if hold is not None and _is_removal(move):
            self.refuse(move, HISTORY, hold=hold.id)
            return Outcome.HELD
        outcome = carry_out()
        if outcome is Outcome.DONE:
            self._note(move, HISTORY)
        return self.answer(move, HISTORY, outcome)

    def free_names(self, kind: Kind, names: Sequence[str | None]) -> dict[str, CurrentRow]:
        """The live records that go by these names. One whose time is over is recycled, for its name is wanted, nobody
        can see it, and no sweep has come yet. If a hold keeps it, it stays where it is, and gives up its name alone.
        """
        wanted = [name for name in names if name is not None]
        if not wanted:
            return {}
        found = self.tx.all(CurrentRow, "records.named", (self.number, kind.code, to_json(wanted), self.now))
        for row in found:
            if row.is_over and self.holds.covering(row) is not None:
                self.tx.run("records.rename", (None, row.key))
            elif row.is_over:
                self._move(self.to_bin(row, "its time was over, and its name was wanted", Cause.RULE), row)
        return {str(row.name): row for row in found if not row.is_over}

    def recycle_expired(self, kind: Kind) -> None:
        """Recycle what is past its time and no sweep has come for yet: it is not to keep what is new from its place."""
        for row in self.tx.all(CurrentRow, "records.expired", (*key_range(self.number, kind), self.now)):
            self._move(self.to_bin(row, "its time was over, and its place was wanted", Cause.RULE), row)

    def prune_oldest(self, kind: Kind) -> tuple[list[str], tuple[Move, Hold] | None]:
        """Recycle the oldest tenth of a scope's live records that nothing keeps; those that went, and the oldest that a
        hold kept from it.
        """
        most = prune_count(self.counter(kind).memories)
        moved: list[str] = []
        kept: tuple[Move, Hold] | None = None
        limit = -1 if self.holds.active else most
        for row in self.tx.all(CurrentRow, "records.oldest", (*key_range(self.number, kind), self.now, limit)):
            if len(moved) == most:
                break
            move = self.to_bin(row, "pruned: the quota was reached", Cause.PRUNE)
            hold = self.holds.covering(row)
            if hold is not None:
                kept = kept or (move, hold)
            elif self._move(move, row) is Outcome.DONE:
                moved.append(row.id)
        return moved, kept

    def to_bin(self, row: CurrentRow, reason: str, cause: Cause) -> Move:
        """The move of a live record to the recycle bin."""
        return Move(row.id, row.version, row.state, State.RECYCLED, reason, cause, purge_at=self.now + BIN)

    def _carry_out(self, move: Move, kind: Kind, row: CurrentRow) -> Outcome:
        counter = self.counter(kind)
        entering = (move.target in LIVE) - (move.source in LIVE)
        keeping = move.keeping
        texts = None if keeping is None else (keeping.content, keeping.metadata, keeping.body)
        stored = None if texts is None else to_stored(*texts, row.text_hash)  # that of the whole text stays
        grown = 0 if stored is None else stored.size - row.size
        wanted = row.size + grown if entering > 0 else grown
        if entering > 0 or grown > 0:
            if kind.code not in self._limits:
                self._limits[kind.code] = read_context(self.tx, self.subject, kind).limits(kind)
            if excess(counter.usage(self._limits[kind.code]), max(0, entering), wanted):
                return Outcome.FULL
        if keeping is not None and not self._can_fill(keeping.pack):
            return Outcome.STALE  # the object was given up meanwhile
        try:
            is_named = row.name is not None  # only names can be taken
            with self.tx.attempt() if entering > 0 and is_named else nullcontext():
                self._write(move, kind, row.key, stored)
        except DuplicateError:
            return Outcome.TAKEN
        if row.pack is not None and (keeping is not None or move.target is State.DELETING):
            self.tx.run("packs.mark_stale", (self.number, row.pack))
        if move.source in LIVE or move.target in LIVE:
            counter.count(entering, entering * row.size + (grown if move.target in LIVE else 0))
            counter.note_change(move.id)
        self.shift(kind, move.source, -1, -row.size)
        self.shift(kind, move.target, 1, row.size + grown)
        self._note(move, kind.name.value)
        return Outcome.DONE

    def _write(self, move: Move, kind: Kind, key: int, stored: Stored | None) -> None:
        if move.target is State.DELETED:
            self.tx.run("records.erase", (key,))
            if kind.has_facts:
                self.tx.run("records.forget_facts", (self.number, move.id))
            return
        values = (move.target, self.now, move.reason, move.purge_at, move.bundle, move.aged_from)
        if move.keeping is None or stored is None:
            self.tx.later("records.move", (*values, key))
            return
        encoding = move.keeping.encoding
        if encoding.model not in self._models:
            self._models[encoding.model] = model_code(self.tx, encoding.model)
        model = self._models[encoding.model]
        texts = (stored.metadata, stored.content, stored.body)
        kept = (key, stored.size, encoding.vectors, encoding.terms, *texts)
        self._kept[self.number, *values, move.keeping.pack, model].append(kept)
        if move.source not in LIVE:  # it may find its name taken; what is live already takes none that it has not
            self._write_kept()

    def _write_kept(self) -> None:
        """Write what stays of records, those of the same move together."""
        kept, self._kept = self._kept, defaultdict(list)
        for shared, rows in kept.items():
            self.tx.run_rows("records.move_keeping", shared, rows)

    def _can_fill(self, number: int | None) -> bool:
        """Whether a pack that a record is to lie in is still there to take it."""
        if number is not None and number not in self._packs:
            self._packs[number] = self.tx.find(int, "packs.is_writing", (self.number, number)) is not None
        return number is None or self._packs[number]

    def _note(self, move: Move, kind: str) -> None:
        about = (kind, *move[2:7])
        if about not in self._notes:
            detail = _describe(move, kind, reason=move.reason)
            if move.rule is not None:
                detail["rule"] = move.rule
            self._notes[about] = (_action(move), detail)
        action, detail = self._notes[about]
        self._events.append(Event(self.now, action, move.id, detail))
        self._moved[about] += 1

    def answer(self, move: Move, kind: str, outcome: Outcome) -> Outcome:
        """An outcome itself; where it is that something does not come back, that is written down."""
        if outcome in REFUSALS and not _is_removal(move):
            self.refuse(move, kind, reason=REFUSALS[outcome])
        return outcome

    def refuse(self, move: Move, kind: str, **why: str) -> None:
        """Write down that a record, or a conversation, was not moved."""
        self._events.append(Event(self.now, Action.REFUSED, move.id, _describe(move, kind, **why)))

    def save(self) -> None:
        """Write the counts, the list of changes and the audit chain."""
        save_all(self.tx, [self])

    @property
    def events(self) -> tuple[int, list[Event]]:
        """What the audit chain is to say, and whose that is."""
        return self.number, self._events

    def count_all(self) -> None:
        """Write the counts and the list of changes."""
        for counter in self._counters.values():
            counter.save()
        for code, counts in self._shifts.items():
            if any(counts):
                self.tx.later("figures.count_states", (scope_number(self.number, KINDS[code]), *counts))
        for (kind, _, target, _, cause, _), count in self._moved.items():
            self.tx.later("records.count_moves", (self.number, kind, target, cause, count))


#: Moves of one subject, and what carries them out.
MovesOf = tuple[MoveBatch, Sequence[Move]]


def save_all(tx: Transaction, batches: Sequence[MoveBatch]) -> None:
    """Write what goes with the moves of several subjects."""
    for batch in batches:
        batch.count_all()
    audit.append_all(tx, (batch.events for batch in batches))


def move_records(batches: Sequence[MovesOf]) -> list[list[Outcome]]:
    """Carry out moves of records of several subjects, in few round trips."""
    if not batches:
        return []
    (first, _), *others = batches
    tx, least = first.tx, 1 if others else _MANY
    questions = [batch.question(moves, least) for batch, moves in batches]
    tx.ask_ahead(question for question in questions if question is not None)
    found = [batch.find_all(question) for (batch, _), question in zip(batches, questions, strict=True)]
    asked = zip(batches, found, strict=True)
    tx.ask_ahead(need for (batch, moves), rows in asked for need in batch.needs(moves, rows))
    return [batch.carry_out(moves, rows) for (batch, moves), rows in zip(batches, found, strict=True)]


def transition(
    tx: Transaction,
    batches: Sequence[tuple[Subject, Sequence[Move]]],
    move_all: Callable[[Sequence[MovesOf]], list[list[Outcome]]],
    *,
    now: int,
    rules: int | None = None,
) -> list[list[Outcome]]:
    """Carry out moves of subjects in the way given; ``RulesChangedError`` if they were decided by other rules."""
    numbers = tx.numbers_of([subject for subject, _ in batches])
    for tenant in sorted({subject.tenant for subject, _ in batches}):
        check_rules(tx, tenant, rules)
    known = [
        (subject, number, moves)
        for (subject, moves), number in zip(batches, numbers, strict=True)
        if number is not None
    ]
    tx.ask_ahead(Holds.question(subject) for subject, *_ in known)
    made = [(MoveBatch(tx, subject, number, now=now), moves) for subject, number, moves in known]
    moved = iter(move_all(made))
    save_all(tx, [batch for batch, _ in made])
    answers = zip(batches, numbers, strict=True)
    return [[Outcome.STALE for _ in moves] if number is None else next(moved) for (_, moves), number in answers]


def transition_all(
    database: Transactions,
    batches: Sequence[tuple[Subject, Sequence[Move]]],
    move_all: Callable[[Sequence[MovesOf]], list[list[Outcome]]],
    *,
    now: int,
    lease: Lease | None,
    rules: int | None,
) -> list[list[Outcome]]:
    """The same in a transaction of their own, as long as the lease is current."""
    with database.write() as tx:
        check_lease(tx, lease)
        return transition(tx, batches, move_all, now=now, rules=rules)


def questions(scope: Scope | None, subject: Subject, record_ids: Sequence[str], number: int) -> list[Question]:
    """What will be asked when records of a subject are moved, by a scope's agent."""
    few = record_ids if len(record_ids) < _MANY else ()
    return [
        *([] if scope is None else [("records.removed_agent", (scope.tenant, scope.agent_id))]),
        Holds.question(subject),
        *(("records.current", (record_id, number)) for record_id in few),
        *(("records.scope_of", (record_id, number)) for record_id in few[:1]),
        *audit.questions([number]),
    ]


def removed_until(tx: Transaction, tenant: str, agent_id: str) -> int | None:
    """Until when an agent is in the recycle bin; ``None`` if it is not there."""
    return tx.find(int, "records.removed_agent", (tenant, agent_id))


def refuse_removed_agents(tx: Transaction, scopes: Iterable[Scope | None]) -> None:
    """Raise ``AgentRemovedError`` where an agent is in the recycle bin."""
    for tenant, agent_id in {(scope.tenant, scope.agent_id) for scope in scopes if scope is not None}:
        until = removed_until(tx, tenant, agent_id)
        if until is not None:
            raise removed_agent(agent_id, until)


def find_current(tx: Transaction, record_id: str, number: int | None) -> CurrentRow | None:
    """A subject's record as it is now."""
    return tx.find(CurrentRow, "records.current", (record_id, number))


def _is_removal(move: Move) -> bool:
    """Whether a hold forbids it. What was claimed before a hold stood has begun to go, and is finished."""
    back = move.target in LIVE and (move.source is State.RECYCLED or move.target is State.ACTIVE)
    return not back and move.source is not State.DELETING


def _action(move: Move) -> Action:
    if move.target in LIVE and move.source is State.RECYCLED:
        return Action.RESTORED
    return Action.REHYDRATED if move.target is State.ACTIVE else Action(move.target.value)


def known_model(tx: Transaction, model: str) -> int | None:
    """The code of a model that has been seen before."""
    return tx.find(int, "records.model", (model,))


def model_code(tx: Transaction, model: str | None) -> int | None:
    """The code of a model, seen before or not."""
    if model is None:
        return None
    code = known_model(tx, model)
    return code if code is not None else tx.number("records.new_model", (model,))


def unique(kind: MemoryType) -> _Conflict:
    """A second record of the same id or name is a conflict, not a failure of the store."""
    return _Conflict(kind)


class _Conflict:
    """That, around a block. Every write passes here, so that it is no generator."""

    __slots__ = ("_kind",)

    def __init__(self, kind: MemoryType) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, DuplicateError):
            raise ConflictError(f"another {self._kind} memory has this id, or goes by this name already") from problem


def _describe(move: Move, kind: str, **more: str) -> dict[str, Any]:
    """What an audit entry says of a move."""
    about = {"from": move.source.value, "to": move.target.value, "cause": move.cause.value}
    return {"kind": kind, **about, **more}
