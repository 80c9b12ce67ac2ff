"""Archiving frees space: what a memory takes in the store, by the bytes that lie there."""

from __future__ import annotations

import json

import pytest
from bench.footprint import TARGETS, measure, texts

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.values import unpack
from holdfast.lifecycle.sweeping.plan import Report
from lifecycle.soundness import check_sound


@pytest.mark.parametrize(("characters", "count"), [(115, 2_000), (20_000, 40)])
def test_row_index_and_audit_of_an_archived_memory_are_a_part_of_what_they_were(
    holdfast: Holdfast, clock: FakeClock, characters: int, count: int
) -> None:
    found = measure(holdfast, clock.advance, characters, count)

    assert found.ratio <= TARGETS[characters], found
    before, after = found.reported
    assert 0 < before <= found.before["records"], "the report says what lies in the rows"
    assert 0 < after <= found.after["records"]
    assert found.before["audit"] == 0
    assert found.after["audit"] * count < 120_000, "a batch shares its entry"
    check_sound(holdfast)


def test_the_row_of_an_archived_memory_has_a_summary_one_small_vector_and_no_terms(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    lengths = {40: 40, 80: 80, 81: 80, 300: 80, 800: 200, 1_600: 400, 20_000: 400}
    contents = {length: texts(length, 1)[0].ljust(length, "x") for length in lengths}
    ids = {length: memory.add(text, "long_term", {"n": length})["memory_id"] for length, text in contents.items()}
    clock.advance(days=366)
    assert holdfast.sweep().counts["archive"] == len(lengths), "short ones too"

    for length, most in lengths.items():
        asked = "SELECT content, vectors, terms, metadata, state FROM records WHERE id = ?"
        ((content, vectors, terms, metadata, state),) = raw.rows(holdfast, asked, (ids[length],))
        assert most / 2 <= len(unpack(content)) <= most, length
        assert (len(vectors), terms, json.loads(metadata), state) == (256, b"", {"n": length}, "archived")


def test_a_report_says_what_archived_memories_took_and_take(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    nothing = holdfast.sweep()
    assert isinstance(nothing, Report)
    assert (nothing.bytes_before, nothing.bytes_after) == (0, 0)
    text = texts(800, 1)[0]
    memory_id = memory.add(text, "long_term")["memory_id"]
    memory.episodic.record_episode("plan a trip", messages=[{"role": "user", "content": text}], summary="To Rome.")
    asked = "SELECT metadata, content, vectors, terms, body FROM records"

    def stored() -> int:
        parts = [part for row in raw.rows(holdfast, asked) for part in row if part is not None]
        return sum(len(unpack(part).encode() if part[:1] == b"\0" else part) for part in parts)

    before = stored()
    clock.advance(days=91)
    episodes = holdfast.sweep()
    clock.advance(days=274)
    memories = holdfast.sweep()
    assert isinstance(episodes, Report)
    assert isinstance(memories, Report)
    assert memories.counts["archive"] == 1
    assert before == episodes.bytes_before + memories.bytes_before
    assert memories.to_dict()["bytes_before"] > 3 * memories.to_dict()["bytes_after"] > 0
    ((left,),) = raw.rows(holdfast, "SELECT count(*) FROM records WHERE id = ? AND state = 'archived'", (memory_id,))
    assert left == 1


def test_what_is_changed_or_embedded_anew_in_the_archive_stays_small(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    text = texts(2_000, 1)[0]
    memory_id = memory.add(text, "long_term")["memory_id"]
    clock.advance(days=300)
    episode_id = memory.episodic.record_episode("plan a trip", messages=["by night train"], summary="We go to Rome.")
    clock.advance(days=91)
    assert holdfast.sweep().counts["archive"] == 2
    memory.update(episode_id, metadata={"liked": True})
    raw.run(holdfast, "UPDATE records SET model = NULL WHERE id = ?", (memory_id,))
    raw.run(holdfast, "UPDATE scopes SET seq = seq + 1, floor = seq + 1")

    assert holdfast.reembed() == 1

    asked = "SELECT vectors, terms, model IS NOT NULL FROM records"
    assert [(len(vectors), terms, bool(there)) for vectors, terms, there in raw.rows(holdfast, asked)] == [
        (256, b"", True),
        (256, b"", True),
    ]
    assert memory.retrieve("night train to Rome", "episodic", include_archived=True)[0]["memory_id"] == episode_id
    assert memory.retrieve(text[:60], include_archived=True)[0]["memory_id"] == memory_id
    assert memory.rehydrate(memory_id)["content"] == text
    check_sound(holdfast)
