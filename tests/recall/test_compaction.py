"""The little that an archived record keeps for recall, and what an index makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.records import TYPES, Encoding, MemoryType, Record, Scope, State
from holdfast.core.values import to_json
from holdfast.ports.feed import Embedder, IndexRow
from holdfast.recall import terms
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.passages import compact, expand, split_record, split_summary
from holdfast.recall.vectors import read_steps, to_steps, units
from recall.test_passages import SENTENCE, episode


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return StaticEmbedder()


def note(content: str) -> Record:
    scope = Scope("default", "ann", "agent")
    return Record("00000000-0000-7000-8000-000000000001", MemoryType.LONG_TERM, scope, content, 0, 0, 0)


def archived(record: Record) -> Record:
    return replace(record, body=None, state=State.ARCHIVED)


def encode(record: Record, embedder: Embedder | None) -> Encoding:
    """All of a record's encoding; without vectors where there is no embedder."""
    passages = split_record(record)
    if embedder is None:
        return Encoding(None, None, terms.encode(passages))
    return Encoding("model", to_steps(embedder.embed(passages)).tobytes(), terms.encode(passages))


def expanded(record: Record, kept: Encoding) -> IndexRow:
    """The row of an archived record as an index takes it in."""
    metadata = to_json(record.metadata)
    row = IndexRow(record.id, "agent", None, 0, 0, None, 0, metadata, kept.vectors, kept.terms, record.content)
    (made,) = expand(TYPES[record.kind], [row])
    return made


def vector(row: IndexRow) -> npt.NDArray[np.float32]:
    assert row.vectors is not None
    (one,) = units(read_steps(row.vectors, 1))
    return np.asarray(one)


def words(row: IndexRow) -> list[tuple[int, int]]:
    """The terms of a row, and how often each occurs."""
    said = terms.decode(row.terms)
    assert said.passages.tolist() == [1]
    return sorted(zip(said.term.tolist(), said.times.tolist(), strict=True))


def words_of(text: str) -> list[tuple[int, int]]:
    said = terms.decode(terms.encode([text]))
    return sorted(zip(said.term.tolist(), said.times.tolist(), strict=True))


def test_an_archived_record_keeps_one_byte_for_each_dimension_and_no_terms(embedder: Embedder) -> None:
    record = note(SENTENCE * 60)
    whole = encode(record, embedder)
    assert len(whole.vectors or b"") > 5 * embedder.dim

    kept = compact(record, whole)

    assert (kept.model, len(kept.vectors or b""), kept.terms) == ("model", embedder.dim, b"")


def test_the_vector_of_a_short_text_is_the_one_it_had(embedder: Embedder) -> None:
    record = note("Ann takes the night train to Oslo, and the dog comes with her")
    whole = encode(record, embedder)

    after = expanded(record, compact(record, whole))

    assert after.vectors == whole.vectors
    assert np.linalg.norm(vector(after)) == pytest.approx(1, abs=1e-6)
    assert embedder.embed([record.content])[0] @ vector(after) == pytest.approx(1, abs=1e-3)


def test_the_vector_of_a_long_text_is_in_the_middle_of_its_passages(embedder: Embedder) -> None:
    record = note("\n".join([SENTENCE * 10, "The dog likes Oslo. " * 20, "Tea with milk, no sugar. " * 20]))
    passages = embedder.embed(split_record(record))
    assert len(passages) > 2

    after = vector(expanded(record, compact(record, encode(record, embedder))))

    middle = passages.sum(0) / np.linalg.norm(passages.sum(0))
    assert middle @ after == pytest.approx(1, abs=1e-3)


def test_the_words_of_an_archived_record_are_those_that_its_row_says(embedder: Embedder) -> None:
    record = note("Ann takes the night train to Oslo")
    kept = compact(record, encode(record, embedder))
    summary = replace(record, content="night train")

    assert words(expanded(summary, kept)) == words_of("night train")


def test_rows_of_all_sorts_are_taken_in_their_order(embedder: Embedder) -> None:
    texts = ["night train night", "…", "Oslo", "ski in May", "tea"]
    records = [note(text) for text in texts]
    kept = [compact(record, encode(record, embedder)) for record in records]
    kept[2] = encode(records[2], embedder)  # not archived
    kept[3] = compact(records[3], encode(records[3], None))
    rows = [
        IndexRow(str(n), "agent", None, 0, 0, None, 0, "{}", one.vectors, one.terms, None if one.terms else text)
        for n, (text, one) in enumerate(zip(texts, kept, strict=True))
    ]
    made = expand(TYPES[MemoryType.LONG_TERM], rows)

    assert [words(row) for row in made] == [words_of(text) for text in texts]
    assert [row.id for row in made] == ["0", "1", "2", "3", "4"]
    assert made[3].vectors is None
    for n in (0, 2, 4):
        assert vector(made[n]) @ embedder.embed([texts[n]])[0] == pytest.approx(1, abs=1e-3)


def test_a_row_that_was_not_archived_is_taken_as_it_is(embedder: Embedder) -> None:
    record = note("Ann takes the night train to Oslo")
    whole = encode(record, embedder)
    row = IndexRow(record.id, "agent", None, 0, 0, None, 0, "{}", whole.vectors, whole.terms)

    assert expand(TYPES[MemoryType.LONG_TERM], [row]) == [row]


def test_a_text_without_a_word_has_a_vector_without_a_direction(embedder: Embedder) -> None:
    record = note("…")
    row = expanded(record, compact(record, Encoding("model", bytes(embedder.dim), terms.encode([""]))))

    assert not vector(row).any()
    assert words(row) == words_of("…")


def test_a_record_without_vectors_has_none_in_the_archive_and_can_be_embedded_later() -> None:
    record = note("Ann takes the night train to Oslo")
    kept = compact(record, encode(record, None))

    assert kept == Encoding(None, None, b"")
    assert expanded(record, kept).vectors is None


TEXTS = st.lists(st.sampled_from(["Oslo", "night train", "7 May.", "!", "\n", "ski", SENTENCE * 9]), max_size=9).map(
    " ".join
)


@given(TEXTS, st.lists(TEXTS, max_size=80), st.sampled_from([None, "", "Oslo", "Plan a trip"]), st.booleans())
def test_archiving_an_episode_gives_what_encoding_the_archived_one_would(
    embedder: Embedder, summary: str, messages: list[str], task: str | None, embedded: bool
) -> None:
    record = episode(summary, messages, task=task)
    by = embedder if embedded else None
    kept = compact(record, encode(record, by))

    assert kept == compact(archived(record), encode(archived(record), by))
    found = terms.decode(expanded(record, kept).terms)
    assert set(found.term.tolist()) == set(terms.decode(terms.encode(split_summary(record))).term.tolist())


def test_nothing_of_a_message_stays_with_an_archived_episode(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Theodor collects barometers", "Oslo is cold"])
    row = expanded(record, compact(record, encode(record, embedder)))

    said = set(terms.decode(row.terms).term.tolist())
    assert said.isdisjoint(terms.query_terms("Theodor collects barometers cold").tolist())
    assert said.issuperset(terms.query_terms("plan a trip night trains Oslo").tolist())
    (summary,) = embedder.embed(split_summary(record))
    assert summary @ vector(row) == pytest.approx(1, abs=1e-3)


def test_to_archive_twice_is_to_archive_once(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Which train?"])
    kept = compact(record, encode(record, embedder))

    assert compact(archived(record), kept) == kept


def test_of_an_encoding_made_by_other_rules_nothing_is_kept(embedder: Embedder) -> None:
    record = episode("Night trains to Oslo.", ["Which train?", "Theodor collects barometers"])
    foreign = Encoding("model", bytes(embedder.dim * 2), terms.encode(["Night trains", "Theodor collects barometers"]))

    assert compact(record, foreign) == Encoding(None, None, b"")
