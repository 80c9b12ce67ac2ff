"""What must not happen, whatever happens: found by attacking the engine, and kept from coming back."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raw
from holdfast import (
    ClosedError,
    EmbedderError,
    Holdfast,
    HoldfastError,
    InvalidContentError,
    InvalidInputError,
    InvalidSettingsError,
    MemoryManager,
    QuotaExceededError,
)
from holdfast.ports.feed import Vectors
from holdfast.recall.postings import Postings
from holdfast.settings import read_settings
from homes import on_sqlite
from memory.test_recall import Hashing, swap_embedder


def test_an_interrupt_within_a_write_leaves_the_store_writable(holdfast: Holdfast, memory: MemoryManager) -> None:
    def interrupted() -> None:
        with holdfast.database.write():
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert memory.add("still here")["operation"] == "add"
    with Holdfast.open(home=holdfast.settings.home) as other:
        other.manager("user", "agent").add("and from elsewhere")


def test_an_index_that_was_interrupted_is_made_anew(
    holdfast: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("User enjoys skiing")
    memory.retrieve("skiing")
    memory.add("User avoids slopes")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Postings, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.retrieve("slopes")
    assert len(memory.retrieve("slopes")) == 2


@pytest.mark.parametrize(
    "schema", [{"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/hostname"}, {"$ref": "#"}, {"$schema": []}, 7]
)
def test_a_schema_that_leads_elsewhere_is_refused_and_nothing_is_fetched(memory: MemoryManager, schema: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.structured.define("orders", schema)
    memory.structured.define(
        "orders", {"$defs": {"n": {"type": "number"}}, "properties": {"total": {"$ref": "#/$defs/n"}}}
    )
    memory.structured.put("orders", {"total": 3})


def test_settings_of_the_working_folder_are_not_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text('embedder = "openai:x@http://127.0.0.1:9/v1"')
    monkeypatch.chdir(tmp_path)
    assert read_settings({}, home=home).embedder == "static"


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({"HOLDFAST_INDEX_MIB": "inf"}, None),
        ({}, "sqlite:///a\0b"),
        ({"HOLDFAST_HOME": "~nosuchuser/x"}, None),
        ({}, "mysql://u:hunter2@h"),
    ],
)
def test_settings_that_name_no_place_are_refused_without_their_passwords(
    environ: dict[str, str], url: str | None
) -> None:
    with pytest.raises(InvalidSettingsError) as refusal:
        Holdfast(read_settings(environ, url=url))
    assert "hunter2" not in str(refusal.value)


def test_an_entity_verb_that_is_refused_writes_nothing(memory: MemoryManager) -> None:
    attempts: list[Any] = [
        lambda: memory.entity.add("Bob", attributes={"x": object()}),
        lambda: memory.entity.add("Bob", since="garbage"),
        lambda: memory.entity.add("Bob", attributes={"x": "y" * 9_000_000}),
        lambda: memory.entity.add("Bob", attributes=[1]),  # type: ignore[arg-type]
        lambda: memory.entity.relate("Bob", "", "Alice"),
        lambda: memory.entity.relate("Bob", "knows", ""),
        lambda: memory.entity.add("01a1ddfb-f19f-79a5-91e3-a8d358479c23"),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInputError):
            attempt()
    assert memory.count_memories("entity") == 0


def test_an_entity_with_large_attributes_stays_usable(memory: MemoryManager) -> None:
    memory.entity.add("Big", attributes={f"part {n}": "x" * 60_000 for n in range(8)})
    memory.entity.set("Big", {"size": "large"})
    assert memory.entity.get("Big")["attributes"]["size"] == "large"
    assert memory.retrieve("Big", "entity")


class Picky(Hashing):
    """An embedder that refuses some texts."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        if any("poison" in text for text in texts):
            raise EmbedderError("this text cannot be embedded")
        return super().embed(texts)


def test_a_text_that_the_embedder_refuses_does_not_end_recall(holdfast: Holdfast) -> None:
    holdfast.manager("user", "agent").add_many(["a poison pill", "a glass of milk"])
    with swap_embedder(holdfast, Picky("picky")) as other:
        memory = other.manager("user", "agent")
        assert len(memory.list_memories()) == 2
        assert memory.retrieve("milk", top_k=1)[0]["content"] == "a glass of milk"


def test_two_models_on_one_store_do_not_rewrite_each_others_vectors(holdfast: Holdfast) -> None:
    memory = holdfast.manager("user", "agent")
    memory.add_many([f"memory {n}" for n in range(20)])
    newer = Hashing()
    with swap_embedder(holdfast, newer) as other:
        other.manager("user", "agent").retrieve("memory 3")
        other.reembed()  # what that recall had no time for
        before = memory.retrieve("memory 3")  # opened earlier: goes by words, embeds nothing
        assert len(before) == 5
        assert other.reembed() == 0, "everything is still of the newer model"


@pytest.mark.parametrize("text", ["a'" * 3_000 + "b", "[" * 100_000, "'" * 5_000 + "s", "x" * 200_000])
def test_no_text_is_too_odd_to_be_remembered_and_found(memory: MemoryManager, text: str) -> None:
    memory.add(text)
    memory.retrieve(text[:60_000])
    with pytest.raises(InvalidContentError):
        memory.add("[" * 100_000, "structured")


def test_a_closed_engine_holds_and_does_nothing(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("a note", "working")
    holdfast.close()
    for attempt in (lambda: memory.add("x", "working"), memory.working.items, lambda: memory.retrieve("x")):
        with pytest.raises(ClosedError):
            attempt()


def test_a_forked_process_opens_an_engine_of_its_own(home: Path) -> None:
    program = """
import os
from holdfast import MemoryManager, ClosedError
from holdfast.engine import _defaults_lock
parent = MemoryManager("user", "agent")
parent.add("from the parent")
_defaults_lock.acquire()  # as a thread of the parent might hold it
child = os.fork()
if child == 0:
    try:
        parent.add("with the parent's engine")
    except ClosedError:
        assert MemoryManager("user", "agent").count_memories() == 1
        os._exit(0)
    os._exit(1)
print(os.waitpid(child, 0)[1])
"""
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0\n"


@on_sqlite
def test_the_store_is_for_its_owners_eyes(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("a secret")
    files = [path for path in holdfast.settings.home.iterdir() if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(holdfast.settings.home.stat().st_mode) == 0o700


def test_a_message_that_was_deleted_is_in_no_index(holdfast: Holdfast, memory: MemoryManager) -> None:
    message = memory.short_term.add_message("user", "my number is 12345")
    memory.retrieve("number", "short_term")
    held = holdfast.recall.nbytes
    memory.delete(message)
    assert holdfast.recall.nbytes < held


def test_an_index_that_fits_no_budget_costs_the_others_nothing(home: Path) -> None:
    settings = read_settings({"HOLDFAST_INDEX_MIB": "1"}, home=home)
    with Holdfast(settings) as holdfast:
        small, large = holdfast.manager("small", "agent"), holdfast.manager("large", "agent")
        small.add("a small memory")
        large.add_many([f"memory {n}" for n in range(2_000)])
        small.retrieve("memory")
        held = holdfast.recall.nbytes
        assert len(large.retrieve("memory 7")) == 5
        assert holdfast.recall.nbytes == held


def test_working_memory_cannot_outgrow_its_quota_by_updates(memory: MemoryManager) -> None:
    notes = [memory.add("x" * 8_000_000, "working")["memory_id"] for _ in range(8)]
    memory.add("x" * 3_000_000, "working")
    with pytest.raises(QuotaExceededError, match="end the task"):
        memory.update(notes[0], "y" * 8_388_608)
    assert memory.get(notes[0])["content"] == "x" * 8_000_000


def test_what_is_handed_out_is_not_what_is_kept(memory: MemoryManager) -> None:
    note = memory.add("a note", "working", {"nested": {"n": 1}})["memory_id"]
    memory.get(note)["metadata"]["nested"]["n"] = 2
    assert memory.get(note)["metadata"]["nested"]["n"] == 1


def test_metadata_of_a_document_can_be_taken_away(memory: MemoryManager) -> None:
    memory_id = memory.add({"city": "Rome"}, "structured", {"sure": False})["memory_id"]
    assert "sure" not in memory.update(memory_id, metadata={})["metadata"]
    assert memory.get(memory_id)["metadata"]["document"] == {"city": "Rome"}


@pytest.mark.parametrize("bad", [7, None, [], {}, "\ud800", "", b"bytes"], ids=repr)
def test_whatever_is_asked_of_the_other_verbs_is_answered_or_refused_in_our_words(
    holdfast: Holdfast, memory: MemoryManager, bad: Any
) -> None:
    attempts: list[Any] = [
        lambda: holdfast.sessions.history(bad, "s"),
        lambda: holdfast.sessions.history("agent", "s", user_id=bad),
        lambda: holdfast.sessions.history("agent", "s", limit=bad),
        lambda: holdfast.sessions.list(bad),
        lambda: holdfast.sessions.list("user", bad),
        lambda: memory.short_term.delete(bad),
        lambda: memory.short_term.append("user", bad, None),
        lambda: memory.working.get(bad),
        lambda: memory.working.delete(bad),
        lambda: memory.structured.put("c", bad),
        lambda: memory.structured.put("c", {"a": 1}, metadata=bad),
        lambda: memory.structured.find("c", order_by=bad),
        lambda: memory.structured.define("c", bad),
        lambda: memory.entity.set("nobody", bad),
        lambda: memory.entity.get(bad),
        lambda: holdfast.quotas.get("working", bad),
    ]
    for attempt in attempts:
        with suppress(HoldfastError):
            attempt()


def test_errors_show_no_more_than_a_little_of_what_was_given(memory: MemoryManager) -> None:
    memory.structured.define("c", {"properties": {"secret": {"type": "number"}}})
    attempts: list[Any] = [
        lambda: memory.structured.put("c", {"secret": "s" * 5_000}),
        lambda: memory.add("x", "long_term", {"k" * 5_000: object()}),
        lambda: memory.retrieve("x", filters={"f" * 5_000: {"like": 1}}),
        lambda: memory.retrieve("x", "k" * 5_000),
        lambda: memory.add("n" * 5_000, "k" * 5_000),
    ]
    for attempt in attempts:
        with pytest.raises(HoldfastError) as refusal:
            attempt()
        assert len(str(refusal.value)) < 600


def test_the_keys_of_a_store_never_run_into_each_other(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("first")
    raw.run(holdfast, "UPDATE scopes SET next = 536870912")
    with pytest.raises(HoldfastError, match="ever hold"):
        memory.add("one too many")


def test_many_threads_closing_and_asking_never_hang(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add_many([f"memory {n}" for n in range(200)])

    def ask() -> None:
        try:
            for number in range(200):
                memory.retrieve(f"memory {number}")
        except ClosedError:
            pass

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    holdfast.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
