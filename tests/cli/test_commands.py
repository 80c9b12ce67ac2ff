"""The commands: what they print for people, what for programs, and how they end."""

from __future__ import annotations

import atexit
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli.shell import SCRIPT, Shell, run
from holdfast import Holdfast
from holdfast.core import errors
from holdfast.core.records import DURABLE
from holdfast.edges.cli import main
from holdfast.edges.cli.memory.memories import show_results
from holdfast.edges.cli.output import exit_code, write_parts
from holdfast.recall.model_service import ModelService

# --- adding and finding -----------------------------------------------------------------------------------------------


def test_a_memory_that_was_added_is_found_by_its_meaning(shell: Shell) -> None:
    memory_id = shell.json("add", "Is allergic to peanuts", "-u", "alice")["memory_id"]
    shell.ok("add", "Drives an electric car", "-u", "alice")
    first, *_ = shell.json("search", "food allergy", "-u", "alice")
    assert first["memory_id"] == memory_id
    assert first["content"] == "Is allergic to peanuts"


@pytest.mark.parametrize("width", [40, 160])
def test_search_for_people_shows_the_score_and_the_whole_id_and_cuts_long_contents(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    memory_id = shell.ok("add", "Tea. " + "very long " * 100, "-u", "alice", "-q").strip()
    (line,) = shell.ok("search", "tea", "-u", "alice").splitlines()
    assert memory_id in line
    assert line.endswith("…")
    assert len(line) <= max(width, 82)
    assert "\x1b" not in line


@pytest.mark.parametrize("width", [50, 72, 200])
def test_on_a_terminal_of_any_width_ids_are_whole(shell: Shell, width: int) -> None:
    memory_id = shell.ok("add", "Tea " * 100, "-u", "alice", "--meta", f"note={'x' * 99}", "-q").strip()
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    write_parts(show_results(shell.json("search", "tea", "-u", "alice", "--explain"), screen), screen)
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert all(len(line) <= max(width, 82) for line in lines)
    assert sum(memory_id in line for line in lines) == 1


def test_search_looks_in_every_kind_unless_kinds_are_named(shell: Shell) -> None:
    shell.ok("add", "Talks about noodles a lot", "-u", "alice", "--kind", "persona")
    assert [one["memory_type"] for one in shell.json("search", "noodles", "-u", "alice")] == ["persona"]
    assert shell.json("search", "noodles", "-u", "alice", "-k", "long_term") == []


def test_search_leaves_out_what_scores_less_than_asked_for(shell: Shell) -> None:
    shell.ok("add", "Is allergic to peanuts", "-u", "alice")
    shell.ok("add", "Drives an electric car", "-u", "alice")
    assert len(shell.json("search", "allergic to peanuts", "-u", "alice", "-k", "long_term")) == 2
    (found,) = shell.json("search", "allergic to peanuts", "-u", "alice", "--min-score", "0.5")
    assert found["content"] == "Is allergic to peanuts"
    _, said = shell.error("search", "tea", "-u", "alice", "--min-score", "1.5")
    assert said["message"] == "--min-score must be a number from 0 to 1, not 1.5"


def test_context_prints_the_block_and_nothing_else(shell: Shell) -> None:
    shell.ok("add", "Alice\n## eats *noodles* [bold]daily[/bold]", "-u", "alice")
    block = shell.json("context", "noodles", "-u", "alice")
    assert shell.ok("context", "noodles", "-u", "alice") == block["text"] + "\n"
    assert "Alice / ## eats *noodles* [bold]daily[/bold]" in block["text"]
    (message,) = json.loads(shell.ok("context", "noodles", "-u", "alice", "--format", "messages"))
    assert message == {"role": "system", "content": block["text"]}
    assert shell.ok("context", "noodles", "-u", "nobody") == ""
    assert shell.ok("context", "-u", "alice", "-n", "5") == ""
    assert shell.error("context", "noodles", "-u", "alice", "--kind", "working")


def test_search_says_so_when_nothing_is_found(shell: Shell) -> None:
    assert shell.ok("search", "tea", "-u", "nobody") == "Nothing found.\n"
    assert shell.json("search", "tea", "-u", "nobody") == []


def test_search_takes_several_kinds_filters_and_explains(shell: Shell) -> None:
    shell.ok("add", "Noodles at the stall", "-u", "alice", "--meta", "price=8")
    shell.ok("add", "Noodles at the palace", "-u", "alice", "--meta", "price=80")
    shell.ok("add", "Talks about noodles a lot", "-u", "alice", "--kind", "persona")
    found = shell.json(
        "search", "noodles", "-u", "alice", "-k", "long_term", "-k", "persona", "--explain",
        "--filter", '{"any": [{"price": {"lt": 20}}, {"price": {"exists": false}}]}',
    )  # fmt: skip
    assert {result["content"] for result in found} == {"Noodles at the stall", "Talks about noodles a lot"}
    assert all("explanation" in result for result in found)
    assert "vector" in shell.ok("search", "noodles", "-u", "alice", "--explain")


def test_text_is_read_from_standard_input_for_a_dash(shell: Shell) -> None:
    memory_id = shell.json("add", "-", "-u", "alice", stdin="Ärgert sich\nüber Lärm\n")["memory_id"]
    assert shell.json("get", memory_id, "-u", "alice")["content"] == "Ärgert sich\nüber Lärm"
    assert shell.error("add", "-", "-u", "alice", stdin=b"\xff\xfe")[1]["code"] == "invalid_content"
    assert shell.error("add", "-", "-u", "alice", stdin="")[1]["code"] == "invalid_content"


def test_metadata_is_a_json_object_and_single_fields_on_top(shell: Shell) -> None:
    memory_id = shell.json(
        "add", "x y z", "-u", "alice", "--metadata", '{"a": 1, "b": [2]}',
        "--meta", "a=3", "--meta", "zip=01234", "--meta", "ok=true", "--meta", "eq=a=b", "--meta", "nan=NaN",
    )["memory_id"]  # fmt: skip
    metadata = shell.json("get", memory_id, "-u", "alice")["metadata"]
    assert metadata == {"a": 3, "b": [2], "zip": "01234", "ok": True, "eq": "a=b", "nan": "NaN"}


@pytest.mark.parametrize(
    "given", [("--metadata", "[1]"), ("--metadata", "{a: 1}"), ("--meta", "novalue"), ("--meta", "=1")]
)
def test_metadata_that_is_not_understood_is_wrong_input(shell: Shell, given: tuple[str, str]) -> None:
    code, error = shell.error("add", "x", "-u", "alice", *given)
    assert (code, error["code"]) == (2, "invalid_metadata")
    assert not shell.home.exists(), "nothing was opened for it"


@pytest.mark.parametrize("text", ["{", "[]", '{"price": {"around": 3}}', json.dumps({"price": [*range(1_001)]})])
def test_a_filter_that_is_not_understood_is_wrong_input(shell: Shell, text: str) -> None:
    code, error = shell.error("search", "x", "-u", "alice", "--filter", text)
    assert (code, error["code"]) == (2, "invalid_filter")


def test_every_durable_kind_and_short_term_can_be_added_and_found(shell: Shell) -> None:
    for kind in (*DURABLE, "short_term"):
        text = '{"drink": "tea"}' if kind == "structured" else "A cup of tea"
        added = shell.json("add", text, "-u", "alice", "-s", "s1", "--kind", kind)
        found = shell.json("search", "tea", "-u", "alice", "-s", "s1", "--kind", kind)
        assert [result["memory_id"] for result in found] == [added["memory_id"]], kind


@pytest.mark.parametrize("command", ["add", "search"])
def test_working_memory_is_refused_because_it_lives_in_a_process(shell: Shell, command: str) -> None:
    code, error = shell.error(command, "x", "-u", "alice", "--kind", "working")
    assert (code, error["code"]) == (2, "invalid_kind")
    assert "lives in the process" in error["message"]


# --- one memory -------------------------------------------------------------------------------------------------------


def test_a_memory_is_shown_deleted_and_restored_as_it_was(shell: Shell) -> None:
    memory_id = shell.ok("add", "Likes tea", "-u", "alice", "--meta", "topic=drinks", "--quiet").strip()
    before = shell.json("get", memory_id, "-u", "alice")
    assert memory_id in shell.ok("delete", memory_id, "-u", "alice")
    code, error = shell.error("get", memory_id, "-u", "alice")
    assert (code, error["code"], error["retryable"]) == (1, "not_found", False)
    assert "recycle bin" in error["message"]
    assert shell.ok("restore", memory_id, "-u", "alice") == f"Restored {memory_id}.\n"
    assert shell.json("get", memory_id, "-u", "alice") == before


def test_what_was_deleted_says_how_it_comes_back(shell: Shell) -> None:
    one, kept = (shell.json("add", text, "-u", "alice")["memory_id"] for text in ("Likes tea", "Has the flu"))
    assert shell.ok("delete", one, "-u", "alice") == f"Recycled {one}; holdfast restore brings it back.\n"
    said = " ".join(shell.ok("delete", kept, "-u", "alice", "--keep-out").split())
    assert f"holdfast restore brings it back after holdfast kept-out lift {kept}." in said
    assert shell("restore", kept, "-u", "alice").exit_code != 0
    shell.ok("kept-out", "lift", kept, "-u", "alice")
    shell.ok("restore", kept, "-u", "alice")


def test_a_memory_for_people_has_its_content_whole_and_no_way_to_steer_the_terminal(shell: Shell) -> None:
    text = "First line\nsecond \x1b[31mline [bold]" + " and more" * 50
    memory_id = shell.ok("add", text, "-u", "alice", "-q").strip()
    shown = shell.ok("get", memory_id, "-u", "alice")
    assert text.replace("\x1b", "�") in shown
    assert f"id:        {memory_id}" in shown


def test_scopes_are_kept_apart(shell: Shell) -> None:
    memory_id = shell.ok("add", "Likes tea", "-u", "alice", "--tenant", "acme", "-q").strip()
    assert shell.error("get", memory_id, "-u", "alice")[0] == 1
    assert shell.error("get", memory_id, "-u", "bob", "--tenant", "acme")[0] == 1
    assert shell.json("get", memory_id, "-u", "alice", "--tenant", "acme")["agent_id"] == "cli"


def test_a_store_can_be_named_by_its_url(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'elsewhere' / 'my.db'}"
    shell.ok("add", "Likes tea", "-u", "alice", "--url", url)
    assert (tmp_path / "elsewhere" / "my.db").exists()
    assert shell.error("add", "Likes tea", "-u", "alice", "--url", "mongodb://x")[1]["code"] == "invalid_settings"


# --- quotas and embedding ---------------------------------------------------------------------------------------------


def test_a_quota_is_set_shown_enforced_and_pruned(shell: Shell) -> None:
    said = shell.ok("quota", "set", "long_term", "--max-memories", "2", "-u", "alice")
    assert said == "Quota of long_term for alice: 2 memories.\n"
    for text in ("one", "two"):
        shell.ok("add", text, "-u", "alice")
    code, error = shell.error("add", "three", "-u", "alice")
    assert (code, error["code"]) == (1, "quota_exceeded")
    assert shell.json("add", "three", "-u", "alice", "--prune")["pruned"] == 1
    usage = {row["memory_type"]: row for row in shell.json("quota", "show", "alice")}
    assert (usage["long_term"]["memories"], usage["long_term"]["max_memories"]) == (2, 2)
    assert list(usage) == list(DURABLE)
    assert "long_term" in shell.ok("quota", "show", "alice")


def test_a_quota_can_be_taken_away_and_nonsense_is_refused(shell: Shell) -> None:
    assert shell.json("quota", "set", "entity", "--max-memories", "unlimited")["max_memories"] is None
    usage = {row["memory_type"]: row for row in shell.json("quota", "show", "alice")}
    assert usage["entity"]["max_memories"] is None
    assert "unlimited" in shell.ok("quota", "show", "alice")
    for nonsense in (("--max-memories", "-1"), ("--max-memories", "many"), ()):
        assert shell.error("quota", "set", "entity", *nonsense)[0] == 2


def test_reembed_says_so_when_there_is_nothing_to_do(shell: Shell) -> None:
    shell.ok("add", "Likes tea", "-u", "alice")
    assert shell.json("reembed")["reembedded"] == 0
    assert "already" in shell.ok("reembed")


def test_reembed_catches_up_with_what_was_added_while_the_embedder_did_not_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_EMBEDDER", "openai:m@http://127.0.0.1:9/v1")
    monkeypatch.setitem(ModelService.__init__.__kwdefaults__ or {}, "sleep", lambda _seconds: None)  # between its tries
    added = shell("add", "Likes tea", "-u", "alice")
    assert added.exit_code == 0
    assert added.stderr.startswith("warning: The embedder fails.")
    code, error = shell.error("reembed")
    assert (code, error["code"], error["retryable"]) == (75, "embedder_unavailable", True)
    monkeypatch.delenv("HOLDFAST_EMBEDDER")
    assert shell.ok("reembed").startswith("Embedded 1 memory with ")


# --- how commands end -------------------------------------------------------------------------------------------------


def test_wrong_usage_ends_with_2_and_with_json_says_so_as_json(shell: Shell) -> None:
    assert shell("add").exit_code == 2
    code, error = shell.error("add", "Likes tea")
    assert (code, error["code"]) == (2, "usage")
    assert "--user" in error["message"]
    assert shell.error("remember", "x")[0] == 2
    assert shell.error("add", "x", "-u", "alice", "--kind", "nonsense")[0] == 2


def test_an_error_for_people_is_one_sentence_on_stderr_without_a_traceback(shell: Shell) -> None:
    result = shell("get", "0" * 8, "-u", "alice")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no memory")
    assert "Traceback" not in result.stderr


def test_every_error_has_an_exit_code_and_the_retryable_ones_have_75() -> None:
    tree = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.HoldfastError)]
    peculiar = {"confirmation_needed": 4, "clock": 4, "plan_changed": 4, "held": 5}
    for cls in tree:
        usual = 75 if cls.retryable else 2 if issubclass(cls, errors.InvalidInputError) else 1
        assert exit_code(cls) == peculiar.get(cls.code, usual), cls
    assert peculiar.keys() <= {cls.code for cls in tree}


def test_an_unexpected_error_does_show_a_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Holdfast, "__init__", broken)
    assert isinstance(shell("get", "x", "-u", "alice").exception, ZeroDivisionError)


def test_the_script_prints_json_and_nothing_else_on_stdout(home: Path) -> None:
    added = run("add", "Likes tea", "-u", "alice", "--json", home=home)
    assert (added.returncode, added.stderr) == (0, "")
    assert json.loads(added.stdout)["operation"] == "add"
    failed = run("get", "nope", "-u", "alice", "--json", home=home)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert json.loads(failed.stderr)["error"]["code"] == "not_found"


def test_a_store_that_is_none_ends_with_a_sentence(home: Path) -> None:
    home.mkdir()
    (home / "holdfast.db").write_bytes(b"not a database at all, but longer than a header " * 20)
    failed = run("search", "tea", "-u", "alice", home=home)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert "Traceback" not in failed.stderr


def test_a_closed_pipe_ends_quietly(home: Path) -> None:
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "cli").add_many([f"Tea number {n} " + "long " * 20 for n in range(1_000)])
    piped = f"'{SCRIPT}' search tea -u alice --top-k 1000 --json | head -n 1"
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    done = subprocess.run(["/bin/sh", "-c", piped], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[\n"
    assert done.stderr == ""


class _Interrupted(io.RawIOBase):
    """A terminal at which Ctrl-C is pressed instead of text being typed."""

    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: object) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_ends_quietly(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "add", "-", "-u", "alice", "--home", str(home)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(_Interrupted())))
    monkeypatch.setattr(atexit, "register", lambda _: None)  # it would end this process as it ends a command
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("module", ["holdfast", "holdfast.edges.cli"])
def test_python_can_run_it_as_a_module(module: str) -> None:
    command = [sys.executable, "-m", module, "version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (
        done.stdout
        == subprocess.run([SCRIPT, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
    )


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_carries_out_what_it_can_and_says_which_lines_failed(shell: Shell, tmp_path: Path) -> None:
    whose = {"user_id": "alice", "agent_id": "cli"}
    kept = shell.json("add", "Likes coffee", "-u", "alice")["memory_id"]
    lines = [
        json.dumps({"operation": "add_memory", "input": {**whose, "content": "Likes tea"}}),
        "",
        "no JSON",
        json.dumps({"operation": "add_memory", "input": {**whose, "contents": "Likes tea"}}),
        json.dumps({"operation": "delete_memory", "input": {**whose, "memory_id": kept}}),
        json.dumps({"operation": "recall", "input": {**whose, "query": "hot drinks"}}),
    ]
    results = tmp_path / "results.jsonl"
    ended = shell("batch", "-", "--results", str(results), "--json", stdin="\n".join(lines))
    said = json.loads(ended.stdout)
    assert (ended.exit_code, said["carried_out"], said["failed"]) == (1, 3, 2)
    assert [one["line"] for one in said["failures"]] == [3, 4]
    done = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(one["line"], one["status"]) for one in done] == [(1, 201), (3, 422), (4, 422), (5, 200), (6, 200)]
    assert [one["content"] for one in done[-1]["result"]["items"]] == ["Likes tea"]
    (entry,) = shell.json("audit", "list", "-u", "alice", "--action", "recycled")
    assert entry["actor"] == "cli"


def test_a_batch_from_a_file_that_is_not_there_says_so(shell: Shell, tmp_path: Path) -> None:
    code, error = shell.error("batch", str(tmp_path / "none"))
    assert (code, "cannot read" in error["message"]) == (2, True)
