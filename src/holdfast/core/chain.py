"""The audit chain: what an entry's text is, how entries hang together, and what is wrong with a chain.

Each entry's hash covers its text and the hash of the one before it; the text holds everything that is known of the
entry (its chain's pseudonym, its places in the chain and in the store, moment, item, action, actor, detail). Events in
a row that differ only in their item are one entry: its text lists the items, and says the rest once. A checkpoint
covers the heads of all chains and the checkpoint before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.core.audit import CHECKPOINTS, Action, AuditEntry, Checkpoint, Event, Finding
from holdfast.core.errors import InvalidInputError, StorageError, quote
from holdfast.core.values import json_problem

#: What the first entry of a chain, and the first checkpoint, go on from.
GENESIS: Final = bytes(32)

_canonical: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=dict
).encode
_CUT_ACTION: Final = f'"{Action.AUDIT_CUT}"'.encode()
#: One entry is about so many items at most.
MOST_ITEMS: Final = 1_000


class Draft(NamedTuple):
    """What one entry of a chain is to say: an event, and all the items that it is about."""

    event: Event
    """With the first of the items."""
    items: Sequence[str]
    """Empty where it is about no item."""

    @property
    def ends(self) -> tuple[str | None, str | None]:
        """The item, and no other; of several, the first and the last in order, so that each can be looked up."""
        return (min(self.items), max(self.items)) if len(self.items) > 1 else (self.event.item, None)


class Link(NamedTuple):
    """An entry as an engine keeps it; texts as bytes, since what was tampered with may not be text."""

    no: int
    seq: int
    at: int
    item: bytes | None
    """The item that it is about; of several, the first in order."""
    last_item: bytes | None
    """Where it is about several items: the last in order."""
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


# --- texts and hashes ---------------------------------------------------------------------------------------------


_PLAIN: Final = re.compile(r"[0-9A-Za-z-]+")
_PLAIN_BYTES: Final = re.compile(rb"[0-9A-Za-z-]+")
_sha256: Final = hashlib.sha256


def drafts(events: Iterable[Event]) -> Iterator[Draft]:
    """The entries that events become, in their order. Events in a row with the same moment, action and details object
    share one entry.
    """
    event: Event | None = None
    items: list[str] = []
    for one in events:
        if event is not None and _is_alike(event, one) and one.item is not None and len(items) < MOST_ITEMS:
            items.append(one.item)
            continue
        if event is not None:
            yield Draft(event, items)
        event, items = one, [] if one.item is None else [one.item]
    if event is not None:
        yield Draft(event, items)


def _is_alike(event: Event, other: Event) -> bool:
    """Whether two events differ at most in the item, and both have one."""
    same = event.at == other.at and event.action == other.action and event.detail is other.detail
    return same and event.item is not None


def entry_text(alias: bytes, no: int, seq: int, draft: Draft, closing: str) -> str:
    """The canonical JSON text of a draft at place ``seq`` of a chain, ``no`` of all chains.

    ``closing`` is what ``closing_of`` gives for its event.
    """
    event, items = draft
    said = _canonical(list(items)) if len(items) > 1 else _item_text(event.item)
    return _opening(alias, no, seq, event.at) + said + _ACTION + closing


def closing_of(event: Event, actor: str) -> str:
    """How an entry's text ends: what was done, by whom, and the details. An action that is none is refused."""
    if not isinstance(event.action, Action):
        raise InvalidInputError(f"there is no audit action {quote(event.action)}; add it to Action in core/audit.py")
    try:
        text = f'{_canonical(event.action)},"actor":{_canonical(actor)},"detail":{_canonical(event.detail)}}}'
        if not text.isascii():
            text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        problem = json_problem(event.detail) or error
        raise InvalidInputError(f"the audit event {quote(event.action)} is not JSON: {problem}") from None
    return text


_ACTION: Final = ',"action":'


def _opening(alias: bytes, no: int, seq: int, at: int) -> str:
    """How an entry's text begins: with what an engine keeps beside the text as well. The item follows."""
    return f'{{"chain":"{alias.hex()}","no":{no},"seq":{seq},"at":{at},"item":'


def _item_text(item: str | None) -> str:
    plain = item is not None and _PLAIN.fullmatch(item)  # an id, nearly always
    return f'"{item}"' if plain else _canonical(item)


def link(previous: bytes, text: str | bytes) -> bytes:
    """The hash of a text that goes on from the hash before it."""
    return hashlib.sha256(previous + (text.encode() if isinstance(text, str) else text)).digest()


def parse_entries(text: bytes, entry_hash: bytes) -> list[AuditEntry]:
    """The events that a stored text holds: one for each item that it is about."""
    try:
        said = json.loads(text)
        item = said["item"]
        before = (said["chain"], said["seq"], said["at"], said["action"], said["actor"])
        after = (said["detail"], entry_hash.hex())
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            "an entry of the audit chain cannot be read: it was changed from outside; "
            "find out where with: holdfast audit verify"
        ) from None
    return [AuditEntry(*before, one, *after) for one in (item if isinstance(item, list) else [item])]


def cut_event(at: int, *, count: int, upto: int, upto_hash: bytes) -> Event:
    """The event that allows a chain to begin after ``upto``."""
    return Event(at, Action.AUDIT_CUT, None, {"count": count, "upto": upto, "hash": upto_hash.hex()})


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
        _, seq, _, _, _, text, hashed = entry
        before, previous = self.seq, self.hash
        self.seq, self.hash = seq, hashed
        if seq != before + 1:
            return _out_of_place(before, seq)
        opening = self._opening_of(entry)
        if opening is None or not text.startswith(opening):
            return "its columns do not say what its text says: one of them was changed, or it is not of this chain"
        if _sha256(previous + text).digest() != hashed:
            return "does not go on from the entry before it: one of the two was changed"
        if entry.item is None and text.startswith(_CUT_ACTION, len(opening)):
            try:
                detail = json.loads(text)["detail"]
                self.cut = detail["upto"], detail["hash"]
            except (ValueError, KeyError, TypeError):
                return "says that the chain was cut, but not where"
        return None

    def _opening_of(self, entry: Link) -> bytes | None:
        """How the text of an entry begins if it says what its columns say; ``None`` if it cannot."""
        start = b'%s%d,"seq":%d,"at":%d,"item":' % (self._start, entry.no, entry.seq, entry.at)
        if entry.last_item is not None:
            return start + b"[" if _spans(entry) else None
        if entry.item is not None and _PLAIN_BYTES.fullmatch(entry.item):
            return b'%s"%s"%s' % (start, entry.item, _ACTION.encode())
        item = None if entry.item is None else entry.item.decode(errors="surrogateescape")
        return start + f"{_item_text(item)}{_ACTION}".encode(errors="surrogateescape")


def _spans(entry: Link) -> bool:
    """Whether the items in the text of an entry begin and end, in order, as its columns say."""
    try:
        items = json.loads(entry.text)["item"]
        ends = min(items).encode(), max(items).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return ends == (entry.item, entry.last_item)


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
