"""``holdfast.audit``: what happened, in order, and whether the record of it is whole."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.core.audit import CHECKPOINTS, Action, Checkpoint, Event, Finding
from holdfast.core.chain import GENESIS
from holdfast.core.clock import Belief
from holdfast.core.errors import ClockError, ConflictError, InvalidInputError, StoreUnavailableError, quote
from holdfast.core.records import Subject
from holdfast.core.values import Clock, check_count, iso, moment
from holdfast.ports.records import AuditStore
from holdfast.results import AuditResult, SealResult

_FILE: Final = "audit-checkpoint.json"
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


class Audit:
    """``holdfast.audit``. The number and hash of the last checkpoint are kept in a file outside the store, so that a
    store that was set back to what it was before is found too.
    """

    def __init__(
        self,
        store: AuditStore,
        tenant: str,
        state_folder: Path,
        clock: Clock,
        *,
        believed: Callable[[int], Belief] = lambda now: Belief(now, now),
    ) -> None:
        """``believed`` says how far a time is believed."""
        self._store = store
        self._tenant = tenant
        self._mark = _MarkFile(state_folder / _FILE)
        self._clock = clock
        self._believed = believed

    def tail(self, limit: int = 20, *, user_id: str | None = None) -> list[AuditResult]:
        """The latest entries of the tenant, or of one user, the newest last. ``chain`` is a pseudonym."""
        check_count(limit, "limit", most=_MOST_SHOWN)
        subject = None if user_id is None else Subject.checked(self._tenant, user_id)
        return [
            {
                "at": iso(entry.at),
                "action": entry.action,
                "actor": entry.actor,
                "item": entry.item,
                "detail": entry.detail,
                "chain": entry.chain,
                "seq": entry.seq,
            }
            for entry in self._store.tail(self._tenant, limit=limit, subject=subject)
        ]

    def verify(self, progress: Callable[[int], None] | None = None) -> Verdict:
        """Look for any entry or checkpoint of the store that was changed, removed, moved or added.

        ``progress`` hears now and then how many more entries have been read.
        """
        problem = self.compare()
        findings = [] if problem is None else [problem]
        problems = len(findings)
        sizes = self._store.sizes()
        for finding in self._store.verify(progress or (lambda _count: None)):
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
        self._store.seal(self._now())
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
        upto, now = moment(before, what="before"), self._now()
        if upto > now:
            raise InvalidInputError(f"before {iso(upto)} is in the future; it is {iso(now)} now")
        belief = self._believed(now)
        if upto > belief.upto:
            raise ClockError(f"nothing before {iso(upto)} was cut: {belief.explain()}")
        return self._store.cut(upto, at=now)

    def _now(self) -> int:
        return moment(self._clock())

    def compare(self) -> Finding | None:
        """What is wrong between the note and the store. The note is read first: the store may go on meanwhile."""
        try:
            mark = self._mark.read()
        except ValueError as problem:
            return Finding(CHECKPOINTS, 0, f"the note of the last checkpoint in {self._mark.path} is broken: {problem}")
        return _compare(mark, self._store.checkpoints(limit=2), self._mark.path)

    def _note(self) -> Checkpoint:
        """Bring the note up to the last checkpoint, whoever else may be sealing. Before the first one it is 0."""
        while True:
            last = self._last()
            self._mark.write(_Mark(last.no, last.hash.hex()))
            if self._last().no == last.no:
                return last

    def _last(self) -> Checkpoint:
        return next(iter(self._store.checkpoints(limit=1)), Checkpoint(0, 0, 0, 0, GENESIS, GENESIS))

    def _accept(self, problem: Finding, reason: str) -> None:
        detail = {"reason": reason, "problem": problem.problem, "checkpoint": self._last().no}
        self._store.append(Subject(self._tenant), [Event(self._now(), Action.AUDIT_ACCEPTED, None, detail)])


def begin_anew(audit: Audit) -> None:
    """Let the note be of the store as it is: an empty one was begun in the place of one that was lost."""
    audit._note()


class _Mark(NamedTuple):
    """The last checkpoint as it is noted outside the store."""

    no: int
    hash: str


def _check_reason(accept: str) -> str:
    if not isinstance(accept, str) or not accept.strip():
        raise InvalidInputError(f"accept must say why, in words, not {quote(accept)}")
    return accept


def _compare(mark: _Mark | None, last: Sequence[Checkpoint], path: Path) -> Finding | None:
    """What a note and the last two checkpoints disagree in.

    A note that is exactly one behind is no sign of anything: a crash may come after a checkpoint was made and before
    it was noted.
    """
    newest = last[-1].no if last else 0
    if mark is None:
        if newest == 0:
            return None
        return Finding(CHECKPOINTS, newest, f"there is no note of the last checkpoint, {newest}, in {path}")
    if mark.no > newest:
        return Finding(
            CHECKPOINTS, mark.no, f"checkpoint {mark.no} is noted in {path}, but the store's last is {newest}"
        )
    if mark.no < newest - 1:
        return Finding(
            CHECKPOINTS, mark.no, f"the store's last checkpoint is {newest}, but {mark.no} is noted in {path}"
        )
    known = {0: GENESIS.hex()} | {one.no: one.hash.hex() for one in last}
    if known.get(mark.no) != mark.hash:
        return Finding(CHECKPOINTS, mark.no, f"checkpoint {mark.no} is not the one that is noted in {path}")
    return None


class _MarkFile:
    """The note itself: a small JSON file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> _Mark | None:
        """What is noted; ``None`` without a file, ``ValueError`` if it is not a note."""
        try:
            said = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise self._unavailable("read", problem) from problem
        if not isinstance(said, dict) or type(said.get("no")) is not int or not isinstance(said.get("hash"), str):
            raise ValueError(f"it says {quote(said)}")
        return _Mark(said["no"], said["hash"])

    def write(self, mark: _Mark) -> None:
        """Note a checkpoint, durably, unless it is noted already."""
        try:
            if self.read() == mark:
                return
        except ValueError:
            pass  # a broken note is replaced; whoever calls this has looked at it before
        try:
            self._replace(json.dumps(mark._asdict()).encode())
        except OSError as problem:
            raise self._unavailable("write", problem) from problem

    def _replace(self, text: bytes) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=folder, prefix=f".{_FILE}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self.path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be synchronised
            listing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(listing)
            finally:
                os.close(listing)

    def _unavailable(self, verb: str, problem: OSError) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"cannot {verb} the note of the last audit checkpoint, {self.path}: {problem.strerror}; "
            "check the permissions and the space of its folder"
        )
