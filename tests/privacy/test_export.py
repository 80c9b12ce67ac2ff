"""An export: everything that is held on a person, from every place, to be read by people and by programs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from bench.servers import s3, valkey
from jsonschema import Draft202012Validator

import notes_part
import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import (
    InvalidInputError,
    InvalidScopeError,
    NotFoundError,
    ObjectStoreUnavailableError,
    StaleError,
    StoreAwayError,
    StoreFullError,
)
from holdfast.core.records import TYPES, Encoding, Entry, MemoryType, Record, Scope, Subject
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.privacy.export.readers import LEFT_OUT, Person, Sources, line_schema, read_memories
from homes import ENGINES, on_sqlite
from lifecycle.soundness import object_path, objects_of

LONG = "Ann takes the window seat. She likes tea with milk. The dog is called Rex. " * 30
ME = "user_123"


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(line_schema())
    return Draft202012Validator(line_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)


class Export:
    """A ZIP that has been read, every line of it checked against its own schema."""

    def __init__(self, source: Path | bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            assert archive.testzip() is None
            self.files = {name: archive.read(name) for name in archive.namelist()}
        self.manifest = json.loads(self.files["manifest.json"])
        schema = json.loads(self.files["schema.json"])
        Draft202012Validator.check_schema(schema)
        self._valid = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)

    def lines(self, name: str) -> list[dict[str, Any]]:
        text = self.files[name].decode()
        found = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        for line in found:
            self._valid.validate(line)
        return cast("list[dict[str, Any]]", found)

    def all_lines(self) -> dict[str, list[dict[str, Any]]]:
        apart = {"index.html", "schema.json", "manifest.json"}
        return {name: self.lines(name) for name in self.files if name not in apart}


def subjects(holdfast: Holdfast) -> int:
    return len(raw.rows(holdfast, "SELECT no FROM subjects"))


def fill(holdfast: Holdfast, clock: FakeClock, user: str, word: str) -> dict[str, str]:
    """Let a user have something in every place, all of it with a word in it; ids by what they are."""
    memory = holdfast.manager(user, "travel_agent", "old talk")
    ids = {"cold": memory.add(f"{word} cold {LONG}", "long_term", {"n": 1})["memory_id"]}
    ids["cold and binned"] = memory.add(f"{word} both {LONG}", "long_term")["memory_id"]
    memory.structured.define("trips", {"type": "object", "properties": {"to": {"type": "string"}}})
    ids["cold document"] = memory.structured.put("trips", {"to": f"{word} Oslo"}, key="t1")
    ids["episode"] = memory.episodic.record_episode(
        f"{word} booked", ["searched", f"{word} paid"], messages=[{"role": "user", "content": f"{word} book it"}]
    )
    clock.advance(days=10)
    holdfast.policies.set("history", user_id=user, delete_after_days=5_000, author="dpo")
    clock.advance(days=356)
    holdfast.sweep(confirm=True)
    clock.advance(days=10)
    memory.delete(ids["cold and binned"])
    memory.short_term.add_message("user", f"{word} in a conversation that goes to the bin")
    holdfast.sessions.remove("travel_agent", "old talk", user_id=user)
    memory = holdfast.manager(user, "travel_agent", "new talk")
    ids["active"] = memory.add(f"{word} active", "long_term", {"tags": ["x"]})["memory_id"]
    ids["binned"] = memory.add(f"{word} binned", "long_term")["memory_id"]
    memory.delete(ids["binned"])
    ids["persona"] = memory.add(f"{word} persona", "persona")["memory_id"]
    ids["new episode"] = memory.episodic.record_episode(f"{word} now", [f"{word} step"])
    ids["document"] = memory.structured.put("trips", {"to": f"{word} Bergen"}, key="t2")
    memory.entity.add("Rex", attributes={"owner": f"{word} one"})
    clock.advance(days=1)
    memory.entity.set("Rex", {"owner": f"{word} two"})
    memory.entity.relate("Rex", "lives in", f"{word} town")
    ids["message"] = memory.short_term.add_message("user", f"{word} hello")
    ids["removed message"] = memory.short_term.add_message("user", f"{word} removed")
    memory.short_term.delete(ids["removed message"])
    memory.working.add(f"{word} in mind")
    holdfast.quotas.set("long_term", max_memories=77, user_id=user)
    holdfast.holds.release(holdfast.holds.add(user_id=user, reason=f"{word} case", author="dpo").id, author="dpo")
    holdfast.holds.add(user_id=user, memory_id=ids["message"], reason=f"{word} message case", author="dpo")
    return ids


# --- everything, and nobody else's ------------------------------------------------------------------------------------


def test_an_export_has_everything_from_every_place_and_nothing_of_anyone_else(
    holdfast: Holdfast, clock: FakeClock, tmp_path: Path
) -> None:
    fill(holdfast, clock, f"{ME}/x", "zebra")
    ids = fill(holdfast, clock, ME, "mine")
    file = tmp_path / "me.zip"
    done = holdfast.export_user(ME, file)
    export = Export(file)
    found = export.all_lines()
    assert b"zebra" not in b"".join(export.files.values())

    long_term = {line["memory_id"]: line for line in found["memories/long_term.jsonl"]}
    assert long_term.keys() == {ids[name] for name in ("cold", "cold and binned", "active", "binned")}
    assert {name: long_term[ids[name]]["state"] for name in ("cold", "cold and binned", "active", "binned")} == {
        "cold": "archived", "cold and binned": "recycled", "active": "active", "binned": "recycled",
    }  # fmt: skip
    assert long_term[ids["cold"]]["content"] == f"mine cold {LONG}", "all of it, from cold storage"
    assert long_term[ids["cold and binned"]]["content"] == f"mine both {LONG}"
    assert long_term[ids["active"]]["metadata"] == {"tags": ["x"]}
    assert all(line["note"] is None for line in long_term.values())
    assert [line["content"] for line in found["memories/persona.jsonl"]] == ["mine persona"]
    episodes = {line["memory_id"]: line for line in found["memories/episodic.jsonl"]}
    assert episodes[ids["new episode"]]["details"]["steps"] == [{"content": "mine step"}]
    assert ids["episode"] in episodes
    documents = {line["memory_id"]: line["metadata"]["document"] for line in found["memories/structured.jsonl"]}
    assert documents == {ids["cold document"]: {"to": "mine Oslo"}, ids["document"]: {"to": "mine Bergen"}}
    (collection,) = found["collections.json"]
    assert collection["schema"]["properties"] == {"to": {"type": "string"}}
    assert {line["name"] for line in found["memories/entity.jsonl"]} >= {"rex"}
    facts = found["facts.jsonl"]
    owners = {line["value"]: line["until"] is None for line in facts if line["name"] == "owner"}
    assert owners == {"mine one": False, "mine two": True}
    assert [(line["entity"], line["target"]) for line in facts if line["name"] == "lives in"] == [("Rex", "mine town")]

    talks = [found[name] for name in found if name.startswith("conversations/")]
    assert [(talk[0]["session_id"], talk[0]["state"]) for talk in talks] == [
        ("old talk", "recycled"), ("new talk", "active"),
    ]  # fmt: skip
    assert "mine in a conversation" in talks[0][0]["summary"]
    assert [line["content"] for line in talks[0][1:]] == ["mine in a conversation that goes to the bin"]
    in_bin = {line["message_id"]: line["in_bin_until"] is not None for line in talks[1][1:]}
    assert in_bin == {ids["message"]: False, ids["removed message"]: True}
    assert [(line["content"], line["agent_id"], line["session_id"]) for line in found["short_term.jsonl"]] == [
        ("mine hello", "travel_agent", "new talk")
    ]
    assert [line["content"] for line in found["memories/working.jsonl"]] == ["mine in mind"]

    assert [(line["memory_type"], line["max_memories"]) for line in found["quotas.json"]] == [("long_term", 77)]
    assert [(line["memory_type"], line["delete_after_days"]) for line in found["rules.json"]] == [("history", 5_000)]
    assert {line["reason"]: line["released_at"] is not None for line in found["holds.json"]} == {
        "mine case": True, "mine message case": False,
    }  # fmt: skip
    assert {"archived", "recycled"} <= {line["action"] for line in found["audit.jsonl"]}
    places = [line["seq"] for line in found["audit.jsonl"]]  # what happened to several at once has one place
    assert places == sorted(places)
    assert {*places} == {*range(1, places[-1] + 1)}

    assert done["memories"]["long_term"] == 4
    assert done["conversations"] == 2
    assert done["incomplete"] == 0
    assert done["file"] == str(file)


def test_without_a_file_the_same_is_one_object(holdfast: Holdfast, clock: FakeClock, tmp_path: Path) -> None:
    fill(holdfast, clock, ME, "mine")
    said = holdfast.export_user(ME)
    assert [*said][:3] == ["user_id", "export_date", "memories"]
    assert said["user_id"] == ME
    assert said["export_date"] == clock().isoformat()
    assert [*said["memories"]] == [kind.value for kind in MemoryType]
    holdfast.export_user(ME, tmp_path / "me.zip")
    found = Export(tmp_path / "me.zip").all_lines()
    for kind, lines in said["memories"].items():
        assert lines == found["short_term.jsonl" if kind == "short_term" else f"memories/{kind}.jsonl"]
    talks = [found[name] for name in found if name.startswith("conversations/")]
    assert said["conversations"] == [{**head, "messages": messages} for head, *messages in talks]
    for name, file in {"facts": "facts.jsonl", "audit": "audit.jsonl", "rules": "rules.json"}.items():
        assert dict(said)[name] == found[file]


def test_the_names_of_the_source_documents_are_there(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("User enjoys skiing", "long_term")
    memory.structured.put("trips", {"to": "Oslo"}, key="t1")
    memory.entity.add("Rex")
    said = holdfast.export_user(ME)
    assert memory.gdpr_export_user_data(ME) == said
    assert holdfast.gdpr_export_user_data(ME) == said
    assert memory.long_term.export_all(ME) == said["memories"]["long_term"]
    assert memory.structured.export_all(ME) == said["memories"]["structured"]
    assert memory.entity.export_all(ME) == said["memories"]["entity"]
    assert memory.persona.export_all(ME) == []
    other = holdfast.manager("somebody else", "another agent")
    assert other.gdpr_export_user_data(ME)["memories"]["long_term"] == said["memories"]["long_term"]


def test_of_a_user_whom_nobody_knows_nothing_is_exported_or_written(holdfast: Holdfast, tmp_path: Path) -> None:
    before = raw.rows(holdfast, "SELECT subject FROM subjects")
    stream = io.BytesIO()
    for to in (None, tmp_path / "nobody.zip", stream):
        with pytest.raises(NotFoundError, match=r"user 'nobody' .* does not exist.* holdfast user list"):
            holdfast.export_user("nobody", to)
    assert not (tmp_path / "nobody.zip").exists()
    assert stream.getvalue() == b""
    assert raw.rows(holdfast, "SELECT subject FROM subjects") == before


def test_of_a_user_whom_only_a_quota_or_a_note_names_that_is_exported(holdfast: Holdfast) -> None:
    holdfast.quotas.set("long_term", max_memories=5, user_id="soon")
    assert len(holdfast.export_user("soon")["quotas"]) == 1
    holdfast.manager("now", "guide").add("a note", "working")
    assert len(holdfast.export_user("now")["memories"]["working"]) == 1


def test_tenants_are_kept_apart(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock, tenant="north") as north:
        north.manager(ME, "a").add("a secret of the north")
        north.quotas.set("long_term", max_memories=5, user_id=ME)
    with Holdfast.open(home=home, clock=clock, tenant="south") as south:
        south.manager(ME, "a").add("of the other one")
        assert "north" not in json.dumps(south.export_user(ME))
        assert south.export_user(ME)["quotas"] == []


# --- the places -------------------------------------------------------------------------------------------------------


def test_of_someone_who_was_erased_nothing_is_left_to_export(
    holdfast: Holdfast, clock: FakeClock, tmp_path: Path
) -> None:
    fill(holdfast, clock, ME, "mine")
    holdfast.parts.add(notes_part.KIND, f"sqlite:///{tmp_path}/notes.db")
    notes_part.Notes(tmp_path / "notes.db").write("trip", ME, "guide", 1, "mine")
    for hold in holdfast.holds.list():
        holdfast.holds.release(hold.id, author="dpo")
    before = holdfast.export_user(ME)
    assert all(before["memories"].values())
    assert all(lines for name, lines in before.items() if name not in ("user_id", "export_date", "memories"))
    holdfast.erase_user(ME)
    with pytest.raises(NotFoundError):  # whatever an export reads, an erasure removes
        holdfast.export_user(ME)


def test_an_entry_of_the_bin_that_is_about_to_be_deleted_is_still_told_of(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    memory_id = memory.add("nearly gone", "long_term")["memory_id"]
    memory.delete(memory_id)
    raw.run(holdfast, "UPDATE records SET state = 'deleting' WHERE id = ?", (memory_id,))
    (line,) = holdfast.export_user(ME)["memories"]["long_term"]
    assert (line["state"], line["content"]) == ("deleting", "nearly gone")


def test_what_has_expired_and_was_not_cleared_away_is_told_of(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "an hour ago and more")
    clock.advance(hours=2)
    assert memory.short_term.get_conversation_history() == []
    (line,) = holdfast.export_user(ME)["memories"]["short_term"]
    assert line["content"] == "an hour ago and more"
    assert line["expires_at"] < clock().isoformat()


def test_short_term_memory_on_a_server_is_in_it_with_the_agents_and_sessions_that_are_known(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with valkey() as server:
        monkeypatch.setenv("HOLDFAST_SHORT_TERM_URL", server.url)
        with Holdfast.open(home=home, clock=clock) as holdfast:
            memory = holdfast.manager(ME, "travel_agent", "talk")
            memory.short_term.add_message("user", "hello " + LONG)
            memory.short_term.add_message("agent", "hi")
            holdfast.manager(ME, "other_agent").short_term.add_message("user", "no session")
            holdfast.manager(f"{ME}4", "travel_agent", "talk").short_term.add_message("user", "not mine")
            lost = holdfast.manager(ME, "lost_agent", "lost")
            lost.short_term.add_message("user", "its conversation is gone")
            raw.run(holdfast, "DELETE FROM sessions WHERE agent_id = 'lost_agent'")
            found = holdfast.export_user(ME)["memories"]["short_term"]
            for line in found:
                validator().validate(line)
            assert {(line["content"], line["agent_id"], line["session_id"]) for line in found} == {
                ("hello " + LONG, "travel_agent", "talk"),
                ("hi", "travel_agent", "talk"),
                ("no session", "other_agent", None),
                ("its conversation is gone", None, None),
            }
            server.stop()
            with pytest.raises(StoreAwayError) as away:
                holdfast.export_user(ME)
            assert away.value.retryable


# --- a ZIP for people and programs --------------------------------------------------------------------------------------


def test_the_manifest_tells_when_what_and_the_sum_of_every_file(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, tmp_path: Path
) -> None:
    fill(holdfast, clock, ME, "mine")
    holdfast.export_user(ME, tmp_path / "me.zip")
    export = Export(tmp_path / "me.zip")
    manifest = export.manifest
    assert (manifest["format"], manifest["version"], manifest["user_id"]) == ("holdfast-export", 1, ME)
    assert manifest["export_date"] == clock().isoformat()
    assert manifest["pseudonym"] == holdfast.services.packs.alias(Subject("default", ME))
    assert "exactly once" in manifest["consistency"]
    assert manifest["left_out"] == LEFT_OUT
    told = {file["name"]: file for file in manifest["files"]}
    assert {*told} | {"manifest.json"} == {*export.files}
    for name, file in told.items():
        assert hashlib.sha256(export.files[name]).hexdigest() == file["sha256"]
        assert len(export.files[name]) == file["bytes"]
    for name, lines in export.all_lines().items():
        assert told[name]["records"] == len(lines)
    assert manifest["counts"]["long_term"] == told["memories/long_term.jsonl"]["records"]


def test_the_schema_is_strict_about_every_type_of_line() -> None:
    valid = validator()
    for name, definition in line_schema()["$defs"].items():
        assert not valid.is_valid({"type": name}), "fields are required"
        assert not valid.is_valid({**dict.fromkeys(definition["properties"]), "type": name, "more": 1}), (
            "others are not allowed"
        )
    assert not valid.is_valid({"type": "something else"})


class _Page(HTMLParser):
    """What a browser would make of a page: its elements, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str | None]] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value)

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> \"' &amp; </p></body> \u202e \x1b[31m"


def test_the_page_shows_everything_loads_nothing_and_runs_nothing(
    holdfast: Holdfast, clock: FakeClock, tmp_path: Path
) -> None:
    user = "<b>\"user' &"
    memory = holdfast.manager(user, "<i>agent", "<u>session")
    memory.add(EVIL, "long_term", {"<em>key": EVIL})
    memory.short_term.add_message("<s>role", EVIL)
    memory.structured.put("<q>docs", {"<a href=x>": "javascript:alert(3)"}, key="<k>")
    holdfast.holds.add(user_id=user, reason=EVIL.replace("\x1b", ""), author="<author>")
    holdfast.export_user(user, tmp_path / "me.zip")
    page = _Page(Export(tmp_path / "me.zip").files["index.html"].decode())
    assert page.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "td", "a", "article", "dl",
        "dt", "dd",
    }  # fmt: skip
    assert {*page.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "href", "id", "class",
    }  # fmt: skip
    assert all(str(link).startswith("#") for link in page.attributes["href"])
    assert any("default-src 'none'" in str(value) for value in page.attributes["content"])
    assert page.text.count(EVIL) >= 3
    assert all(word in page.text for word in (user, "<i>agent", "<u>session", "<s>role", "javascript:alert(3)"))


def test_a_stream_that_cannot_go_back_is_enough(holdfast: Holdfast, memory: MemoryManager) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    memory.add("User enjoys skiing")
    pipe = Pipe()
    done = holdfast.export_user(ME, cast("Any", pipe))
    assert done["file"] is None
    assert [line["content"] for line in Export(pipe.data).lines("memories/long_term.jsonl")] == ["User enjoys skiing"]


# --- a whole file, or none ----------------------------------------------------------------------------------------------


def cold_one(holdfast: Holdfast, clock: FakeClock) -> str:
    memory_id: str = holdfast.manager(ME, "travel_agent").add(LONG)["memory_id"]
    clock.advance(days=366)
    holdfast.sweep(confirm=True)
    return memory_id


def test_an_archive_that_is_away_is_an_error_to_try_again_after_and_leaves_no_file(
    holdfast: Holdfast, clock: FakeClock, tmp_path: Path
) -> None:
    cold_one(holdfast, clock)
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "me.zip").write_bytes(b"the export of before")
    archive = holdfast.settings.home / "archive"
    archive.rename(tmp_path / "unmounted")
    for to in (folder / "me.zip", folder / "new.zip", None):
        with pytest.raises(ObjectStoreUnavailableError) as away:
            holdfast.export_user(ME, to)
        assert away.value.retryable
    assert [(file.name, file.read_bytes()) for file in folder.iterdir()] == [("me.zip", b"the export of before")]
    (tmp_path / "unmounted").rename(archive)
    holdfast.export_user(ME, folder / "me.zip")
    assert [line["content"] for line in Export(folder / "me.zip").lines("memories/long_term.jsonl")] == [LONG]
    assert [file.name for file in folder.iterdir()] == ["me.zip"]
    assert (folder / "me.zip").stat().st_mode & 0o077 == 0, "for nobody else to read"


def test_cold_content_in_a_bucket_is_exported_and_a_bucket_that_is_away_is_an_error(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with s3() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", f"{server.new_bucket()}/cold")
        with Holdfast.open(home=home, clock=clock) as holdfast:
            cold_one(holdfast, clock)
            assert [line["content"] for line in holdfast.export_user(ME)["memories"]["long_term"]] == [LONG]
            server.stop()
            with pytest.raises(ObjectStoreUnavailableError) as away:
                holdfast.export_user(ME, tmp_path / "me.zip")
            assert away.value.retryable
            assert not (tmp_path / "me.zip").exists()


def test_of_what_was_sealed_under_a_key_that_is_gone_the_rest_is_exported_with_a_note(
    holdfast: Holdfast, clock: FakeClock, tmp_path: Path
) -> None:
    memory_id = cold_one(holdfast, clock)
    holdfast.manager(ME, "travel_agent").add("not cold")
    assert holdfast.export_user(ME)["memories"]["long_term"][0]["content"] == LONG
    assert holdfast.keyring.destroy(holdfast.services.packs.alias(Subject("default", ME)))
    done = holdfast.export_user(ME, tmp_path / "me.zip")
    assert done["incomplete"] == 1
    export = Export(tmp_path / "me.zip")
    assert export.manifest["incomplete"] == 1
    cold, warm = export.lines("memories/long_term.jsonl")
    assert cold["memory_id"] == memory_id
    assert "is not in the keyring" in cold["note"]
    assert LONG.startswith(cold["content"][:20]), "its summary is left"
    assert (warm["content"], warm["note"]) == ("not cold", None)


def test_of_what_is_missing_or_damaged_in_cold_storage_the_rest_is_exported_with_a_note(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    cold_one(holdfast, clock)
    (name,) = objects_of(holdfast)
    object_path(holdfast, name).write_bytes(b"nothing of it")
    (line,) = holdfast.export_user(ME)["memories"]["long_term"]
    assert "damaged" in line["note"]
    object_path(holdfast, name).unlink()
    (line,) = holdfast.export_user(ME)["memories"]["long_term"]
    assert "cannot be read" in line["note"]
    assert line["content"]


def test_a_disk_that_is_full_is_told_of(holdfast: Holdfast, memory: MemoryManager) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 500:
                raise OSError(28, "No space left on device")
            return super().write(data)

    memory.add("User enjoys skiing")
    target = Full()
    with pytest.raises(StoreFullError, match="No space left"):
        holdfast.export_user(ME, target)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(target.getvalue()))


def test_wrong_arguments_are_refused_before_anything_is_read(holdfast: Holdfast, tmp_path: Path) -> None:
    for to, words in {tmp_path: "is a folder", tmp_path / "no" / "me.zip": "make it first", 5: "not 5"}.items():
        with pytest.raises(InvalidInputError, match=words):
            holdfast.export_user(ME, cast("Any", to))
    for user in ("", "*", None, "a\nb"):
        with pytest.raises(InvalidScopeError):
            holdfast.export_user(cast("Any", user))
    memory = holdfast.manager(ME, "a")
    with pytest.raises(InvalidInputError):
        memory.export_kind(ME, "working")
    assert [*tmp_path.glob("*.zip")] == []


# --- while others write -------------------------------------------------------------------------------------------------


def person_of(holdfast: Holdfast) -> Person:
    parts = holdfast.services
    sources = Sources(
        parts.reader, parts.records, parts.versions, parts.short_term, parts.schemas, parts.rules, parts.holds,
        parts.archives, parts.working.of_user, lambda name: SessionParts(parts.tenant(name)),
    )  # fmt: skip
    return Person(sources, "default", ME)


def test_what_is_brought_back_or_packed_anew_while_it_is_read_is_read_again(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    ids = [memory.add(f"{n} {LONG}")["memory_id"] for n in range(4)]
    clock.advance(days=366)
    holdfast.sweep(confirm=True)
    memory.rehydrate(ids[0])
    reading = read_memories(person_of(holdfast), MemoryType.LONG_TERM)
    said = [next(reading)]
    memory.rehydrate(ids[1])  # the others are packed anew
    said += reading
    assert [(line["memory_id"], line["note"]) for line in said] == [(memory_id, None) for memory_id in ids]
    assert [line["content"] for line in said] == [f"{n} {LONG}" for n in range(4)]


def test_what_is_there_all_the_time_is_in_it_once_whatever_happens_to_it(
    holdfast: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    from holdfast.privacy.export import readers

    monkeypatch.setattr(readers, "_PAGE", 3)
    ids = memory.add_many([f"memory {n}" for n in range(30)])["memory_ids"]
    turns: Iterator[int] = iter(range(10_000))

    def stir() -> None:
        """Change, recycle and restore memories, before and after where the reader is, and add others."""
        turn = next(turns)
        one, other = ids[turn * 7 % 30], ids[turn * 11 % 30]
        with suppress(Exception):
            memory.delete(one)
        with suppress(Exception):
            memory.restore(other)
        with suppress(Exception):
            memory.update(ids[turn % 30], metadata={"turn": turn})
        memory.add(f"new {turn}")

    said = []
    for line in read_memories(person_of(holdfast), MemoryType.LONG_TERM):
        said.append(line["memory_id"])
        if len(said) < 60:
            stir()
    assert [memory_id for memory_id in said if memory_id in set(ids)] == ids
    assert len(said) == len(set(said))


def test_someone_who_is_erased_while_being_exported_leaves_no_file(
    holdfast: Holdfast, memory: MemoryManager, tmp_path: Path
) -> None:
    memory.add("User enjoys skiing")

    def erase(_count: int) -> None:
        holdfast.erase_user(ME)

    with pytest.raises(StaleError, match="was erased"):
        holdfast.export_user(ME, tmp_path / "me.zip", progress=erase)
    assert [*tmp_path.glob("*.zip*")] == []


# --- how much memory, and how far ---------------------------------------------------------------------------------------


def insert_many(holdfast: Holdfast, count: int, size: int) -> None:
    """Records past the embedder, which has nothing to do with it."""
    scope, now = Scope("default", ME, "a"), holdfast.services.now()
    holdfast.quotas.set("long_term", max_memories=10**6, user_id=ME)
    for start in range(0, count, 1_000):
        ids = holdfast.services.new_ids(now, min(1_000, count - start))
        made = (
            Record(one, MemoryType.LONG_TERM, scope, f"{one} " + "x" * size, now, now, now, {"n": n})
            for n, one in enumerate(ids)
        )
        entries = [Entry(record, Encoding(None, None, b"")) for record in made]
        holdfast.services.records.insert(scope.subject, TYPES[MemoryType.LONG_TERM], entries, prune=False, now=now)


def test_an_export_takes_no_more_memory_for_more_memories(holdfast: Holdfast, tmp_path: Path) -> None:
    insert_many(holdfast, 1_500, 24_000)  # 36 MB of text
    holdfast.manager("warm up", "a").add("a note")
    holdfast.export_user("warm up", tmp_path / "none.zip")
    tracemalloc.start()
    try:
        holdfast.export_user(ME, tmp_path / "me.zip")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * 1024 * 1024
    with zipfile.ZipFile(tmp_path / "me.zip") as archive, archive.open("memories/long_term.jsonl") as lines:
        assert sum(1 for _ in lines) == 1_500


def test_large_memories_come_in_small_pages(holdfast: Holdfast) -> None:
    insert_many(holdfast, 12, 3 * 1024 * 1024)
    read: Callable[..., tuple[list[Record], int]] = holdfast.services.reader.records
    after, sizes = 0, []
    while page := read(Subject("default", ME), TYPES[MemoryType.LONG_TERM], after=after, limit=500):
        found, after = page
        if not found:
            break
        sizes.append(len(found))
    assert sizes == [2] * 6


def test_progress_hears_of_every_memory_and_message(holdfast: Holdfast, memory: MemoryManager, tmp_path: Path) -> None:
    memory.add_many([f"memory {n}" for n in range(250)])
    for n in range(5):
        memory.short_term.add_message("user", f"message {n}")
    heard: list[int] = []
    holdfast.export_user(ME, tmp_path / "me.zip", progress=heard.append)
    size = holdfast.services.exports.size("default", ME)
    assert size == 255
    assert sum(heard) >= size
    heard.clear()
    holdfast.export_user(ME, progress=heard.append)
    assert sum(heard) >= size


# --- where it is written ------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_link_stays_and_the_file_that_it_leads_to_is_written(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast.manager(ME, "guide").add("likes tea", "long_term")
    file, link, new = tmp_path / "real.zip", tmp_path / "link.zip", tmp_path / "new.zip"
    file.write_bytes(b"what was there")
    link.symlink_to(file)
    new.symlink_to(tmp_path / "not-there-yet.zip")
    for path in (link, new):
        holdfast.export_user(ME, path)
        assert path.is_symlink()
        assert zipfile.is_zipfile(path.resolve())


@on_sqlite
def test_nothing_but_a_file_is_replaced(holdfast: Holdfast, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(InvalidInputError, match="a device, a pipe or a socket"):
            holdfast.export_user(ME, path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.glob("*.part")) == []
