"""Removing much at once because someone asked for it: it goes to the recycle bin, in small batches."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.decisions import Hold, RecordFacts, Window, find_hold
from holdfast.core.errors import HeldError
from holdfast.core.records import BIN, LIVE, TYPES, Cause, MemoryType, Move, Outcome, Scope, State, Subject
from holdfast.core.values import check_flag, check_source, describe_duration, iso
from holdfast.lifecycle.holds import record_facts
from holdfast.ports.coordination import begin_steps
from holdfast.ports.stores import Tenant, read_pages

if TYPE_CHECKING:
    from holdfast.ports.conversations import History, Session
    from holdfast.ports.records import ProvenanceStore, RecordStore, Written
    from holdfast.results.lifecycle import ForgetResult

_log = logging.getLogger("holdfast.bulk_delete")
_BATCH: Final = 500


class Cleared(NamedTuple):
    """How much went, and how much a hold kept."""

    moved: int
    held: int


def counted(cleared: Cleared, user_id: str) -> int:
    """How much went; ``HeldError`` if a hold kept all there is."""
    if cleared.held and not cleared.moved:
        raise HeldError(
            f"memories of user {user_id!r} are on hold ({cleared.held:,}), and nothing was deleted; "
            "see the holds with: holdfast hold list"
        )
    return cleared.moved


def clear(records: RecordStore, subject: Subject, kind: MemoryType, *, now: int, whose: str) -> Cleared:
    """Move a subject's live records of a kind into the recycle bin; a hold keeps what it covers. The log knows the
    subject as ``whose``.
    """
    reason = "deleted by the user, with all of its kind"
    outcomes: Counter[Outcome] = Counter()
    for some in read_pages(partial(records.live, subject, TYPES[kind]), _BATCH):
        moves = [recycle_move(facts, reason, Cause.USER, now) for facts in some]
        outcomes.update(records.transition(subject, moves, now=now) if moves else ())
    cleared = Cleared(outcomes[Outcome.DONE], outcomes[Outcome.HELD])
    _log.info(
        "%d %s memories of user %s went to the recycle bin, %d were on hold", cleared.moved, kind, whose, cleared.held
    )
    return cleared


def clear_conversations(history: History, subject: Subject, *, now: int) -> Cleared:
    """Move a subject's conversations into the recycle bin, with which their short-term windows end; how many messages.

    One that a hold keeps stays as it is, window and all.
    """
    moved = held = 0
    for session in history.sessions(subject, now=now):
        reason = "deleted by the user, with all conversations"
        move = recycle_move(session, reason, Cause.USER, now)
        ((outcome,),) = history.transition_all([(subject, [move])], now=now)
        moved += session.messages if outcome is Outcome.DONE else 0
        held += session.messages if outcome is Outcome.HELD else 0
    return Cleared(moved, held)


def clear_aged(
    tenant: Tenant, kind: MemoryType, *, subject: Subject | None = None, agent_id: str | None = None
) -> Cleared:
    """Move records that are past the end of their active time into the recycle bin, archived or not."""
    now, outcomes = tenant.now(), Counter[Outcome]()
    for profile in tenant.dues.profiles(tenant.name):
        ends = [after for after in profile.life[:2] if after is not None]
        if profile.kind != kind or not ends:
            continue
        age = max(min(ends), profile.life.keep_for or 0)
        reason = f"cleaned up: older than {describe_duration(age)}"
        for state in (State.ACTIVE, State.ARCHIVED):
            window = Window(State.RECYCLED, None, now - age)
            for page in read_pages(partial(tenant.dues.due, profile, state, window, tags=False), _BATCH):
                batches: dict[Subject, list[Move]] = defaultdict(list)
                for facts in page:
                    if subject in (None, facts.subject) and agent_id in (None, facts.thing.agent_id):
                        batches[facts.subject].append(recycle_move(facts, reason, Cause.CLEANUP, now))
                answers = tenant.records.transition_all(list(batches.items()), now=now) if batches else []
                outcomes.update(outcome for some in answers for outcome in some)
    cleared = Cleared(outcomes[Outcome.DONE], outcomes[Outcome.HELD])
    _log.info("cleaned up %d %s memories, %d were on hold", cleared.moved, kind, cleared.held)
    return cleared


#: What another writer changes meanwhile is read again and tried anew, this often.
_TRIES: Final = 8


def descendants(store: ProvenanceStore, subject: Subject, ids: Sequence[str]) -> list[Written]:
    """All that was derived from these, and from that in turn, nearest first and each once, in whatever state; without
    these themselves. Records that were derived from each other do no harm.
    """
    seen = set(ids)
    found: list[Written] = []
    frontier = list(ids)
    while frontier:
        some, frontier = frontier[:_BATCH], frontier[_BATCH:]
        for written in store.derived(subject, some):
            if written.facts.id not in seen:
                seen.add(written.facts.id)
                found.append(written)
                frontier.append(written.facts.id)
    return found


def recycle_together(
    records: RecordStore,
    subject: Subject,
    some: Sequence[RecordFacts],
    *,
    reason: str,
    cause: Cause,
    bundle: str,
    now: int,
    agent: Scope | None = None,
) -> dict[str, Outcome]:
    """Move live records into the recycle bin, from where they can be brought back together; what became of each.

    They go in one transaction; only what another writer changed at that moment goes in another. ``AgentRemovedError``
    if the ``agent`` that does it is in the recycle bin.
    """
    outcomes: dict[str, Outcome] = {}
    left = list(some)
    for _ in range(_TRIES):
        moves = [recycle_move(one, reason, cause, now, bundle) for one in left]
        answers = records.transition(subject, moves, now=now, agent=agent) if moves else []
        outcomes.update(zip((move.id for move in moves), answers, strict=True))
        stale = [move.id for move in moves if outcomes[move.id] is Outcome.STALE]
        if not stale:
            break
        again = records.entries(subject, stale).values()
        left = [record_facts(record) for record, _ in again if record.state in LIVE]
    return outcomes


def recycle_move(one: RecordFacts | Session, reason: str, cause: Cause, now: int, bundle: str | None = None) -> Move:
    """The move that takes something to the recycle bin."""
    return Move(one.id, one.version, one.state, State.RECYCLED, reason, cause, purge_at=now + BIN, bundle=bundle)


def source_bundle(source: str) -> str:
    """What everything that is forgotten with a source can be brought back by, however often it was asked for."""
    return f"source:{source}"


@dataclass(eq=False, repr=False)
class Sources:
    """Forgets what came from a source, of one user or of all of a tenant's."""

    tenant: Tenant
    refresh: Callable[[Subject, list[str]], None]

    def forget(self, source: str, user_id: str | None = None, *, dry_run: bool = False) -> ForgetResult:
        """Send all that a source wrote, and all that was derived from it, to the recycle bin; how much that was.

        With ``dry_run``, how much it would be. What a hold covers stays; ``HeldError`` if that is all there is.
        Cut short, it goes on when it is asked for again.
        """
        name, dry_run = check_source(source), check_flag(dry_run, "dry_run")
        subject = None if user_id is None else Subject.check(self.tenant.name, user_id)
        now = self.tenant.now()
        if subject is None and not dry_run:
            begin_steps()
        holds = self.tenant.holds.list(self.tenant.name) if dry_run else []
        counts: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        users: set[str] = set()
        for whose, what, some in self._find(name, subject):
            outcomes = self._foresee(whose, some, holds) if dry_run else self._recycle(whose, some, name, what, now=now)
            gone = [one for one in some if outcomes.get(one.id) is Outcome.DONE]
            counts[what] += len(gone)
            counts["held"] += sum(outcome is Outcome.HELD for outcome in outcomes.values())
            kinds.update(one.kind for one in gone)
            users.update({whose} if gone else ())
        if not dry_run:
            self._report(name, counts)
        return {
            "source": name,
            "memories": counts["memories"],
            "derived": counts["derived"],
            "held": counts["held"],
            "users": len(users),
            "by_kind": {kind: kinds[kind] for kind in sorted(kinds)},
            "bundle": source_bundle(name),
            "purge_at": iso(now + BIN),
            "dry_run": dry_run,
        }

    def _find(self, source: str, subject: Subject | None) -> Iterator[tuple[Subject, str, list[RecordFacts]]]:
        """What is there of a source (``memories``) and ``derived`` from it, subject by subject, in batches.

        What is in the bin is not forgotten once more, but what was derived from it is.
        """
        whose, passed = "", set[str]()
        of_source = partial(self.tenant.provenance.of_source, self.tenant.name, source, subject)
        for page in read_pages(of_source, _BATCH):
            for owner, theirs in groupby(page, key=lambda written: written.facts.subject):
                roots = [written.facts for written in theirs]
                whose, passed = (owner, passed) if owner == whose else (owner, set())
                yield owner, "memories", [one for one in roots if one.state in LIVE]
                derived = [
                    written.facts
                    for written in descendants(self.tenant.provenance, owner, [one.id for one in roots])
                    if written.source != source and written.facts.id not in passed
                ]
                passed.update(one.id for one in derived)
                live = [one for one in derived if one.state in LIVE]
                for start in range(0, len(live), _BATCH):
                    yield owner, "derived", live[start : start + _BATCH]

    def _recycle(
        self, subject: Subject, some: list[RecordFacts], source: str, what: str, *, now: int
    ) -> dict[str, Outcome]:
        derived = f"forgotten: derived from what came from {source}"
        reason = derived if what == "derived" else f"forgotten with its source {source}"
        outcomes: dict[str, Outcome] = {}
        for state in LIVE:  # what is alike goes fast
            alike = [one for one in some if one.state is state]
            how: Any = {"reason": reason, "cause": Cause.SOURCE, "bundle": source_bundle(source), "now": now}
            outcomes |= recycle_together(self.tenant.records, subject, alike, **how)
        gone = [one.id for one in some if one.kind == MemoryType.ENTITY.value and outcomes.get(one.id) is Outcome.DONE]
        if gone:
            self.refresh(subject, gone)
        return outcomes

    def _foresee(self, subject: Subject, some: list[RecordFacts], holds: list[Hold]) -> dict[str, Outcome]:
        """What would become of each, as far as holds go."""
        if not holds:
            return dict.fromkeys((one.id for one in some), Outcome.DONE)
        entries = self.tenant.records.entries(subject, [one.id for one in some])
        return {
            record_id: Outcome.DONE if find_hold(record_facts(record).thing, holds) is None else Outcome.HELD
            for record_id, (record, _) in entries.items()
        }

    def _report(self, source: str, counts: Counter[str]) -> None:
        gone = counts["memories"] + counts["derived"]
        if counts["held"] and not gone:
            raise HeldError(
                f"memories that came from {source!r} are on hold ({counts['held']:,}), and nothing was forgotten; "
                "see the holds with: holdfast hold list"
            )
        moved = (counts["memories"], counts["derived"], counts["held"])
        _log.info("%d memories of a source and %d derived from them went to the recycle bin, %d were on hold", *moved)
