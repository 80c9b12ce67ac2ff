"""Subjects in a relational engine: how they are erased (``SubjectStore``), and all that is kept of one (its reader).

Whoever is erased loses their name first, in one transaction that nobody else of the tenant writes beside. What is left
is a tombstone: the pseudonym, and a mark by which a name can be told to have been this one. The rows go after that, in
batches, and the tombstone last.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.audit import Action, AuditEntry, Event
from holdfast.core.chain import parse_entries
from holdfast.core.decisions import Held, Hold
from holdfast.core.errors import HeldError
from holdfast.core.records import HISTORY, Cause, Fact, Kind, Record, State, Subject
from holdfast.core.values import DAY, SECOND, to_json
from holdfast.ports import subjects as ports
from holdfast.storage.relational.access import unbind
from holdfast.storage.relational.audit import EntryRow, append
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.moves import find_current
from holdfast.storage.relational.rows import KINDS, RecordRow, TotalRow, all_keys, as_record, key_range, read_alias
from holdfast.storage.relational.rules import Holds, raise_version

if TYPE_CHECKING:
    from holdfast.ports.conversations import Session

#: A page of records, messages or audit entries has at most so many bytes, or one of them.
_BYTES: Final = 4 * 1024 * 1024


class UserRow(NamedTuple):
    """How much a user has of a kind; of kind 0, conversations."""

    subject: Subject
    kind: int | None
    live: int
    latest: int | None


class KindQuota(NamedTuple):
    """A quota that was set for a user."""

    kind: int
    max_memories: int | None
    max_bytes: int | None


class SqlSubjectReader(SqlStore):
    """The ``SubjectReader`` of the relational engines."""

    def alias(self, subject: Subject) -> str | None:
        with self._database.read() as tx:
            return read_alias(tx, tx.number_of(subject))

    def users(self, tenant: str, *, after: str = "", limit: int) -> list[ports.UserSummary]:
        found: list[ports.UserSummary] = []
        place = Subject(tenant, after)
        while len(found) < limit:
            rows = self._database.ask(UserRow, "subjects.users", (place, f"{tenant}0", limit))
            if not rows:
                break
            page: dict[Subject, list[UserRow]] = {row.subject: [] for row in rows}
            for row in rows:
                if row.latest is not None:
                    page[row.subject].append(row)
            found += [_summarize(subject, kinds) for subject, kinds in sorted(page.items()) if kinds]
            place = max(page)
        return found[:limit]

    def size(self, subject: Subject) -> int:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            return tx.number("subjects.size", (number, *all_keys(number)))

    def records(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            first, last = key_range(number, kind)
            found = tx.all(RecordRow, "subjects.records", (number, max(first, after + 1), last, limit, _BYTES))
        return [as_record(subject, row) for row in found], found[-1].key if found else after

    def sessions(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Session], int]:
        from holdfast.ports.conversations import Session

        found = self._ask_about(subject, Session, "subjects.sessions", after, limit)
        return found, found[-1].number if found else after

    def messages(
        self, subject: Subject, item_id: str, *, after: int = 0, limit: int
    ) -> tuple[list[ports.KeptMessage], int]:
        from holdfast.storage.relational.sessions import MessageRow, as_message, find_by_id, message_keys

        with self._database.read() as tx:
            number = tx.number_of(subject)
            session = find_by_id(tx, number, item_id)
            if number is None or session is None:
                return [], after
            _, first, last = message_keys(number, session.number)
            found = tx.all(MessageRow, "subjects.messages", (number, max(first, after + 1), last, limit, _BYTES))
        return [ports.KeptMessage(as_message(row), row.purge_at) for row in found], found[-1].key if found else after

    def facts(self, subject: Subject, *, after: str = "", limit: int) -> tuple[list[Fact], str]:
        from holdfast.storage.relational.attachments import parse_fact

        found = self._ask_about(subject, Fact, "subjects.facts", after, limit)
        return [parse_fact(row) for row in found], found[-1].id if found else after

    def audit(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[AuditEntry], int]:
        found = self._ask_about(subject, EntryRow, "subjects.audit", after, limit, _BYTES)
        entries = [entry for row in found for entry in parse_entries(row.text, row.hash)]
        return entries, found[-1].seq if found else after

    def quotas(self, tenant: str, user_id: str) -> list[ports.SetQuota]:
        found = self._database.ask(KindQuota, "subjects.quotas", (tenant, user_id))
        return [ports.SetQuota(KINDS[row.kind], row.max_memories, row.max_bytes) for row in found]

    def own_sessions(self, subject: Subject, names: Sequence[str]) -> frozenset[str]:
        with self._database.read() as tx:
            return own_sessions(tx, subject, tx.number_of(subject) or 0, names)


def _summarize(subject: Subject, rows: list[UserRow]) -> ports.UserSummary:
    kinds = {KINDS[row.kind].name: row.live for row in sorted(rows) if row.kind}
    sessions = sum(row.live for row in rows if not row.kind)
    return ports.UserSummary(subject.user_id, kinds, sessions, max(row.latest or 0 for row in rows))


_NAMELESS: Final = "an erased user"
#: Whoever reads working memory waits no longer than this for a connection.
_PATIENCE_SECONDS: Final = 0.5


class AliasRow(NamedTuple):
    """A subject and its pseudonym."""

    alias: str
    subject: Subject


class TombstoneRow(NamedTuple):
    """A subject that is being erased."""

    no: int
    subject: Subject


class LedgerRow(NamedTuple):
    """The last entry of the ledger that the store was held against."""

    no: int
    hash: str


class KindRow(NamedTuple):
    """How many records there are of a kind, and how many are live."""

    kind: int
    records: int
    live: int


class CountRow(NamedTuple):
    """How many rows there are of a sort."""

    name: str
    rows: int


class JobWords(NamedTuple):
    """What is known of a run of a job."""

    name: str
    started_at: int | None
    result: str | None
    error: str | None


class JobContent(NamedTuple):
    """What came of a job of the console."""

    id: str
    content: str | None


class MemoryHold(NamedTuple):
    """A hold on one memory."""

    id: str
    memory_id: str


class Thing(NamedTuple):
    """What a hold may be on."""

    agent_id: str
    session_id: str | None
    id: str
    metadata: str


class SqlSubjects(SqlStore):
    """The ``SubjectStore`` of the relational engines."""

    # --- taking the name away --------------------------------------------------------------------------------------

    def detach(
        self,
        subject: Subject,
        *,
        alias: str | None = None,
        even_held: bool = False,
        now: int,
        begin: Callable[[str], None],
        defer: Callable[[str], None] = lambda _alias: None,
        beside: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[ports.Tombstone | None, ports.Found]:
        with self._database.govern(subject.tenant) as tx:
            number = tx.number_of(subject)
            known = read_alias(tx, number)
            if alias not in (None, known):
                return None, ports.Found({}, {})  # another was faster
            hold = None if even_held else _hold_on(tx, subject, number)
            if hold is not None:
                _refuse(tx, subject, hold, now=now, once=alias is not None)
                if known is not None:
                    defer(known)
            elif number is None or known is None:
                _leave_mark(tx, subject)
                return None, ports.Found(_remove_named(tx, subject, 0, even_standing=False), {})
            else:
                begin(known)
                _leave_mark(tx, subject)
                return _detach(tx, subject, number, known, now=now, even_standing=even_held, beside=beside)
        raise _refusal(subject, hold)

    def make_known(self, subject: Subject) -> None:
        with self._database.write(subject) as tx:
            tx.number_for(subject)

    def check(self, subject: Subject) -> None:
        with self._database.read() as tx:
            hold = _hold_on(tx, subject, tx.number_of(subject))
        if hold is not None:
            raise _refusal(subject, hold)

    def survey(self, subject: Subject, progress: Callable[[int, str], None]) -> tuple[ports.Found | None, list[Hold]]:
        with self._database.read() as tx:
            number, active = tx.number_of(subject), Holds(tx, subject).active
            if number is None:
                return None, [hold for hold in active if hold.user_id is not None]
            kinds = {KINDS[row.kind].name.value: row.records for row in tx.all(KindRow, "subjects.kinds", (number,))}
            progress(sum(kinds.values()), "memories by kind")
            open_holds = [hold for hold in active if hold.user_id is None]
            covering = {hold.id for hold in active if hold.user_id is not None}
            for row in tx.each(Thing, "subjects.things", (number,)) if open_holds else ():
                thing = Held(subject.user_id, row.agent_id, row.session_id, row.id, json.loads(row.metadata))
                covering |= {hold.id for hold in open_holds if hold.covers(thing)}
                progress(1, "what holds cover")
            rows = _rows(tx, number)
            progress(sum(rows.values()), "rows of the store")
            return ports.Found(rows, kinds), [hold for hold in active if hold.id in covering]

    def having(self, aliases: Sequence[str]) -> list[tuple[str, Subject]]:
        return [*self._database.ask(AliasRow, "subjects.with_alias", (to_json(list(aliases)),))]

    # --- what is being erased --------------------------------------------------------------------------------------

    def tombstones(self) -> list[ports.Tombstone]:
        return [ports.read_tombstone(*row) for row in self._database.ask(TombstoneRow, "subjects.tombstones")]

    def found(self, tombstone: ports.Tombstone) -> ports.Found:
        last = self._database.ask(EntryRow, "audit.tail_of_subject", (tombstone.number, 1))
        detail = parse_entries(last[0].text, last[0].hash)[-1].detail if last else {}
        return ports.Found(detail.get("rows", {}), detail.get("kinds", {}))

    def forget_name(self, tombstone: ports.Tombstone) -> None:
        with self._database.alone(f"erasing {tombstone.alias}") as tx:
            if tombstone.subject is not None:
                tx.run("subjects.disown_parts", (tombstone.subject.tenant, tombstone.subject.user_id))
            tx.run("subjects.rename", (tombstone._replace(subject=None).name, tombstone.number))

    def objects(self, tombstone: ports.Tombstone) -> list[str]:
        return self._database.ask(str, "subjects.pack_names", (tombstone.number,))

    def forget_objects(self, tombstone: ports.Tombstone) -> None:
        with self._database.alone(f"erasing {tombstone.alias}") as tx:
            tx.run("subjects.remove_packs", (tombstone.number,))

    def remove(self, tombstone: ports.Tombstone, *, limit: int) -> int:
        from holdfast.storage.catalog import TABLES, Erase

        # What refers to another table goes before that: messages are found by their conversations.
        batched = [f"remove_{table.name}" for table in reversed(TABLES) if table.erase is Erase.BATCHES]
        with self._database.alone(f"erasing {tombstone.alias}") as tx:
            removed = 0
            for statement in batched:  # those with nothing left to do cost next to nothing
                removed += tx.run(f"subjects.{statement}", (tombstone.number, limit - removed))
            return removed

    def left(self, tombstone: ports.Tombstone) -> dict[str, int]:
        with self._database.read() as tx:
            return _rows(tx, tombstone.number)

    def scrub(self, seconds: float = 2.0) -> bool:
        return self._database.scrub(seconds)

    def bury(self, tombstone: ports.Tombstone) -> None:
        with self._database.alone(f"erasing {tombstone.alias}") as tx:
            tx.run("subjects.remove_profiles")
            tx.run("subjects.bury", (tombstone.number,))

    # --- what other processes are told -----------------------------------------------------------------------------

    def erased_within(self, seconds: float) -> list[ports.ErasureMark]:
        since = (int(seconds * SECOND),)
        return self._database.ask(ports.ErasureMark, "subjects.recent_erasures", since, patience=_PATIENCE_SECONDS)

    def note_times(self, alias: str, times: ports.ErasureTimes) -> None:
        self._change("subjects.note_times", alias, *times)

    def forget_marks(self) -> None:
        with self._database.alone("erasures") as tx:
            tx.run("subjects.forget_erasures", (ports.MARK_DAYS * DAY,))

    # --- the ledger ------------------------------------------------------------------------------------------------

    def ledger_seen(self) -> tuple[int, str] | None:
        return self._find(LedgerRow, "subjects.seen")

    def see_ledger(self, number: int, entry_hash: str) -> None:
        with self._database.alone("ledger") as tx:
            tx.run("subjects.see", (number, entry_hash))


def _detach(
    tx: Transaction,
    subject: Subject,
    number: int,
    alias: str,
    *,
    now: int,
    even_standing: bool,
    beside: Mapping[str, int],
) -> tuple[ports.Tombstone, ports.Found]:
    """Take a subject's name away, and everything that is found by the name."""
    from holdfast.ports.figures import ADDED
    from holdfast.storage.relational.figures import ScopeRow

    counted = [(KINDS[row.kind].name.value, row) for row in tx.all(KindRow, "subjects.kinds", (number,))]
    kinds = {kind: row.records for kind, row in counted}
    rows = _rows(tx, number) | dict(beside)
    rows |= _remove_named(tx, subject, number, even_standing=even_standing)
    tenant = tx.number_for(Subject(subject.tenant))
    moves = [(kind, State.RECYCLED, row.live) for kind, row in counted]  # out of sight now, and gone
    moves += [(kind, State.DELETED, count) for kind, count in [*kinds.items(), (HISTORY, rows["conversations"])]]
    _keep_totals(tx, number, tenant, moves)
    for scope in tx.all(ScopeRow, "figures.scopes_of_subject", (number,)):
        tx.run("records.count_moves", (tenant, scope.kind.value, ADDED, Cause.ERASURE.value, scope.next))
    tx.run("subjects.note_request", (alias, subject.tenant, now))
    tx.run("subjects.remove_scopes", (number,))  # what the store holds is counted without them from now on
    detail = {"kind": "user", "cause": Cause.ERASURE.value, "kinds": kinds, "rows": rows}
    append(tx, number, [Event(now, Action.ERASED, None, detail)])
    append(tx, tenant, [Event(now, Action.ERASED, alias, detail)])
    tombstone = ports.tombstone_for(number, alias, subject)
    tx.run("subjects.rename", (tombstone.name, number))
    return tombstone, ports.Found(rows, kinds)


def _leave_mark(tx: Transaction, subject: Subject) -> None:
    mark = ports.mark_erasure(subject, secrets.token_bytes(16))
    tx.run("subjects.note_erasure", (mark.salt, mark.digest))


def _remove_named(tx: Transaction, subject: Subject, number: int, *, even_standing: bool) -> dict[str, int]:
    """Remove what names a user in clear, wherever it is; how much of what there was."""
    tenant, user_id = subject.tenant, subject.user_id
    named = tx.all(str, "subjects.sessions_named", (tenant,))
    own = to_json(sorted(own_sessions(tx, subject, number, named)))
    rules = tx.run("subjects.remove_rules", (tenant, user_id, own))
    if rules:
        raise_version(tx, tenant)
    return {
        "quotas": tx.run("subjects.remove_quotas", (tenant, user_id)),
        "rules": rules,
        "released holds": _remove_holds(tx, subject, number, own, even_standing=even_standing),
        "api keys": unbind(tx, tenant, user_id),
        "job results": _clear_console_jobs(tx, user_id)
        + sum(
            _reword(tx, subject, row, f"subjects.reword_{which}")
            for which in ("job", "run")
            for row in tx.all(JobWords, f"subjects.{which}_words")
        ),
    }


def _remove_holds(tx: Transaction, subject: Subject, number: int, own: str, *, even_standing: bool) -> int:
    """Remove the holds that name a user, a session that is theirs alone, or a memory of theirs; how many."""
    tenant, user_id = subject.tenant, subject.user_id
    removed = tx.run("subjects.remove_holds", (tenant, user_id, even_standing, own))
    for hold in tx.all(MemoryHold, "subjects.holds_on_memories", (tenant, even_standing)):
        if find_current(tx, hold.memory_id, number) is not None:
            removed += tx.run("subjects.remove_hold", (hold.id,))
    return removed


def _clear_console_jobs(tx: Transaction, user_id: str) -> int:
    """Let nothing be kept of what came, or will come, of jobs of the console that may name a user; how many did."""
    name, cleared = json.dumps(user_id)[1:-1], 0
    for job in tx.all(JobContent, "subjects.console_jobs"):
        is_named = job.content is not None and (name in job.content or '"problem"' in job.content)
        if is_named or job.content is None:  # what runs may come to name them
            tx.run("subjects.clear_console_job", (job.id,))
        cleared += is_named
    return cleared


def _reword(tx: Transaction, subject: Subject, job: JobWords, write: str) -> bool:
    """Let what is known of a run of a job say nothing of a user; whether it did."""
    tenant, user_id = subject.tenant, subject.user_id
    said: dict[str, Any] = json.loads(job.result or "{}")
    asides = said.get("set_aside", [])
    others = [aside for aside in asides if (aside.get("tenant"), aside.get("user_id")) != (tenant, user_id)]
    reworded = None if job.error is None else job.error.replace(repr(user_id), repr(_NAMELESS))
    if len(others) == len(asides) and reworded == job.error:
        return False
    result = None if job.result is None else to_json({**said, "set_aside": others})
    tx.run(write, (result, reworded, job.name, job.started_at))
    return True


def _keep_totals(tx: Transaction, number: int, tenant: int, moves: Sequence[tuple[str, State, int]]) -> None:
    """Count what a subject's records went through with the tenant's own: a count of what happened never falls."""
    for total in tx.all(TotalRow, "subjects.totals", (number,)):
        tx.run("records.count_moves", (tenant, *total))
    for kind, state, count in moves:
        if count:
            tx.run("records.count_moves", (tenant, kind, state.value, Cause.ERASURE.value, count))
    tx.run("subjects.remove_totals", (number,))


def _hold_on(tx: Transaction, subject: Subject, number: int | None) -> Hold | None:
    """A hold that stands and names the user, or covers anything that is theirs."""
    holds = Holds(tx, subject)
    named = next((hold for hold in holds.active if hold.user_id is not None), None)
    if named is not None or not holds.active or number is None:
        return named
    tagged = any(hold.tag is not None for hold in holds.active)
    things = tx.each(Thing, "subjects.things", (number,))
    held = (holds.find(row.agent_id, row.session_id, row.id, row.metadata if tagged else "{}") for row in things)
    return next(filter(None, held), None)


def _refusal(subject: Subject, hold: Hold) -> HeldError:
    return HeldError(
        f"user {subject.user_id!r} is kept by hold {hold.id} ({hold.reason}), and nothing was erased; "
        f"release the hold first: holdfast hold release {hold.id}"
    )


def _refuse(tx: Transaction, subject: Subject, hold: Hold, *, now: int, once: bool) -> None:
    """Write down that a hold keeps a user from being erased; ``once``, unless that is the last that was written."""
    number = tx.number_for(subject)
    detail = {"kind": "user", "to": "erased", "cause": Cause.ERASURE.value, "hold": hold.id}
    last = tx.find(EntryRow, "audit.tail_of_subject", (number, 1)) if once else None
    if last is None or parse_entries(last.text, last.hash)[-1].detail != detail:
        append(tx, number, [Event(now, Action.REFUSED, None, detail)])


def own_sessions(tx: Transaction, subject: Subject, number: int, names: Sequence[str]) -> frozenset[str]:
    """Those of the names that are sessions of a subject, and of nobody else in its tenant.

    Others are asked for in one pass over the store, and only if some of the names are the subject's at all.
    """
    theirs = set(tx.all(str, "subjects.sessions_of", (number, to_json(list(names))))) if names else set()
    if not theirs:
        return frozenset()
    tenant = subject.tenant
    others = tx.all(
        str, "subjects.sessions_of_others", (number, to_json(sorted(theirs)), Subject(tenant), f"{tenant}0")
    )
    return frozenset(theirs.difference(others))


def _rows(tx: Transaction, number: int) -> dict[str, int]:
    return {row.name: row.rows for row in tx.all(CountRow, "subjects.rows", (number,))}
