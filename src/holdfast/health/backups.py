"""Whether there are backups to go back to, and whether what opens them lies somewhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.backups.catalog import Catalog, Damaged, describe_left_out, is_ahead
from holdfast.backups.format import Manifest
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import HoldfastError
from holdfast.core.values import DAY, describe_duration, moment
from holdfast.health.checks import Check, can_write, check, fail, named, nearest_existing, ok, warn
from holdfast.settings import Settings
from holdfast.storage.objects.urls import Place, read_place
from holdfast.store import open_catalog, system_clock

#: How old the newest backup may be: the schedule makes them every day, and of persona every week.
_OLDEST: Final = ((DAILY, 2 * DAY), (WEEKLY, 8 * DAY))
_PLACE_FIX: Final = "correct HOLDFAST_BACKUP_URL, the credentials in the environment, or the permissions there"
_MAKE_FIX: Final = "keep holdfast serve or holdfast schedule run going (or run it from cron), or holdfast backup create"
_BAD_FIX: Final = "look with holdfast backup list, and make another with: holdfast backup create --full"
#: Where nothing is damaged, and the keyring is another's or is missing: another backup would not help.
_STRANGE_FIX: Final = "name the keyring that belongs to it in HOLDFAST_STATE_URL"
_LEFT_OUT_FIX: Final = "holdfast key check names the keys; then make another backup"
_AHEAD_FIX: Final = "check the clock; if it is right now, remove it with: holdfast backup remove ID --confirm"
_TRY_FIX: Final = "holdfast backup verify latest --restore; the schedule does it every week"
_KEYS_FIX: Final = (
    "name another disk or a bucket in HOLDFAST_BACKUP_URL, or in HOLDFAST_STATE_URL: whoever loses the disk loses both"
)


def check_backups(settings: Settings, *, is_used: bool) -> Iterator[Check]:
    """That backups can be made and read, are recent and good; and that keys and ledger do not share their disk.

    ``is_used`` says that there is a store to back up.
    """
    try:
        catalog, place = open_catalog(settings), read_place(settings.backups_url())
        problem = _find_problem(catalog, place)
        found = [] if problem else list(catalog.all())
    except HoldfastError as error:
        yield named("backups", fail(error, _PLACE_FIX))
        return
    if problem:
        yield named("backups", fail(problem, _PLACE_FIX))
        return
    yield from _judge(catalog, found, is_used=is_used)
    if found:
        yield from _check_separate(settings, place)


def _find_problem(catalog: Catalog, place: Place) -> str | None:
    """Why backups cannot be kept there; a place that is not there yet is not made."""
    if place.scheme == "file" and not place.folder.is_dir():
        there = nearest_existing(place.folder)
        return None if can_write(there) else f"{place.folder}: {there} cannot be written"
    catalog.objects.check()
    return None


@check("backups", _BAD_FIX)
def _judge(catalog: Catalog, found: Sequence[Manifest | Damaged], *, is_used: bool) -> Check:
    """The first thing that is wrong, the worst first."""
    url = catalog.objects.url
    if not found:
        if not is_used:
            return ok(f"{url} (none yet, and nothing to back up)")
        return warn(f"{url}: no backup was ever made", _MAKE_FIX)
    whole = [one for one in found if isinstance(one, Manifest)]
    told = f"{len(found):,} in {url}"
    if len(whole) < len(found):
        damaged = next(one for one in found if isinstance(one, Damaged))
        return fail(f"{told}; {damaged.problem}", _fix_for(damaged))
    if lacking := next((one for one in reversed(whole) if one.left_out), None):
        newer = any(one.created_at > lacking.created_at and {*lacking.kinds} <= {*one.kinds} for one in whole)
        if not newer:
            return fail(f"{told}; {lacking.id}: {describe_left_out(lacking)}", _LEFT_OUT_FIX)
    now = moment(system_clock())
    ahead = [one for one in whole if is_ahead(one, now)]
    whole = [one for one in whole if one not in ahead]
    latest = list({one.kinds: one for one in whole}.values())
    for one in latest:
        if catalog.is_known_bad(one.id):
            return fail(f"{told}; something is wrong with {one.id}, made at {one.moment[:16]}", _BAD_FIX)
    if ahead:
        return warn(f"{told}; {ahead[0].id} is dated later than now: {ahead[0].moment[:16]}", _AHEAD_FIX)
    if late := [words for kinds, most in _OLDEST if (words := _describe_age(whole, {*kinds}, now, most))]:
        return warn(f"{told}; {'; '.join(late)}", _MAKE_FIX)
    good = {one.kinds for one in whole if catalog.is_good(one.id)}
    if untried := [one.id for one in latest if one.kinds not in good]:
        return warn(f"{told}; {' and '.join(untried)} was never restored on trial", _TRY_FIX)
    return ok(f"{told}; the newest is of {whole[-1].moment[:16]}")


def _fix_for(damaged: Damaged) -> str:
    """What the problem itself says to do, where that is not to make another."""
    return _STRANGE_FIX if "HOLDFAST_STATE_URL" in damaged.problem else _BAD_FIX


def _describe_age(whole: Sequence[Manifest], kinds: set[str], now: int, most: int) -> str | None:
    """What is to be said of the newest backup that has some kinds."""
    made = max((one.created_at for one in whole if kinds <= set(one.kinds)), default=None)
    what = "persona" if len(kinds) == 1 else "the other kinds"
    if made is None:
        return f"there is none of {what}"
    if now - made > most:
        return f"the newest of {what} is {describe_duration((now - made) // DAY * DAY)} old"
    return None


@check("keys", "correct HOLDFAST_STATE_URL")
def _check_separate(settings: Settings, place: Place) -> Check:
    """That who loses the backups does not lose the keys to them, and the ledger, in the same moment."""
    state = read_place(settings.keeping_url())
    found = f"keys and ledger in {state.url}, backups in {place.url}"
    if _is_same_disk(state, place):
        return warn(f"{found}: on the same {'disk' if state.scheme == 'file' else 'bucket'}", _KEYS_FIX)
    return ok(found)


def _is_same_disk(one: Place, other: Place) -> bool:
    if one.scheme != other.scheme:
        return False
    if one.scheme != "file":
        return one.bucket == other.bucket
    return nearest_existing(one.folder).stat().st_dev == nearest_existing(other.folder).stat().st_dev
