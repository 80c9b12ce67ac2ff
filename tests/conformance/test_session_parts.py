"""Every kind of part does what the port of parts says: it follows sessions, shows what it holds, and is erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from holdfast.integrations.langgraph.checkpoints import make_id
from holdfast.lifecycle.part_registry import KINDS
from holdfast.ports.session_parts import PartMove, PartRegistration, PartSession, SessionPart
from integrations.graphs import PLACES, open_threads
from notes_part import Notes, open_part

#: Some moment in 2026, in microseconds: ids of checkpoints tell no earlier time than 1582.
THEN = 1_790_000_000_000_000


@dataclass
class Place:
    """Where a part lies, and what an application does there."""

    open: Callable[..., SessionPart]
    """Opens the part; ``unowned_as`` says whose is what has no owner."""
    write: Callable[[str, str | None, str, int], None]
    """Writes something for a session: its name, user, agent, and when."""
    read: Callable[[str], list[Any]]
    """What there is for a session, for those who use the part."""


@contextmanager
def notes_place(folder: Path) -> Iterator[Place]:
    notes = Notes(folder / "notes.db")

    def open_notes(unowned_as: str | None = None) -> SessionPart:
        url = f"sqlite:///{folder}/notes.db"
        return open_part(PartRegistration("default", "notes", "notes", url, {}, unowned_as), url)

    def write(session_id: str, user_id: str | None, agent_id: str, at: int) -> None:
        notes.write(session_id, user_id, agent_id, at, f"at {at}")

    yield Place(open_notes, write, notes.read)


@contextmanager
def langgraph_place(engine: str, folder: Path) -> Iterator[Place]:
    with PLACES[engine](folder) as place:

        def write(thread_id: str, user_id: str | None, agent_id: str, at: int) -> None:
            config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            metadata: Any = {"assistant_id": agent_id} | ({} if user_id is None else {"user_id": user_id})
            checkpoint = {**empty_checkpoint(), "id": f"{make_id(at)}-8000-000000000000"}
            place.saver.put(config, cast("Any", checkpoint), metadata, {})

        def read(thread_id: str) -> list[Any]:
            return [one.checkpoint for one in place.saver.list({"configurable": {"thread_id": thread_id}})]

        yield Place(partial(open_threads, place), write, read)


#: What every kind is tried in. One that is missing here fails a test.
PARTS: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "notes": notes_place,
    "langgraph": partial(langgraph_place, "sqlite"),
    "langgraph on postgres": partial(langgraph_place, "postgres"),
}


@pytest.fixture(params=sorted(PARTS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PARTS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def part(place: Place) -> Iterator[SessionPart]:
    with closing(place.open()) as opened:
        yield opened


def surveyed(part: SessionPart) -> list[PartSession]:
    return sorted(one for some in part.survey() for one in some)


def selected(part: SessionPart, **by: Any) -> list[str]:
    return sorted(one.session_id for some in part.sessions(**by) for one in some)


def move(item_id: str, session_id: str, user_id: str = "ann", *, upto: int | None = None) -> PartMove:
    return PartMove(item_id, PartSession(session_id, user_id, "guide", upto), upto)


def test_every_kind_is_tried() -> None:
    assert set(KINDS) <= set(PARTS)


def test_a_survey_shows_what_has_changed_and_what_there_is_can_be_selected(place: Place, part: SessionPart) -> None:
    place.write("a", "ann", "guide", THEN)
    place.write("b", "bob", "cook", THEN + 5)
    place.write("nobody's", None, "guide", THEN)
    assert surveyed(part) == [PartSession("a", "ann", "guide", THEN), PartSession("b", "bob", "cook", THEN + 5)]
    assert surveyed(part) == []
    place.write("a", "ann", "guide", THEN + 9)
    assert list(next(part.survey())) == [PartSession("a", "ann", "guide", THEN + 9)]
    assert surveyed(part) == [], "it was done when the first were shown"
    assert selected(part) == ["a", "b"]
    assert selected(part, idle_since=THEN + 5) == ["b"]
    assert selected(part, idle_since=THEN + 4) == []
    assert (selected(part, user_id="ann"), selected(part, agent_id="cook"), selected(part, session_id="b")) == (
        ["a"],
        ["b"],
        ["b"],
    )
    assert selected(part, user_id="ann", agent_id="cook") == []
    assert selected(part, session_id="nobody's") == []
    sizes = part.sizes(["a", "b", "no such"])
    assert min(sizes["a"], sizes["b"]) > 0
    assert sizes.get("no such", 0) == 0


def test_a_session_goes_to_the_bin_and_comes_back_as_it_was(place: Place, part: SessionPart) -> None:
    place.write("a", "ann", "guide", THEN)
    place.write("a", "ann", "guide", THEN + 1)
    before = place.read("a")
    surveyed(part)
    for _ in range(2):  # asking again does no harm
        assert part.recycle([move("x", "a", upto=THEN + 1)], now=THEN + 50) == {}
        assert place.read("a") == []
        assert selected(part) == []
    assert (part.binned(THEN + 50), part.binned(THEN + 51)) == ({}, {"x": PartSession("a", "ann", "guide", THEN + 1)})
    for _ in range(2):
        assert part.restore(["x"]) == set()
        assert place.read("a") == before
    assert part.binned(THEN + 51) == {}
    assert [one.session_id for one in surveyed(part)] in (["a"], []), "it may count as changed"
    assert selected(part) == ["a"]


def test_what_was_active_later_or_is_anothers_stays(place: Place, part: SessionPart) -> None:
    place.write("a", "ann", "guide", THEN)
    place.write("a", "ann", "guide", THEN + 9)
    before = place.read("a")
    assert part.recycle([move("x", "a", upto=THEN)], now=THEN + 50) == {"x": THEN + 9}
    assert part.recycle([move("x", "a", "bob"), move("y", "no such")], now=THEN + 50) == {}
    other = PartMove("x", PartSession("a", "ann", "cook", None), None)
    assert part.recycle([other], now=THEN + 50) == {}
    assert place.read("a") == before
    assert part.recycle([move("x", "a")], now=THEN + 50) == {}, "without a time it goes whenever it was active"
    assert place.read("a") == []


def test_a_session_stays_in_the_bin_while_another_has_its_name(place: Place, part: SessionPart) -> None:
    place.write("a", "ann", "guide", THEN)
    before = place.read("a")
    part.recycle([move("x", "a")], now=THEN + 50)
    assert part.taken(["x"]) == set()
    place.write("a", "ann", "guide", THEN + 60)
    anew = place.read("a")
    assert part.taken(["x", "no such"]) == {"x"}
    assert part.restore(["x"]) == {"x"}
    assert place.read("a") == anew
    assert part.recycle([move("y", "a")], now=THEN + 70) == {}
    assert sorted(part.binned(THEN + 99)) == ["x", "y"], "a name may be there twice"
    assert part.restore(["x"]) == set()
    assert place.read("a") == before


def test_what_is_purged_is_gone_for_good(place: Place, part: SessionPart) -> None:
    place.write("a", "ann", "guide", THEN)
    place.write("b", "ann", "guide", THEN)
    part.recycle([move("x", "a"), move("y", "b")], now=THEN + 50)
    assert part.purge(["x"]) > 0
    assert part.purge(["x", "no such"]) == 0
    assert list(part.binned(THEN + 99)) == ["y"]
    assert part.restore(["x"]) == set()
    assert (place.read("a"), place.read("b")) == ([], [])


def test_a_user_is_counted_exported_and_erased_wherever_they_are(place: Place, part: SessionPart) -> None:
    place.write("binned", "ann", "guide", THEN)
    surveyed(part)
    part.recycle([move("x", "binned")], now=THEN + 50)
    place.write("live", "ann", "guide", THEN)
    place.write("his", "bob", "guide", THEN)
    surveyed(part)
    place.write("new", "ann", "guide", THEN + 1)  # since the survey
    his = place.read("his")
    exported = [(session, list(rows)) for session, rows in part.export("ann")]
    assert sorted(session.session_id for session, _ in exported) == ["binned", "live", "new"]
    assert {session.session_id: {row["in_bin"] for row in rows} for session, rows in exported} == {
        "binned": {True},
        "live": {False},
        "new": {False},
    }
    assert part.count("ann") >= 3
    assert part.erase("ann") >= 3
    assert (part.count("ann"), list(part.export("ann")), part.erase("ann")) == (0, [], 0)
    assert (place.read("live"), place.read("new"), part.restore(["x"]), place.read("binned")) == ([], [], set(), [])
    assert place.read("his") == his
    assert part.count("nobody") == 0


def test_what_has_no_owner_is_of_the_user_who_was_named_for_it(place: Place) -> None:
    place.write("lost", None, "guide", THEN)
    with closing(place.open()) as part:
        assert surveyed(part) == []
        assert len(part.problems()) == 1
        assert part.count("ann") == 0
    with closing(place.open(unowned_as="ann")) as part:
        surveyed(part)
        assert selected(part, user_id="ann") == ["lost"]
        assert part.problems() == []
        assert part.recycle([move("x", "lost", upto=THEN)], now=THEN + 50) == {}
        assert place.read("lost") == []
        assert part.restore(["x"]) == set()
        assert part.count("ann") > 0
        part.erase("ann")
        assert part.count("ann") == 0
    assert place.read("lost") == []
