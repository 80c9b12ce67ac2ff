"""A store for LangGraph over structured memory: what agents keep there is held, exported and erased with its user.

    store = HoldfastStore(holdfast, user_of=1)                    # ("memories", "alice") is alice's
    store.put(("memories", "alice"), "likes", {"food": "pizza"})
    graph = builder.compile(store=store)

A namespace is a collection, an item is a document. What a put deletes, and what has come to the end of its time, goes
to the recycle bin.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task, gather, get_running_loop, to_thread
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import lru_cache
from itertools import islice
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, unquote

from holdfast.core.audit import current_actor
from holdfast.core.clock import current_deadline
from holdfast.core.errors import AgentRemovedError, InvalidFilterError, InvalidInputError
from holdfast.core.errors import quote as quote_value
from holdfast.core.filters import MISSING, Combination, Condition, Filter, test_of
from holdfast.core.records import MemoryType, Record, Scope
from holdfast.core.values import when
from holdfast.engine import Holdfast
from holdfast.installation import missing_extra
from holdfast.memory.records import DurableRecords
from holdfast.memory.structured import DocumentPut, Structured, find_named, refresh_documents
from holdfast.ports.coordination import REQUEST
from holdfast.ports.feed import Vectors
from holdfast.recall.embedders import unit_rows
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import IS_SEARCHED

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )
except ImportError:
    raise missing_extra("a store for LangGraph", "langgraph") from None

Namespace = tuple[str, ...]
#: Whose a namespace is: the place of the user's id in it, or a function that gives the id.
UserOf = int | Callable[[Namespace], str | None]
_RANGES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_WILDCARD: Final = "*"
_SEPARATOR: Final = "."
_WHOLE: Final = "$"
#: Stands for an empty key.
_EMPTY: Final = "%"
_split_path: Final = lru_cache(maxsize=1_024)(tokenize_path)


class LangChainEmbedder:
    """An embedder for ``Holdfast.open(embedder=...)`` from what LangGraph takes as one: an ``Embeddings`` of LangChain,
    or a function of texts. ``model`` names it: vectors of another name are made anew.
    """

    def __init__(self, embed: Any, *, dims: int, model: str) -> None:
        self._embeddings = ensure_embeddings(embed)
        self.id, self.dim = f"langchain:{model}", dims

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of unit length for each text."""
        raw = self._embeddings.embed_documents(list(texts))
        return unit_rows(raw, count=len(texts), dim=self.dim, source=f"the embedder {self.id!r}")


class _Call(NamedTuple):
    """What a task waits for."""

    ops: list[Op]
    answer: Future[list[Result]]


class HoldfastStore(BaseStore):
    """A store for LangGraph's agents. ``user_of`` says whose a namespace is; what does not say it is refused, and so is
    a search across users.
    """

    supports_ttl = True

    def __init__(
        self,
        holdfast: Holdfast,
        *,
        user_of: UserOf,
        agent_id: str = "langgraph",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """``index`` may have ``fields``; an embedder is given to ``Holdfast.open``, as ``LangChainEmbedder``, or by
        ``HoldfastStore.open``.
        """
        if index is not None and index.get("embed") is not None:
            raise InvalidInputError(
                "an open Holdfast has its embedder: use HoldfastStore.open(index=...), or give it to "
                "Holdfast.open(embedder=LangChainEmbedder(...)) and leave it out of index"
            )
        self.holdfast, self.ttl_config = holdfast, ttl
        self._user_of, self._agent_id = user_of, agent_id
        self.index_config = index
        self._fields = [_WHOLE] if index is None else index.get("fields") or [_WHOLE]
        self._is_own = False
        self._waiting: dict[tuple[AbstractEventLoop, str], list[_Call]] = {}
        self._tasks: set[Task[None]] = set()

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        user_of: UserOf,
        index: IndexConfig | None = None,
        agent_id: str = "langgraph",
        ttl: TTLConfig | None = None,
        **options: Any,
    ) -> Self:
        """A store with a Holdfast of its own, which ``close`` closes; ``options`` are those of ``Holdfast.open``.
        ``index`` may name the ``embed`` and ``dims`` of an embedder beside ``fields``.
        """
        embed = None if index is None else index.get("embed")
        if index is not None and embed is not None:
            options["embedder"] = LangChainEmbedder(embed, dims=index["dims"], model=_model_name(embed))
        fields: Any = None if index is None else {"fields": index.get("fields")}
        store = cls(Holdfast.open(url, **options), user_of=user_of, agent_id=agent_id, index=fields, ttl=ttl)
        store._is_own, store.index_config = True, index
        return store

    def close(self) -> None:
        """Close the Holdfast that ``open`` opened."""
        if self._is_own:
            self.holdfast.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads see what was there before, then the puts of each user are one transaction, of
        which the last of a key counts.
        """
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        results: list[Result] = [None] * len(asked)
        for place, item in self._get([(place, op) for place, op in enumerate(asked) if isinstance(op, GetOp)]):
            results[place] = item
        found: dict[str, Result] = {}  # what is asked for several times is looked for once
        puts: dict[str, dict[tuple[Namespace, str], PutOp]] = {}
        for place, op in enumerate(asked):
            if isinstance(op, SearchOp | ListNamespacesOp):
                if (same := repr(op)) not in found:
                    found[same] = self._search(op) if isinstance(op, SearchOp) else self._list_namespaces(op)
                results[place] = copy(found[same])
            elif isinstance(op, PutOp):
                puts.setdefault(self._owner(op.namespace), {})[tuple(op.namespace), op.key] = op
            elif not isinstance(op, GetOp):
                raise InvalidInputError(f"{quote_value(op)} is no operation of a store")
        for user_id, last in puts.items():
            Structured(self._records(user_id)).put_many([self._put(op) for op in last.values()])
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, in a worker thread. What tasks ask for at the same moment is carried out together, as far as it is
        one user's.
        """
        asked, loop = list(ops), get_running_loop()
        if REQUEST.get() is not None or current_deadline() is not None:  # which are the caller's own
            return await to_thread(self.batch, asked)
        call = _Call(asked, loop.create_future())
        waiting = self._waiting.setdefault((loop, current_actor()), [])
        waiting.append(call)
        if len(waiting) == 1:
            task = loop.create_task(self._carry_out((loop, current_actor())))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await call.answer

    async def _carry_out(self, which: tuple[AbstractEventLoop, str]) -> None:
        """Carry out what waits: the calls of a user together, those of several users or of none each by itself."""
        groups: dict[str | int, list[_Call]] = {}
        for place, call in enumerate(self._waiting.pop(which)):
            users = self._users(call.ops)
            groups.setdefault(users.pop() if len(users) == 1 else place, []).append(call)
        await gather(*(self._carry_out_together(calls) for calls in groups.values()))

    async def _carry_out_together(self, calls: Sequence[_Call]) -> None:
        """Carry out calls as one batch; if it fails, which leaves everything as it was, each by itself."""
        try:
            found = iter(await to_thread(self.batch, [op for call in calls for op in call.ops]))
        except Exception as problem:  # noqa: BLE001 - it is the caller's
            for call in calls if len(calls) > 1 else ():
                await self._carry_out_together([call])
            if len(calls) == 1 and not calls[0].answer.done():
                calls[0].answer.set_exception(problem)
            return
        for call in calls:
            results = list(islice(found, len(call.ops)))
            if not call.answer.done():  # the caller may have gone
                call.answer.set_result(results)

    def _users(self, ops: Iterable[Op]) -> set[str]:
        """Whose operations are; nobody's, if one of them does not say it."""
        with suppress(InvalidInputError):
            return {self._owner(_labels(op)) for op in ops}
        return set()

    def _records(self, user_id: str) -> DurableRecords:
        scope = Scope.check(self.holdfast.tenant, user_id, self._agent_id)
        return DurableRecords(self.holdfast.services, scope)

    def _owner(self, namespace: Sequence[str]) -> str:
        """The user whose a namespace is."""
        namespace = tuple(namespace)
        if isinstance(self._user_of, int):
            user_id = namespace[self._user_of] if len(namespace) > self._user_of else None
        else:
            user_id = self._user_of(namespace)
        if user_id is None:
            raise InvalidInputError(
                f"the namespace {namespace!r} does not say whose it is, and nothing is looked for across users; "
                "give more of it, so that user_of can tell the user"
            )
        return user_id

    def _get(self, asked: Sequence[tuple[int, GetOp]]) -> Iterator[tuple[int, Item]]:
        """The items that are asked for, by their places; those of a user are read together."""
        users: dict[str, list[tuple[int, GetOp]]] = {}
        for place, op in asked:
            users.setdefault(self._owner(op.namespace), []).append((place, op))
        for user_id, wanted in users.items():
            names = {place: (_to_collection(op.namespace), _escape(op.key)) for place, op in wanted}
            records = self._records(user_id)
            found = find_named(records, list(names.values()))
            refresh = {names[place] for place, op in wanted if op.refresh_ttl}
            _refresh(records, [record for name, record in found.items() if name in refresh])
            yield from ((place, Item(**_fields_of(found[name]))) for place, name in names.items() if name in found)

    def _put(self, op: PutOp) -> DocumentPut:
        named: DocumentPut = {"collection": _to_collection(op.namespace), "key": _escape(op.key), "document": None}
        if op.value is None:
            return named
        ttl = None if op.ttl is None else op.ttl * 60
        return {**named, "document": op.value, "search_text": self._search_text(op), "ttl": ttl}

    def _search_text(self, op: PutOp) -> list[str] | bool:
        """What an item is found by: the texts at its paths, nothing, or (``True``) all of it."""
        if op.index is False:
            return False
        paths = op.index or self._fields
        if paths == [_WHOLE]:
            return True
        return [text for path in paths for text in get_text_at_path(op.value, _split_path(path))] or False

    def _search(self, op: SearchOp) -> list[SearchItem]:
        records = self._records(self._owner(op.namespace_prefix))
        where = [_within(op.namespace_prefix), *(_passes(name, wanted) for name, wanted in (op.filter or {}).items())]
        last, now = op.offset + op.limit, records.services.now()
        if op.query:
            found = _rank(records, op.query, where, last, now)
        else:
            options = SearchOptions(last, now, Combination("all", tuple(where)))
            found = [(record, None) for record in records.select(MemoryType.STRUCTURED, options)]
        shown = found[op.offset : last]
        if op.refresh_ttl:
            _refresh(records, [record for record, _ in shown])
        return [SearchItem(**_fields_of(record), score=score) for record, score in shown]

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        collections = Structured(self._records(self._owner(_labels(op)))).collections()
        namespaces = (_to_namespace(one["collection"]) for one in collections)
        found = {
            namespace[: op.max_depth]
            for namespace in namespaces
            if all(_matches(condition, namespace) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]


def _rank(
    records: DurableRecords, query: str, where: Sequence[Filter], last: int, now: int
) -> list[tuple[Record, float | None]]:
    """The best matches with their scores; then, if there are fewer than wanted, what no search finds, without any."""
    without = Condition(("metadata", IS_SEARCHED), "eq", False)
    options = SearchOptions(last, now, Combination("all", (*where, Combination("none", (without,)))))
    asked = records.services.recall.encode_query(query)
    found: list[tuple[Record, float | None]] = [
        (record, hit.score) for record, hit in records.search(MemoryType.STRUCTURED, asked, options)
    ]
    if len(found) < last:
        others = options._replace(top_k=last - len(found), where=Combination("all", (*where, without)))
        found += [(record, None) for record in records.select(MemoryType.STRUCTURED, others)]
    return found


def _refresh(records: DurableRecords, found: Sequence[Record]) -> None:
    """Let the time of items that were read count from now. An agent that was removed reads on, and changes nothing."""
    with suppress(AgentRemovedError):
        refresh_documents(records, found)


def _fields_of(record: Record) -> dict[str, Any]:
    """What an item says."""
    return {
        "namespace": _to_namespace(record.metadata["collection"]),
        "key": _unescape(record.metadata["key"]),
        "value": record.metadata["document"],
        "created_at": when(record.created_at),
        "updated_at": when(record.updated_at),
    }


def _model_name(embed: Any) -> str:
    """What an embedder goes by: its model, else its name."""
    known = (getattr(embed, name, None) for name in ("model", "model_name", "__qualname__"))
    return next((name for name in known if isinstance(name, str)), type(embed).__qualname__)


# --- namespaces --------------------------------------------------------------------------------------------------


def _escape(text: str) -> str:
    """A label or a key as a name may be: characters that a name cannot have are written as in a URL."""
    if text.isspace():
        return quote(text, safe="")
    if text.isprintable() and "%" not in text and _WILDCARD not in text:
        return text or _EMPTY
    return "".join(
        one if one.isprintable() and one not in "%*" else quote(one, "", errors="surrogatepass") for one in text
    )


def _unescape(text: str) -> str:
    return "" if text == _EMPTY else unquote(text, errors="surrogatepass")


def _to_collection(namespace: Sequence[str]) -> str:
    if not namespace:
        raise InvalidNamespaceError("Namespace cannot be empty.")
    return _SEPARATOR.join(map(_escape, namespace))


def _to_namespace(collection: str) -> Namespace:
    return tuple(map(_unescape, collection.split(_SEPARATOR)))


def _within(prefix: Sequence[str]) -> Filter:
    """The condition that an item's namespace begins with these labels."""
    start = _SEPARATOR.join(map(_escape, prefix))
    inner = f"{start}{_SEPARATOR}"
    return test_of(("metadata", "collection"), lambda name: not prefix or name == start or str(name).startswith(inner))


def _labels(op: Op) -> Namespace:
    """What is known of the namespaces that an operation is about: the labels that all of them begin with."""
    if isinstance(op, ListNamespacesOp):
        return max((_known_part(condition) for condition in op.match_conditions or ()), key=len, default=())
    return tuple(op.namespace_prefix if isinstance(op, SearchOp) else op.namespace)


def _known_part(condition: MatchCondition) -> Namespace:
    """The labels that every namespace that a condition is for begins with."""
    path = tuple(condition.path)
    if condition.match_type != "prefix":
        return ()
    return path[: path.index(_WILDCARD)] if _WILDCARD in path else path


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidInputError(f"namespaces match by prefix or suffix, not by {quote_value(condition.match_type)}")
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in (_WILDCARD, label) for wanted, label in zip(path, part, strict=True))


# --- filters, as LangGraph means them ------------------------------------------------------------------------------


def _passes(name: str, wanted: object) -> Filter:
    """The condition that a field of an item is as wanted; a dot in its name is a dot."""
    test = _test(wanted)
    return test_of(("metadata", "document", name), lambda value: test(None if value is MISSING else value))


def _test(wanted: object) -> Callable[[Any], bool]:
    """Whether a value is as wanted: an object has (at least) these fields, a list is the same list; what is missing is
    ``None``; ``True`` is 1, as in Python.
    """
    if isinstance(wanted, Mapping) and any(str(word).startswith("$") for word in wanted):
        tests = [_operation(word, operand) for word, operand in wanted.items()]
        return lambda value: all(test(value) for test in tests)
    if isinstance(wanted, Mapping):
        fields = {name: _test(inner) for name, inner in wanted.items()}
        return lambda value: isinstance(value, Mapping) and all(test(value.get(name)) for name, test in fields.items())
    if isinstance(wanted, list | tuple):
        items = list(map(_test, wanted))
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(items)
            and all(test(one) for test, one in zip(items, value, strict=True))
        )
    return lambda value: bool(value == wanted)


def _operation(word: str, operand: Any) -> Callable[[Any], bool]:
    """The test that an operator is; numbers are compared as numbers, texts as texts."""
    if word in ("$eq", "$ne"):
        return lambda value: bool(value == operand) == (word == "$eq")
    if word not in _RANGES:
        raise InvalidFilterError(f"unknown operator {quote_value(word)}; use $eq, $ne, $gt, $gte, $lt or $lte")
    compare = _RANGES[word]

    def test(value: Any) -> bool:
        if isinstance(value, str) and isinstance(operand, str):
            return compare(value, operand)
        try:
            return compare(float(value), float(operand))
        except (TypeError, ValueError):
            return False

    return test
