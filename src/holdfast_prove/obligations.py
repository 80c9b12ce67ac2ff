"""What a system is held to once something was deleted. Each obligation has a twin: a record that nobody deleted, and
that must be found by the same means, so that an empty store proves nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast_prove.adapter import load
from holdfast_prove.elsewhere import Elsewhere
from holdfast_prove.traces import deleted_bytes, erased_user
from holdfast_prove.trial import BrokenError, Record, Trial, new_mark, new_user

HOLDS: Final = "holds"
FAILS: Final = "fails"
NOT_CLAIMED: Final = "not claimed"

_LIFE: Final = 2.0
"""How many seconds a record lives that is to expire."""
_MOMENT: Final = 0.001
_TAMPERED: Final = 24


class Result(NamedTuple):
    """What became of an obligation."""

    obligation: str
    outcome: str
    """``holds``, ``fails`` or ``not claimed``."""
    detail: str
    seconds: float

    @property
    def about(self) -> str:
        """The obligation in words."""
        return OBLIGATIONS[self.obligation].about


# --- at once, and later -----------------------------------------------------------------------------------------------


def search_at_once(trial: Trial) -> None:
    """A deleted record is out of search and cannot be read, at once."""
    gone, twin = trial.pair()
    trial.check_kept(gone, "before it is deleted")
    trial.store.delete(gone.user_id, gone.id)
    trial.check_gone(gone, "at once")
    trial.check_kept(twin)


def every_process(trial: Trial) -> None:
    """It is so in every other process that has the store open and has seen the record."""
    gone, twin = trial.pair()
    with Elsewhere(trial.name, trial.folder, inside=trial.folder) as other:
        trial.check_kept(gone, "in another process, before it is deleted", other)
        trial.store.delete(gone.user_id, gone.id)
        trial.check_gone(gone, "in another process", other)
        trial.check_kept(twin, "in another process", other)


def restart(trial: Trial) -> None:
    """It is so after a restart."""
    gone, twin = trial.pair()
    trial.store.delete(gone.user_id, gone.id)
    trial.store.reopen()
    trial.check_gone(gone, "after a restart")
    trial.check_kept(twin, "after a restart")


def reindex(trial: Trial) -> None:
    """It is so after the indexes were built anew."""
    gone, twin = trial.pair()
    trial.store.delete(gone.user_id, gone.id)
    trial.store.reindex()
    trial.check_gone(gone, "after the indexes were built anew")
    trial.check_kept(twin, "after the indexes were built anew")


def derived(trial: Trial) -> None:
    """What was derived from a deleted record is gone with it."""
    gone, twin = trial.pair()
    made = [trial.derive(source) for source in (gone, twin)]
    trial.check_kept(made[0], "before its source is deleted")
    trial.store.delete(gone.user_id, gone.id)
    trial.check_gone(made[0], "after its source was deleted")
    trial.check_kept(made[1])


# --- what brings things back ------------------------------------------------------------------------------------------


def fed_again(trial: Trial) -> None:
    """A text that was asked to stay out does not come back when it is fed again."""
    gone, twin = trial.pair()
    allowed = trial.add(gone.user_id)
    trial.store.keep_out(gone.user_id, gone.id)
    trial.store.delete(allowed.user_id, allowed.id)
    again = {}
    for record in (gone, allowed):
        with suppress(Exception):  # to refuse it is as good as to leave it out
            again[record] = record._replace(id=trial.store.add(record.user_id, record.text) or record.id)
    trial.check_gone(again.get(gone, gone), "after its text was fed again")
    if allowed not in again or not trial.ways(again[allowed]):
        raise BrokenError("a text that may come back does not come back either: add refuses everything")
    trial.check_kept(twin)


def restore(trial: Trial) -> None:
    """What was forgotten stays forgotten when an older backup is restored: an erased user, and a deleted record (one
    that was asked to stay out, where the system makes that difference).
    """
    erased, (gone, twin) = trial.add(new_user()), trial.pair()
    other = trial.add(new_user())
    backup = trial.store.backup()
    trial.store.erase_user(erased.user_id)
    (trial.store.keep_out if trial.has("keep_out") else trial.store.delete)(gone.user_id, gone.id)
    trial.store.restore(backup)
    for kept in (twin, other):
        trial.check_kept(kept, "after the restore")
    trial.check_gone(erased, "after the restore of a backup from before its user was erased")
    trial.check_gone(gone, "after the restore of a backup from before it was deleted")


def expiry(trial: Trial) -> None:
    """A record that expires is there until its moment, and gone at its moment; reading does not prolong its life."""
    user_id, mark = new_user(), new_mark()
    twin = trial.add(user_id)
    text = f"until then the code of {user_id} is {mark}"
    wait: Callable[[float], None] = getattr(trial.store, "wait", None) or _sleep
    ends = Record(user_id, trial.store.expire(user_id, text, _LIFE), text, mark)
    added = time.monotonic()
    trial.check_kept(ends, "before its moment")
    if wait is _sleep:
        _sleep(added + _LIFE + _MOMENT - time.monotonic())
    else:
        wait(_LIFE - _MOMENT)
        trial.check_kept(ends, "just before its moment")
        wait(_MOMENT)
    trial.check_gone(ends, "at its moment")
    trial.check_kept(twin)


def _sleep(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def correction(trial: Trial) -> None:
    """A value that was corrected never surfaces again; the new one does."""
    old, twin = trial.pair()
    mark = new_mark()
    text = old.text.replace(old.mark, mark)
    new = old._replace(id=trial.store.correct(old.user_id, old.id, text) or old.id, text=text, mark=mark)
    for when, step in (("at once", None), ("after a restart", "reopen"), ("after re-indexing", "reindex")):
        if step is None or trial.has(step):
            if step:
                getattr(trial.store, step)()
            for asked in (old.text, text, f"the spare key of {old.user_id}"):
                if any(old.mark in one for one in trial.store.search(old.user_id, asked)):
                    raise BrokenError(f"{when}, search still returns the old value")
            if old.mark in (trial.store.get(new.user_id, new.id) or ""):
                raise BrokenError(f"{when}, get still returns the old value")
            if not trial.ways(new):
                raise BrokenError(f"{when}, the new value is not found either")
    trial.check_kept(twin)


# --- what must stay ---------------------------------------------------------------------------------------------------


def hold(trial: Trial) -> None:
    """A held record is neither deleted nor erased with its user, and whoever tries is told; its twin can be deleted."""
    held, twin = trial.pair()
    trial.store.hold(held.user_id, held.id)
    for name, given in (("delete", (held.user_id, held.id)), ("erase_user", (held.user_id,))):
        try:
            getattr(trial.store, name)(*given)
        except Exception:  # noqa: BLE001 - each system refuses in its own words
            trial.check_kept(held, f"after {name} was refused")
        else:
            raise BrokenError(f"{name} raises no error for what is held")
    trial.store.delete(twin.user_id, twin.id)
    if len(trial.ways(twin)) > 1:
        raise BrokenError("what is not held cannot be deleted either")


def other_users(trial: Trial) -> None:
    """Other users keep all they have, whatever they are called, also where it is the same text."""
    user_id = new_user()
    gone = trial.add(user_id)
    names = [f"{user_id}1", f"{user_id}-1", user_id[:-1], f"x{user_id}", user_id.upper(), f"{user_id}_"]
    theirs = [Record(name, trial.store.add(name, gone.text), gone.text, gone.mark) for name in names]
    theirs += [trial.add(name) for name in names]
    for record in theirs:
        trial.check_kept(record, "before anybody is erased")
    trial.store.delete(user_id, gone.id)
    trial.add(user_id)
    trial.store.erase_user(user_id)
    for record in theirs:
        with suppress(BrokenError):
            trial.check_kept(record)
            continue
        raise BrokenError(f"user {record.user_id} lost a record when {user_id} was erased")


def proof(trial: Trial) -> None:
    """Whoever has the certificate and the public key can verify it, without the store; a changed one is found out."""
    gone, other = trial.add(new_user()), trial.add(new_user())
    (certificate, key), (_, _) = (_prove_erasure(trial, one) for one in (gone, other))
    with tempfile.TemporaryDirectory() as empty, Elsewhere(trial.name, inside=Path(empty), clean=True) as verifier:
        if not verifier.call("verify", certificate, key):
            raise BrokenError("the certificate is refused where only it and the public key are")
        accepted = [what for what, changed in _tamper(certificate) if _accepts(verifier, changed, key)]
        if accepted:
            listed = ", ".join(accepted[:12]) + (", …" if len(accepted) > 12 else "")
            raise BrokenError(f"a certificate is accepted though one of these was changed in it: {listed}")
        if _accepts(verifier, certificate, _other_key(key)):
            raise BrokenError("the certificate is accepted with another public key")


def _prove_erasure(trial: Trial, record: Record) -> tuple[bytes, bytes]:
    made = trial.store.erase_user(record.user_id)
    if made is None:
        raise BrokenError("erase_user returned nothing that proves it")
    certificate, key = made
    return certificate, key


def _accepts(verifier: Elsewhere, certificate: bytes, key: bytes) -> bool:
    try:
        return bool(verifier.call("verify", certificate, key))
    except RuntimeError:
        return False


def _tamper(certificate: bytes) -> Iterator[tuple[str, bytes]]:
    """What was changed, and the certificate with that change: each value of JSON; otherwise letters all over it."""
    try:
        document = json.loads(certificate)
    except ValueError:
        places = [at for at, byte in enumerate(certificate) if chr(byte).isalnum() and byte < 128]
        for at in places[:: max(1, len(places) // _TAMPERED)]:
            other = b"1" if certificate[at : at + 1] != b"1" else b"2"
            yield f"byte {at}", certificate[:at] + other + certificate[at + 1 :]
        return
    for path, holder, key in _leaves(document, ""):
        before = holder[key]
        holder[key] = _change(before)
        yield path, json.dumps(document).encode()
        holder[key] = before


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every value of a JSON document that is no list and no object: what it is called, and where it is."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        name = f"{path}.{key}" if path else str(key)
        if isinstance(inner, dict | list):
            yield from _leaves(inner, name)
        else:
            yield name, value, key


def _change(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "x" if not value else value[:-1] + ("y" if value[-1] == "x" else "x")


def _other_key(key: bytes) -> bytes:
    """A key that has the same form and is another."""
    at = next(at for at in range(len(key) // 2, len(key)) if chr(key[at]).isalnum())
    return key[:at] + (b"B" if key[at : at + 1] != b"B" else b"C") + key[at + 1 :]


# --- all of them ------------------------------------------------------------------------------------------------------


class Obligation(NamedTuple):
    """Something that a system is held to, if it has the methods for it."""

    check: Callable[[Trial], None]
    needs: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The obligation in words."""
        return " ".join((self.check.__doc__ or "").split())


OBLIGATIONS: Final = {
    "search": Obligation(search_at_once),
    "processes": Obligation(every_process, ("processes",)),
    "restart": Obligation(restart, ("reopen",)),
    "reindex": Obligation(reindex, ("reindex",)),
    "derived": Obligation(derived, ("derive",)),
    "bytes": Obligation(deleted_bytes),
    "erased": Obligation(erased_user),
    "again": Obligation(fed_again, ("keep_out",)),
    "expiry": Obligation(expiry, ("expire",)),
    "correction": Obligation(correction, ("correct",)),
    "hold": Obligation(hold, ("hold",)),
    "others": Obligation(other_users),
    "proof": Obligation(proof, ("verify",)),
    "restore": Obligation(restore, ("backup", "restore")),  # the last one: it goes on in another place
}


def prove(name: str, folder: Path) -> Iterator[Result]:
    """Hold a system (its name, or ``module:Class``) to every obligation, in stores below an empty folder."""
    kind = load(name)
    with ExitStack() as stack:
        trial: Trial | None = None
        for number, (obligation, one) in enumerate(OBLIGATIONS.items()):
            if trial is None:
                trial = _open(name, kind, folder / f"store-{number}", stack)
            result = _try(trial, obligation, one)
            if result.outcome == FAILS:
                trial = None  # what comes next is not to suffer from it
            yield result


def _open(name: str, kind: type[Any], folder: Path, stack: ExitStack) -> Trial:
    folder.mkdir(parents=True)
    try:
        trial = Trial(name, folder, kind(folder))
        stack.callback(_close, trial)
        mistake = trial.find_mistake()
    except Exception as problem:
        raise LookupError(f"{name} cannot be used: {type(problem).__name__}: {problem}") from problem
    if mistake:
        raise LookupError(f"{name} says nothing of its system yet: {mistake}")
    return trial


def _close(trial: Trial) -> None:
    with suppress(Exception):  # nothing depends on it any more
        if trial.has("close"):
            trial.store.close()


def _try(trial: Trial, name: str, one: Obligation) -> Result:
    begun = time.monotonic()
    missing = [method for method in one.needs if not trial.has(method)]
    claims = getattr(trial.store, "claims", None)
    claimed = claims is None or name in claims
    trial.notes.clear()
    if missing:
        return Result(name, NOT_CLAIMED, f"the adapter has no {' and no '.join(missing)}", 0.0)
    try:
        one.check(trial)
    except NotImplementedError as missing_part:
        outcome, detail = NOT_CLAIMED, str(missing_part)
    except BrokenError as broken:
        outcome, detail = (FAILS if claimed else NOT_CLAIMED), str(broken)
    except Exception as problem:  # noqa: BLE001 - whatever a system raises, it did not do what it was asked for
        outcome, detail = (FAILS if claimed else NOT_CLAIMED), f"{type(problem).__name__}: {problem}"
    else:
        outcome, detail = (HOLDS, "") if claimed else (NOT_CLAIMED, "it is so, though")
    detail = "; ".join(filter(None, [detail, *trial.notes]))
    return Result(name, outcome, detail, time.monotonic() - begun)
