"""API keys in a relational engine: the ``KeyStore``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from holdfast.core.access import ApiKey, Right, told_rights
from holdfast.core.chain import Event
from holdfast.core.content import to_json
from holdfast.core.records import ALL, Subject
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Names, Transaction

SQL: Final = Names("access")
#: Whose chain has what happens to the keys of operators, who are of no tenant.
_OPERATORS_CHAIN: Final = "default"


class SqlKeys:
    """The ``KeyStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey, hashed: bytes, event: Event) -> None:
        with self._database.write() as tx:
            bounds = (to_json(told_rights(key.rights)), _listed(key.users), _listed(key.agents))
            tx.run(SQL["add"], (key.id, key.tenant, key.name, *bounds, key.created_at, key.expires_at, hashed))
            _note(tx, key, event)

    def get(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        with self._database.read() as tx:
            row = tx.one(SQL["get"], (key_id,))
        return None if row is None else (_key(row[:-1]), bytes(row[-1]))

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        with self._database.read() as tx:
            rows = tx.rows(SQL["list"]) if tenant is None else tx.rows(SQL["list_of_tenant"], (tenant,))
        return [_key(row) for row in rows]

    def revoke(self, key_id: str, *, now: int, event: Event) -> ApiKey | None:
        with self._database.write() as tx:
            if not tx.run(SQL["revoke"], (key_id, now)):
                return None
            row = tx.one(SQL["get"], (key_id,))
            key = _key((row or ())[:-1])
            _note(tx, key, event)
            return key

    def note_use(self, key_id: str, *, now: int) -> None:
        with self._database.write() as tx:
            tx.run(SQL["note_use"], (key_id, now))

    def any(self, *, now: int) -> bool:
        with self._database.read() as tx:
            return tx.value(SQL["valid"], (now,)) > 0


def unbind(tx: Transaction, tenant: str, user_id: str) -> int:
    """Let no key name a user any more; how many did. One that was for nobody else is removed: it must not become one
    for everybody.
    """
    keys = tx.rows(SQL["bound_to"], (tenant, user_id))
    for key_id, users in keys:
        others = [one for one in json.loads(users) if one != user_id]
        tx.run(SQL["bind"], (key_id, to_json(others))) if others else tx.run(SQL["remove"], (key_id,))
    return len(keys)


def _note(tx: Transaction, key: ApiKey, event: Event) -> None:
    tenant = _OPERATORS_CHAIN if key.tenant == ALL else key.tenant
    append(tx, tx.number_for(Subject(tenant)), [event])


def _listed(ids: Iterable[str] | None) -> str | None:
    return None if ids is None else to_json(sorted(ids))


def _key(row: tuple[Any, ...]) -> ApiKey:
    key_id, tenant, name, rights, users, agents, *moments = row
    return ApiKey(key_id, tenant, name, frozenset(map(Right, json.loads(rights))), _ids(users), _ids(agents), *moments)


def _ids(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))
