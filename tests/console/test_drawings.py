"""Drawings: time runs left to right, what is due is dashed, and everything is said in words, too."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from holdfast.edges.console.drawings import Area, Moment, areas, bars, days, life
from holdfast.edges.console.formats import count, cron, duration, identifier, number, sentence, size, text, when

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=100)
NASTY = "<script>alert(1)</script>\"'"


def moments(past: int, due: int = 1) -> list[Moment]:
    happened = [Moment(START + timedelta(hours=one), f"step {one}", NASTY, "active") for one in range(past)]
    coming = [Moment(NOW + timedelta(days=one + 1), f"due {one}", "a rule", "bin", is_due=True) for one in range(due)]
    return [*happened, *coming]


def places(drawn: str) -> list[float]:
    return [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn)]


@pytest.mark.parametrize(("past", "due"), [(1, 0), (1, 1), (4, 2), (9, 1), (40, 3)])
def test_a_life_runs_from_left_to_right_with_now_between_past_and_due(past: int, due: int) -> None:
    drawn = life(moments(past, due), NOW, "words")
    ElementTree.fromstring(drawn)  # noqa: S314 - we made it
    found = places(drawn)
    now = float(re.findall(r'<line x1="([\d.]+)"[^>]*class="now"', drawn)[0])
    assert found == sorted(found)
    assert len(found) <= 10
    assert [x > now for x in found].count(True) == due
    assert all(0 <= x <= 1060 for x in found)


def test_what_happened_is_solid_and_what_is_due_is_dashed_and_hollow() -> None:
    drawn = life(moments(2, 1), NOW, "words")
    lines = re.findall(r'class="life-line ([^"]+)"', drawn)
    assert lines == ["stroke-active", "stroke-active", "due stroke-active", "due stroke-bin"]
    assert drawn.count("hollow") == 1


def test_a_hold_colours_what_is_to_come_and_what_is_gone_has_no_line() -> None:
    assert "due stroke-held" in life(moments(2, 1), NOW, "words", is_held=True)
    gone = [*moments(1, 0), Moment(NOW - timedelta(days=1), "deleted", "", "gone")]
    assert re.findall(r'class="life-line ([^"]+)"', life(gone, NOW, "words")) == ["stroke-active"]


def test_moments_that_do_not_fit_are_one_dot_that_says_so() -> None:
    drawn = life(moments(40, 1), NOW, "words")
    assert "more moves" in drawn


@pytest.mark.parametrize(
    "drawn",
    [
        life(moments(3), NOW, NASTY),
        days([1, 0, 3], NASTY, "b", NASTY),
        days([], "", "", "none"),
        bars([(NASTY, 0.002, NASTY), ("b", 0.0, "never")], NASTY),
        areas([Area("bin", [1, 2, 3]), Area("archived", [0, 0, 9])], 2, NASTY, "b", NASTY, words=NASTY),
        areas([], 0, "", "", "", words="none"),
    ],
)
def test_a_drawing_is_well_formed_whatever_is_in_it_and_has_nothing_inline(drawn: str) -> None:
    root = ElementTree.fromstring(f"<div>{drawn}</div>")  # noqa: S314 - we made it
    assert root[0].get("aria-label")
    assert "<script>" not in drawn
    assert " style=" not in drawn


def test_numbers_sizes_and_times_are_for_people_with_the_exact_value_beside() -> None:
    assert number(1_204_388) == '<data value="1204388" title="1,204,388">1,204,388</data>'
    assert ">12.3 M<" in number(12_345_678)
    assert size(0) == '<data value="0" title="0 bytes">0 bytes</data>'
    assert ">61 MB<" in size(61_200_000)
    assert ">1.0 MB<" in size(999_900)
    assert [duration(one) for one in (0.0021, 0.4, 90, 86_400, 864_000)] == [
        "2 ms",
        "400 ms",
        "1.5 min",
        "24 h",
        "10 d",
    ]
    assert (count(1, "memory").striptags(), count(2, "memory").striptags()) == ("1 memory", "2 memories")
    shown = when("2026-03-02T10:20:30.5+00:00")
    assert shown == '<time datetime="2026-03-02T10:20:30Z" title="2026-03-02T10:20:30Z">2 Mar 2026, 10:20 UTC</time>'


def test_texts_keep_to_themselves() -> None:
    assert text("a\u202eb") == "<bdi>a\\u202eb</bdi>"
    assert len(text("x" * 1_000).striptags()) == 160
    assert "…" in identifier("x" * 200)
    assert "<time" in sentence(f"it goes on 2027-07-05T12:53:55.552887+00:00: {NASTY}")
    assert "<script>" not in sentence(NASTY)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("* * * * *", "every minute"),
        ("0 3 * * *", "every day at 03:00"),
        ("45 1 * * 0", "Sundays at 01:45"),
        ("*/5 1 * * 0", "by its own rule"),
        ("0 3 1 * *", "by its own rule"),
    ],
)
def test_when_a_job_runs_is_said_in_words_where_there_are_plain_ones(fields: str, said: str) -> None:
    assert cron(fields) == said
