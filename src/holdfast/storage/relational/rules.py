"""Rules and holds in a relational engine: the ``RuleStore`` and the ``HoldStore``."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.core.audit import Action, Event, current_actor
from holdfast.core.decisions import Hold, Life
from holdfast.core.records import HISTORY, Scope, Subject, Terms
from holdfast.core.rules import Labels, Rule, dump_defaults, terms_to_dict
from holdfast.core.values import to_json
from holdfast.installation import VERSION, is_newer
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.profiles import (
    Book,
    DefaultsRow,
    ProfileRow,
    Profiles,
    read_book,
    read_defaults,
    scope_of,
    turn_page,
)
from holdfast.storage.relational.record_rows import KINDS
from holdfast.storage.relational.scopes import all_keys

_log = logging.getLogger("holdfast.rules")
_BATCH: Final = 1_000


class BookRow(NamedTuple):
    """The version of a tenant's rules."""

    version: int


class OtherDefaults(NamedTuple):
    """A tenant with other defaults, and the version of Holdfast that they are of."""

    tenant: str
    software: str


class SubjectRow(NamedTuple):
    """A subject and its number."""

    subject: Subject
    no: int


class AssignedRow(NamedTuple):
    """A record and its profile."""

    key: int
    id: str
    kind: int
    profile: int
    agent_id: str
    session_id: str | None
    metadata: str


class AssignedSession(NamedTuple):
    """A session and its profile."""

    no: int
    id: str
    profile: int
    agent_id: str
    session_id: str


class SqlRules:
    """The ``RuleStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._profiles = Profiles()

    def rules(self, tenant: str) -> list[Rule]:
        with self._database.read() as tx:
            return list(read_book(tx, tenant).rules.values())

    def defaults(self, tenant: str) -> Mapping[str, Terms]:
        with self._database.read() as tx:
            return read_defaults(tx, tenant)

    def adopt_defaults(self, *, now: Callable[[], int]) -> list[str]:
        mine = dump_defaults()
        with self._database.read() as tx:
            others = tx.all(OtherDefaults, "rules.other_defaults", (mine,))
        adopted = [one.tenant for one in others if not is_newer(one.software) and self._adopt(one.tenant, mine, now())]
        if adopted:
            _log.warning(
                "how long things live by default has changed with this version of Holdfast, for %d tenants",
                len(adopted),
            )
        return adopted

    def _adopt(self, tenant: str, mine: str, now: int) -> bool:
        """Let a tenant's book have these defaults, and its profiles say what they come to; ``False`` if it does."""
        with self._database.govern(tenant) as tx:
            known = tx.find(DefaultsRow, "rules.defaults", (tenant,))
            if known is None or known.defaults == mine or is_newer(known.software):  # another was faster
                return False
            before = read_defaults(tx, tenant)
            tx.run("rules.put_defaults", (tenant, mine, VERSION))
            book = read_book(tx, tenant)
            for row in tx.all(ProfileRow, "rules.profiles", (tenant,)):
                tx.run("rules.put_life", (*book.life(row.kind, json.loads(row.rules))[:3], row.no))
            changed = [kind for kind, terms in book.defaults.items() if terms != before[kind]]
            detail = {
                "from": {kind: terms_to_dict(before[kind]) for kind in changed},
                "to": {kind: terms_to_dict(book.defaults[kind]) for kind in changed},
            }
            append(tx, tx.number_for(Subject(tenant)), [Event(now, Action.DEFAULTS_CHANGED, None, detail)])
        return True

    def life(self, kind: str, scope: Scope, memory_id: str | None = None, *, labels: Labels | None = None) -> Life:
        found = self._database.ask(BookRow, "rules.book", (scope.tenant,))
        book = self._profiles.known(scope.tenant, found[0].version if found else 0)
        if book is not None:
            return book.life(kind, book.selecting(kind, scope, memory_id, labels))
        with self._database.read() as tx:
            return self._profiles.life(tx, kind, scope, memory_id, labels)

    def propose(self, rules: Sequence[Rule], *, now: int) -> list[Rule]:
        if not rules:
            return []
        tenant = rules[0].tenant
        with self._database.govern(tenant) as tx:
            numbers = [_propose(tx, rule, now) for rule in rules]
            turn_page(tx, tenant)
            book = read_book(tx, tenant)
            return [book.rules[number] for number in numbers]

    def assign(self, rule: Rule) -> Iterator[int]:
        if rule.is_wide:
            return
        with self._database.read() as tx:
            whose = _subjects(tx, rule)
        for subject, number in whose:
            if rule.kind == HISTORY:
                yield self._assign_sessions(rule, subject, number)
                continue
            first, last = all_keys(number)
            while first <= last:
                first, moved = self._assign_records(rule, subject, number, first, last)
                yield moved

    def _assign_records(self, rule: Rule, subject: Subject, number: int, first: int, last: int) -> tuple[int, int]:
        """Give the next records of a subject the profile that they should have; where to go on, and how many."""
        with self._database.write() as tx:
            tx.number_of(subject)
            where = (first, last, rule.agent_id or "", rule.session_id or "", _BATCH)
            if rule.memory_id is None:
                found = tx.all(AssignedRow, "rules.records_to_assign", where)
            else:
                found = tx.all(AssignedRow, "rules.record_to_assign", (rule.memory_id, number))
            profiles = Profiles()
            book = profiles.book(tx, rule.tenant)
            for row in found:
                scope = scope_of(subject, row.agent_id, row.session_id)
                kind = KINDS[row.kind].name.value
                right = profiles.find(tx, kind, scope, row.id, book.labels(row.metadata), book=book)
                if right != row.profile:
                    tx.run("rules.assign_record", (right, row.key))
            whole = len(found) == _BATCH
            return (found[-1].key + 1 if whole else last + 1), len(found)

    def _assign_sessions(self, rule: Rule, subject: Subject, number: int) -> int:
        with self._database.write() as tx:
            tx.number_of(subject)
            where = (number, rule.agent_id or "", rule.session_id or "")
            found = tx.all(AssignedSession, "rules.sessions_to_assign", where)
            profiles = Profiles()
            for row in found:
                right = profiles.find(tx, HISTORY, scope_of(subject, row.agent_id, row.session_id or None), row.id)
                if right != row.profile:
                    tx.run("rules.assign_session", (number, right, row.no))
            return len(found)

    def settle(self, changes: Sequence[tuple[Rule, Event]], *, now: int) -> list[Rule]:
        if not changes:
            return []
        tenant = next(rule.tenant for rule, _ in changes)
        with self._database.govern(tenant) as tx:
            before = read_book(tx, tenant)
            numbers = {rule.id: number for number, rule in before.rules.items()}
            pending = {number for rule, _ in changes if before.rules[number := numbers[rule.id]].pending is not None}
            if not pending:
                return [before.rules[numbers[rule.id]] for rule, _ in changes]  # another has settled them
            changed = set(pending).union(*(_settle(tx, tenant, number, before, now) for number in sorted(pending)))
            turn_page(tx, tenant)
            book = read_book(tx, tenant)
            _put_lives(tx, tenant, book, changed)
            events = [(numbers[rule.id], event) for rule, event in changes if numbers[rule.id] in pending]
            _note(tx, tenant, before, book, events)
            return [book.rules[numbers[rule.id]] for rule, _ in changes]


def _propose(tx: Transaction, rule: Rule, now: int) -> int:
    where = (rule.user_id or "", rule.agent_id or "", rule.session_id or "", rule.memory_id or "")
    selection = "" if rule.selection is None else rule.selection.text()
    found = (rule.id, rule.tenant, rule.kind, *where, selection, to_json(rule.pending), now)
    return tx.number("rules.put_rule", found)


def _settle(tx: Transaction, tenant: str, number: int, book: Book, now: int) -> set[int]:
    """Let a rule say what is pending; which others end with that."""
    if book.rules[number].selection is None:
        tx.run("rules.settle_rule", (now, number))
        return set()
    ended = set(tx.values("rules.retire_selections", (now, tenant, number)))
    tx.run("rules.settle_selection", (now, number, tenant))
    return ended


def _put_lives(tx: Transaction, tenant: str, book: Book, changed: set[int]) -> None:
    """Let the profiles that know some rules say what those come to now."""
    wide = [book.rules[number] for number in changed if book.rules[number].is_wide]
    for row in tx.all(ProfileRow, "rules.profiles", (tenant,)):
        numbers = json.loads(row.rules)
        if not changed.isdisjoint(numbers) or any(rule.governs(row.kind) for rule in wide):
            tx.run("rules.put_life", (*book.life(row.kind, numbers)[:3], row.no))


def _note(tx: Transaction, tenant: str, before: Book, book: Book, events: Sequence[tuple[int, Event]]) -> None:
    """Write what took effect, whoever proposed it last, into the chains of those whom it is about."""
    chains: dict[int, list[Event]] = defaultdict(list)
    for number, event in events:
        settled = book.rules[number]
        detail = {**event.detail, "version": settled.version}
        if "to" in detail:
            detail["to"] = terms_to_dict(before.rules[number].pending or Terms())
        chain = tx.number_for(Subject(tenant, settled.user_id or ""))
        chains[chain].append(event._replace(item=settled.id, detail=detail))
    for chain in sorted(chains):
        append(tx, chain, chains[chain])


def _subjects(tx: Transaction, rule: Rule) -> list[SubjectRow]:
    """The subjects that a rule may select something of."""
    if rule.user_id is not None:
        subject = Subject(rule.tenant, rule.user_id)
        number = tx.number_of(subject)
        return [] if number is None else [SubjectRow(subject, number)]
    return tx.all(SubjectRow, "rules.subjects_of", (rule.tenant,))


class SqlHolds:
    """The ``HoldStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, hold: Hold, event: Event) -> Hold:
        with self._database.govern(hold.tenant) as tx:
            hold = replace(hold, author=hold.author or current_actor(tx.author))
            whom = (hold.user_id, hold.agent_id, hold.session_id, hold.memory_id, hold.tag)
            tx.run("rules.add_hold", (hold.id, hold.tenant, hold.reason, hold.author, hold.created_at, *whom))
            _note_hold(tx, hold, event)
            return hold

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        with self._database.read() as tx:
            return tx.all(Hold, "rules.holds", (tenant, released))

    def release(self, tenant: str, hold_id: str, *, now: int, event: Event) -> Hold | None:
        with self._database.govern(tenant) as tx:
            if not tx.run("rules.release_hold", (now, current_actor(tx.author), tenant, hold_id)):
                return None
            (hold,) = tx.all(Hold, "rules.hold", (tenant, hold_id))
            _note_hold(tx, hold, event)
            return hold


def _note_hold(tx: Transaction, hold: Hold, event: Event) -> None:
    """On the chain of the user whom it is about, else on the tenant's."""
    append(tx, tx.number_for(Subject(hold.tenant, hold.user_id or "")), [event])
