"""What can be done to a store, and what must be true after each step, beside a model in plain Python.

After each step, what is seen by every way of reading, what is counted, and what is in the recycle bin is what the model
says of this instant; the audit chain is whole. After each sweep nothing is left to do. ``STEPS`` says what each step can
be given; whoever drives them chooses.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, ConflictError, HeldError, HoldfastError, KeptOutError, NotFoundError
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

#: The state to which each action of a plan leads.
_STATES: Final = {"archive": "archived", "recycle": "recycled", "delete": "gone"}
_PLACE: Final = {"place": range(1_000_000)}
_SCOPE: Final = {"user": USERS, "agent": AGENTS, "session": SESSIONS}
_PASSING: Final = ({"minutes": 1}, {"hours": 1}, {"days": 1}, {"days": 9}, {"days": 40}, {"days": 200})
#: The steps, and what each can be given.
STEPS: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "add": {"kind": KINDS, **_SCOPE, "case": (None, "7", "8")},
    "record_episode": {**_SCOPE, "ago": (0, 1, 89, 90, 91, 364, 365, 400)},
    "add_message": _SCOPE,
    "let_time_pass": {"step": _PASSING},
    "let_time_pass_to_a_boundary": {**_PLACE, "off": (0, 0, -1)},
    "set_rule": {
        "kind": (EVERY, HISTORY, "short_term", *KINDS),
        "level": ("tenant", "user", "agent", "session", "user and agent", "memory"),
        **_SCOPE,
        **_PLACE,
        "terms": TERMS,
    },
    "remove_rule": _PLACE,
    "add_hold": {"what": ("user", "agent", "session", "memory", "tag", "user and tag"), **_SCOPE, **_PLACE},
    "release_hold": _PLACE,
    "update": _PLACE,
    "delete": _PLACE,
    "restore": {**_PLACE, "by_bin": (False, True)},
    "rehydrate": _PLACE,
    "delete_user_memories": {"user": USERS},
    "clean_up_old_episodes": {"user": USERS, "agent": AGENTS},
    "remove_session": _PLACE,
    "restore_session": _PLACE,
    "remove_agent": {"agent": AGENTS},
    "restore_agent": {"agent": AGENTS},
    "sweep": {"how": ("here", "by another engine", "by its plan", "twice")},
    "sweep_a_part": {"name": sorted(PARTS)},
    "run_the_jobs_that_are_due": {},
    "empty_the_bin": {},
    "archive_by_hand": {"user": USERS},
    "reopen": {},
}
CHECKS: Final = (
    "what_is_seen_is_what_the_model_says",
    "what_is_got_by_its_id_is_what_the_model_says",
    "what_is_counted_is_what_is_live",
    "conversations_are_what_the_model_says",
    "sessions_are_listed_as_the_model_says",
    "the_bin_holds_what_the_model_says",
    "what_is_stored_is_in_the_state_that_the_model_says",
    "holds_and_rules_are_what_the_model_says",
    "a_plan_says_what_the_model_would_do",
    "what_is_an_agents_own_does_not_come_back_without_it",
    "the_audit_chain_is_whole",
)


class Steps:
    """Does things to an engine and to the model."""

    checks: tuple[str, ...] = CHECKS

    def __init__(self, engine_name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.homes = Homes(engine_name, self.folder)
        self.home = self.homes.new()
        self.clock = FakeClock()
        self.holdfast = self.open()
        self.holdfast.schedule.enrol()
        self.model = Model()
        self.count = self.steps = 0
        self.part = Part()
        """What a sweep would do now."""

    def open(self) -> Holdfast:
        """One more engine over the same store."""
        return Holdfast.open(home=self.home, clock=self.clock)

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

    def text(self, _user: str) -> str:
        self.count += 1
        return f"a trip to Rome, number {self.count}. " + "The train was late. " * (self.count % 3 * 10)

    def some(self, place: int, *states: str, kinds: tuple[str, ...] = KINDS) -> Thing | None:
        """One of the things in such a state, if there are any."""
        found = [thing for thing in self.model.things if thing.state in states and thing.kind in kinds]
        return found[place % len(found)] if found else None

    def act(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        """Do something that changes the store."""
        return verb(*arguments, **options)

    def refused(self, error: type[HoldfastError], act: Any, *arguments: Any, **options: Any) -> None:
        with pytest.raises(error):
            act(*arguments, **options)

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

    def add(self, kind: str, user: str, agent: str, session: str, case: str | None) -> None:
        thing = Thing("", kind, user, agent, session, self.text(user), self.now, case, began=self.now)
        metadata = {} if case is None else {"case": case}
        content: Any = {"text": thing.content} if kind == "structured" else thing.content
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, self.memory(thing).add, content, kind, metadata)
            return
        thing.id = self.act(self.memory(thing).add, content, kind, metadata)["memory_id"]
        self.model.things.append(thing)

    def record_episode(self, user: str, agent: str, session: str, ago: int) -> None:
        thing = Thing("", "episodic", user, agent, session, self.text(user), self.now - ago * DAY, began=self.now)
        ended = self.clock.now - timedelta(days=ago)
        episodic = self.memory(thing).episodic
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, episodic.record_episode, "a trip", ["went"], timestamp=ended)
            return
        thing.id = self.act(episodic.record_episode, "a trip", ["went"], summary=thing.content, timestamp=ended)
        self.model.things.append(thing)

    def add_message(self, user: str, agent: str, session: str) -> None:
        new = Thing("", HISTORY, user, agent, session, "", self.now)
        text = self.text(user)
        there = self.model.active_session(user, agent, session)
        short_term = self.memory(new).short_term
        if self.model.is_removed(agent):
            self.refused(AgentRemovedError, short_term.add_message, "user", text)
            return
        if there is not None and self.model.is_over(there, self.now):
            self.model.make_way(there, self.now)
            there = None
        self.act(short_term.add_message, "user", text)
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

    def let_time_pass(self, step: dict[str, int]) -> None:
        self.clock.advance(**step)

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

    def set_rule(self, *, kind: str, level: str, user: str, agent: str, session: str, place: int, terms: Any) -> None:
        scope = self.scope(level, user, agent, session, place)
        if scope is None or (kind == "persona" and (terms[0] or terms[2])) or (kind == "entity" and terms[0]):
            return
        if kind in (HISTORY, "short_term") and (terms[0] or terms[2] or level == "memory" or terms[1] == "never"):
            return
        names = ("archive_after_days", "delete_after_days", "keep_days")
        given: dict[str, Any] = {**scope, **dict(zip(names, terms, strict=True))}
        self.act(self.holdfast.policies.set, kind, **given, confirm=True, author="ops")
        said = Terms(*(None if value is None else days(value, "days") for value in terms))
        key = (kind, *(scope.get(part) for part in ("user_id", "agent_id", "session_id", "memory_id")))
        parts: dict[str, Any] = dict(scope)
        self.model.rules[key] = Rule("", "default", kind, said, version=1, **parts)  # type: ignore[index]

    def remove_rule(self, place: int) -> None:
        if not self.model.rules:
            return
        key = list(self.model.rules)[place % len(self.model.rules)]
        gone = self.model.rules.pop(key)
        scope: dict[str, Any] = gone.scope
        self.act(self.holdfast.policies.remove, gone.kind, **scope, confirm=True)

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
            hold = self.act(self.holdfast.holds.add, **scope, reason="a lawsuit", author="counsel")
            self.model.holds[hold.id] = hold
            for thing in [one for one in self.model.records() if one.state in LIVE and hold.covers(one.held)]:
                self.delete_one(thing)

    def release_hold(self, place: int) -> None:
        if not self.model.holds:
            return
        hold_id = list(self.model.holds)[place % len(self.model.holds)]
        self.act(self.holdfast.holds.release, hold_id)
        del self.model.holds[hold_id]

    # --- changing, deleting, restoring ----------------------------------------------------------------------------------------

    def update(self, place: int) -> None:
        thing = self.some(place, *LIVE, kinds=("long_term", "persona", "episodic"))
        if thing is None:
            return
        text = self.text(thing.user)
        memory = self.memory(thing)
        if self.model.is_removed(thing.agent) and not self.has_ended(thing):
            self.refused(ConflictError if thing.cold else AgentRemovedError, memory.update, thing.id, text)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, memory.update, thing.id, text)
        elif thing.cold:
            self.refused(ConflictError, memory.update, thing.id, text)
        else:
            self.act(memory.update, thing.id, text)
            thing.say(text, self.now)

    def has_ended(self, thing: Thing) -> bool:
        """Whether somebody is told that the time of a memory is over, also where the agent is removed: it is the user's."""
        return thing.kind not in OWN and not self.model.is_visible(thing, self.now)

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
            self.act(self.memory(thing).delete, thing.id)
            self.model.recycle(thing, self.now)

    def restore(self, place: int, by_bin: bool) -> None:
        thing = self.some(place, "recycled")
        if thing is None:
            return
        restore: Any = self.holdfast.recycle.restore if by_bin else self.memory(thing).restore
        arguments = {"memory_id": thing.id}
        is_parted = self.model.is_removed(thing.agent) and (thing.kind in OWN or not by_bin)
        if is_parted or thing.purge_at <= self.now:
            self.refused(ConflictError, restore, **arguments)
        elif self.model.is_kept_out(thing):
            self.refused(KeptOutError, restore, **arguments)
        else:
            self.act(restore, **arguments)
            self.model.restore(thing, self.now)

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
            assert thing.content in self.act(self.memory(thing).rehydrate, thing.id)["content"]
            thing.state, thing.cold, thing.aged_from = "active", False, self.now

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
        assert self.act(memory.delete_user_memories, user) == expected
        self.model.recycle_unheld(everything, self.now)

    def clean_up_old_episodes(self, user: str, agent: str) -> None:
        old = []
        for thing in self.model.records():
            ends = [after for after in self.model.life(thing)[:2] if after is not None]
            mine = (thing.kind, thing.user, thing.agent) == ("episodic", user, agent) and thing.state in LIVE
            if mine and ends and thing.aged_from + min(ends) <= self.now:
                old.append(thing)
        moved, _ = self.model.recycle_unheld(old, self.now)
        assert self.act(self.holdfast.manager(user, agent).episodic.cleanup_old_episodes) == moved

    # --- sessions and agents ----------------------------------------------------------------------------------------------------

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
            assert self.act(remove, **arguments) == len(talk.messages)
            self.model.recycle(talk, self.now)

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
        assert self.act(self.holdfast.recycle.restore, **arguments) == 1
        if there is not None:
            self.model.make_way(there, self.now)
        self.model.restore(talk, self.now)

    def remove_agent(self, agent: str) -> None:
        if self.model.is_removed(agent):
            self.refused(ConflictError, self.holdfast.agents.remove, agent)
            return
        self.act(self.holdfast.agents.add, agent)
        self.model.agents[agent] = None
        if self.model.agent_is_held(agent):
            self.refused(HeldError, self.holdfast.agents.remove, agent)
            return
        self.act(self.holdfast.agents.remove, agent)
        self.model.remove_agent(agent, self.now)

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
        self.act(self.holdfast.agents.restore, agent)
        self.model.restore_agent(agent, self.now)

    # --- sweeping ---------------------------------------------------------------------------------------------------------------

    def check_swept(self) -> None:
        plan = self.holdfast.sweep(dry_run=True)
        assert plan.lines == (), "a sweep leaves nothing to the next one"
        check_sound(self.holdfast)

    def sweep(self, how: str) -> None:
        if how == "by another engine":
            with self.open() as other:
                self.act(other.sweep)
        elif how == "by its plan":
            plan = self.holdfast.sweep(dry_run=True)
            report = self.act(self.holdfast.sweep, digest=plan.digest)
            assert (report.lines, report.held) == (plan.lines, plan.held)
        else:
            self.act(self.holdfast.sweep)
        self.model.sweep(self.now, Part())
        if how == "twice":
            assert self.act(self.holdfast.sweep).lines == ()
            self.model.sweep(self.now, Part())
        self.check_swept()

    def sweep_a_part(self, name: str) -> None:
        extent, part = PARTS[name]
        self.act(self.holdfast.maintenance.sweep, extent=extent)
        self.model.sweep(self.now, part)

    def run_the_jobs_that_are_due(self) -> None:
        for done in self.act(self.holdfast.schedule.run_due):
            assert done["error"] is None
            if done["name"] in PARTS:  # a backup moves nothing
                self.model.sweep(self.now, PARTS[done["name"]][1])

    def empty_the_bin(self) -> None:
        self.act(self.holdfast.recycle.purge)
        self.model.sweep(self.now, Part(kinds=frozenset()))

    def archive_by_hand(self, user: str) -> None:
        self.act(self.holdfast.manager(user, "guide").long_term.archive_old_memories)
        mine = [thing for thing in self.model.things if thing.user == user]
        everything, self.model.things = self.model.things, mine
        self.model.sweep(self.now, Part(frozenset({"long_term"}), recycles=False, bin=False))
        self.model.things = everything

    def reopen(self) -> None:
        self.holdfast.close()
        self.holdfast = self.open()

    # --- what must be true after each step ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """All of it."""
        for name in self.checks:
            getattr(self, name)()

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
        if self.steps % 2 == 0:
            assert {one["memory_id"] for one in memory.list_memories(kind, limit=1_000)} == fresh
        contents = {one["memory_id"]: one["content"] for one in listed}
        assert all(thing.content in contents[thing.id] for thing in mine if not thing.cold)
        archived = None if self.steps % 2 else True
        found = memory.retrieve("a trip to Rome", [kind], top_k=100, include_archived=archived)
        wanted = everything if archived or kind == "episodic" else fresh
        assert {one["memory_id"] for one in found} == wanted

    def what_is_got_by_its_id_is_what_the_model_says(self) -> None:
        for thing in self.model.things:
            if thing.kind == HISTORY or (thing.kind in OWN and self.model.is_removed(thing.agent)):
                continue
            if self.model.is_visible(thing, self.now):
                found = self.memory(thing).get(thing.id)
                assert found["is_archived"] == self.model.is_archived(thing, self.now)
            else:
                self.refused(NotFoundError, self.memory(thing).get, thing.id)

    def what_is_counted_is_what_is_live(self) -> None:
        for user in USERS:
            for kind in KINDS:
                live = [t for t in self.model.records() if (t.user, t.kind) == (user, kind) and t.state in LIVE]
                assert self.holdfast.quotas.get(kind, user).memories == len(live)
        check_counts(self.holdfast)

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

    def sessions_are_listed_as_the_model_says(self) -> None:
        for user in USERS:
            talks = [s for s in self.model.sessions() if s.user == user and self.model.is_visible(s, self.now)]
            listed = [
                (one["agent_id"], one["session_id"], one["messages"]) for one in self.holdfast.sessions.list(user)
            ]
            assert sorted(listed) == sorted((talk.agent, talk.session, len(talk.messages)) for talk in talks)

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

    def what_is_stored_is_in_the_state_that_the_model_says(self) -> None:
        stored = dict(raw.rows(self.holdfast, "SELECT id, state FROM records"))
        assert stored == {thing.id: thing.state for thing in self.model.records()}

    def holds_and_rules_are_what_the_model_says(self) -> None:
        assert {hold.id for hold in self.holdfast.holds.list()} == set(self.model.holds)
        parts = ("memory_type", "user_id", "agent_id", "session_id", "memory_id")
        said: list[Any] = [rule for rule in self.holdfast.policies.list() if rule["rule_id"]]
        assert {tuple(one.get(part) for part in parts) for one in said} == set(self.model.rules)

    def a_plan_says_what_the_model_would_do(self) -> None:
        """Beside what goes with an agent, which may be archived before, and is then counted twice."""
        leaving = any(until is not None and until <= self.now for until in self.model.agents.values())
        if self.steps % 2 == 0 and not leaving:
            plan = self.holdfast.sweep(dry_run=True)
            said: Counter[tuple[str, str]] = Counter()
            for line in plan.lines:
                if line.memory_type in KINDS:
                    said[line.memory_type, _STATES[line.action]] += line.records
            assert said == self.model.plan(self.now, self.part)

    def what_is_an_agents_own_does_not_come_back_without_it(self) -> None:
        """Of one memory at a time."""
        own = [t for t in self.model.records() if t.kind in OWN and self.model.is_removed(t.agent)]
        binned = [thing for thing in own if thing.state == "recycled"]
        if binned:
            memory_id = binned[self.steps % len(binned)].id
            self.refused(ConflictError, self.holdfast.recycle.restore, memory_id=memory_id)

    def the_audit_chain_is_whole(self) -> None:
        check_chain(self.holdfast)

    def check_cold_content(self) -> None:
        """Everything in cold storage can be read from there, as it was."""
        for thing in self.model.things:
            if thing.cold and thing.state in (*LIVE, "recycled"):
                record = self.holdfast.services.records.get(Subject("default", thing.user), thing.id)
                assert record is not None
                assert thing.content in self.holdfast.services.archives.read(record).document["content"]
