"""What every ``SchemaStore`` does."""

from __future__ import annotations

import pytest

from conformance.engines import Engine
from conformance.samples import Person
from holdfast.ports.records import SchemaStore


@pytest.fixture
def store(engine: Engine) -> SchemaStore:
    return engine.schemas


def test_a_schema_comes_back_as_it_was(store: SchemaStore, elsewhere: Engine, me: Person) -> None:
    schema = '{"type": "object", "title": "Grüße 🎿", "pad": "' + "x" * 50_000 + '"}'
    assert store.find(me.tenant, ["trips"]) == {}

    store.put(me.tenant, "trips", schema)

    assert store.find(me.tenant, ["other", "trips"]) == {"trips": schema}
    assert elsewhere.schemas.find(me.tenant, ["trips"]) == {"trips": schema}


def test_a_schema_can_be_replaced_and_removed(store: SchemaStore, me: Person) -> None:
    store.put(me.tenant, "trips", '{"type": "object"}')
    store.put(me.tenant, "trips", "{}")
    assert store.find(me.tenant, ["trips"]) == {"trips": "{}"}

    store.put(me.tenant, "trips", None)
    store.put(me.tenant, "trips", None)
    assert store.find(me.tenant, ["trips"]) == {}


def test_collections_and_tenants_are_compared_whole(store: SchemaStore, me: Person) -> None:
    names = [(me.tenant, "trips"), (me.tenant, "trip"), (me.tenant, "Trips"), (me.tenant + "x", "trips")]
    for n, (tenant, collection) in enumerate(names):
        store.put(tenant, collection, f'{{"minimum": {n}}}')

    store.put(*names[1], None)

    assert [store.find(tenant, [name]).get(name) for tenant, name in names] == [
        '{"minimum": 0}',
        None,
        '{"minimum": 2}',
        '{"minimum": 3}',
    ]
