"""Options that every command shares, help that groups the commands, and errors that speak of options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.cli.app import app
from holdfast.edges.cli.options import Limit, read_usage

HELP = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}


# --- what a docstring says of a command -------------------------------------------------------------------------------


def paint(*, thing: str, coats: int = 1, dry: bool = False, from_: Limit = 3) -> None:
    """Paint a <sort of thing>,
    and let it dry.

    Options:
        THING  What to paint, which may take
            two lines to say.
        --coats -c N  How often.

    How it ends:
        --dry  Wait for it.

    Examples:
        paint door
        paint wall

        paint floor --dry
    """


def test_a_docstring_says_what_a_command_takes() -> None:
    usage = read_usage(paint, **{"sort of thing": "wall"})
    assert usage.about == "Paint a wall, and let it dry."
    assert usage.examples == "paint door\npaint wall\n\npaint floor --dry"
    thing, coats, dry, limit = (get_args(param.annotation) for param in usage.params)
    assert (thing[0], thing[1].metavar, thing[1].help) == (
        str,
        "THING",
        "What to paint, which may take two lines to say.",
    )
    assert (coats[0], coats[1].default, coats[1].param_decls, coats[1].metavar) == (int, "--coats", ("-c",), "N")
    assert (dry[0], dry[1].default, dry[1].metavar, dry[1].rich_help_panel) == (bool, "--dry", None, "How it ends")
    assert limit == get_args(Limit)


def test_a_parameter_that_its_docstring_does_not_describe_is_a_mistake_of_the_command() -> None:
    def sand(*, grain: int) -> None:
        """Sand it."""

    with pytest.raises(TypeError, match=r"sand does not say what grain is"):
        read_usage(sand)


def test_without_docstrings_the_command_line_says_why_it_does_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "holdfast", "version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "PYTHONOPTIMIZE" in done.stderr


# --- options of every command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--home", "{home}", "--json", "audit", "tail"],
        ["audit", "--home", "{home}", "--json", "tail"],
        ["audit", "tail", "--home", "{home}", "--json"],
        ["--json", "audit", "--home", "{home}", "tail"],
    ],
)
def test_options_of_every_command_are_taken_before_it_and_after_it(home: Path, words: list[str]) -> None:
    CliRunner().invoke(app, ["hold", "add", "-u", "alice", "--reason", "Case 4711", "--home", str(home)])
    done = CliRunner().invoke(app, [word.format(home=home) for word in words])
    assert [entry["action"] for entry in json.loads(done.stdout)] == ["hold.added"]


def test_the_option_after_the_command_counts(home: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["--home", str(tmp_path / "other"), "audit", "seal", "--home", str(home)])
    assert home.exists()
    assert not (tmp_path / "other").exists()


def test_help_lists_the_commands_in_groups() -> None:
    shown = CliRunner().invoke(app, ["--help"], env=HELP).stdout
    places = [shown.index(f"─ {group} ─") for group in ("Memory", "Governance", "Privacy", "Operations")]
    assert places == sorted(places)
    assert places[0] < shown.index("│ add") < places[1] < shown.index("│ policy") < places[2]
    assert places[2] < shown.index("│ erase") < places[3] < shown.index("│ backup")


@pytest.mark.parametrize("command", [[], ["add"], ["erase"], ["quota"], ["schedule", "run"]], ids=str)
def test_help_shows_flags_as_flags(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env=HELP).stdout
    assert "--help" in shown
    for sign in ("bool", "BOOLEAN", "--no-json", "--no-dry-run"):
        assert sign not in shown


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("policy", "set", "episodic", "--delete-after", "10"), ": use --confirm"),
        (("backup", "remove", "{backup}"), ": use --even-last"),
        (("backup", "remove", "{backup}", "--even-last"), ": use --confirm"),
        (("erase", "alice"), ": use --yes"),
        (("session", "show", "helpdesk", "s1"), ": use --user"),
        (("policy", "set", "long_term", "--memory", "{memory}", "--keep", "9"), ": use --user and --memory"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_an_error_says_which_option_is_needed(shell: Shell, command: tuple[str, ...], advice: str) -> None:
    for user in ("alice", "bob"):
        memory = shell.ok("add", "Hello", "-k", "short_term", "-u", user, "-a", "helpdesk", "-s", "s1", "-q").strip()
    backup = shell.json("backup", "create")["id"]
    _, error = shell.error(*(word.format(backup=backup, memory=memory) for word in command))
    assert error["message"].endswith(advice)
    assert "=" not in error["message"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("policy set long_term --archive-after -1", "--archive-after must be a number of days"),
        ("policy set long_term --keep 400000", "--keep must be a number of days"),
        ("policy set long_term", "the rule says nothing: give it a time to archive after"),
        ("access create --name x --right read --expires 2001-01-01", "--expires 2001-01-01T"),
        ("add tea -u alice --derived-from x", "--derived-from has 'x', which is not the id"),
        ("quota set long_term --max-memories 99999999999999999999", "--max-memories must be a whole number from 0"),
        ("quota set short_term --max-memories 3", "the size of short_term memory is fixed"),
        ("add tea -u bob", "or let Holdfast prune the oldest: use --prune"),
    ],
)
def test_a_message_never_speaks_of_parameters_of_the_library(shell: Shell, command: str, said: str) -> None:
    shell.ok("quota", "set", "long_term", "--max-memories", "0", "--user", "bob")
    _, error = shell.error(*command.split())
    assert said in error["message"]
    assert not re.search(r"\w_(days|at|from|prune|bytes|memories)\b|math|=", error["message"])


def test_a_wrong_value_is_named_as_the_command_line_names_it(shell: Shell) -> None:
    assert shell.error("search", "tea", "-u", " ")[1]["message"].startswith("the user must be a text that is not empty")
    assert shell.error("search", "tea", "-u", "a", "-n", "0")[1]["message"].startswith("--top-k must be a whole number")


def test_examples_run_where_there_are_several_of_what_they_name(shell: Shell) -> None:
    for _ in range(2):
        shell.ok("access", "create", "--name", "laptop", "--right", "read")
    ids = shell.ok("access", "list", "--quiet").split()
    assert "is revoked" in shell.ok("access", "revoke", ids[-1])


# --- list, update, user list ------------------------------------------------------------------------------------------


def test_memories_are_listed_newest_first_with_filters_and_page_by_page(shell: Shell) -> None:
    scope = ("-u", "alice")
    old = shell.ok("add", "Likes tea", *scope, "--source", "import:crm", "-q").strip()
    middle = shell.ok("add", "Be brief", *scope, "-k", "persona", "-s", "s1", "-q").strip()
    new = shell.ok("add", "Likes chess", *scope, "-q").strip()
    shell.ok("add", "Be kind", *scope, "-k", "persona", "-a", "other")
    shell.ok("add", "Is somebody else", "-u", "bob")

    def ids(*options: str) -> list[str]:
        return [one["memory_id"] for one in shell.json("list", *scope, *options)]

    assert ids() == [new, middle, old]
    assert ids("--kind", "long_term") == [new, old]
    assert ids("--source", "import:crm") == [old]
    assert ids("--session", "s1") == [middle]
    assert ids("--limit", "1") == [new]
    assert ids("--limit", "1", "--before", new) == [middle]
    assert len(ids("--agent", "other")) == 3
    shown = shell.ok("list", *scope).splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [[new, "long_term"], [middle, "persona"], [old, "long_term"]]
    assert shell.ok("list", "-u", "nobody") == "Nothing found.\n"
    assert shell.error("list", *scope, "-k", "short_term")[1]["code"] == "invalid_kind"


def test_a_long_list_is_read_to_its_end(shell: Shell) -> None:
    for n in range(3):
        shell.ok("add", f"Number {n}", "-u", "alice")
    with Holdfast.open(home=shell.home) as engine:
        engine.manager("alice", "cli").add_many([f"Note {n}" for n in range(250)])
    assert len(shell.json("list", "-u", "alice", "--limit", "1000")) == 253


def test_a_memory_is_updated_and_what_is_not_given_stays(shell: Shell) -> None:
    memory_id = shell.ok("add", "Likes tea", "-u", "alice", "--meta", "topic=drinks", "--meta", "n=1", "-q").strip()
    assert shell.ok("update", memory_id, "Likes green tea", "-u", "alice") == f"Updated {memory_id}.\n"
    shell.ok("update", memory_id, "-u", "alice", "--meta", "n=2")
    found = shell.json("get", memory_id, "-u", "alice")
    assert (found["content"], found["metadata"]) == ("Likes green tea", {"topic": "drinks", "n": 2})
    shell.ok("update", memory_id, "-", "-u", "alice", "--metadata", "{}", stdin="Likes water\n")
    found = shell.json("get", memory_id, "-u", "alice")
    assert (found["content"], found["metadata"]) == ("Likes water", {})
    code, error = shell.error("update", memory_id, "-u", "alice")
    assert code == 2
    assert "--metadata" in error["message"]


def test_users_are_listed_by_tenant(shell: Shell) -> None:
    assert shell.ok("user", "list") == "No memories are kept of anybody in this tenant.\n"
    for user in ("bob", "alice"):
        shell.ok("add", "Likes tea", "-u", user)
    shell.ok("add", "Likes tea", "-u", "eve", "--tenant", "acme")
    assert [one["user_id"] for one in shell.json("user", "list")] == ["alice", "bob"]
    assert [one["user_id"] for one in shell.json("user", "list", "-n", "1", "--after", "alice")] == ["bob"]
    assert [one["user_id"] for one in shell.json("user", "list", "--tenant", "acme")] == ["eve"]
    (head, first, _) = shell.ok("user", "list").splitlines()
    assert head.split() == ["user", "memories", "sessions", "last", "active"]
    assert first.split()[:3] == ["alice", "1", "0"]


# --- a clock that is ahead, a store that was lost ---------------------------------------------------------------------


def test_under_a_clock_that_is_ahead_the_bin_is_not_empty_and_what_is_in_it_waits(shell: Shell) -> None:
    with Holdfast.open(home=shell.home, clock=FakeClock(datetime.now(UTC) - timedelta(days=400))) as engine:
        memory = engine.manager("alice", "cli")
        memory_id = memory.add("Likes tea")["memory_id"]
        memory.delete(memory_id)
    listed = shell.ok("recycle", "list")
    assert "empty" not in listed
    assert "1 thing must wait" in listed
    for restore in (("restore", memory_id, "-u", "alice"), ("recycle", "restore", "--memory", memory_id)):
        code, error = shell.error(*restore)
        assert (code, error["code"]) == (4, "clock")
        assert "no longer be restored" not in error["message"]
        assert "check the clock" in error["message"]


@pytest.mark.parametrize("command", [("backup", "list"), ("backup", "verify", "latest")], ids=" ".join)
def test_looking_at_the_backups_of_a_lost_store_makes_no_file(shell: Shell, command: tuple[str, ...]) -> None:
    shell.ok("add", "Likes tea", "-u", "alice")
    shell.ok("backup", "create")
    for file in shell.home.glob("holdfast.db*"):
        file.unlink()
    shell.ok(*command)
    assert not list(shell.home.glob("holdfast.db*"))
    assert shell.error("search", "tea", "-u", "alice")[1]["message"].endswith(
        "begin with an empty store: use --new-store"
    )
    assert shell.json("search", "tea", "-u", "alice", "--new-store") == []
