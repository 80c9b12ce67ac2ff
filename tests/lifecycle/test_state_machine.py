"""The whole engine against a model in plain Python, whatever is done in whatever order.

After each step, what is seen by every way of reading, what is counted, and what is in the recycle bin is what the model
says of this instant; the audit chain is whole. After each sweep nothing is left to do.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from clocks import FakeClock
from effort import soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, ConflictError, HeldError, HoldfastError, NotFoundError
from holdfast.core.records import HISTORY, Subject, Terms
from holdfast.core.rules import EVERY, Rule, days
from holdfast.core.values import DAY, iso, moment, when
from holdfast.lifecycle.schedule import maintenance
from homes import Homes
from lifecycle.model import COLD, HOUR, LIVE, OWN, Model, Part, Thing, Window
from lifecycle.soundness import check_chain, check_counts, check_sound

USERS, AGENTS, SESSIONS = ("ann", "bob"), ("guide", "cook"), ("trip", "home")
KINDS = ("long_term", "persona", "episodic", "entity", "structured")
PARTS = {
    "episodes": (maintenance.EPISODES, Part(frozenset({"episodic"}), bin=False)),
    "archive": (maintenance.COLD, Part(frozenset(COLD), recycles=False, bin=False)),
    "daily": (maintenance.DAILY, Part(frozenset({HISTORY, *KINDS} - {"episodic"}), archives=False)),
    "minutely": (maintenance.SHORT, Part(bin=False, shorter_than=DAY)),
}
#: Archive, delete and keep, in days; not every rule can say each of them.
TERMS = [(None, 10, None), (5, 30, None), (None, 0.5, None), (None, "never", None), (None, None, 60), (20, None, None)]
Users, Agents, Sessions, Kinds = map(st.sampled_from, (USERS, AGENTS, SESSIONS, KINDS))
Places = st.integers(0, 10**6)
Levels = st.sampled_from(["tenant", "user", "agent", "session", "user and agent", "memory"])


class Machine(RuleBasedStateMachine):
    """Does things to an engine and to the model."""

    def __init__(self, engine_name: str) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.homes = Homes(engine_name, self.folder)
        self.home = self.homes.new()
        self.clock = FakeClock()
        self.holdfast = Holdfast.open(home=self.home, clock=self.clock)
        self.holdfast.schedule.enrol()
        self.model = Model()
        self.count = self.steps = 0

    def teardown(self) -> None:
        try:
            self.check_cold_content()
        finally:
            self.holdfast.close()
            self.homes.remove(self.home)
            self.folder.rmdir()

    # --- what the steps need --------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return moment(self.clock.now)

    def memory(self, thing: Thing) -> MemoryManager:
        return self.holdfast.manager(thing.user, thing.agent, thing.session)

    def text(self) -> str:
        self.count += 1
        return f"a trip to Rome, number {self.count}. " + "The train was late. " * (self.count % 3 * 10)

    def some(self, place: int, *states: str, kinds: tuple[str, ...] = KINDS) -> Thing | None:
        """One of the things in such a state, if there are any."""
        found = [thing for thing in self.model.things if thing.state in states and thing.kind in kinds]
        return found[place % len(found)] if found else None

    def refused(self, error: type[HoldfastError], act: Any, *arguments: Any, **options: Any) -> None:
        with pytest.raises(error):
            act(*arguments, **options)

    @initialize()
    def begin_with_something(self) -> None:
        for user, agent, kind, case in (
            ("ann", "guide", "long_term", "7"),
            ("ann", "guide", "persona", None),
            ("ann", "cook", "episodic", "7"),
            ("ann", "cook", "structured", None),
            ("bob", "guide", "long_term", None),
            ("bob", "cook", "entity", "7"),
        ):
            self.add(kind, user, agent, "trip", case)
        self.add_message("ann", "guide", "trip")

    # --- remembering ------------------------------------------------------------------------------------------------------

    @rule(kind=Kinds, user=Users, agent=Agents, session=Sessions, case=st.sampled_from([None, "7"]))
    def add(self, kind: str, user: str, agent: str, session: str, case: str | None) -> None:
        thing = Thing("", kind, user, agent, session, self.text(), self.now, case)
        metadata = {} if case is None else {"case": case}
        content: Any = {"text": thing.content} if kind == "structured" else thing.content
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, self.memory(thing).add, content, kind, metadata)
            return
        thing.id = self.memory(thing).add(content, kind, metadata)["memory_id"]
        self.model.things.append(thing)

    @rule(user=Users, agent=Agents, session=Sessions, ago=st.sampled_from([0, 1, 89, 90, 91, 364, 365, 400]))
    def record_episode(self, user: str, agent: str, session: str, ago: int) -> None:
        thing = Thing("", "episodic", user, agent, session, self.text(), self.now - ago * DAY)
        ended = self.clock.now - timedelta(days=ago)
        episodic = self.memory(thing).episodic
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, episodic.record_episode, "a trip", ["went"], timestamp=ended)
            return
        thing.id = episodic.record_episode("a trip", ["went"], summary=thing.content, timestamp=ended)
        self.model.things.append(thing)

    @rule(user=Users, agent=Agents, session=Sessions)
    def add_message(self, user: str, agent: str, session: str) -> None:
        new = Thing("", HISTORY, user, agent, session, "", self.now)
        text = self.text()
        there = self.model.active_session(user, agent, session)
        short_term = self.memory(new).short_term
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, short_term.add_message, "user", text)
            return
        if there is not None and self.model.is_over(there, self.now):
            self.model.make_way(there, self.now)
            there = None
        short_term.add_message("user", text)
        if there is None:
            there = new
            self.model.things.append(there)
        there.aged_from = self.now
        there.messages.append(text)
        ttl = self.model.life(Thing("", "short_term", user, agent, session, "", 0)).delete_after or HOUR
        if there.window is None or there.window.expires_at <= self.now:
            there.window = Window([], 0)
        there.window.messages.append(text)
        there.window.expires_at = self.now + ttl

    # --- time -------------------------------------------------------------------------------------------------------------

    @rule(step=st.sampled_from([{"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 9}, {"days": 40}, {"days": 200}]))
    def let_time_pass(self, step: dict[str, int]) -> None:
        self.clock.advance(**step)

    @rule(place=Places, off=st.sampled_from([0, 0, -1]))
    def let_time_pass_to_a_boundary(self, place: int, off: int) -> None:
        ahead = self.model.boundaries(self.now)
        if ahead:
            self.clock.now = max(self.clock.now, when(ahead[place % len(ahead)] + off))

    # --- rules and holds ----------------------------------------------------------------------------------------------------

    def scope(self, level: str, user: str, agent: str, session: str, place: int) -> dict[str, str] | None:
        thing = self.some(place, *LIVE, "recycled")
        if level == "memory":
            return None if thing is None else {"user_id": thing.user, "memory_id": thing.id}
        parts = {"user": {"user_id": user}, "agent": {"agent_id": agent}, "session": {"session_id": session}}
        return {"tenant": {}, "user and agent": {"user_id": user, "agent_id": agent}, **parts}[level]

    @rule(
        kind=st.sampled_from([EVERY, HISTORY, "short_term", *KINDS]),
        level=Levels,
        user=Users,
        agent=Agents,
        session=Sessions,
        place=Places,
        terms=st.sampled_from(TERMS),
    )
    def set_rule(self, *, kind: str, level: str, user: str, agent: str, session: str, place: int, terms: Any) -> None:
        scope = self.scope(level, user, agent, session, place)
        if scope is None or (kind == "persona" and (terms[0] or terms[2])) or (kind == "entity" and terms[0]):
            return
        if kind in (HISTORY, "short_term") and (terms[0] or terms[2] or level == "memory" or terms[1] == "never"):
            return
        names = ("archive_after_days", "delete_after_days", "keep_days")
        given: dict[str, Any] = {**scope, **dict(zip(names, terms, strict=True))}
        self.holdfast.policies.set(kind, **given, confirm=True, author="ops")
        said = Terms(*(None if value is None else days(value, "days") for value in terms))
        key = (kind, *(scope.get(part) for part in ("user_id", "agent_id", "session_id", "memory_id")))
        parts: dict[str, Any] = dict(scope)
        self.model.rules[key] = Rule("", "default", kind, said, version=1, **parts)  # type: ignore[index]

    @precondition(lambda self: self.model.rules)
    @rule(place=Places)
    def remove_rule(self, place: int) -> None:
        key = list(self.model.rules)[place % len(self.model.rules)]
        gone = self.model.rules.pop(key)
        scope: dict[str, Any] = gone.scope
        self.holdfast.policies.remove(gone.kind, **scope, confirm=True)

    @rule(
        what=st.sampled_from(["user", "agent", "session", "memory", "tag", "user and tag"]),
        user=Users,
        agent=Agents,
        session=Sessions,
        place=Places,
    )
    def add_hold(self, what: str, user: str, agent: str, session: str, place: int) -> None:
        if len(self.model.holds) == 2:  # with everything on hold nothing happens any more
            return
        thing = self.some(place, *LIVE, "recycled")
        scope: Any = {
            "user": {"user_id": user},
            "agent": {"agent_id": agent},
            "session": {"session_id": session},
            "memory": None if thing is None else {"memory_id": thing.id},
            "tag": {"tag": "case=7"},
            "user and tag": {"user_id": user, "tag": "case=7"},
        }[what]
        if scope is not None:
            hold = self.holdfast.holds.add(**scope, reason="a lawsuit", author="counsel")
            self.model.holds[hold.id] = hold
            for thing in [one for one in self.model.records() if one.state in LIVE and hold.covers(one.held)]:
                self.delete_one(thing)

    @precondition(lambda self: self.model.holds)
    @rule(place=Places)
    def release_hold(self, place: int) -> None:
        hold_id = list(self.model.holds)[place % len(self.model.holds)]
        self.holdfast.holds.release(hold_id)
        del self.model.holds[hold_id]

    # --- changing, deleting, restoring ----------------------------------------------------------------------------------------

    @rule(place=Places)
    def update(self, place: int) -> None:
        thing = self.some(place, *LIVE, kinds=("long_term", "persona", "episodic"))
        if thing is None:
            return
        text = self.text()
        memory = self.memory(thing)
        if self.model.is_removed(thing.agent):
            self.refused(AgentRemovedError, memory.update, thing.id, text)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, memory.update, thing.id, text)
        elif thing.cold:
            self.refused(ConflictError, memory.update, thing.id, text)
        else:
            memory.update(thing.id, text)
            thing.content = text

    @rule(place=Places)
    def delete(self, place: int) -> None:
        thing = self.some(place, *LIVE)
        if thing is not None:
            self.delete_one(thing)

    def delete_one(self, thing: Thing) -> None:
        if self.model.is_removed(thing.agent):
            self.refused(AgentRemovedError, self.memory(thing).delete, thing.id)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, self.memory(thing).delete, thing.id)
        elif self.model.is_held(thing):
            self.refused(HeldError, self.memory(thing).delete, thing.id)
        else:
            self.memory(thing).delete(thing.id)
            self.model.recycle(thing, self.now)

    @rule(place=Places, by_bin=st.booleans())
    def restore(self, place: int, by_bin: bool) -> None:
        thing = self.some(place, "recycled")
        if thing is None or (thing.kind in OWN and self.model.is_removed(thing.agent)):
            return
        restore: Any = self.holdfast.recycle.restore if by_bin else self.memory(thing).restore
        arguments = {"memory_id": thing.id}
        if not by_bin and self.model.is_removed(thing.agent):
            self.refused(AgentRemovedError, restore, **arguments)
        elif thing.purge_at <= self.now:
            self.refused(ConflictError, restore, **arguments)
        else:
            restore(**arguments)
            self.model.restore(thing, self.now)

    @rule(place=Places)
    def rehydrate(self, place: int) -> None:
        thing = self.some(place, *LIVE, kinds=COLD)
        if thing is None:
            return
        if self.model.is_removed(thing.agent):
            self.refused(AgentRemovedError, self.memory(thing).rehydrate, thing.id)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, self.memory(thing).rehydrate, thing.id)
        elif not thing.cold:
            self.refused(ConflictError, self.memory(thing).rehydrate, thing.id)
        else:
            assert thing.content in self.memory(thing).rehydrate(thing.id)["content"]
            thing.state, thing.cold, thing.aged_from = "active", False, self.now

    @rule(user=Users)
    def delete_user_memories(self, user: str) -> None:
        records = [thing for thing in self.model.records() if thing.user == user and thing.state in LIVE]
        talks = [s for s in self.model.sessions() if s.user == user and self.model.is_visible(s, self.now)]
        memory = self.holdfast.manager("somebody", "guide")
        everything = [*records, *talks]
        if everything and all(map(self.model.is_held, everything)):
            self.refused(HeldError, memory.delete_user_memories, user)
            return
        expected = sum(not self.model.is_held(thing) for thing in records)
        expected += sum(len(talk.messages) for talk in talks if not self.model.is_held(talk))
        assert memory.delete_user_memories(user) == expected
        self.model.recycle_unheld(everything, self.now)

    @rule(user=Users, agent=Agents)
    def clean_up_old_episodes(self, user: str, agent: str) -> None:
        old = []
        for thing in self.model.records():
            ends = [after for after in self.model.life(thing)[:2] if after is not None]
            mine = (thing.kind, thing.user, thing.agent) == ("episodic", user, agent) and thing.state in LIVE
            if mine and ends and thing.aged_from + min(ends) <= self.now:
                old.append(thing)
        moved, _ = self.model.recycle_unheld(old, self.now)
        assert self.holdfast.manager(user, agent).episodic.cleanup_old_episodes() == moved

    # --- sessions and agents ----------------------------------------------------------------------------------------------------

    @rule(place=Places)
    def remove_session(self, place: int) -> None:
        talk = self.some(place, "active", kinds=(HISTORY,))
        if talk is None or talk.aside:
            return
        remove = self.holdfast.sessions.remove
        arguments: dict[str, Any] = {"agent_id": talk.agent, "session_id": talk.session, "user_id": talk.user}
        if not self.model.is_visible(talk, self.now):
            self.refused(NotFoundError, remove, **arguments)
        elif self.model.is_held(talk):
            self.refused(HeldError, remove, **arguments)
        else:
            assert remove(**arguments) == len(talk.messages)
            self.model.recycle(talk, self.now)

    @rule(place=Places)
    def restore_session(self, place: int) -> None:
        some = self.some(place, "recycled", kinds=(HISTORY,))
        if some is None or self.model.is_removed(some.agent):
            return
        who = (some.user, some.agent, some.session)
        named = [s for s in self.model.sessions() if (s.user, s.agent, s.session) == who and s.state == "recycled"]
        named.sort(key=lambda session: session.moved_at)
        if len(named) > 1 and named[-1].moved_at == named[-2].moved_at:
            return  # which of them is meant cannot be told
        talk = named[-1]
        arguments: dict[str, Any] = {"session_id": talk.session, "agent_id": talk.agent, "user_id": talk.user}
        there = self.model.active_session(talk.user, talk.agent, talk.session or "")
        in_the_way = there is not None and not self.model.is_over(there, self.now)
        if talk.purge_at <= self.now or in_the_way:
            self.refused(ConflictError, self.holdfast.recycle.restore, **arguments)
            return
        assert self.holdfast.recycle.restore(**arguments) == 1
        if there is not None:
            self.model.make_way(there, self.now)
        self.model.restore(talk, self.now)

    @rule(agent=Agents)
    def remove_agent(self, agent: str) -> None:
        if self.model.is_removed(agent):
            self.refused(ConflictError, self.holdfast.agents.remove, agent)
            return
        self.holdfast.agents.add(agent)
        self.model.agents[agent] = None
        if self.model.agent_is_held(agent):
            self.refused(HeldError, self.holdfast.agents.remove, agent)
            return
        self.holdfast.agents.remove(agent)
        self.model.remove_agent(agent, self.now)

    @rule(agent=Agents)
    def restore_agent(self, agent: str) -> None:
        until = self.model.agents.get(agent)
        if until is None:
            return
        if until <= self.now:
            self.refused(ConflictError, self.holdfast.agents.restore, agent)
            return
        talks = [talk for talk in self.model.sessions() if talk.agent == agent]
        back = [(talk.user, talk.session) for talk in talks if talk.bundle == agent or talk.state == "active"]
        if len(set(back)) < len(back):  # a hold kept another of the same name; what then is tested elsewhere
            return
        self.holdfast.agents.restore(agent)
        self.model.restore_agent(agent, self.now)

    # --- sweeping ---------------------------------------------------------------------------------------------------------------

    def check_swept(self) -> None:
        plan = self.holdfast.sweep(dry_run=True)
        assert plan.lines == (), "a sweep leaves nothing to the next one"
        check_sound(self.holdfast)

    @rule(how=st.sampled_from(["here", "by another engine", "by its plan", "twice"]))
    def sweep(self, how: str) -> None:
        if how == "by another engine":
            with Holdfast.open(home=self.home, clock=self.clock) as other:
                other.sweep()
        elif how == "by its plan":
            plan = self.holdfast.sweep(dry_run=True)
            report = self.holdfast.sweep(digest=plan.digest)
            assert (report.lines, report.held) == (plan.lines, plan.held)
        else:
            self.holdfast.sweep()
        self.model.sweep(self.now, Part())
        if how == "twice":
            assert self.holdfast.sweep().lines == ()
            self.model.sweep(self.now, Part())
        self.check_swept()

    @rule(name=st.sampled_from(sorted(PARTS)))
    def sweep_a_part(self, name: str) -> None:
        extent, part = PARTS[name]
        self.holdfast.maintenance.sweep(extent=extent)
        self.model.sweep(self.now, part)

    @rule()
    def run_the_jobs_that_are_due(self) -> None:
        for done in self.holdfast.schedule.run_due():
            assert done["error"] is None
            if done["name"] in PARTS:  # a backup moves nothing
                self.model.sweep(self.now, PARTS[done["name"]][1])

    @rule()
    def empty_the_bin(self) -> None:
        self.holdfast.recycle.purge()
        self.model.sweep(self.now, Part(kinds=frozenset()))

    @rule(user=Users)
    def archive_by_hand(self, user: str) -> None:
        self.holdfast.manager(user, "guide").long_term.archive_old_memories()
        mine = [thing for thing in self.model.things if thing.user == user]
        everything, self.model.things = self.model.things, mine
        self.model.sweep(self.now, Part(frozenset({"long_term"}), recycles=False, bin=False))
        self.model.things = everything

    @rule()
    def reopen(self) -> None:
        self.holdfast.close()
        self.holdfast = Holdfast.open(home=self.home, clock=self.clock)

    # --- what must be true after each step ----------------------------------------------------------------------------------------

    @invariant()
    def what_is_seen_is_what_the_model_says(self) -> None:
        self.steps += 1
        visible = [thing for thing in self.model.records() if self.model.is_visible(thing, self.now)]
        for user in USERS:
            for kind in KINDS:
                for agent in AGENTS if kind in OWN else AGENTS[:1]:
                    mine = [
                        thing
                        for thing in visible
                        if (thing.user, thing.kind) == (user, kind) and (kind not in OWN or thing.agent == agent)
                    ]
                    self.check_seen(self.holdfast.manager(user, agent), kind, mine)

    def check_seen(self, memory: MemoryManager, kind: str, mine: list[Thing]) -> None:
        everything = {thing.id for thing in mine}
        fresh = {thing.id for thing in mine if not self.model.is_archived(thing, self.now)}
        listed = memory.list_memories(kind, include_archived=True, limit=1_000)
        assert {one["memory_id"] for one in listed} == everything
        assert {one["memory_id"] for one in listed if not one["is_archived"]} == fresh
        assert {one["memory_id"] for one in memory.list_memories(kind, limit=1_000)} == fresh
        contents = {one["memory_id"]: one["content"] for one in listed}
        assert all(thing.content in contents[thing.id] for thing in mine if not thing.cold)
        archived = None if self.steps % 2 else True
        found = memory.retrieve("a trip to Rome", [kind], top_k=100, include_archived=archived)
        wanted = everything if archived or kind == "episodic" else fresh
        assert {one["memory_id"] for one in found} == wanted

    @invariant()
    def what_is_got_by_its_id_is_what_the_model_says(self) -> None:
        for thing in self.model.things:
            if thing.kind == HISTORY or (thing.kind in OWN and self.model.is_removed(thing.agent)):
                continue
            if self.model.is_visible(thing, self.now):
                found = self.memory(thing).get(thing.id)
                assert found["is_archived"] == self.model.is_archived(thing, self.now)
            else:
                self.refused(NotFoundError, self.memory(thing).get, thing.id)

    @invariant()
    def what_is_counted_is_what_is_live(self) -> None:
        for user in USERS:
            for kind in KINDS:
                live = [t for t in self.model.records() if (t.user, t.kind) == (user, kind) and t.state in LIVE]
                assert self.holdfast.quotas.get(kind, user).memories == len(live)
        check_counts(self.holdfast)

    @invariant()
    def conversations_are_what_the_model_says(self) -> None:
        for user in USERS:
            for agent in AGENTS:
                for session in SESSIONS:
                    talk = self.model.active_session(user, agent, session)
                    seen = self.holdfast.sessions.history(agent, session, user_id=user)
                    there = talk is not None and self.model.is_visible(talk, self.now)
                    assert [m["content"] for m in seen] == (talk.messages if there and talk else [])
                    window = talk.window if there and talk else None
                    fresh = window is not None and window.expires_at > self.now
                    short = self.holdfast.manager(user, agent, session).short_term.get_conversation_history()
                    assert [m["content"] for m in short] == (window.messages if fresh and window else [])

    @invariant()
    def sessions_are_listed_as_the_model_says(self) -> None:
        for user in USERS:
            talks = [s for s in self.model.sessions() if s.user == user and self.model.is_visible(s, self.now)]
            listed = [
                (one["agent_id"], one["session_id"], one["messages"]) for one in self.holdfast.sessions.list(user)
            ]
            assert sorted(listed) == sorted((talk.agent, talk.session, len(talk.messages)) for talk in talks)

    @invariant()
    def the_bin_holds_what_the_model_says(self) -> None:
        listed = self.holdfast.recycle.list(limit=10_000)
        binned = {
            thing.id: iso(thing.purge_at)
            for thing in self.model.records()
            if thing.state == "recycled" and thing.purge_at > self.now
        }
        assert {one["memory_id"]: one["purge_at"] for one in listed if one["type"] == "memory"} == binned
        talks = Counter(
            (talk.user, talk.agent, talk.session, len(talk.messages), iso(talk.purge_at))
            for talk in self.model.sessions()
            if talk.state == "recycled" and talk.purge_at > self.now
        )
        parts = ("user_id", "agent_id", "session_id", "messages", "purge_at")
        shown = Counter(tuple(one.get(part) for part in parts) for one in listed if one["type"] == "session")
        assert shown == talks
        agents = {a: iso(until) for a, until in self.model.agents.items() if until is not None and until > self.now}
        assert {one["agent_id"]: one["purge_at"] for one in listed if one["type"] == "agent"} == agents

    @invariant()
    def the_audit_chain_is_whole(self) -> None:
        check_chain(self.holdfast)

    def check_cold_content(self) -> None:
        """Everything in cold storage can be read from there, as it was."""
        for thing in self.model.things:
            if thing.cold and thing.state in (*LIVE, "recycled"):
                record = self.holdfast.services.records.get(Subject("default", thing.user), thing.id)
                assert record is not None
                assert thing.content in self.holdfast.services.archives.read(record).document["content"]


@soak
def test_the_lifecycle_is_what_its_model_says(engine_name: str) -> None:
    run_state_machine_as_test(
        cast("type[Machine]", partial(Machine, engine_name)),  # it is called, no more
        settings=settings(
            max_examples=times(8, engine_name),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
