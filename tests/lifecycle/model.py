"""The lifecycle without a database: what is where, by the rules, as a few lists and functions."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core.decisions import Held, Hold, Life
from holdfast.core.records import BIN, HISTORY
from holdfast.core.rules import Rule, resolve
from holdfast.core.values import SECOND

OWN = ("persona", "episodic")
COLD = ("long_term", "structured")
LIVE = ("active", "archived")
HOUR = 3_600 * SECOND


@dataclass
class Thing:
    """A memory, or a session's conversation."""

    id: str
    kind: str
    user: str
    agent: str
    session: str | None
    content: str
    aged_from: int
    case: str | None = None
    state: str = "active"
    previous: str = "active"
    moved_at: int = 0
    purge_at: int = 0
    cold: bool = False
    bundle: str | None = None
    aside: bool = False
    """A conversation that is over and held, and whose name another has now."""
    messages: list[str] = field(default_factory=list)
    window: Window | None = None
    """A conversation's last messages, which go with it and do not come back."""
    began: int = 0
    """Since when it says what it says."""
    ended: list[Said] = field(default_factory=list)
    """What it said before, the first first."""

    def say(self, text: str, now: int, *, before: str | None = None) -> None:
        """Say something else from now on; what it said before is known, unless something else is given."""
        self.ended.append(Said(self.began, now, self.content if before is None else before))
        self.content, self.began = text, now

    @property
    def held(self) -> Held:
        return Held(self.user, self.agent, self.session, self.id, {} if self.case is None else {"case": self.case})


class Said(NamedTuple):
    """What a memory said before it was corrected."""

    began: int
    until: int
    text: str


@dataclass
class Window:
    """A session's short-term messages."""

    messages: list[str]
    expires_at: int


@dataclass(frozen=True)
class Part:
    """What of the lifecycle a sweep does."""

    kinds: frozenset[str] | None = None
    archives: bool = True
    recycles: bool = True
    bin: bool = True
    shorter_than: int | None = None
    clears: bool = True
    """Episodes are archived, of which only the summary stays."""


class Model:
    """All that a tenant has."""

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.rules: dict[tuple[str, str | None, str | None, str | None, str | None], Rule] = {}
        self.holds: dict[str, Hold] = {}
        self.agents: dict[str, int | None] = {}
        """Agents that are known; of those in the recycle bin, until when."""
        self.kept_out: dict[str, tuple[str, str]] = {}
        """Whose text does not come back, and which, by the memory that was deleted."""

    # --- looking -----------------------------------------------------------------------------------------------------

    def life(self, thing: Thing) -> Life:
        item = None if thing.kind == HISTORY else thing.id
        chosen = [r for r in self.rules.values() if r.selects(thing.user, thing.agent, thing.session, item)]
        return resolve(thing.kind, chosen)

    def is_removed(self, agent: str) -> bool:
        return self.agents.get(agent) is not None

    def is_over(self, thing: Thing, now: int) -> bool:
        after = self.life(thing).delete_after
        return after is not None and thing.aged_from + after <= now

    def is_visible(self, thing: Thing, now: int) -> bool:
        gone = thing.kind in (*OWN, HISTORY) and self.is_removed(thing.agent)
        return thing.state in LIVE and not gone and not thing.aside and not self.is_over(thing, now)

    def is_archived(self, thing: Thing, now: int) -> bool:
        after = self.life(thing).archive_after
        return thing.state == "archived" or (after is not None and thing.aged_from + after <= now)

    def is_held(self, thing: Thing) -> bool:
        return any(hold.covers(thing.held) for hold in self.holds.values())

    def is_kept_out(self, thing: Thing) -> bool:
        return (thing.user, thing.content) in self.kept_out.values()

    def history(self, thing: Thing, now: int) -> list[Said]:
        """What a memory said before, as far as that is kept."""
        life, out = self.life(thing), self.kept_out.values()
        assert life.versions
        assert life.versions_for
        since = now - life.versions_for
        return [one for one in thing.ended[-life.versions :] if one.until > since and (thing.user, one.text) not in out]

    def records(self) -> list[Thing]:
        return [thing for thing in self.things if thing.kind != HISTORY and thing.state != "gone"]

    def sessions(self) -> list[Thing]:
        return [thing for thing in self.things if thing.kind == HISTORY and thing.state != "gone"]

    def active_session(self, user: str, agent: str, session: str) -> Thing | None:
        who = (user, agent, session)
        found = [s for s in self.sessions() if (s.user, s.agent, s.session) == who and s.state == "active"]
        return next((session for session in found if not session.aside), None)

    def boundaries(self, now: int) -> list[int]:
        """Moments to come at which something happens to something."""
        found = set()
        for thing in self.things:
            if thing.state in LIVE:
                found |= {thing.aged_from + after for after in self.life(thing)[:2] if after is not None}
            elif thing.state == "recycled":
                found.add(thing.purge_at)
        found |= {until for until in self.agents.values() if until is not None}
        return sorted(moment for moment in found if moment > now)

    # --- moving ------------------------------------------------------------------------------------------------------

    def recycle(self, thing: Thing, now: int, purge_at: int | None = None, bundle: str | None = None) -> None:
        thing.previous, thing.state, thing.aside = thing.state, "recycled", False
        thing.window = None
        thing.moved_at, thing.purge_at, thing.bundle = now, purge_at or now + BIN, bundle

    def restore(self, thing: Thing, now: int) -> None:
        if self.is_over(thing, now):
            thing.aged_from = now
        thing.state, thing.bundle = thing.previous, None

    def make_way(self, session: Thing, now: int) -> None:
        """A conversation that is over gives up its name."""
        if self.is_held(session):
            session.aside = True
        else:
            self.recycle(session, now)

    def recycle_unheld(self, things: Iterable[Thing], now: int) -> tuple[int, int]:
        """What is not on hold goes to the bin; how much did, and how much stayed."""
        some = list(things)
        free = [thing for thing in some if not self.is_held(thing)]
        for thing in free:
            self.recycle(thing, now)
        return len(free), len(some) - len(free)

    def plan(self, now: int, part: Part) -> Counter[tuple[str, str]]:
        """How many memories of each kind a sweep would move, and to which state."""
        after = copy.deepcopy(self)
        after.sweep(now, part)
        both = zip(self.things, after.things, strict=True)
        return Counter((then.kind, then.state) for one, then in both if one.state != then.state and one.kind != HISTORY)

    def sweep(self, now: int, part: Part) -> None:
        for thing in self.things:
            life = self.life(thing)
            short = any(after is not None and after < (part.shorter_than or 0) for after in life[:2])
            wanted = (part.kinds is None or thing.kind in part.kinds) and (part.shorter_than is None or short)
            if thing.state not in LIVE or self.is_held(thing) or not wanted:
                continue
            if self.is_over(thing, now):
                if part.recycles:
                    self.recycle(thing, now)
            elif thing.kind == "episodic" and not part.clears:
                continue
            elif thing.state == "active" and self.is_archived(thing, now) and part.archives:
                thing.state, thing.cold = "archived", thing.kind in COLD
        if part.bin:
            for thing in self.things:
                if thing.state == "recycled" and thing.purge_at <= now and not self.is_held(thing):
                    thing.state = "gone"
            self._purge_agents(now)

    def _purge_agents(self, now: int) -> None:
        for agent, until in list(self.agents.items()):
            if until is not None and until <= now:
                own = self.own(agent)
                for thing in own:
                    if not self.is_held(thing):
                        self.recycle(thing, now, bundle=agent)
                bundled = any(thing.bundle == agent and thing.state == "recycled" for thing in self.things)
                if not own and not bundled and not self.agent_is_held(agent):
                    del self.agents[agent]

    def own(self, agent: str) -> list[Thing]:
        """What goes with an agent."""
        return [t for t in self.things if t.agent == agent and t.kind in (*OWN, HISTORY) and t.state in LIVE]

    def agent_is_held(self, agent: str) -> bool:
        return any(hold.covers(Held("", agent, None, agent, {})) for hold in self.holds.values())

    def remove_agent(self, agent: str, now: int) -> None:
        self.agents[agent] = now + BIN
        for thing in self.own(agent):
            if not self.is_held(thing):
                self.recycle(thing, now, bundle=agent)

    def restore_agent(self, agent: str, now: int) -> None:
        self.agents[agent] = None
        for thing in self.things:
            if thing.bundle == agent and thing.state == "recycled":
                self.restore(thing, now)
