"""``HoldfastStore``: what LangGraph promises of a store, whose an item is, and that it is held, exported and erased."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from bench.langgraph.store_tests import REASONS
from langgraph.store.base import (
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from clocks import FakeClock
from holdfast import HeldError, Holdfast, InvalidFilterError, InvalidInputError
from holdfast.core.audit import acting_as
from holdfast.integrations.langgraph.store import HoldfastStore, LangChainEmbedder
from homes import ENGINES, Homes

ANN = ("memories", "ann")
BOB = ("memories", "bob")


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    """One engine for all tests that ask for a store: each has users of its own."""
    with Homes(request.param, tmp_path_factory.mktemp("store")) as homes, Holdfast.open(home=homes.new()) as opened:
        yield opened


@pytest.fixture
def store(shared: Holdfast, request: pytest.FixtureRequest) -> HoldfastStore:
    return HoldfastStore(shared, user_of=lambda _namespace: request.node.name[:200])


@pytest.fixture
def dated(holdfast: Holdfast) -> HoldfastStore:
    """A store whose clock the test moves; the second label is the user."""
    return HoldfastStore(holdfast, user_of=1, ttl={"default_ttl": None, "refresh_on_read": True})


def keys(found: list[Any]) -> list[str]:
    return sorted(item.key for item in found)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_reads_of_a_batch_see_what_was_there_before_and_the_last_put_of_a_key_wins(store: HoldfastStore) -> None:
    store.put(("a",), "k", {"n": 1})
    results = store.batch(
        [
            PutOp(("a",), "k", {"n": 2}),
            PutOp(("a",), "k", {"n": 3}),
            PutOp(("a",), "new", {"n": 4}),
            GetOp(("a",), "k"),
            GetOp(("a",), "new"),
            SearchOp(("a",)),
            ListNamespacesOp(),
            PutOp(("b",), "k", {"n": 5}),
            PutOp(("b",), "k", None),
        ]
    )
    assert isinstance(results[3], Item)
    assert (results[3].value, results[4]) == ({"n": 1}, None)
    assert (keys(results[5]), results[6]) == (["k"], [("a",)])  # type: ignore[arg-type]
    assert [store.get(("a",), key).value for key in ("k", "new")] == [{"n": 3}, {"n": 4}]  # type: ignore[union-attr]
    assert store.get(("b",), "k") is None


@pytest.mark.parametrize(
    "op",
    [
        GetOp(("a.b",), "k"),
        PutOp(("a", ""), "k", {}),
        SearchOp(("a\x00",)),
        ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
    ],
)
def test_a_batch_with_a_label_that_cannot_be_does_nothing(store: HoldfastStore, op: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("ok",), "k", {"n": 1}), op])
    assert store.get(("ok",), "k") is None


def test_a_put_without_a_namespace_is_refused(store: HoldfastStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp((), "k", {"n": 1})])


def test_async_callers_have_the_same_store(store: HoldfastStore) -> None:
    async def use() -> tuple[Any, ...]:
        await store.aput(("a",), "k", {"n": 1})
        await store.adelete(("a",), "other")
        return await store.aget(("a",), "k"), await store.asearch(("a",)), await store.alist_namespaces()

    item, found, namespaces = asyncio.run(use())
    assert (item.value, keys(found), namespaces) == ({"n": 1}, ["k"], [("a",)])


class CountedStore(HoldfastStore):
    """A store that notes how many operations each batch has."""

    def batch(self, ops: Any) -> list[Any]:
        self.sizes = [*getattr(self, "sizes", []), len(asked := list(ops))]
        return super().batch(asked)


def test_what_tasks_ask_for_at_the_same_moment_is_one_batch_for_each_user(shared: Holdfast) -> None:
    store = CountedStore(shared, user_of=1)

    async def use() -> list[Any]:
        users = ("at-once-1", "at-once-2")
        await asyncio.gather(*(store.aput(("m", user), f"k{n}", {"n": n}) for n in range(20) for user in users))
        return await asyncio.gather(*(store.aget(("m", user), f"k{n}") for n in range(20) for user in users))

    assert [item.value["n"] for item in asyncio.run(use())] == sorted([*range(20)] * 2)
    assert store.sizes == [20] * 4


def test_a_call_that_is_refused_takes_no_other_with_it(store: HoldfastStore) -> None:
    async def use() -> list[Any]:
        values: list[dict[str, Any]] = [{"n": 1}, {"n": math.nan}, {"n": 3}]
        puts = (store.aput(("a",), f"k{n}", value) for n, value in enumerate(values))
        return await asyncio.gather(*puts, store.aget(("a", "b.c"), "k"), return_exceptions=True)

    first, refused, last, unnamed = asyncio.run(use())
    assert (first, last) == (None, None)
    assert isinstance(refused, InvalidInputError)
    assert isinstance(unnamed, InvalidNamespaceError)
    assert keys(store.search(("a",))) == ["k0", "k2"]


def test_calls_at_the_same_moment_keep_their_actors(holdfast: Holdfast) -> None:
    store = HoldfastStore(holdfast, user_of=1)
    for key in ("one", "two"):
        store.put(ANN, key, {"n": 1})

    async def delete(actor: str, key: str) -> None:
        with acting_as(actor):
            await store.adelete(ANN, key)

    async def use() -> None:
        await asyncio.gather(delete("first", "one"), delete("second", "two"))

    asyncio.run(use())
    found = holdfast.audit.tail(user_id="ann")
    assert sorted(entry["actor"] for entry in found if entry["action"] == "recycled") == ["first", "second"]


# --- filters ---------------------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, dict[str, Any]] = {
    "list": {"tags": ["a", "b"]},
    "one": {"tags": ["a"]},
    "text": {"tags": "a"},
    "null": {"tags": None, "n": 5},
    "dotted": {"a.b": 1, "n": 1},
    "nested": {"a": {"b": 1, "c": 2}, "n": True},
    "deep": {"a": {"b": {"c": [1, {"d": 2}]}}, "n": "10"},
    "empty": {},
    "float": {"n": 1.0, "big": 1e308},
}
FILTERS: list[dict[str, Any]] = [
    {"tags": "a"},  # a list does not equal its item
    {"tags": ["a", "b"]},  # a list is that list, not one of
    {"tags": ["b", "a"]},
    {"tags": ["a"]},
    {"tags": None},  # what is missing is None
    {"nothing": None},
    {"a.b": 1},  # a dot in a name is a dot
    {"a": {"b": 1}},  # an object has at least these fields
    {"a": {"b": {"c": [1, {"d": 2}]}}},
    {"a": {}},
    {"n": 1},  # True is 1
    {"n": True},
    {"n": {"$eq": 1.0}},
    {"n": {"$ne": 1}},
    {"tags": {"$ne": None}},
    {"tags": {"$eq": ["a"]}},
    {},
]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_a_filter_means_what_langgraph_means(shared: Holdfast, wanted: dict[str, Any]) -> None:
    store, theirs = HoldfastStore(shared, user_of=lambda _namespace: "filters"), InMemoryStore()
    if not store.search(("docs",), limit=1):
        store.batch([PutOp(("docs",), key, value) for key, value in DOCUMENTS.items()])
    theirs.batch([PutOp(("docs",), key, value) for key, value in DOCUMENTS.items()])
    expected = keys(theirs.search(("docs",), filter=wanted, limit=100))
    assert keys(store.search(("docs",), filter=wanted, limit=100)) == expected


def test_ranges_compare_numbers_and_take_infinity(store: HoldfastStore) -> None:
    store.batch([PutOp(("n",), str(n), {"n": n}) for n in (1, 2.5, 10)])
    store.put(("n",), "none", {"n": None})
    store.put(("n",), "text", {"n": "lots"})

    def search(**wanted: Any) -> list[str]:
        return keys(store.search(("n",), filter={"n": {f"${word}": value for word, value in wanted.items()}}))

    assert search(gt=1, lte=10) == ["10", "2.5"]
    assert search(lt=math.inf) == ["1", "10", "2.5"]
    assert search(gt=-math.inf) == ["1", "10", "2.5"]
    assert search(gte=math.inf) == []
    with pytest.raises(InvalidFilterError, match="near"):
        search(near=3)


# --- namespaces ------------------------------------------------------------------------------------------------------


def test_namespaces_are_listed_by_their_conditions(store: HoldfastStore) -> None:
    theirs = InMemoryStore()
    for namespace in [("a",), ("a", "b"), ("a", "b", "v1"), ("a", "c", "v1"), ("ab", "b", "v2"), ("z", "b", "v1")]:
        for one in (store, theirs):
            one.put(namespace, "k", {})
    asked: list[dict[str, Any]] = [
        {},
        {"prefix": ("a",)},
        {"prefix": ("*", "b")},
        {"suffix": ("v1",)},
        {"suffix": ("*", "v1")},
        {"prefix": ("a",), "suffix": ("v1",)},
        {"max_depth": 1},
        {"prefix": ("a",), "max_depth": 2},
        {"limit": 2, "offset": 1},
        {"prefix": ("nothing",)},
    ]
    for conditions in asked:
        assert store.list_namespaces(**conditions) == theirs.list_namespaces(**conditions), conditions


def test_labels_and_keys_are_kept_as_they_are(store: HoldfastStore) -> None:
    odd = ("100%", "*", " ", "a\nb", "Grüße 東京", "%41", "x" * 1_000)
    for key in ("", "*", " ", "a/b.c%2E", "line\nbreak", "k" * 2_000):
        store.put(odd, key, {"key": key})
        item = store.get(odd, key)
        assert item is not None
        assert (item.namespace, item.key, item.value) == (odd, key, {"key": key})
    assert store.list_namespaces() == [odd]
    assert len(store.search(odd[:4])) == 6
    assert store.search(("100",)) == []


def test_a_prefix_is_whole_labels(store: HoldfastStore) -> None:
    for namespace in [("ann",), ("ann", "x"), ("anna",)]:
        store.put(namespace, "k", {"in": "/".join(namespace)})
    assert sorted(item.value["in"] for item in store.search(("ann",))) == ["ann", "ann/x"]
    assert len(store.search(())) == 3


# --- searching -------------------------------------------------------------------------------------------------------


def test_an_item_is_found_by_the_paths_that_were_chosen(store: HoldfastStore) -> None:
    value = {"title": "harbour", "notes": [{"text": "violin lessons"}, {"text": "tax returns"}]}
    store.put(("d",), "title", value, index=["title"])
    store.put(("d",), "notes", value, index=["notes[*].text"])
    store.put(("d",), "hidden", value, index=False)
    store.put(("d",), "nowhere", value, index=["absent.path"])
    found = store.search(("d",), query="tax returns")
    assert found[0].key == "notes"
    assert [item.key for item in found if item.score is None] == ["nowhere", "hidden"]
    assert store.search(("d",), query="harbour", limit=1)[0].key == "title"
    assert keys(store.search(("d",))) == ["hidden", "notes", "nowhere", "title"]
    assert len(store.search(("d",), query="harbour", limit=2, offset=1)) == 2


def test_the_fields_of_the_index_are_the_default(shared: Holdfast) -> None:
    store = HoldfastStore(shared, user_of=lambda _namespace: "fields", index=cast("IndexConfig", {"fields": ["title"]}))
    store.put(("d",), "one", {"title": "violin", "body": "harbour"})
    store.put(("d",), "two", {"title": "tax", "body": "violin lessons"})
    assert store.search(("d",), query="violin", limit=1)[0].key == "one"


def embed(texts: list[str]) -> list[list[float]]:
    """Counts three letters."""
    return [[float(text.count(letter)) for letter in "xyz"] for text in texts]


def test_a_callers_embedder_is_used(tmp_path: Path) -> None:
    with HoldfastStore.open(
        home=tmp_path, user_of=0, index=cast("IndexConfig", {"dims": 3, "embed": embed, "fields": ["t"]})
    ) as store:
        store.put(("u",), "x", {"t": "xxxx"})
        store.put(("u",), "y", {"t": "yyyy"})
        assert store.search(("u",), query="q y q", limit=1)[0].key == "y"
        assert store.holdfast.embedder.id == "langchain:embed"
        store.delete(("u",), "x")
    with Holdfast.open(home=tmp_path, embedder=LangChainEmbedder(embed, dims=3, model="embed")) as again:
        assert np.allclose(again.embedder.embed(["xx", ""]), [[1, 0, 0], [0, 0, 0]])
        with pytest.raises(InvalidInputError, match=r"HoldfastStore\.open"):
            HoldfastStore(again, user_of=0, index=cast("IndexConfig", {"dims": 3, "embed": embed}))


# --- times -----------------------------------------------------------------------------------------------------------


def test_a_read_refreshes_a_live_item_and_what_expired_stays_gone(dated: HoldfastStore, clock: FakeClock) -> None:
    dated.put(ANN, "read", {"n": 1}, ttl=10)
    dated.put(ANN, "left", {"n": 1}, ttl=10)
    dated.put(ANN, "lasting", {"n": 1})
    clock.advance(minutes=8)
    assert dated.get(ANN, "read") is not None
    assert dated.get(ANN, "left", refresh_ttl=False) is not None
    clock.advance(minutes=3)
    assert keys(dated.search(ANN, refresh_ttl=False)) == ["lasting", "read"]
    assert dated.get(ANN, "left") is None
    clock.advance(minutes=6)
    assert len(dated.search(ANN)) == 2  # this refreshes
    clock.advance(minutes=6)
    assert keys(dated.search(ANN, query="n", refresh_ttl=False)) == ["lasting", "read"]
    clock.advance(minutes=5)
    assert keys(dated.search(ANN)) == ["lasting"]
    assert dated.get(ANN, "read") is None
    assert dated.list_namespaces(prefix=ANN) == [ANN]


def test_a_removed_agent_reads_an_item_and_does_not_lengthen_its_time(
    holdfast: Holdfast, dated: HoldfastStore, clock: FakeClock
) -> None:
    dated.put(ANN, "short", {"n": 1}, ttl=10)
    holdfast.agents.add("langgraph")
    holdfast.agents.remove("langgraph")
    clock.advance(minutes=8)
    assert dated.get(ANN, "short") is not None
    assert keys(dated.search(ANN)) == ["short"]
    clock.advance(minutes=3)
    assert dated.get(ANN, "short") is None


def test_a_default_time_to_live_is_for_what_names_none(holdfast: Holdfast, clock: FakeClock) -> None:
    store = HoldfastStore(holdfast, user_of=1, ttl={"default_ttl": 1, "refresh_on_read": False})
    store.put(ANN, "default", {})
    store.put(ANN, "own", {}, ttl=5)
    store.put(ANN, "lasting", {}, ttl=None)
    clock.advance(minutes=2)
    assert keys(store.search(ANN)) == ["lasting", "own"]


def test_an_item_has_its_dates(dated: HoldfastStore, clock: FakeClock) -> None:
    made = clock.now
    dated.put(ANN, "k", {"n": 1})
    clock.advance(hours=1)
    dated.put(ANN, "k", {"n": 2})
    item = dated.get(ANN, "k")
    assert item is not None
    assert (item.created_at, item.updated_at) == (made, clock.now)


# --- whose it is -----------------------------------------------------------------------------------------------------


def test_nothing_is_looked_for_across_users(dated: HoldfastStore) -> None:
    dated.put(ANN, "k", {"of": "ann"})
    dated.put(BOB, "k", {"of": "bob"})
    assert [item.value for item in dated.search(ANN)] == [{"of": "ann"}]
    for ask in (
        lambda: dated.search(("memories",)),
        lambda: dated.list_namespaces(prefix=("memories",)),
        lambda: dated.list_namespaces(prefix=("memories", "*")),
        lambda: dated.list_namespaces(suffix=ANN),
        lambda: dated.put(("memories",), "k", {}),
    ):
        with pytest.raises(InvalidInputError, match="across users"):
            ask()
    named = HoldfastStore(dated.holdfast, user_of=lambda namespace: dict(zip("mu", namespace, strict=False)).get("u"))
    assert keys(named.search(BOB)) == ["k"]
    with pytest.raises(InvalidInputError, match="across users"):
        named.search(("memories",))


def test_erasing_a_user_empties_their_namespaces(dated: HoldfastStore) -> None:
    for user in (ANN, BOB):
        dated.put((*user, "notes"), "k", {"secret": user[1]})
    dated.holdfast.erase_user("ann")
    assert (dated.list_namespaces(prefix=ANN), dated.search(ANN), dated.get((*ANN, "notes"), "k")) == ([], [], None)
    assert dated.list_namespaces(prefix=BOB) == [(*BOB, "notes")]


def test_a_hold_keeps_an_item_from_being_deleted(dated: HoldfastStore) -> None:
    dated.put(ANN, "k", {"n": 1})
    hold = dated.holdfast.holds.add(user_id="ann", reason="a lawsuit")
    with pytest.raises(HeldError):
        dated.batch([PutOp(ANN, "other", {"n": 2}), PutOp(ANN, "k", None)])
    assert keys(dated.search(ANN)) == ["k"]
    dated.holdfast.holds.release(hold.id)
    dated.delete(ANN, "k")
    assert dated.get(ANN, "k") is None
    dated.holdfast.recycle.restore(user_id="ann")
    assert dated.get(ANN, "k") is not None


def test_an_export_has_the_items(dated: HoldfastStore) -> None:
    dated.put((*ANN, "notes"), "k", {"likes": "pizza"})
    exported = dated.holdfast.manager("ann", "any").structured.export_all("ann")
    assert [one["metadata"]["document"] for one in exported] == [{"likes": "pizza"}]
    assert exported[0]["metadata"]["collection"] == "memories.ann.notes"


def test_the_page_lists_every_difference_with_its_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "langgraph-store.md").read_text(encoding="utf-8")
    for reason, tests in REASONS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {reason} |")]
        names = {name.partition(".")[2] for listed in tests.values() for name in listed.split()}
        assert row.count("`test_") == len(names)
        assert all(f"`{name}`" in row for name in names)
