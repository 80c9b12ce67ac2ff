"""No verb does more than it did: what is counted is the same on every machine, however busy it is."""

from __future__ import annotations

import json

import pytest
from bench import counts


@pytest.fixture(scope="module")
def table() -> dict[str, counts.Counts]:
    loaded: dict[str, counts.Counts] = json.loads(counts.TABLE.read_text(encoding="utf-8"))
    return loaded


def test_no_verb_does_more_or_less_than_the_table_says(table: dict[str, counts.Counts]) -> None:
    assert not counts.compare(counts.measure_apart(), table)


def test_an_add_is_one_transaction_and_one_sync_and_a_recall_writes_nothing(table: dict[str, counts.Counts]) -> None:
    add, recall, context = table["add"], table["retrieve"], table["context"]
    assert add["transactions"] == counts.TIMES
    assert add["syncs"] <= counts.TIMES + 1  # the log's head is synced once, when it begins anew
    assert (recall["syncs"], recall["bytes"], context["syncs"], context["bytes"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", counts.TOLERANCES)
def test_more_of_anything_fails_and_less_asks_for_a_new_table(name: str, table: dict[str, counts.Counts]) -> None:
    known = table["add"][name]
    more, less = ({**table, "add": {**table["add"], name: count}} for count in (int(known * 1.06) + 1, known * 9 // 10))
    (problem,) = counts.compare(more, table)
    assert problem.startswith(f"add: {int(known * 1.06) + 1:,} {name}, the table says {known:,}. It does more")
    (problem,) = counts.compare(less, table)
    assert "It does less: keep that" in problem
    assert problem.endswith("python -m bench.counts --write")


def test_one_statement_more_is_too_many_and_one_call_more_is_not(table: dict[str, counts.Counts]) -> None:
    row = table["add"]
    assert counts.compare({**table, "add": {**row, "statements": row["statements"] + 1}}, table)
    assert not counts.compare({**table, "add": {**row, "calls": row["calls"] + 1}}, table)


def test_a_verb_that_the_table_does_not_have_asks_for_a_new_one(table: dict[str, counts.Counts]) -> None:
    (problem,) = counts.compare({**table, "a new verb": table["add"]}, table)
    assert "a new verb" in problem
