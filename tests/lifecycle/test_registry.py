"""Agents and tools: made known, removed with all that is their own, and brought back with exactly that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import raw
from conformance.samples import NOW, Person, entry, message
from effort import sampled
from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Hold
from holdfast.core.errors import (
    AgentRemovedError,
    ConflictError,
    HeldError,
    InvalidContentError,
    InvalidMetadataError,
    InvalidScopeError,
    LeaseLostError,
    NotFoundError,
    StaleError,
)
from holdfast.core.records import BIN, TYPES, Cause, MemoryType, Move, Outcome, Record, Scope, State, Subject
from holdfast.core.values import DAY, SECOND, iso
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.sessions import roll
from holdfast.ports.registry import RegistryStore
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.coordination import SqlLeases
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.feed import SqlFeed
from holdfast.storage.relational.history import SqlHistory
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.relational.registry import SqlRegistry
from holdfast.storage.relational.rules import SqlHolds
from holdfast.storage.relational.sessions import SqlShortTerm
from homes import Homes, database_of, tenant_of

TENANT = "acme"
_TENANT_ITSELF = Subject(TENANT)
ANN, BOB = Person(TENANT, "ann"), Person(TENANT, "bob")


@dataclass
class World:
    """A store, and the time by its clock."""

    database: Database
    now: int = NOW

    def __post_init__(self) -> None:
        self.records = SqlRecords(self.database)
        self.feed = SqlFeed(self.database)
        self.history = SqlHistory(self.database)
        self.short_term = SqlShortTerm(self.database)
        self.store = SqlRegistry(self.database)
        self.holds = SqlHolds(self.database)
        self.audit = SqlAudit(self.database)
        self.registry = self.over(self.store)

    def over(self, store: RegistryStore) -> Registry:
        """The service, over a store that may fail; two moves to a transaction."""
        return Registry(tenant_of(self.database, TENANT, lambda: self.now, registry=store), batch=2)

    def remember(self, whose: Person, kind: MemoryType, agent_id: str = "guide", **fields: Any) -> Record:
        new = entry(whose, kind=kind, agent_id=agent_id, at=self.now, **fields)
        self.records.insert(whose.subject, TYPES[kind], [new], prune=False, now=self.now)
        return new.record

    def say(self, scope: Scope, *contents: str) -> None:
        turns = [message(text, at=self.now) for text in contents]
        session = self.history.append(scope, turns, now=self.now, summarize=roll).session
        self.short_term.append(scope, turns, ttl=3_600 * SECOND, now=self.now, most=99, session=session)

    def said(self, scope: Scope) -> list[str]:
        return [turn.content for turn in self.history.messages(scope, now=self.now)]

    def live(self, whose: Person, kind: MemoryType, agent_id: str = "guide") -> set[str]:
        """The ids that recall finds."""
        changes = self.feed.changes(whose.scope(agent_id), TYPES[kind], None, model="model-a", read=list)
        return {row.id for page in changes.pages for row in page}

    def state(self, record: Record) -> State:
        found = self.records.get(record.scope.subject, record.id)
        assert found is not None
        return found.state

    def hold(self, **what: Any) -> Hold:
        hold = Hold(f"hold-{len(self.holds.list(TENANT, released=True))}", TENANT, "litigation", "counsel", NOW, **what)
        self.holds.add(hold, Event(self.now, Action.HOLD_ADDED, hold.id, {}))
        return hold

    def release(self, hold: Hold) -> None:
        event = Event(self.now, Action.HOLD_RELEASED, hold.id, {})
        self.holds.release(TENANT, hold.id, now=self.now, event=event)

    def picture(self) -> list[tuple[Any, ...]]:
        """Everything that is stored of memories and conversations, but for how often and when it moved."""
        with self.database.read() as tx:
            return (
                raw.rows(
                    tx,
                    "SELECT key, subject, kind, id, state, profile, aged_from, agent_id, session_id, name, created_at,"
                    " updated_at, dated_at, purge_at, bundle, size, vectors, terms, metadata, content, body FROM records"
                    " ORDER BY key",
                )
                + raw.rows(
                    tx,
                    "SELECT no, subject, id, agent_id, session_id, state, profile, created_at, updated_at, aged_from,"
                    " purge_at, bundle, messages, size, summary FROM sessions ORDER BY no",
                )
                + raw.rows(tx, "SELECT * FROM history ORDER BY key")
                + raw.rows(tx, "SELECT scope, memories, bytes FROM scopes ORDER BY scope")
            )

    def own_states(self) -> set[str]:
        """The states that something of the agent's own is in."""
        with self.database.read() as tx:
            found = raw.rows(tx, "SELECT state FROM records WHERE agent_id = 'guide' AND kind IN (4, 5)")
            found += raw.rows(tx, "SELECT state FROM sessions WHERE agent_id = 'guide'")
        return {row[0] for row in found}

    def actions(self, item: str, subject: Subject = _TENANT_ITSELF) -> list[str]:
        return [found.action for found in self.audit.of_item(subject, item)]


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


@pytest.fixture(scope="module")
def busy_home(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Homes, Path]]:
    """An agent that has been at work for two users, beside another one, and beside a namesake elsewhere."""
    with Homes(engine_name, tmp_path_factory.mktemp("busy")) as homes:
        home = homes.new()
        database = database_of(home)
        be_busy(World(database))
        database.close()
        yield homes, home


def be_busy(world: World) -> None:
    for whose in (ANN, BOB, Person("acme2", "ann")):
        for n in range(3):
            world.remember(whose, MemoryType.PERSONA, content=f"persona {n}")
            world.remember(whose, MemoryType.EPISODIC, content=f"episode {n}", body={"steps": [n]})
            world.remember(whose, MemoryType.LONG_TERM, content=f"fact {n}")
        world.remember(whose, MemoryType.EPISODIC, "other", content="another agent's")
        world.say(whose.scope("guide", "trip"), "hello", "there")
        world.say(whose.scope("guide"), "hello again")
        world.say(whose.scope("other", "trip"), "not the guide's")


@pytest.fixture
def busy(busy_home: tuple[Homes, Path]) -> Iterator[World]:
    """A copy of that store."""
    homes, source = busy_home
    home = homes.copy(source, "copy")
    database = database_of(home)
    yield World(database)
    database.close()
    homes.remove(home)


# --- making known ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sort", ["agent", "tool"])
def test_what_was_made_known_is_known(world: World, sort: str) -> None:
    roster = getattr(world.registry, f"{sort}s")
    roster.add("search", "Looks things up", {"team": "core", "deep": [1, None]})
    world.now += DAY
    roster.add("book")

    shown = {
        f"{sort}_id": "search",
        "description": "Looks things up",
        "metadata": {"team": "core", "deep": [1, None]},
        "created_at": iso(NOW),
        "updated_at": iso(NOW),
    }
    assert roster.get("search") == shown
    assert [known[f"{sort}_id"] for known in roster.list()] == ["book", "search"]
    again = roster.add("search", "Finds things")
    assert (again["description"], again["metadata"], again["created_at"]) == ("Finds things", {}, iso(NOW))
    assert again["updated_at"] == iso(NOW + DAY)
    assert world.actions("search") == ["registered", "changed"]


def test_agents_and_tools_and_tenants_are_kept_apart(world: World) -> None:
    world.registry.agents.add("search")
    elsewhere = Registry(tenant_of(world.database, "acme2", lambda: NOW))

    for roster in (world.registry.tools, elsewhere.agents):
        assert roster.list() == []
        with pytest.raises(NotFoundError, match="'search' is known"):
            roster.get("search")


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (("", "x", None), InvalidScopeError),
        ((7, "x", None), InvalidScopeError),
        (("*", "x", None), InvalidScopeError),
        (("id", None, None), InvalidContentError),
        (("id", " ", None), InvalidContentError),
        (("id", "x" * 70_000, None), InvalidContentError),
        (("id", "x", [1]), InvalidMetadataError),
    ],
)
def test_what_cannot_be_made_known_is_refused(world: World, bad: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        world.registry.agents.add(*bad)
    assert world.registry.agents.list(include_removed=True) == []


# --- removing -------------------------------------------------------------------------------------------------------------


def test_an_agent_goes_with_all_that_is_its_own_and_nothing_else(busy: World) -> None:
    before = busy.live(ANN, MemoryType.LONG_TERM), busy.live(ANN, MemoryType.EPISODIC, "other")

    went = busy.registry.agents.remove("guide")

    assert went == {
        "agent_id": "guide",
        "persona": 6,
        "episodic": 6,
        "sessions": 4,
        "messages": 6,
        "purge_at": iso(NOW + BIN),
    }
    for whose in (ANN, BOB):
        assert busy.live(whose, MemoryType.PERSONA) == busy.live(whose, MemoryType.EPISODIC) == set()
        assert busy.said(whose.scope("guide", "trip")) == busy.said(whose.scope("guide")) == []
        assert busy.short_term.window(whose.scope("guide", "trip"), now=NOW) == []
        assert busy.said(whose.scope("other", "trip")) == ["not the guide's"]
        assert len(busy.short_term.window(whose.scope("other", "trip"), now=NOW)) == 1
    assert before == (busy.live(ANN, MemoryType.LONG_TERM), busy.live(ANN, MemoryType.EPISODIC, "other"))
    namesake = Person("acme2", "ann")
    assert len(busy.live(namesake, MemoryType.PERSONA)) == 3
    assert busy.said(namesake.scope("guide", "trip")) == ["hello", "there"]
    assert busy.records.usage(ANN.subject, TYPES[MemoryType.PERSONA]).memories == 0, "the bin is in no quota"


def test_each_move_is_in_the_audit_chain_of_its_user(busy: World) -> None:
    record = busy.remember(ANN, MemoryType.PERSONA)
    busy.registry.agents.remove("guide")
    busy.registry.agents.restore("guide")

    assert busy.actions("guide") == ["recycled", "restored"]
    gone, back = busy.audit.of_item(ANN.subject, record.id)
    assert (gone.detail["cause"], gone.detail["reason"]) == ("agent", "agent guide was removed")
    assert (back.action, back.detail["cause"]) == ("restored", "restore")


def test_an_agent_that_was_never_made_known_can_be_removed_for_what_it_has(world: World) -> None:
    with pytest.raises(NotFoundError, match="no agent 'guide' is known"):
        world.registry.agents.remove("guide")
    world.remember(ANN, MemoryType.LONG_TERM)
    with pytest.raises(NotFoundError):
        world.registry.agents.remove("guide")  # what users know is not its own

    world.say(ANN.scope("guide"), "hello")
    assert world.registry.agents.remove("guide")["sessions"] == 1
    assert world.registry.agents.restore("guide")["messages"] == 1
    assert world.registry.agents.get("guide")["description"] == ""


def test_a_removed_agent_is_out_of_use_until_it_is_restored(busy: World) -> None:
    agents = busy.registry.agents
    agents.add("guide", "Shows the way")
    agents.remove("guide")

    with pytest.raises(AgentRemovedError, match="restore it"):
        busy.say(ANN.scope("guide", "new"), "hello")
    with pytest.raises(AgentRemovedError):
        busy.history.touch(ANN.scope("guide", "new"), now=NOW)
    with pytest.raises(AgentRemovedError):
        busy.remember(ANN, MemoryType.PERSONA)
    with pytest.raises(NotFoundError, match="recycle bin"):
        agents.get("guide")
    with pytest.raises(ConflictError, match="restore"):
        agents.add("guide")
    with pytest.raises(ConflictError, match="already"):
        agents.remove("guide")
    assert agents.list() == []
    (binned,) = agents.list(include_removed=True)
    assert (binned["state"], binned["deleted_at"], binned["purge_at"]) == ("recycled", iso(NOW), iso(NOW + BIN))

    agents.restore("guide")
    assert agents.get("guide")["description"] == "Shows the way"
    busy.say(ANN.scope("guide", "new"), "hello")


# --- restoring ------------------------------------------------------------------------------------------------------------


def test_a_restored_agent_has_exactly_what_it_had(busy: World) -> None:
    before = busy.picture()

    busy.registry.agents.remove("guide")
    assert busy.picture() != before
    busy.now += BIN - 1
    came = busy.registry.agents.restore("guide")

    assert busy.picture() == before
    assert came == {"agent_id": "guide", "persona": 6, "episodic": 6, "sessions": 4, "messages": 6}
    with pytest.raises(ConflictError, match="not in the recycle bin"):
        busy.registry.agents.restore("guide")


def test_what_had_been_deleted_before_stays_deleted(busy: World) -> None:
    record = busy.remember(ANN, MemoryType.PERSONA)
    archived = busy.remember(ANN, MemoryType.EPISODIC)
    session = busy.history.find(ANN.scope("guide", "trip"), now=NOW)
    assert session is not None
    purge_at = NOW + BIN
    busy.records.transition(
        ANN.subject, [Move(record.id, 1, State.ACTIVE, State.RECYCLED, "a test", purge_at=purge_at)], now=NOW
    )
    busy.records.transition(ANN.subject, [Move(archived.id, 1, State.ACTIVE, State.ARCHIVED, "a test")], now=NOW)
    binning = Move(session.id, session.version, State.ACTIVE, State.RECYCLED, "a test", purge_at=purge_at)
    busy.history.transition_all([(ANN.subject, [binning])], now=NOW)
    before = busy.picture()

    busy.registry.agents.remove("guide")
    busy.registry.agents.restore("guide")

    assert busy.picture() == before
    assert busy.state(record) is State.RECYCLED
    assert busy.state(archived) is State.ARCHIVED, "back to where it was, not further"


def test_what_came_to_the_end_of_its_time_in_the_bin_is_not_gone_at_once(world: World) -> None:
    episode = world.remember(ANN, MemoryType.EPISODIC)
    world.now += 365 * DAY - DAY
    world.say(ANN.scope("guide"), "hello")
    world.registry.agents.remove("guide")
    world.now += 2 * DAY
    world.registry.agents.restore("guide")

    found = world.records.get(ANN.subject, episode.id)
    assert found is not None
    assert found.aged_from == world.now
    assert found.dated_at == NOW
    assert world.said(ANN.scope("guide")) == ["hello"], "its time was not over, and counts on"
    world.now += 28 * DAY
    assert world.said(ANN.scope("guide")) == []


def test_what_the_quota_has_no_room_for_stays_in_the_bin(world: World) -> None:
    mine = [world.remember(ANN, MemoryType.PERSONA, content=f"persona {n}") for n in range(4)]
    world.registry.agents.remove("guide")
    world.records.set_quota(TENANT, "ann", TYPES[MemoryType.PERSONA], {"max_memories": 3})
    world.remember(ANN, MemoryType.PERSONA, "other")

    came = world.registry.agents.restore("guide")

    assert (came["persona"], came["restore_error"]) == (2, {"full": 2})
    assert sorted(world.state(record) for record in mine) == [State.ACTIVE] * 2 + [State.RECYCLED] * 2
    assert world.records.usage(ANN.subject, TYPES[MemoryType.PERSONA]).memories == 3
    assert world.store.unfinished(TENANT) == []


def test_what_has_its_name_taken_meanwhile_stays_in_the_bin(world: World) -> None:
    taken = world.remember(ANN, MemoryType.PERSONA, name="tone")
    world.say(ANN.scope("guide", "trip"), "old")
    world.registry.agents.remove("guide")
    world.remember(ANN, MemoryType.PERSONA, "other", name="tone")
    crash_at(world, 2, lambda registry: registry.agents.restore("guide"))  # the agent is back, its own is not yet
    world.say(ANN.scope("guide", "trip"), "new")

    came = world.registry.agents.restore("guide")

    assert (came["persona"], came["sessions"], came["restore_error"]) == (0, 0, {"taken": 2})
    assert world.state(taken) is State.RECYCLED
    assert world.said(ANN.scope("guide", "trip")) == ["new"]


def test_an_agent_can_be_restored_until_its_time_in_the_bin_is_over(busy: World) -> None:
    busy.registry.agents.remove("guide")
    busy.now += BIN
    with pytest.raises(ConflictError, match="no longer be restored"):
        busy.registry.agents.restore("guide")
    with pytest.raises(NotFoundError, match="in the recycle bin or out of it"):
        busy.registry.agents.restore("nobody")
    busy.now -= 1
    assert busy.registry.agents.restore("guide")["persona"] == 6


# --- crashes --------------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process died."""


class Crashing:
    """A store whose process dies at a call: before it took effect, or after."""

    def __init__(self, store: RegistryStore, at: int, *, after: bool) -> None:
        self._store = store
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            answer = getattr(self._store, name)(*args, **keywords)
            if self._left == 0:
                raise Crash
            return answer

        return call


def crash_at(world: World, at: int, do: Callable[[Registry], object], *, after: bool = True) -> bool:
    """Do something with a store that dies at its n-th call; whether it came to that."""
    try:
        do(world.over(cast("RegistryStore", Crashing(world.store, at, after=after))))
    except Crash:
        return True
    return False


#: The calls that a removal of the busy agent makes, and one more; a restore makes no more than that.
CALLS = range(1, 15)


@sampled
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
def test_a_removal_that_is_cut_short_is_finished_by_the_next_sweep(busy: World, at: int, after: bool) -> None:
    before = busy.picture()
    crashed = crash_at(busy, at, lambda registry: registry.agents.remove("guide"), after=after)
    assert crashed == (at < CALLS.stop - 1), "the last one does not come to that"
    removed = busy.store.get(TENANT, "agent", "guide") is not None

    for whose in (ANN, BOB):
        assert (busy.said(whose.scope("guide", "trip")) == []) is removed, "all of it at once, or nothing"
        assert (busy.live(whose, MemoryType.PERSONA) == set()) is removed
        listed = busy.history.sessions(whose.subject, now=NOW)
        assert ("guide" not in {session.agent_id for session in listed}) is removed
        assert (whose.user_id not in busy.history.owners(TENANT, "guide", "trip", now=NOW)) is removed
    finished = busy.registry.finish_unfinished()

    assert finished <= removed
    assert busy.own_states() == ({"recycled", "active"} if removed else {"active"}), "the namesake's is active"
    assert busy.registry.finish_unfinished() == 0
    if removed:
        busy.registry.agents.restore("guide")
    assert busy.picture() == before


@sampled
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
def test_a_restore_that_is_cut_short_is_finished_by_the_next_sweep(busy: World, at: int, after: bool) -> None:
    before = busy.picture()
    busy.registry.agents.remove("guide")
    gone = busy.picture()
    crash_at(busy, at, lambda registry: registry.agents.restore("guide"), after=after)

    busy.registry.finish_unfinished()

    entry = busy.store.get(TENANT, "agent", "guide")
    assert entry is not None
    assert busy.picture() == (before if entry.state is State.ACTIVE else gone)
    assert entry.unfinished is None


@sampled
@pytest.mark.parametrize("at", CALLS)
def test_a_removal_that_is_cut_short_can_be_taken_back(busy: World, at: int) -> None:
    before = busy.picture()
    crash_at(busy, at, lambda registry: registry.agents.remove("guide"))
    if busy.store.get(TENANT, "agent", "guide") is not None:
        busy.registry.agents.restore("guide")

    assert busy.registry.finish_unfinished() == 0
    assert busy.picture() == before


@sampled
@pytest.mark.parametrize("at", CALLS)
def test_a_restore_that_is_cut_short_and_undone_loses_nothing(busy: World, at: int) -> None:
    before = busy.picture()
    busy.registry.agents.remove("guide")
    crash_at(busy, at, lambda registry: registry.agents.restore("guide"))
    entry = busy.store.get(TENANT, "agent", "guide")
    assert entry is not None
    if entry.state is State.ACTIVE:
        busy.registry.agents.remove("guide")
    busy.registry.agents.restore("guide")

    assert busy.picture() == before


@pytest.mark.parametrize("at", [2, 4, 7])
def test_a_removal_that_was_cut_short_can_be_asked_for_again(busy: World, at: int) -> None:
    crash_at(busy, at, lambda registry: registry.agents.remove("guide"))

    busy.registry.agents.remove("guide")

    assert busy.store.unfinished(TENANT) == []
    assert busy.live(ANN, MemoryType.PERSONA) == set()
    with pytest.raises(ConflictError, match="already"):
        busy.registry.agents.remove("guide")


def test_whoever_goes_on_with_what_another_has_turned_round_changes_nothing(busy: World) -> None:
    before = busy.picture()
    crash_at(busy, 4, lambda registry: registry.agents.remove("guide"))
    (removal,) = busy.store.unfinished(TENANT)
    busy.registry.agents.restore("guide")

    with pytest.raises(StaleError, match="meanwhile"):
        busy.store.follow(removal, "records", now=NOW, limit=9)
    assert not busy.store.finish(removal)
    assert busy.picture() == before


def test_a_batch_of_a_sweeper_that_lost_its_lease_changes_nothing(busy: World) -> None:
    crash_at(busy, 2, lambda registry: registry.agents.remove("guide"))
    leases = SqlLeases(busy.database)
    lease = leases.acquire("sweep", "elsewhere:1:a", now=NOW, ttl=SECOND)
    assert lease is not None
    leases.acquire("sweep", "elsewhere:2:b", now=lease.expires_at, ttl=SECOND)
    before = busy.picture()

    with pytest.raises(LeaseLostError):
        busy.store.follow(busy.store.unfinished(TENANT)[0], "records", now=NOW, limit=9, lease=lease)
    assert busy.picture() == before


# --- holds ----------------------------------------------------------------------------------------------------------------


def test_a_held_agent_is_not_removed_and_the_refusal_is_written_down(busy: World) -> None:
    busy.registry.agents.add("guide")
    before = busy.picture()
    hold = busy.hold(agent_id="guide")

    with pytest.raises(HeldError, match=f"agent 'guide' is kept by hold {hold.id} .litigation.*release the hold"):
        busy.registry.agents.remove("guide")

    assert busy.picture() == before
    assert busy.actions("guide") == ["registered", "refused"]
    busy.release(hold)
    assert busy.registry.agents.remove("guide")["persona"] == 6


@pytest.mark.parametrize("what", [{"memory_id": "search"}, {"tag": "team=core"}])
def test_a_held_tool_is_not_removed(world: World, what: dict[str, str]) -> None:
    world.registry.tools.add("search", metadata={"team": "core"})
    world.hold(**what)
    with pytest.raises(HeldError):
        world.registry.tools.remove("search")
    assert world.registry.tools.get("search")


def test_what_is_held_stays_out_of_sight_until_it_may_go_too(busy: World) -> None:
    hold = busy.hold(user_id="ann")
    went = busy.registry.agents.remove("guide")

    assert (went["persona"], went["sessions"], went["held"]) == (3, 2, 8)
    assert busy.live(ANN, MemoryType.PERSONA) == set()
    assert busy.said(ANN.scope("guide", "trip")) == []
    busy.now += BIN
    clear_bin(busy)
    entries = len(busy.audit.tail(TENANT, limit=999))
    assert busy.registry.purge_due(busy.now) == 0, "forgetting the agent would bring what is held back into sight"
    assert len(busy.audit.tail(TENANT, limit=999)) == entries, "no refusal a day"

    busy.release(hold)
    assert busy.registry.purge_due(busy.now) == 0, "now it is in the bin, for its own fifteen days"
    busy.now += BIN - 1
    clear_bin(busy)
    assert busy.registry.purge_due(busy.now) == 0
    busy.now += 1
    clear_bin(busy)
    assert busy.registry.purge_due(busy.now) == 1
    assert busy.own_states() == {"active"}, "the namesake's"


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_what_is_held_is_tried_and_counted_once(busy: World, user: str) -> None:
    busy.hold(user_id=user)

    assert busy.registry.agents.remove("guide")["held"] == 8
    entries = busy.audit.tail(TENANT, limit=999, subject=Subject(TENANT, user))
    assert sum(found.action == "refused" for found in entries) == 8


def test_what_is_held_is_there_when_its_agent_is_restored(busy: World) -> None:
    before = busy.picture()
    busy.hold(user_id="ann")
    busy.registry.agents.remove("guide")

    assert busy.registry.agents.restore("guide")["persona"] == 3
    assert busy.picture() == before


# --- the end --------------------------------------------------------------------------------------------------------------


def clear_bin(world: World) -> None:
    """Delete what has been in the recycle bin for its time, as the sweep does."""
    with world.database.read() as tx:
        binned = raw.rows(
            tx,
            "SELECT subjects.subject, id, version FROM records JOIN subjects ON subjects.no = records.subject"
            " WHERE state = 'recycled' AND purge_at <= ?",
            (world.now,),
        )
        talks = raw.rows(
            tx,
            "SELECT subjects.subject, id, version FROM sessions JOIN subjects ON subjects.no = sessions.subject"
            " WHERE state = 'recycled' AND purge_at <= ?",
            (world.now,),
        )
    for key, record_id, version in binned:
        subject = Subject.parse(key)
        move = Move(record_id, version, State.RECYCLED, State.DELETED, "a test", Cause.BIN)
        assert world.records.transition(subject, [move], now=world.now) == [Outcome.DONE]
    for key, item_id, version in talks:
        subject = Subject.parse(key)
        claim = Move(item_id, version, State.RECYCLED, State.DELETING, "a test", Cause.BIN)
        world.history.transition_all([(subject, [claim])], now=world.now)
        assert world.history.erase(subject, item_id, limit=99) == 0
        end = Move(item_id, version + 1, State.DELETING, State.DELETED, "a test", Cause.BIN)
        assert world.history.transition_all([(subject, [end])], now=world.now) == [[Outcome.DONE]]


def test_an_agent_is_forgotten_once_its_time_is_over_and_nothing_of_it_is_left(busy: World) -> None:
    busy.registry.agents.remove("guide")
    busy.now += BIN - 1
    assert busy.registry.purge_due(busy.now) == 0
    busy.now += 1
    assert busy.registry.purge_due(busy.now) == 0, "its memories are still in the bin"
    clear_bin(busy)
    assert busy.registry.purge_due(busy.now) == 1
    assert busy.registry.purge_due(busy.now) == 0

    assert busy.registry.agents.list(include_removed=True) == []
    assert busy.actions("guide")[-1] == "deleted"
    busy.registry.agents.add("guide", "a new one of the name")
    assert busy.registry.agents.get("guide")["created_at"] == iso(busy.now)
    busy.say(ANN.scope("guide", "trip"), "begun anew")
    assert busy.said(ANN.scope("guide", "trip")) == ["begun anew"]


@pytest.mark.parametrize("sort", ["agent", "tool"])
def test_what_could_no_longer_be_restored_is_no_obstacle_to_another_of_its_name(world: World, sort: str) -> None:
    roster = getattr(world.registry, f"{sort}s")
    roster.add("search", "the old one")
    roster.remove("search")
    world.now += BIN - 1
    with pytest.raises(ConflictError, match="restore it with"):
        roster.add("search")
    world.now += 1
    with pytest.raises(ConflictError, match="no longer be restored"):
        roster.restore("search")

    assert roster.add("search", "a new one")["created_at"] == iso(world.now)
    assert roster.get("search")["description"] == "a new one"
    assert world.actions("search") == ["registered", "recycled", "deleted", "registered"]
    assert world.registry.purge_due(world.now) == 0


def test_a_name_is_not_free_while_something_of_its_agent_is_left_or_held(busy: World) -> None:
    busy.registry.agents.remove("guide")
    busy.registry.tools.add("search")
    busy.registry.tools.remove("search")
    hold = busy.hold(memory_id="search")
    busy.now += BIN
    for roster, name in ((busy.registry.agents, "guide"), (busy.registry.tools, "search")):
        with pytest.raises(ConflictError, match=r"not gone yet.*holdfast sweep"):
            roster.add(name)
    with pytest.raises(AgentRemovedError, match=f"restore it until {iso(NOW + BIN)[:10]}"):
        busy.remember(ANN, MemoryType.PERSONA)
    busy.release(hold)
    clear_bin(busy)
    assert busy.registry.agents.add("guide")
    assert busy.registry.tools.add("search")


def test_a_removal_that_was_cut_short_and_never_finished_is_finished_before_the_end(busy: World) -> None:
    crash_at(busy, 4, lambda registry: registry.agents.remove("guide"))
    busy.now += BIN
    clear_bin(busy)

    assert busy.registry.purge_due(busy.now) == 0
    assert busy.live(ANN, MemoryType.PERSONA) == set()
    busy.now += BIN
    clear_bin(busy)
    assert busy.registry.purge_due(busy.now) == 1


def test_a_tool_goes_and_comes_back_and_goes_for_good(world: World) -> None:
    tools = world.registry.tools
    tools.add("search", "Looks things up")
    assert tools.remove("search") == {"tool_id": "search", "purge_at": iso(NOW + BIN)}
    assert tools.restore("search") == {"tool_id": "search"}
    assert tools.get("search")["description"] == "Looks things up"
    tools.remove("search")
    world.now += BIN

    assert world.registry.purge_due(world.now) == 1
    assert tools.list(include_removed=True) == []
    with pytest.raises(NotFoundError):
        tools.remove("search")
    assert world.actions("search") == ["registered", "recycled", "restored", "recycled", "deleted"]
