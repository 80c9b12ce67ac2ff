"""A ``RecordStore`` and its ``RecallFeed`` against a model that fits on a page: a dict.

Whatever is done, in whatever order: after each step what is counted, got, fetched, found by name and seen by
followers is what the model says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from conformance.engines import Engine
from conformance.samples import NOW, Follower, Person, changed, entry, move, moved, ruled
from effort import soak, times
from holdfast.core.errors import ConflictError, QuotaExceededError
from holdfast.core.records import BIN, LIVE, NEXT, TYPES, Cause, MemoryType, Move, Outcome, Record, State
from holdfast.ports.records import NO_LIMIT

AGENTS = ("agent", "agent_2")
NAMES = (None, None, None, "ann", "bob")
_tenants = itertools.count()

Places = st.integers(min_value=0, max_value=11)
Sizes = st.integers(min_value=1, max_value=40)
Limits = st.none() | st.integers(min_value=0, max_value=9)


class RefusedError(Exception):
    """The model says that the store must refuse, changing nothing."""


class Model:
    """What a user holds of one kind, without a database."""

    def __init__(self, kind: MemoryType) -> None:
        self.records: dict[str, Record] = {}
        self.quota: dict[str, dict[str, int | None]] = {"user": {}, "tenant": {}}
        self.default = {"max_memories": TYPES[kind].max_memories, "max_bytes": TYPES[kind].max_bytes}

    def live(self) -> list[Record]:
        return [record for record in self.records.values() if record.state in LIVE]

    def counted(self) -> tuple[int, int]:
        return len(self.live()), sum(len(record.content) for record in self.live())

    def limits(self) -> dict[str, int | None]:
        return {**self.default, **self.quota["tenant"], **self.quota["user"]}

    def fits(self, memories: int, size: int) -> bool:
        held, used = self.counted()
        most, most_bytes = self.limits()["max_memories"], self.limits()["max_bytes"]
        fits_count = memories == 0 or most is None or held + memories <= most
        return fits_count and (size <= 0 or most_bytes is None or used + size <= most_bytes)

    def insert(self, records: list[Record], *, prune: bool, now: int) -> int:
        pruned = 0
        while not self.fits(len(records), sum(len(record.content) for record in records)):
            oldest = sorted(self.live(), key=lambda record: record.aged_from or 0)
            if not prune or not oldest:
                raise RefusedError
            for record in oldest[: max(1, len(oldest) // 10)]:
                step = move(record, State.RECYCLED, purge_at=now + BIN, cause=Cause.PRUNE)
                self.records[record.id] = moved(record, step._replace(reason="pruned: the quota was reached"), now=now)
                pruned += 1
        self.records.update((record.id, record) for record in records)
        self._check_names()
        return pruned

    def replace(self, record: Record) -> bool:
        there = self.records.get(record.id)
        if there is None or there.state not in LIVE or there.version != record.version:
            return False
        if not self.fits(0, len(record.content) - len(there.content)):
            raise RefusedError
        self.records[record.id] = replace(record, version=record.version + 1, revision=there.revision + 1)
        self._check_names()
        return True

    def transition(self, moves: list[Move], *, now: int) -> list[Outcome]:
        return [self._move(step, now) for step in moves]

    def _move(self, step: Move, now: int) -> Outcome:
        there = self.records.get(step.id)
        if there is None or (there.state, there.version) != (step.source, step.version):
            return Outcome.STALE
        if step.target not in NEXT[step.source]:
            return Outcome.STALE
        entering = step.target in LIVE and there.state not in LIVE
        if entering and not self.fits(1, len(there.content)):
            return Outcome.FULL
        if entering and there.name is not None and there.name in {record.name for record in self.live()}:
            return Outcome.TAKEN
        if step.target is State.DELETED:
            del self.records[step.id]
        elif step.aged_from is None:
            self.records[step.id] = moved(there, step, now=now)
        else:
            self.records[step.id] = ruled(moved(replace(there, aged_from=step.aged_from), step, now=now))
        return Outcome.DONE

    def _check_names(self) -> None:
        names = [record.name for record in self.live() if record.name is not None]
        if len(names) != len(set(names)):
            raise RefusedError


class Machine(RuleBasedStateMachine):
    """Does things to a store and to the model."""

    def __init__(self, engine: Engine, kind: MemoryType) -> None:
        super().__init__()
        self.engine = engine
        self.kind = TYPES[kind]
        self.me = Person(f"model-{kind}-{next(_tenants)}", "user_123")
        self.model = Model(kind)
        self.order: list[str] = []
        self.last: dict[str, Record] = {}
        self.moments = itertools.count(NOW)
        self.quick = {agent: Follower(engine.feed, self.me.scope(agent), self.kind) for agent in AGENTS}
        self.slow = {agent: Follower(engine.feed, self.me.scope(agent), self.kind) for agent in AGENTS}

    def both(self, on_model: Callable[[], object], on_store: Callable[[], object]) -> None:
        """The same to both: the same answer, or a refusal that changes nothing."""
        before = dict(self.model.records)
        try:
            expected = on_model()
        except RefusedError:
            self.model.records = before
            with pytest.raises((QuotaExceededError, ConflictError)):
                on_store()
        else:
            assert on_store() == expected

    def pick(self, place: int) -> Record | None:
        """One of the latest records, as it is, or was when it was deleted."""
        self.last.update(self.model.records)
        return self.last[self.order[-1 - place % len(self.order)]] if self.order else None

    @initialize(most=Limits)
    def begin(self, most: int | None) -> None:
        self.set_quota(whose="user", most=most, size=None)

    @rule(
        items=st.lists(st.tuples(Sizes, st.sampled_from(NAMES), st.integers(-99, 99)), min_size=1, max_size=4),
        agent=st.sampled_from(AGENTS),
        prune=st.booleans(),
    )
    def insert(self, items: list[tuple[int, str | None, int]], agent: str, prune: bool) -> None:
        now = next(self.moments)
        entries = [
            entry(
                self.me,
                "x" * size,
                kind=self.kind.name,
                agent_id=agent,
                name=name,
                at=now,
                dated_at=NOW + age * 1_000_000 + next(self.moments) - NOW,  # no two alike
            )
            for size, name, age in items
        ]
        records = [item.record for item in entries]
        self.both(
            lambda: self.model.insert(records, prune=prune, now=now),
            lambda: self.engine.records.insert(self.me.subject, self.kind, entries, prune=prune, now=now).pruned,
        )
        self.order += [record.id for record in records if record.id in self.model.records]

    @rule(place=Places, size=Sizes, name=st.sampled_from(NAMES), stale=st.sampled_from([0, 0, 0, -1, 1]))
    def replace(self, place: int, size: int, name: str | None, stale: int) -> None:
        if there := self.pick(place):
            new = changed(
                there,
                version=there.version + stale,
                content="y" * size,
                name=name,
                updated_at=next(self.moments),
                metadata={"size": size},
            )
            self.both(lambda: self.model.replace(new.record), lambda: self.engine.records.replace(new) is not None)

    @rule(
        steps=st.lists(
            st.tuples(
                Places, st.sampled_from(State), st.sampled_from([0, 0, 0, 1]), st.sampled_from([None, None, NOW + 5])
            ),
            min_size=1,
            max_size=4,
        )
    )
    def transition(self, steps: list[tuple[int, State, int, int | None]]) -> None:
        moves = [
            move(there, target, version=there.version + stale, aged_from=aged_from)
            for place, target, stale, aged_from in steps
            if (there := self.pick(place))
        ]
        self._move(moves)

    @rule(place=Places)
    def recycle(self, place: int) -> None:
        if there := self.pick(place):
            self._move([move(there, State.RECYCLED)])

    @rule(place=Places)
    def restore(self, place: int) -> None:
        if (there := self.pick(place)) and there.state is State.RECYCLED:
            self._move([move(there, there.previous or State.ACTIVE)])

    def _move(self, moves: list[Move]) -> None:
        now = next(self.moments)
        self.both(
            lambda: self.model.transition(moves, now=now),
            lambda: self.engine.records.transition(self.me.subject, moves, now=now),
        )

    @rule(whose=st.sampled_from(["user", "tenant"]), most=Limits, size=st.none() | st.integers(0, 200))
    def set_quota(self, whose: str, most: int | None, size: int | None) -> None:
        limits = {"max_memories": most, "max_bytes": size}
        user_id = self.me.user_id if whose == "user" else None
        own = {name: NO_LIMIT if value is None else value for name, value in limits.items()}
        self.engine.records.set_quota(self.me.tenant, user_id, self.kind, own)
        self.model.quota[whose] = limits

    @rule()
    def let_the_slow_ones_look(self) -> None:
        for agent in AGENTS:
            self._compare(self.slow[agent], agent)

    @invariant()
    def usage_is_what_the_model_counts(self) -> None:
        usage = self.engine.records.usage(self.me.subject, self.kind)
        assert (usage.memories, usage.bytes) == self.model.counted()
        assert {"max_memories": usage.max_memories, "max_bytes": usage.max_bytes} == self.model.limits()

    @invariant()
    def each_record_is_what_the_model_says(self) -> None:
        for record in self.model.records.values():
            assert self.engine.records.get(self.me.subject, record.id) == record
        for gone in set(self.order) - set(self.model.records):
            assert self.engine.records.get(self.me.subject, gone) is None
        fetched = self.engine.records.fetch(self.me.subject, list(self.model.records), now=NOW)
        assert fetched == {record.id: record for record in self.model.live()}

    @invariant()
    def names_lead_to_live_records(self) -> None:
        live = {record.name: record for record in self.model.live()}
        for name in ("ann", "bob"):
            assert self.engine.records.named(self.me.subject, self.kind, name, now=NOW) == live.get(name)

    @invariant()
    def the_bin_holds_what_was_recycled_in_the_order_in_which_it_leaves(self) -> None:
        recycled = [record for record in self.model.records.values() if record.state is State.RECYCLED]
        expected = sorted(recycled, key=lambda record: (record.purge_at, self.order.index(record.id)))
        for subject in (None, self.me.subject):
            found, _ = self.engine.records.binned(self.me.tenant, subject, limit=999)
            assert found == expected

    @invariant()
    def entries_are_there_in_every_state(self) -> None:
        entries = self.engine.records.entries(self.me.subject, self.order)
        assert {record_id: found.record for record_id, found in entries.items()} == self.model.records

    @invariant()
    def followers_see_what_is_live(self) -> None:
        for agent in AGENTS:
            self._compare(self.quick[agent], agent)

    def _compare(self, follower: Follower, agent: str) -> None:
        shared = "agent" not in self.kind.scope
        seen = {(row.id, row.updated_at, row.archived_from == 0, row.terms) for row in follower.look().values()}
        assert seen == {
            (record.id, record.updated_at, record.state is State.ARCHIVED, record.content.encode()[:16])
            for record in self.model.live()
            if shared or record.scope.agent_id == agent
        }


@soak
@pytest.mark.parametrize("kind", [MemoryType.LONG_TERM, MemoryType.EPISODIC])
def test_the_store_does_what_the_model_does(engine: Engine, engine_name: str, kind: MemoryType) -> None:
    run_state_machine_as_test(
        lambda: Machine(engine, kind),  # type: ignore[arg-type]  # a factory will do, its documentation says
        settings=settings(
            max_examples=times(16, engine_name),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
