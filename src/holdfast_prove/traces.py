"""Obligations about bytes: what was deleted is looked for in every place that the system has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from holdfast_prove import scan
from holdfast_prove.trial import BrokenError, Record, Trial, new_mark, new_user

_FILLERS: Final = 30


def deleted_bytes(trial: Trial) -> None:
    """No byte of a deleted record is left in any place: histories, caches, text indexes, vectors, logs."""
    user_id = new_user()
    gone = _store_variously(trial, user_id)
    twins = [trial.add(user_id), trial.add(user_id, many=400)]
    for record in [*gone, *twins]:
        trial.ways(record)  # what remembers queries and answers has them now
    trial.maintain()
    for record in gone:
        with suppress(Exception):  # what was derived from another is gone with it
            trial.store.delete(user_id, record.id)
    _check_bytes(trial, gone, twins, "delete")


def _store_variously(trial: Trial, user_id: str) -> list[Record]:
    """Records among others of the user: short, long enough to be compressed, corrected, and derived from another."""
    records = [trial.add(user_id), trial.add(user_id, many=400)]
    for _ in range(_FILLERS):
        trial.add(user_id)
    if trial.has("correct"):
        old = trial.add(user_id)
        new = new_mark()
        trial.store.correct(user_id, old.id, f"{user_id} has moved the key to {new}")
        records += [old, old._replace(text=new, mark=new)]
    if trial.has("derive"):
        records.insert(0, trial.derive(records[0]))
    return records


def erased_user(trial: Trial) -> None:
    """A user who was erased is not found, and no byte of what they had is left in any place."""
    user_id, other = new_user(), new_user()
    gone = _store_variously(trial, user_id)
    twins = [trial.add(other), trial.add(other, many=400)]
    if trial.has("spread"):
        for record in (gone[-1], twins[0]):
            trial.store.spread(record.user_id, record.text)
    trial.maintain()
    trial.store.erase_user(user_id)
    for record in gone:
        trial.check_gone(record, "after its user was erased")
    trial.reopen()
    for record in gone:
        trial.check_gone(record, "after its user was erased, and a restart")
    trial.check_kept(twins[0])
    _check_bytes(trial, gone, twins, "erase_user")


def _check_bytes(trial: Trial, gone: Sequence[Record], twins: Sequence[Record], verb: str) -> None:
    if trial.has("settle"):
        trial.store.settle(verb)
    places = list(trial.store.places())
    if not places:
        raise NotImplementedError("there is no place to look at")
    wanted = _wanted(trial, [*gone, *twins])
    for when in ("", ", after a restart"):
        found = scan.search(places, wanted)
        seen = {twin.mark: found.get(_core(twin.mark)) for twin in twins}
        if not all(seen.values()):
            raise BrokenError(f"the twin is found nowhere in the places{when}: to find nothing there proves nothing")
        left = [item for record in gone for item in found.get(_core(record.mark), {}).items()]
        if left:
            raise BrokenError(f"it is left{when} in {_list_places(left)}")
        if not trial.has("reopen"):
            break
        trial.store.reopen()
        places = list(trial.store.places())
    _note_other_places(trial, gone, verb)


def _list_places(left: Iterable[tuple[str, str]]) -> str:
    """Each file, table or key that has something, with where in it that is."""
    places: dict[str, dict[str, None]] = {}
    for name, form in left:
        place, _, inner = name.partition(" (")
        places.setdefault(place, {})[inner.removesuffix(")") or form] = None
    listed = [f"{place} ({', '.join(list(how)[:4])})" for place, how in sorted(places.items())]
    return ", ".join(listed[:6]) + (f", and {len(listed) - 6} more" if len(listed) > 6 else "")


def _core(mark: str) -> str:
    """The middle of a mark: a text index may have the beginning and the end of a word elsewhere."""
    return mark[4:16]


def _wanted(trial: Trial, records: Iterable[Record]) -> scan.Wanted:
    vectors = {_core(one.mark): trial.store.embed(one.text) for one in records} if trial.has("embed") else {}
    return scan.Wanted([_core(one.mark) for one in records], vectors)


def _note_other_places(trial: Trial, gone: Sequence[Record], verb: str) -> None:
    if trial.has("other_places"):
        marks = [_core(record.mark).encode() for record in gone]
        files = scan.read_plainly(trial.store.other_places())
        left = sorted(name for _, name, data in files if any(mark in data for mark in marks))
        where = ", ".join(left[:4]) + (", …" if len(left) > 4 else "")
        trial.notes.append(f"after {verb}, beyond its claim: " + (f"left in {where}" if left else "nothing is left"))
