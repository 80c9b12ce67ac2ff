"""The domains on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.shell import Shell
from holdfast.core.domains import DEFAULT_POLICY

OLD = {"id": "c-1", "source_type": "context", "created_at": "2020-05-01T08:00:00Z"}
YOUNG = {"id": "c-2", "source_type": "context", "created_at": "2999-05-01T08:00:00Z"}


@pytest.fixture
def shell(home: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell(home)


def test_policies_are_listed_and_set(shell: Shell) -> None:
    assert shell.json("domain", "list") == {
        "version": 1,
        "updated_at": None,
        "memory": DEFAULT_POLICY.as_dict(),
        "rag": DEFAULT_POLICY.as_dict(),
    }
    done = shell.json(
        "domain", "set", "rag", "--older-than-days", "90", "--source-type", "context", "--source-type", "thought",
        "--keep-session", "s1", "--keep-context", "7", "--limit", "99999", "--vacuum",
    )  # fmt: skip
    assert done["policy"] == {
        "older_than_days": 90,
        "source_types": ["context", "thought"],
        "keep_session_ids": ["s1"],
        "keep_context_ids": [7],
        "limit": 20_000,
        "vacuum": True,
        "auto_gc": False,
    }
    assert shell.json("domain", "get", "rag") == done["policy"]
    cleared = shell.json("domain", "set", "rag", "--keep-session", "", "--keep-context", "0", "--no-vacuum")["policy"]
    assert (cleared["keep_session_ids"], cleared["keep_context_ids"], cleared["vacuum"]) == ([], [], False)
    assert cleared["older_than_days"] == 90
    assert shell.json("domain", "list")["updated_at"] is not None
    shown = [line.split() for line in shell.ok("domain", "list").splitlines()]
    assert ["older_than_days", "30", "90"] in shown
    assert shell.json("domain", "list", "--tenant", "acme")["rag"] == DEFAULT_POLICY.as_dict()


def test_what_lets_memories_go_earlier_needs_confirm(shell: Shell) -> None:
    _, error = shell.error("domain", "set", "memory", "--auto-gc")
    assert error["code"] == "confirmation_needed"
    shell.ok("domain", "set", "memory", "--auto-gc", "--confirm", "--author", "ops")
    assert shell.json("audit", "tail")[-1]["actor"] == "ops"
    assert "the memory domain" in shell.ok("policy", "list").splitlines()[-1]


@pytest.mark.parametrize(
    "form", [json.dumps, lambda both: "\n".join(map(json.dumps, both)) + "\n\n"], ids=["list", "lines"]
)
def test_resources_are_sorted_from_a_file_or_from_stdin(shell: Shell, tmp_path: Path, form: object) -> None:
    text = form([OLD, YOUNG])  # type: ignore[operator]
    file = tmp_path / "resources"
    file.write_text(text)
    found = shell.json("domain", "apply", "memory", str(file))
    assert found["eligible"] == [OLD]
    assert found["protected"] == [{"resource": YOUNG, "reason": "within_retention_period"}]
    assert shell.json("domain", "apply", "memory", "-", stdin=text)["counts"] == found["counts"]
    said = shell.ok("domain", "apply", "memory", "-", stdin=text)
    assert "1 of 2 may go" in said
    assert said.endswith("Nothing was deleted.\n")


def test_resources_are_archived_listed_and_read(shell: Shell) -> None:
    assert shell.ok("domain", "archives", "rag") == "There are no archives.\n"
    done = shell.json("domain", "archive", "rag", "-", "--note", "a move", stdin=json.dumps([OLD]))
    assert "a move" in shell.ok("domain", "archives", "rag")
    assert [json.loads(line) for line in shell.ok("domain", "read", "rag", done["archive_id"]).splitlines()] == [OLD]
    assert shell.ok("domain", "archive", "rag", "-", stdin=json.dumps(OLD)).startswith("Archived 1 resource (")


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["apply", "memory", "/nowhere"], None, "cannot read /nowhere"),
        (["apply", "memory", "-"], "{", "stdin is neither a JSON list nor one JSON object a line"),
        (["apply", "memory", "-"], b"\xff", "stdin is neither"),
        (["apply", "memory", "-"], "3", "resource 0 must be an object"),
        (["apply", "else", "-"], "[]", "there is no domain 'else'"),
        (["archive", "memory", "-"], "[]", "nothing to archive"),
    ],
)
def test_what_is_wrong_is_said(shell: Shell, arguments: list[str], stdin: str | None, said: str) -> None:
    _, error = shell.error("domain", *arguments, stdin=stdin)
    assert error["code"] == "invalid_input"
    assert said in error["message"]
