"""Moves: the one place where a stored record changes its state, with holds, counts and the audit chain."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from holdfast.core.audit import Action
from holdfast.core.chain import Event
from holdfast.core.content import pack, to_json
from holdfast.core.errors import ConflictError
from holdfast.core.holds import Held, Hold, excess, standing
from holdfast.core.records import LIVE, NEXT, TYPES, Cause, Keeping, Kind, MemoryType, Move, Outcome, State, Subject
from holdfast.core.rules import BIN, HISTORY
from holdfast.ports.conversations import SessionWindow
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import DuplicateError, Names, Row, Transaction
from holdfast.storage.relational.scopes import SQL, Tally, limits

PACKS: Final = Names("packs")
KINDS: Final = {kind.code: kind for kind in TYPES.values()}
#: So many alike removals are worth a statement of their own.
_MANY: Final = 8
#: Why something does not come back, as the audit chain says it.
REFUSALS: Final = {
    Outcome.TAKEN: "another goes by its name",
    Outcome.FULL: "the quota has no room for it",
    Outcome.PARTED: "its agent is in the recycle bin",
}
_PLAIN: Final = frozenset({State.RECYCLED, State.DELETED})
_STATES: Final = {state.value: state for state in State}


class Mover:
    """Moves records of one subject within one transaction; ``save`` writes what goes with them."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, *, now: int, is_held: bool = True) -> None:
        self._tx = tx
        self.subject = subject
        self.number = number
        self._now = now
        self._tallies: dict[int, Tally] = {}
        self._events: list[Event] = []
        self._models: dict[str | None, int | None] = {}
        self._packs: dict[int, bool] = {}
        self._limits: dict[int, tuple[int | None, int | None]] = {}
        self._notes: dict[tuple[Any, ...], tuple[Action, dict[str, Any]]] = {}
        self._moved: Counter[tuple[Any, ...]] = Counter()
        self.ended: list[SessionWindow] = []
        """The short-term windows that end with conversations that were moved."""
        self.holds = standing_holds(tx, subject) if is_held else []

    def tally(self, kind: Kind, counts: tuple[int, int, int, int, int] | None = None) -> Tally:
        """The counting row of a kind."""
        if kind.code not in self._tallies:
            self._tallies[kind.code] = Tally(self._tx, self.number, kind, counts)
        return self._tallies[kind.code]

    def move(self, move: Move) -> Outcome:
        """Carry out a move, or say why not."""
        return self._move(move, self._tx.one(SQL["standing"], (move.id, self.number, bool(self.holds))))

    def _move(self, move: Move, row: Row | None) -> Outcome:
        """The same for a record as it stands."""
        if row is None or (row[2], row[3]) != (move.source, move.version) or move.target not in NEXT[move.source]:
            return Outcome.STALE
        key, code, _, _, size, agent_id, session_id, metadata, packed, name, _ = row
        if move.target is State.DELETED and packed is not None:
            return Outcome.STALE  # part of it still lies elsewhere
        kind = KINDS[code]
        if move.target in LIVE and move.source not in LIVE:
            if "agent" in kind.scope and is_removed(self._tx, self.subject.tenant, agent_id):
                return self.answer(move, kind.name.value, Outcome.PARTED)
            self.make_way(kind, name)
        if self.holds and _is_removal(move):
            thing = held_of(self.subject, agent_id, session_id, move.id, metadata)
            hold = standing(thing, self.holds)
            if hold is not None:
                self.refuse(move, kind.name.value, hold=hold.id)
                return Outcome.HELD
        outcome = self._carry_out(move, kind, key, size, packed, named=name is not None)
        return self.answer(move, kind.name.value, outcome)

    def move_all(self, moves: Sequence[Move]) -> list[Outcome]:
        """Carry out moves in their order, or say why not. Many alike removals, with no hold to ask for, are one
        statement; many records that are to be archived are looked up by one.
        """
        if len(moves) >= _MANY and all(move.target is State.ARCHIVED for move in moves):
            listed = to_json([move.id for move in moves])
            known = {
                row[0]: row[1:] for row in self._tx.rows(SQL["standing_all"], (listed, self.number, bool(self.holds)))
            }
            return [self._move(move, known.pop(move.id, None)) for move in moves]
        if len(moves) < _MANY or self.holds or moves[0].target not in _PLAIN or moves[0].keeping is not None:
            return [self.move(move) for move in moves]
        first = moves[0]
        alike = all(move[2:] == first[2:] for move in moves)
        if not alike or len({move.id for move in moves}) < len(moves):
            return [self.move(move) for move in moves]
        if first.target not in NEXT[first.source]:
            return [Outcome.STALE for _ in moves]
        listed = to_json([[move.id, move.version] for move in moves])
        if first.target is State.RECYCLED:
            how = (self._now, first.reason, first.purge_at, first.bundle, first.aged_from)
            found = self._tx.rows(SQL["recycle_all"], (*how, listed, self.number, first.source))
        else:
            found = self._tx.rows(SQL["erase_all"], (listed, self.number, first.source))
        moved = {record_id: (KINDS[code], size) for record_id, code, size in found}
        for move in moves:
            if move.id in moved:
                self._removed(move, *moved[move.id])
        return [Outcome.DONE if move.id in moved else Outcome.STALE for move in moves]

    def _removed(self, move: Move, kind: Kind, size: int) -> None:
        """What goes with a removal that has been written."""
        if move.source in LIVE:
            tally = self.tally(kind)
            tally.count(-1, -size)
            tally.changed(move.id)
        if kind.name is MemoryType.ENTITY and move.target is State.DELETED:
            self._tx.run(SQL["forget_facts"], (self.number, move.id))
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

    def make_way(self, kind: Kind, name: str | None) -> None:
        """Recycle a record whose time is over and whose name is wanted: nobody can see it, and no sweep has come yet.

        One that a hold keeps stays where it is, and gives up its name alone.
        """
        if name is None:
            return
        row = self._tx.one(SQL["expired_by_name"], (self.number, kind.code, name, self._now))
        if row is not None:
            key, record_id, state, version, agent_id, session_id, metadata = row
            thing = held_of(self.subject, agent_id, session_id, record_id, metadata)
            if standing(thing, self.holds) is not None:
                self._tx.run(SQL["give_up_name"], (key,))
                return
            reason = "its time was over, and its name was wanted"
            purge_at = self._now + BIN
            self.move(Move(record_id, version, _STATES[state], State.RECYCLED, reason, Cause.RULE, purge_at=purge_at))

    def _carry_out(self, move: Move, kind: Kind, key: int, size: int, packed: int | None, *, named: bool) -> Outcome:
        tally = self.tally(kind)
        entering = (move.target in LIVE) - (move.source in LIVE)
        stored = None if move.keeping is None else _stored(move.keeping)
        grown = 0 if stored is None else stored[0] - size
        wanted = size + grown if entering > 0 else grown
        if entering > 0 or grown > 0:
            if kind.code not in self._limits:
                self._limits[kind.code] = limits(self._tx, self.subject, kind)
            if excess(tally.usage(self._limits[kind.code]), max(0, entering), wanted):
                return Outcome.FULL
        if move.keeping is not None and not self._can_fill(move.keeping.pack):
            return Outcome.STALE  # the object was given up meanwhile
        try:
            with self._tx.attempt() if entering > 0 and named else nullcontext():  # only names can be taken
                self._write(move, kind, key, stored)
        except DuplicateError:
            return Outcome.TAKEN
        if packed is not None and (move.keeping is not None or move.target is State.DELETING):
            self._tx.run(PACKS["spoil"], (packed,))
        if move.source in LIVE or move.target in LIVE:
            tally.count(entering, entering * size + (grown if move.target in LIVE else 0))
            tally.changed(move.id)
        self._note(move, kind.name.value)
        return Outcome.DONE

    def _write(self, move: Move, kind: Kind, key: int, stored: tuple[Any, ...] | None) -> None:
        if move.target is State.DELETED:
            self._tx.run(SQL["erase"], (key,))
            if kind.name is MemoryType.ENTITY:
                self._tx.run(SQL["forget_facts"], (self.number, move.id))
            return
        values = (move.target, self._now, move.reason, move.purge_at, move.bundle, move.aged_from)
        if move.keeping is None or stored is None:
            self._tx.run(SQL["move"], (*values, key))
            return
        model = move.keeping.encoding.model
        if model not in self._models:
            self._models[model] = model_code(self._tx, model)
        kept = (move.keeping.pack, stored[0], self._models[model], *stored[1:])
        # What is live already takes no name that it has not, so nothing is in its way, and nobody waits for the answer.
        write = self._tx.later if move.source in LIVE else self._tx.run
        write(SQL["move_keeping"], (*values, *kept, key))

    def _can_fill(self, number: int | None) -> bool:
        """Whether a pack that a record is to lie in is still there to take it."""
        if number is not None and number not in self._packs:
            self._packs[number] = self._tx.one(PACKS["is_writing"], (number,)) is not None
        return number is None or self._packs[number]

    def _note(self, move: Move, kind: str) -> None:
        about = (kind, *move[2:7])
        if about not in self._notes:
            detail: dict[str, Any] = {
                "kind": kind,
                "from": move.source.value,
                "to": move.target.value,
                "cause": move.cause.value,
                "reason": move.reason,
            }
            if move.rule is not None:
                detail["rule"] = move.rule
            self._notes[about] = (_action(move), detail)
        action, detail = self._notes[about]
        self._events.append(Event(self._now, action, move.id, detail))
        self._moved[about] += 1

    def answer(self, move: Move, kind: str, outcome: Outcome) -> Outcome:
        """An outcome itself; where it is that something does not come back, that is written down."""
        if outcome in REFUSALS and not _is_removal(move):
            self.refuse(move, kind, reason=REFUSALS[outcome])
        return outcome

    def refuse(self, move: Move, kind: str, **why: str) -> None:
        """Write down that a record, or a conversation, was not moved."""
        detail = {
            "kind": kind,
            "from": move.source.value,
            "to": move.target.value,
            "cause": move.cause.value,
            **why,
        }
        self._events.append(Event(self._now, Action.REFUSED, move.id, detail))

    def save(self) -> None:
        """Write the counts, the list of changes and the audit chain."""
        for tally in self._tallies.values():
            tally.save()
        if self._events:
            append(self._tx, self.number, self._events)
        for (kind, _, target, _, cause, _), count in self._moved.items():
            self._tx.later(SQL["count_moves"], (self.number, kind, target, cause, count))


def is_removed(tx: Transaction, tenant: str, agent_id: str) -> bool:
    """Whether an agent is in the recycle bin."""
    return tx.one(SQL["removed_agent"], (tenant, agent_id)) is not None


def standing_holds(tx: Transaction, subject: Subject) -> list[Hold]:
    """The holds that may cover something of a subject."""
    tenant, user_id = subject.tenant, subject.user_id
    found = tx.rows(SQL["standing_holds"], (tenant, user_id))
    return [Hold(*row) for row in found]


def held_of(subject: Subject, agent_id: str, session_id: str | None, item_id: str, metadata: str) -> Held:
    """A stored record as a hold looks at it."""
    return Held(subject.user_id, agent_id, session_id, item_id, json.loads(metadata))


def _is_removal(move: Move) -> bool:
    """Whether a hold forbids it. What was claimed before a hold stood has begun to go, and is finished."""
    back = move.target in LIVE and (move.source is State.RECYCLED or move.target is State.ACTIVE)
    return not back and move.source is not State.DELETING


def _action(move: Move) -> Action:
    if move.target in LIVE and move.source is State.RECYCLED:
        return Action.RESTORED
    return Action.REHYDRATED if move.target is State.ACTIVE else Action(move.target.value)


def _stored(keeping: Keeping) -> tuple[Any, ...]:
    """What a record is from now on, as it is stored; its size first."""
    body = None if keeping.body is None else to_json(keeping.body)
    size = len(keeping.content.encode()) + (0 if body is None else len(body.encode()))
    return (
        size,
        keeping.encoding.vectors,
        keeping.encoding.terms,
        to_json(keeping.metadata),
        pack(keeping.content),
        None if body is None else pack(body),
    )


def known_model(tx: Transaction, model: str) -> int | None:
    """The code of a model that has been seen before."""
    row = tx.one(SQL["model"], (model,))
    return None if row is None else int(row[0])


def model_code(tx: Transaction, model: str | None) -> int | None:
    """The code of a model, seen before or not."""
    if model is None:
        return None
    code = known_model(tx, model)
    return code if code is not None else tx.value(SQL["new_model"], (model,))


@contextmanager
def unique(kind: MemoryType) -> Iterator[None]:
    """A second record of the same id or name is a conflict, not a failure of the store."""
    try:
        yield
    except DuplicateError as problem:
        raise ConflictError(f"another {kind} memory has this id, or goes by this name already") from problem
