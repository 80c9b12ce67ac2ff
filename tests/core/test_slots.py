"""Slots: when a cron expression fires, on the days when clocks are changed as on any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import times
from holdfast.core.errors import InvalidInputError
from holdfast.core.slots import check_cron, check_timezone, count_missed, latest_slot, next_slot, slots_between
from holdfast.core.values import DAY, SECOND, iso, moment, when

MINUTE = 60 * SECOND
BERLIN = "Europe/Berlin"
#: Clocks that change at midnight, before it, by half an hour, by two hours, by a whole day, in Ramadan, and never.
ZONES = (
    "UTC",
    BERLIN,
    "Europe/London",
    "America/New_York",
    "America/Havana",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
)
#: Expressions that go on as time passes, each with what it says of the wall's hour and minute.
ROLLING: dict[str, Callable[[int, int], bool]] = {
    "* * * * *": lambda hour, minute: True,
    "*/15 * * * *": lambda hour, minute: minute % 15 == 0,
    "30 * * * *": lambda hour, minute: minute == 30,
    "5 */2 * * *": lambda hour, minute: hour % 2 == 0 and minute == 5,
    "*/20 1-3 * * *": lambda hour, minute: 1 <= hour <= 3 and minute % 20 == 0,
}
Zones = st.sampled_from(ZONES)
Moments = st.integers(moment("1992-01-01"), moment("2036-01-01"))


def told(slots: list[int], zone: str = "UTC") -> list[str]:
    return [when(slot).astimezone(ZoneInfo(zone)).strftime("%d %H:%M %Z") for slot in slots]


def between(cron: str, zone: str, start: str, end: str) -> list[str]:
    return told(list(slots_between(cron, zone, moment(start), moment(end))), zone)


def changes(zone: str, year: int) -> list[int]:
    """The quarters of an hour at which a zone's clocks are changed in a year."""
    days = range(moment(f"{year}-01-01"), moment(f"{year + 1}-01-01"), DAY)
    found = [_steps(zone, range(day, day + DAY + 1, 15 * MINUTE)) for day in _steps(zone, days, before=DAY)]
    return [at for steps in found for at in steps]


def _steps(zone: str, moments: range, *, before: int = 0) -> list[int]:
    """The moments at which the zone's offset differs from that at the moment before."""
    offsets = [when(at).astimezone(ZoneInfo(zone)).utcoffset() for at in moments]
    return [moments[n] - before for n in range(1, len(offsets)) if offsets[n] != offsets[n - 1]]


def near_changes() -> list[tuple[str, int]]:
    years = {"Pacific/Apia": 2011, "Pacific/Kwajalein": 1993, "America/Sao_Paulo": 2018, "Asia/Pyongyang": 2018}
    return [(zone, at) for zone in ZONES for at in changes(zone, years.get(zone, 2024))]


NEAR = near_changes()


def test_the_zones_of_these_tests_change_their_clocks_in_every_way() -> None:
    shifts = set()
    for zone, at in NEAR:
        before, after = (
            when(at + aside).astimezone(ZoneInfo(zone)).replace(tzinfo=None) for aside in (-15 * MINUTE, 0)
        )
        shifts.add((after - before - timedelta(minutes=15)) // timedelta(minutes=1))
    assert {-60, 60, -30, 30, -120, 120, 24 * 60} <= shifts


# --- the two nights --------------------------------------------------------------------------------------------------


def test_a_daily_job_at_a_time_that_is_left_out_runs_when_the_gap_ends() -> None:
    assert between("30 2 * * *", BERLIN, "2026-03-28", "2026-03-31") == [
        "28 02:30 CET",
        "29 03:00 CEST",
        "30 02:30 CEST",
    ]


def test_a_daily_job_at_a_time_that_comes_twice_runs_the_first_time() -> None:
    assert between("30 2 * * *", BERLIN, "2026-10-24", "2026-10-27") == [
        "24 02:30 CEST",
        "25 02:30 CEST",
        "26 02:30 CET",
    ]


def test_after_the_first_of_two_equal_times_the_second_is_no_slot() -> None:
    first = moment("2026-10-25T00:30:00Z")
    for minutes in range(120):
        now = first + minutes * MINUTE
        assert latest_slot("30 2 * * *", BERLIN, after=0, now=now) == first
        assert iso(next_slot("30 2 * * *", BERLIN, now)) == "2026-10-26T01:30:00+00:00"


def test_a_gap_that_ends_on_the_next_date_is_made_up_for_before_it() -> None:
    assert between("30 23 * * *", "America/Nuuk", "2024-03-30T12:00Z", "2024-04-02T12:00Z") == [
        "30 22:59 -02",
        "31 23:30 -01",
        "01 23:30 -01",
    ]


def test_a_date_that_a_country_left_out_has_no_slot() -> None:
    slots = between("30 2 * * *", "Pacific/Apia", "2011-12-28T12:00Z", "2012-01-01T12:00Z")
    assert [slot[:8] for slot in slots] == ["28 02:30", "29 02:30", "31 02:30", "01 02:30"]


@pytest.mark.parametrize(("zone", "at"), NEAR)
def test_a_minutely_job_goes_on_through_every_change(zone: str, at: int) -> None:
    slots = list(slots_between("* * * * *", zone, at - 180 * MINUTE, at + 180 * MINUTE))
    assert slots == [at + minute * MINUTE for minute in range(-179, 181)]


# --- whatever the zone -----------------------------------------------------------------------------------------------


@settings(max_examples=times(15))
@given(Zones, st.integers(0, 23), st.integers(0, 59), st.integers(1993, 2035))
@example("Pacific/Apia", 2, 30, 2011)
@example("America/Nuuk", 23, 30, 2024)
@example("America/Sao_Paulo", 0, 0, 2018)
@example("Antarctica/Troll", 1, 59, 2024)
def test_each_real_day_has_exactly_one_slot_of_a_daily_job(zone: str, hour: int, minute: int, year: int) -> None:
    inside = range(moment(f"{year - 1}-12-30"), moment(f"{year + 1}-01-03"), 60 * MINUTE)
    real = {day for at in inside if (day := _date(zone, at)).year == year}

    slots = list(slots_between(f"{minute} {hour} * * *", zone, inside[0], inside[-1]))

    assert slots == sorted(set(slots)), "slots strictly increase"
    counted = Counter(day for slot in slots if (day := _date(zone, slot)).year == year)
    assert counted == dict.fromkeys(real, 1)


@given(st.sampled_from(NEAR), st.sampled_from(sorted(ROLLING)), st.integers(-24 * 60, 24 * 60))
def test_other_jobs_run_whenever_the_wall_says_so(near: tuple[str, int], cron: str, aside: int) -> None:
    zone, at = near
    start = at + aside * MINUTE
    walls = {minute: when(minute).astimezone(ZoneInfo(zone)) for minute in range(start + MINUTE, start + DAY, MINUTE)}
    expected = [minute for minute, wall in walls.items() if ROLLING[cron](wall.hour, wall.minute)]

    assert list(slots_between(cron, zone, start, start + DAY - MINUTE)) == expected


Crons = st.sampled_from(
    [*ROLLING, "30 2 * * *", "0 3 * * 0", "0,15,59 0,1,2,3,23 * * *", "0-59 0-23 * * *", "*/10 2 L * *", "7 23 * * 5L"]
)


@settings(max_examples=times(30))
@given(
    st.tuples(Zones, Moments)
    | st.tuples(st.sampled_from(NEAR), st.integers(-180, 180)).map(lambda t: (t[0][0], t[0][1] + t[1] * MINUTE)),
    Crons,
    st.sampled_from([0, 1, -1, 17 * SECOND]),
)
def test_forwards_and_backwards_the_slots_are_the_same(near: tuple[str, int], cron: str, aside: int) -> None:
    zone, at = near[0], near[1] + aside
    around = list(slots_between(cron, zone, at - DAY, at + DAY))
    past, future = [slot for slot in around if slot <= at], [slot for slot in around if slot > at]

    assert latest_slot(cron, zone, after=at - DAY, now=at) == (past[-1] if past else None)
    following = next_slot(cron, zone, at)
    assert following == (future[0] if future else following)
    assert following > at + (0 if future else DAY)
    assert count_missed(cron, zone, after=at - DAY, upto=at, most=10_000) == len(past)


# --- edges -----------------------------------------------------------------------------------------------------------


def test_the_slot_at_a_moment_is_before_it_and_not_after_it() -> None:
    at = moment("2026-01-15T03:00:00Z")
    assert latest_slot("0 3 * * *", "UTC", after=at - 1, now=at) == at
    assert latest_slot("0 3 * * *", "UTC", after=at, now=at) is None
    assert latest_slot("0 3 * * *", "UTC", after=at - 2, now=at - 1) is None
    assert next_slot("0 3 * * *", "UTC", at) == at + DAY
    assert next_slot("0 3 * * *", "UTC", at - 1) == at
    assert list(slots_between("0 3 * * *", "UTC", at, at + DAY)) == [at + DAY]
    assert list(slots_between("0 3 * * *", "UTC", at, at - DAY)) == []


def test_the_latest_of_years_of_missed_slots_is_found_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    step = CronSim.__next__

    def counted(cron: CronSim) -> datetime:
        nonlocal steps
        steps += 1
        return step(cron)

    monkeypatch.setattr(CronSim, "__next__", counted)
    now = moment("2026-10-25T01:15:30Z")  # in the second pass of an hour
    for zone in ("UTC", BERLIN):
        assert latest_slot("* * * * *", zone, after=0, now=now) == now - 30 * SECOND
    assert steps < 500
    assert count_missed("* * * * *", BERLIN, after=0, upto=now) == 1_000, "and the count of what was missed is bounded"


def test_the_ends_of_the_calendar_have_no_slots() -> None:
    for end in ("0001-01-01", "9999-12-31T23:59:59Z"):
        assert latest_slot("* * * * *", BERLIN, after=moment("0001-01-01"), now=moment(end)) is None
        with pytest.raises(InvalidInputError, match=r"has no slot after .* that the calendar can tell"):
            next_slot("* * * * *", BERLIN, moment(end))


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("", "does not have five fields"),
        ("@daily", "does not have five fields"),
        ("0 0 3 * * *", "does not have five fields"),
        ("61 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("*/0 * * * *", "Bad minute"),
        ("0 3 * * FUNDAY", "Bad day-of-week"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("0 0 */29 2 MON#5", "names a day that never comes"),
        ("0 0 * * \ud800", "Bad day-of-week"),
        ("0 3 * * * " + " " * 200, "at most 200 characters"),
        (5, "must be a text"),
        (None, "must be a text"),
    ],
)
def test_text_that_is_no_cron_is_refused_with_an_example(cron: object, why: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"write minute hour day month weekday, such as '0 3 \* \* \*'"
    ) as wrong:
        check_cron(cron)
    assert why in str(wrong.value)
    if cron:
        assert repr(cron)[:40] in str(wrong.value), "the value is told"
    with pytest.raises(InvalidInputError):
        next_slot(cron, "UTC", 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        latest_slot(cron, "UTC", after=0, now=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        count_missed(cron, "UTC", after=0, upto=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Base", "CEST?", "Europe", "../../etc/passwd", "/etc/localtime", "\x00", "z" * 5_000, "\ud800", None, 1],
)
def test_a_zone_that_is_not_known_is_refused_with_an_example(zone: object) -> None:
    with pytest.raises(InvalidInputError, match="is not known; use a name such as 'UTC' or 'Europe/Berlin'") as wrong:
        check_timezone(zone)
    assert repr(zone)[:40] in str(wrong.value)
    with pytest.raises(InvalidInputError):
        next_slot("* * * * *", zone, 0)  # type: ignore[arg-type]


@given(st.text(alphabet="0123456789*/-,#LW MONJAN", max_size=30) | st.text(max_size=30))
def test_a_cron_is_accepted_as_it_will_be_used_or_refused_as_input(cron: str) -> None:
    try:
        accepted = check_cron(cron)
    except InvalidInputError:
        return
    assert check_cron(accepted) == accepted
    assert next_slot(accepted, BERLIN, 0) > 0


def _date(zone: str, at: int) -> date:
    return when(at).astimezone(ZoneInfo(zone)).date()


def test_moments_are_utc_whatever_the_zone() -> None:
    assert when(next_slot("0 3 * * *", BERLIN, moment("2026-07-01"))) == datetime(2026, 7, 1, 1, tzinfo=UTC)
