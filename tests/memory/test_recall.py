"""Recall across processes, models and limits of memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raw
from clocks import FakeClock
from effort import sampled
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import EmbedderUnavailableError
from holdfast.core.records import Record, Scope, Subject
from holdfast.manager import Memory
from holdfast.ports.feed import Vectors
from holdfast.ports.records import RecordStore
from holdfast.settings import read_settings
from launcher import start_script


class Hashing:
    """A tiny embedder of its own space: letters counted."""

    def __init__(self, name: str = "letters-26", dim: int = 26) -> None:
        self.id = name
        self.dim = dim
        self.fails = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.fails:
            raise EmbedderUnavailableError("the service is away")
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.casefold():
                row[ord(letter) % self.dim] += 1
            row /= np.linalg.norm(row) or 1  # noqa: PLW2901 - in place
        return rows


def swap_embedder(holdfast: Holdfast, embedder: Hashing) -> Holdfast:
    """The same store, opened with another embedder."""
    other = Holdfast(replace(holdfast.settings), clock=holdfast.services.clock)
    other.recall._embedder = embedder
    other.recall._feed.adopt(other.recall.model)
    return other


def run(home: Path, code: str) -> None:
    program = f"from holdfast import Holdfast\nwith Holdfast.open(home={str(home)!r}) as r:\n    m = r.manager('user', 'agent')\n    {code}"
    assert start_script("-c", program).wait(60) == 0


def test_another_process_adds_changes_deletes_and_it_is_seen_at_once(holdfast: Holdfast, home: Path) -> None:
    memory = holdfast.manager("user", "agent")
    memory_id = memory.add("User lives in Berlin")["memory_id"]
    assert len(memory.retrieve("where does the user live")) == 1

    run(home, "m.add('User moved to Madrid last week')")
    assert len(memory.retrieve("where does the user live")) == 2
    run(home, f"m.update({memory_id!r}, 'User lived in Berlin once')")
    assert "User lived in Berlin once" in [r["content"] for r in memory.retrieve("Berlin")]
    run(home, f"m.delete({memory_id!r})")
    assert [r["content"] for r in memory.retrieve("Berlin")] == ["User moved to Madrid last week"]
    run(home, f"m.restore({memory_id!r})")
    assert len(memory.retrieve("Berlin")) == 2


def test_an_index_far_behind_reads_its_scope_again(holdfast: Holdfast) -> None:
    memory = holdfast.manager("user", "agent")
    ids = memory.add_many([f"memory number {n}" for n in range(3_000)])["memory_ids"]
    assert memory.retrieve("memory number 17")
    with Holdfast.open(home=holdfast.settings.home, clock=holdfast.services.clock) as other:
        twin = other.manager("user", "agent")
        other.quotas.set("long_term", max_memories=3_000)
        twin.add_with_auto_prune("one more")  # recycles the oldest tenth
        for memory_id in ids[300:900]:
            twin.delete(memory_id)
    found = {r["memory_id"] for r in memory.retrieve("memory number", top_k=1_000)}
    assert not found & set(ids[:900])
    assert len(memory.list_memories(limit=10_000)) == 3_000 - 900 + 1


def test_the_indexes_stay_within_their_memory(home: Path, clock: FakeClock) -> None:
    settings = replace(read_settings({}, home=home), index_bytes=2_000_000)
    with Holdfast(settings, clock=clock) as holdfast:
        for user in range(6):
            holdfast.manager(f"user {user}", "agent").add_many([f"memory {n} of {user}" for n in range(400)])
        for user in (0, 1, 2, 3, 4, 5, 0):
            assert holdfast.manager(f"user {user}", "agent").retrieve(f"memory 7 of {user}")
            assert holdfast.recall.nbytes <= 2_000_000


def test_an_index_that_does_not_fit_answers_all_the_same_and_says_what_to_raise(
    home: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(read_settings({}, home=home), index_bytes=100_000)
    with Holdfast(settings, clock=clock) as holdfast:
        memory = holdfast.manager("user", "agent")
        memory.add_many([f"memory {n}" for n in range(400)])
        assert memory.retrieve("memory 7", top_k=1)[0]["content"] == "memory 7"
        assert holdfast.recall.nbytes == 0
    assert "Raise HOLDFAST_INDEX_MIB" in caplog.text


def test_a_new_embedder_never_compares_vectors_of_two_models(holdfast: Holdfast) -> None:
    memory = holdfast.manager("user", "agent")
    memory.add_many(["aaaa bbbb", "cccc dddd", "eeee ffff"])
    letters = Hashing()
    with swap_embedder(holdfast, letters) as other:
        twin = other.manager("user", "agent")
        letters.fails = True  # nothing can be embedded anew: words alone
        assert twin.retrieve("cccc", top_k=1)[0]["content"] == "cccc dddd"
        assert twin.retrieve("cccc", top_k=1, explain=True)[0]["explanation"].get("vector", 0) == 0
        letters.fails = False
        other.recall._paused_until = 0.0
        twin.retrieve("cccc")
        models = raw.rows(other, "SELECT DISTINCT models.id FROM records JOIN models ON model = code")
        assert models == [(other.recall.model,)], "recall embedded the records anew"
    assert memory.retrieve("cccc", top_k=1)[0]["content"] == "cccc dddd", "and back again"


def test_vectors_that_were_stored_in_another_form_are_made_anew_and_never_compared(holdfast: Holdfast) -> None:
    memory = holdfast.manager("user", "agent")
    memory.add_many(["Likes green tea", "Lives in Lyon", "Plays chess"])
    model, stored = holdfast.recall.model, "SELECT id, vectors FROM records ORDER BY id"
    before = raw.rows(holdfast, stored)
    raw.run(holdfast, "UPDATE models SET id = ?, current = NOT current", (model.replace("/steps-1", ""),))
    for record_id, vectors in before:  # as they were before they were steps
        wide = np.frombuffer(vectors, np.int8).astype(np.float16).tobytes()
        raw.run(holdfast, "UPDATE records SET vectors = ? WHERE id = ?", (wide, record_id))
    with Holdfast(replace(holdfast.settings), clock=holdfast.services.clock) as other:
        assert other.manager("user", "agent").retrieve("tea", top_k=1)[0]["content"] == "Likes green tea"
        assert raw.rows(other, stored) == before


def test_all_memories_can_be_embedded_anew_in_one_go(holdfast: Holdfast) -> None:
    for user in ("one", "two"):
        holdfast.manager(user, "agent").add_many([f"memory {n}" for n in range(300)])
        holdfast.manager(user, "agent").add("a persona", "persona")
    seen: list[int] = []
    with swap_embedder(holdfast, Hashing()) as other:
        assert other.reembed(seen.append) == 602
        assert sum(seen) == 602
        assert other.reembed() == 0


def test_without_the_embedder_memories_are_kept_and_found_by_their_words(holdfast: Holdfast) -> None:
    letters = Hashing()
    letters.fails = True
    with swap_embedder(holdfast, letters) as other:
        memory = other.manager("user", "agent")
        memory_id = memory.add("User keeps bees")["memory_id"]
        memory.add("User plays chess")
        assert memory.retrieve("bees", top_k=1)[0]["memory_id"] == memory_id
        letters.fails = False
        other.recall._paused_until = 0.0
        assert memory.retrieve("bees", top_k=1)[0]["memory_id"] == memory_id
        assert other.reembed() == 0, "the query embedded what was waiting"


def test_a_memory_comes_back_from_cold_storage_without_the_embedder(holdfast: Holdfast, clock: FakeClock) -> None:
    letters = Hashing()
    text = "User keeps bees. " * 40 + "The hives stand in Ghent."
    with swap_embedder(holdfast, letters) as other:
        memory = other.manager("user", "agent")
        memory_id = memory.add(text)["memory_id"]
        clock.advance(days=366)
        assert other.sweep().counts["archive"] == 1
        letters.fails = True
        assert memory.rehydrate(memory_id)["content"] == text
        assert memory.retrieve("hives in Ghent")[0]["memory_id"] == memory_id
        letters.fails = False
        other.recall._paused_until = 0.0
        assert memory.retrieve("hives in Ghent")[0]["memory_id"] == memory_id
        assert other.reembed() == 0, "the query embedded what was waiting"


def test_many_threads_write_and_recall_together(holdfast: Holdfast) -> None:
    def work(number: int) -> bool:
        memory = holdfast.manager(f"user {number % 3}", "agent", f"session {number}")
        memory_id = memory.add(f"note {number} about subject {number}")["memory_id"]
        found = memory.retrieve(f"note {number} about subject {number}", top_k=3)
        if number % 2:
            memory.delete(memory_id)
            return memory_id not in {r["memory_id"] for r in memory.retrieve(f"note {number}", top_k=20)}
        return memory_id in {r["memory_id"] for r in found}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(120)))


def test_filters_apply_before_the_best_are_taken(memory: MemoryManager) -> None:
    memory.add_many(["exactly the words of the query"] * 50, "long_term", {"rank": "common"})
    memory.add("hardly related", "long_term", {"rank": "rare"})
    (found,) = memory.retrieve("exactly the words of the query", top_k=1, filters={"rank": "rare"})
    assert found["content"] == "hardly related"


@sampled
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"n": 3}, {3}),
        ({"n": [1, 2]}, {1, 2}),
        ({"n": {"gte": 2, "lt": 4}}, {2, 3}),
        ({"n": {"$gt": 4}}, {5}),
        ({"odd": True}, {1, 3, 5}),
        ({"odd": 1}, set()),
        ({"only_even": {"exists": True}}, {0, 2, 4}),
        ({"tags": {"any": ["t1", "t5"]}}, {1, 5}),
        ({"tags": {"all": ["t2", "all"]}}, {2}),
        ({"tags": "all"}, {0, 1, 2, 3, 4, 5}),
        ({"any": [{"n": 0}, {"n": 5}]}, {0, 5}),
        ({"not": {"odd": True}, "n": {"gt": 0}}, {2, 4}),
        ({"AND": [{"odd": True}, {"n": {"lt": 3}}]}, {1}),
        ({"$or": [{"n": 1}, {"n": 2}]}, {1, 2}),
        ({"created_at": {"gte": "2026-01-16"}}, set()),
        ({"deep.er": {"ne": 2}}, {0, 1, 3, 4, 5}),
        ({"created_at": {"gte": "2026-01-15T15:00:00+00:00"}}, {3, 4, 5}),
    ],
    ids=str,
)
def test_filters_know_equality_lists_ranges_existence_any_and_all(
    memory: MemoryManager, clock: FakeClock, filters: dict[str, object], expected: set[int]
) -> None:
    for n in range(6):
        metadata: dict[str, object] = {"n": n, "odd": n % 2 == 1, "tags": ["all", f"t{n}"], "deep": {"er": n}}
        if n % 2 == 0:
            metadata["only_even"] = None
        memory.add(f"memory {n}", "long_term", metadata)
        clock.advance(hours=1)
    assert {r["metadata"]["n"] for r in memory.retrieve("memory", top_k=50, filters=filters)} == expected
    assert {r["metadata"]["n"] for r in memory.list_memories(filters=filters)} == expected


def test_neighbouring_turns_lend_each_other_context(holdfast: Holdfast) -> None:
    answer = "Yes! I finished it in under four hours."
    alone = holdfast.manager("user", "agent").add(answer.replace("four", "five"))["memory_id"]
    session = holdfast.manager("user", "agent", "chat")
    session.add("Did you hear about the marathon in Kyoto?")
    in_context = session.add(answer)["memory_id"]
    session.add("What will you cook tonight?")
    for number in range(30):
        holdfast.manager("user", "agent", f"other {number}").add(f"We talked about the weather of day {number}.")
    scores = {r["memory_id"]: r["score"] for r in session.retrieve("marathon in Kyoto", top_k=50)}
    assert scores[in_context] > scores[alone]


class DeletesFirst:
    """A record store in which another writer deletes the best match between ranking and reading."""

    def __init__(self, records: RecordStore, other: MemoryManager) -> None:
        self._records = records
        self._other = other
        self._done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def fetch(self, subject: Subject, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        if not self._done:
            self._done = True
            self._other.delete(record_ids[0])
        return self._records.fetch(subject, record_ids, now=now)


def test_a_match_deleted_between_ranking_and_reading_leaves_no_empty_place(holdfast: Holdfast) -> None:
    memory = holdfast.manager("user", "agent")
    memory.add_many([f"note {n} about tea" for n in range(4)])
    usual, records = holdfast.services, DeletesFirst(holdfast.services.records, memory)
    raced = replace(usual, make=lambda name: records if name == "records" else getattr(usual, name))
    found = Memory(raced, Scope("default", "user", "agent")).retrieve("tea", top_k=3)
    assert len(found) == 3
    assert {r["memory_id"] for r in found} == {r["memory_id"] for r in memory.list_memories()}
