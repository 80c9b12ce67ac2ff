"""Plain values: moments and durations, ids, content, metadata and JSON. They are checked here, once, before anything is
written.

At the edges a moment is an aware UTC datetime; inside it is a whole number of microseconds since 1970.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from json.scanner import make_scanner
from typing import Any, Final, NamedTuple, TypeVar, cast, dataclass_transform

from holdfast.core.errors import InvalidContentError, InvalidInputError, InvalidMetadataError, InvalidScopeError, quote

#: A clock is a callable without arguments that returns an aware datetime.
Clock = Callable[[], datetime]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = EPOCH.replace(tzinfo=None)  # what asks no time zone for its offset is told faster
_scan = make_scanner(cast("Any", json.JSONDecoder()))
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
SECOND = 1_000_000
DAY = 86_400 * SECOND
#: Clocks of two machines may differ by so much before a time counts as being in the future.
CLOCK_TOLERANCE: Final = 300 * SECOND
#: For ever, as a duration.
FOREVER: Final = 2**62


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[_T]) -> type[_T]:
    """A dataclass of values that are made with every read and write. Type checkers hold it to be frozen; guarding it at
    run time as well would make it several times as dear to make.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


#: A moment as callers give it, or none.
When = datetime | float | str | None


def moment(when: datetime | float | str, *, what: str = "time") -> int:
    """Microseconds since 1970 for an aware datetime, seconds since 1970, or an ISO 8601 text.

    A text that is only a date means its first instant in UTC.
    """
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(f"{when}T00:00:00+00:00" if _DATE.fullmatch(when) else when)
        except ValueError:
            raise InvalidInputError(f"{what} {quote(when)} is not an ISO 8601 date and time") from None
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidInputError(
                f"{what} {when.isoformat()} has no time zone; add one, such as +00:00 or tzinfo=UTC"
            )
        micros = (when - EPOCH) // _MICROSECOND
        if not _FIRST <= micros <= _LAST:
            raise InvalidInputError(f"{what} {when.isoformat()} is outside the years 1 to 9999 in UTC")
        return micros
    if isinstance(when, bool) or not isinstance(when, int | float) or not -6e10 < when < 2.5e11:
        raise InvalidInputError(
            f"{what} {quote(when)} is not a time; use a datetime with a time zone, or seconds since 1970"
        )
    return round(when * SECOND)


def past_moment(when: datetime | float | str, *, now: int, advice: str) -> int:
    """The moment of a ``timestamp``, which must not be in the future; ``advice`` says what to do if it is."""
    said = moment(when, what="timestamp")
    if said > now + CLOCK_TOLERANCE:
        raise InvalidInputError(f"timestamp {iso(said)} is in the future; {advice}")
    return said


def when(micros: int) -> datetime:
    """The aware UTC datetime of a moment."""
    return EPOCH + timedelta(microseconds=micros)


@lru_cache(maxsize=4_096)  # what was added together is of one moment, and is told again and again
def iso(micros: int) -> str:
    """A moment as ISO 8601 text in UTC."""
    return f"{(_EPOCH + timedelta(0, 0, micros)).isoformat()}+00:00"


def describe_duration(duration: int) -> str:
    """A duration in words."""
    if duration >= FOREVER:
        return "for ever"
    for unit, size in (("day", DAY), ("hour", 3_600 * SECOND), ("minute", 60 * SECOND), ("second", SECOND)):
        if duration >= size:
            count = duration / size
            return f"{count:,.10g} {unit}{'' if count == 1 else 's'}"
    return f"{duration} microseconds"


#: A memory may be derived from so many others.
MAX_DERIVED_FROM: Final = 1_000
_AGENT: Final = "agent:"


def agent_source(agent_id: str) -> str:
    """The source of what an agent wrote and nothing else was said of."""
    return f"{_AGENT}{agent_id}"


def agent_of(source: str) -> str | None:
    """The agent that a source is; ``None`` if it is something else."""
    return source.removeprefix(_AGENT) if source.startswith(_AGENT) else None


def check_source(source: object) -> str:
    """``source`` itself, if it can name who or what wrote something: a text like an id, such as ``import:crm``."""
    agent = agent_of(source) if isinstance(source, str) else None
    if agent is not None:
        check_id(agent, "the agent of a source")
        return agent_source(agent)
    return check_id(source, "source")


def check_derived_from(ids: object) -> tuple[str, ...]:
    """Ids of memories and messages, each once, in the order given. They need not be there (any more)."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidInputError(
            f"must be a list of the ids of memories or messages, not {quote(ids)}", about="derived_from"
        )
    if len(ids) > MAX_DERIVED_FROM:
        raise InvalidInputError(
            f"has {len(ids):,} ids, which are too many (max: {MAX_DERIVED_FROM:,}); "
            "name what matters, or sum it up in between",
            about="derived_from",
        )
    for one in ids:
        if not is_id(one):
            raise InvalidInputError(
                f"has {quote(one)}, which is not the id of a memory or a message", about="derived_from"
            )
    return tuple(dict.fromkeys(ids))


class Origin(NamedTuple):
    """What a caller says of where a memory comes from; ``None`` where nothing was said."""

    source: str | None = None
    derived_from: tuple[str, ...] | None = None

    @staticmethod
    def check(source: object, derived_from: object) -> Origin:
        """What was said, if it can be kept."""
        if source is None and derived_from is None:
            return NO_ORIGIN
        return Origin(
            None if source is None else check_source(source),
            None if derived_from is None else check_derived_from(derived_from),
        )

    @property
    def is_given(self) -> bool:
        """Whether anything was said."""
        return self != NO_ORIGIN

    def fields(self, agent_id: str) -> dict[str, Any]:
        """What a record of an agent's is to say, as far as it was said. Its agent is its source anyway."""
        said: dict[str, Any] = {}
        if self.source is not None:
            said["source"] = None if self.source == agent_source(agent_id) else self.source
        if self.derived_from is not None:
            said["derived_from"] = self.derived_from
        return said


NO_ORIGIN: Final = Origin()
_ID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_id(text: object) -> bool:
    """Whether ``text`` has the form of a record id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def name_in_logs(alias: str | None) -> str:
    """What logs call a user: the pseudonym that the audit chain and certificates use, never the name."""
    return alias or "unknown (nothing is kept)"


#: Content larger than this is stored compressed.
COMPRESS_OVER_BYTES: Final = 1_024
#: Content larger than this is compressed less thoroughly: it takes a quarter of the time.
_LARGE_BYTES: Final = 256 * 1024
_QUICK: Final = 1
MAX_CONTENT_BYTES: Final = 8 * 1024 * 1024
#: How many values one JSON document, with all that is within it, may have.
MAX_JSON_VALUES: Final = 200_000
MAX_QUERY_BYTES: Final = 64 * 1024
MAX_METADATA_BYTES: Final = 256 * 1024
MAX_ID_CHARS: Final = 256
MAX_TOP_K: Final = 1_000

#: JSON text as it is stored.
to_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=dict).encode

#: The escape of NUL in JSON text, and not a backslash that is itself escaped.
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

#: Metadata that Holdfast adds to what it returns; ignored where a caller hands it back.
DERIVED_METADATA: Final = frozenset({"is_compressed"})


def check_content(
    content: object, what: str = "content", *, max_bytes: int = MAX_CONTENT_BYTES, may_be_empty: bool = False
) -> str:
    """``content`` itself, if it is text that can be stored and found again; ``what`` it is called in messages."""
    if not isinstance(content, str):
        raise InvalidContentError(f"{what} must be text, not {type(content).__name__}")
    if not may_be_empty and (not content or content.isspace()):
        raise InvalidContentError(f"{what} cannot be empty; give a text")
    if len(content) > max_bytes or _utf8_size(content, InvalidContentError, what) > max_bytes:
        advice = "split it, or keep the document elsewhere and remember a summary with a link"
        raise InvalidContentError(
            f"{what} of {len(content):,} characters is too large (max: {max_bytes:,} bytes); "
            f"{advice if what == 'content' else 'shorten it'}"
        )
    if "\x00" in content:
        at = content.index("\x00")
        raise InvalidContentError(f"{what} has a NUL character at position {at:,}; remove it, text has none")
    return content


def check_metadata(metadata: object, *, max_bytes: int = MAX_METADATA_BYTES) -> dict[str, Any]:
    """A copy of ``metadata`` as JSON would give it back."""
    if metadata is None:
        return {}
    return parse_json_object(dump_metadata(metadata, max_bytes=max_bytes))


def dump_metadata(metadata: object, *, max_bytes: int = MAX_METADATA_BYTES) -> str:
    """The JSON text of ``metadata`` (of an empty object for ``None``)."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidMetadataError(
            f"metadata must be an object (a dict), not {type(metadata).__name__}: {quote(metadata)}"
        )
    wanted = {key: value for key, value in metadata.items() if key not in DERIVED_METADATA}
    text = dump_json(wanted, InvalidMetadataError, "metadata")
    size = _utf8_size(text, InvalidMetadataError, "metadata")
    if size > max_bytes:
        raise InvalidMetadataError(
            f"metadata of {size:,} bytes is too large (max: {max_bytes:,}); put large values into the content"
        )
    return text


def dump_json(value: object, error: type[InvalidInputError], what: str) -> str:
    """JSON text of ``value``, with ``error`` for whatever JSON (or a database) cannot hold."""
    problem = json_problem(value)
    if problem:
        raise error(f"{what} is not JSON: {problem}")
    text = to_json(value)
    _utf8_size(text, error, what)
    if "\\u0000" in text and _NUL.search(text):
        raise error(f"{what} has a NUL character in a text; remove it, text has none")
    return text


def _at(path: str) -> str:
    """A place within a value as a message shows it."""
    return path if 0 < len(path) <= 60 else f"…{path[-59:]}" if path else "it"


def to_stored_json(value: object) -> str:
    """JSON text of what another program made, for storing. What text cannot hold (half of a character) is escaped."""
    try:
        text = to_json(value)
        text.encode()
    except ValueError:
        return json.dumps(value)
    return text


def json_problem(value: object) -> str | None:
    """What keeps ``value`` from being JSON; ``None`` if nothing does."""
    flaw = _flaw(value, 0, _Room())
    if flaw is None:
        return None
    before, after, parts = flaw
    return f"{before}{_at(''.join(reversed(parts)).removeprefix('.'))}{after}"


class _Room:
    """How many more values a document may have."""

    def __init__(self) -> None:
        self.left = MAX_JSON_VALUES

    def take(self, count: int) -> bool:
        self.left -= count
        return self.left >= 0


def _flaw(value: object, depth: int, room: _Room) -> tuple[str, str, list[str]] | None:
    """What is wrong, in words before and after its place, and the parts of that place, the innermost first: of what is
    right, which is nearly everything, no place is ever spelled out.
    """
    if depth > 64:
        return "", " is nested more than 64 deep", []
    if value is None or isinstance(value, str | bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else ("", " is a whole number beyond 64 bits", [])
    if isinstance(value, float):
        return None if value - value == 0.0 else ("", f" is {value}, which JSON cannot hold", [])
    if isinstance(value, dict | list | tuple | Mapping) and not room.take(len(value)):
        return "", f" has more than {MAX_JSON_VALUES:,} values with what is before it; split it", []
    if isinstance(value, dict | Mapping):  # what is a dictionary is soon known to be one
        for key, inner in value.items():
            if not isinstance(key, str):
                return f"the key {quote(key)} of ", " is not text", []
            if inner.__class__ is not str and (flaw := _flaw(inner, depth + 1, room)):
                flaw[2].append(f".{key}")
                return flaw
        return None
    if isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            if flaw := _flaw(inner, depth + 1, room):
                flaw[2].append(f"[{position}]")
                return flaw
        return None
    advice = "; use .isoformat()" if hasattr(value, "isoformat") else ""
    return "", f" is a {type(value).__name__} ({quote(value)}){advice}", []


def parse_json_object(text: str) -> dict[str, Any]:
    """The object that a stored JSON text holds."""
    if text == "{}":  # what most metadata is
        return {}
    try:
        value: dict[str, Any] = _scan(text, 0)[0]  # without the search for white space around it
    except StopIteration:
        value = json.loads(text)  # which says what is wrong
    return value


def list_as_json(texts: Iterable[str]) -> str:
    """Some texts as a JSON list, as ``to_json`` writes it."""
    return f"[{','.join(map(encode_basestring, texts))}]"


def same_json(one: object, other: object) -> bool:
    """JSON equality: ``true`` is not 1, an integer equals the same float."""
    return json_key(one) == json_key(other)


def json_key(value: object) -> object:
    """What a JSON value is looked up by: equal for two values exactly if ``same_json`` says that they are."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, list):
        return "list", tuple(map(json_key, value))
    if isinstance(value, dict):
        return "dict", frozenset((key, json_key(inner)) for key, inner in value.items())
    return value


def check_id(value: object, what: str, *, most: int = MAX_ID_CHARS) -> str:
    """``value`` itself, if it can name a user, an agent or a session; ids are compared whole."""
    if type(value) is str and value.isalnum() and value.isascii() and len(value) <= most:
        return value  # as most are
    if not isinstance(value, str) or not value or value.isspace():
        raise InvalidScopeError(f"must be a text that is not empty, not {quote(value)}", about=what)
    if len(value) > most:
        raise InvalidScopeError(
            f"of {len(value):,} characters is too long (max: {most:,}): {value[:40]!r}…", about=what
        )
    if value == "*":
        raise InvalidScopeError("'*' means all of them and is accepted by maintenance verbs only; name one", about=what)
    _utf8_size(value, InvalidScopeError, what)
    if not value.isprintable():
        raise InvalidScopeError(f"{quote(value)} has control or unprintable characters; remove them", about=what)
    return value


def check_tenant(value: object) -> str:
    """A tenant's id: like any other, without the slash that parts it from the user in a subject."""
    tenant = check_id(value, "tenant")
    if "/" in tenant:
        raise InvalidScopeError(f"tenant {tenant!r} has a slash; use letters, digits, '-', '_' or '.'")
    return tenant


def check_count(value: object, what: str, *, most: int = MAX_TOP_K) -> int:
    """``value`` itself, if it is a whole number from 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInputError(f"must be a whole number from 1 to {most:,}, not {quote(value)}", about=what)
    return value


def check_flag(value: object, what: str) -> bool:
    """``value`` itself, if it is ``True`` or ``False``: other values are true by accident, such as "no"."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"must be True or False, not {quote(value)}", about=what)
    return value


def check_share(value: object, what: str) -> float:
    """``value`` as a number, if it is one from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInputError(f"must be a number from 0 to 1, not {quote(value)}", about=what)
    return float(value)


def _utf8_size(text: str, error: type[InvalidInputError], what: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as problem:
        raise error(
            f"{what} has a lone surrogate (U+{ord(text[problem.start]):04X}) at position {problem.start:,}, "
            "which is not a character; decode the text with errors='replace' first"
        ) from None


def pack(text: str) -> str | bytes:
    """How a text is stored: itself, or its zlib-compressed bytes where it is long and they are fewer."""
    if 4 * len(text) <= COMPRESS_OVER_BYTES or len(raw := text.encode()) <= COMPRESS_OVER_BYTES:
        return text  # no character takes more than four bytes
    packed = zlib.compress(raw, _QUICK if len(raw) > _LARGE_BYTES else zlib.Z_DEFAULT_COMPRESSION)
    return packed if len(packed) < len(raw) else text


def stored_size(text: str) -> int:
    """How many bytes a text takes as ``pack`` stores it."""
    if len(text) <= COMPRESS_OVER_BYTES and text.isascii():
        return len(text)
    stored = pack(text)
    return len(stored.encode() if isinstance(stored, str) else stored)


def unpack(stored: str | bytes) -> str:
    """The text that ``pack`` was given. Where texts are stored as bytes, a plain one has a zero byte first."""
    if isinstance(stored, str):
        return stored
    return zlib.decompress(stored).decode() if is_packed(stored) else stored[1:].decode()


def unpack_beginning(stored: str | bytes, chars: int) -> str:
    """The first characters of a text, of which at least the first ``chars + 1`` bytes are given as it is stored."""
    if isinstance(stored, str):
        return stored[:chars]
    raw = zlib.decompressobj().decompress(stored, 4 * chars) if is_packed(stored) else stored[1:]
    return raw.decode(errors="ignore")[:chars]  # the last character may be cut in two


def is_packed(stored: str | bytes) -> bool:
    """Whether a text is stored compressed."""
    return isinstance(stored, bytes) and stored[:1] != b"\0"
