"""What a store in use has lost comes back from a backup: a memory, a user, everyone; and nothing else changes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    InvalidScopeError,
    KeyDestroyedError,
    NotFoundError,
    ObjectDamagedError,
)
from holdfast.core.records import Scope
from homes import Homes, on_sqlite
from lifecycle.soundness import check_chain, check_counts, check_sound
from privacy.backups.losses import alias_of, lose, record_row, remember, rows_in
from privacy.backups.stores import lose_machine

OWN_TABLES = ("records", "sessions", "history", "facts")


def user_rows(holdfast: Holdfast, user_id: str) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows_in(holdfast, table, user_id) for table in OWN_TABLES}


def found(holdfast: Holdfast, user_id: str, query: str) -> list[str]:
    return [item["memory_id"] for item in holdfast.manager(user_id, "guide", "trip").retrieve(query)]


# --- one memory ----------------------------------------------------------------------------------------------------


def test_a_memory_that_is_past_its_time_by_now_counts_as_expired(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    old = memory.add("likes tea", "long_term")["memory_id"]
    clock.advance(days=5)
    new = memory.add("likes rain", "long_term")["memory_id"]
    backup = holdfast.backups.create().id
    lose(holdfast, clock, "ann", old, new)
    holdfast.policies.set("long_term", delete_after_days=18, user_id="ann", confirm=True)

    done = holdfast.backups.restore(backup, user_id="ann", memory_id=old)

    assert (done.memories, done.expired) == (0, 1)
    with pytest.raises(NotFoundError, match="end of its time"):
        memory.get(old)
    assert record_row(holdfast, old), "the next sweep takes it to the recycle bin"
    done = holdfast.backups.restore(backup, user_id="ann")
    assert (done.memories, done.expired, done.kept) == (1, 0, 1)
    assert memory.get(new)["content"] == "likes rain"


def test_an_empty_store_does_not_begin_with_a_part(holdfast: Holdfast, homes: Homes, clock: FakeClock) -> None:
    holdfast.agents.add("guide", description="knows the way")
    holdfast.manager("ann", "guide").add("likes tea", "long_term")
    holdfast.manager("ann", "guide").add("speaks slowly", "persona")
    daily = holdfast.backups.create(DAILY).id
    weekly = holdfast.backups.create(WEEKLY).id
    with Holdfast.open(home=lose_machine(holdfast.settings.home, homes), clock=clock) as again:
        with pytest.raises(ConflictError, match=f"begin with one that has long_term, such as {daily}"):
            again.backups.restore(weekly)
        assert again.backups.restore(daily).whole
        assert again.backups.restore(weekly).memories == 1
        assert [one["agent_id"] for one in again.agents.list()] == ["guide"]
    holdfast.backups.remove(daily, confirm=True, even_last=True)
    with Holdfast.open(home=lose_machine(holdfast.settings.home, homes, "alone"), clock=clock) as alone:
        assert alone.backups.restore(weekly).whole, "there is nothing better"


def test_a_memory_that_was_deleted_for_good_comes_back_byte_for_byte(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    before = {name: record_row(holdfast, memory_id) for name, memory_id in kept.items()}
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", *kept.values())

    for memory_id in sorted(
        kept.values(), key=lambda one: one == kept["entity"]
    ):  # which tells of the friend, if there
        restored = holdfast.backups.restore(backup.id, user_id="ann", memory_id=memory_id)
        assert (restored.memories, restored.kept, restored.users) == (1, 0, 1)

    assert {name: record_row(holdfast, memory_id) for name, memory_id in kept.items()} == before
    assert found(holdfast, "ann", "window seat")[0] == kept["plain"]
    memory = holdfast.manager("ann", "guide", "trip")
    assert [one["memory_id"] for one in memory.derived(kept["plain"])] == [kept["long"]]
    assert memory.entity.get("Carla")["entity_id"] == kept["friend"]
    last = memory.explain(kept["plain"])["history"][-1]
    assert (last["action"], last["kind"], last["backup"]) == ("restored", "long_term", backup.id)
    check_sound(holdfast)


@on_sqlite
def test_only_the_memory_that_was_asked_for_comes_back(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", kept["plain"], kept["long"])

    holdfast.backups.restore(backup.id, user_id="ann", memory_id=kept["long"])

    assert record_row(holdfast, kept["long"])
    assert not record_row(holdfast, kept["plain"])
    assert holdfast.backups.restore(backup.id, user_id="ann", memory_id=kept["long"]).kept == 1


def test_a_memory_in_the_recycle_bin_is_told_from_one_that_is_there(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    there, binned, held, lost, back = (memory.add(f"note {n}", "long_term")["memory_id"] for n in range(5))
    memory.delete(back)
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", lost)  # and what is in the bin is past its time
    for one in (binned, held):
        memory.delete(one)
    holdfast.holds.add(memory_id=held, reason="Case 4711", author="legal")

    restored = holdfast.backups.restore(backup.id, user_id="ann")
    assert (restored.memories, restored.kept, restored.binned) == (2, 1, 2), "one came back into the bin"
    assert {one["memory_id"] for one in holdfast.recycle.list(user_id="ann")} == {binned, held, back}
    restored = holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)
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
    holdfast: Holdfast, whom: dict[str, str], error: type[Exception]
) -> None:
    kept = holdfast.manager("ann", "guide").add("likes tea", "long_term")["memory_id"]
    holdfast.manager("bob", "guide").add("likes coffee", "long_term")
    backup = holdfast.backups.create()
    asked = {name: kept if value == "ann's" else value for name, value in whom.items()}

    with pytest.raises(error):
        holdfast.backups.restore(backup.id, **asked)  # type: ignore[arg-type]

    assert raw.rows(holdfast, "SELECT count(*) FROM subjects WHERE subject LIKE '%nobody%'") == [(0,)]
    with pytest.raises(NotFoundError):
        holdfast.backups.restore("0" * 26, user_id="ann")


# --- a user --------------------------------------------------------------------------------------------------------


def test_all_that_a_user_lost_comes_back_and_nobody_else_changes(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    remember(holdfast, "bob")
    before = user_rows(holdfast, "ann")
    backup = holdfast.backups.create()
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    lose(holdfast, clock, "ann", *kept.values())
    assert user_rows(holdfast, "ann") == {table: [] for table in OWN_TABLES}
    bob = user_rows(holdfast, "bob")
    heard: list[int] = []

    restored = holdfast.backups.restore(backup.id, user_id="ann", progress=heard.append)

    assert user_rows(holdfast, "ann") == before
    assert user_rows(holdfast, "bob") == bob
    assert (restored.memories, restored.sessions, restored.messages, restored.facts) == (7, 1, 4, 2)
    assert (sum(heard), restored.kept, restored.lost, restored.whole) == (7, 0, 0, False)
    history = holdfast.manager("ann", "guide", "trip").short_term.get_full_history()
    assert [item["content"] for item in history] == [f"message {n}" for n in range(4)]
    check_sound(holdfast)
    again = holdfast.backups.restore(backup.id, user_id="ann")
    assert (again.memories, again.kept, again.sessions, again.messages, again.facts) == (0, 7, 0, 0, 0)
    assert user_rows(holdfast, "ann") == before


@on_sqlite
def test_what_was_written_since_stays_as_it_is(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide", "trip")
    memory.update(kept["plain"], "ann likes the aisle seat")
    new = memory.add("ann likes tea", "long_term")["memory_id"]
    lose(holdfast, clock, "ann", kept["long"])
    changed = record_row(holdfast, kept["plain"])

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.kept) == (1, 6)
    assert record_row(holdfast, kept["plain"]) == changed
    assert {kept["plain"], kept["long"], new} <= set(found(holdfast, "ann", "ann likes the seat and tea, the journey"))
    check_sound(holdfast)


def test_with_overwrite_memories_become_what_they_were_under_a_new_version(holdfast: Holdfast) -> None:
    kept = remember(holdfast, "ann")
    before = record_row(holdfast, kept["plain"])
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide", "trip")
    for text in ("ann likes the aisle seat", "ann flies"):
        memory.update(kept["plain"], text, metadata={"other": True})
    memory.delete(kept["long"])
    memory.update(kept["document"], {"city": "Oslo"})

    restored = holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert (restored.memories, restored.kept) == (7, 0)
    assert memory.get(kept["plain"])["content"] == "ann likes the window seat"
    after = dict(enumerate(record_row(holdfast, kept["plain"])))
    assert {place for place, value in enumerate(before) if after[place] != value} == {1}, (
        "the version, and nothing else"
    )
    assert after[1] > before[1] + 2
    assert memory.get(kept["document"])["content"] != ""
    assert kept["long"] in found(holdfast, "ann", "journey to the sea")
    check_sound(holdfast)


@on_sqlite
def test_what_a_hold_keeps_is_not_overwritten(holdfast: Holdfast) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide", "trip")
    memory.update(kept["plain"], "ann likes the aisle seat")
    memory.update(kept["persona"], "ann is blunt")
    holdfast.holds.add(memory_id=kept["plain"], reason="a case", author="counsel")

    restored = holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert restored.kept == 1
    assert memory.get(kept["plain"])["content"] == "ann likes the aisle seat"
    assert memory.get(kept["persona"])["content"] == "ann speaks plainly"


def test_a_name_that_another_has_by_now_is_left_to_it(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", kept["friend"], kept["document"])
    memory = holdfast.manager("ann", "guide", "trip")
    other = memory.entity.add("CARLA", attributes={"city": "Bonn"})
    key = memory.structured.put("trips", {"city": "Oslo", "days": 9}, key="rome")

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.kept) == (0, 7)
    assert memory.entity.get("Carla")["entity_id"] == other
    assert not record_row(holdfast, kept["friend"])
    assert key != kept["document"]
    assert not record_row(holdfast, kept["document"])
    check_sound(holdfast)


@on_sqlite
def test_two_who_took_each_others_names_are_put_right_with_overwrite(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    one, other = memory.entity.add("Carla"), memory.entity.add("Dora")
    backup = holdfast.backups.create()
    for entity_id, name in ((one, "nobody"), (other, "carla"), (one, "dora")):
        raw.run(holdfast, "UPDATE records SET name = ? WHERE id = ?", (name, entity_id))

    assert holdfast.backups.restore(backup.id, user_id="ann", overwrite=True).memories == 2

    assert (memory.entity.get("Carla")["entity_id"], memory.entity.get("Dora")["entity_id"]) == (one, other)


def test_an_index_that_is_loaded_in_another_process_finds_what_came_back(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
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
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
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
def test_rules_that_are_in_force_now_hold_for_what_comes_back(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", kept["plain"], kept["long"])
    holdfast.policies.set("long_term", user_id="ann", delete_after_days=30, confirm=True)
    holdfast.policies.set("long_term", user_id="ann", memory_id=kept["long"], keep_days=400)

    holdfast.backups.restore(backup.id, user_id="ann")

    memory = holdfast.manager("ann", "guide", "trip")
    assert memory.explain(kept["plain"])["next"]["action"] == "recycle"  # type: ignore[index]
    assert memory.explain(kept["long"])["kept_until"] is not None
    clock.advance(days=15)
    assert found(holdfast, "ann", "window seat") == [kept["long"]]


def test_what_is_an_agents_own_is_where_the_agent_is(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    backup = holdfast.backups.create()
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    lose(holdfast, clock, "ann", kept["persona"], kept["episode"], kept["plain"])
    holdfast.agents.add("guide")
    holdfast.agents.remove("guide")

    holdfast.backups.restore(backup.id, user_id="ann")

    memory = holdfast.manager("ann", "guide", "trip")
    assert found(holdfast, "ann", "window seat")[0] == kept["plain"]
    holdfast.sweep()
    check_sound(holdfast)
    holdfast.recycle.restore(agent_id="guide")
    assert [item["memory_id"] for item in memory.retrieve("speaks", memory_types=["persona"])] == [kept["persona"]]
    assert memory.get(kept["episode"])["content"]
    assert len(memory.short_term.get_full_history()) == 4
    check_sound(holdfast)


@on_sqlite
def test_what_lay_in_the_recycle_bin_can_be_looked_at_there_again(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    memory = holdfast.manager("ann", "guide", "trip")
    memory.delete(kept["plain"])
    backup = holdfast.backups.create()
    clock.advance(days=16)
    holdfast.sweep()
    assert not record_row(holdfast, kept["plain"])

    holdfast.backups.restore(backup.id, user_id="ann", memory_id=kept["plain"])

    holdfast.sweep()
    assert memory.restore(kept["plain"])["content"] == "ann likes the window seat"


# --- cold memories -------------------------------------------------------------------------------------------------


def grown_cold(holdfast: Holdfast, clock: FakeClock) -> list[str]:
    """Memories of a year ago, in cold storage."""
    memory = holdfast.manager("ann", "guide", "trip")
    texts = [f"ann was in town number {n}. " * 30 for n in range(4)]
    ids = [memory.add(text, "long_term", {"n": n})["memory_id"] for n, text in enumerate(texts)]
    clock.advance(days=366)
    holdfast.sweep()
    assert all(record_row(holdfast, memory_id)[-1] for memory_id in ids)
    return ids


def test_a_cold_memory_comes_back_with_its_object(holdfast: Holdfast, clock: FakeClock) -> None:
    ids = grown_cold(holdfast, clock)
    before = record_row(holdfast, ids[1])
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", ids[1])
    assert record_row(holdfast, ids[0])[-1] != before[-1], "what stays was written anew without it"

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.objects) == (1, 1)
    assert record_row(holdfast, ids[1]) == before
    memory = holdfast.manager("ann", "guide", "trip")
    hits = memory.retrieve("town number 1", include_archived=True)
    assert ids[1] in [item["memory_id"] for item in hits]
    holdfast.sweep()
    check_sound(holdfast)
    assert memory.rehydrate(ids[1])["content"] == "ann was in town number 1. " * 30
    holdfast.sweep()
    check_sound(holdfast)


def test_a_cold_memory_is_left_in_the_object_that_it_lies_in(holdfast: Holdfast, clock: FakeClock) -> None:
    ids = grown_cold(holdfast, clock)
    before = [record_row(holdfast, memory_id)[-1] for memory_id in ids]
    backup = holdfast.backups.create()

    restored = holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)

    assert (restored.memories, restored.objects) == (4, 0)
    assert [record_row(holdfast, memory_id)[-1] for memory_id in ids] == before
    holdfast.sweep()
    check_sound(holdfast)
    assert holdfast.manager("ann", "guide").rehydrate(ids[2])["content"] == "ann was in town number 2. " * 30


@on_sqlite
def test_a_memory_that_was_brought_back_from_cold_storage_becomes_cold_again(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    ids = grown_cold(holdfast, clock)
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide")
    memory.rehydrate(ids[3])

    assert holdfast.backups.restore(backup.id, user_id="ann", memory_id=ids[3], overwrite=True).memories == 1

    holdfast.sweep()
    check_sound(holdfast)
    assert memory.get(ids[3])["is_archived"]
    assert memory.rehydrate(ids[3])["content"] == "ann was in town number 3. " * 30


@on_sqlite
def test_a_memory_that_grew_cold_since_is_warm_again_and_its_object_is_settled(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide")
    ids = [memory.add(f"ann was in town number {n}. " * 30, "long_term")["memory_id"] for n in range(2)]
    before = record_row(holdfast, ids[0])
    backup = holdfast.backups.create()
    clock.advance(days=366)
    holdfast.sweep()
    assert record_row(holdfast, ids[0])[-1]

    assert holdfast.backups.restore(backup.id, user_id="ann", memory_id=ids[0], overwrite=True).memories == 1

    after = record_row(holdfast, ids[0])
    assert (after[0], after[2:]) == (before[0], before[2:]), "all but the version"
    assert raw.rows(holdfast, "SELECT state FROM packs") == [("stale",)]
    assert memory.rehydrate(ids[1])["content"] == "ann was in town number 1. " * 30
    holdfast.sweep()
    check_sound(holdfast)


@on_sqlite
def test_an_object_that_is_just_leaving_is_waited_for(holdfast: Holdfast, clock: FakeClock) -> None:
    ids = grown_cold(holdfast, clock)
    name = record_row(holdfast, ids[0])[-1]
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide")
    for memory_id in ids:
        memory.delete(memory_id)
    raw.run(holdfast, "DELETE FROM records WHERE id = ?", (ids[0],))
    raw.run(holdfast, "UPDATE records SET pack = NULL")
    raw.run(holdfast, "UPDATE packs SET state = 'leaving' WHERE name = ?", (name,))

    with pytest.raises(ConflictError, match="after the next sweep"):
        holdfast.backups.restore(backup.id, user_id="ann", memory_id=ids[0])

    holdfast.sweep()
    assert holdfast.backups.restore(backup.id, user_id="ann", memory_id=ids[0]).memories == 1
    assert memory.rehydrate(ids[0])["content"] == "ann was in town number 0. " * 30


@on_sqlite
def test_a_cold_memory_whose_object_no_backup_has_is_not_pretended_to_be_there(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    ids = grown_cold(holdfast, clock)
    warm = holdfast.manager("ann", "guide").add("ann is home", "long_term")["memory_id"]
    name = record_row(holdfast, ids[0])[-1]
    cold = holdfast.backups._host.open_cold()
    cold.delete([name])  # it goes while the backup is being made
    backup = holdfast.backups.create()
    raw.run(holdfast, "DELETE FROM records")
    raw.run(holdfast, "DELETE FROM packs")

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.memories, restored.lost) == (1, 4)
    assert record_row(holdfast, warm)
    assert raw.rows(holdfast, "SELECT count(*) FROM packs") == [(0,)]
    with pytest.raises(ObjectDamagedError, match="does not hold"):
        holdfast.backups.restore(backup.id, user_id="ann", memory_id=ids[0])


# --- conversations -------------------------------------------------------------------------------------------------


def test_a_message_that_is_missing_comes_back_to_its_place(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide", "trip")
    said = memory.short_term.get_full_history()
    for message in memory.short_term.messages()[1:3]:
        memory.short_term.delete(message.id)
    clock.advance(days=16)
    holdfast.sweep()
    memory.short_term.add_message("user", "message 4")
    assert raw.rows(holdfast, "SELECT count(*) FROM history") == [(3,)]

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.sessions, restored.messages) == (0, 2)
    assert memory.short_term.get_full_history()[:4] == said
    check_sound(holdfast)


@on_sqlite
def test_a_conversation_without_a_message_comes_back(holdfast: Holdfast) -> None:
    scope = Scope("default", "ann", "guide", "begun")
    begun = holdfast.sessions.touch(scope)
    backup = holdfast.backups.create()
    raw.run(holdfast, "DELETE FROM sessions")

    assert holdfast.backups.restore(backup.id, user_id="ann").sessions == 1

    found = holdfast.sessions.find(scope)
    assert found is not None
    assert found._replace(number=begun.number) == begun


@on_sqlite
def test_a_message_whose_place_is_taken_comes_to_the_end(holdfast: Holdfast) -> None:
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    memory = holdfast.manager("ann", "guide", "trip")
    raw.run(holdfast, "DELETE FROM history WHERE id = ?", (memory.short_term.messages()[3].id,))
    raw.run(holdfast, "UPDATE sessions SET messages = messages - 1, size = size - 9")
    memory.short_term.add_message("user", "message 4")

    assert holdfast.backups.restore(backup.id, user_id="ann").messages == 1

    history = memory.short_term.get_full_history()
    assert [item["content"] for item in history] == ["message 0", "message 1", "message 2", "message 4", "message 3"]
    assert raw.rows(holdfast, "SELECT messages, size FROM sessions") == [(5, 45)]


def test_a_conversation_whose_name_another_has_goes_to_the_recycle_bin(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=16)
    holdfast.sweep()
    memory = holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "another journey")

    restored = holdfast.backups.restore(backup.id, user_id="ann")

    assert (restored.sessions, restored.messages) == (1, 4)
    assert [item["content"] for item in memory.short_term.get_full_history()] == ["another journey"]
    (binned,) = raw.rows(holdfast, "SELECT reason, purge_at, messages FROM sessions WHERE state = 'recycled'")
    assert ("another session" in binned[0], binned[2]) == (True, 4)
    assert binned[1] == int((clock.now + timedelta(days=15)).timestamp() * 1_000_000)
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=1)
    assert holdfast.recycle.restore(session_id="trip", user_id="ann") >= 1
    check_sound(holdfast)


# --- facts and holds -----------------------------------------------------------------------------------------------


def test_facts_come_back_and_related_entities_tell_them_again(holdfast: Holdfast, clock: FakeClock) -> None:
    kept = remember(holdfast, "ann")
    memory = holdfast.manager("ann", "guide", "trip")
    told = memory.get(kept["entity"])["content"]
    assert "knows Carla" in told
    backup = holdfast.backups.create()
    lose(holdfast, clock, "ann", kept["friend"])
    assert "knows" not in memory.get(kept["entity"])["content"]

    restored = holdfast.backups.restore(backup.id, user_id="ann", memory_id=kept["friend"])

    assert (restored.memories, restored.facts) == (1, 1)
    assert memory.get(kept["entity"])["content"] == told
    assert [one["name"] for one in memory.entity.neighbours("Carla")] == ["ann Smith"]


def test_holds_come_back_but_none_on_what_is_not_there(holdfast: Holdfast) -> None:
    kept = remember(holdfast, "ann")
    gone = holdfast.manager("bob", "guide").add("likes tea", "long_term")["memory_id"]
    whom: list[dict[str, str]] = [{"user_id": "ann"}, {"tag": "travel"}, {"memory_id": kept["plain"]}]
    holds = [holdfast.holds.add(**one, reason="a case", author="counsel") for one in whom]
    holdfast.holds.add(memory_id=gone, reason="bob's case", author="counsel")
    backup = holdfast.backups.create()
    raw.run(holdfast, "DELETE FROM holds")
    holdfast.erase_user("bob")

    assert holdfast.backups.restore(backup.id, user_id="ann").holds == 1
    assert holdfast.holds.list() == holds[:1]

    restored = holdfast.backups.restore(backup.id)
    assert (restored.holds, restored.erased) == (2, 1)
    assert {hold.id: hold for hold in holdfast.holds.list()} == {hold.id: hold for hold in holds}
    check_chain(holdfast)


# --- who was erased, and who is another ----------------------------------------------------------------------------


def test_nothing_of_a_user_who_was_erased_can_be_restored(holdfast: Holdfast) -> None:
    kept = remember(holdfast, "ann")
    remember(holdfast, "bob")
    backup = holdfast.backups.create()
    holdfast.erase_user("ann")

    for asked in ({}, {"memory_id": kept["plain"]}):
        with pytest.raises(KeyDestroyedError, match="was erased"):
            holdfast.backups.restore(backup.id, user_id="ann", **asked)  # type: ignore[arg-type]
    restored = holdfast.backups.restore(backup.id)

    assert (restored.users, restored.erased, restored.memories, restored.kept) == (1, 1, 0, 7)
    assert alias_of(holdfast, "ann") is None


def test_a_user_who_came_back_after_an_erasure_is_left_alone(holdfast: Holdfast) -> None:
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    holdfast.erase_user("ann")
    memory = holdfast.manager("ann", "guide", "trip")
    memory.add("likes coffee", "long_term")
    before = user_rows(holdfast, "ann")

    with pytest.raises(KeyDestroyedError, match="was erased"):
        holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)
    assert holdfast.backups.restore(backup.id, overwrite=True).erased == 1

    assert user_rows(holdfast, "ann") == before


@on_sqlite
def test_an_old_keyring_does_not_bring_back_who_is_in_the_ledger(holdfast: Holdfast) -> None:
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    alias = alias_of(holdfast, "ann") or ""
    state: Any = vars(holdfast.ledger)["_objects"]
    name = f"keys/{alias[:2]}/{alias}.json"
    key = state.get(name)
    holdfast.erase_user("ann")
    state.put(name, key)

    with pytest.raises(KeyDestroyedError, match="was erased"):
        holdfast.backups.restore(backup.id, user_id="ann")
    assert holdfast.backups.restore(backup.id).erased == 1
    assert alias_of(holdfast, "ann") is None


def test_who_is_erased_in_the_middle_of_a_restore_stays_so(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backups.merge._ROWS", 3)
    for user in ("ann", "bob"):
        remember(holdfast, user)
    backup = holdfast.backups.create()
    raw.run(holdfast, "DELETE FROM records")
    users = iter(("ann", "bob"))

    def erase(_count: int) -> None:
        for user in users:
            holdfast.erase_user(user)
            break

    with pytest.raises(KeyDestroyedError, match="was erased"):
        holdfast.backups.restore(backup.id, user_id="ann", progress=erase)
    restored = holdfast.backups.restore(backup.id, progress=erase)

    assert (restored.users, restored.erased) == (0, 2)
    for table in OWN_TABLES:
        assert raw.rows(holdfast, f"SELECT count(*) FROM {table}") == [(0,)], table  # noqa: S608
    assert [alias_of(holdfast, user) for user in ("ann", "bob")] == [None, None]
    check_chain(holdfast)


def test_two_users_of_one_name_are_not_mixed(holdfast: Holdfast) -> None:
    remember(holdfast, "ann")
    remember(holdfast, "bob")
    backup = holdfast.backups.create()
    raw.run(holdfast, "UPDATE subjects SET alias = ? WHERE subject = 'default/ann'", (b"x" * 16,))
    before = user_rows(holdfast, "ann")

    with pytest.raises(ConflictError, match="nothing was restored"):
        holdfast.backups.restore(backup.id, user_id="ann", overwrite=True)
    restored = holdfast.backups.restore(backup.id, overwrite=True)

    assert (restored.strangers, restored.users) == (1, 1)
    assert user_rows(holdfast, "ann") == before


# --- everyone ------------------------------------------------------------------------------------------------------


def test_everyone_of_a_lost_machine_comes_into_a_store_that_is_in_use_elsewhere(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        kept = remember(holdfast, "ann")
        remember(holdfast, "bob")
        remember(holdfast.of_tenant("acme"), "ann")
        before = {user: user_rows(holdfast, user) for user in ("ann", "bob")}
        before["acme"] = user_rows(holdfast.of_tenant("acme"), "ann")
        alias = alias_of(holdfast, "ann")
        backup = holdfast.backups.create()
    elsewhere = lose_machine(home, homes)
    with Holdfast.open(home=elsewhere, clock=clock) as holdfast:
        remember(holdfast, "dora")
        dora = user_rows(holdfast, "dora")

        restored = holdfast.backups.restore(backup.id)

        assert (restored.users, restored.memories, restored.whole) == (3, 21, False)
        after = {user: user_rows(holdfast, user) for user in ("ann", "bob")}
        after["acme"] = user_rows(holdfast.of_tenant("acme"), "ann")
        assert after == before
        assert user_rows(holdfast, "dora") == dora
        assert alias_of(holdfast, "ann") == alias, "so that an erasure destroys the key of the backups"
        assert found(holdfast, "ann", "window seat")[0] == kept["plain"]
        check_sound(holdfast)
        holdfast.erase_user("ann")
        with pytest.raises(KeyDestroyedError, match="was erased"):
            holdfast.backups.restore(backup.id, user_id="ann")


def test_what_a_user_has_in_many_batches_and_documents_comes_back(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backups.merge._ROWS", 7)
    monkeypatch.setattr("holdfast.backups.create.SEGMENT", 6_000)
    monkeypatch.setattr("holdfast.backups.contents.ROWS", 9)
    memory = holdfast.manager("ann", "guide", "trip")
    ids = memory.add_many([f"ann saw {n}" for n in range(40)], "long_term")["memory_ids"]
    memory.short_term.append("user", [f"message {n}" for n in range(30)], None)
    memory.short_term.append("user", [f"then {n}" for n in range(5)], None)
    before = user_rows(holdfast, "ann")
    backup = holdfast.backups.create()
    raw.run(holdfast, "DELETE FROM history")
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    lose(holdfast, clock, "ann", *ids)

    restored = holdfast.backups.restore(backup.id)

    assert (restored.memories, restored.messages) == (40, 35)
    after = user_rows(holdfast, "ann")
    assert {table: after[table] for table in ("records", "history")} == {t: before[t] for t in ("records", "history")}
    check_counts(holdfast)
    check_chain(holdfast)
