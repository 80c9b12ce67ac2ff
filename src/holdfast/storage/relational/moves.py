"""Moves: the one place where a stored record changes its state, with holds, counts and the audit chain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Hold, excess, prune_count
from holdfast.core.errors import ConflictError, QuotaExceededError, StaleError
from holdfast.core.records import (
    BIN,
    HISTORY,
    LIVE,
    NEXT,
    Cause,
    Encoding,
    Entry,
    Keeping,
    Kind,
    MemoryType,
    Move,
    Outcome,
    Scope,
    State,
    Subject,
)
from holdfast.core.values import to_json
from holdfast.ports.registry import removed_agent
from holdfast.storage.relational import audit
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import DuplicateError, Question, RowType, Transaction, Transactions
from holdfast.storage.relational.rows import (
    KINDS,
    Counts,
    CurrentRow,
    ScopeCounter,
    Stored,
    find_kept_out,
    key_range,
    known_model,
    read_context,
    scope_number,
    to_stored,
)
from holdfast.storage.relational.rules import NO_HOLDS, Holds, check_rules

if TYPE_CHECKING:
    from holdfast.ports.conversations import SessionWindow
    from holdfast.ports.coordination import Lease

#: So many alike removals are worth a statement of their own.
_MANY: Final = 8
#: Why something does not come back, as the audit chain says it.
REFUSALS: Final = {
    Outcome.TAKEN: "another goes by its name",
    Outcome.FULL: "the quota has no room for it",
    Outcome.PARTED: "its agent is in the recycle bin",
    Outcome.KEPT_OUT: "its text is kept out",
}
_NO_TEXT: Final = Keeping("", None, {}, Encoding(None, None, b""), None)
_PLAIN: Final = frozenset({State.RECYCLED, State.DELETING, State.DELETED})
#: Where each state is counted in a scope's row, beside what is live; what is being deleted is in the bin still.
_COUNTED: Final = {State.ARCHIVED: 0, State.RECYCLED: 2, State.DELETING: 2}


class MovedRow(NamedTuple):
    """A record that was moved with others like it."""

    id: str
    kind: int
    size: int
    pack: int | None


class PlaceRow(NamedTuple):
    """A record that is to be archived with others like it, as it is found."""

    key: int
    kind: int
    state: State
    version: int
    size: int
    id: str


#: What a statement found of records, or moved; ``None`` if there was none to ask.
Found = list[CurrentRow] | list[MovedRow] | list[PlaceRow] | None
#: Which rows each of these statements gives.
_ROWS: Final[dict[str, RowType[Any]]] = {"records.current_all": CurrentRow, "records.places": PlaceRow}
#: The codes of models, by their names.
Models = dict[str | None, int | None]


class MoveBatch:
    """Moves records of one subject within one transaction; ``save`` writes what goes with them."""

    def __init__(
        self,
        tx: Transaction,
        subject: Subject,
        number: int,
        *,
        now: int,
        is_held: bool = True,
        models: Models | None = None,
    ) -> None:
        self.tx = tx
        self.subject = subject
        self.number = number
        self.now = now
        self.holds = Holds(tx, subject) if is_held else NO_HOLDS
        self.ended: list[SessionWindow] = []
        """The short-term windows that end with conversations that were moved."""
        self._counters: dict[int, ScopeCounter] = {}
        self._events: list[Event] = []
        self._models: Models = {} if models is None else models
        self._packs: dict[int, bool] = {}
        self._limits: dict[int, tuple[int | None, int | None]] = {}
        self._notes: dict[tuple[Any, ...], tuple[Action, dict[str, Any]]] = {}
        self._moved: dict[tuple[Any, ...], int] = defaultdict(int)
        self._shifts: dict[int, list[int]] = {}
        self._kept: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)

    def counter(self, kind: Kind, counts: Counts | None = None) -> ScopeCounter:
        """The counting row of a kind."""
        counter = self._counters.get(kind.code)
        if counter is None:
            counter = self._counters[kind.code] = ScopeCounter(self.tx, self.number, kind, counts)
        return counter

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
            listed = to_json([move.id for move in moves])
            if not self.holds.active and _are_alike(moves):
                return "records.places", (listed, self.number)
            return "records.current_all", (listed, self.number, bool(self.holds.active))
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
        return self.tx.all(_ROWS.get(question[0], MovedRow), *question)

    def needs(self, moves: Sequence[Move], found: Found) -> Iterator[Question]:
        """What will be asked when moves are carried out."""
        for code in {row.kind for row in found or ()} - self._counters.keys():
            yield "records.scope", (scope_number(self.number, KINDS[code]),)
        kept = [move.keeping for move in moves if move.keeping is not None]
        for number in {keeping.pack for keeping in kept} - {None}:
            yield "packs.is_writing", (self.number, number)

    def carry_out(self, moves: Sequence[Move], found: Found) -> list[Outcome]:
        """Carry out moves by what was found for them."""
        if found is None:
            return [self.move(move) for move in moves]
        known: dict[str, Any] = {row.id: row for row in found}
        if found and isinstance(found[0], PlaceRow):
            return self._archive(moves, known)
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

    def _archive(self, moves: Sequence[Move], known: dict[str, PlaceRow]) -> list[Outcome]:
        """Archive records that move alike, and that no hold is asked for: what is the same of them is done once."""
        first = moves[0]
        current = {row.id: row for row in known.values() if row.state is first.source}
        now = [move.id in current and current[move.id].version == move.version for move in moves]
        pairs = [(move, current[move.id]) for move in compress(moves, now)]
        kept = [_to_stored(move.keeping or _NO_TEXT, 0) for move, _ in pairs]
        kinds = {row.kind for _, row in pairs}
        if len(kinds) > 1 or any(stored.size > row.size for (_, row), stored in zip(pairs, kept, strict=True)):
            return [self.move(move) for move in moves]  # what grows is held against the quota
        if not kinds or first.keeping is None or not self._can_fill(first.keeping.pack):
            return [Outcome.STALE for _ in moves]
        kind = KINDS[kinds.pop()]
        counter = self.counter(kind)
        for (move, row), stored in zip(pairs, kept, strict=True):
            self._keep(move, row.key, stored)
            self._note(move, kind.name.value)
            counter.note_change(move.id)
        self._write_kept()
        after = sum(stored.size for stored in kept)
        counter.count(0, after - sum(row.size for _, row in pairs))
        self.shift(kind, State.ARCHIVED, len(kept), after)
        return [Outcome.DONE if is_now else Outcome.STALE for is_now in now]

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
        stored = None if keeping is None else _to_stored(keeping, row.text_hash)  # that of the whole text stays
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
        if stored is None:
            self.tx.later("records.move", (*self._values(move), key))
            return
        self._keep(move, key, stored)
        if move.source not in LIVE:  # it may find its name taken; what is live already takes none that it has not
            self._write_kept()

    def _values(self, move: Move) -> tuple[object, ...]:
        """What a move writes into a record, whatever stays of its text."""
        return (move.target, self.now, move.reason, move.purge_at, move.bundle, move.aged_from)

    def _keep(self, move: Move, key: int, stored: Stored) -> None:
        """Let what stays of a record be written with what else moves like it."""
        _, _, _, (model, vectors, terms), pack = move.keeping or _NO_TEXT
        if model not in self._models:
            self._models[model] = model_code(self.tx, model)
        kept = (key, stored.size, vectors, terms, stored.metadata, stored.content, stored.body)
        self._kept[self.number, *self._values(move), pack, self._models[model]].append(kept)

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
        for statement in self.counts():
            self.tx.later(*statement)
        if self._events:
            audit.append(self.tx, self.number, self._events)

    @property
    def events(self) -> tuple[int, list[Event]]:
        """What the audit chain is to say, and whose that is."""
        return self.number, self._events

    def counts(self) -> Iterator[Question]:
        """What writes the counts and the list of changes."""
        for counter in self._counters.values():
            yield from counter.changes()
        for code, counts in self._shifts.items():
            if any(counts):
                yield "figures.count_states", (scope_number(self.number, KINDS[code]), *counts)
        for (kind, _, target, _, cause, _), count in self._moved.items():
            yield "records.count_moves", (self.number, kind, target, cause, count)


#: Moves of one subject, and what carries them out.
MovesOf = tuple[MoveBatch, Sequence[Move]]


def save_all(tx: Transaction, batches: Sequence[MoveBatch]) -> None:
    """Write what goes with the moves of several subjects."""
    # in the order of the statements' names: rows of one table are written together
    for statement in sorted((one for batch in batches for one in batch.counts()), key=itemgetter(0)):
        tx.later(*statement)
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
    tenants = sorted({subject.tenant for subject, *_ in known})
    held = {tenant for tenant in tenants if tx.find(int, "records.has_holds", (tenant,)) is not None}
    tx.ask_ahead(Holds.question(subject) for subject, *_ in known if subject.tenant in held)
    models: Models = {}
    made = [
        (MoveBatch(tx, subject, number, now=now, is_held=subject.tenant in held, models=models), moves)
        for subject, number, moves in known
    ]
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


def _to_stored(keeping: Keeping, text_hash: int) -> Stored:
    return to_stored(keeping.content, keeping.metadata, keeping.body, text_hash)


def _are_alike(moves: Sequence[Move]) -> bool:
    """Whether records are archived for the first time, and differ in nothing but what stays of their texts."""
    first = moves[0]
    shared = (first[2:9], first.bundle, first.keeping and (first.keeping.pack, first.keeping.encoding.model))
    return first.source is State.ACTIVE and all(
        move.keeping is not None
        and (move[2:9], move.bundle, (move.keeping.pack, move.keeping.encoding.model)) == shared
        for move in moves
    )


def _is_removal(move: Move) -> bool:
    """Whether a hold forbids it. What was claimed before a hold stood has begun to go, and is finished."""
    back = move.target in LIVE and (move.source is State.RECYCLED or move.target is State.ACTIVE)
    return not back and move.source is not State.DELETING


def _action(move: Move) -> Action:
    if move.target in LIVE and move.source is State.RECYCLED:
        return Action.RESTORED
    return Action.REHYDRATED if move.target is State.ACTIVE else Action(move.target.value)


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
