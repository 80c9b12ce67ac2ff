"""Bad input gets a clear error of Holdfast's own, and nothing is lost or changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from effort import sampled
from holdfast import (
    Holdfast,
    HoldfastError,
    InvalidContentError,
    InvalidFilterError,
    InvalidInputError,
    InvalidKindError,
    InvalidMetadataError,
    InvalidScopeError,
    InvalidSettingsError,
    MemoryManager,
    MemoryType,
    NotFoundError,
)
from homes import on_sqlite

pytestmark = sampled
Attempt = Callable[[MemoryManager], Any]


@on_sqlite
@pytest.mark.parametrize("kind", list(MemoryType))
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "cannot be empty"),
        (" \n\t ", "cannot be empty"),
        (None, "must be text, not NoneType"),
        (7, "must be text, not int"),
        (b"bytes", "must be text, not bytes"),
        (["list"], "must be text, not list"),
        ("a\x00b", "NUL character at position 1"),
        ("half of a pair: \ud83d", "lone surrogate"),
        ("x" * 50_000_000, "too large"),
    ],
    ids=["empty", "blank", "none", "number", "bytes", "list", "nul", "surrogate", "50MB"],
)
def test_content_that_cannot_be_remembered_is_refused(
    memory: MemoryManager, holdfast: Holdfast, kind: MemoryType, content: Any, says: str
) -> None:
    with pytest.raises(InvalidContentError) as refusal:
        memory.add(content, kind)
    assert kind is MemoryType.STRUCTURED or says in str(refusal.value)
    assert isinstance(refusal.value, ValueError)
    assert memory.count_memories(kind) == 0
    assert holdfast.sessions.list("user_123") == []


@on_sqlite
@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ("text", "must be an object"),
        ([("a", 1)], "must be an object"),
        ({1: "number as key"}, "key 1"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "use .isoformat()"),
        ({"set": {1, 2}}, "set is a set"),
        ({"nan": float("nan")}, "nan is nan, which JSON cannot hold"),
        ({"deep": {"inf": float("inf")}}, "deep.inf is inf"),
        ({"big": 2**70}, "beyond 64 bits"),
        ({"nul": "a\x00b"}, "NUL"),
        ({"nul\x00": 1}, "NUL"),
        ({"half": "\ud800"}, "lone surrogate"),
        ({"large": "x" * 300_000}, "too large"),
        ({"list": [1, [2, [object()]]]}, "list[1][1][0] is a object"),
    ],
)
@pytest.mark.parametrize("kind", ["long_term", "working", "short_term", "persona", "entity", "episodic"])
def test_metadata_that_is_not_json_is_refused(memory: MemoryManager, kind: str, metadata: Any, says: str) -> None:
    if isinstance(metadata, list):
        with pytest.raises(InvalidInputError):
            memory.add("content", kind, metadata)  # type: ignore[arg-type]
    else:
        with pytest.raises(InvalidMetadataError) as refusal:
            memory.add("content", kind, metadata)
        assert says in str(refusal.value)
    assert memory.count_memories(kind) == 0


def test_metadata_that_contains_itself_is_refused(memory: MemoryManager) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(InvalidMetadataError, match="nested more than 64 deep"):
        memory.add("content", "long_term", loop)


@pytest.mark.parametrize("kind", ["longterm", "LONG_TERM", "", None, 7, "semantic"])
def test_an_unknown_kind_is_refused_with_the_known_ones(memory: MemoryManager, kind: Any) -> None:
    attempts: list[Attempt] = [
        lambda m: m.add("content", kind),
        lambda m: m.count_memories(kind),
        lambda m: m.retrieve("query", memory_types=[kind]),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidKindError, match="use one of: working, short_term, long_term"):
            attempt(memory)


@pytest.mark.parametrize("top_k", [0, -1, 1_000_000, 2.5, "5", None, True])
def test_an_absurd_top_k_is_refused(memory: MemoryManager, top_k: Any) -> None:
    with pytest.raises(InvalidInputError, match="top_k must be a whole number from 1 to 1,000"):
        memory.retrieve("query", top_k=top_k)


@pytest.mark.parametrize("query", ["", "   ", None, 7, "\x00", "\ud800", "x" * 50_000_000], ids=range(7))
def test_an_absurd_query_is_refused(memory: MemoryManager, query: Any) -> None:
    memory.add("something")
    with pytest.raises(InvalidContentError):
        memory.retrieve(query)


@on_sqlite
@pytest.mark.parametrize(
    "filters",
    [
        "category=sports",
        ["category"],
        {"category": {"like": "s%"}},
        {"category": {}},
        {"category": []},
        {"": "x"},
        {7: "x"},
        {"a..b": 1},
        {"price": {"gt": 5, "lt": 3}},
        {"price": {"gt": "a", "lt": 3}},
        {"price": {"gte": True}},
        {"price": {"gte": None}},
        {"price": {"gte": float("nan")}},
        {"tags": {"any": "a"}},
        {"tags": {"all": []}},
        {"x": {"exists": "yes"}},
        {"$or": "x"},
        {"$or": []},
        {"created_at": {"gte": "yesterday"}},
        {"created_at": {"gte": datetime(2026, 1, 1)}},  # noqa: DTZ001 - that is the point
        {"x": b"bytes"},
    ],
    ids=str,
)
def test_a_filter_that_makes_no_sense_is_refused(memory: MemoryManager, filters: Any) -> None:
    memory.add("something", "long_term", {"category": "sports"})
    with pytest.raises(InvalidFilterError):
        memory.retrieve("query", filters=filters)


@pytest.mark.parametrize(
    "bad", ["", "  ", None, 7, "x" * 257, "a\nb", "a\x00b", "\ud800", "a\u200bb", b"bytes"], ids=repr
)
def test_an_absurd_id_is_refused(holdfast: Holdfast, bad: Any) -> None:
    with pytest.raises(InvalidScopeError, match="user_id"):
        holdfast.manager(bad, "agent")
    with pytest.raises(InvalidScopeError, match="agent_id"):
        holdfast.manager("user", bad)
    if bad is not None:
        with pytest.raises(InvalidScopeError, match="session_id"):
            holdfast.manager("user", "agent", bad)
    with pytest.raises(InvalidScopeError, match="tenant"):
        Holdfast.open(home=holdfast.settings.home, tenant=bad)


@on_sqlite
@pytest.mark.parametrize("kind", list(MemoryType))
@pytest.mark.parametrize(("user_id", "agent_id"), [("*", "agent"), ("user", "*"), ("*", "*")])
def test_everyone_is_not_someone_to_write_for(
    holdfast: Holdfast, user_id: str, agent_id: str, kind: MemoryType
) -> None:
    everyone = holdfast.manager(user_id, agent_id, "session")
    content = {"n": 1} if kind is MemoryType.STRUCTURED else "content"

    with pytest.raises(InvalidScopeError, match="means all of them"):
        everyone.add(content, kind)


def test_there_is_no_session_and_no_tenant_of_everyone(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidScopeError, match="session_id"):
        holdfast.manager("user", "agent", "*")
    with pytest.raises(InvalidScopeError, match="tenant"):
        Holdfast.open(home=holdfast.settings.home, tenant="*")


def test_a_tenant_with_a_slash_cannot_pose_as_another(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidScopeError, match="slash"):
        Holdfast.open(home=holdfast.settings.home, tenant="a/b")
    holdfast.manager("b/c", "agent").add("of user b/c")
    with Holdfast.open(home=holdfast.settings.home, tenant="default-b") as other:
        assert other.manager("c", "agent").list_memories() == []


@pytest.mark.parametrize("memory_id", ["", "nonsense", None, 7, "' OR 1=1 --", "00000000-0000-7000-8000-000000000000"])
def test_an_id_that_names_nothing_is_not_found(memory: MemoryManager, memory_id: Any) -> None:
    attempts: list[Attempt] = [
        lambda m: m.get(memory_id),
        lambda m: m.update(memory_id, "new"),
        lambda m: m.delete(memory_id),
        lambda m: m.restore(memory_id),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            attempt(memory)


def test_a_query_that_is_empty_is_called_a_query(memory: MemoryManager) -> None:
    with pytest.raises(InvalidContentError, match="query cannot be empty"):
        memory.retrieve("")


def test_a_store_that_would_not_be_kept_is_refused() -> None:
    with pytest.raises(InvalidSettingsError, match="temporary folder"):
        Holdfast.open("sqlite:///:memory:")
    with pytest.raises(InvalidInputError, match=r"Holdfast\.open"):
        Holdfast("memory.db")  # type: ignore[arg-type]


def test_an_update_without_anything_to_change_is_refused(memory: MemoryManager) -> None:
    memory_id = memory.add("something")["memory_id"]
    with pytest.raises(InvalidInputError, match="nothing to update"):
        memory.update(memory_id)
    for content in ("", 7, "\x00"):
        with pytest.raises(InvalidContentError):
            memory.update(memory_id, content)  # type: ignore[arg-type]
    assert memory.get(memory_id)["content"] == "something"


@pytest.mark.parametrize(
    "arguments",
    [{"memory_types": []}, {"memory_types": {"long_term"}}, {"memory_types": ["long_term"], "memory_type": "persona"}],
    ids=str,
)
def test_kinds_that_are_no_list_of_kinds_are_refused(memory: MemoryManager, arguments: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.retrieve("query", **arguments)


@pytest.mark.parametrize("limit", [-1, 2.5, True, "many", 10**30])
def test_an_absurd_quota_is_refused(holdfast: Holdfast, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match="whole number"):
        holdfast.quotas.set("long_term", max_memories=limit)
    with pytest.raises(InvalidInputError, match="give max_memories"):
        holdfast.quotas.set("long_term")
    with pytest.raises(InvalidInputError, match=r"is fixed.*kinds that have quotas are: long_term, persona"):
        holdfast.quotas.set("working", max_memories=5)


def test_a_clock_without_a_time_zone_is_refused(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidInputError, match=r"clock's time .* has no time zone"):
        Holdfast.open(home=holdfast.settings.home, clock=lambda: datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidInputError, match="clock must be a callable"):
        Holdfast.open(home=holdfast.settings.home, clock=datetime.now(UTC))  # type: ignore[arg-type]


def test_a_number_of_thousands_of_digits_is_refused_like_any_other(memory: MemoryManager) -> None:
    huge: Any = 10**5_000
    attempts: list[Attempt] = [
        lambda m: m.add(huge),
        lambda m: m.add("content", "long_term", {"n": huge}),
        lambda m: m.retrieve("query", top_k=huge),
        lambda m: m.retrieve("query", filters={"n": huge}),
        lambda m: m.get(huge),
    ]
    for attempt in attempts:
        with pytest.raises(HoldfastError):
            attempt(memory)


def test_every_error_is_in_one_tree_with_its_own_code() -> None:
    def tree(root: type[HoldfastError]) -> list[type[HoldfastError]]:
        return [root, *(error for child in root.__subclasses__() for error in tree(child))]

    errors = tree(HoldfastError)
    ours = [error for error in errors if error.__module__ == HoldfastError.__module__]
    assert len({error.code for error in ours}) == len(ours)
    assert {error.code for error in errors} == {error.code for error in ours}, "an edge has no codes of its own"
    assert all(error.__doc__ for error in errors)
