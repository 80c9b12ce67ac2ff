"""What a backup consists of, as objects of a store.

An id begins with the moment at which the backup was made, in UTC: ``20260115-013000-000-…``. Ids sort by it.

- ``backups/<id>/manifest.json``: what the backup is, the SHA-256 of everything that it refers to, and a signature. It
  is written last: without it there is no backup.
- ``backups/<id>/index``: a line of JSON for each document (compressed by zlib), and where it lies.
- ``segments/<id>-<n>``: many sealed documents, one after the other. A backup refers to segments of those
  before it for all that has not changed since.
- ``packs/…``: cold objects, as cold storage has them.
- ``backups/<id>/trial.json``: the result of the last trial restore, signed as well.

A document holds frames: all rows that belong to one user (or to a tenant by itself), the audit
chain of one, or what belongs to everybody. The first are sealed under the owner's key, the
others under the store's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple

from holdfast.core.errors import ObjectDamagedError, OtherKeyringError, StoreTooNewError
from holdfast.core.values import iso, to_json, when
from holdfast.privacy.keys.signatures import SigningKey, SigningKeys, is_signature

FORMAT: Final = 1
FOLDER: Final = "backups/"
SEGMENTS: Final = "segments/"
PACKS: Final = "packs/"
#: Where the objects of backups lie.
FOLDERS: Final = (FOLDER, SEGMENTS, PACKS)
#: The key that what belongs to everybody is sealed under; no pseudonym is the hash of a text.
STORE_KEY: Final = hashlib.sha256(b"holdfast: what belongs to everybody").hexdigest()[:32]
_ID: Final = re.compile(r"\d{8}-\d{6}-\d{3}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_SEGMENT: Final = re.compile(rf"{SEGMENTS}([0-9a-z-]+)-(\d+)(?:r\d+)?")
_MANIFEST: Final = re.compile(rf"{FOLDER}([0-9a-z-]+)/manifest\.json")
Sort = Literal["user", "tenant", "chain", "common"]


class Doc(NamedTuple):
    """A document, and where it lies."""

    sort: Sort
    key: str
    """The id of the key that seals it: a user's pseudonym, or the store's key."""
    mark: str
    """A digest of the user's name under the store's key: whoever knows both finds the document by it."""
    id: str
    """Part of the name that it is sealed for, so that none can be taken for another."""
    signature: str
    """The same as before, if nothing that it holds has changed."""
    digest: str
    """The SHA-256 of what its frames say."""
    rows: dict[str, int]
    packs: list[str]
    """The cold objects that its records lie in."""
    segment: str = ""
    at: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """An object that a backup refers to."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is."""

    id: str
    created_at: int
    kinds: tuple[str, ...]
    engine: str
    software: str
    schema: tuple[int, int]
    """The number of the last migration of SQLite and of PostgreSQL."""
    subjects: int
    records: int
    counters: dict[str, int]
    index: Held
    segments: tuple[Held, ...]
    packs: tuple[Held, ...]
    ledger: int = 0
    """The last entry of the ledger of erasures that it was compared with."""
    ledger_hash: str = ""
    """The hash of that entry. A ledger with another hash there is another ledger."""
    written: int = 0
    """How many bytes were written for it."""
    left_out: tuple[str, ...] = ()
    """The pseudonyms of users who are not in it, because the master key does not open their keys."""
    parts: tuple[str, ...] = ()
    """What belongs to sessions, lies in other databases, and is not in it: those have backups of their own."""
    key: dict[str, str] = field(default_factory=dict)

    @property
    def objects(self) -> tuple[Held, ...]:
        """All that it refers to."""
        return (self.index, *self.segments, *self.packs)

    @property
    def size(self) -> int:
        """The bytes of all that it refers to."""
        return sum(held.bytes for held in self.objects)

    @property
    def amount(self) -> str:
        """How many memories it has, in words."""
        return f"{self.records:,} {'memory' if self.records == 1 else 'memories'}"

    @property
    def moment(self) -> str:
        """When it was made, as people read it."""
        return iso(self.created_at)


def name_backup(record_id: str, now: int) -> str:
    """The id of a backup that is made now, from an id that a record would have. People can read the moment in it, and
    ids stay in order.
    """
    return f"{when(now):%Y%m%d-%H%M%S}-{now // 1_000 % 1_000:03}-{record_id[14:]}"


def is_backup_id(text: object) -> bool:
    """Whether ``text`` has the form of a backup's id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def manifest_name(backup_id: str) -> str:
    """Where the manifest of a backup is."""
    return f"{FOLDER}{backup_id}/manifest.json"


def trial_name(backup_id: str) -> str:
    """Where the result of the last trial restore is."""
    return f"{FOLDER}{backup_id}/trial.json"


def index_name(backup_id: str, version: int = 0) -> str:
    """Where the index of a backup is; ``version`` is the last entry of the ledger, once it was rewritten."""
    return f"{FOLDER}{backup_id}/index{f'-{version}' if version else ''}"


def backup_of(name: str) -> str | None:
    """The id of the backup with a manifest of this name; ``None`` if it is no such name."""
    found = _MANIFEST.fullmatch(name)
    return found[1] if found and is_backup_id(found[1]) else None


def sealed_name(doc_id: str) -> str:
    """The name that a document is sealed for."""
    return f"backup document {doc_id}"


def segment_place(segment: str) -> tuple[str, int]:
    """The backup that a segment was written for, and its number there."""
    found = _SEGMENT.fullmatch(segment)
    if found is None:
        raise ObjectDamagedError(f"a backup refers to {segment!r}, which is no segment")
    return found[1], int(found[2])


# --- manifests ------------------------------------------------------------------------------------------------------


def sign_document(content: Mapping[str, Any], key: SigningKey) -> bytes:
    """A JSON object with a signature over everything else in it."""
    document = {**content, "key": {"id": key.id, "public": base64.b64encode(key.public).decode()}}
    signature = base64.b64encode(key.sign(_bytes_to_sign(document))).decode()
    return json.dumps({**document, "signature": signature}, indent=1, sort_keys=True).encode() + b"\n"


def read_signed(data: bytes, keys: SigningKeys, what: str) -> dict[str, Any]:
    """The content of a signed object; ``ObjectDamagedError`` unless each byte is as this store has signed it."""
    try:
        document: dict[str, Any] = json.loads(data)
        signature = base64.b64decode(document["signature"], validate=True)
        key_id = str(document["key"]["id"])
        whole = json.dumps(document, indent=1, sort_keys=True).encode() + b"\n" == data
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ObjectDamagedError(f"{what} is damaged: {problem}") from problem
    public = keys.public(key_id)
    if public is None:
        raise OtherKeyringError(
            f"{what} is signed with key {key_id}, which this store's keyring does not know; it is another store's, or "
            "was changed: name the keyring that belongs to it in HOLDFAST_STATE_URL"
        )
    if not whole or not is_signature(signature, _bytes_to_sign(document), public):
        raise ObjectDamagedError(f"{what} is damaged: it is not as it was signed")
    return document


def _bytes_to_sign(document: Mapping[str, Any]) -> bytes:
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def write_manifest(manifest: Manifest, key: SigningKey) -> bytes:
    """The bytes of a manifest."""
    return sign_document({**asdict(manifest), "holdfast_backup": FORMAT}, key)


def read_manifest(data: bytes, keys: SigningKeys, backup_id: str) -> Manifest:
    """The manifest of a backup; ``ObjectDamagedError`` unless it is as it was signed."""
    content = read_signed(data, keys, f"the manifest of backup {backup_id}")
    version = content.pop("holdfast_backup", None)
    if version != FORMAT:
        raise StoreTooNewError(f"backup {backup_id} has format {version}, and this version of Holdfast knows {FORMAT}")
    content.pop("signature")
    content["index"] = Held(**content["index"])
    for name in ("segments", "packs"):
        content[name] = [Held(**held) for held in content[name]]
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    manifest = Manifest(**content | lists)
    if manifest.id != backup_id:
        raise ObjectDamagedError(f"the manifest of backup {backup_id} is that of {manifest.id}")
    return manifest


# --- the index ------------------------------------------------------------------------------------------------------


def write_index(docs: Iterable[Doc]) -> bytes:
    """Documents as the index lists them."""
    return zlib.compress("".join(to_json(list(doc)) + "\n" for doc in docs).encode())


def read_index(data: bytes) -> Iterator[Doc]:
    """The documents that an index lists."""
    try:
        for line in zlib.decompress(data).splitlines():
            yield Doc(*json.loads(line))
    except (ValueError, TypeError, zlib.error, RecursionError) as problem:
        raise ObjectDamagedError(f"the index of a backup is damaged: {problem}") from problem


def count_records(docs: Iterable[Doc]) -> int:
    """How many records documents hold."""
    return sum(doc.rows.get("records", 0) for doc in docs)


def held_object(name: str, data: bytes) -> Held:
    """An object as a manifest refers to it."""
    return Held(name, len(data), hashlib.sha256(data).hexdigest())


# --- frames ---------------------------------------------------------------------------------------------------------
#
# A frame is rows of a table as bytes that describe themselves, in three parts, one after the other:
#
# 1. the line ``frame <bytes of part 2> <bytes of part 3>``;
# 2. JSON, compressed by zlib: ``table``, ``rows`` (how many), ``order`` (of the columns), ``columns`` (a list of values
#    for each column that is not bytes) and ``bytes`` (a list of lengths for each column that is; -1 if a value is
#    missing). Where all of a list are the same, it is ``{"same": value}``;
# 3. the bytes themselves, column after column.
#
# So any program that knows zlib and JSON can read one.

_HEAD: Final = re.compile(rb"frame (\d{1,20}) (\d{1,20})\n")
#: The quickest: text and numbers shrink to a third even so, and vectors do not shrink at all.
_LEVEL: Final = 1
_BINARY: Final = frozenset({"bytes", "packed"})
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
#: Rows in one frame, at most.
ROWS: Final = 4_096


class FrameDamagedError(ValueError):
    """The bytes are not frames, or not whole."""


class Frame(NamedTuple):
    """Some rows of a table."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def write_frame(
    table: str, columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]], digest: hashlib._Hash
) -> bytes:
    """Rows as a frame. ``columns`` has a column's sort; ``digest`` takes in what the frame says, not how it says it."""
    values: dict[str, Sequence[Any] | Mapping[str, Any]] = {}
    lengths: dict[str, Sequence[int] | Mapping[str, int]] = {}
    pieces: list[bytes] = []
    by_column = zip(*rows, strict=True) if rows else ((),) * len(columns)
    for (name, sort), column in zip(columns.items(), by_column, strict=True):
        if sort in _BINARY:
            lengths[name] = _shorten([-1 if value is None else len(value) for value in column])
            pieces += [value for value in column if value is not None]
        else:
            values[name] = _shorten(column)
    said = {"table": table, "rows": len(rows), "order": list(columns), "columns": values, "bytes": lengths}
    text, body = _encode(said).encode(), b"".join(pieces)
    digest.update(text)
    digest.update(body)
    packed = zlib.compress(text, _LEVEL)
    return b"frame %d %d\n" % (len(packed), len(body)) + packed + body


def _shorten(values: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
    """Values, or the one that all of them are: in most columns they are."""
    same = bool(values) and values.count(values[0]) == len(values)
    return {"same": values[0]} if same else values


def _lengthen(values: Any, count: int) -> Sequence[Any]:
    """The values again."""
    return [values["same"]] * count if isinstance(values, dict) else values


def read_frames(data: bytes) -> Iterator[Frame]:
    """The frames that follow each other in ``data``; ``FrameDamagedError`` unless they are whole to the end."""
    place = 0
    while place < len(data):
        head = _HEAD.match(data, place)
        if head is None:
            raise FrameDamagedError(f"there is no frame at byte {place}")
        middle = head.end() + int(head[1])
        stop = middle + int(head[2])
        if stop > len(data):
            raise FrameDamagedError(f"the frame at byte {place} is cut short")
        yield _parse_frame(data[head.end() : middle], data[middle:stop])
        place = stop


def _parse_frame(packed: bytes, body: bytes) -> Frame:
    try:
        said = json.loads(zlib.decompress(packed))
        order, count, values, lengths = tuple(said["order"]), said["rows"], said["columns"], said["bytes"]
        place = 0
        columns: dict[str, Sequence[Any]] = {name: _lengthen(one, count) for name, one in values.items()}
        for name in order:
            if name in lengths:
                columns[name], place = _cut(body, place, _lengthen(lengths[name], count))
        if place != len(body) or any(len(columns[name]) != count for name in order):
            raise ValueError("it has other values than it says")  # noqa: TRY301 - one message for all
        rows = list(zip(*(columns[name] for name in order), strict=True)) if count else []
        return Frame(str(said["table"]), order, rows)
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError) as problem:
        raise FrameDamagedError(f"a frame cannot be read: {problem}") from problem


def _cut(body: bytes, place: int, lengths: Iterable[int]) -> tuple[list[bytes | None], int]:
    """The values of one column, from a place on; the place after them."""
    values: list[bytes | None] = []
    for length in lengths:
        values.append(None if length < 0 else body[place : place + length])
        place += max(length, 0)
    return values, place
