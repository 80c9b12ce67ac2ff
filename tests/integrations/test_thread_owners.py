"""Whose LangGraph's threads are: read from their checkpoints, counted, exported and erased."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.core.errors import InvalidInputError, StoreBusyError
from holdfast.integrations.langgraph.checkpoints import AGENT, Thread, make_id, read_time
from holdfast.integrations.langgraph.values import to_plain
from holdfast.lifecycle.part_registry import METHODS
from holdfast.ports.session_parts import SessionPart
from integrations.graphs import PLACES, Place, config_of, open_threads, recycle, say, stored_bytes, talk


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as made:
        yield made


def put(place: Place, thread_id: str, **metadata: Any) -> None:
    """Store a checkpoint whose metadata says this."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    place.saver.put(config, empty_checkpoint(), metadata, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("owner", [None, "", "  ", "*", "a\nb", "x" * 2_000, ["ann"], {"id": "ann"}, True, 1.5])
def test_an_owner_that_cannot_be_read_is_nobody_and_the_thread_is_listed(tmp_path: Path, owner: Any) -> None:
    with PLACES["sqlite"](tmp_path) as place, closing(open_threads(place)) as tables:
        put(place, "thread", user_id=owner)
        assert [(thread.user_id, thread.agent_id) for thread in tables.note_changes()] == [(None, AGENT)]
        assert [thread.thread_id for thread in tables.ungoverned(limit=10)] == ["thread"]
        assert tables.counts()[:4] == (1, 0, 1, 0)


def test_an_owner_that_is_a_number_is_read_as_its_text(place: Place) -> None:
    with closing(open_threads(place, user_from="customer", agent_from="desk")) as tables:
        put(place, "thread", customer=4711, desk="billing", user_id="nobody")
        assert tables.find(["thread", "another"])["thread"][2:4] == ("4711", "billing")
        assert [thread[2:4] for thread in tables.note_changes()] == [("4711", "billing")]
        assert tables.count("4711") > 0
        assert tables.count("nobody") == 0


def test_a_state_that_was_set_by_hand_leaves_the_thread_with_its_owner(place: Place) -> None:
    graph = talk(place.saver)
    with closing(open_threads(place)) as tables:
        say(graph, config_of("thread", "ann", "helper"), "hello")
        graph.update_state({"configurable": {"thread_id": "thread"}}, {"said": ["by hand"]})
        assert [thread[2:4] for thread in tables.note_changes()] == [("ann", "helper")]
        assert tables.find(["thread"])["thread"][2:4] == ("ann", "helper")


def test_metadata_that_is_no_json_names_nobody_and_stops_nothing(tmp_path: Path) -> None:
    with PLACES["sqlite"](tmp_path) as place, closing(open_threads(place)) as tables:
        put(place, "damaged", user_id="ann")
        put(place, "whole", user_id="ann")
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as connection:
            connection.execute("UPDATE checkpoints SET metadata = x'7b' WHERE thread_id = 'damaged'")
            connection.commit()
        assert {thread.thread_id: thread.user_id for thread in tables.note_changes()} == {
            "damaged": None,
            "whole": "ann",
        }
        assert tables.erase("ann") == 2


def test_threads_are_a_part_of_sessions(tmp_path: Path) -> None:
    with PLACES["sqlite"](tmp_path) as place:
        part: SessionPart = open_threads(place)
        assert part.place == f"SQLite file {place.url.removeprefix('sqlite:///')}"
        assert set(dir(part)) >= METHODS
        assert list(part.survey()) == list(part.sessions()) == []
        assert part.problems() == []
        part.close()


def test_a_field_with_quotes_in_its_name_is_refused(tmp_path: Path) -> None:
    with PLACES["sqlite"](tmp_path) as place, pytest.raises(InvalidInputError, match="leave the quotes out"):
        open_threads(place, user_from='user"id')


def test_threads_without_an_owner_belong_to_who_was_named_for_them(place: Place) -> None:
    with closing(open_threads(place, unowned_as="nobody")) as tables:
        put(place, "first")
        put(place, "second", user_id="ann")
        assert {thread.thread_id: thread.user_id for thread in tables.note_changes()} == {
            "first": "nobody",
            "second": "ann",
        }
        put(place, "third")
        assert (tables.count("nobody"), tables.count("ann")) == (2, 2)  # the second is noted by its owner
        assert tables.erase("nobody") == 2
        assert list(tables.find(["first", "second", "third"])) == ["second"]


def test_a_users_rows_are_given_as_plain_data(place: Place) -> None:
    graph = talk(place.saver)
    with closing(open_threads(place)) as tables:
        for name, user in (("live", "ann"), ("binned", "ann"), ("other", "bob")):
            say(graph, config_of(name, user), f"hello from {name}")
        recycle(tables, "bin", tables.find(["binned"])["binned"])

        found = [(session, row) for session, its in tables.export("ann") for row in its]

        rows = [row for _, row in found]
        assert {(session.session_id, row["thread_id"], row["in_bin"]) for session, row in found} == {
            ("live", "live", False),
            ("binned", "binned", True),
        }
        text = json.dumps(rows, allow_nan=False)
        assert "hello from live" in text
        assert "hello from binned" in text
        assert "hello from other" not in text
        assert "base64" not in text
        assert len(rows) == tables.count("ann") - 1  # one says who is in the bin


def test_an_object_is_given_by_its_class_and_what_it_was_made_from() -> None:
    def plain(value: object) -> Any:
        return to_plain(*JsonPlusSerializer().dumps_typed(value))

    assert plain(datetime(2026, 1, 2, tzinfo=UTC)) == {
        "type": "datetime.datetime",
        "value": "2026-01-02T00:00:00+00:00",
    }
    assert plain({UUID(int=1), 2})["type"] == "builtins.set"
    message = plain({"said": [HumanMessage("hello")]})["said"][0]
    assert (message["type"], message["value"]["content"]) == ("langchain_core.messages.human.HumanMessage", "hello")
    assert plain(None) is None
    assert plain(b"\x00") == {"type": "bytes", "base64": "AA=="}
    assert plain({1: float("nan"), "raw": b"\x00"}) == {"1": "nan", "raw": {"base64": "AA=="}}
    assert to_plain("pickle", b"\x80") == {"type": "pickle", "base64": "gA=="}
    assert to_plain("msgpack", b"\xc1") == {"type": "msgpack", "base64": "wQ=="}


def test_erasing_a_user_takes_what_only_our_notes_and_late_runs_have_of_them(place: Place, tmp_path: Path) -> None:
    graph = talk(place.saver)
    with closing(open_threads(place)) as tables:
        for name in ("deleted", "binned"):
            say(graph, config_of(name, "annabel"), "a secret of ann")
        found = {thread.thread_id: thread for thread in tables.note_changes()}
        recycle(tables, "bin", found["binned"])
        _write_late(place, "binned")
        place.saver.delete_thread("deleted")
        assert b"a late secret of ann" in stored_bytes(place, tmp_path)

        tables.erase("annabel")

        left = stored_bytes(place, tmp_path)
        assert b"late secret" not in left
        assert b"annabel" not in left


def test_what_a_run_wrote_too_late_goes_with_the_thread_from_the_bin(place: Place, tmp_path: Path) -> None:
    with closing(open_threads(place)) as tables:
        put(place, "thread", user_id="ann")
        thread = tables.find(["thread"])["thread"]
        recycle(tables, "bin", thread, now=thread.active_at or 0)
        _write_late(place, "thread")
        put(place, "thread", user_id="ann", begun="anew")
        again = tables.find(["thread"])["thread"]
        _write(place, again, "kept")

        assert tables.purge(["bin"]) == 2
        tables.database.scrub()

        left = stored_bytes(place, tmp_path)
        assert b"late secret" not in left
        assert b"kept" in left


def _write_late(place: Place, thread_id: str) -> None:
    """What a run leaves that was refused the checkpoint it writes for."""
    late = str(empty_checkpoint()["id"])
    _write(place, Thread(thread_id, late, None, None, None), "a late secret of ann")


def _write(place: Place, thread: Thread, text: str) -> None:
    config: Any = {"configurable": {"thread_id": thread.thread_id, "checkpoint_ns": "", "checkpoint_id": thread.head}}
    place.saver.put_writes(config, [("said", text)], "task")


def test_an_erasure_says_so_while_a_reader_keeps_the_log(tmp_path: Path) -> None:
    with PLACES["sqlite"](tmp_path) as place, closing(open_threads(place)) as tables:
        put(place, "thread", user_id="annabel")
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM checkpoints").fetchall()
            tables.database.run("PRAGMA busy_timeout = 50")
            with pytest.raises(StoreBusyError, match="is being read"):
                tables.erase("annabel")
            reader.execute("COMMIT")
        assert tables.erase("annabel") == 0
        assert b"annabel" not in stored_bytes(place, tmp_path)


def test_the_ids_of_a_moment_sort_where_their_time_says() -> None:
    made = str(empty_checkpoint()["id"])
    moment = read_time(made)
    assert moment is not None
    assert make_id(moment)[:18] <= made[:18] < make_id(moment + 1)[:18], "an id counts tenths of a microsecond"
