"""The audit chain: what an entry's text is, how entries hang together, and what is wrong with a chain.

Each entry's hash covers its text and the hash of the one before it; the text holds everything that is known of the
entry (its chain's pseudonym, its places in the chain and in the store, moment, item, action and detail). A checkpoint
covers the heads of all chains and the checkpoint before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from retain.core.content import json_problem
from retain.core.errors import InvalidInputError, StorageError, told

#: What the first entry of a chain, and the first checkpoint, go on from.
GENESIS: Final = bytes(32)
#: The action of the entry that a chain gets where older ones are cut off.
CUT: Final = "audit.cut"
#: In findings, in place of a chain: what is wrong with the checkpoints, or with the number of all entries.
CHECKPOINTS: Final = "checkpoints"
ALL_CHAINS: Final = "all chains"

_canonical: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=dict
).encode
_CUT_ACTION: Final = f'"{CUT}"'.encode()


class Event(NamedTuple):
    """Something that happened, to be put on a chain; it must not name the user."""

    at: int
    action: str
    item: str | None
    """The record, session, rule, hold, agent or tool that it is about."""
    detail: dict[str, Any]
    """JSON values."""


class Entry(NamedTuple):
    """An event as it stands on a chain."""

    chain: str
    """The subject's pseudonym, in hex."""
    seq: int
    at: int
    action: str
    item: str | None
    detail: dict[str, Any]
    hash: str


class Finding(NamedTuple):
    """Something wrong with the audit chain."""

    chain: str
    """Whose chain, by pseudonym; or ``CHECKPOINTS``, or ``ALL_CHAINS``."""
    seq: int
    """The place in the chain (or the checkpoint's number); 0 where it has none."""
    problem: str


class Link(NamedTuple):
    """An entry as an engine keeps it; texts as bytes, since what was tampered with may not be text."""

    no: int
    seq: int
    at: int
    item: bytes | None
    text: bytes
    hash: bytes


class Chain(NamedTuple):
    """What an engine keeps of a whole chain: its last entry, and where it was cut."""

    seq: int
    hash: bytes
    floor: int
    floor_hash: bytes


class Head(NamedTuple):
    """How far a chain had come when a checkpoint sealed it."""

    subject: int
    alias: bytes
    seq: int
    hash: bytes


class Checkpoint(NamedTuple):
    """The heads of all chains at one moment, under one hash."""

    no: int
    at: int
    chains: int
    entries: int
    root: bytes
    hash: bytes


class Sizes(NamedTuple):
    """How much there is to verify."""

    chains: int
    entries: int
    checkpoints: int


# --- texts and hashes ---------------------------------------------------------------------------------------------


_PLAIN: Final = re.compile(r"[0-9A-Za-z-]+")
_PLAIN_BYTES: Final = re.compile(rb"[0-9A-Za-z-]+")
_sha256: Final = hashlib.sha256


def entry_text(alias: bytes, no: int, seq: int, event: Event, closing: str | None = None) -> str:
    """The canonical JSON text of an event at place ``seq`` of a chain, ``no`` of all chains.

    ``closing`` is what ``closing_of`` gives for it, where that is known: many events differ only in their item.
    """
    opening = _opening(alias, no, seq, event.at, event.item)
    return opening + (closing_of(event) if closing is None else closing)


def closing_of(event: Event) -> str:
    """How an entry's text ends: what was done, and the details."""
    try:
        text = f'{_canonical(event.action)},"detail":{_canonical(event.detail)}}}'
        if not text.isascii():
            text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        problem = json_problem(event.detail) or error
        raise InvalidInputError(f"the audit event {told(event.action)} is not JSON: {problem}") from None
    return text


def _opening(alias: bytes, no: int, seq: int, at: int, item: str | None) -> str:
    """How an entry's text begins: all that an engine keeps beside the text as well."""
    plain = item is not None and _PLAIN.fullmatch(item)  # an id, nearly always
    said = f'"{item}"' if plain else _canonical(item)
    return f'{{"chain":"{alias.hex()}","no":{no},"seq":{seq},"at":{at},"item":{said},"action":'


def link(previous: bytes, text: str | bytes) -> bytes:
    """The hash of a text that goes on from the hash before it."""
    return hashlib.sha256(previous + (text.encode() if isinstance(text, str) else text)).digest()


def parse_entry(text: bytes, entry_hash: bytes) -> Entry:
    """The entry that a stored text holds."""
    try:
        said = json.loads(text)
        fields = said["chain"], said["seq"], said["at"], said["action"], said["item"], said["detail"]
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            "an entry of the audit chain cannot be read: it was changed from outside; "
            "find out where with: retain audit verify"
        ) from None
    return Entry(*fields, entry_hash.hex())


def cut_event(at: int, *, count: int, upto: int, upto_hash: bytes) -> Event:
    """The event that allows a chain to begin after ``upto``."""
    return Event(at, CUT, None, {"count": count, "upto": upto, "hash": upto_hash.hex()})


# --- one chain ----------------------------------------------------------------------------------------------------


class Walk:
    """A walk along a chain, entry by entry, from the place where it begins."""

    def __init__(self, alias: bytes, floor: int, floor_hash: bytes) -> None:
        self._alias = alias
        self._start = b'{"chain":"%s","no":' % alias.hex().encode()
        self.seq = floor
        self.hash = floor_hash
        self.cut: tuple[int, str] = (0, GENESIS.hex())
        """Where the chain begins according to the entries seen: the last place that was cut off, and its hash."""

    def step(self, entry: Link) -> str | None:
        """Go on to ``entry``; what is wrong with it, or before it."""
        no, seq, at, item, text, hashed = entry
        before, previous = self.seq, self.hash
        self.seq, self.hash = seq, hashed
        if seq != before + 1:
            return _out_of_place(before, seq)
        if item is not None and _PLAIN_BYTES.fullmatch(item):
            opening = b'%s%d,"seq":%d,"at":%d,"item":"%s","action":' % (self._start, no, seq, at, item)
        else:
            said = None if item is None else item.decode(errors="surrogateescape")
            opening = _opening(self._alias, no, seq, at, said).encode(errors="surrogateescape")
        if not text.startswith(opening):
            return "its columns do not say what its text says: one of them was changed, or it is not of this chain"
        if _sha256(previous + text).digest() != hashed:
            return "does not go on from the entry before it: one of the two was changed"
        if text.startswith(_CUT_ACTION, len(opening)):
            try:
                detail = json.loads(text)["detail"]
                self.cut = detail["upto"], detail["hash"]
            except (ValueError, KeyError, TypeError):
                return "says that the chain was cut, but not where"
        return None


def _out_of_place(before: int, seq: int) -> str:
    if seq <= before:
        return "was added before the place where the chain begins"
    return "is missing" if seq == before + 2 else f"is missing, with all up to {seq - 1}"


def check_chain(alias: bytes, chain: Chain, sealed: Head | None, entries: Iterable[Link]) -> Iterator[Finding]:
    """Everything that is wrong with a chain: with its entries, its head, its beginning, and what was sealed of it."""
    name = alias.hex()
    walk = Walk(alias, chain.floor, chain.floor_hash)
    at_head = sealed is None or (sealed.seq == chain.floor and sealed.hash == chain.floor_hash)
    for entry in entries:
        before = walk.seq
        if problem := walk.step(entry):
            yield Finding(name, before + 1 if entry.seq > before else entry.seq, problem)
        if sealed is not None and entry.seq == sealed.seq:
            at_head = entry.hash == sealed.hash
    if walk.seq < chain.seq:
        yield Finding(name, walk.seq + 1, f"is missing, as is all that followed up to the chain's end at {chain.seq}")
    elif walk.seq > chain.seq:
        yield Finding(name, chain.seq + 1, f"was added: the chain ends at {chain.seq}")
    elif walk.hash != chain.hash:
        yield Finding(name, chain.seq, "has another hash than the chain's end")
    if walk.cut != (chain.floor, chain.floor_hash.hex()):
        yield Finding(name, chain.floor, f"the chain begins after {chain.floor}, but was cut after {walk.cut[0]}")
    if sealed is not None and not at_head:
        yield Finding(name, sealed.seq, "is not the entry that was sealed by a checkpoint")
    if sealed is not None and sealed.alias != alias:
        yield Finding(name, sealed.seq, f"was sealed under another pseudonym, {sealed.alias.hex()}")


# --- checkpoints --------------------------------------------------------------------------------------------------


class Seal:
    """What a checkpoint says of sealed heads, taken in one by one in the order of their subjects."""

    def __init__(self) -> None:
        self.chains = 0
        self.entries = 0
        self._root = hashlib.sha256()

    def add(self, head: Head) -> None:
        """Take in one head."""
        self.chains += 1
        self.entries += head.seq
        self._root.update(f"{head.subject}:{head.alias.hex()}:{head.seq}:{head.hash.hex()}\n".encode())

    @property
    def root(self) -> bytes:
        """The hash over all heads so far."""
        return self._root.digest()

    def agrees(self, last: Checkpoint | None) -> bool:
        """Whether these heads are the ones that the last checkpoint sealed (none where there is no checkpoint)."""
        if last is None:
            return self.chains == 0
        return (self.chains, self.entries, self.root) == (last.chains, last.entries, last.root)

    def checkpoint(self, previous: Checkpoint | None, at: int) -> Checkpoint:
        """The checkpoint over these heads that goes on from the one before."""
        made = Checkpoint(previous.no + 1 if previous else 1, at, self.chains, self.entries, self.root, b"")
        return made._replace(hash=checkpoint_hash(previous.hash if previous else GENESIS, made))


def checkpoint_hash(previous: bytes, made: Checkpoint) -> bytes:
    """The hash of a checkpoint that goes on from the hash of the one before it."""
    said = {"no": made.no, "at": made.at, "chains": made.chains, "entries": made.entries, "root": made.root.hex()}
    return link(previous, _canonical(said))


def check_checkpoints(checkpoints: Iterable[Checkpoint], sealed: Seal, written: int | None) -> Iterator[Finding]:
    """Everything that is wrong with the checkpoints, given the heads as they are sealed now and how many
    checkpoints were ever ``written``, where that is known.
    """
    last: Checkpoint | None = None
    for one in checkpoints:
        no, previous = (last.no, last.hash) if last else (0, GENESIS)
        if one.no != no + 1:
            yield Finding(CHECKPOINTS, no + 1, _out_of_place(no, one.no))
        elif checkpoint_hash(previous, one) != one.hash:
            yield Finding(CHECKPOINTS, one.no, "does not go on from the one before it: one of the two was changed")
        last = one
    found = last.no if last else 0
    if written is not None and found != written:
        yield Finding(CHECKPOINTS, found, f"is the last one, but {written} were written")
    if not sealed.agrees(last):
        yield Finding(CHECKPOINTS, found, "sealed other heads than those that are kept as sealed")
