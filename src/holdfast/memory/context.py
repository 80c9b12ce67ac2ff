"""Context: what a prompt is given of a memory. It is read here; ``core/prompts.py`` chooses and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.prompts import Count, Format, Line, Section, plan
from holdfast.core.records import TYPES, Kind, MemoryType, Message, Record
from holdfast.core.texts import normalize_text
from holdfast.core.values import DAY, MAX_QUERY_BYTES, MAX_TOP_K, check_content, check_count, iso
from holdfast.memory.entity import describe_now
from holdfast.memory.records import DurableRecords, item_result, memory_result
from holdfast.memory.search import Search
from holdfast.ports.conversations import Session
from holdfast.recall.embedders.static import TokenCounter
from holdfast.recall.index import SearchOptions
from holdfast.recall.passages import split_record, summary_text
from holdfast.recall.ranking import FLOOR
from holdfast.results.memory import Context, MemoryResult

#: A context may have so many tokens.
MAX_TOKENS: Final = 10_000_000
#: So many of the last messages are turns; older ones are found by what is asked.
_TURNS: Final = 12
#: The summary of a conversation has precedence over all but so many lines.
_BEFORE_SUMMARY: Final = 4
#: A line of a short memory takes about so many tokens, most of them for where it is from. More memories than would fit
#: are not looked for.
_LINE_TOKENS: Final = 40
_LEAST_MEMORIES, _LEAST_CHARS = 8, 200
#: No line takes less: who the agent is is read as far as it could be shown, so that the rest is known to be left out.
_LEAST_TOKENS: Final = 10
_SECTIONS: Final = {
    MemoryType.WORKING: Section.NOTES,
    MemoryType.SHORT_TERM: Section.EARLIER,
    MemoryType.EPISODIC: Section.EPISODES,
}


def _checked(count: Callable[[str], Any]) -> Count:
    """A caller's function, which gives a number of tokens each time, or it is told what it gave."""

    def counted(text: str) -> int:
        found = count(text)
        if not isinstance(found, int | float) or not 0 <= found < math.inf:
            raise InvalidInputError(
                f"count gave {quote(found)} for a text of {len(text):,} characters, not a number of tokens"
            )
        return math.ceil(found)

    return counted


class Wanted(NamedTuple):
    """What a context is to be made of."""

    query: str | None
    kinds: Sequence[Kind]
    max_tokens: int
    form: Format
    count: Count

    @staticmethod
    def check(query: object, kinds: Sequence[Kind], max_tokens: object, form: object, count: object) -> Wanted:
        """What a caller gave, if it can be done."""
        if query is not None:
            check_content(query, "query", max_bytes=MAX_QUERY_BYTES)
        if form not in list(Format):
            raise InvalidInputError(f"format must be one of {', '.join(Format)}, not {quote(form)}")
        if count is not None and not callable(count):
            raise InvalidInputError(f"count must be a function that gives the tokens of a text, not {quote(count)}")
        most = check_count(max_tokens, "max_tokens", most=MAX_TOKENS)
        counted = TokenCounter() if count is None else _checked(count)
        return Wanted(query, kinds, most, Format(form), counted)  # type: ignore[arg-type]

    def has(self, kind: MemoryType) -> bool:
        """Whether a kind is to be looked at."""
        return TYPES[kind] in self.kinds

    @property
    def chars(self) -> int:
        """So much is shown of one memory: in most languages, no more than half of the budget."""
        return max(_LEAST_CHARS, 2 * self.max_tokens)

    @property
    def memories(self) -> int:
        """So many memories are looked for."""
        return min(MAX_TOP_K, max(_LEAST_MEMORIES, self.max_tokens // _LINE_TOKENS))


def read_context(records: DurableRecords, notes: Callable[[], list[Message]], wanted: Wanted) -> Context:
    """The block of a memory; ``notes`` gives its working notes."""
    reading = _Reading(records, notes, wanted)
    persona = list(reading.persona())
    turns = list(reading.turns())
    related = list(reading.related({line.id for line in turns}))
    order = [line for pair in zip_longest(related, turns) for line in pair if line is not None]
    order[_BEFORE_SUMMARY:_BEFORE_SUMMARY] = reading.summary(turns)
    block = plan([*persona, *order], wanted.form, wanted.max_tokens, wanted.count)
    found = [reading.result(line.id) for line in block.lines if line.id in reading.found]
    left_out = [one for one in block.left_out if one.memory_id in reading.found]
    return Context(block.text, found, block.tokens, left_out)


class _Reading:
    """Reads a memory once, and makes lines of what it finds, those that matter most first."""

    def __init__(self, records: DurableRecords, notes: Callable[[], list[Message]], wanted: Wanted) -> None:
        self._records, self._services, self._wanted = records, records.services, wanted
        self._now = self._services.now()
        self._session: Session | None = None
        self._items: dict[MemoryType, list[Message]] = {MemoryType.SHORT_TERM: []}
        if wanted.has(MemoryType.WORKING):
            self._items[MemoryType.WORKING] = notes()
        if wanted.has(MemoryType.SHORT_TERM):
            self._read_window()
        self.found: dict[str, tuple[MemoryType, Record | Message]] = {}
        """The memories of the lines, by their ids."""

    def _read_window(self) -> None:
        scope = self._records.scope
        self._session = session = self._services.history.find(scope, now=self._now)
        if session is None:
            return
        held = self._services.recall.held_items(scope, TYPES[MemoryType.SHORT_TERM])
        window = self._services.short_term.window(scope, now=self._now, session=session.id, held=held)
        asked = self._wanted.query
        if window and asked is not None and normalize_text(window[-1].content) == normalize_text(asked):
            window = window[:-1]  # what is asked stands in the prompt anyway
        self._items[MemoryType.SHORT_TERM] = window

    def result(self, memory_id: str) -> MemoryResult:
        """A memory of a line, as callers see it."""
        kind, memory = self.found[memory_id]
        if isinstance(memory, Record):
            return memory_result(memory, self._now)
        return item_result(self._records.scope, TYPES[kind], memory)

    def persona(self) -> Iterator[Line]:
        """Who the agent is, whatever is asked; the newest first, which stand last."""
        if self._wanted.has(MemoryType.PERSONA):
            most = max(_LEAST_MEMORIES, self._wanted.max_tokens // _LEAST_TOKENS)
            options = SearchOptions(min(MAX_TOP_K, most), self._now)
            for number, record in enumerate(self._records.select(MemoryType.PERSONA, options)):
                yield self._line(Section.PERSONA, -number, record, record.content)

    def turns(self) -> Iterator[Line]:
        """What was said last, the last first. What was said twice in a row is said once."""
        before: Message | None = None
        for number, message in enumerate(reversed(self._items[MemoryType.SHORT_TERM][-_TURNS:])):
            if before is None or (message.role, message.content) != (before.role, before.content):
                yield self._item_line(Section.TURNS, -number, MemoryType.SHORT_TERM, message)
            before = message

    def summary(self, turns: Sequence[Line]) -> Iterator[Line]:
        """What was said before the last turns, in short; nothing, where they are all of it and are likely to fit."""
        session = self._session
        if session is None or (
            session.messages <= _TURNS and sum(len(line.text) for line in turns) <= self._wanted.chars
        ):
            return
        shown = normalize_text("\n".join(f"{line.origin}: {line.text}" for line in turns[::-1]))
        shown += f" user: {normalize_text(self._wanted.query or '')}"
        lines = [line for line in session.summary.splitlines() if normalize_text(line) not in shown]
        if said := _cut("\n".join(lines), self._wanted.chars // 2):
            name = f"session {session.session_id}" if session.session_id else "session"
            yield Line(Section.EARLIER, -1, session.id, "session", name, _date(session.created_at // DAY), said)

    def related(self, turns: set[str]) -> Iterator[Line]:
        """What bears on the query, the best first; without one, the newest. ``turns`` are shown anyway."""
        found = self._newest() if self._wanted.query is None else self._search()
        found = [one for one in found if one.memory.id not in turns]
        entities = [one.memory for one in found if isinstance(one.memory, Record) and one.kind is MemoryType.ENTITY]
        now = describe_now(self._services, self._records.scope.subject, entities, self._now)
        for number, (kind, passage, memory) in enumerate(found):
            section = _SECTIONS.get(kind, Section.KNOWN)
            if isinstance(memory, Message):
                place = memory.created_at if kind is MemoryType.SHORT_TERM else number
                yield self._item_line(section, place, kind, memory)
            elif now.get(memory.id) != memory.metadata.get("name", ""):  # of an entity more is known than its name
                yield self._line(section, number, memory, now.get(memory.id) or self._say(memory, passage))

    def _search(self) -> list[_Found]:
        """What bears on the query: nothing that is below the floor."""
        asked = self._services.recall.encode_query(self._wanted.query or "")
        kinds = [kind for kind in self._wanted.kinds if kind.name is not MemoryType.PERSONA]
        options = SearchOptions(self._wanted.memories, self._now)
        search = Search(self._records, lambda kind: self._items[kind.name])
        found = search.find(kinds, asked, options, floor=FLOOR) if kinds else []
        return [_Found(one.kind, one.hit.passage, one.memory) for one in found if one.hit.score >= FLOOR]

    def _newest(self) -> list[_Found]:
        """What was kept last, notes first."""
        notes = [_Found(MemoryType.WORKING, None, note) for note in self._items.get(MemoryType.WORKING, ())]
        options = SearchOptions(self._wanted.memories, self._now, include_archived=False)
        kinds = [kind.name for kind in self._wanted.kinds if kind.durable and kind.name is not MemoryType.PERSONA]
        records = [record for kind in kinds for record in self._records.select(kind, options)]
        records.sort(key=lambda record: (record.updated_at, record.id), reverse=True)
        return notes[::-1] + [_Found(record.kind, None, record) for record in records[: self._wanted.memories]]

    def _say(self, record: Record, passage: int | None) -> str:
        """What a record says; of a long one, the passage that bears on the query."""
        if record.kind is MemoryType.EPISODIC:
            return summary_text(record.content, record.metadata)
        named = ""
        if record.kind is MemoryType.STRUCTURED:
            names = (record.metadata.get(part) for part in ("collection", "key"))
            named = f"{'/'.join(str(name) for name in names if name)}: "
        if passage is None or len(record.content) <= self._wanted.chars:
            return named + record.content
        passages = split_record(record)
        return f"{named}… {passages[min(passage, len(passages) - 1)]} …"

    def _line(self, section: Section, place: int, record: Record, text: str) -> Line:
        since = record.dated_at if record.kind is MemoryType.EPISODIC else record.updated_at
        self.found[record.id] = record.kind, record
        said = _cut(text, self._wanted.chars)
        return Line(section, place, record.id, record.kind.value, record.written_by, _date(since // DAY), said)

    def _item_line(self, section: Section, place: int, kind: MemoryType, item: Message) -> Line:
        self.found[item.id] = kind, item
        said = _cut(item.content, self._wanted.chars)
        return Line(section, place, item.id, kind.value, item.role, "", said)


class _Found(NamedTuple):
    """A memory, and which passage of it bears on the query."""

    kind: MemoryType
    passage: int | None
    memory: Record | Message


def _cut(text: str, most: int) -> str:
    """As much of a text as is shown, to the end of a word if there is one near."""
    return text if len(text) <= most else f"{text[: most - 1].rsplit(' ', 1)[0]}…"


@lru_cache(256)  # most of what a block shows is of a few days
def _date(day: int) -> str:
    return iso(day * DAY)[:10]
