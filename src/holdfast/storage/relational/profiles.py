"""A tenant's rules as records meet them: its book of rules, and the profiles that records carry.

A profile is what the rules come to for all records that the same rules select. Rules for the whole tenant are in every
profile of their kind without being named there, so that one of those is a change of a few profiles and of no record.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from holdfast.core.decisions import Life
from holdfast.core.errors import RulesChangedError
from holdfast.core.records import Scope, Subject, Terms
from holdfast.core.rules import (
    DEFAULTS,
    Labels,
    Life,
    Rule,
    Selection,
    dump_defaults,
    labels_of,
    load_defaults,
    resolve,
)
from holdfast.core.version import VERSION
from holdfast.storage.relational.database import Transaction


class RuleRow(NamedTuple):
    """A rule, as it is stored; an empty text stands for what it does not name."""

    no: int
    id: str
    kind: str
    user_id: str
    agent_id: str
    session_id: str
    memory_id: str
    terms: str
    pending: str | None
    version: int
    updated_at: int
    selection: str

    def rule(self, tenant: str) -> Rule:
        """The rule that it is."""
        return Rule(
            id=self.id,
            tenant=tenant,
            kind=self.kind,
            terms=Terms(*json.loads(self.terms)),
            user_id=self.user_id or None,
            agent_id=self.agent_id or None,
            session_id=self.session_id or None,
            memory_id=self.memory_id or None,
            version=self.version,
            pending=None if self.pending is None else Terms(*json.loads(self.pending)),
            updated_at=self.updated_at,
            selection=Selection.parse(self.selection) if self.selection else None,
        )


class DefaultsRow(NamedTuple):
    """The defaults of a tenant, and the version of Holdfast that they are of."""

    defaults: str
    software: str


class ProfileRow(NamedTuple):
    """A profile; its rules are a list of their numbers in JSON."""

    no: int
    kind: str
    rules: str


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

    def life(self, kind: str, numbers: Sequence[int]) -> Life:
        """What the tenant's rules and these come to."""
        return resolve(kind, self.together(kind, numbers), self.defaults)

    def together(self, kind: str, numbers: Sequence[int]) -> list[Rule]:
        """The tenant's rules for a kind, and these."""
        if kind not in self._wide:
            wide = (rule for rule in self.rules.values() if rule.is_wide)
            self._wide[kind] = [rule for rule in wide if rule.governs(kind)]
        return [*self._wide[kind], *(self.rules[number] for number in numbers if number in self.rules)]


class Profiles:
    """Finds the profile of a record. Rules are read once for each version of a tenant's book."""

    def __init__(self) -> None:
        self._books: dict[str, Book] = {}
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._made: WeakKeyDictionary[Transaction, set[tuple[str, str, str]]] = WeakKeyDictionary()

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
        book: Book | None = None,
    ) -> int:
        """The number of the profile for something of this scope; made if there is none yet."""
        book = book or self.book(tx, scope.tenant)
        key = to_json(book.selecting(kind, scope, memory_id, labels))
        where = (scope.tenant, kind, key)
        if where in self._numbers:
            return self._numbers[where]
        made = self._made.setdefault(tx, set())
        known: int | None = tx.value("rules.profile", where)
        if known is not None:
            if where not in made:  # what this transaction has made may yet be undone
                self._numbers[where] = known
            return known
        made.add(where)
        tx.run("rules.open_book", (scope.tenant, dump_defaults(), VERSION))
        life = read_book(tx, scope.tenant).life(kind, json.loads(key))
        return tx.number("rules.new_profile", (scope.tenant, kind, key, *life[:3]))

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


def turn_page(tx: Transaction, tenant: str) -> None:
    """Let everyone who has read a tenant's rules read them again."""
    tx.run("rules.turn_page", (tenant, dump_defaults(), VERSION))


def scope_of(subject: Subject, agent_id: str, session_id: str | None) -> Scope:
    """The scope of something of a subject."""
    tenant, user_id = subject.tenant, subject.user_id
    return Scope(tenant, user_id, agent_id, session_id)


def check_rules(tx: Transaction, subject: Subject, version: int | None) -> None:
    """``RulesChangedError`` if the rules that moves were decided by are no longer in force; for use inside the
    transaction that relies on it, once it has the subject to itself.
    """
    tenant = subject.tenant
    if version is not None and version_of(tx, tenant) != version:
        raise RulesChangedError(f"the rules of tenant {tenant!r} were changed meanwhile; what is due is looked up anew")


def version_of(tx: Transaction, tenant: str) -> int:
    """The version of a tenant's book."""
    version: int = tx.value("rules.book", (tenant,)) or 0
    return version
