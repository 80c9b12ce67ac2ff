"""What belongs to a session and lies elsewhere lives, waits in the recycle bin, comes back and goes with its session."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import notes_part
import raw
from clocks import FakeClock
from effort import stride
from holdfast import Holdfast
from holdfast.access.replies import Reply
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    HeldError,
    InvalidInputError,
    NotFoundError,
    StoreAwayError,
)
from holdfast.core.records import Scope, State, Subject
from holdfast.core.values import moment
from holdfast.health.checks import Check
from holdfast.health.store import check_lifecycle
from holdfast.lifecycle.part_registry import KINDS, METHODS, OpenParts, open_part
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.ports import session_parts as port
from holdfast.ports.session_parts import PartRegistration
from homes import Homes, on_sqlite
from lifecycle.fuses import DeathError, Fuse
from notes_part import Notes


@dataclass
class World:
    """A store, and an application that keeps notes for its sessions."""

    holdfast: Holdfast
    notes: Notes
    clock: FakeClock
    folder: Path

    def write(self, session_id: str, text: str, user_id: str | None = "ann", agent_id: str = "guide") -> None:
        """The application writes a note, now."""
        self.notes.write(session_id, user_id, agent_id, moment(self.clock()), text)

    def states(self, user_id: str = "ann") -> dict[str | None, tuple[str, str | None]]:
        """The user's sessions, and how far parts have followed each."""
        found, _ = self.holdfast.services.reader.sessions(Subject("default", user_id), limit=99)
        return {one.session_id: (one.state.value, one.part_state) for one in found}

    def binned(self) -> list[str | None]:
        return [item["session_id"] for item in self.holdfast.recycle.list() if item["type"] == "session"]


@pytest.fixture
def world(holdfast: Holdfast, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    path = tmp_path / "notes.db"
    holdfast.parts.add(notes_part.KIND, f"sqlite:///{path}")
    yield World(holdfast, Notes(path), clock, tmp_path)
    notes_part.effects.clear()


# --- the idle rule ----------------------------------------------------------------------------------------------------------


def test_what_is_idle_goes_to_the_bin_comes_back_and_is_gone_after_its_time(world: World) -> None:
    world.write("trip", "to Rome")
    world.clock.advance(days=30, microseconds=-1)
    assert world.holdfast.sweep().lines == ()
    assert world.states() == {}, "what is in use costs no session"
    world.clock.advance(microseconds=1)

    plan = world.holdfast.sweep(dry_run=True)
    assert [(line.memory_type, line.action, line.records, line.bytes) for line in plan.lines] == [
        ("history", "recycle", 1, len("to Rome"))
    ]
    assert world.notes.read("trip") == ["to Rome"], "a plan moves nothing"
    report = world.holdfast.sweep(digest=plan.digest)
    assert report.lines == plan.lines
    assert world.notes.read("trip") == []
    assert world.states() == {"trip": ("recycled", "recycled")}
    assert world.binned() == ["trip"]

    assert world.holdfast.recycle.restore(session_id="trip") == 1
    assert world.notes.read("trip") == ["to Rome"]
    assert world.states() == {"trip": ("active", "active")}
    world.clock.advance(days=30)
    world.holdfast.sweep()
    world.clock.advance(days=15)
    world.holdfast.sweep()
    assert world.states() == {}
    assert world.notes.count("ann") == 0


def test_a_conversation_is_as_active_as_what_belongs_to_it(world: World) -> None:
    memory = world.holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "hello")
    world.clock.advance(days=29)
    world.write("trip", "to Rome")
    world.holdfast.sweep()
    world.clock.advance(days=29)
    world.holdfast.sweep()
    assert len(world.holdfast.sessions.history("guide", "trip")) == 1
    world.clock.advance(days=1)
    world.holdfast.sweep()
    assert world.holdfast.sessions.history("guide", "trip") == []
    assert world.notes.read("trip") == []
    world.holdfast.recycle.restore(session_id="trip")
    assert len(world.holdfast.sessions.history("guide", "trip")) == 1
    assert world.notes.read("trip") == ["to Rome"], "both come back together"


def test_a_rule_for_some_says_how_long_what_belongs_to_their_sessions_lives(world: World) -> None:
    world.holdfast.policies.set("history", user_id="bob", delete_after_days=0.5, confirm=True)
    world.write("his", "short", "bob")
    world.write("hers", "long")
    world.clock.advance(hours=13)
    world.holdfast.schedule.run("minutely")
    assert (world.notes.read("his"), world.notes.read("hers")) == ([], ["long"])


def test_whoever_writes_between_the_plan_and_the_move_keeps_what_they_have(world: World) -> None:
    memory = world.holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "hello")
    world.write("trip", "to Rome")
    world.clock.advance(days=30)
    notes_part.effects.append(lambda effect: world.write("trip", "and back") if effect == "a move to the bin" else None)
    world.holdfast.sweep()
    assert world.notes.read("trip")[:2] == ["to Rome", "and back"]
    assert world.states() == {"trip": ("active", "active")}
    assert len(world.holdfast.sessions.history("guide", "trip")) == 1, "and what was said with it"
    notes_part.effects.clear()
    world.clock.advance(days=30, microseconds=-1)
    world.holdfast.sweep()
    assert world.states() == {"trip": ("active", "active")}, "its time counts from then"


def test_only_what_is_the_users_follows_their_session(world: World) -> None:
    world.write("trip", "hers")
    world.holdfast.manager("bob", "guide", "trip").short_term.add_message("user", "his")
    world.holdfast.sessions.remove("guide", "trip", user_id="bob")
    assert world.notes.read("trip") == ["hers"]


# --- removed and restored ---------------------------------------------------------------------------------------------------


def test_a_session_that_only_a_part_knows_is_removed_and_restored(world: World) -> None:
    world.write("trip", "to Rome")
    assert world.holdfast.sessions.remove("guide", "trip") == 0
    assert world.notes.read("trip") == []
    assert world.holdfast.recycle.restore(session_id="trip", user_id="ann") == 1
    assert world.notes.read("trip") == ["to Rome"]
    with pytest.raises(NotFoundError):
        world.holdfast.sessions.remove("guide", "another")


def test_a_session_does_not_come_back_onto_one_that_was_begun_anew(world: World) -> None:
    memory = world.holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "hello")
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    world.write("trip", "another")
    before = world.holdfast.recycle.list()
    with pytest.raises(ConflictError, match="another of this name has begun since"):
        world.holdfast.recycle.restore(session_id="trip")
    assert world.holdfast.recycle.list() == before, "it stays in the bin as it was"
    assert world.notes.read("trip") == ["another"]
    assert world.holdfast.sessions.history("guide", "trip") == []
    assert world.holdfast.audit.tail()[-1]["action"] == "refused"

    world.holdfast.sessions.remove("guide", "trip")
    assert world.holdfast.recycle.restore(session_id=before[0]["id"]) == 1
    assert world.notes.read("trip") == ["to Rome"]
    assert world.holdfast.audit.verify()


def test_one_that_is_begun_anew_while_a_session_comes_back_sends_it_back(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    taken = Notes.taken
    asked = []

    def begin_anew(self: Notes, item_ids: list[str]) -> set[str]:
        asked.append(item_ids)
        if len(asked) == 2:
            world.write("trip", "another")
        return taken(self, item_ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Notes, "taken", begin_anew)
        with pytest.raises(ConflictError):
            world.holdfast.recycle.restore(session_id="trip")
    assert world.states() == {"trip": ("recycled", "recycled")}
    assert world.notes.read("trip") == ["another"]


def test_what_belongs_to_an_agents_sessions_goes_and_comes_with_the_agent(world: World) -> None:
    world.write("trip", "to Rome")
    world.write("trip 2", "to Oslo", "bob")
    world.write("other", "stays", agent_id="cook")
    world.holdfast.agents.remove("guide")
    assert [world.notes.read(name) for name in ("trip", "trip 2", "other")] == [[], [], ["stays"]]
    world.write("late", "after it", "bob")
    world.clock.advance(days=30)
    world.holdfast.sweep()
    assert world.notes.read("late") == [], "what an agent wrote after its removal is not kept either"

    world.holdfast.agents.add("guide")
    world.write("trip 3", "to Bern")
    world.holdfast.agents.remove("guide")
    world.holdfast.agents.restore("guide")
    assert world.notes.read("trip 3") == ["to Bern"]


def test_all_of_a_users_sessions_go_with_what_belongs_to_them(world: World) -> None:
    world.write("trip", "to Rome")
    world.write("his", "stays", "bob")
    world.holdfast.manager("ann", "guide").delete_user_memories("ann")
    assert (world.notes.read("trip"), world.notes.read("his")) == ([], ["stays"])
    assert world.holdfast.recycle.restore(user_id="ann") == 1
    assert world.notes.read("trip") == ["to Rome"]


# --- holds ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{"user_id": "ann"}, {"agent_id": "guide"}, {"session_id": "trip"}])
def test_a_hold_keeps_what_belongs_to_a_session(world: World, named: dict[str, Any]) -> None:
    world.write("trip", "to Rome")
    hold = world.holdfast.holds.add(**named, reason="Case 4711", author="dpo")
    world.clock.advance(days=60)
    assert world.holdfast.sweep().held == 1
    assert world.notes.read("trip") == ["to Rome"]
    with pytest.raises(HeldError):
        world.holdfast.erase_user("ann")
    world.holdfast.holds.release(hold.id)
    world.holdfast.sweep()
    assert world.notes.read("trip") == []


# --- said of it -------------------------------------------------------------------------------------------------------------


def test_a_session_is_explained_with_what_belongs_to_it(world: World) -> None:
    world.write("trip", "to Rome")
    said = world.holdfast.sessions.explain("guide", "trip")
    assert said["next"] is not None
    due = datetime.fromisoformat(str(said["next"]["at"]))
    assert (due - world.clock()).days == 30
    assert "(7 bytes) goes with it" in said["summary"]
    world.holdfast.holds.add(session_id="trip", reason="Case 4711", author="dpo")
    assert [hold["reason"] for hold in world.holdfast.sessions.explain("guide", "trip")["protected_by"]] == [
        "Case 4711"
    ]


def test_what_has_not_followed_is_in_the_metrics(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    assert b"holdfast_sessions_behind 0.0" in world.holdfast.metrics()
    raw.run(world.holdfast, "UPDATE sessions SET part_state = 'active'")
    assert b"holdfast_sessions_behind 1.0" in world.holdfast.metrics()
    world.holdfast.sweep()
    assert b"holdfast_sessions_behind 0.0" in world.holdfast.metrics()


def test_an_export_has_every_row_of_a_users_sessions_also_from_the_bin(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    world.write("next", "to Oslo")
    world.write("his", "to Bern", "bob")
    found = world.holdfast.export_user("ann")["threads"]
    assert [(one["part"], one["session_id"], [row["values"]["text"] for row in one["rows"]]) for one in found] == [
        ("notes", "next", ["to Oslo"]),
        ("notes", "trip", ["to Rome"]),
    ]
    answer = world.holdfast.export_user("ann", world.folder / "ann.zip")
    assert answer["threads"] == 2
    with zipfile.ZipFile(world.folder / "ann.zip") as file:
        lines = [json.loads(line) for line in file.read("threads/000002.jsonl").splitlines()]
        assert [line["type"] for line in lines] == ["thread", "thread_row"]
        assert lines[1]["values"]["in_bin"]
        assert "to Rome" in file.read("index.html").decode()
    assert world.holdfast.export_user("bob")["threads"][0]["session_id"] == "his", "nothing else is held on him"


# --- erasure ----------------------------------------------------------------------------------------------------------------


def test_an_erasure_reaches_what_belongs_to_sessions_and_counts_it(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    world.write("next", "to Oslo")
    world.write("his", "stays", "bob")
    erasure = world.holdfast.erase_user("ann")
    assert not erasure.pending
    place = next(place for place in erasure.places if place.name == "part notes")
    assert (place.found > 1, place.found == place.removed, place.left) == (True, True, 0)
    assert erasure.certificate is not None
    assert place._asdict() in erasure.certificate["places"]
    assert (world.notes.count("ann"), world.notes.read("his")) == (0, ["stays"])
    assert b"to Oslo" not in (world.folder / "notes.db").read_bytes()


def test_someone_of_whom_only_a_part_has_something_is_erased_with_a_certificate(world: World) -> None:
    world.write("trip", "to Rome")
    erasure = world.holdfast.erase_user("ann")
    assert erasure.certificate is not None
    assert world.notes.count("ann") == 0
    assert world.holdfast.erase_user("nobody").certificate is None


def test_an_erasure_waits_for_a_part_that_is_away_and_says_so(world: World) -> None:
    world.write("trip", "to Rome")
    away = world.folder / "away"
    (world.folder / "more").mkdir()
    more = Notes(world.folder / "more" / "notes.db")
    world.holdfast.parts.add(notes_part.KIND, f"sqlite:///{more.place}", name="more")
    more.write("trip", "ann", "guide", 1, "there, too")
    world.holdfast.close()
    (world.folder / "more").rename(away)
    with Holdfast.open(home=world.holdfast.settings.home, clock=world.clock) as holdfast:
        erasure = holdfast.erase_user("ann")
        assert erasure.pending
        assert any("part 'more'" in reason and "mount it" in reason for reason in erasure.waiting_for)
        assert world.notes.count("ann") == 0, "the other part does not wait for it"
        nobody = holdfast.erase_user("zoë")
        assert nobody.pending, "she may be in the part that is away"
        away.rename(world.folder / "more")
    with Holdfast.open(home=world.holdfast.settings.home, clock=world.clock) as holdfast:
        assert more.count("ann") == 0, "opening the store goes on with it"
        assert {place["name"]: place["left"] for place in holdfast.certificates.list()[0]["places"]}["part more"] == 0
        assert holdfast.eraser.finish_unfinished() == 0


def test_a_part_of_a_kind_that_a_process_does_not_know_keeps_an_erasure_pending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("trip", "to Rome")
    world.holdfast.close()
    with monkeypatch.context() as patch, Holdfast.open(home=world.holdfast.settings.home, clock=world.clock) as other:
        patch.delitem(KINDS, notes_part.KIND)
        erasure = other.erase_user("ann")
        assert erasure.pending
        assert "of a kind that this version does not know ('notes')" in erasure.waiting_for[0]
        assert world.notes.count("ann") > 0
    with Holdfast.open(home=world.holdfast.settings.home, clock=world.clock) as holdfast:
        assert world.notes.count("ann") == 0
        assert len(holdfast.certificates.list()) == 1


def test_a_part_that_is_away_stops_no_sweep_and_follows_when_it_is_back(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.manager("ann", "guide", "trip").short_term.add_message("user", "hello")
    world.holdfast.sweep()
    world.clock.advance(days=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Notes, "_open", _away)
        assert world.holdfast.sweep().counts["recycle"] == 1
        with pytest.raises(StoreAwayError, match="part 'notes'"):
            world.holdfast.recycle.restore(session_id="trip")
        assert world.binned() == ["trip"], "neither half of it came back"
        (found,) = check_parts(world)
        assert (found.status.value, "unplugged" in found.detail) == ("failed", True)
        world.clock.advance(days=15)
        world.holdfast.sweep()
        assert world.states() == {"trip": ("deleting", "active")}
    world.holdfast.sweep()
    assert (world.states(), world.notes.count("ann")) == ({}, 0)
    assert [one.status.value for one in check_parts(world)] == ["ok"]


def _away(*_args: object) -> Any:
    raise StoreAwayError("the disk is unplugged; plug it in")


def check_parts(world: World) -> list[Check]:
    return [one for one in check_lifecycle(world.holdfast.database, world.holdfast.settings) if one.name == "parts"]


def test_doctor_says_what_is_left_alone_and_what_is_behind(world: World) -> None:
    world.write("lost", "whose?", None)
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    raw.run(world.holdfast, "UPDATE sessions SET part_state = 'active'")
    (found,) = check_parts(world)
    assert found.status.value == "warning"
    assert "1 notes have no owner" in found.detail
    assert "what belongs to 1 sessions has not followed them yet" in found.detail


def test_a_request_that_must_be_done_once_takes_parts_along(world: World) -> None:
    world.write("trip", "to Rome")
    memory = world.holdfast.manager("ann", "guide")
    memory.add("likes tea")
    verbs: dict[str, Callable[[], object]] = {
        "delete": lambda: memory.delete_user_memories("ann"),
        "restore": lambda: world.holdfast.recycle.restore(user_id="ann"),
        "remove": lambda: world.holdfast.sessions.remove("guide", "trip"),
        "come back": lambda: world.holdfast.recycle.restore(session_id="trip"),
        "remove the agent": lambda: world.holdfast.agents.remove("guide"),
    }

    def carry_out(verb: Callable[[], object]) -> Reply:
        verb()
        return Reply(200, {}, b"done")

    for key, verb in verbs.items():
        once = world.holdfast.replies.once("caller", key, key.encode())
        reply, _ = once.carry_out(partial(carry_out, verb), lambda: Reply(500, {}, b"failed"))
        assert reply.status == 200
        assert bool(world.notes.read("trip")) == (key in ("restore", "come back")), key


def test_what_is_written_while_a_user_is_erased_is_looked_for_and_found(world: World) -> None:
    world.write("trip", "to Rome")
    erase = Notes.erase

    def write_after(self: Notes, user_id: str) -> int:
        count = erase(self, user_id)
        world.write("trip", "and back")
        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Notes, "erase", write_after)
        erasure = world.holdfast.erase_user("ann")
    assert erasure.pending
    assert "part notes" in erasure.waiting_for[0]
    assert not world.holdfast.erase_user("ann").pending
    assert world.notes.count("ann") == 0


def test_what_has_no_owner_is_left_alone_or_goes_with_the_one_who_was_named(world: World) -> None:
    world.write("lost", "whose?", None)
    world.clock.advance(days=31)
    world.holdfast.sweep()
    assert world.notes.read("lost") == ["whose?"]
    world.holdfast.parts.add(notes_part.KIND, f"sqlite:///{world.notes.place}", unowned_as="ann")
    world.holdfast.sweep()
    assert world.notes.read("lost") == []
    assert world.states() == {"lost": ("recycled", "recycled")}
    world.holdfast.erase_user("ann")
    assert world.holdfast.parts.list()[0]["unowned_as"] is None
    assert world.notes.binned(2**62) == {}


@on_sqlite
def test_an_old_copy_of_the_store_takes_nothing_from_someone_who_came_back(world: World) -> None:
    home = world.holdfast.settings.home
    world.write("trip", "to Rome")
    world.holdfast.manager("ann", "guide").add("likes tea")
    world.holdfast.close()
    old = (home / "holdfast.db").read_bytes()
    with Holdfast.open(home=home, clock=world.clock) as holdfast:
        holdfast.erase_user("ann")
    world.write("trip", "back again")
    (home / "holdfast.db").write_bytes(old)
    with Holdfast.open(home=home, clock=world.clock) as holdfast:
        assert holdfast.manager("ann", "guide").list_memories() == [], "the copy was held against the ledger"
    assert world.notes.read("trip") == ["back again"]


# --- which parts there are --------------------------------------------------------------------------------------------------


def test_a_part_is_registered_once_and_known_to_every_process(world: World, clock: FakeClock) -> None:
    world.write("trip", "to Rome")
    clock.advance(days=30)
    with Holdfast.open(home=world.holdfast.settings.home, clock=clock) as other:
        assert other.parts.list() == world.holdfast.parts.list()
        other.sweep()
    assert world.notes.read("trip") == []
    world.holdfast.recycle.restore(session_id="trip")
    assert world.notes.read("trip") == ["to Rome"]
    with pytest.raises(ConflictError, match="another name"):
        world.holdfast.parts.add(notes_part.KIND, f"sqlite:///{world.folder}/others.db")
    with pytest.raises(InvalidInputError, match="the kinds are"):
        world.holdfast.parts.add("letters", "sqlite:///x.db")
    with pytest.raises(StoreAwayError, match="mount it"):
        world.holdfast.parts.add(notes_part.KIND, f"sqlite:///{world.folder}/no/others.db", name="others")
    assert [part["name"] for part in world.holdfast.parts.list()] == ["notes"]


def test_a_part_is_given_up_only_with_an_empty_bin_or_on_purpose(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    with pytest.raises(ConfirmationNeededError, match=r"1 sessions.* are in the recycle bin"):
        world.holdfast.parts.remove("notes")
    assert world.holdfast.parts.remove("notes", confirm=True)["name"] == "notes"
    assert world.holdfast.parts.list() == []
    assert world.notes.binned(2**62) != {}
    assert world.holdfast.recycle.restore(session_id="trip") == 1
    with pytest.raises(NotFoundError):
        world.holdfast.parts.remove("notes")


def test_a_password_is_not_kept_and_that_of_the_store_opens_what_lies_beside_it() -> None:
    known = OpenParts("postgresql://me:secret@host:5433/holdfast")
    assert known._with_password("postgresql://me@host:5433/app?schema=x") == (
        "postgresql://me:secret@host:5433/app?schema=x"
    )
    assert known._with_password("postgresql://me@other:5433/app") == "postgresql://me@other:5433/app"


def test_a_part_that_lacks_anything_is_refused_so_that_erasure_reaches_all_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = {name for one in (port.PartReader, port.PartBin, port.PartUser) for name in vars(one) if name[0] != "_"}
    assert asked == METHODS, "what is asked of a part is what it is checked for"
    registration = PartRegistration("default", "notes", notes_part.KIND, f"sqlite:///{tmp_path}/notes.db", {})
    assert open_part(registration, registration.url)
    for name in METHODS - {"place"}:
        with monkeypatch.context() as patch:
            patch.delattr(Notes, name)
            with pytest.raises(TypeError, match=name):
                open_part(registration, registration.url)
    assert set(KINDS) == {"langgraph", notes_part.KIND}, "a new kind joins the conformance suite of parts"


def test_parts_are_there_for_async_callers(world: World) -> None:
    async def check() -> None:
        holdfast = AsyncHoldfast(world.holdfast)
        assert [part["name"] for part in await holdfast.parts.list()] == ["notes"]
        world.write("trip", "to Rome")
        assert (await holdfast.sessions.explain("guide", "trip"))["state"] == "active"

    asyncio.run(check())


# --- other stores -----------------------------------------------------------------------------------------------------------


def test_what_a_part_has_in_its_bin_for_sessions_that_no_store_knows_goes_in_time(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.sessions.remove("guide", "trip")
    raw.run(world.holdfast, "DELETE FROM sessions")
    world.clock.advance(days=15)
    world.holdfast.sweep()
    assert world.notes.binned(2**62) != {}
    world.clock.advance(days=2)
    hold = world.holdfast.holds.add(session_id="trip", reason="a dispute")
    world.holdfast.sweep()
    assert world.notes.binned(2**62) != {}, "a hold keeps it"
    world.holdfast.holds.release(hold.id)
    world.holdfast.sweep()
    assert world.notes.binned(2**62) == {}
    (entry,) = [one for one in world.holdfast.audit.tail(limit=9) if one["detail"].get("kind") == "part"][-1:]
    assert (entry["action"], entry["item"], entry["detail"]["count"]) == ("deleted", "notes", 1)


def test_a_store_that_comes_back_from_a_backup_and_what_belongs_to_its_sessions_agree_again(world: World) -> None:
    world.write("trip", "to Rome")
    world.holdfast.services.history.touch(Scope("default", "ann", "guide", "trip"), now=moment(world.clock()))
    world.holdfast.sweep()
    made = world.holdfast.backups.create()
    (manifest,) = (world.holdfast.settings.home / "backups").rglob(f"{made.id}/manifest.json")
    assert json.loads(manifest.read_bytes())["parts"] == ["default/notes"], "a backup says what is not in it"
    world.holdfast.sessions.remove("guide", "trip")
    assert world.notes.read("trip") == []
    world.holdfast.services.history.follow_anew()
    raw.run(world.holdfast, "UPDATE sessions SET state = 'active', purge_at = NULL")  # as the backup has it
    world.holdfast.sweep()
    assert world.notes.read("trip") == ["to Rome"]
    assert world.states() == {"trip": (State.ACTIVE.value, State.ACTIVE.value)}


def test_a_conversation_comes_back_from_a_backup_without_what_belonged_to_it_elsewhere(world: World) -> None:
    world.holdfast.manager("ann", "guide", "trip").short_term.add_message("user", "hello")
    world.write("trip", "to Rome")
    world.holdfast.sweep()
    made = world.holdfast.backups.create()
    world.holdfast.sessions.remove("guide", "trip")
    world.clock.advance(days=15)
    world.holdfast.sweep()
    assert world.states() == {}
    world.holdfast.backups.restore(made.id, user_id="ann")
    world.holdfast.sweep()
    assert world.states() == {"trip": ("active", "active")}
    assert len(world.holdfast.sessions.history("guide", "trip")) == 1
    assert world.notes.read("trip") == [], "that database has backups of its own"


def test_a_tenant_sees_only_its_own_parts(world: World) -> None:
    other = world.holdfast.of_tenant("other")
    assert other.parts.list() == []
    world.write("trip", "to Rome")
    other.erase_user("ann")
    assert world.notes.count("ann") == 1
    assert isinstance(other.parts, SessionParts)


# --- crashes ----------------------------------------------------------------------------------------------------------------


def idle(world: World) -> None:
    """Two sessions that are due, one with a conversation, and one that is in use."""
    world.holdfast.manager("ann", "guide", "trip").short_term.add_message("user", "hello")
    world.write("trip", "to Rome")
    world.write("next", "to Oslo", "bob")
    world.clock.advance(days=30)
    world.write("now", "to Bern", "bob")


def in_bin(world: World) -> None:
    idle(world)
    world.holdfast.sweep()


def due_purge(world: World) -> None:
    in_bin(world)
    world.clock.advance(days=15)


CRASHES: dict[str, tuple[Callable[[World], object], Callable[[Holdfast], object]]] = {
    "recycle": (idle, lambda holdfast: holdfast.sweep()),
    "remove": (idle, lambda holdfast: holdfast.sessions.remove("guide", "now")),
    "restore": (in_bin, lambda holdfast: holdfast.recycle.restore(session_id="trip")),
    "purge": (due_purge, lambda holdfast: holdfast.sweep()),
    "removal of an agent": (idle, lambda holdfast: holdfast.agents.remove("guide")),
    "erasure": (in_bin, lambda holdfast: holdfast.erase_user("bob")),
}


def settle(home: Path, clock: FakeClock, notes: Notes) -> tuple[Any, ...]:
    """What there is after an engine was opened and has swept; a session and what belongs to it are in one place."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        raw.run(holdfast, "UPDATE leases SET expires_at = 0")
        holdfast.sweep()
        sessions = raw.rows(
            holdfast, "SELECT session_id, state, part_state, messages FROM sessions ORDER BY session_id, state"
        )
        assert all(part_state in (None, state) for _, state, part_state, _ in sessions)
        assert holdfast.sweep(dry_run=True).lines == ()
    live = notes._all("SELECT session_id, text FROM notes ORDER BY 1")
    binned = notes._all("SELECT session_id, text FROM bin ORDER BY 1")
    assert {name for name, state, *_ in sessions if state == "recycled"} == {name for name, _ in binned}
    told = [(name, state) for name, state, _, messages in sessions if messages or state != "active"]
    return told, live, binned


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_at_any_effect_leaves_a_session_and_what_belongs_to_it_together(
    homes: Homes, clock: FakeClock, tmp_path: Path, engine_name: str, name: str
) -> None:
    prepare, act = CRASHES[name]
    notes = Notes(tmp_path / "notes.db")
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        holdfast.parts.add(notes_part.KIND, f"sqlite:///{notes.place}")
        prepare(World(holdfast, notes, clock, tmp_path))
    kept = Path(notes.place).read_bytes()
    never = settle(homes.copy(before, "never"), clock, notes)
    Path(notes.place).write_bytes(kept)
    whole = homes.copy(before, "whole")
    with Holdfast.open(home=whole, clock=clock) as holdfast:
        act(holdfast)
    done = settle(whole, clock, notes)
    effects, died = 0, True
    while died:
        Path(notes.place).write_bytes(kept)
        home = homes.copy(before, f"crash {effects}")
        holdfast = Holdfast.open(home=home, clock=clock)
        fuse = Fuse(holdfast, effects)
        notes_part.effects[:] = [fuse.burn]
        with suppress(DeathError):
            act(holdfast)
        notes_part.effects.clear()
        holdfast.close()
        died = fuse.is_dead
        assert settle(home, clock, notes) in (never, done), f"died before {fuse.last}, effect {effects}"
        homes.remove(home)
        effects += stride(engine_name)
    assert effects > 2
