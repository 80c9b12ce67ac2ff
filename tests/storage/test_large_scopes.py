"""A scope too large for an index in memory is searched in PostgreSQL, and nobody can tell by the answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import RawCursor

import raw
from clocks import Counted, FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import InvalidSettingsError, RequestTimeoutError
from holdfast.core.records import Scope
from holdfast.core.types import TYPES, Kind, MemoryType
from holdfast.memory.records import Draft, Durable
from holdfast.ports.feed import IndexRow, Said, Space
from holdfast.ports.models import Vectors
from holdfast.recall.large import read_rows
from holdfast.settings import read_settings
from holdfast.storage.postgres.passages import PostgresPassages
from holdfast.storage.postgres.term_ids import MARKS
from holdfast.storage.postgres.transactions import STATEMENTS, PostgresTransaction

LIMIT = 120
LONG_TERM = TYPES[MemoryType.LONG_TERM]
PEOPLE = ("Ana", "Boris", "Chloe", "Dmitri", "Elif", "Farid")
THINGS = {
    "a trip": ("the ferry to Bastia", "a tent by the lake", "the night train to Vienna", "a broken suitcase", "Lisbon"),
    "cooking": ("a lentil soup", "burnt pancakes", "her grandmother's dumplings", "too much garlic", "sourdough"),
    "work": ("the quarterly report", "a new manager", "the failed deployment", "an interview", "the coffee machine"),
    "health": ("a twisted ankle", "running ten kilometres", "the dentist", "sleeping badly", "a yoga class"),
    "music": ("a cello lesson", "the concert in May", "an old piano", "singing in a choir", "a broken string"),
}
SAID = (
    "{who} said that {thing} was the best part of {topic} so far.",
    "Did {who} ever tell you about {thing}? It happened in {month} and everybody laughed.",
    "I will never forget {thing}.",
    "Yes, and {who} was there too.",
    "{who} wants to try {thing} again in {month}, but is afraid that {other} comes in between.",
    "That sounds wonderful!",
)
MONTHS = ("January", "March", "May", "August", "October")


class Letters:
    """A tiny embedder of its own space: letters counted."""

    id = "letters-26"
    dim = 26

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.casefold():
                row[ord(letter) % self.dim] += 1
            row /= np.linalg.norm(row) or 1  # noqa: PLW2901 - in place
        return rows


def conversations(count: int, seed: int = 1) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Sessions of talk that stay with their topic, about ``count`` turns in all."""
    rng = random.Random(seed)
    for number in range(count // 12):
        topic = rng.choice(list(THINGS))
        turns: list[tuple[str, dict[str, Any]]] = []
        for turn in range(12):
            thing, other = rng.sample(THINGS[topic], 2)
            fields = {"who": rng.choice(PEOPLE), "thing": thing, "other": other, "month": rng.choice(MONTHS)}
            text = rng.choice(SAID).format(topic=topic, **fields)
            turns.append((text, {"topic": topic, "turn": turn, "about": {"who": fields["who"]}, "tags": [topic, "x"]}))
        yield f"session {number}", turns


def questions() -> list[str]:
    rng = random.Random(2)
    asked = [
        f"What did {rng.choice(PEOPLE)} say about {rng.choice(THINGS[topic])}?" for topic in THINGS for _ in "123456"
    ]
    return [*asked, "who was there in August", "the best part", "piano or cello", "wonderful", "zebra"]


def talk(holdfast: Holdfast, user: str = "user", count: int = 300, seed: int = 1) -> list[str]:
    ids = []
    for session, turns in conversations(count, seed):
        records = Durable(holdfast.parts, Scope("default", user, "agent", session))
        ids += records.write(MemoryType.LONG_TERM, [Draft(text, metadata) for text, metadata in turns])[0]
    return ids


def opened(home: Path, clock: FakeClock, limit: int) -> Holdfast:
    return Holdfast(replace(read_settings({}, home=home), index_records=limit), clock=clock)


def passages_of(holdfast: Holdfast) -> PostgresPassages:
    assert holdfast.recall._large is not None
    scopes = holdfast.recall._large.scopes
    assert isinstance(scopes, PostgresPassages)
    return scopes


def is_searched_there(holdfast: Holdfast, memory: MemoryManager) -> bool:
    """Whether the last search was done in the database: then nothing of the scope is held."""
    return bool(holdfast.recall._many) and not holdfast.recall.nbytes


def found(memory: MemoryManager, query: str, **how: Any) -> list[str]:
    return [hit["memory_id"] for hit in memory.retrieve(query, **how)]


def count(holdfast: Holdfast, what: str) -> int:
    return int(raw.rows(holdfast, f"SELECT count(*) FROM {what}")[0][0])  # noqa: S608


@pytest.fixture(scope="session")
def engine_name() -> str:
    return "postgres"


@pytest.fixture
def holdfast(home: Path, clock: FakeClock) -> Iterator[Holdfast]:
    with opened(home, clock, LIMIT) as engine:
        yield engine


@pytest.fixture
def held(home: Path, clock: FakeClock) -> Iterator[Holdfast]:
    """The same store, seen by a process that holds every scope in memory."""
    with opened(home, clock, 1_000_000) as engine:
        yield engine


@pytest.fixture
def memory(holdfast: Holdfast) -> MemoryManager:
    return holdfast.manager("user", "agent")


# --- the same answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True], ids=["compared one by one", "by the index of vectors"])
def test_the_answers_are_those_of_an_index_in_memory(holdfast: Holdfast, held: Holdfast, indexed: bool) -> None:
    talk(holdfast, count=600)
    memory, same = holdfast.manager("user", "agent"), held.manager("user", "agent")
    passages_of(holdfast)._indexed_from = 1 if indexed else 1_000_000
    holdfast.recall.tend("default")
    overlaps, first = [], 0
    for query in questions():
        here, there = found(memory, query, top_k=5), found(same, query, top_k=5)
        assert len(here) == len(there) == 5
        overlaps.append(len(set(here) & set(there)) / 5)
        first += here[0] == there[0]
    assert is_searched_there(holdfast, memory)
    assert sum(overlaps) / len(overlaps) >= 0.9
    assert first / len(overlaps) >= 0.9
    names = [name for (name,) in raw.rows(holdfast, "SELECT indexname FROM pg_indexes WHERE tablename = 'passages'")]
    assert any(name.startswith("passages_near_") for name in names) is indexed


def test_the_index_of_vectors_is_the_one_that_is_used(holdfast: Holdfast, memory: MemoryManager) -> None:
    talk(holdfast)
    passages_of(holdfast)._indexed_from = 1
    holdfast.recall.tend("default")
    ((model, scope),) = raw.rows(holdfast, "SELECT DISTINCT model, scope FROM passages")
    width = holdfast.embedder.dim + MARKS
    text = STATEMENTS["passages.near"].text.decode().replace("{model}", str(model)).replace("{dim}", str(width))
    with holdfast.database.read() as tx:
        assert isinstance(tx, PostgresTransaction)
        tx.rows("passages.tune", ("40", "20000"))
        asked: tuple[Any, ...] = (scope, 0, True, "", str([0.1] * width), 40, [], [], [])
        plan = RawCursor(tx.connection).execute(f"EXPLAIN {text}".encode(), asked).fetchall()
    assert any("using passages_near_" in line for (line,) in plan), plan


def test_scores_are_on_the_same_scale(holdfast: Holdfast, held: Holdfast) -> None:
    talk(holdfast)
    holdfast.recall.tend("default")
    for query in questions()[:10]:
        here = holdfast.manager("user", "agent").retrieve(query, top_k=3)
        there = {hit["memory_id"]: hit["score"] for hit in held.manager("user", "agent").retrieve(query, top_k=50)}
        assert [hit["score"] for hit in here] == pytest.approx([there[hit["memory_id"]] for hit in here], abs=0.02)


@pytest.mark.parametrize("indexed_from", [1, 1_000_000], ids=["indexed", "one by one"])
def test_long_texts_are_found_by_their_passages(holdfast: Holdfast, held: Holdfast, indexed_from: int) -> None:
    passages_of(holdfast)._indexed_from = indexed_from
    talk(holdfast)
    memory, same = holdfast.manager("user", "agent"), held.manager("user", "agent")
    turns = [text for _, said in conversations(240, seed=9) for text, _ in said]
    for start in range(0, 240, 24):
        memory.add(
            "\n".join([*turns[start : start + 24], f"In the end a quokka ate page {start}."]), metadata={"n": start}
        )
    holdfast.recall.tend("default")
    assert count(holdfast, "passages") > count(holdfast, "records") + 10
    for query in (*questions()[:8], "quokka on page 48"):
        for filters in (None, {"n": {"gte": 0}}, {"n": [24, 48, 72, 96, 120]}):
            how: dict[str, Any] = {"top_k": 3, "explain": True, "filters": filters}
            here, there = memory.retrieve(query, **how), same.retrieve(query, **how)
            assert [hit["memory_id"] for hit in here] == [hit["memory_id"] for hit in there]
            assert [hit["score"] for hit in here] == pytest.approx([hit["score"] for hit in there], abs=0.02)
    assert len(found(memory, "a quokka", top_k=300)) == 300
    assert found(memory, " ".join(turns), top_k=5) == found(same, " ".join(turns), top_k=5)
    assert is_searched_there(holdfast, memory)


@pytest.mark.parametrize(
    "filters",
    [
        {"topic": "music"},
        {"turn": 7},
        {"turn": 7.0},
        {"turn": {"gte": 3, "lt": 5}},
        {"about.who": ["Ana", "Elif"], "topic": {"ne": "work"}},
        {"tags": {"all": ["health", "x"]}},
        {"topic": {"exists": False}},
        {"topic": "no such topic"},
        {"any": [{"topic": "music", "turn": 1}, {"topic": "work", "turn": 2}]},
        {"not": {"topic": {"in": ["music", "work", "health"]}}},
        {"session_id": "session 3"},
        {"agent_id": "another"},
        {"about": {"eq": {"who": "Ana"}}},
    ],
    ids=str,
)
def test_filters_apply_inside(holdfast: Holdfast, held: Holdfast, filters: dict[str, Any]) -> None:
    talk(holdfast)
    holdfast.recall.tend("default")
    late = holdfast.manager("user", "agent", "session 3").add(
        "piano, ferry and soup", metadata={"topic": "music", "turn": 7}
    )
    memory, same = holdfast.manager("user", "agent"), held.manager("user", "agent")
    for query in ("the old piano", "what did Ana say about the ferry"):
        assert found(memory, query, top_k=4, filters=filters) == found(same, query, top_k=4, filters=filters)
    assert is_searched_there(holdfast, memory)
    listed = [[one["memory_id"] for one in who.list_memories(filters=filters, limit=50)] for who in (memory, same)]
    assert listed[0] == listed[1]
    assert late
    pages: list[str] = []
    while page := memory.list_memories(filters=filters, limit=3, before=pages[-1] if pages else None):
        pages += [one["memory_id"] for one in page]
    assert pages == [one["memory_id"] for one in memory.list_memories(filters=filters, limit=1_000)]


@pytest.mark.parametrize("few", [1, 1_000], ids=["as if many passed", "as few pass"])
def test_a_filter_that_few_records_pass_finds_all_of_them(
    holdfast: Holdfast, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.postgres.lookups._FEW", few)
    talk(holdfast, count=600)
    memory = holdfast.manager("user", "agent")
    wanted = [memory.add(text, metadata={"rare": True})["memory_id"] for text in ("alpha", "beta", "gamma")]
    holdfast.recall.tend("default")
    for filters in ({"rare": True}, {"rare": {"exists": True}}):
        assert sorted(found(memory, "who told you about Lisbon", filters=filters)) == sorted(wanted)


# --- as it is now -----------------------------------------------------------------------------------------------------


def test_what_has_just_been_written_is_found_before_anything_is_made_of_it(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    talk(holdfast)
    holdfast.recall.tend("default")
    before = count(holdfast, "passages")
    written = memory.add("The password of the boathouse is quokka")["memory_id"]
    assert found(memory, "boathouse password", top_k=1) == [written]
    assert count(holdfast, "passages") == before
    assert is_searched_there(holdfast, memory)


def test_deletes_restores_and_changes_by_another_process_are_seen_at_once(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager
) -> None:
    talk(holdfast)
    other = held.manager("user", "agent")
    one = memory.add("The password of the boathouse is quokka")["memory_id"]
    holdfast.recall.tend("default")
    assert found(memory, "boathouse", top_k=1) == [one]
    other.delete(one)
    assert one not in found(memory, "boathouse", top_k=1_000)
    other.restore(one)
    assert found(memory, "boathouse", top_k=1) == [one]
    other.update(one, "The key of the windmill is under the mat")
    assert found(memory, "windmill key", top_k=1) == [one]
    assert not [
        hit for hit in memory.retrieve("quokka", top_k=1_000, explain=True) if hit["explanation"]["lexical"] > 0
    ]
    assert is_searched_there(holdfast, memory)


def test_what_was_made_of_a_text_goes_with_the_text(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    talk(holdfast)
    one, other = memory.add("quokka")["memory_id"], memory.add("wombat")["memory_id"]
    holdfast.recall.tend("default")
    mine = "passages WHERE id = '{}' AND words IS NOT NULL AND vector IS NOT NULL"
    assert count(holdfast, mine.format(one)) == count(holdfast, mine.format(other)) == 1
    memory.update(one, "something else")
    assert raw.rows(holdfast, "SELECT words, vector, model FROM passages WHERE id = ?", (one,)) == [(None, None, None)]
    memory.delete(other)
    assert count(holdfast, mine.format(other)) == 1, "in the recycle bin it is as it was"
    clock.advance(days=16)
    holdfast.recycle.purge()
    assert count(holdfast, f"passages WHERE id = '{other}'") == 0
    holdfast.recall.tend("default")
    assert count(holdfast, mine.format(one)) == 1


def test_nothing_past_its_time_is_found_held_or_not(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    talk(holdfast)
    old = memory.add("quokka in the boathouse")["memory_id"]
    kept = memory.add("quokka in the garden")["memory_id"]
    holdfast.holds.add(memory_id=kept, reason="a case", author="me")
    holdfast.policies.set("long_term", delete_after_days=30, confirm=True)
    clock.advance(days=29, hours=23, minutes=59)
    talk(holdfast, seed=5)
    holdfast.recall.tend("default")
    assert {old, kept} <= set(found(memory, "quokka", top_k=5))
    clock.advance(minutes=1)
    assert not {old, kept} & set(found(memory, "quokka", top_k=1_000))
    assert not {old, kept} & {one["memory_id"] for one in memory.list_memories(limit=1_000)}
    assert len(found(memory, "quokka", top_k=1_000)) == 300
    assert is_searched_there(holdfast, memory)


def test_of_archived_records_the_answers_are_those_of_an_index_in_memory(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    talk(holdfast)
    same = held.manager("user", "agent")
    assert found(memory, "piano") == found(same, "piano")
    clock.advance(days=366)
    talk(holdfast, count=60, seed=5)
    assert holdfast.sweep().counts["archive"] == 300
    assert count(holdfast, "records WHERE length(terms) = 0") == 300
    holdfast.recall.tend("default")
    assert count(holdfast, "passages WHERE words IS NULL OR vector IS NULL") == 0

    for query in questions():
        assert found(memory, query, include_archived=True) == found(same, query, include_archived=True), query
        assert found(memory, query) == found(same, query), query
    assert is_searched_there(holdfast, memory)


def test_archived_records_are_found_where_they_are_asked_for(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    talk(holdfast)
    old = memory.add("quokka in the boathouse")["memory_id"]
    clock.advance(days=366)
    talk(holdfast, seed=5)
    holdfast.recall.tend("default")
    same = held.manager("user", "agent")
    for swept in (False, True):
        if swept:
            holdfast.sweep(confirm=True)
        assert old not in found(memory, "quokka", top_k=1_000)
        assert found(memory, "quokka", top_k=1, include_archived=True) == [old]
        agree = [len({*found(memory, query)} & {*found(same, query)}) / 5 for query in questions()]
        assert sum(agree) / len(agree) >= 0.9
    assert is_searched_there(holdfast, memory)


# --- growing, shrinking, breaking off ---------------------------------------------------------------------------------


def test_a_scope_crosses_the_limit_in_both_directions(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager
) -> None:
    ids = memory.add_many([f"note {n} about {THINGS['music'][n % 5]}" for n in range(LIMIT)])["memory_ids"]
    assert len(found(memory, "note about a cello")) == 5
    holdfast.recall.tend("default")
    assert not is_searched_there(holdfast, memory)
    assert count(holdfast, "passages") == count(holdfast, "fillings") == 0, "nothing is made for a scope that is held"

    ids.append(memory.add("one note more, about a zebra")["memory_id"])
    assert found(memory, "zebra", top_k=1) == ids[-1:]
    assert is_searched_there(holdfast, memory)
    holdfast.recall.tend("default")
    assert count(holdfast, "passages") == LIMIT + 1

    for memory_id in ids[:2]:
        memory.delete(memory_id)
    assert found(memory, "zebra", top_k=1) == ids[-1:]
    assert not is_searched_there(holdfast, memory)
    same = held.manager("user", "agent")
    for memory_id in ids[2:70]:
        memory.delete(memory_id)
    assert found(memory, "cello", top_k=9) == found(same, "cello", top_k=9)
    holdfast.recall.tend("default")
    assert count(holdfast, "passages") == count(holdfast, "fillings") == 0, "what is small is not kept twice"
    memory.add_many([f"a letter {n}" for n in range(100)])
    assert found(memory, "zebra", top_k=1) == ids[-1:]
    assert is_searched_there(holdfast, memory)


def test_while_some_write_and_others_ask_nothing_is_missed(holdfast: Holdfast, home: Path, clock: FakeClock) -> None:
    talk(holdfast)
    holdfast.recall.tend("default")

    def work(number: int) -> None:
        with opened(home, clock, LIMIT) as engine:
            memory = engine.manager("user", "agent")
            for n in range(25):
                written = memory.add(f"quokka{number}x{n} in the boathouse")["memory_id"]
                assert found(memory, f"quokka{number}x{n}", top_k=1) == [written]
                if n % 3 == 0:
                    memory.update(written, f"wombat{number}x{n} in the garden")
                    assert found(memory, f"wombat{number}x{n}", top_k=1) == [written]
                if n % 5 == 0:
                    memory.delete(written)
                    assert written not in found(memory, f"wombat{number}x{n}", top_k=20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert holdfast.manager("user", "agent").count_memories() == 300 + 4 * 20
    holdfast.recall.tend("default")
    assert count(holdfast, "passages WHERE words IS NULL") == 0
    assert count(holdfast, "passages WHERE place = 0") == 300 + 4 * 25


def test_filling_that_breaks_off_goes_on_where_it_was(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager
) -> None:
    talk(holdfast)
    scope = Scope("default", "user", "agent")
    passages = passages_of(holdfast)
    good = Space(holdfast.recall.model, holdfast.embedder.dim, read_rows)

    def read(kind: Kind, rows: Sequence[IndexRow]) -> Sequence[Said]:
        raise KeyboardInterrupt

    assert passages.fill(scope, LONG_TERM, good, limit=100) == 100
    with pytest.raises(KeyboardInterrupt):
        passages.fill(scope, LONG_TERM, good._replace(read=read), limit=100)
    assert count(holdfast, "passages") == 100
    assert raw.rows(holdfast, "SELECT filled FROM fillings") == [(100,)]
    assert passages.standing(scope, LONG_TERM) == (300, 200)
    same = held.manager("user", "agent")
    for query in questions()[:5]:
        assert found(memory, query) == found(same, query)
    holdfast.recall.tend("default")
    assert passages.standing(scope, LONG_TERM) == (300, 0)
    assert count(holdfast, "passages") == 300


def test_while_too_much_is_missing_the_scope_is_held(
    holdfast: Holdfast, held: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.recall.large._BEHIND", 20)
    monkeypatch.setattr("holdfast.recall.large._FILL_SECONDS", 0.0)
    ids = talk(holdfast)
    same = held.manager("user", "agent")
    assert found(memory, "cello") == found(same, "cello")
    assert not is_searched_there(holdfast, memory)
    holdfast.recall.tend("default")
    memory.delete(ids[0])
    assert found(memory, "cello") == found(same, "cello")
    assert is_searched_there(holdfast, memory)


def test_an_index_of_vectors_that_broke_off_is_made_anew(holdfast: Holdfast, memory: MemoryManager) -> None:
    talk(holdfast)
    passages_of(holdfast)._indexed_from = 1
    holdfast.recall.tend("default")
    valid = "pg_index WHERE indexrelid::regclass::text LIKE '%passages_near_%' AND indisvalid"
    assert count(holdfast, valid) == 1
    with passages_of(holdfast)._database.outside() as connection:
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text LIKE '%passages_near_%'"
        )
    assert count(holdfast, valid) == 0
    assert found(memory, "cello")
    holdfast.recall.tend("default")
    assert count(holdfast, valid) == 1


def test_a_new_model_is_never_compared_with_the_old(holdfast: Holdfast, home: Path, clock: FakeClock) -> None:
    talk(holdfast)
    holdfast.recall.tend("default")
    with opened(home, clock, LIMIT) as other, opened(home, clock, 1_000_000) as held:
        for engine in (other, held):
            engine.recall._embedder = Letters()
            engine.recall._feed.adopt(engine.recall.model)
        memory, same = other.manager("user", "agent"), held.manager("user", "agent")
        other.recall._reembed_after = float("inf")
        hits = memory.retrieve("the old piano", explain=True)
        assert "piano" in hits[0]["content"]
        assert {hit["explanation"]["vector"] for hit in hits} == {0.0}
        assert other.reembed() == 300
        models = raw.rows(other, "SELECT DISTINCT models.id FROM passages JOIN models ON code = model")
        assert models == [(other.recall.model,)]
        agree = [len({*found(memory, q)} & {*found(same, q)}) / 5 for q in questions()]
        assert sum(agree) / len(agree) >= 0.9
        assert is_searched_there(other, memory)


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_users_and_agents_share_tables_and_see_nothing_of_each_other(holdfast: Holdfast, held: Holdfast) -> None:
    passages_of(holdfast)._indexed_from = 1
    for user in ("ann", "bob"):
        talk(holdfast, user, seed=7)
        for agent in ("one", "two"):
            notes = [f"{agent} of {user} likes {thing}" for topic in THINGS.values() for thing in topic] * 3
            holdfast.manager(user, agent).add_many(notes, memory_type="persona")
    holdfast.recall.tend("default")
    for user in ("ann", "bob"):
        hits = holdfast.manager(user, "agent").retrieve("the old piano", top_k=300)
        assert len(hits) == 300
        mine = raw.rows(
            holdfast,
            "SELECT records.id FROM records JOIN subjects ON no = records.subject WHERE subjects.subject = ?",
            (f"default/{user}",),
        )
        assert {hit["memory_id"] for hit in hits} <= {row[0] for row in mine}
        for agent in ("one", "two"):
            texts = [
                hit["content"]
                for hit in holdfast.manager(user, agent).retrieve("piano", top_k=200, memory_type="persona")
            ]
            assert len(texts) == 75
            assert all(text.startswith(f"{agent} of {user}") for text in texts)
            assert texts[:3] == [f"{agent} of {user} likes an old piano"] * 3
    holdfast.agents.add("one")
    holdfast.agents.remove("one")
    assert holdfast.manager("ann", "one").retrieve("piano", memory_type="persona") == []


@pytest.mark.parametrize("given", ["0", "many", "-5"])
def test_the_limit_is_a_number(home: Path, given: str) -> None:
    with pytest.raises(InvalidSettingsError, match="HOLDFAST_INDEX_RECORDS"):
        read_settings({"HOLDFAST_INDEX_RECORDS": given}, home=home)


def test_sqlite_holds_every_scope(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path / "sqlite", clock, 10) as engine:
        talk(engine, count=60)
        assert found(engine.manager("user", "agent"), "the old piano")
        assert engine.recall.nbytes
        assert engine.recall.tend("default") == 0


def test_the_schedule_makes_scopes_ready_that_are_searched(holdfast: Holdfast, memory: MemoryManager) -> None:
    talk(holdfast)
    memory.add_many([f"a letter {n}" for n in range(40)])
    memory.retrieve("the old piano")
    memory.add_many([f"another letter {n}" for n in range(40)])
    waiting = passages_of(holdfast).standing(Scope("default", "user", "agent"), LONG_TERM)[1]
    assert waiting >= 40
    assert holdfast.schedule.run("minutely").get("made_searchable") == waiting
    assert passages_of(holdfast).standing(Scope("default", "user", "agent"), LONG_TERM)[1] == 0


def test_a_search_that_nobody_waits_for_stops(holdfast: Holdfast) -> None:
    talk(holdfast)
    memory = holdfast.manager("user", "agent")
    passing = {"not": {"place": {"in": ["x", "y"]}}}
    for _ in range(3):
        memory.retrieve("piano", filters=passing)
    assert is_searched_there(holdfast, memory)
    whole = Counted()
    with whole.applied():
        assert memory.retrieve("piano", filters=passing)
    assert whole.looks >= LIMIT, "each record that is looked at is a look at the deadline"
    late = Counted(whole.looks // 2)
    with late.applied(), pytest.raises(RequestTimeoutError):
        memory.retrieve("piano", filters=passing)
    assert late.looks <= whole.looks // 2 + 3, "nothing was looked at after that"
