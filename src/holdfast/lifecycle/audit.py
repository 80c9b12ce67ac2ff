"""``holdfast.audit``: what happened, in order, and whether the record of it is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from holdfast.core.audit import CHECKPOINTS, Action, AuditEntry, Checkpoint, Event, Finding
from holdfast.core.chain import GENESIS
from holdfast.core.clock import Belief
from holdfast.core.errors import ClockError, ConflictError, InvalidInputError, quote
from holdfast.core.records import Subject
from holdfast.core.values import When, check_count, iso, moment, to_json
from holdfast.ports.objects import ObjectStore, find_object
from holdfast.ports.records import AuditQuery, AuditStore
from holdfast.ports.stores import Tenant
from holdfast.results.lifecycle import AuditEntryResult, AuditResult, SealResult

_NOTE: Final = "state/audit-checkpoint.json"
_MOST_KEPT: Final = 100
_MOST_SHOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the audit chain is whole; falsy when it is not."""

    chains: int
    entries: int
    checkpoints: int
    problems: int
    """How many things are wrong."""
    findings: tuple[Finding, ...]
    """The first of them."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problems == 0

    def __bool__(self) -> bool:
        return self.ok


@dataclass(eq=False, repr=False)
class Audit:
    """``holdfast.audit``. The number and hash of the last checkpoint are noted outside the store, beside the keys, so
    that a store that was set back to what it was before is found too.
    """

    tenant: Tenant
    state: ObjectStore
    believed: Callable[[int], Belief]
    """How far a time is believed."""

    def tail(self, limit: int = 20, *, user_id: str | None = None) -> list[AuditResult]:
        """The latest entries of the tenant, or of one user, the newest last. ``chain`` is a pseudonym."""
        check_count(limit, "limit", most=_MOST_SHOWN)
        subject = None if user_id is None else Subject.check(self.tenant.name, user_id)
        found = self.tenant.audit.tail(self.tenant.name, limit=limit, subject=subject)
        return [_describe(entry) for entry in found]

    def page(
        self,
        *,
        user_id: str | None = None,
        item: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: When = None,
        until: When = None,
        before: int | None = None,
        limit: int = 100,
    ) -> tuple[list[AuditEntryResult], int | None]:
        """Some entries of the tenant, or of one user, newest first, and where to go on from (``before``); ``None``, if
        there are no more. ``item`` is the id of a memory, a session, a hold, a rule, an agent or a tool; what is not
        given is any. There may be fewer than ``limit`` and more to come.
        """
        check_count(limit, "limit", most=_MOST_SHOWN)
        if action is not None and action not in set(Action):
            raise InvalidInputError(f"there is no action {quote(action)}; actions are: {', '.join(Action)}")
        times = (None if at is None else moment(at, what=name) for name, at in (("since", since), ("until", until)))
        subject = None if user_id is None else Subject.check(self.tenant.name, user_id)
        query = AuditQuery(item, actor, action, *times)
        found, following = self.tenant.audit.page(self.tenant.name, query, subject=subject, before=before, limit=limit)
        return [{**_describe(one.entry), "items": one.items} for one in found], following

    def write(
        self,
        file: SupportsWrite,
        *,
        user_id: str | None = None,
        item: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: When = None,
        until: When = None,
    ) -> int:
        """Write the entries that ``page`` gives, all of them, as lines of JSON; how many."""
        which: dict[str, Any] = {"user_id": user_id, "item": item, "actor": actor, "action": action}
        which |= {"since": since, "until": until}
        count, before = 0, None
        while True:
            found, before = self.page(**which, before=before, limit=_MOST_SHOWN)
            file.write("".join(to_json(one) + "\n" for one in found).encode())
            count += len(found)
            if before is None:
                return count

    def verify(self, progress: Callable[[int], None] | None = None) -> Verdict:
        """Look for any entry or checkpoint of the store that was changed, removed, moved or added.

        ``progress`` hears now and then how many more entries have been read.
        """
        problem = self.compare()
        findings = [] if problem is None else [problem]
        problems = len(findings)
        sizes = self.tenant.audit.sizes()
        for finding in self.tenant.audit.verify(progress or (lambda _count: None)):
            problems += 1
            if len(findings) < _MOST_KEPT:
                findings.append(finding)
        return Verdict(*sizes, problems, tuple(findings))

    def seal(self, *, accept: str | None = None) -> SealResult:
        """Seal the heads of all chains by a checkpoint, and note it outside the store.

        Refused where the note and the store disagree, as after a backup was restored: ``accept`` gives the reason why
        that is right, which is put on the tenant's chain.
        """
        problem = self.compare()
        if problem is not None:
            if accept is None:
                raise ConflictError(
                    f"nothing was sealed: {problem.problem}; if that is right (a backup was restored), "
                    "say why: holdfast audit seal --accept 'REASON' (accept='…')"
                )
            self._accept(problem, _check_reason(accept))
        self._note()  # the one before, should a crash have kept it from being noted
        self.tenant.audit.seal(self.tenant.now())
        made = self._note()
        return {
            "checkpoint": made.no,
            "at": iso(made.at),
            "chains": made.chains,
            "entries": made.entries,
            "hash": made.hash.hex(),
        }

    def cut(self, before: datetime | float | str) -> int:
        """Remove entries of before a moment, as far as they are sealed; how many. Each chain says that it was cut.

        ``ClockError`` if the moment lies ahead of the time that is believed.
        """
        upto, now = moment(before, what="before"), self.tenant.now()
        if upto > now:
            raise InvalidInputError(f"before {iso(upto)} is in the future; it is {iso(now)} now")
        belief = self.believed(now)
        if upto > belief.upto:
            raise ClockError(f"nothing before {iso(upto)} was cut: {belief.explain()}")
        return self.tenant.audit.cut(upto, at=now)

    def compare(self) -> Finding | None:
        """What is wrong between the note and the store."""
        return compare_note(self.state, self.tenant.audit)

    def _note(self) -> Checkpoint:
        """Bring the note up to the last checkpoint, whoever else may be sealing. Before the first one it is 0."""
        while True:
            last = self._last()
            note = json.dumps({"no": last.no, "hash": last.hash.hex()}).encode()
            if find_object(self.state, _NOTE)[0] != note:
                self.state.prepare()
                self.state.put(_NOTE, note)
            if self._last().no == last.no:
                return last

    def _last(self) -> Checkpoint:
        return next(iter(self.tenant.audit.checkpoints(limit=1)), Checkpoint(0, 0, 0, 0, GENESIS, GENESIS))

    def _accept(self, problem: Finding, reason: str) -> None:
        detail = {"reason": reason, "problem": problem.problem, "checkpoint": self._last().no}
        self.tenant.audit.append(
            Subject(self.tenant.name), [Event(self.tenant.now(), Action.AUDIT_ACCEPTED, None, detail)]
        )


class SupportsWrite(Protocol):
    """Something that bytes can be written to."""

    def write(self, data: bytes, /) -> object:
        """Take some more."""


def _describe(entry: AuditEntry) -> AuditResult:
    return {
        "at": iso(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "item": entry.item,
        "detail": entry.detail,
        "chain": entry.chain,
        "seq": entry.seq,
    }


def begin_anew(audit: Audit) -> None:
    """Let the note be of the store as it is: an empty one was begun in the place of one that was lost."""
    audit._note()


def _check_reason(accept: str) -> str:
    if not isinstance(accept, str) or not accept.strip():
        raise InvalidInputError(f"accept must say why, in words, not {quote(accept)}")
    return accept


def compare_note(state: ObjectStore, store: AuditStore) -> Finding | None:
    """What the note of the last checkpoint and the last two of the store disagree in. The note is read first: the store
    may go on meanwhile.

    A note that is exactly one behind is no sign of anything: a crash may come after a checkpoint was made and before
    it was noted.
    """
    note, place = find_object(state, _NOTE)[0], f"{state.url}/{_NOTE}"
    last = store.checkpoints(limit=2)
    newest = last[-1].no if last else 0
    if note is None:
        missing = f"there is no note of the last checkpoint, {newest}, in {place}"
        return Finding(CHECKPOINTS, newest, missing) if newest else None
    try:
        noted, digest = _read_note(note)
    except ValueError as problem:
        return Finding(CHECKPOINTS, 0, f"the note of the last checkpoint in {place} is broken: {problem}")
    known = {0: GENESIS.hex()} | {one.no: one.hash.hex() for one in last}
    if noted > newest:
        wrong = f"checkpoint {noted} is noted in {place}, but the store's last is {newest}"
    elif noted < newest - 1:
        wrong = f"the store's last checkpoint is {newest}, but {noted} is noted in {place}"
    elif known.get(noted) != digest:
        wrong = f"checkpoint {noted} is not the one that is noted in {place}"
    else:
        return None
    return Finding(CHECKPOINTS, noted, wrong)


def _read_note(data: bytes) -> tuple[int, str]:
    """The number and the hash of a checkpoint; ``ValueError`` if it is not a note."""
    said = json.loads(data)
    if not isinstance(said, dict) or type(said.get("no")) is not int or not isinstance(said.get("hash"), str):
        raise ValueError(f"it says {quote(said)}")
    return said["no"], said["hash"]
