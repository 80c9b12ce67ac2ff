"""The threads of a LangGraph database live by the rules for conversations, in place."""

from __future__ import annotations

import json
import runpy
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command

from clocks import FakeClock
from holdfast import ConflictError, Holdfast
from holdfast.core.errors import InvalidInputError, NotAStoreError, StoreUnavailableError
from holdfast.core.values import iso, moment
from holdfast.health.store import _check_parts
from holdfast.integrations.langgraph.governed import Governed
from holdfast.integrations.langgraph.threads import Threads
from homes import Homes
from integrations.graphs import PLACES, Place, config_of, langgraph_time, look, say, stored_bytes, take_samples, talk
from privacy.backups.stores import lose_machine


@dataclass
class World:
    """An application with threads, and the store that governs them. Both tell the time by one clock."""

    holdfast: Holdfast
    place: Place
    clock: FakeClock
    folder: Path

    def __post_init__(self) -> None:
        self.graph = talk(self.place.saver, ask=True)

    def govern(self, **options: Any) -> Threads:
        """Govern the database."""
        return Threads(self.place.url, schema=self.place.schema, engine=self.holdfast, **options)

    def say(self, thread_id: str, text: str = "hello", user_id: str | None = "ann", agent_id: str = "helper") -> None:
        """The application runs its graph."""
        say(self.graph, config_of(thread_id, user_id, agent_id), text)

    def sees(self, thread_id: str) -> bool:
        """Whether the application finds something of a thread."""
        return bool(self.graph.get_state(config_of(thread_id)).values)

    def examine(self) -> str:
        """What ``holdfast doctor`` says of what belongs to sessions."""
        return str(_check_parts(self.holdfast.services.tenant("default")))

    def binned(self) -> list[Any]:
        """The sessions in the recycle bin."""
        return [item["session_id"] for item in self.holdfast.recycle.list() if item["type"] == "session"]


@pytest.fixture(params=sorted(PLACES))
def world(request: pytest.FixtureRequest, holdfast: Holdfast, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    with PLACES[request.param](tmp_path) as place, langgraph_time(clock):
        yield World(holdfast, place, clock, tmp_path)


def test_a_thread_that_was_idle_for_30_days_goes_to_the_bin_for_15_days_and_then_for_good(world: World) -> None:
    world.govern()
    world.say("idle")
    world.clock.advance(days=20)
    world.say("busy")
    world.clock.advance(days=10, seconds=-1)
    assert world.holdfast.sweep().total == 0

    world.clock.advance(seconds=1, microseconds=100)
    plan: Any = world.holdfast.sweep(dry_run=True)
    assert (plan.counts["recycle"], plan.lines[0].bytes > 500) == (1, True)
    assert world.holdfast.sweep().counts["recycle"] == 1
    assert (world.sees("idle"), world.sees("busy")) == (False, True)
    assert world.binned() == ["idle"]
    assert b"note 1" in stored_bytes(world.place, world.folder)

    world.clock.advance(days=15)
    assert world.holdfast.sweep().counts["delete"] == 1
    assert world.govern().status()["in_bin"] == 0
    world.place.saver.delete_thread("busy")
    assert world.holdfast.export_user("ann")["conversations"] == []


def test_what_is_kept_of_a_users_threads_is_told_with_their_state_and_what_is_due(world: World) -> None:
    world.govern()
    world.say("idle")
    world.say("others", user_id="bob")
    world.clock.advance(days=31)
    world.holdfast.sweep()
    world.say("busy")
    busy, idle = world.holdfast.parts.contents("ann")
    assert (busy["session_id"], busy["state"], busy["agent_id"], busy["part"]) == (
        "busy",
        "active",
        "helper",
        "langgraph",
    )
    checkpoints = len(list(world.place.saver.list(config_of("busy"))))
    assert (busy["rows"], busy["active_at"]) == (checkpoints, iso(moment(world.clock())))
    assert (busy["bytes"] or 0) > 500
    assert busy["due_at"] == iso(moment(world.clock() + timedelta(days=30)))
    assert (idle["session_id"], idle["state"], idle["rows"]) == ("idle", "recycled", None)
    assert idle["due_at"] == iso(moment(world.clock() + timedelta(days=15)))
    assert world.holdfast.parts.contents("nobody") == []


def test_history_and_checkpoints_of_a_session_go_and_come_back_together(world: World) -> None:
    world.govern()
    world.say("trip")
    memory = world.holdfast.manager("ann", "helper", "trip")
    memory.short_term.add_message("user", "hello")
    before = look(world.graph, config_of("trip"))
    world.clock.advance(days=31)
    world.holdfast.sweep()
    assert world.holdfast.sessions.history("helper", "trip", user_id="ann") == []
    assert not world.sees("trip")

    world.clock.advance(days=14)
    assert world.holdfast.recycle.restore(session_id="trip") == 1

    assert len(world.holdfast.sessions.history("helper", "trip", user_id="ann")) == 1
    assert look(world.graph, config_of("trip")) == before
    assert world.graph.invoke(Command(resume="yes"), config_of("trip"))["said"][-1] == "answered yes"
    assert world.holdfast.sweep().total == 0, "its time counts anew"


def test_what_was_said_keeps_the_thread_and_a_run_keeps_what_was_said(world: World) -> None:
    world.govern()
    for session_id in ("talks", "runs"):
        world.say(session_id)
        world.holdfast.manager("ann", "helper", session_id).short_term.add_message("user", "hello")
    world.clock.advance(days=20)
    world.holdfast.manager("ann", "helper", "talks").short_term.add_message("user", "again")
    world.say("runs", "again")
    world.clock.advance(days=20)
    assert world.holdfast.sweep().total == 0
    assert world.sees("talks")
    assert world.holdfast.sessions.history("helper", "runs", user_id="ann") != []


def test_a_removed_session_takes_its_thread_along_and_a_removed_agent_all_of_its_threads(world: World) -> None:
    world.govern()
    world.say("one")
    world.say("other", agent_id="guide")
    world.holdfast.sessions.remove("helper", "one", user_id="ann")
    assert (world.sees("one"), world.binned()) == (False, ["one"])
    world.holdfast.agents.add("guide")
    world.holdfast.agents.remove("guide")
    assert not world.sees("other")
    world.holdfast.agents.restore("guide")
    assert world.sees("other")


def test_a_hold_keeps_a_thread(world: World) -> None:
    world.govern()
    world.say("held")
    hold = world.holdfast.holds.add(session_id="held", reason="a dispute", author="legal")
    world.clock.advance(days=60)
    world.holdfast.sweep()
    assert world.sees("held")
    world.holdfast.holds.release(hold.id, author="legal")
    world.holdfast.sweep()
    assert not world.sees("held")


def test_a_restore_onto_a_thread_that_was_begun_anew_is_refused_and_nothing_is_lost(world: World) -> None:
    world.govern()
    world.say("thread", "the old one")
    world.holdfast.sessions.remove("helper", "thread", user_id="ann")
    old = stored_bytes(world.place, world.folder).count(b"the old one")
    world.say("thread", "the new one")
    new = look(world.graph, config_of("thread"))

    with pytest.raises(ConflictError, match=r"another (of this name has )?(was )?begun"):
        world.holdfast.recycle.restore(session_id="thread")

    assert look(world.graph, config_of("thread")) == new
    assert stored_bytes(world.place, world.folder).count(b"the old one") == old
    world.place.saver.delete_thread("thread")
    assert world.holdfast.recycle.restore(session_id="thread") == 1
    assert "the old one" in world.graph.get_state(config_of("thread")).values["said"]


def test_an_erasure_leaves_no_byte_of_the_user_and_says_what_it_took(world: World) -> None:
    world.govern()
    world.say("live", "a secret of zoe", "zoe")
    world.say("binned", "a secret of zoe", "zoe")
    world.say("other", "a word of bob", "bob")
    world.holdfast.sessions.remove("helper", "binned", user_id="zoe")
    take_samples(world.place)

    erasure = world.holdfast.erase_user("zoe")

    left = stored_bytes(world.place, world.folder)
    assert (b"zoe" in left, b"word of bob" in left) == (False, True)
    (place,) = [one for one in erasure.places if one.name == "part langgraph"]
    assert place.found == place.removed > 10
    assert (place.left, erasure.pending, erasure.certificate is None) == (0, False, False)


def test_an_export_has_the_threads_of_the_user_in_words(world: World) -> None:
    world.govern()
    world.say("live", "a word of ann")
    world.say("binned", "an old word of ann")
    world.say("other", "a word of bob", "bob")
    world.holdfast.sessions.remove("helper", "binned", user_id="ann")

    world.holdfast.export_user("ann", world.folder / "ann.zip")

    with zipfile.ZipFile(world.folder / "ann.zip") as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist() if name.startswith("threads/")}
    heads = [json.loads(text.splitlines()[0]) for text in files.values()]
    assert [(head["part"], head["session_id"]) for head in heads] == [("langgraph", "live"), ("langgraph", "binned")]
    assert any("a word of ann" in text for text in files.values())
    assert any("an old word of ann" in text for text in files.values())
    assert not any("bob" in text for text in files.values())
    assert [len(one["rows"]) > 4 for one in world.holdfast.export_user("ann")["threads"]] == [True, True]


def test_threads_without_an_owner_are_listed_and_left_alone_until_somebody_is_named_for_them(world: World) -> None:
    threads = world.govern()
    world.say("nobodys", user_id=None)
    world.say("anns")
    put = {"configurable": {"thread_id": "timeless", "checkpoint_ns": "", "user_id": "ann"}}
    world.place.saver.put(put, {**empty_checkpoint(), "id": "mine"}, {"user_id": "ann"}, {})  # type: ignore[typeddict-unknown-key,arg-type]
    world.clock.advance(days=60)
    world.holdfast.sweep()
    assert world.sees("nobodys")
    status = threads.status()
    assert (status["threads"], status["in_bin"], status["without_owner"], status["without_time"]) == (2, 1, 1, 1)
    assert {one["thread_id"]: one["reason"].split()[0] for one in status["left_alone"]} == {
        "nobodys": "no",
        "timeless": "its",
    }

    status = world.govern(unowned_as="service").status()

    assert [one["thread_id"] for one in status["left_alone"]] == ["timeless"]
    world.holdfast.sweep()
    assert not world.sees("nobodys")
    world.holdfast.erase_user("service")
    assert world.govern(unowned_as="service").status()["in_bin"] == 1, "ann's is there still"


def test_thinning_keeps_what_threads_need_and_leaves_those_under_a_hold_whole(world: World) -> None:
    threads = world.govern()
    for number in range(6):
        for thread_id in ("thinned", "held"):
            world.say(thread_id, f"text {number}")
    before = {name: look(world.graph, config_of(name)) for name in ("thinned", "held")}
    world.holdfast.holds.add(session_id="held", reason="a dispute")
    seen: list[int] = []

    done = threads.thin(keep_last=2, progress=seen.append)

    assert (done["threads"], done["held"], done["left_alone"], sum(seen)) == (1, 1, [], 2)
    assert done["rows"] > 0
    after = look(world.graph, config_of("thinned"))
    assert after[:4] == before["thinned"][:4]
    assert 2 <= len(after[4]) < len(before["thinned"][4])
    assert look(world.graph, config_of("held")) == before["held"]
    assert (threads.status()["thinned"], threads.status()["in_bin"]) == (1, 0)
    assert threads.restore("thinned") == done["rows"]
    assert look(world.graph, config_of("thinned")) == before["thinned"]
    said = [(entry["action"], entry["detail"].get("rows")) for entry in world.holdfast.audit.tail(limit=2)]
    assert said == [("recycled", done["rows"]), ("restored", done["rows"])]
    with pytest.raises(InvalidInputError, match="keep_last"):
        threads.thin(keep_last=0)


def test_what_a_run_wrote_after_its_user_was_erased_is_found_and_goes_and_what_they_began_anew_stays(
    world: World,
) -> None:
    threads = world.govern()
    for thread_id in ("trip", "others"):
        world.say(thread_id, user_id="ann" if thread_id == "trip" else "bob")
    head: Any = world.graph.get_state(config_of("trip")).config
    world.holdfast.erase_user("ann")
    late: Any = {"configurable": {**config_of("trip")["configurable"], **head["configurable"]}}
    metadata: Any = {"user_id": "ann", "step": 9, "source": "loop", "parents": {}}
    world.place.saver.put_writes(late, [("said", "a late secret")], "task")
    world.place.saver.put(late, empty_checkpoint(), metadata, {})
    world.say("anew")
    with pytest.raises(ConflictError, match="begin another thread"):
        Governed(world.place.saver, world.govern()).put_writes(late, [("said", "later")], "task")
    assert "runs wrote 1 sessions of users after these were erased" in world.examine()
    assert b"a late secret" in stored_bytes(world.place, world.folder)

    world.holdfast.sweep()

    assert b"a late secret" not in stored_bytes(world.place, world.folder)
    assert "after these were erased" not in world.examine()
    assert [world.sees(name) for name in ("trip", "anew", "others")] == [False, True, True]
    assert threads.status()["threads"] == 2
    (entry,) = [one for one in world.holdfast.audit.tail(limit=9) if "runs went on" in one["detail"].get("reason", "")]
    assert (entry["action"], entry["detail"]["rows"]) == ("deleted", 2)
    world.holdfast.sweep()
    assert world.sees("anew")


def test_threads_follow_the_sessions_of_a_store_that_was_restored_as_a_whole(world: World) -> None:
    world.govern(unowned_as="service")
    for name in ("kept", "binned", "unknown"):
        world.say(name, name)
    world.holdfast.sessions.remove("helper", "binned")
    world.holdfast.parts.refresh(session_id="kept")
    made = world.holdfast.backups.create()
    kept, binned = (look(world.graph, config_of(name)) for name in ("kept", "unknown"))
    world.holdfast.sessions.remove("helper", "kept")
    world.holdfast.recycle.restore(session_id="binned")
    world.say("new")
    with Homes("sqlite", world.folder / "again") as homes:
        home = lose_machine(world.holdfast.settings.home, homes)
        with Holdfast.open(home=home, clock=world.clock) as again:
            again.backups.restore(made.id)
            again.sweep()
            assert [world.sees(name) for name in ("kept", "binned", "unknown", "new")] == [True, False, True, True]
            assert look(world.graph, config_of("kept")) == kept
            assert [item["session_id"] for item in again.recycle.list()] == ["binned"]
            (part,) = again.parts.list()
            assert part["unowned_as"] is None, "it names a user, and is said again"
            again.recycle.restore(session_id="binned")
            assert look(world.graph, config_of("binned"))[0]["said"][0] == "binned"
            assert look(world.graph, config_of("unknown")) == binned


def test_owners_are_read_again_when_another_key_is_named(world: World) -> None:
    config: Any = {"configurable": {"thread_id": "trip", "customer": "ann"}}
    say(world.graph, config, "hello")
    assert world.govern().status()["without_owner"] == 1
    status = world.govern(user_from="customer").status()
    assert (status["without_owner"], status["users"], status["left_alone"]) == (0, 1, [])


def test_the_daily_job_takes_threads_along(world: World) -> None:
    world.govern()
    world.say("idle")
    world.clock.advance(days=32)
    world.holdfast.schedule.run("daily")
    assert world.binned() == ["idle"]


def test_a_database_is_governed_once_under_a_name_and_says_what_is_wrong_with_it(world: World) -> None:
    world.govern()
    entries = len(world.holdfast.audit.tail(limit=100))
    world.govern()
    assert len(world.holdfast.audit.tail(limit=100)) == entries, "nothing has changed"
    assert [threads.name for threads in Threads.governed(world.holdfast)] == ["langgraph"]
    with pytest.raises(StoreUnavailableError, match=r"there is no SQLite file .*other.db"):
        Threads(str(world.folder / "other.db"), name="other", engine=world.holdfast)
    (world.folder / "empty.db").write_bytes(b"")
    with pytest.raises(NotAStoreError, match="no table 'checkpoints'"):
        Threads(str(world.folder / "empty.db"), name="other", engine=world.holdfast)
    with pytest.raises(ConflictError, match="another name"):
        Threads("postgresql://nobody@nowhere/threads", engine=world.holdfast)
    assert [threads.name for threads in Threads.governed(world.holdfast)] == ["langgraph"]


def test_a_run_that_goes_on_while_its_thread_is_swept_wins(world: World) -> None:
    world.govern()
    world.say("thread", "the first")
    world.clock.advance(days=31)
    plan: Any = world.holdfast.sweep(dry_run=True)
    assert plan.counts["recycle"] == 1
    world.say("thread", "the second")
    assert world.holdfast.sweep().total == 0
    assert "the first" in world.graph.get_state(config_of("thread")).values["said"]
    world.clock.now += timedelta(days=29)
    assert world.holdfast.sweep().total == 0


def test_the_example_lets_sixty_days_pass(capsys: pytest.CaptureFixture[str], clock: FakeClock) -> None:
    with langgraph_time(clock):  # which it moves itself; this puts back what was there
        runpy.run_path(str(Path(__file__).parents[2] / "examples" / "langgraph_support_desk.py"), run_name="__main__")
    days = [line.removeprefix("day ") for line in capsys.readouterr().out.splitlines()]
    assert days[2:5] == [
        "30: the daily sweep: recycle 2; 2 in the recycle bin",
        "40: bob comes back: 1 thread restored",
        "40: his case goes on where it stopped: ['bob has a question', 'noted: bob has a question', 'closed: yes']",
    ]
    assert days[-1].startswith("60: threads that are left: ['bob', 'cleo']")
