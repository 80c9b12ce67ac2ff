"""Recall over scopes: an index for each scope in use, brought up to date before every answer, bounded in memory."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.core.clock import hold, watch, without_deadline
from holdfast.core.errors import EmbedderError, EmbedderUnavailableError, RequestTimeoutError
from holdfast.core.records import TYPES, Encoding, Kind, MemoryType, Message, Record, Scope, State, Subject
from holdfast.core.values import to_json
from holdfast.ports.feed import Changes, Cursor, Embedder, IndexRow, RecallFeed, Vectors, split_version_id
from holdfast.recall import terms
from holdfast.recall.arrays import Batch, no_garbage_collection, release_free_memory
from holdfast.recall.index import Hit, Query, ScopeIndex, SearchOptions
from holdfast.recall.passages import compact, split_record
from holdfast.recall.vectors import Steps, to_steps

_log = logging.getLogger("holdfast.recall")
#: After the embedder has failed, it is not asked for so long.
_PAUSE_SECONDS: Final = 30.0
#: How long one recall may spend on embedding records anew.
_REEMBED_SECONDS: Final = 0.05
_BATCH: Final = 256
_FIRST_BATCH: Final = 8
#: From so many records on, what is freed after a load is worth giving back to the system.
_MANY_RECORDS: Final = 20_000
#: About the memory of an empty index.
_EMPTY_BYTES: Final = 6_000
#: From so many kinds on, their indexes ask at once whether they are up to date.
_SEVERAL: Final = 2
_T = TypeVar("_T")


#: The last part: whether the versions that have ended are in the index, too.
_Key = tuple[str, str | None, str | None, MemoryType, bool]


class IndexMemory(NamedTuple):
    """What the indexes of a process take, and may take; how many there are, and how many made way for others."""

    used: int
    limit: int
    scopes: int
    evictions: int


@dataclass
class _HeldIndex:
    """An index, how far it has followed its scope, and which of its records lack vectors."""

    index: ScopeIndex
    cursor: Cursor | None = None
    bare: set[str] = field(default_factory=set)
    ended: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What each record's versions that have ended are indexed by, where they are."""
    items: dict[str, Message] = field(default_factory=dict)
    """What is indexed of a kind that is not durable, by its id, ..."""
    item_bytes: int = 0
    paused: float = 0.0
    """... and the pause of the embedder in which that was done."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self, kind: Kind) -> None:
        """Begin anew."""
        self.index, self.cursor = ScopeIndex(kind), None
        self.bare, self.items, self.item_bytes, self.ended = set(), {}, 0, defaultdict(list)


class Recall:
    """Answers queries over the scopes of one engine."""

    def __init__(self, feed: RecallFeed, embedder: Embedder, *, max_bytes: int) -> None:
        self._feed = feed
        self._embedder = embedder
        self._max_bytes = max_bytes
        self._held: OrderedDict[_Key, _HeldIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes: dict[_Key, int] = {}
        self._total = self._evictions = 0
        self._paused_until = 0.0
        self._reembed_after = 0.0
        self._last: tuple[str, Steps, bytes] | None = None
        """The text of one passage that was encoded last, its vector and its terms: it may be asked about next."""

    # --- text into encodings --------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The embedder and the tokenizer in use, by name: records of another are encoded anew."""
        return f"{self._embedder.id}/{terms.VERSION}"

    def encode(self, records: Sequence[Record]) -> list[Encoding]:
        """What recall needs of each record; of an archived one, the little that is kept.

        Where the embedder is away, records get no vectors. They are embedded later.
        """
        passages = [split_record(record) for record in watch(records)]
        vectors = self._vectors([text for texts in passages for text in texts])
        steps = None if vectors is None else to_steps(vectors)
        model, encodings, start, said = self.model, [], 0, b""
        for record, texts in zip(watch(records), passages, strict=True):
            end = start + len(texts)
            blob = None if steps is None else steps[start:end].tobytes()
            said = terms.encode(texts)
            encoding = Encoding(None if blob is None else model, blob, said)
            encodings.append(compact(record, encoding) if record.state is State.ARCHIVED else encoding)
            start = end
        if steps is not None and len(steps) == 1:
            self._last = passages[0][0], steps[0], said
        return encodings

    def encode_query(self, text: str) -> Query:
        """A query ready to be compared; without the embedder, by its words alone."""
        last = self._last
        if last is not None and last[0] == text:
            return Query(last[1], terms.query_terms_of(last[2]))
        vectors = self._vectors([text])
        return Query(None if vectors is None else to_steps(vectors[0]), terms.query_terms(text))

    def _vectors(self, texts: Sequence[str]) -> Vectors | None:
        if self._paused_until and time.monotonic() < self._paused_until:
            return None
        try:
            vectors = self._embedder.embed(texts)
        except EmbedderError as problem:
            if not problem.retryable:
                raise
            _log.warning("The embedder fails. For %g s recall uses words alone: %s", _PAUSE_SECONDS, problem)
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            return None
        self._paused_until = 0.0
        return vectors

    # --- recall -----------------------------------------------------------------------------------------------------

    def look(self, scope: Scope, kinds: Sequence[Kind]) -> dict[MemoryType, Cursor]:
        """The cursors of those indexes that are up to date: asked at once for all of them, before they are ranked."""
        if len(kinds) < _SEVERAL:
            return {}
        held = [(kind, self._held.get(_key(scope, kind))) for kind in kinds if kind.durable]
        return self._feed.unchanged(scope, [(kind, one.cursor) for kind, one in held if one and one.cursor])

    def rank(
        self,
        scope: Scope,
        kind: Kind,
        query: Query,
        options: SearchOptions,
        current: Mapping[MemoryType, Cursor] | None = None,
    ) -> list[Hit]:
        """The best matches among a scope's durable records, best first. ``current`` is what ``look`` has just said."""
        is_past = options.as_of is not None
        follow = (
            self._follow_versions if is_past else partial(self._follow_feed, current=(current or {}).get(kind.name))
        )
        return self._answer(scope, kind, follow, lambda index: index.rank(query, options), ended=is_past)

    def rank_items(
        self, scope: Scope, kind: Kind, items: Sequence[Message], query: Query, options: SearchOptions
    ) -> list[Hit]:
        """The best matches among items that the caller holds, best first."""
        return self._answer(
            scope, kind, partial(self._follow_items, items=items), lambda index: index.rank(query, options)
        )

    def held_items(self, scope: Scope, kind: Kind) -> Mapping[str, Message] | None:
        """The items that were ranked last, by their ids."""
        held = self._held.get(_key(scope, kind))
        return None if held is None else held.items

    def rank_items_once(
        self, scope: Scope, items: Sequence[Message], query: Query, options: SearchOptions
    ) -> list[Hit]:
        """The best matches among items whose index is not kept."""
        held = _HeldIndex(ScopeIndex(TYPES[MemoryType.WORKING]))
        self._follow_items(held, scope, TYPES[MemoryType.WORKING], items)
        return held.index.rank(query, options)

    def list_newest(self, scope: Scope, kind: Kind, options: SearchOptions) -> list[str]:
        """Ids of a scope's durable records that pass the filter, newest first."""
        return self._answer(scope, kind, self._catch_up, lambda index: index.list_newest(options))

    def count_values(self, scope: Scope, kind: Kind, path: tuple[str, ...], options: SearchOptions) -> dict[Any, int]:
        """How many of a scope's durable records that pass the filter have each value of a field."""
        return self._answer(scope, kind, self._catch_up, lambda index: index.count_values(path, options))

    def reembed(
        self, tenant: str, progress: Callable[[int], None] = lambda _count: None, *, kinds: Iterable[MemoryType]
    ) -> int:
        """Embed every record that has no vectors of this model; how many there were.

        Raises ``EmbedderUnavailableError`` where the embedder does not answer; what is done by then stays done.
        """
        self._embedder.embed(["ready?"])
        self._paused_until = self._reembed_after = 0.0
        self._feed.adopt(self.model)
        total = 0
        for subject in self._feed.subjects(tenant):
            for name in kinds:
                while done := self._reembed_batch(subject, TYPES[name]):
                    total += done
                    progress(done)
                if self._paused_until:
                    raise EmbedderUnavailableError(f"the embedder went away after {total:,} memories; try again")
        return total

    def drop(self, scope: Scope, kind: Kind) -> None:
        """Let go of one scope's index."""
        wanted = _key(scope, kind)
        self._drop(lambda key: key[:4] == wanted[:4])

    def forget_user(self, subject: Subject) -> None:
        """Let go of everything of one user."""
        self._drop(lambda key: key[0] == subject)
        terms.forget()

    def forget(self) -> None:
        """Keep nothing of any text in memory; the next recall reads its scope again."""
        self._drop(lambda _key: True)
        terms.forget()

    def _drop(self, matches: Callable[[_Key], bool]) -> None:
        with self._lock:
            self._last = None
            for key in [key for key in self._held if matches(key)]:
                del self._held[key]
                self._total -= self._bytes.pop(key, 0)

    @property
    def nbytes(self) -> int:
        """What the indexes hold in memory."""
        return self._total

    # --- following a scope -------------------------------------------------------------------------------------------

    def _answer(
        self,
        scope: Scope,
        kind: Kind,
        follow: Callable[[_HeldIndex, Scope, Kind], None],
        answer: Callable[[ScopeIndex], _T],
        *,
        ended: bool = False,
    ) -> _T:
        key = _key(scope, kind, ended=ended)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _HeldIndex(ScopeIndex(kind))
            self._held.move_to_end(key)
        with hold(held.lock):
            try:
                follow(held, scope, kind)
                result = answer(held.index)
            except RequestTimeoutError:  # no update is ever interrupted by it
                raise
            except BaseException:  # an interrupt in the middle of an update: the index may be half done
                held.forget(kind)
                raise
            size = held.index.nbytes + _EMPTY_BYTES + held.item_bytes
        if self._bytes.get(key) != size:
            self._account(key, size)
        return result

    def _account(self, key: _Key, size: int) -> None:
        """Note what an index holds; let go of the least recently used ones where it is too much.

        One that does not fit at all is not kept, and costs the others nothing.
        """
        with self._lock:
            if size > self._max_bytes:
                _log.warning(
                    "The index of one user's %s memories takes %d MiB, more than HOLDFAST_INDEX_MIB allows (%d). It is "
                    "read anew for each recall. Raise HOLDFAST_INDEX_MIB.",
                    key[3],
                    size >> 20,
                    self._max_bytes >> 20,
                )
                self._held.pop(key, None)
                size = 0
            elif key not in self._held:
                return
            self._total += size - self._bytes.pop(key, 0)
            if size:
                self._bytes[key] = size
            while self._total > self._max_bytes:
                old, _ = self._held.popitem(last=False)
                self._evictions += 1
                self._total -= self._bytes.pop(old, 0)

    def measure(self) -> IndexMemory:
        """What the indexes of this process take."""
        with self._lock:
            return IndexMemory(self._total, self._max_bytes, len(self._held), self._evictions)

    def _follow_feed(self, held: _HeldIndex, scope: Scope, kind: Kind, current: Cursor | None = None) -> None:
        if current is None or held.cursor != current:
            self._catch_up(held, scope, kind)
        if held.bare and time.monotonic() >= max(self._paused_until, self._reembed_after):
            self._embed_some(scope, kind)
            self._catch_up(held, scope, kind)

    def _embed_some(self, scope: Scope, kind: Kind) -> None:
        """Embed records that have no vectors of the store's model, for about as long as one recall may take.

        A process that runs another model than the one that the store was opened with last leaves it to the others.
        """
        if not self._feed.is_current(self.model):
            self._reembed_after = time.monotonic() + _PAUSE_SECONDS
            return
        until = time.monotonic() + _REEMBED_SECONDS
        batch = _FIRST_BATCH
        try:
            with without_deadline():
                while self._reembed_batch(scope.subject, kind, batch) and time.monotonic() < until:
                    batch = min(2 * batch, _BATCH)
        except EmbedderError as problem:  # a text that the embedder refuses is found by its words
            _log.warning("Some records stay without vectors: %s", problem)
            self._reembed_after = time.monotonic() + _PAUSE_SECONDS

    def _catch_up(self, held: _HeldIndex, scope: Scope, kind: Kind) -> None:
        with no_garbage_collection() if held.cursor is None else nullcontext():
            changes = self._feed.changes(scope, kind, held.cursor, model=self.model, read=partial(Batch.read, kind))
            if changes.cursor != held.cursor or changes.reload:
                _apply(held, kind, changes)
        if changes.reload and len(held.index) > _MANY_RECORDS:
            changes.pages.clear()
            release_free_memory()

    def _follow_versions(self, held: _HeldIndex, scope: Scope, kind: Kind) -> None:
        """Bring an index up to date that has versions that have ended, too. It is made when one first looks back."""
        read = partial(self._read_versions, kind)
        changes = self._feed.changes(scope, kind, held.cursor, model=self.model, read=read, ended=True)
        if changes.cursor == held.cursor and not changes.reload:
            return
        pages = [name for page in changes.pages for name in page.id]
        old = held.ended if changes.reload else {split_version_id(name)[0]: [] for name in (*pages, *changes.gone)}
        changes.gone.extend(name for record_id in [*old] for name in held.ended.pop(record_id, ()))
        _apply(held, kind, changes)
        for name in pages:
            record_id, version = split_version_id(name)
            if version is not None:
                held.ended[record_id].append(name)

    def _read_versions(self, kind: Kind, rows: list[IndexRow]) -> Batch:
        """Rows of which some are versions of another model: these are embedded in memory, as many as is quick."""
        bare = [place for place, row in enumerate(rows) if row.vectors is None and row.ended_at is not None]
        nobody = Scope("", "", "")
        then = [
            Record(rows[place].id, kind.name, nobody, rows[place].text or "", 0, 0, 0, json.loads(rows[place].metadata))
            for place in bare[:_BATCH]
        ]
        for place, encoding in zip(bare, self.encode(then), strict=False):
            rows[place] = rows[place]._replace(vectors=encoding.vectors, terms=encoding.terms)
        return Batch.read(kind, rows)

    def _follow_items(self, held: _HeldIndex, scope: Scope, kind: Kind, items: Sequence[Message]) -> None:
        """Bring an index to these items; what it holds of them already is left alone."""
        old = held.items if held.paused == self._paused_until else {}
        if len(items) == len(old) and all(map(is_, items, old.values())):  # nothing has changed, nearly always
            return
        new = [item for item in items if old.get(item.id) != item]
        if not new and len(items) == len(held.items):
            return
        held.paused = self._paused_until
        records = [_as_record(item, kind, scope, item.created_at) for item in new]
        encodings = self.encode(records) if records else []
        wanted = {item.id: item for item in items}
        held.index.remove([item_id for item_id in held.items if item_id not in wanted])
        held.index.upsert(map(_as_index_row, records, encodings))
        held.items, held.item_bytes = wanted, sum(len(item.content) for item in items)

    def _reembed_batch(self, subject: Subject, kind: Kind, limit: int = _BATCH) -> int:
        """Embed some of a subject's records that have no vectors of this model; how many."""
        records = self._feed.unembedded(subject, kind, model=self.model, limit=limit)
        if not records:
            return 0
        encodings = self.encode(records)
        if encodings[0].vectors is None:
            return 0
        rows = [(record.id, record.version, code) for record, code in zip(records, encodings, strict=True)]
        return self._feed.embed(subject, kind, rows)


def _key(scope: Scope, kind: Kind, *, ended: bool = False) -> _Key:
    agent = scope.agent_id if "agent" in kind.scope else None
    session = (scope.session_id or "") if "session" in kind.scope else None
    return scope.subject, agent, session, kind.name, ended


def _apply(held: _HeldIndex, kind: Kind, changes: Changes[Batch]) -> None:
    if changes.reload:
        held.index = ScopeIndex(kind, changes.pages)
        held.bare = set()
    else:
        held.index.remove(changes.gone)
        held.index.add(changes.pages)
        held.bare.difference_update(changes.gone, *(page.id for page in changes.pages))
    held.bare.update(*(page.bare for page in changes.pages))
    held.cursor = changes.cursor


def _as_record(item: Message, kind: Kind, scope: Scope, at: int) -> Record:
    return Record(item.id, kind.name, scope, item.content, at, at, at, metadata=item.metadata)


def _as_index_row(record: Record, encoding: Encoding) -> IndexRow:
    scope, metadata = record.scope, to_json(record.metadata)
    known = (record.id, scope.agent_id, scope.session_id, record.created_at, record.updated_at)
    return IndexRow(*known, None, None, metadata, encoding.vectors, encoding.terms)
