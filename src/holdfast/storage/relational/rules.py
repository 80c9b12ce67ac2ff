"""Rules and holds in a relational engine: the ``RuleStore``, the ``HoldStore``, and the profiles that records carry.

A profile is what the rules come to for all records that the same rules select. Rules for the whole tenant are in every
profile of their kind without being named there, so that one of those is a change of a few profiles and of no record.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.core.audit import Action, Event, current_actor
from holdfast.core.decisions import Held, Hold, Life, find_hold
from holdfast.core.errors import HeldError, RulesChangedError
from holdfast.core.records import HISTORY, Record, Scope, Subject, Terms
from holdfast.core.rules import (
    DEFAULTS,
    Labels,
    Rule,
    Selection,
    dump_defaults,
    labels_of,
    load_defaults,
    resolve,
    terms_to_dict,
    ttl_rule,
)
from holdfast.core.values import to_json
from holdfast.installation import VERSION, is_newer
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import NOBODY, Question, SqlStore, Transaction, Transactions
from holdfast.storage.relational.rows import CurrentRow, all_keys, kind_name


class RuleRow(NamedTuple):
    """A rule, as it is stored."""

    no: int
    id: str
    kind: str
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    memory_id: str | None
    terms: str
    pending: str | None
    version: int
    updated_at: int
    selection: str

    def rule(self, tenant: str) -> Rule:
        """The rule that it is."""
        values = self._asdict()
        del values["no"]
        values["terms"] = Terms(*json.loads(self.terms))
        values["pending"] = None if self.pending is None else Terms(*json.loads(self.pending))
        values["selection"] = Selection.parse(self.selection) if self.selection else None
        return Rule(tenant=tenant, **values)


class DefaultsRow(NamedTuple):
    """The defaults of a tenant, and the version of Holdfast that they are of."""

    defaults: str
    software: str


class ProfileRow(NamedTuple):
    """A profile; its rules are a list of their numbers in JSON."""

    no: int
    kind: str
    rules: str = "[]"
    ttl: int = 0
    """How long its records live by their own wish; 0: they have none."""


class Book:
    """A tenant's rules, by their numbers, and the defaults beside them, as of a version."""

    def __init__(self, version: int, rules: dict[int, Rule], defaults: Mapping[str, Terms]) -> None:
        self.version = version
        self.rules = rules
        self.defaults = defaults
        self.singled = frozenset(rule.memory_id for rule in rules.values() if rule.memory_id is not None)
        self.is_selective = any(rule.selection is not None and not rule.is_spent for rule in rules.values())
        """Whether a rule looks at the labels of records."""
        self._wide: dict[str, list[Rule]] = {}
        self._narrow: dict[str | None, list[tuple[int, Rule]]] = defaultdict(list)
        for number, rule in rules.items():
            if not rule.is_wide and (rule.selection is None or not rule.is_spent):
                self._narrow[rule.user_id].append((number, rule))

    def selecting(
        self, kind: str, scope: Scope, memory_id: str | None = None, labels: Labels | None = None
    ) -> list[int]:
        """The numbers of the rules below the tenant's that select something, in order."""
        if not self._narrow:
            return []
        whom = (scope.user_id, scope.agent_id, scope.session_id, memory_id, labels)
        return sorted(
            number
            for whose in (None, scope.user_id)
            for number, rule in self._narrow.get(whose, ())
            if rule.governs(kind) and rule.selects(*whom)
        )

    def labels(self, metadata: str) -> Labels | None:
        """The labels of a record by its stored metadata, where a rule looks at them."""
        return labels_of(json.loads(metadata)) if self.is_selective and metadata != "{}" else None

    def life(self, kind: str, numbers: Sequence[int], ttl: int | None = None) -> Life:
        """What the tenant's rules and these come to, with what a record wishes for itself."""
        return resolve(kind, self.together(kind, numbers, ttl), self.defaults)

    def together(self, kind: str, numbers: Sequence[int], ttl: int | None = None) -> list[Rule]:
        """The tenant's rules for a kind, and these; what a record wishes for itself is one more."""
        if kind not in self._wide:
            wide = (rule for rule in self.rules.values() if rule.is_wide)
            self._wide[kind] = [rule for rule in wide if rule.governs(kind)]
        own = [ttl_rule(kind, ttl)] if ttl else []
        return [*self._wide[kind], *(self.rules[number] for number in numbers if number in self.rules), *own]


class Profiles:
    """Finds the profile of a record. Rules are read once for each version of a tenant's book."""

    def __init__(self) -> None:
        self._books: dict[str, Book] = {}
        self._numbers: dict[tuple[str, str, str, int], int] = {}
        self._made: WeakKeyDictionary[Transaction, set[tuple[str, str, str, int]]] = WeakKeyDictionary()

    def known(self, tenant: str, version: int) -> Book | None:
        """The tenant's rules in a version, if they were read before."""
        book = self._books.get(tenant)
        return None if book is None or book.version != version else book

    def book(self, tx: Transaction, tenant: str, version: int | None = None) -> Book:
        """The tenant's rules as they are now, in the version that they are known to have."""
        if version is None:
            version = version_of(tx, tenant)
        book = self._books.get(tenant)
        if book is None or book.version != version:
            book = self._books[tenant] = read_book(tx, tenant)
        return book

    def find(
        self,
        tx: Transaction,
        kind: str,
        scope: Scope,
        memory_id: str | None = None,
        labels: Labels | None = None,
        *,
        ttl: int | None = None,
        book: Book | None = None,
    ) -> int:
        """The number of the profile for something of this scope; made if there is none yet."""
        book = book or self.book(tx, scope.tenant)
        numbers = book.selecting(kind, scope, memory_id, labels)
        key = to_json(numbers) if numbers else "[]"
        where = (scope.tenant, kind, key, ttl or 0)
        if where in self._numbers:
            return self._numbers[where]
        made = self._made.setdefault(tx, set())
        known = tx.find(int, "rules.profile", where)
        if known is not None:
            if where not in made:  # what this transaction has made may yet be undone
                self._numbers[where] = known
            return known
        made.add(where)
        tx.run("rules.open_book", (scope.tenant, dump_defaults(), VERSION))
        life = read_book(tx, scope.tenant).life(kind, json.loads(key), ttl)
        return tx.number("rules.new_profile", (*where, *life.stored))

    def life(
        self, tx: Transaction, kind: str, scope: Scope, memory_id: str | None = None, labels: Labels | None = None
    ) -> Life:
        """How long something of this scope lives."""
        book = self.book(tx, scope.tenant)
        return book.life(kind, book.selecting(kind, scope, memory_id, labels))


def read_book(tx: Transaction, tenant: str) -> Book:
    """The tenant's rules, read anew."""
    found = {row.no: row.rule(tenant) for row in tx.all(RuleRow, "rules.rules", (tenant,))}
    return Book(version_of(tx, tenant), found, read_defaults(tx, tenant))


def read_defaults(tx: Transaction, tenant: str) -> Mapping[str, Terms]:
    """The defaults that hold for a tenant; those of this version, where nothing was ever kept."""
    row = tx.find(DefaultsRow, "rules.defaults", (tenant,))
    return DEFAULTS if row is None else load_defaults(row.defaults)


def raise_version(tx: Transaction, tenant: str) -> None:
    """Let everyone who has read a tenant's rules read them again."""
    tx.run("rules.raise_version", (tenant, dump_defaults(), VERSION))


def scope_of(subject: Subject, agent_id: str, session_id: str | None) -> Scope:
    """The scope of something of a subject."""
    return Scope(subject.tenant, subject.user_id, agent_id, session_id)


def check_rules(tx: Transaction, tenant: str, version: int | None) -> None:
    """``RulesChangedError`` if the rules that moves were decided by are no longer in force; for use inside the
    transaction that relies on it, once it has a subject of the tenant to itself.
    """
    if version is not None and version_of(tx, tenant) != version:
        raise RulesChangedError(f"the rules of tenant {tenant!r} were changed meanwhile; what is due is looked up anew")


def version_of(tx: Transaction, tenant: str) -> int:
    """The version of a tenant's book."""
    return tx.find(int, "rules.book", (tenant,)) or 0


_log = logging.getLogger("holdfast.rules")
_BATCH: Final = 1_000


class OtherDefaults(NamedTuple):
    """A tenant with other defaults, and the version of Holdfast that they are of."""

    tenant: str
    software: str


class SubjectRow(NamedTuple):
    """A subject and its number."""

    subject: Subject
    no: int


class AssignedRow(NamedTuple):
    """A record and its profile; without a kind, a session."""

    key: int
    id: str
    kind: int | None
    profile: int
    agent_id: str
    session_id: str | None
    metadata: str
    ttl: int | None = None


class SqlRules(SqlStore):
    """The ``RuleStore`` of the relational engines."""

    def __init__(self, database: Transactions) -> None:
        super().__init__(database)
        self._profiles = Profiles()

    def rules(self, tenant: str) -> list[Rule]:
        with self._database.read() as tx:
            return list(read_book(tx, tenant).rules.values())

    def defaults(self, tenant: str) -> Mapping[str, Terms]:
        with self._database.read() as tx:
            return read_defaults(tx, tenant)

    def adopt_defaults(self, *, now: Callable[[], int]) -> list[str]:
        mine = dump_defaults()
        others = self._database.ask(OtherDefaults, "rules.other_defaults", (mine,))
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
                tx.run("rules.put_life", (*book.life(row.kind, json.loads(row.rules), row.ttl).stored, row.no))
            changed = [kind for kind, terms in book.defaults.items() if terms != before[kind]]
            detail = {
                "from": {kind: terms_to_dict(before[kind]) for kind in changed},
                "to": {kind: terms_to_dict(book.defaults[kind]) for kind in changed},
            }
            append(tx, tx.number_for(Subject(tenant)), [Event(now, Action.DEFAULTS_CHANGED, None, detail)])
        return True

    def life(
        self,
        kind: str,
        scope: Scope,
        memory_id: str | None = None,
        *,
        labels: Labels | None = None,
        ttl: int | None = None,
    ) -> Life:
        book = self._profiles.known(scope.tenant, self._find(int, "rules.book", scope.tenant) or 0)
        if book is None:
            with self._database.read() as tx:
                book = self._profiles.book(tx, scope.tenant)
        return book.life(kind, book.selecting(kind, scope, memory_id, labels), ttl)

    def propose(self, rules: Sequence[Rule], *, now: int) -> list[Rule]:
        if not rules:
            return []
        tenant = rules[0].tenant
        with self._database.govern(tenant) as tx:
            numbers = [_propose(tx, rule, now) for rule in rules]
            raise_version(tx, tenant)
            book = read_book(tx, tenant)
            return [book.rules[number] for number in numbers]

    def assign(self, rule: Rule) -> Iterator[int]:
        if rule.is_wide:
            return
        with self._database.read() as tx:
            whose = _subjects(tx, rule)
        for subject, number in whose:
            first, last = all_keys(number)
            while first <= last:
                first, count = self._assign(rule, subject, number, (first, last))
                yield count

    def _assign(self, rule: Rule, subject: Subject, number: int, keys: tuple[int, int]) -> tuple[int, int]:
        """Give the next records of a subject, or all its sessions, the profile that they should have; where to go on,
        and how many there were.
        """
        of = (rule.agent_id or "", rule.session_id or "")
        with self._database.write() as tx:
            tx.number_of(subject)
            if rule.kind == HISTORY:
                found = tx.all(AssignedRow, "rules.sessions_to_assign", (number, *of))
            elif rule.memory_id is None:
                found = tx.all(AssignedRow, "rules.records_to_assign", (*keys, *of, _BATCH))
            else:
                found = tx.all(AssignedRow, "rules.record_to_assign", (rule.memory_id, number))
            profiles = Profiles()
            book = profiles.book(tx, rule.tenant)
            for row in found:
                scope = scope_of(subject, row.agent_id, row.session_id)
                about = (kind_name(row.kind), scope, row.id, book.labels(row.metadata))
                right = profiles.find(tx, *about, ttl=row.ttl, book=book)
                if right != row.profile and row.kind is None:
                    tx.run("rules.assign_session", (number, right, row.key))
                elif right != row.profile:
                    tx.run("rules.assign_record", (right, row.key))
        is_whole = len(found) == _BATCH and rule.kind != HISTORY
        return (found[-1].key if is_whole else keys[1]) + 1, len(found)

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
            raise_version(tx, tenant)
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
    ended = set(tx.all(int, "rules.retire_selections", (now, tenant, number)))
    tx.run("rules.settle_selection", (now, number, tenant))
    return ended


def _put_lives(tx: Transaction, tenant: str, book: Book, changed: set[int]) -> None:
    """Let the profiles that know some rules say what those come to now."""
    wide = [book.rules[number] for number in changed if book.rules[number].is_wide]
    for row in tx.all(ProfileRow, "rules.profiles", (tenant,)):
        numbers = json.loads(row.rules)
        if not changed.isdisjoint(numbers) or any(rule.governs(row.kind) for rule in wide):
            tx.run("rules.put_life", (*book.life(row.kind, numbers, row.ttl).stored, row.no))


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


class SqlHolds(SqlStore):
    """The ``HoldStore`` of the relational engines."""

    def add(self, hold: Hold, event: Event) -> Hold:
        with self._database.govern(hold.tenant) as tx:
            hold = replace(hold, author=hold.author or current_actor(tx.author))
            whom = (hold.user_id, hold.agent_id, hold.session_id, hold.memory_id, hold.tag)
            tx.run("rules.add_hold", (hold.id, hold.tenant, hold.reason, hold.author, hold.created_at, *whom))
            _note_hold(tx, hold, event)
            return hold

    def list(self, tenant: str, *, released: bool = False) -> list[Hold]:
        return self._database.ask(Hold, "rules.holds", (tenant, released))

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


class Holds:
    """The holds that may cover something of a subject."""

    def __init__(self, tx: Transaction | None, subject: Subject) -> None:
        """``tx`` reads them; without it there are none."""
        self._user_id = subject.user_id
        self.active = [] if tx is None else tx.all(Hold, *self.question(subject))

    @staticmethod
    def question(subject: Subject) -> Question:
        """How they are asked for."""
        return "records.active_holds", (subject.tenant, subject.user_id)

    def find(self, agent_id: str, session_id: str | None, item_id: str, metadata: str = "{}") -> Hold | None:
        """The hold that covers something, if one does; by its metadata as it is stored."""
        if not self.active:
            return None
        return find_hold(Held(self._user_id, agent_id, session_id, item_id, json.loads(metadata)), self.active)

    def check_stays(self, record: Record, metadata: str) -> None:
        """``HeldError`` if a change of its metadata would take a record out of a hold that it is under."""
        if not self.active:
            return
        scope = record.scope
        was = Held(scope.user_id, scope.agent_id, scope.session_id, record.id, json.loads(metadata))
        for hold in self.active:
            if hold.covers(was) and not hold.covers(was._replace(metadata=record.metadata)):
                raise HeldError(
                    f"memory {record.id} is kept by hold {hold.id} for its tag {hold.tag!r}, and was not changed: "
                    f"leave the tag in its metadata, or release the hold first: holdfast hold release {hold.id}"
                )

    def covering(self, row: CurrentRow) -> Hold | None:
        """The hold that covers a record."""
        return self.find(row.agent_id, row.session_id, row.id, row.metadata)


#: Of a subject that no hold can cover.
NO_HOLDS: Final = Holds(None, NOBODY)
