"""What governs memories: the clock, the schedule, what is overdue, the audit chain, what is in cold storage.

These checks read the store's own tables, whatever its engine. They run no job and write nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Final

from holdfast.backups.catalog import describe_last
from holdfast.core import errors
from holdfast.core.values import DAY, describe_duration, iso, moment
from holdfast.health.checks import ADVICE, Check, advice_of, advise, check, fail, ok, warn
from holdfast.lifecycle.audit import compare_note
from holdfast.lifecycle.clock import ClockTrust, ClockWatch
from holdfast.lifecycle.part_registry import OpenParts
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.schedule import GRACE, JOBS, Job, Schedule
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.lifecycle.sweeping.due import find_all_waiting, find_overdue
from holdfast.ports.coordination import IdentityStore
from holdfast.ports.objects import Pack, PackStore
from holdfast.ports.records import AuditStore
from holdfast.ports.stores import Tenant
from holdfast.privacy.keys.keyring import SIGNING, Keyring
from holdfast.privacy.keys.master import SETTING, master_file
from holdfast.privacy.ledger import Ledger
from holdfast.privacy.sealed_objects import SealedObjects
from holdfast.privacy.store_state import StoreState
from holdfast.settings import Settings
from holdfast.storage.objects import open_cold, open_keeping
from holdfast.storage.objects.urls import read_place
from holdfast.storage.relational.coordination import new_holder
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import store_url, stores_over
from holdfast.store import open_catalog, system_clock

#: So many keys are opened: one master key wraps them all, and ``holdfast key check`` looks at each.
_FEW: Final = 3
#: Of so many users one cold object is opened: who moved to another home, or lost a disk, has lost more than one.
_SOME: Final = 10


@check("master_key", ADVICE["state"])
def check_master_key(settings: Settings) -> Check | str | None:
    """That the master key opens some of the keys that it should; nothing is said where there are none yet."""
    state = open_keeping(settings)
    keyring = Keyring(state, settings.master_key, settings.master_path())
    some = list(islice(keyring.list_keys(), _FEW))
    try:
        for key in some:
            with suppress(errors.KeyMissingError, errors.ObjectMissingError):  # destroyed just now
                if key.purpose == "data":
                    keyring.get(key.id)
                else:
                    keyring.unwrap(key.id, state.get(f"{SIGNING}{key.id}.json"))
    except errors.ObjectDamagedError as problem:
        return fail(problem, ADVICE["key_damaged"])
    except errors.HoldfastError as problem:
        file = master_file(settings.master_key, settings.master_path())
        copied = f"put the file {file} back from where you keep a copy, or set {SETTING}"
        return fail(problem, f"give the right one in {SETTING}" if file is None else copied)
    return f"it opens the keys in {state.url}" if some else None


@check("cold_memories", ADVICE["cold_memories"])
def check_cold(packs: PackStore, settings: Settings) -> Check | str | None:
    """That memories in cold storage can be read: some are. Nothing is said where there are none."""
    try:
        oldest = packs.oldest(_SOME)
    except errors.StorageError as problem:
        return fail(problem, advice_of(problem))
    opened = _open_packs(packs, oldest, settings)
    what = "object was" if opened == 1 else "objects were"
    return f"they can be read ({opened:,} {what} opened)" if opened else None


def _open_packs(packs: PackStore, some: Iterable[Pack], settings: Settings) -> int:
    """Open the oldest cold object of some users; how many were. What is being erased, or went just now, need not."""
    state = open_keeping(settings)
    keyring = Keyring(state, settings.master_key, settings.master_path())
    ledger = Ledger(state)
    objects = SealedObjects(open_cold(settings), keyring, lambda: 0, lambda alias: ledger.find(alias) is not None)
    opened = 0
    for pack in some:
        try:
            objects.get(pack.name)
            opened += 1
        except errors.ObjectMissingError:
            owner = PurePosixPath(pack.name).parent.name
            if packs.get(pack.subject, pack.number) is not None and ledger.find(owner) is None:
                raise
    return opened


def find_loss(settings: Settings) -> Check | None:
    """What is wrong where a store is not there and was there before."""
    try:
        _state_of(settings).check_absent()
    except errors.HoldfastError as problem:
        return fail(problem, ADVICE["store_lost"])
    return None


@check("identity")
def check_identity(identity: IdentityStore, settings: Settings) -> Check | None:
    """That a store is no empty one in the place of another."""
    try:
        _state_of(settings).check_present(identity)
    except errors.StoreLostError as problem:
        return fail(problem, ADVICE["store_lost"])
    except errors.HoldfastError:  # the check of the keyring reports it
        return None
    return None


@check("keyring", lambda problem: ADVICE["keyring"] if isinstance(problem, errors.KeyringError) else ADVICE["state"])
def check_keyring(identity: IdentityStore, settings: Settings) -> None:
    """That a store belongs to the keyring that is there."""
    keyring = Keyring(open_keeping(settings), settings.master_key, settings.master_path())
    _state_of(settings).check_keyring(identity, keyring)


@check("state")
def check_state_place(settings: Settings) -> Check | None:
    """That a shared store does not have its keys where other machines cannot find them."""
    try:
        place = read_place(settings.keeping_url())
    except errors.HoldfastError:  # the checks that read it report it
        return None
    if place.scheme == "file":
        found = f"keys and the ledger of erasures are in {place.folder}, a folder that other machines may not see"
        return warn(found, ADVICE["state_shared"])
    if not settings.master_key:
        found = f"the master key is in {settings.master_path()}, a file that other machines do not have"
        return warn(found, "give every machine the same HOLDFAST_MASTER_KEY")
    return None


def _state_of(settings: Settings) -> StoreState:
    last_backup = partial(describe_last, partial(open_catalog, settings))
    return StoreState(open_keeping(settings), store_url(settings), last_backup)


#: Cold storage is filled weekly: what has waited for longer was forgotten by more than one job.
_LATE: Final = 8 * DAY


def check_lifecycle(database: Database, settings: Settings) -> Iterator[Check]:
    """The checks, on a store that is open."""
    now = moment(system_clock())
    parts = OpenParts(settings.url)
    store = Tenant(stores_over(database).make, name="default", now=lambda: now, new_id=str, open_part=parts.open)
    yield from _check_clock(store, settings.clock_tolerance())
    yield from _check_schedule(store, settings.timezone)
    yield from _check_overdue(store)
    with closing(parts):
        yield from _check_parts(store)
    yield from _check_erasures(settings)
    yield from _check_audit(store.audit, settings)
    yield from check_identity(store.identity, settings)
    yield from check_keyring(store.identity, settings)
    yield from check_cold(store.packs, settings)


@check("clock", advise("set the machine's clock, then sweep with --confirm"))
def _check_clock(store: Tenant, tolerance: int) -> Check:
    """Whether the clock is where the store has seen the time go; what waits, and since when, where it is far ahead."""
    now, seen = store.now(), store.clock_store.seen()
    ClockWatch(now=now).check(now, seen=None if seen is None else seen.at)
    belief = ClockTrust(store.clock_store, store.now, tolerance=tolerance, watched=True).look(now)
    if belief.is_whole:
        known = "nothing was written yet" if seen is None else f"the store has seen {iso(seen.at)[:19]}"
        return ok(f"{iso(now)[:19]} ({known})")
    waiting = find_all_waiting(store, now, belief)
    count = 0 if waiting is None else waiting.records
    since = "" if seen is None or seen.sighted is None else f" since {iso(seen.sighted)[:19]}"
    waits = f"{count:,} to be deleted or cleared for good: they wait{since}" if count else "nothing waits for that"
    return warn(f"{belief.explain().split(';')[0]}; {waits}", ADVICE["clock"])


@check("schedule", advise("correct HOLDFAST_TIMEZONE"))
def _check_schedule(store: Tenant, timezone: str) -> Check:
    leadership = Leadership(store.leases, wall=lambda: time.time_ns() // 1_000, holder=new_holder())
    nothing: Mapping[Job, Callable[[], dict[str, Any]]] = dict.fromkeys(JOBS, dict)  # looked at, never run
    schedule = Schedule(store.jobs, leadership, nothing, clock=system_clock, timezone=timezone)
    rows, problems = schedule.list(), schedule.problems()
    idle = not any(row["last_slot"] or row["failed"] or row["clock_set_back"] for row in rows)
    # Where nobody ever looked after the jobs, slots that pass are no harm until there is something to be done.
    if problems and not (idle and max(find_overdue(store.dues, store.now()).values(), default=0) <= GRACE):
        return fail("\n".join(problems), f"see holdfast schedule; {ADVICE['schedule']}")
    if idle:
        return warn("no job has ever run by itself: nothing is swept unless somebody does it", ADVICE["schedule"])
    disabled = [row["name"] for row in rows if not row["enabled"]]
    coming = min((row for row in rows if row["next_run"]), key=lambda row: str(row["next_run"]), default=None)
    found = "nothing will run" if coming is None else f"{coming['name']} runs next, at {str(coming['next_run'])[:16]}"
    if disabled:
        fix = f"if that is not meant: holdfast schedule set {disabled[0]} --enable"
        return warn(f"{found}; disabled: {', '.join(disabled)}", fix)
    return ok(found)


@check("overdue", advise("look at holdfast sweep --dry-run"))
def _check_overdue(store: Tenant) -> Check:
    """What should have been swept long ago; what is on hold may be among it."""
    waiting = find_overdue(store.dues, store.now())
    if not waiting:
        return ok("nothing is waiting to be swept")
    kind = max(waiting, key=lambda name: waiting[name])
    found = f"something of {', '.join(waiting)} is due, {kind} for {_roughly(waiting[kind])}"
    if waiting[kind] <= _LATE:
        return ok(found)
    return warn(found, ADVICE["overdue"])


@check("parts", advise(ADVICE["parts"]))
def _check_parts(store: Tenant) -> Check | None:
    """That what belongs to sessions elsewhere can be reached, and follows them; nothing is said where there is none."""
    found: dict[str, list[str]] = {}
    for tenant in store.dues.tenants():
        parts = SessionParts(replace(store, name=tenant))
        found |= parts.ask(lambda part: part.problems())
        for name, late in parts.find_late().items():
            found[name].append(f"{name}: runs wrote {len(late):,} sessions of users after these were erased")
    if not found:
        return None
    problems = [problem for some in found.values() for problem in some]
    if behind := store.history.count_behind():
        problems.append(f"what belongs to {behind:,} sessions has not followed them yet")
    if problems:
        return warn("\n".join(problems), ADVICE["part_problems"])
    return ok(f"{', '.join(sorted(found))}: can be reached, and all sessions are followed")


@check("erasures", "correct HOLDFAST_STATE_URL, or the permissions there")
def _check_erasures(settings: Settings) -> Check | None:
    """Those that have begun and that a hold keeps; nothing is said where there are none."""
    deferred = Ledger(open_keeping(settings)).list_deferred()
    return warn(f"begun, and kept by a hold: {', '.join(deferred)}", ADVICE["erasures"]) if deferred else None


@check("audit", advise("correct HOLDFAST_STATE_URL, or the permissions there"))
def _check_audit(store: AuditStore, settings: Settings) -> Check:
    problem = compare_note(open_keeping(settings), store)  # the cheap part of verify()
    if problem is not None:
        return fail(problem.problem, ADVICE["audit"])
    last = next(iter(store.checkpoints(limit=1)), None)
    if last is None:
        return ok("not sealed yet")
    found = f"checkpoint {last.no} seals the chain up to {iso(last.at)[:19]} (entries: {last.entries:,})"
    return ok(f"{found}; not verified here: holdfast audit verify")


def _roughly(duration: int) -> str:
    return describe_duration(duration // DAY * DAY) if duration >= DAY else "less than a day"
