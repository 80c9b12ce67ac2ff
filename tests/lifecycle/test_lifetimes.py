"""``memory.rules()``: how long each kind is kept, in words and numbers, from the rules that decide it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError
from holdfast.core.records import TYPES
from holdfast.core.rules import DEFAULTS
from holdfast.edges.mcp.tools import Defaults
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.rest.app import build_app
from mcp_clients import answer, ask, local_server


def rows(holdfast: Holdfast, user: str = "alice", agent: str = "claude", session: str | None = None) -> dict[str, Any]:
    return {row["memory_type"]: row for row in holdfast.manager(user, agent, session).rules()["kinds"]}


def test_every_kind_and_the_conversation_have_a_rule(holdfast: Holdfast) -> None:
    said = holdfast.manager("alice", "claude", "s1").rules()
    assert (said["user_id"], said["agent_id"], said["session_id"]) == ("alice", "claude", "s1")
    assert [row["memory_type"] for row in said["kinds"]] == [*TYPES, "history"]
    assert said["recycle_bin_days"] == 15
    assert said["holds"] == []
    assert said["summary"].count("\n") == len(TYPES)


def test_the_defaults_in_numbers(holdfast: Holdfast) -> None:
    found = rows(holdfast)
    numbers = {kind: (row["archive_after_days"], row["delete_after_days"], row["gone_after_days"]) for kind, row in found.items()}  # fmt: skip
    assert numbers == {
        "working": (None, None, None),
        "short_term": (None, 3_600 / 86_400, 3_600 / 86_400),
        "long_term": (365, None, None),
        "persona": (None, None, None),
        "episodic": (90, 365, 380),
        "entity": (None, None, None),
        "structured": (180, None, None),
        "history": (None, 30, 45),
    }
    assert found["short_term"]["ttl_seconds"] == 3_600
    assert [kind for kind, row in found.items() if row["ttl_seconds"] is not None] == ["short_term"]
    assert (found["long_term"]["max_memories"], found["long_term"]["quota_remaining"]) == (10_000, 10_000)


def test_the_defaults_in_words(holdfast: Holdfast) -> None:
    words = {kind: row["rule"] for kind, row in rows(holdfast).items()}
    assert "Archived to cold storage 365 days after it was made" in words["long_term"]
    assert "Never deleted by a rule" in words["long_term"]
    assert "365 days after it ended" in words["episodic"]
    assert "deleted for good 15 days after that" in words["episodic"]
    assert "until its task ends" in words["working"]
    assert "1 hour after the session's last message" in words["short_term"]
    assert "30 days after it was last active" in words["history"]
    assert "Never deleted" in words["persona"]


def test_the_rules_are_those_that_explain_names(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "claude")
    memory_id = memory.add("Likes tea")["memory_id"]
    holdfast.policies.set("long_term", delete_after_days=400, user_id="alice", confirm=True)
    holdfast.policies.set("long_term", archive_after_days=100, agent_id="claude", confirm=True)
    explained = memory.explain(memory_id)["rules"]
    row = rows(holdfast)["long_term"]
    assert {name: row[name] for name in explained} == explained
    assert (row["archive_after_days"], row["delete_after_days"], row["gone_after_days"]) == (100, 400, 415)
    assert "the user's rule for long_term, version 1" in row["rule"]
    assert rows(holdfast, "bob")["long_term"]["delete_after_days"] is None
    assert rows(holdfast, agent="other")["long_term"]["archive_after_days"] == 365


def test_a_change_of_the_short_term_window_shows(holdfast: Holdfast) -> None:
    holdfast.policies.set("short_term", delete_after_days=0.5, confirm=True)
    row = rows(holdfast)["short_term"]
    assert row["ttl_seconds"] == 43_200
    assert "12 hours after the session's last message" in row["rule"]
    memory = holdfast.manager("alice", "claude", "s1")
    memory.short_term.add_message("user", "hello")
    assert memory.short_term.get_ttl() == row["ttl_seconds"]


def test_exceptions_are_those_of_the_user_and_no_one_else_s(holdfast: Holdfast) -> None:
    memory_id = holdfast.manager("alice", "claude").add("Likes tea")["memory_id"]
    holdfast.policies.set("long_term", keep_days=900, user_id="alice", memory_id=memory_id)
    holdfast.policies.set("long_term", keep_days=800, user_id="bob", session_id="bobs-session")
    holdfast.policies.set("long_term", keep_days=700, session_id="anyones-session")
    row = rows(holdfast)["long_term"]
    assert [(rule["memory_id"], rule["keep_days"]) for rule in row["exceptions"]] == [(memory_id, 900)]
    assert "more specific rules" in row["rule"]
    assert rows(holdfast, agent="other")["long_term"]["exceptions"] == row["exceptions"]
    assert "bobs-session" not in json.dumps(holdfast.manager("alice", "claude").rules())
    assert rows(holdfast, "carol")["long_term"]["exceptions"] == []


def test_a_domain_s_policy_that_became_a_rule_is_told_with_what_it_is_for(holdfast: Holdfast) -> None:
    before = rows(holdfast)["long_term"]["rule"]
    holdfast.domains.configure(
        "memory", {"older_than_days": 45, "source_types": ["thought"], "keep_session_ids": ["bobs"]}
    )
    assert rows(holdfast)["long_term"]["rule"] == before, "a policy that collects nothing is no rule"
    holdfast.domains.configure("memory", {"auto_gc": True}, confirm=True)
    rule = rows(holdfast)["long_term"]["rule"]
    assert rule.startswith(before)
    assert "With source_type thought in its metadata" in rule
    assert "45 days after it was made, by the memory domain's policy" in rule
    assert "bobs" not in json.dumps(holdfast.manager("alice", "claude").rules())
    assert "source_type" not in rows(holdfast)["persona"]["rule"]


def test_holds_that_name_the_user_the_agent_or_the_session_are_told(holdfast: Holdfast) -> None:
    add = holdfast.holds.add
    mine = add(user_id="alice", reason="court case 4711", author="legal")
    agents = add(agent_id="claude", reason="an audit of claude", author="legal")
    session = add(session_id="s1", reason="a look at s1", author="legal")
    tagged = add(user_id="alice", tag="topic=food", reason="food", author="legal")
    add(user_id="bob", reason="bob's own matter", author="legal")
    add(user_id="alice", agent_id="other", reason="other's", author="legal")
    add(tag="customer=bob", reason="a tag of everyone", author="legal")
    said = holdfast.manager("alice", "claude", "s1").rules()
    assert [hold["hold_id"] for hold in said["holds"]] == [mine.id, agents.id, session.id, tagged.id]
    assert "court case 4711" in said["summary"]
    assert "bob" not in json.dumps(said)
    holdfast.holds.release(mine.id, author="legal")
    assert "court case 4711" not in json.dumps(holdfast.manager("alice", "claude").rules())


def test_a_removed_agent_and_a_quota_of_one_s_own_show(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.quotas.set("long_term", max_memories=3, user_id="alice")
    holdfast.agents.add("claude")
    memory = holdfast.manager("alice", "claude")
    memory.add("Likes tea")
    row = rows(holdfast)["long_term"]
    assert (row["max_memories"], row["quota_remaining"]) == (3, 2)
    holdfast.agents.remove("claude")
    assert "The agent 'claude' was removed on" in memory.rules()["summary"]


def test_all_users_have_no_rules_in_common(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidInputError):
        holdfast.manager("*", "claude").rules()


def test_the_edges_say_the_same(holdfast: Holdfast, home: Path) -> None:
    holdfast.policies.set("episodic", delete_after_days=100, archive_after_days=10, user_id="alice", confirm=True)
    said = holdfast.manager("alice", "claude", "s1").rules()
    with Client(build_app(holdfast, keys_required=False)) as client:
        where = {"user_id": "alice", "agent_id": "claude", "session_id": "s1"}
        assert client.get("/v1/rules", params=where).json() == said
    server = local_server(holdfast, defaults=Defaults("alice", "claude"))
    assert answer(ask(server, "memory_rules", {"session_id": "s1"})) == said
    whose = ("--user", "alice", "--agent", "claude", "--session", "s1")
    assert Shell(home).json("policy", "show", *whose) == said
    assert "10 days after it ended" in Shell(home).ok("policy", "show", *whose)


def test_a_model_that_is_asked_how_long_finds_the_rule_and_no_domain_s_policy(holdfast: Holdfast) -> None:
    """Asked "how long do you keep this?", 30 days (a domain's default) is the wrong answer."""
    server = local_server(holdfast, defaults=Defaults("alice", "claude"))
    row = {one["memory_type"]: one for one in answer(ask(server, "memory_rules"))["kinds"]}["long_term"]
    assert row["archive_after_days"] * 86_400_000_000 == DEFAULTS["long_term"].archive_after
    assert row["delete_after_days"] is None
    for name, tool in TOOLS.items():
        if name.startswith("retention_"):
            assert "does not say how long memories are kept: ask memory_rules" in " ".join(tool.description.split()), (
                name
            )
    assert "asks how long" in TOOLS["memory_rules"].description
