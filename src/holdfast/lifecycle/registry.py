"""Agents and tools: made known, removed with all that is their own, and brought back with it."""

from __future__ import annotations

import logging
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast.core.decisions import BIN_REASON, removal_reason
from holdfast.core.errors import InvalidContentError, NotFoundError, StaleError, StoreAwayError, quote
from holdfast.core.records import HISTORY, MemoryType, State, Subject
from holdfast.core.values import check_content, check_id, check_metadata, iso
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.lifecycle.sweeping.plan import ACTIONS, Line, take_census
from holdfast.ports.coordination import Lease, begin_steps, join_rest
from holdfast.ports.registry import AGENT, TOOL, Outlook, Registered, RegistryStore
from holdfast.ports.rules import Census
from holdfast.ports.stores import Tenant
from holdfast.results.lifecycle import RegistryMoveResult, RegistryResult

_MOST_DESCRIPTION: Final = 64 * 1024
_log = logging.getLogger("holdfast.registry")
#: What is an agent's own, in the order in which it follows.
_OWN: Final = ("sessions", "records")
_COUNTED: Final = (MemoryType.PERSONA.value, MemoryType.EPISODIC.value, "sessions", "messages")
#: The same in the words of reports, which count conversations by themselves.
_LISTED: Final = {**{kind: kind for kind in _COUNTED[:2]}, HISTORY: "sessions"}
Note = Callable[[Line], object]


def _ignore(_line: Line) -> None:
    """Nobody asks what went."""


@dataclass(eq=False, repr=False)
class Registry:
    """The agents and tools of a tenant.

    Removing an agent takes its persona and episodic memories of all users, and its conversations, to the recycle bin;
    what users know stays theirs. The agent goes first, so that all of it is out of sight at once; then its own follows,
    batch by batch. A crash between any two steps is made good by ``finish_unfinished``.
    """

    tenant: Tenant
    batch: int = 500
    """Moves in one transaction."""

    @property
    def agents(self) -> Roster:
        """``holdfast.agents``."""
        return Roster(self, AGENT)

    @property
    def tools(self) -> Roster:
        """``holdfast.tools``."""
        return Roster(self, TOOL)

    @property
    def _store(self) -> RegistryStore:
        return self.tenant.registry

    def finish_unfinished(self, lease: Lease | None = None, only: str | None = None, *, note: Note = _ignore) -> int:
        """Finish what a crash cut short, in the direction in which it was going (``remove`` or ``restore`` alone, if
        one is named); how many there were.
        """
        found = [entry for entry in self._store.unfinished(self.tenant.name) if only in (None, entry.unfinished)]
        return sum(self._try_to_follow(entry, self.tenant.now(), lease, note) for entry in found)

    def purge_due(self, now: int, lease: Lease | None = None, *, at: int | None = None, note: Note = _ignore) -> int:
        """Forget those whose time in the recycle bin was over ``at`` a moment (now), once nothing of what went with
        them is left; how many.
        """
        gone = 0
        for entry in self._store.due(self.tenant.name, now=now if at is None else at):
            # What a hold has let go of since follows first: it would be seen again if the agent were forgotten.
            if self._try_to_follow(entry, now, lease, note) and self._store.erase(entry, now=now, lease=lease):
                gone += 1
                note(Line(entry.sort, ACTIONS[State.DELETED], BIN_REASON, 1, 0))
        return gone

    def outlooks(self, at: int) -> Iterator[tuple[Registered, Outlook]]:
        """The removed agents and tools that a sweep at a moment goes on with, and what it finds of each."""
        unfinished = (one for one in self._store.unfinished(self.tenant.name) if one.state is State.RECYCLED)
        due = self._store.due(self.tenant.name, now=at)
        for entry in {(one.sort, one.id): one for one in (*unfinished, *due)}.values():
            yield entry, self._store.outlook(entry, at=at)

    def purge_census(self, at: int, going: Callable[[], Container[str]]) -> Iterator[tuple[Census, State, str]]:
        """What a sweep at a moment takes beside what rules do: what still has to follow an agent, and agents and tools
        of which nothing is left then; how much, where to and why. ``going`` tells what rules send to the bin.
        """
        for entry, outlook in self.outlooks(at):
            own = [one for one in outlook.own if one.id not in going()]
            yield from ((census, State.RECYCLED, removal_reason(entry.id)) for census in take_census(own))
            if not own and not outlook.stays and entry.purge_at is not None and entry.purge_at <= at:
                mark = zlib.crc32(entry.id.encode())
                yield Census(entry.sort, Subject(entry.tenant), 1, 0, mark, entry.version), State.DELETED, BIN_REASON

    def _try_to_follow(self, entry: Registered, now: int, lease: Lease | None, note: Note) -> bool:
        try:
            moved, _ = self.follow(entry, now, lease)
        except StaleError:  # somebody else removed or restored it, and goes on with that
            return False
        except StoreAwayError as problem:
            _log.warning("%s %r is not wholly removed yet: %s", entry.sort, entry.id, problem)
            return False
        if entry.state is State.RECYCLED:
            for kind, name in _LISTED.items():
                if moved[name]:
                    size = moved[f"bytes of {name}"]
                    note(Line(kind, ACTIONS[State.RECYCLED], removal_reason(entry.id), moved[name], size))
        return True

    def follow(self, entry: Registered, now: int, lease: Lease | None = None) -> tuple[Counter[str], Counter[str]]:
        """Move all that is an agent's own where the agent went; what moved, and what did not, by reason."""
        moved: Counter[str] = Counter()
        left: Counter[str] = Counter()
        away: StoreAwayError | None = None
        if entry.sort == AGENT:
            for what in _OWN:
                after: tuple[str, int] | None = ("", 0)
                while after is not None:
                    some = self._store.follow(entry, what, after=after, now=now, limit=self.batch, lease=lease)
                    moved.update(some.moved)
                    moved.update({f"bytes of {name}": size for name, size in some.bytes.items()})
                    left.update(some.left)
                    after = some.after
                if what == "sessions" and entry.state is State.RECYCLED and not left["held"]:
                    try:
                        self.tenant.short_term.end_agent(entry.tenant, entry.id)  # also what is out of sight already
                    except StoreAwayError as problem:  # the rest goes on; this is tried again with the next sweep
                        away = problem
            try:
                SessionParts(self.tenant).follow()
            except StoreAwayError as problem:
                away = problem
        if away is not None:
            raise away
        join_rest()  # until the reply is kept it is unfinished, and whoever is asked again goes on with it
        if not self._store.finish(entry, lease=lease):
            raise StaleError(f"{entry.sort} {entry.id!r} was changed by another writer meanwhile; look at it again")
        return moved, left


@dataclass(eq=False, repr=False)
class Roster:
    """``holdfast.agents`` and ``holdfast.tools``."""

    registry: Registry
    sort: str

    @property
    def tenant(self) -> Tenant:
        """Whose it is."""
        return self.registry.tenant

    def add(self, id: str, description: str = "", metadata: Mapping[str, Any] | None = None) -> RegistryResult:  # noqa: A002
        """Make known, or say anew what is known. One that is in the recycle bin is to be restored instead."""
        name = self._check(id)
        if description:
            check_content(description, "description", max_bytes=_MOST_DESCRIPTION)
        elif description != "":
            raise InvalidContentError(f"description must be text, not {quote(description)}")
        known: dict[str, Any] = {"description": description, "metadata": check_metadata(metadata)}
        return _describe(self.tenant.registry.put(self.tenant.name, self.sort, name, **known, now=self.tenant.now()))

    def get(self, id: str) -> RegistryResult:  # noqa: A002
        """What is known; ``NotFoundError`` says why nothing is."""
        name = self._check(id)
        found = self.tenant.registry.get(self.tenant.name, self.sort, name)
        if found is None:
            raise NotFoundError(f"no {self.sort} {name!r} is known; make it known with holdfast.{self.sort}s.add()")
        if found.state is not State.ACTIVE:
            raise NotFoundError(f"{self.sort} {name!r} is in the recycle bin; restore it to use it again")
        return _describe(found)

    def remove(self, id: str) -> RegistryMoveResult:  # noqa: A002
        """Send to the recycle bin for 15 days with all that is its own, out of recall at once; how much that was. Where
        that was cut short, it goes on.
        """
        name, sort, store, now = self._check(id), self.sort, self.tenant.registry, self.tenant.now()
        request = begin_steps()
        if sort == AGENT:
            SessionParts(self.tenant).refresh(agent_id=name)
        bundle = secrets.token_hex(16) if request is None else request.new_ids(1)[0].replace("-", "")
        entry = store.get(self.tenant.name, sort, name)
        if entry is None or (entry.unfinished != "remove" and entry.bundle != bundle):
            reason = f"{sort} {name} was removed by the user"
            entry = store.remove(self.tenant.name, sort, name, now=now, reason=reason, bundle=bundle)
        moved, left = self.registry.follow(entry, now)
        went = {f"{sort}_id": name, **_counts(sort, moved), "purge_at": iso(entry.purge_at or now)}
        return cast("RegistryMoveResult", {**went, **({"held": left["held"]} if left["held"] else {})})

    def restore(self, id: str) -> RegistryMoveResult:  # noqa: A002
        """Bring back exactly what went with it; how much that was, and how much could not come, and why."""
        name, sort, store, now = self._check(id), self.sort, self.tenant.registry, self.tenant.now()
        begin_steps()
        entry = store.get(self.tenant.name, sort, name)
        if entry is None or entry.unfinished != "restore":
            entry = store.restore(self.tenant.name, sort, name, now=now)
        moved, left = self.registry.follow(entry, now)
        kept = {"restore_error": {reason: count for reason, count in left.items() if count}} if left.total() else {}
        return cast("RegistryMoveResult", {f"{sort}_id": name, **_counts(sort, moved), **kept})

    def list(self, *, include_removed: bool = False) -> list[RegistryResult]:
        """Those that are known, by id; with ``include_removed``, those in the recycle bin too."""
        found = self.tenant.registry.list(self.tenant.name, self.sort, include_removed=include_removed)
        return [_describe(entry) for entry in found]

    def _check(self, name: object) -> str:
        return check_id(name, f"{self.sort}_id")


def _counts(sort: str, moved: Counter[str]) -> dict[str, int]:
    return {name: moved[name] for name in _COUNTED} if sort == AGENT else {}


def _describe(entry: Registered) -> RegistryResult:
    """An agent or a tool as callers see it."""
    shown = {
        f"{entry.sort}_id": entry.id,
        "description": entry.description,
        "metadata": entry.metadata,
        "created_at": iso(entry.created_at),
        "updated_at": iso(entry.updated_at),
    }
    if entry.state is State.ACTIVE:
        return cast("RegistryResult", shown)
    removed = {
        **shown,
        "state": entry.state.value,
        "deleted_at": iso(entry.moved_at or entry.updated_at),
        "purge_at": iso(entry.purge_at or entry.updated_at),
    }
    return cast("RegistryResult", removed)
