"""What a store in use has lost comes back from a backup: a memory, a user, everyone; and nothing else changes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import raw
from clocks import FakeClock
from homes import Homes, on_sqlite
from lifecycle.soundness import check_chain, check_counts, check_sound
from privacy.backups.losses import alias_of, lose, record_row, remember, rows_in
from privacy.backups.stores import lose_machine
from retain import Retain
from retain.core.errors import (
    ConflictError,
    InvalidInputError,
    InvalidScopeError,
    KeyDestroyedError,
    NotFoundError,
    ObjectDamagedError,
)
from retain.core.records import Scope
from retain.privacy.backups.service import DAILY, WEEKLY

OWN_TABLES = ("records", "sessions", "history", "facts")


def user_rows(retain: Retain, user_id: str) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows_in(retain, table, user_id) for table in OWN_TABLES}


def found(retain: Retain, user_id: str, query: str) -> list[str]:
    return [item["memory_id"] for item in retain.manager(user_id, "guide", "trip").retrieve(query)]


# --- one memory ----------------------------------------------------------------------------------------------------


def test_a_memory_that_is_past_its_time_by_now_counts_as_expired(retain: Retain, clock: FakeClock) -> None:
    memory = retain.manager("ann", "guide", "trip")
    old = memory.add("likes tea", "long_term")["memory_id"]
    clock.advance(days=5)
    new = memory.add("likes rain", "long_term")["memory_id"]
    backup = retain.backups.create().id
    lose(retain, clock, "ann", old, new)
    retain.policies.set("long_term", delete_after_days=18, user_id="ann", confirm=True)

    done = retain.backups.restore(backup, user_id="ann", memory_id=old)

    assert (done.memories, done.expired) == (0, 1)
    with pytest.raises(NotFoundError, match="end of its time"):
        memory.get(old)
    assert record_row(retain, old), "the next sweep takes it to the recycle bin"
    done = retain.backups.restore(backup, user_id="ann")
    assert (done.memories, done.expired, done.kept) == (1, 0, 1)
    assert memory.get(new)["content"] == "likes rain"


def test_an_empty_store_does_not_begin_with_a_part(retain: Retain, homes: Homes, clock: FakeClock) -> None:
    retain.agents.add("guide", description="knows the way")
    retain.manager("ann", "guide").add("likes tea", "long_term")
    retain.manager("ann", "guide").add("speaks slowly", "persona")
    daily = retain.backups.create(DAILY).id
    weekly = retain.backups.create(WEEKLY).id
    with Retain.open(home=lose_machine(retain.settings.home, homes), clock=clock) as again:
        with pytest.raises(ConflictError, match=f"begin with one that has long_term, such as {daily}"):
            again.backups.restore(weekly)
        assert again.backups.restore(daily).whole
        assert again.backups.restore(weekly).memories == 1
        assert [one["agent_id"] for one in again.agents.list()] == ["guide"]
    retain.backups.remove(daily, confirm=True, even_last=True)
    with Retain.open(home=lose_machine(retain.settings.home, homes, "alone"), clock=clock) as alone:
        assert alone.backups.restore(weekly).whole, "there is nothing better"


def test_a_memory_that_was_deleted_for_good_comes_back_byte_for_byte(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    before = {name: record_row(retain, memory_id) for name, memory_id in kept.items()}
    backup = retain.backups.create()
    lose(retain, clock, "ann", *kept.values())

    for memory_id in sorted(
        kept.values(), key=lambda one: one == kept["entity"]
    ):  # which tells of the friend, if there
        restored = retain.backups.restore(backup.id, user_id="ann", memory_id=memory_id)
        assert (restored.memories, restored.kept, restored.users) == (1, 0, 1)

    assert {name: record_row(retain, memory_id) for name, memory_id in kept.items()} == before
    assert found(retain, "ann", "window seat")[0] == kept["plain"]
    memory = retain.manager("ann", "guide", "trip")
    assert [one["memory_id"] for one in memory.derived(kept["plain"])] == [kept["long"]]
    assert memory.entity.get("Carla")["entity_id"] == kept["friend"]
    last = memory.explain(kept["plain"])["history"][-1]
    assert (last["action"], last["kind"], last["backup"]) == ("restored", "long_term", backup.id)
    check_sound(retain)


@on_sqlite
def test_only_the_memory_that_was_asked_for_comes_back(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    lose(retain, clock, "ann", kept["plain"], kept["long"])

    retain.backups.restore(backup.id, user_id="ann", memory_id=kept["long"])

    assert record_row(retain, kept["long"])
    assert not record_row(retain, kept["plain"])
    assert retain.backups.restore(backup.id, user_id="ann", memory_id=kept["long"]).kept == 1


def test_a_memory_in_the_recycle_bin_is_told_from_one_that_is_there(retain: Retain, clock: FakeClock) -> None:
    memory = retain.manager("ann", "guide", "trip")
    there, binned, held, lost, back = (memory.add(f"note {n}", "long_term")["memory_id"] for n in range(5))
    memory.delete(back)
    backup = retain.backups.create()
    lose(retain, clock, "ann", lost)  # and what is in the bin is past its time
    for one in (binned, held):
        memory.delete(one)
    retain.holds.add(memory_id=held, reason="Case 4711", author="legal")

    restored = retain.backups.restore(backup.id, user_id="ann")
    assert (restored.memories, restored.kept, restored.binned) == (2, 1, 2), "one came back into the bin"
    assert {one["memory_id"] for one in retain.recycle.list(user_id="ann")} == {binned, held, back}
    restored = retain.backups.restore(backup.id, user_id="ann", overwrite=True)
    assert (restored.memories, restored.kept, restored.binned) == (4, 0, 1), "the hold keeps it as it is"
    assert restored.as_dict()["binned"] == 1
    assert memory.get(there)
    assert memory.get(binned)


@on_sqlite
@pytest.mark.parametrize(
    ("whom", "error"),
    [
        ({"user_id": "ann", "memory_id": "nothing"}, NotFoundError),
        ({"user_id": "bob", "memory_id": "ann's"}, NotFoundError),
        ({"user_id": "nobody"}, NotFoundError),
        ({"user_id": ""}, InvalidScopeError),
        ({"user_id": "ann", "memory_id": ""}, InvalidScopeError),
        ({"memory_id": "nothing"}, InvalidInputError),
    ],
)
def test_what_a_backup_does_not_hold_is_refused_and_nobody_is_made_known(
    retain: Retain, whom: dict[str, str], error: type[Exception]
) -> None:
    kept = retain.manager("ann", "guide").add("likes tea", "long_term")["memory_id"]
    retain.manager("bob", "guide").add("likes coffee", "long_term")
    backup = retain.backups.create()
    asked = {name: kept if value == "ann's" else value for name, value in whom.items()}

    with pytest.raises(error):
        retain.backups.restore(backup.id, **asked)  # type: ignore[arg-type]

    assert raw.rows(retain, "SELECT count(*) FROM subjects WHERE subject LIKE '%nobody%'") == [(0,)]
    with pytest.raises(NotFoundError):
        retain.backups.restore("0" * 26, user_id="ann")


# --- a user --------------------------------------------------------------------------------------------------------


def test_all_that_a_user_lost_comes_back_and_nobody_else_changes(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    remember(retain, "bob")
    before = user_rows(retain, "ann")
    backup = retain.backups.create()
    retain.sessions.remove("guide", "trip", user_id="ann")
    lose(retain, clock, "ann", *kept.values())
    assert user_rows(retain, "ann") == {table: [] for table in OWN_TABLES}
    bob = user_rows(retain, "bob")
    heard: list[int] = []

    restored = retain.backups.restore(backup.id, user_id="ann", progress=heard.append)

    assert user_rows(retain, "ann") == before
    assert user_rows(retain, "bob") == bob
    assert (restored.memories, restored.sessions, restored.messages, restored.facts) == (7, 1, 4, 2)
    assert (sum(heard), restored.kept, restored.lost, restored.whole) == (7, 0, 0, False)
    history = retain.manager("ann", "guide", "trip").short_term.get_full_history()
    assert [item["content"] for item in history] == [f"message {n}" for n in range(4)]
    check_sound(retain)
    again = retain.backups.restore(backup.id, user_id="ann")
    assert (again.memories, again.kept, again.sessions, again.messages, again.facts) == (0, 7, 0, 0, 0)
    assert user_rows(retain, "ann") == before


@on_sqlite
def test_what_was_written_since_stays_as_it_is(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide", "trip")
    memory.update(kept["plain"], "ann likes the aisle seat")
    new = memory.add("ann likes tea", "long_term")["memory_id"]
    lose(retain, clock, "ann", kept["long"])
    changed = record_row(retain, kept["plain"])

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.kept) == (1, 6)
    assert record_row(retain, kept["plain"]) == changed
    assert {kept["plain"], kept["long"], new} <= set(found(retain, "ann", "ann likes the seat and tea, the journey"))
    check_sound(retain)


def test_with_overwrite_memories_become_what_they_were_under_a_new_version(retain: Retain) -> None:
    kept = remember(retain, "ann")
    before = record_row(retain, kept["plain"])
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide", "trip")
    for text in ("ann likes the aisle seat", "ann flies"):
        memory.update(kept["plain"], text, metadata={"other": True})
    memory.delete(kept["long"])
    memory.update(kept["document"], {"city": "Oslo"})

    restored = retain.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert (restored.memories, restored.kept) == (7, 0)
    assert memory.get(kept["plain"])["content"] == "ann likes the window seat"
    after = dict(enumerate(record_row(retain, kept["plain"])))
    assert {place for place, value in enumerate(before) if after[place] != value} == {1}, (
        "the version, and nothing else"
    )
    assert after[1] > before[1] + 2
    assert memory.get(kept["document"])["content"] != ""
    assert kept["long"] in found(retain, "ann", "journey to the sea")
    check_sound(retain)


@on_sqlite
def test_what_a_hold_keeps_is_not_overwritten(retain: Retain) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide", "trip")
    memory.update(kept["plain"], "ann likes the aisle seat")
    memory.update(kept["persona"], "ann is blunt")
    retain.holds.add(memory_id=kept["plain"], reason="a case", author="counsel")

    restored = retain.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert restored.kept == 1
    assert memory.get(kept["plain"])["content"] == "ann likes the aisle seat"
    assert memory.get(kept["persona"])["content"] == "ann speaks plainly"


def test_a_name_that_another_has_by_now_is_left_to_it(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    lose(retain, clock, "ann", kept["friend"], kept["document"])
    memory = retain.manager("ann", "guide", "trip")
    other = memory.entity.add("CARLA", attributes={"city": "Bonn"})
    key = memory.structured.put("trips", {"city": "Oslo", "days": 9}, key="rome")

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.kept) == (0, 7)
    assert memory.entity.get("Carla")["entity_id"] == other
    assert not record_row(retain, kept["friend"])
    assert key != kept["document"]
    assert not record_row(retain, kept["document"])
    check_sound(retain)


@on_sqlite
def test_two_who_took_each_others_names_are_put_right_with_overwrite(retain: Retain) -> None:
    memory = retain.manager("ann", "guide", "trip")
    one, other = memory.entity.add("Carla"), memory.entity.add("Dora")
    backup = retain.backups.create()
    for entity_id, name in ((one, "nobody"), (other, "carla"), (one, "dora")):
        raw.run(retain, "UPDATE records SET name = ? WHERE id = ?", (name, entity_id))

    assert retain.backups.restore(backup.id, user_id="ann", overwrite=True).memories == 2

    assert (memory.entity.get("Carla")["entity_id"], memory.entity.get("Dora")["entity_id"]) == (one, other)


def test_an_index_that_is_loaded_in_another_process_finds_what_came_back(home: Path, clock: FakeClock) -> None:
    with Retain.open(home=home, clock=clock) as one, Retain.open(home=home, clock=clock) as other:
        kept = remember(one, "ann")
        backup = one.backups.create()
        assert found(other, "ann", "window seat")[0] == kept["plain"]
        one.manager("ann", "guide", "trip").update(kept["long"], "nothing of that")
        lose(one, clock, "ann", kept["plain"])
        assert kept["plain"] not in found(other, "ann", "window seat")
        assert found(other, "ann", "nothing of that") == found(one, "ann", "nothing of that") == [kept["long"]]

        one.backups.restore(backup.id, user_id="ann", overwrite=True)

        for engine in (other, one):
            assert found(engine, "ann", "window seat")[0] == kept["plain"]
            assert found(engine, "ann", "the journey to the sea")[0] == kept["long"]
            memory = engine.manager("ann", "guide", "trip")
            assert [item["memory_id"] for item in memory.list_memories("long_term")].count(kept["long"]) == 1


def test_what_goes_back_to_the_recycle_bin_is_out_of_every_loaded_index(home: Path, clock: FakeClock) -> None:
    with Retain.open(home=home, clock=clock) as one, Retain.open(home=home, clock=clock) as other:
        memory = one.manager("ann", "guide")
        best = memory.add("ann likes the window seat", "long_term")["memory_id"]
        second = memory.add("ann saw a window", "long_term")["memory_id"]
        memory.delete(best)
        backup = one.backups.create()
        memory.restore(best)
        asked = other.manager("ann", "guide")
        assert [item["memory_id"] for item in asked.retrieve("the window seat", top_k=1)] == [best]

        one.backups.restore(backup.id, user_id="ann", overwrite=True)

        assert [item["memory_id"] for item in asked.retrieve("the window seat", top_k=1)] == [second]
        check_sound(one)


@on_sqlite
def test_rules_that_are_in_force_now_hold_for_what_comes_back(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    lose(retain, clock, "ann", kept["plain"], kept["long"])
    retain.policies.set("long_term", user_id="ann", delete_after_days=30, confirm=True)
    retain.policies.set("long_term", user_id="ann", memory_id=kept["long"], keep_days=400)

    retain.backups.restore(backup.id, user_id="ann")

    memory = retain.manager("ann", "guide", "trip")
    assert memory.explain(kept["plain"])["next"]["action"] == "recycle"
    assert memory.explain(kept["long"])["kept_until"] is not None
    clock.advance(days=15)
    assert found(retain, "ann", "window seat") == [kept["long"]]


def test_what_is_an_agents_own_is_where_the_agent_is(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    backup = retain.backups.create()
    retain.sessions.remove("guide", "trip", user_id="ann")
    lose(retain, clock, "ann", kept["persona"], kept["episode"], kept["plain"])
    retain.agents.add("guide")
    retain.agents.remove("guide")

    retain.backups.restore(backup.id, user_id="ann")

    memory = retain.manager("ann", "guide", "trip")
    assert found(retain, "ann", "window seat")[0] == kept["plain"]
    retain.sweep()
    check_sound(retain)
    retain.recycle.restore(agent_id="guide")
    assert [item["memory_id"] for item in memory.retrieve("speaks", memory_types=["persona"])] == [kept["persona"]]
    assert memory.get(kept["episode"])["content"]
    assert len(memory.short_term.get_full_history()) == 4
    check_sound(retain)


@on_sqlite
def test_what_lay_in_the_recycle_bin_can_be_looked_at_there_again(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    memory = retain.manager("ann", "guide", "trip")
    memory.delete(kept["plain"])
    backup = retain.backups.create()
    clock.advance(days=16)
    retain.sweep()
    assert not record_row(retain, kept["plain"])

    retain.backups.restore(backup.id, user_id="ann", memory_id=kept["plain"])

    retain.sweep()
    assert memory.restore(kept["plain"])["content"] == "ann likes the window seat"


# --- cold memories -------------------------------------------------------------------------------------------------


def grown_cold(retain: Retain, clock: FakeClock) -> list[str]:
    """Memories of a year ago, in cold storage."""
    memory = retain.manager("ann", "guide", "trip")
    texts = [f"ann was in town number {n}. " * 30 for n in range(4)]
    ids = [memory.add(text, "long_term", {"n": n})["memory_id"] for n, text in enumerate(texts)]
    clock.advance(days=366)
    retain.sweep()
    assert all(record_row(retain, memory_id)[-1] for memory_id in ids)
    return ids


def test_a_cold_memory_comes_back_with_its_object(retain: Retain, clock: FakeClock) -> None:
    ids = grown_cold(retain, clock)
    before = record_row(retain, ids[1])
    backup = retain.backups.create()
    lose(retain, clock, "ann", ids[1])
    assert record_row(retain, ids[0])[-1] != before[-1], "what stays was written anew without it"

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.objects) == (1, 1)
    assert record_row(retain, ids[1]) == before
    memory = retain.manager("ann", "guide", "trip")
    hits = memory.retrieve("town number 1", include_archived=True)
    assert ids[1] in [item["memory_id"] for item in hits]
    retain.sweep()
    check_sound(retain)
    assert memory.rehydrate(ids[1])["content"] == "ann was in town number 1. " * 30
    retain.sweep()
    check_sound(retain)


def test_a_cold_memory_is_left_in_the_object_that_it_lies_in(retain: Retain, clock: FakeClock) -> None:
    ids = grown_cold(retain, clock)
    before = [record_row(retain, memory_id)[-1] for memory_id in ids]
    backup = retain.backups.create()

    restored = retain.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert (restored.memories, restored.objects) == (4, 0)
    assert [record_row(retain, memory_id)[-1] for memory_id in ids] == before
    retain.sweep()
    check_sound(retain)
    assert retain.manager("ann", "guide").rehydrate(ids[2])["content"] == "ann was in town number 2. " * 30


@on_sqlite
def test_a_memory_that_was_brought_back_from_cold_storage_becomes_cold_again(retain: Retain, clock: FakeClock) -> None:
    ids = grown_cold(retain, clock)
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide")
    memory.rehydrate(ids[3])

    assert retain.backups.restore(backup.id, user_id="ann", memory_id=ids[3], overwrite=True).memories == 1

    retain.sweep()
    check_sound(retain)
    assert memory.get(ids[3])["is_archived"]
    assert memory.rehydrate(ids[3])["content"] == "ann was in town number 3. " * 30


@on_sqlite
def test_a_memory_that_grew_cold_since_is_warm_again_and_its_object_is_settled(
    retain: Retain, clock: FakeClock
) -> None:
    memory = retain.manager("ann", "guide")
    ids = [memory.add(f"ann was in town number {n}. " * 30, "long_term")["memory_id"] for n in range(2)]
    before = record_row(retain, ids[0])
    backup = retain.backups.create()
    clock.advance(days=366)
    retain.sweep()
    assert record_row(retain, ids[0])[-1]

    assert retain.backups.restore(backup.id, user_id="ann", memory_id=ids[0], overwrite=True).memories == 1

    after = record_row(retain, ids[0])
    assert (after[0], after[2:]) == (before[0], before[2:]), "all but the version"
    assert raw.rows(retain, "SELECT state FROM packs") == [("stale",)]
    assert memory.rehydrate(ids[1])["content"] == "ann was in town number 1. " * 30
    retain.sweep()
    check_sound(retain)


@on_sqlite
def test_an_object_that_is_just_leaving_is_waited_for(retain: Retain, clock: FakeClock) -> None:
    ids = grown_cold(retain, clock)
    name = record_row(retain, ids[0])[-1]
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide")
    for memory_id in ids:
        memory.delete(memory_id)
    raw.run(retain, "DELETE FROM records WHERE id = ?", (ids[0],))
    raw.run(retain, "UPDATE records SET pack = NULL")
    raw.run(retain, "UPDATE packs SET state = 'leaving' WHERE name = ?", (name,))

    with pytest.raises(ConflictError, match="after the next sweep"):
        retain.backups.restore(backup.id, user_id="ann", memory_id=ids[0])

    retain.sweep()
    assert retain.backups.restore(backup.id, user_id="ann", memory_id=ids[0]).memories == 1
    assert memory.rehydrate(ids[0])["content"] == "ann was in town number 0. " * 30


@on_sqlite
def test_a_cold_memory_whose_object_no_backup_has_is_not_pretended_to_be_there(
    retain: Retain, clock: FakeClock
) -> None:
    ids = grown_cold(retain, clock)
    warm = retain.manager("ann", "guide").add("ann is home", "long_term")["memory_id"]
    name = record_row(retain, ids[0])[-1]
    cold = retain.backups._cold()
    cold.delete([name])  # it goes while the backup is being made
    backup = retain.backups.create()
    raw.run(retain, "DELETE FROM records")
    raw.run(retain, "DELETE FROM packs")

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.lost) == (1, 4)
    assert record_row(retain, warm)
    assert raw.rows(retain, "SELECT count(*) FROM packs") == [(0,)]
    with pytest.raises(ObjectDamagedError, match="does not hold"):
        retain.backups.restore(backup.id, user_id="ann", memory_id=ids[0])


# --- conversations -------------------------------------------------------------------------------------------------


def test_a_message_that_is_missing_comes_back_to_its_place(retain: Retain, clock: FakeClock) -> None:
    remember(retain, "ann")
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide", "trip")
    said = memory.short_term.get_full_history()
    for message in memory.short_term.messages()[1:3]:
        memory.short_term.delete(message.id)
    clock.advance(days=16)
    retain.sweep()
    memory.short_term.add_message("user", "message 4")
    assert raw.rows(retain, "SELECT count(*) FROM history") == [(3,)]

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.sessions, restored.messages) == (0, 2)
    assert memory.short_term.get_full_history()[:4] == said
    check_sound(retain)


@on_sqlite
def test_a_conversation_without_a_message_comes_back(retain: Retain) -> None:
    scope = Scope("default", "ann", "guide", "begun")
    begun = retain.sessions.touch(scope)
    backup = retain.backups.create()
    raw.run(retain, "DELETE FROM sessions")

    assert retain.backups.restore(backup.id, user_id="ann").sessions == 1

    assert retain.sessions.find(scope) == begun


@on_sqlite
def test_a_message_whose_place_is_taken_comes_to_the_end(retain: Retain) -> None:
    remember(retain, "ann")
    backup = retain.backups.create()
    memory = retain.manager("ann", "guide", "trip")
    raw.run(retain, "DELETE FROM history WHERE id = ?", (memory.short_term.messages()[3].id,))
    raw.run(retain, "UPDATE sessions SET messages = messages - 1, size = size - 9")
    memory.short_term.add_message("user", "message 4")

    assert retain.backups.restore(backup.id, user_id="ann").messages == 1

    history = memory.short_term.get_full_history()
    assert [item["content"] for item in history] == ["message 0", "message 1", "message 2", "message 4", "message 3"]
    assert raw.rows(retain, "SELECT messages, size FROM sessions") == [(5, 45)]


def test_a_conversation_whose_name_another_has_goes_to_the_recycle_bin(retain: Retain, clock: FakeClock) -> None:
    remember(retain, "ann")
    backup = retain.backups.create()
    retain.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=16)
    retain.sweep()
    memory = retain.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "another journey")

    restored = retain.backups.restore(backup.id, user_id="ann")

    assert (restored.sessions, restored.messages) == (1, 4)
    assert [item["content"] for item in memory.short_term.get_full_history()] == ["another journey"]
    (binned,) = raw.rows(retain, "SELECT reason, purge_at, messages FROM sessions WHERE state = 'recycled'")
    assert ("another session" in binned[0], binned[2]) == (True, 4)
    assert binned[1] == int((clock.now + timedelta(days=15)).timestamp() * 1_000_000)
    retain.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=1)
    assert retain.recycle.restore(session_id="trip", user_id="ann") >= 1
    check_sound(retain)


# --- facts and holds -----------------------------------------------------------------------------------------------


def test_facts_come_back_and_related_entities_tell_them_again(retain: Retain, clock: FakeClock) -> None:
    kept = remember(retain, "ann")
    memory = retain.manager("ann", "guide", "trip")
    told = memory.get(kept["entity"])["content"]
    assert "knows Carla" in told
    backup = retain.backups.create()
    lose(retain, clock, "ann", kept["friend"])
    assert "knows" not in memory.get(kept["entity"])["content"]

    restored = retain.backups.restore(backup.id, user_id="ann", memory_id=kept["friend"])

    assert (restored.memories, restored.facts) == (1, 1)
    assert memory.get(kept["entity"])["content"] == told
    assert [one["name"] for one in memory.entity.neighbours("Carla")] == ["ann Smith"]


def test_holds_come_back_but_none_on_what_is_not_there(retain: Retain) -> None:
    kept = remember(retain, "ann")
    gone = retain.manager("bob", "guide").add("likes tea", "long_term")["memory_id"]
    whom: list[dict[str, str]] = [{"user_id": "ann"}, {"tag": "travel"}, {"memory_id": kept["plain"]}]
    holds = [retain.holds.add(**one, reason="a case", author="counsel") for one in whom]
    retain.holds.add(memory_id=gone, reason="bob's case", author="counsel")
    backup = retain.backups.create()
    raw.run(retain, "DELETE FROM holds")
    retain.erase_user("bob")

    assert retain.backups.restore(backup.id, user_id="ann").holds == 1
    assert retain.holds.list() == holds[:1]

    restored = retain.backups.restore(backup.id)
    assert (restored.holds, restored.erased) == (2, 1)
    assert {hold.id: hold for hold in retain.holds.list()} == {hold.id: hold for hold in holds}
    check_chain(retain)


# --- who was erased, and who is another ----------------------------------------------------------------------------


def test_nothing_of_a_user_who_was_erased_can_be_restored(retain: Retain) -> None:
    kept = remember(retain, "ann")
    remember(retain, "bob")
    backup = retain.backups.create()
    retain.erase_user("ann")

    for asked in ({}, {"memory_id": kept["plain"]}):
        with pytest.raises(KeyDestroyedError, match="was erased"):
            retain.backups.restore(backup.id, user_id="ann", **asked)  # type: ignore[arg-type]
    restored = retain.backups.restore(backup.id)

    assert (restored.users, restored.erased, restored.memories, restored.kept) == (1, 1, 0, 7)
    assert alias_of(retain, "ann") is None


def test_a_user_who_came_back_after_an_erasure_is_left_alone(retain: Retain) -> None:
    remember(retain, "ann")
    backup = retain.backups.create()
    retain.erase_user("ann")
    memory = retain.manager("ann", "guide", "trip")
    memory.add("likes coffee", "long_term")
    before = user_rows(retain, "ann")

    with pytest.raises(KeyDestroyedError, match="was erased"):
        retain.backups.restore(backup.id, user_id="ann", overwrite=True)
    assert retain.backups.restore(backup.id, overwrite=True).erased == 1

    assert user_rows(retain, "ann") == before


@on_sqlite
def test_an_old_keyring_does_not_bring_back_who_is_in_the_ledger(retain: Retain) -> None:
    remember(retain, "ann")
    backup = retain.backups.create()
    alias = alias_of(retain, "ann") or ""
    state: Any = vars(retain.ledger)["_objects"]
    name = f"keys/{alias[:2]}/{alias}.json"
    key = state.get(name)
    retain.erase_user("ann")
    state.put(name, key)

    with pytest.raises(KeyDestroyedError, match="was erased"):
        retain.backups.restore(backup.id, user_id="ann")
    assert retain.backups.restore(backup.id).erased == 1
    assert alias_of(retain, "ann") is None


def test_who_is_erased_in_the_middle_of_a_restore_stays_so(retain: Retain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retain.privacy.backups.merging._ROWS", 3)
    for user in ("ann", "bob"):
        remember(retain, user)
    backup = retain.backups.create()
    raw.run(retain, "DELETE FROM records")
    users = iter(("ann", "bob"))

    def erase(_count: int) -> None:
        for user in users:
            retain.erase_user(user)
            break

    with pytest.raises(KeyDestroyedError, match="was erased"):
        retain.backups.restore(backup.id, user_id="ann", progress=erase)
    restored = retain.backups.restore(backup.id, progress=erase)

    assert (restored.users, restored.erased) == (0, 2)
    for table in OWN_TABLES:
        assert raw.rows(retain, f"SELECT count(*) FROM {table}") == [(0,)], table  # noqa: S608
    assert [alias_of(retain, user) for user in ("ann", "bob")] == [None, None]
    check_chain(retain)


def test_two_users_of_one_name_are_not_mixed(retain: Retain) -> None:
    remember(retain, "ann")
    remember(retain, "bob")
    backup = retain.backups.create()
    raw.run(retain, "UPDATE subjects SET alias = ? WHERE subject = 'default/ann'", (b"x" * 16,))
    before = user_rows(retain, "ann")

    with pytest.raises(ConflictError, match="nothing was mixed"):
        retain.backups.restore(backup.id, user_id="ann", overwrite=True)
    restored = retain.backups.restore(backup.id, overwrite=True)

    assert (restored.strangers, restored.users) == (1, 1)
    assert user_rows(retain, "ann") == before


# --- everyone ------------------------------------------------------------------------------------------------------


def test_everyone_of_a_lost_machine_comes_into_a_store_that_is_in_use_elsewhere(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        kept = remember(retain, "ann")
        remember(retain, "bob")
        remember(retain.of_tenant("acme"), "ann")
        before = {user: user_rows(retain, user) for user in ("ann", "bob")}
        before["acme"] = user_rows(retain.of_tenant("acme"), "ann")
        alias = alias_of(retain, "ann")
        backup = retain.backups.create()
    elsewhere = lose_machine(home, homes)
    with Retain.open(home=elsewhere, clock=clock) as retain:
        remember(retain, "dora")
        dora = user_rows(retain, "dora")

        restored = retain.backups.restore(backup.id)

        assert (restored.users, restored.memories, restored.whole) == (3, 21, False)
        after = {user: user_rows(retain, user) for user in ("ann", "bob")}
        after["acme"] = user_rows(retain.of_tenant("acme"), "ann")
        assert after == before
        assert user_rows(retain, "dora") == dora
        assert alias_of(retain, "ann") == alias, "so that an erasure destroys the key of the backups"
        assert found(retain, "ann", "window seat")[0] == kept["plain"]
        check_sound(retain)
        retain.erase_user("ann")
        with pytest.raises(KeyDestroyedError, match="was erased"):
            retain.backups.restore(backup.id, user_id="ann")


def test_what_a_user_has_in_many_batches_and_documents_comes_back(
    retain: Retain, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retain.privacy.backups.merging._ROWS", 7)
    monkeypatch.setattr("retain.privacy.backups.writing.PART", 2_000)
    monkeypatch.setattr("retain.privacy.backups.writing.SEGMENT", 6_000)
    monkeypatch.setattr("retain.privacy.backups.gathering.ROWS", 9)
    memory = retain.manager("ann", "guide", "trip")
    ids = memory.add_many([f"ann saw {n}" for n in range(40)], "long_term")["memory_ids"]
    memory.short_term.append("user", [f"message {n}" for n in range(30)], None)
    memory.short_term.append("user", [f"then {n}" for n in range(5)], None)
    before = user_rows(retain, "ann")
    backup = retain.backups.create()
    raw.run(retain, "DELETE FROM history")
    retain.sessions.remove("guide", "trip", user_id="ann")
    lose(retain, clock, "ann", *ids)

    restored = retain.backups.restore(backup.id)

    assert (restored.memories, restored.messages) == (40, 35)
    after = user_rows(retain, "ann")
    assert {table: after[table] for table in ("records", "history")} == {t: before[t] for t in ("records", "history")}
    check_counts(retain)
    check_chain(retain)
