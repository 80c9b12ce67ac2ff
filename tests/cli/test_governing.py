"""Policies, holds, the recycle bin, sessions, agents and tools on the command line."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.shell import Shell, program, read_terminal, use_until_now
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.rules import DEFAULTS
from holdfast.edges.cli.output import Rows


@pytest.fixture
def episode(home: Path) -> str:
    """An episode of 100 days ago."""
    with Holdfast.open(home=home, clock=FakeClock(datetime.now(UTC) - timedelta(days=100))) as engine:
        return engine.manager("alice", "travel_agent").episodic.record_episode("Book a flight", ["booked"])


# --- policies ---------------------------------------------------------------------------------------------------------


def test_the_defaults_are_listed_and_then_the_rules_that_were_set(shell: Shell) -> None:
    assert [rule["memory_type"] for rule in shell.json("policy", "list")] == list(DEFAULTS)
    shell.ok("policy", "set", "entity", "--user", "alice", "--keep", "forever")
    last = shell.json("policy", "list")[-1]
    assert (last["memory_type"], last["user_id"], last["keep_days"]) == ("entity", "alice", "forever")
    shown = shell.ok("policy", "list").splitlines()
    assert shown[-1].split() == ["entity", "user", "alice", "unset", "unset", "forever", "unset", "1"]
    shell.ok("policy", "set", "persona", "--user", "alice", "--versions", "20", "--versions-for", "forever")
    of_persona = next(
        line for line in shell.ok("policy", "list").splitlines() if line.split()[:2] == ["persona", "user"]
    )
    assert of_persona.split() == ["persona", "user", "alice", "unset", "unset", "unset", "20", "forever", "1"]
    assert "1 h" in next(line for line in shown if line.startswith("short_term"))


def test_a_rule_says_what_applies_and_whose_rule_it_is(shell: Shell) -> None:
    said = shell.ok(
        "policy", "set", "episodic", "--agent", "travel_agent", "--archive-after", "30", "--delete-after", "180.5",
        "--confirm", "--author", "ops",
    )  # fmt: skip
    assert said == "Rule for episodic, agent travel_agent: archive after 30 d, delete after 180.5 d.\n"
    life = shell.json("policy", "get", "episodic", "--user", "alice", "--agent", "travel_agent")
    assert (life["archive_after_days"], life["delete_after_days"]) == (30, 180.5)
    assert "the agent's rule for episodic, version 1" in shell.ok("policy", "get", "episodic", "-a", "travel_agent")
    assert shell.json("policy", "get", "episodic", "--agent", "other")["archive_after_days"] == 90
    assert shell.json("audit", "tail")[-1]["actor"] == "ops"


def test_a_rule_that_shortens_can_be_previewed_and_needs_to_be_confirmed(shell: Shell, episode: str) -> None:
    rule = ("episodic", "--delete-after", "95")
    preview = shell.json("policy", "preview", *rule)
    assert (preview["shortens"], preview["newly_due"]["recycle"]) == (True, 1)
    shown = shell.ok("policy", "preview", *rule)
    assert "needs --confirm" in shown
    assert "Due at once: 1 to recycle" in shown
    code, error = shell.error("policy", "set", *rule)
    assert (code, error["code"]) == (4, "confirmation_needed")
    assert len(shell.json("policy", "list")) == len(DEFAULTS), "nothing was changed"
    assert "Due at once: 1 to recycle" in shell.ok("policy", "set", *rule, "--confirm")
    assert "is gone" in shell.ok("policy", "remove", "episodic")
    assert len(shell.json("policy", "list")) == len(DEFAULTS)
    assert shell.error("policy", "remove", "episodic")[1]["code"] == "not_found"
    assert "makes nothing due" in shell.ok("policy", "preview", "episodic", "--delete-after", "never")


@pytest.mark.parametrize(
    "given",
    [
        ("set", "episodic"),
        ("set", "episodic", "--delete-after", "soon"),
        ("set", "episodic", "--delete-after", "-1"),
        ("set", "episodic", "--delete-after", "nan"),
        ("set", "episodic", "--delete-after", "inf"),
        ("set", "episodic", "--archive-after", "50", "--delete-after", "40"),
        ("set", "entity", "--archive-after", "50"),
        ("set", "working", "--delete-after", "1"),
        ("set", "nonsense", "--delete-after", "1"),
        ("set", "long_term", "--memory", "nonsense", "--user", "alice", "--keep", "5"),
        ("get", "nonsense"),
        ("preview", "short_term", "--delete-after", "never"),
        ("apply", "/no/such/file.toml"),
    ],
    ids=" ".join,
)
def test_a_rule_that_makes_no_sense_is_wrong_input(shell: Shell, given: tuple[str, ...]) -> None:
    code, error = shell.error("policy", *given)
    assert (code, error["code"]) == (2, "invalid_rule")


FILE = """
[[policy]]
memory_type = "episodic"
agent_id = "travel_agent"
active_retention_days = 30
archive_retention_days = 95

[[policy]]
memory_type = "entity"
keep_days = 400
"""


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    path = tmp_path / "policies.toml"
    path.write_text(FILE)
    return path


def test_a_file_of_rules_is_shown_then_confirmed_then_in_force(shell: Shell, episode: str, policies: Path) -> None:
    preview = shell.json("policy", "apply", str(policies), "--dry-run")
    assert (preview["applied"], preview["shortens"], preview["newly_due"]["recycle"]) == (False, True, 1)
    assert [change["action"] for change in preview["changes"]] == ["set", "set"]
    shown = shell.ok("policy", "apply", str(policies), "--dry-run")
    assert "agent travel_agent" in shown
    assert "nothing was changed yet" in shown
    code, error = shell.error("policy", "apply", str(policies))
    assert (code, error["code"]) == (4, "confirmation_needed")
    assert shell("policy", "apply", str(policies)).exit_code == 4, "nobody can be asked"
    assert len(shell.json("policy", "list")) == len(DEFAULTS)
    assert "Applied: 2 changed." in shell.ok("policy", "apply", str(policies), "--confirm")
    life = shell.json("policy", "get", "episodic", "--agent", "travel_agent")
    assert (life["archive_after_days"], life["delete_after_days"]) == (30, 95)
    assert "in force already" in shell.ok("policy", "apply", str(policies))


def test_an_exclusive_file_takes_other_rules_away(shell: Shell, policies: Path) -> None:
    shell.ok("policy", "set", "structured", "--keep", "10")
    policies.write_text("exclusive = true\n" + FILE)
    done = shell.json("policy", "apply", str(policies), "--confirm")
    assert [change["action"] for change in done["changes"]] == ["set", "set", "remove"]
    assert "structured" not in [rule["memory_type"] for rule in shell.json("policy", "list")[len(DEFAULTS) :]]


@pytest.mark.parametrize("text", ["", "[[policy]]\n", "x = 1", "[[policy]]\nmemory_type = 'entity'\ncolour = 1"])
def test_a_file_that_is_not_understood_changes_nothing(shell: Shell, policies: Path, text: str) -> None:
    policies.write_text(text)
    assert shell.error("policy", "apply", str(policies), "--confirm")[1]["code"] == "invalid_rule"


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_a_file_that_shortens_asks(shell: Shell, episode: str, policies: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    env = {**os.environ, "HOLDFAST_HOME": str(shell.home), "TERM": "dumb"}
    done = subprocess.run(
        [program(), "policy", "apply", str(policies)],
        env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=False,
    )  # fmt: skip
    os.close(theirs)
    asked = read_terminal(ours)
    assert "It shortens retention. Apply it?" in asked
    assert done.returncode == (0 if answer == "y" else 1), asked
    assert len(shell.json("policy", "list")) == len(DEFAULTS) + (2 if answer == "y" else 0)


# --- holds ------------------------------------------------------------------------------------------------------------


def test_a_hold_refuses_a_delete_until_it_is_released(shell: Shell) -> None:
    memory_id = shell.ok("add", "Signed the lease", "-u", "alice", "--meta", "topic=contract", "-q").strip()
    hold_id = shell.ok("hold", "add", "--tag", "topic=contract", "--reason", "Case 4711", "-q").strip()
    assert "tag topic=contract" in shell.ok("hold", "list")
    code, error = shell.error("delete", memory_id, "-u", "alice")
    assert (code, error["code"]) == (5, "held")
    assert "Released" in shell.ok("hold", "release", hold_id, "--author", "legal")
    assert shell.ok("hold", "list") == "No hold stands.\n"
    (released,) = shell.json("hold", "list", "--released")
    assert released["released_by"] == "legal"
    assert released["released_at"][:10] in shell.ok("hold", "list", "--released")
    shell.ok("delete", memory_id, "-u", "alice")


def test_a_hold_says_how_much_it_covers_now(shell: Shell) -> None:
    shell.ok("add", "Likes tea", "-u", "alice")
    assert shell.ok("hold", "add", "-u", "alice", "--reason", "r").endswith("It covers 1 memory now.\n")
    assert shell.ok("hold", "add", "-u", "bob", "--reason", "r").endswith("It covers nothing now.\n")
    assert shell.ok("hold", "add", "--tag", "a=b", "--reason", "r").endswith("stands on tag a=b.\n")


def test_a_hold_names_its_author_or_the_command_line(shell: Shell) -> None:
    hold = ("hold", "add", "-u", "alice", "-s", "s1", "--reason", "r")
    assert shell.json(*hold)["author"] == "cli"
    assert shell.json(*hold, "--author", "legal")["author"] == "legal"


def test_a_hold_on_nothing_or_without_a_reason_is_wrong_input(shell: Shell) -> None:
    assert shell.error("hold", "add", "--reason", "r")[1]["code"] == "invalid_input"
    assert shell.error("hold", "add", "-u", "alice")[1]["code"] == "usage"
    assert shell.error("hold", "add", "-u", "alice", "--reason", "")[0] == 2
    assert shell.error("hold", "add", "--memory", "zzz", "--reason", "r")[1]["code"] == "invalid_input"
    assert shell.error("hold", "add", "--tag", "=", "--reason", "r")[1]["code"] == "invalid_input"
    assert shell.error("hold", "release", "nonsense")[1]["code"] == "not_found"


# --- the recycle bin --------------------------------------------------------------------------------------------------


def test_the_bin_is_listed_with_days_left_and_things_come_back(shell: Shell) -> None:
    assert shell.ok("recycle", "list") == "The recycle bin is empty.\n"
    ids = [shell.ok("add", text, "-u", "alice", "-q").strip() for text in ("Likes tea", "Likes chess")]
    for memory_id in ids:
        shell.ok("delete", memory_id, "-u", "alice")
    listed = shell.ok("recycle", "list", "--user", "alice").splitlines()
    assert [line.split()[0] for line in listed[1:]] == ids
    assert all(line.rstrip().endswith("15") for line in listed[1:])
    assert shell.json("recycle", "list", "-n", "1")[0]["memory_id"] == ids[0]
    assert shell.json("recycle", "list", "--user", "bob") == []
    assert shell.json("recycle", "restore", "--memory", ids[0]) == {"restored": 1, "memory_id": ids[0]}
    assert shell.ok("recycle", "restore", "--user", "alice") == "Restored 1.\n"
    assert shell.json("recycle", "list") == []
    assert shell.error("recycle", "restore", "--user", "alice")[1]["code"] == "not_found"
    assert shell.error("recycle", "list", "-n", "0")[0] == 2


@pytest.mark.parametrize("width", [60, 90, 200])
def test_on_a_terminal_of_any_width_ids_in_tables_are_whole(width: int) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    memory_id = "01a1de92-346d-7122-99cf-6c45ccfcf9d3"
    screen.print(Rows("id!, what, because", [(memory_id, "long " * 20, "words " * 20)]))
    assert isinstance(screen.file, io.StringIO)
    assert memory_id in screen.file.getvalue()


def test_only_what_has_had_its_time_is_purged(shell: Shell, home: Path) -> None:
    with Holdfast.open(home=home, clock=FakeClock(datetime.now(UTC) - timedelta(days=16))) as engine:
        memory = engine.manager("alice", "cli")
        memory.delete(memory.add("Likes tea")["memory_id"])
    use_until_now(home)
    young = shell.ok("add", "Likes chess", "-u", "alice", "-q").strip()
    shell.ok("delete", young, "-u", "alice")
    assert shell.json("recycle", "purge") == {"purged": {"long_term": 1}}
    assert [item["memory_id"] for item in shell.json("recycle", "list")] == [young]
    assert "Nothing" in shell.ok("recycle", "purge")


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--user", "alice", "--agent", "a"),
        ("--memory", "x", "--tool", "t"),
        ("--tool", "t", "--user", "alice"),
        ("--memory", "x", "--session", "s"),
    ],
    ids=" ".join,
)
def test_what_to_restore_must_be_said_plainly(shell: Shell, given: tuple[str, ...]) -> None:
    code, error = shell.error("recycle", "restore", *given)
    assert (code, error["code"]) == (2, "invalid_input")
    assert not shell.home.exists()


# --- sessions, agents, tools ------------------------------------------------------------------------------------------


def test_messages_are_added_from_a_file_once(shell: Shell, tmp_path: Path) -> None:
    file, whose = tmp_path / "messages.jsonl", ("-u", "alice", "-a", "helpdesk", "-s", "s1")
    when = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is\u2028my order?", "external_id": "msg_1", "timestamp": when},
        {"role": "assistant", "content": "", "external_id": "msg_2", "metadata": {"tool": "find_order"}},
    ]
    file.write_text("\n\n".join(json.dumps(one, ensure_ascii=False) for one in said), encoding="utf-8")
    for _ in range(2):
        assert shell.ok("session", "add", str(file), *whose) == "Session s1 has 2 messages of the file.\n"
    shown = shell.json("session", "show", "helpdesk", "s1")
    assert [(one["role"], one["content"], one["external_id"]) for one in shown] == [
        (one["role"], one["content"], one["external_id"]) for one in said
    ]
    assert shown[0]["timestamp"] == when

    file.write_text('{"role": "user", "content": "fine"}\nnot JSON')
    assert f"line 2 of {file} is not JSON" in str(shell.error("session", "add", str(file), *whose))
    file.write_bytes(b"\xff")
    assert "is not UTF-8 text" in str(shell.error("session", "add", str(file), *whose))
    assert len(shell.json("session", "show", "helpdesk", "s1")) == 2


def test_a_session_is_listed_read_removed_and_comes_back(shell: Shell) -> None:
    scope = ("-u", "alice", "-a", "helpdesk", "-s", "s1")
    for text in ("Where is my order?", "It is \x1b[31mlate"):
        shell.ok("add", text, "-k", "short_term", *scope)
    (listed,) = shell.json("session", "list", "alice")
    assert (listed["session_id"], listed["messages"]) == ("s1", 2)
    assert shell.json("session", "list", "alice", "--agent", "other") == []
    shown = shell.ok("session", "show", "helpdesk", "s1")
    assert "Where is my order?" in shown
    assert "\x1b" not in shown
    (last,) = shell.json("session", "show", "helpdesk", "s1", "--last", "1")
    assert last["content"].startswith("It is")
    assert "2 messages" in shell.ok("session", "remove", "helpdesk", "s1", "--user", "alice")
    assert shell.ok("session", "list", "alice") == "No sessions.\n"
    assert shell.ok("session", "show", "helpdesk", "s1") == "No messages.\n"
    assert "2 messages with helpdesk" in shell.ok("recycle", "list")
    shell.ok("recycle", "restore", "--session", "s1", "--agent", "helpdesk", "--user", "alice")
    assert "s1" in shell.ok("session", "list", "alice")
    assert shell.error("session", "remove", "helpdesk", "nonsense")[1]["code"] == "not_found"


def test_where_users_share_a_session_name_it_must_be_said_whose(shell: Shell) -> None:
    for user in ("alice", "bob"):
        shell.ok("add", "Hello", "-k", "short_term", "-u", user, "-a", "helpdesk", "-s", "s1")
    assert shell.error("session", "show", "helpdesk", "s1")[1]["code"] == "invalid_input"
    assert len(shell.json("session", "show", "helpdesk", "s1", "-u", "bob")) == 1


@pytest.mark.parametrize("sort", ["agent", "tool"])
def test_agents_and_tools_are_made_known_removed_and_restored(shell: Shell, sort: str) -> None:
    assert shell.ok(sort, "list") == f"No {sort}s are known.\n"
    added = shell.json(sort, "add", "finder", "-d", "Finds routes", "--metadata", '{"version": 2}')
    assert (added[f"{sort}_id"], added["metadata"]) == ("finder", {"version": 2})
    assert "Finds routes" in shell.ok(sort, "show", "finder")
    assert "finder" in shell.ok(sort, "list")
    assert "can come back until" in shell.ok(sort, "remove", "finder")
    assert shell.json(sort, "list") == []
    assert "recycled, until" in shell.ok(sort, "list", "--removed")
    assert shell.error(sort, "show", "finder")[1]["code"] == "not_found"
    assert shell.ok(sort, "restore", "finder").startswith(f"Restored {sort} finder")
    shell.ok(sort, "remove", "finder")
    assert shell.json("recycle", "restore", f"--{sort}", "finder")["restored"] == 1
    assert shell.error(sort, "remove", "nonsense")[0] == 1
    assert shell.error(sort, "add", "x", "--metadata", "[]")[1]["code"] == "invalid_metadata"
    assert shell.error(sort, "add", " ")[1]["code"] == "invalid_scope"


def test_an_agent_goes_and_comes_with_what_is_its_own(shell: Shell) -> None:
    scope: Any = ("-u", "alice", "-a", "travel_agent")
    shell.ok("agent", "add", "travel_agent")
    persona = shell.ok("add", "Be brief", "-k", "persona", *scope, "-q").strip()
    assert "with 1 persona memory" in shell.ok("agent", "remove", "travel_agent")
    code, error = shell.error("add", "Be kind", "-k", "persona", *scope)
    assert (code, error["code"]) == (1, "agent_removed")
    assert "with 1 persona memory" in shell.ok("agent", "restore", "travel_agent")
    assert shell.json("get", persona, *scope)["content"] == "Be brief"


# --- figures ----------------------------------------------------------------------------------------------------------


def test_an_operator_sees_the_tenant_the_days_to_come_and_all_of_a_user_and_a_memory(
    shell: Shell, episode: str, tmp_path: Path
) -> None:
    kept = shell.json("add", "Likes tea", "--user", "alice")["memory_id"]
    shell.ok("delete", kept, "--user", "alice")
    shell.ok("hold", "add", "--user", "alice", "--reason", "Case 4711")
    assert shell.json("overview")["overdue"]["counts"]["archive"] == 1
    assert "Overdue: 1 to archive" in shell.ok("overview")
    days = shell.json("forecast", "--days", "300")["days"]
    assert (len(days), days[-1]["held"] > 0) == (301, True)
    assert shell.json("user", "show", "alice")["states"] == {"active": 1, "recycled": 1}
    assert [one["memory_id"] for one in shell.json("user", "memories", "alice")] == [kept, episode]
    assert [one["memory_id"] for one in shell.json("user", "memories", "alice", "--kind", "episodic")] == [episode]
    assert "recycled, held" in shell.ok("user", "memories", "alice", "--state", "recycled")
    steps = shell.json("life", kept, "--user", "alice")["steps"]
    assert [one["action"] for one in steps] == ["added", "recycled", "hold.added"]
    assert "recycled" in shell.ok("life", kept, "--user", "alice")
    assert [one["item"] for one in shell.json("audit", "list", "--action", "recycled")] == [kept]
    assert shell.json("audit", "list", "--by", "nobody") == []
    file = tmp_path / "audit.ndjson"
    assert shell.json("audit", "export", str(file), "--user", "alice")["entries"] == len(file.read_text().splitlines())
    assert shell.json("hold", "list")[0]["covers"] == {"counts": {"memories": 1, "sessions": 0}, "is_whole": True}
    assert "1 memories, 0 sessions" in shell.ok("hold", "list")
    assert shell.json("schedule", "runs") == []
