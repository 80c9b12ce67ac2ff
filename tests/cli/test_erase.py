"""Erasing a person on the command line, and proving it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.shell import Shell, program, read_terminal
from holdfast import Holdfast
from holdfast.core.records import Subject
from holdfast.privacy.keys.master import new_master_text


@pytest.fixture
def alice(shell: Shell) -> Shell:
    """A home with some of Alice's memories and one of Bob's."""
    with Holdfast.open(home=shell.home) as engine:
        memory = engine.manager("alice", "travel_agent", "s1")
        memory.add_many(["Likes tea", "Lives in Paris"], "long_term")
        memory.add("Speaks plainly", "persona")
        memory.short_term.add_message("user", "Hello")
        engine.manager("bob", "travel_agent").add("Likes coffee", "long_term")
    return shell


def erased(shell: Shell, file: Path) -> dict[str, Any]:
    done: dict[str, Any] = shell.json("erase", "alice", "--yes", "--certificate", str(file))
    return done


# --- erasing -----------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_what_would_go_and_changes_nothing(alice: Shell) -> None:
    found = alice.json("erase", "alice", "--dry-run")

    assert (found["memories"]["long_term"], found["memories"]["persona"]) == (2, 1)
    assert found["memories_and_messages"] >= 4
    assert "Of alice would go:" in alice.ok("erase", "alice", "--dry-run")
    assert alice.ok("erase", "nobody", "--dry-run") == "Nothing is kept of nobody.\n"
    assert len(alice.json("search", "tea", "-u", "alice")) == 2
    assert alice.json("certificate", "list") == []


@pytest.mark.parametrize("how", [["--dry-run"], [], ["--yes"]], ids=str)
def test_whom_a_hold_keeps_is_said_before_anyone_is_asked(alice: Shell, how: list[str]) -> None:
    hold = alice.ok("hold", "add", "--user", "alice", "--reason", "Case 4711", "--quiet").strip()

    code, error = alice.error("erase", "alice", *how)

    assert (code, error["code"]) == (5, "held")
    assert f"hold {hold} (Case 4711)" in error["message"]


def test_nothing_is_erased_before_someone_has_said_yes(alice: Shell) -> None:
    code, error = alice.error("erase", "alice")

    assert (code, error["code"]) == (4, "confirmation_needed")
    assert alice("erase", "alice").exit_code == 4, "nobody can be asked"
    assert len(alice.json("search", "tea", "-u", "alice")) == 2


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_shows_what_would_go_and_asks(alice: Shell, answer: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    env = {**os.environ, "HOLDFAST_HOME": str(alice.home), "TERM": "dumb"}
    done = subprocess.run(
        [program(), "erase", "alice"],
        env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=False,
    )  # fmt: skip
    os.close(theirs)
    asked = read_terminal(ours)

    assert "Of alice would go:" in asked
    assert "long_term" in asked
    assert "Erase it?" in asked
    assert done.returncode == (0 if answer == "y" else 1), asked
    assert len(alice.json("search", "tea", "-u", "alice")) == (0 if answer == "y" else 2)


def test_everything_of_one_goes_and_nothing_of_another(alice: Shell) -> None:
    done = alice.json("erase", "alice", "--yes")

    assert (done["pending"], done["waiting_for"], done["memories"]["long_term"]) == (False, [], 2)
    places = {place["name"]: place for place in done["places"]}
    assert places["memories"] == {"name": "memories", "found": 3, "removed": 3, "left": 0}
    assert sum(place["left"] for place in done["places"]) == 0
    assert alice.json("search", "tea", "-u", "alice") == []
    assert len(alice.json("search", "coffee", "-u", "bob")) == 1


def test_a_person_sees_a_table_of_places_and_the_certificate(alice: Shell, tmp_path: Path) -> None:
    said = alice.ok("erase", "alice", "--yes", "--certificate", str(tmp_path / "alice.json"))

    assert said.splitlines()[0].split() == ["place", "found", "removed", "left"]
    assert ["memories", "3", "3", "0"] in [line.split() for line in said.splitlines()]
    (issued,) = alice.json("certificate", "list")
    assert f"Certificate {issued['id']}, written to {tmp_path / 'alice.json'}." in said
    assert "Nothing was in " in said


def test_who_is_erased_again_is_not_kept_any_more(alice: Shell) -> None:
    alice.ok("erase", "alice", "--yes")

    assert alice.ok("erase", "alice", "--yes") == "Nothing is kept of alice (any more); nothing to certify.\n"
    assert len(alice.json("certificate", "list")) == 1


def test_a_hold_refuses_and_says_so(alice: Shell) -> None:
    alice.ok("hold", "add", "--user", "alice", "--reason", "Case 4711")
    code, error = alice.error("erase", "alice", "--yes")

    assert (code, error["code"]) == (5, "held")
    assert "Case 4711" in error["message"]
    assert len(alice.json("search", "tea", "-u", "alice")) == 2
    assert alice.json("audit", "tail", "--user", "alice")[-1]["action"] == "refused"
    assert alice.json("certificate", "list") == []


def test_a_certificate_that_could_not_be_written_is_found_out_before(alice: Shell, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "such" / "folder.json"):
        code, error = alice.error("erase", "alice", "--yes", "--certificate", str(place))
        assert (code, error["code"]) == (2, "invalid_input")
    assert len(alice.json("search", "tea", "-u", "alice")) == 2


def test_nothing_is_erased_that_could_not_be_certified(alice: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    alice.ok("key", "rotate", "--signing")
    monkeypatch.setenv("HOLDFAST_MASTER_KEY", new_master_text())
    code, error = alice.error("erase", "alice", "--yes")

    assert (code, error["code"]) == (1, "master_key")
    assert "holdfast key rotate --signing" in error["message"]
    assert len(alice.json("search", "tea", "-u", "alice")) == 2
    alice.ok("key", "rotate", "--signing")
    assert alice.json("erase", "alice", "--yes")["certificate"]


def test_a_reader_that_keeps_the_file_open_makes_it_pending(alice: Shell) -> None:
    with Holdfast.open(home=alice.home) as engine, engine.database.read() as tx:
        tx.number_of(Subject("default", "alice"))
        result = alice("erase", "alice", "--yes")
    assert result.exit_code == 75, result.output
    assert "not all of it is gone yet" in result.stdout
    assert alice.json("search", "tea", "-u", "alice") == [], "nobody finds it meanwhile"
    assert len(alice.json("certificate", "list")) == 1, "the next who opened the store has finished it"


# --- certificates ------------------------------------------------------------------------------------------------------


def test_a_certificate_is_verified_here_and_elsewhere(alice: Shell, tmp_path: Path) -> None:
    file, key, elsewhere = tmp_path / "alice.json", tmp_path / "key.pem", Shell(tmp_path / "elsewhere")
    done = erased(alice, file)
    key.write_text(alice.ok("key", "public"))

    said = alice.json("certificate", "verify", str(file))
    assert (said["ok"], said["certificate"]["id"]) == (True, done["certificate"])
    assert "Genuine" in alice.ok("certificate", "verify", str(file))
    assert elsewhere.json("certificate", "verify", str(file), "--public-key", str(key))["ok"]
    stranger = elsewhere("certificate", "verify", str(file))
    assert stranger.exit_code == 3
    assert "the signature is good, but no public key was given" in stranger.stdout
    assert "--public-key" in stranger.stdout
    assert not elsewhere.home.exists()


def test_a_certificate_names_nobody(alice: Shell, tmp_path: Path) -> None:
    done = erased(alice, tmp_path / "alice.json")
    text = (tmp_path / "alice.json").read_text()

    assert "alice" not in text
    assert "default" not in text
    assert json.loads(text)["subject"] == done["pseudonym"]


def test_a_changed_certificate_and_a_strange_key_are_told_apart(alice: Shell, tmp_path: Path) -> None:
    file, key = tmp_path / "alice.json", tmp_path / "key.pem"
    erased(alice, file)
    other = Shell(tmp_path / "other")
    other.ok("key", "rotate", "--signing")
    key.write_text(other.ok("key", "public"))

    strange = alice("certificate", "verify", str(file), "--public-key", str(key), "--json")
    assert (strange.exit_code, json.loads(strange.stdout)["signed"]) == (3, True)
    file.write_text(file.read_text().replace('"found": 3', '"found": 4', 1))
    changed = alice("certificate", "verify", str(file), "--json")
    assert (changed.exit_code, json.loads(changed.stdout)["signed"]) == (3, False)
    assert "the signature is wrong" in alice("certificate", "verify", str(file)).stdout


def test_a_certificate_is_shown_and_its_page_can_be_verified(alice: Shell, tmp_path: Path) -> None:
    page, file = tmp_path / "alice.html", tmp_path / "alice.json"
    certificate_id = erased(alice, page)["certificate"]

    assert page.read_text().startswith("<!DOCTYPE html>")
    assert alice.json("certificate", "verify", str(page))["ok"]
    assert alice.ok("certificate", "show", certificate_id, "--page") == page.read_text()
    file.write_text(alice.ok("certificate", "show", certificate_id, "--json"))
    assert alice.json("certificate", "verify", str(file))["ok"]
    assert alice.ok("certificate", "verify", "-", stdin=file.read_text()).startswith("Genuine")
    assert "pseudonym" in alice.ok("certificate", "show", certificate_id)
    assert certificate_id in alice.ok("certificate", "list")
    assert alice.error("certificate", "show", certificate_id, "--page")[0] == 2


def test_what_is_not_there_or_no_certificate_is_said_plainly(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("nonsense")

    assert shell.error("certificate", "verify", str(tmp_path / "none"))[0] == 2
    assert "it cannot be read" in shell("certificate", "verify", str(tmp_path / "nonsense")).stdout
    nonsense = str(tmp_path / "nonsense")
    assert shell.error("certificate", "verify", nonsense, "--public-key", nonsense)[0] == 2
    assert shell.error("certificate", "show", "nonsense")[1]["code"] == "not_found"
    assert shell.ok("certificate", "list") == "No certificate has been issued yet.\n"


def test_nothing_is_erased_if_the_certificate_would_replace_a_pipe(alice: Shell, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, error = alice.error("erase", "alice", "--yes", "--certificate", str(tmp_path / "pipe"))
    assert (code, error["code"]) == (2, "invalid_input")
    assert (tmp_path / "pipe").is_fifo()
    assert alice.json("erase", "alice", "--dry-run")["memories"]["long_term"] == 2
