"""Packs: the full content of many records of one subject as one object that describes and proves itself.

A pack is four parts, one after the other:

1. the line ``holdfast-pack 1``: what it is, and the version of its format;
2. a line of JSON: ``codec``, ``count``, ``subject`` (the alias), ``sha256`` (of the plain payload);
3. the payload: JSON Lines, an id and a document each, as the codec has it;
4. 32 bytes: the SHA-256 of everything before them.

Parts 1 and 4 are the same in every version, so that damage is told from a format that is merely newer.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.values import to_json

#: About how much plain text one object holds.
PACK_BYTES: Final = 1024 * 1024
VERSION: Final = 1
CODEC: Final = "zlib"

#: Half the time of zlib's own choice, for an eighth more bytes.
_LEVEL: Final = 3
_MAGIC: Final = b"holdfast-pack "
_DIGEST_BYTES: Final = 32
_ALIAS: Final = re.compile(r"[0-9a-f]{2,128}")
_PACK_ID: Final = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,62}[0-9a-z])?")
_NAME: Final = re.compile(rf"archive/(?P<first>[0-9a-f]{{2}})/(?P=first)[0-9a-f]{{0,126}}/{_PACK_ID.pattern}\.pack")


class PackDamagedError(ValueError):
    """The bytes are not a pack, or not as they were sealed."""


class PackTooNewError(ValueError):
    """The pack is whole, but in a format of a newer version of Holdfast."""


class Packed(NamedTuple):
    """One record in a pack."""

    id: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Header:
    """What a pack says of itself."""

    codec: str
    count: int
    subject: str
    sha256: str


def seal_pack(subject_alias: str, items: Sequence[Packed | bytes]) -> bytes:
    """The pack of a subject's records, or of their lines; the same records give the same bytes."""
    plain = b"".join(item if isinstance(item, bytes) else _line(item) for item in items)
    header = Header(CODEC, len(items), subject_alias, hashlib.sha256(plain).hexdigest())
    body = b"%s%d\n%s\n%s" % (_MAGIC, VERSION, to_json(asdict(header)).encode(), zlib.compress(plain, _LEVEL))
    return body + pack_digest(body)


def open_pack(data: bytes) -> list[Packed]:
    """The records of a pack in their order; ``PackDamagedError`` unless each byte is as it was sealed.

    ``PackTooNewError`` if it is whole, but not in a format that this version knows.
    """
    header, payload = _split(data)
    try:
        plain = zlib.decompress(payload)
    except zlib.error as problem:
        raise PackDamagedError(f"the pack's content cannot be decompressed: {problem}") from problem
    if hashlib.sha256(plain).hexdigest() != header.sha256:
        raise PackDamagedError("the pack's content is not what its header says it is")
    lines = plain.split(b"\n")
    if lines.pop() or len(lines) != header.count:
        raise PackDamagedError(f"the pack holds {len(lines)} records, its header says {header.count}")
    try:  # all at once takes half the time of one after the other
        found = json.loads(b"[%s]" % b",".join(lines))
        return [_check_packed(each["id"], each["document"]) for each in found]
    except (ValueError, KeyError, TypeError) as problem:
        raise PackDamagedError(f"the pack's content is not a record in each line: {problem}") from problem


def read_header(data: bytes) -> Header:
    """What a pack says of itself (whose records it holds, how many); raises as ``open_pack`` does."""
    return _split(data)[0]


def pack_digest(data: bytes) -> bytes:
    """The SHA-256 of a pack: what to keep beside its name, to know it again."""
    return hashlib.sha256(data).digest()


def pack_name(alias_hex: str, pack_id: str) -> str:
    """Where a subject's pack lies in the object store."""
    if not _PACK_ID.fullmatch(pack_id):
        raise InvalidInputError(f"a pack's id is lower-case letters, digits and '-', not {quote(pack_id)}")
    return f"{pack_folder(alias_hex)}{pack_id}.pack"


def pack_folder(alias_hex: str) -> str:
    """The beginning of the names of all packs of a subject."""
    if not _ALIAS.fullmatch(alias_hex):
        raise InvalidInputError(f"a subject's alias is lower-case hexadecimal text, not {quote(alias_hex)}")
    return f"archive/{alias_hex[:2]}/{alias_hex}/"


def is_pack_name(name: str) -> bool:
    """Whether a name is one that ``pack_name`` gives."""
    return _NAME.fullmatch(name) is not None


def groups(sizes: Iterable[int], most: int = PACK_BYTES) -> Iterator[slice]:
    """Which records go together, in their order: up to ``most`` in a group; a larger one has a group of its own."""
    if most < 1:
        raise InvalidInputError(f"a group holds at least 1 byte, not {most}")
    start = end = held = 0
    for size in sizes:
        if end > start and held + size > most:
            yield slice(start, end)
            start, held = end, 0
        end += 1
        held += size
    if end > start:
        yield slice(start, end)


def to_line(record_id: str, kind: str, content: str, body: str | None, metadata: str) -> bytes:
    """The line of a record whose ``body`` and ``metadata`` are JSON already, as it is stored."""
    name, known_as, text = map(encode_basestring, (record_id, kind, content))
    told = f'"kind":{known_as},"content":{text},"body":{body or "null"},"metadata":{metadata}'
    return f'{{"id":{name},"document":{{{told}}}}}\n'.encode()


def _line(item: Packed) -> bytes:
    record = {"id": item.id, "document": item.document}
    try:
        return to_json(record).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return json.dumps(record, allow_nan=False, separators=(",", ":"), default=dict).encode() + b"\n"


def _check_packed(record_id: object, document: object) -> Packed:
    if not (isinstance(record_id, str) and isinstance(document, dict)):
        raise TypeError(f"{quote(record_id)} and {quote(document)} are not an id and an object")
    return Packed(record_id, document)


def _split(data: bytes) -> tuple[Header, bytes]:
    """Header and payload of a pack that is whole and in a format that is known."""
    if not data.startswith(_MAGIC):
        raise PackDamagedError(f"it is not a pack, or its beginning is damaged: {quote(data[:20])}")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if pack_digest(body) != digest:
        raise PackDamagedError("the pack is damaged: its bytes do not have the digest it ends with")
    first, _, rest = body.partition(b"\n")
    version = first.removeprefix(_MAGIC)
    if version != b"%d" % VERSION:
        raise PackTooNewError(_too_new("version", version.decode(errors="replace"), str(VERSION)))
    second, _, payload = rest.partition(b"\n")
    header = _header(second)
    if header.codec != CODEC:
        raise PackTooNewError(_too_new("codec", header.codec, CODEC))
    return header, payload


def _header(line: bytes) -> Header:
    try:
        found = json.loads(line)
        header = Header(*(found[field.name] for field in fields(Header)))
    except (ValueError, KeyError, TypeError) as problem:
        raise PackDamagedError(f"the pack's header is not understood: {quote(line)}") from problem
    if list(map(type, astuple(header))) != [str, int, str, str]:
        raise PackDamagedError(f"the pack's header is not understood: {quote(line)}")
    return header


def _too_new(what: str, found: str, known: str) -> str:
    return f"the pack has {what} {quote(found)}, this version of Holdfast knows {known!r}"
