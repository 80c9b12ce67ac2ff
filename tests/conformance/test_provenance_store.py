"""What every ``ProvenanceStore`` does, and how records that say where they come from are written and moved."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, bring, changed, entry, move, new_id, there
from holdfast.core.errors import ConflictError
from holdfast.core.records import LIVE, TYPES, Entry, MemoryType, Outcome, Record, State
from holdfast.ports.records import Written

LONG_TERM = TYPES[MemoryType.LONG_TERM]
PERSONA = TYPES[MemoryType.PERSONA]
CRM = "import:crm"


def add(engine: Engine, who: Person, content: str = "User enjoys skiing", **fields: Any) -> Record:
    kind = fields.get("kind", MemoryType.LONG_TERM)
    made = entry(who, content, **fields)
    engine.records.insert(who.subject, TYPES[kind], [made], prune=False, now=NOW)
    return made.record


def ids(found: list[Written]) -> list[str]:
    return [written.facts.id for written in found]


def of_source(engine: Engine, who: Person, source: str, *, everyone: bool = False, page: int = 2) -> list[Written]:
    """All that a source wrote, read in small pages."""
    found: list[Written] = []
    place = 0
    while True:
        subject = None if everyone else who.subject
        some, place = engine.provenance.of_source(who.tenant, source, subject, after=place, limit=page)
        found += some
        if len(some) < page:
            return found


@pytest.mark.parametrize("sources", [(), (new_id(),), tuple(new_id() for _ in range(1_000))])
def test_a_record_comes_back_with_where_it_comes_from(engine: Engine, me: Person, sources: tuple[str, ...]) -> None:
    record = add(engine, me, source="import: Grüße 'x' ⛷", derived_from=sources)

    assert there(engine.records, me, record.id) == record
    assert engine.records.fetch(me.subject, [record.id], now=NOW) == {record.id: record}
    assert engine.records.entries(me.subject, [record.id])[record.id].record == record
    assert engine.records.find(me.tenant, record.id) == record
    for source_id in sources[-2:]:
        assert ids(engine.provenance.derived(me.subject, [source_id])) == [record.id]


def test_what_was_derived_from_any_of_several_is_found_once_each(engine: Engine, me: Person) -> None:
    one, two, three = new_id(), new_id(), new_id()
    first = add(engine, me, derived_from=(one, two))
    second = add(engine, me, derived_from=(two,), kind=MemoryType.PERSONA, source=CRM)
    add(engine, me, derived_from=(three,))
    add(engine, me.other("someone_else"), derived_from=(one,))

    found = engine.provenance.derived(me.subject, [one, two, two])

    assert ids(found) == [first.id, second.id]
    assert [(one.source, one.facts.kind) for one in found] == [("agent:agent", "long_term"), (CRM, "persona")]
    assert engine.provenance.derived(me.subject, []) == []
    assert engine.provenance.derived(me.other("nobody").subject, [one]) == []


@pytest.mark.parametrize("state", State)
def test_what_was_derived_is_found_in_every_state_and_goes_with_its_record(
    engine: Engine, me: Person, state: State
) -> None:
    source_id = new_id()
    record = add(engine, me, derived_from=(source_id,), source=CRM)
    bring(engine.records, me, record.id, state)

    gone = state is State.DELETED
    assert ids(engine.provenance.derived(me.subject, [source_id])) == ([] if gone else [record.id])
    found = of_source(engine, me, CRM)
    assert [written.facts.state for written in found] == ([] if gone else [state])


def test_many_that_go_at_once_leave_nothing(engine: Engine, me: Person) -> None:
    source_id = new_id()
    made = [add(engine, me, f"fact {n}", derived_from=(source_id,)) for n in range(20)]
    for path in ((State.DELETING,), (State.DELETED,)):
        records = [there(engine.records, me, one.id) for one in made]
        outcomes = engine.records.transition(me.subject, [move(one, path[0]) for one in records], now=NOW)
        assert set(outcomes) == {Outcome.DONE}
    assert engine.provenance.derived(me.subject, [source_id]) == []


def test_a_new_version_says_it_anew(engine: Engine, me: Person) -> None:
    one, two = new_id(), new_id()
    record = add(engine, me, derived_from=(one, two), source=CRM)

    assert engine.records.replace(changed(record, content="changed"))
    assert there(engine.records, me, record.id).derived_from == (one, two)
    assert there(engine.records, me, record.id).source == CRM
    again = there(engine.records, me, record.id)
    assert engine.records.replace(changed(again, source=None, derived_from=(two,)))

    assert engine.provenance.derived(me.subject, [one]) == []
    assert ids(engine.provenance.derived(me.subject, [two])) == [record.id]
    assert of_source(engine, me, CRM) == []
    assert there(engine.records, me, record.id).written_by == "agent:agent"
    assert not engine.records.replace(changed(again, derived_from=(one,))), "it is stale"
    assert engine.provenance.derived(me.subject, [one]) == []


def test_a_write_that_is_refused_notes_nothing(engine: Engine, me: Person) -> None:
    source_id = new_id()
    first = add(engine, me)
    entries: list[Entry] = [entry(me, derived_from=(source_id,)), entry(me, id=first.id, derived_from=(source_id,))]
    with pytest.raises(ConflictError):
        engine.records.insert(me.subject, LONG_TERM, entries, prune=False, now=NOW)
    assert engine.provenance.derived(me.subject, [source_id]) == []


def test_what_a_source_wrote_is_read_in_pages_each_users_together(engine: Engine, me: Person) -> None:
    people = [me, me.other("bob"), me.other("zoë")]
    made = {who: [add(engine, who, f"fact {n}", source=CRM).id for n in range(3)] for who in people}
    for who in people:
        add(engine, who, "another's", source="import:crm2")
        add(engine, who, "an agent's")
    add(engine, Person(f"{me.tenant}-2", "user_123"), source=CRM)

    assert ids(of_source(engine, me, CRM)) == made[me]
    everyone = of_source(engine, me, CRM, everyone=True)
    assert len(everyone) == 9
    subjects = [written.facts.subject for written in everyone]
    assert len([1 for one, other in pairwise(subjects) if one != other]) == 2
    assert {written.source for written in everyone} == {CRM}
    assert of_source(engine, me, "import:CRM") == []


def test_what_nothing_is_said_of_is_its_agents(engine: Engine, me: Person) -> None:
    mine = [add(engine, me, agent_id="a").id, add(engine, me, agent_id="a", kind=MemoryType.PERSONA).id]
    named = add(engine, me, agent_id="b", source="agent:a").id
    add(engine, me, agent_id="b")
    add(engine, me, agent_id="a", source=CRM)
    theirs = add(engine, me.other("bob"), agent_id="a").id

    assert set(ids(of_source(engine, me, "agent:a"))) == {*mine, named}
    assert set(ids(of_source(engine, me, "agent:a", everyone=True))) == {*mine, named, theirs}


def test_what_went_together_is_found_together(engine: Engine, me: Person) -> None:
    bob = me.other("bob")
    made = [(who, add(engine, who, f"fact {n}", source=CRM)) for who in (me, bob) for n in range(3)]
    for who, record in made[1:]:
        step = move(record, State.RECYCLED, bundle="source:import:crm")
        assert engine.records.transition(who.subject, [step], now=NOW) == [Outcome.DONE]
    add(engine, Person(f"{me.tenant}-2", "user_123"))

    found, place = engine.records.bundled(me.tenant, "source:import:crm", limit=3)
    more, _ = engine.records.bundled(me.tenant, "source:import:crm", after=place, limit=3)

    assert [record.id for record in [*found, *more]] == [record.id for _, record in made[1:]]
    assert {record.bundle for record in found} == {"source:import:crm"}
    assert engine.records.bundled(f"{me.tenant}-2", "source:import:crm", limit=3) == ([], 0)
    back = move(there(engine.records, me, made[1][1].id), State.ACTIVE)
    assert engine.records.transition(me.subject, [back], now=NOW) == [Outcome.DONE]
    assert there(engine.records, me, made[1][1].id).bundle is None
    assert there(engine.records, me, made[1][1].id).state in LIVE
    assert len(engine.records.bundled(me.tenant, "source:import:crm", limit=9)[0]) == 4
