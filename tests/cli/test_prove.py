"""Where memories come from, on the command line: said, shown, and forgotten by."""

from __future__ import annotations

from cli.shell import Shell

CRM = "import:crm"


def add(shell: Shell, text: str, *options: str, user: str = "alice") -> str:
    return shell.ok("add", text, "--user", user, "--quiet", *options).strip()


def test_a_memory_is_shown_with_where_it_comes_from(shell: Shell) -> None:
    visit = add(shell, "Visited Rome", "--source", CRM)
    other = add(shell, "Was there in May")
    made = add(shell, "Knows Rome", "--derived-from", visit, "--derived-from", other)

    found = shell.json("get", made, "--user", "alice")
    assert (found["source"], found["derived_from"]) == ("agent:cli", [visit, other])
    assert f"source:    {CRM}\n" in shell.ok("get", visit, "--user", "alice")
    assert f"made from: {visit}, {other}\n" in shell.ok("get", made, "--user", "alice")
    assert f"made of it: {made}\n" in shell.ok("explain", visit)
    code, problem = shell.error("add", "x", "--user", "alice", "--derived-from", "crm")
    assert code != 0
    assert "--derived-from" in problem["message"]


def test_a_removal_says_what_was_derived_and_takes_it_along_when_asked(shell: Shell) -> None:
    visit = add(shell, "Visited Rome")
    made = add(shell, "Knows Rome", "--derived-from", visit)

    said = shell.ok("delete", visit, "--user", "alice")
    assert f"{made} was derived from it and is still there." in said
    assert "--with-derived" in said
    shell.ok("restore", visit, "--user", "alice")
    said = shell.ok("delete", visit, "--user", "alice", "--with-derived")
    assert f"Recycled {made} with it" in said
    assert "still there" not in said
    assert f"Restored {made} with it" in shell.ok("restore", visit, "--user", "alice")


def test_a_source_is_previewed_forgotten_and_brought_back(shell: Shell) -> None:
    visit = add(shell, "Visited Rome", "--source", CRM)
    add(shell, "Knows Rome", "--derived-from", visit)
    add(shell, "Visited Oslo", "--source", CRM, user="bob")

    preview = shell.ok("forget", "--source", CRM, "--dry-run")
    assert "2 memories that came from import:crm, and 1 derived from them, of 2 users, would go" in preview
    assert shell.json("recycle", "list") == []
    one = shell.json("forget", "--source", CRM, "--user", "bob")
    assert (one["memories"], one["derived"], one["users"]) == (1, 0, 1)
    said = shell.ok("forget", "--source", CRM)
    assert "holdfast recycle restore --bundle 'source:import:crm'" in said
    assert shell.json("recycle", "restore", "--bundle", "source:import:crm", "--user", "bob")["restored"] == 1
    assert shell.ok("recycle", "restore", "--bundle", "source:import:crm") == "Restored 2.\n"
    assert shell.ok("forget", "--source", "import:other") == "Nothing is there that came from import:other.\n"


def test_what_is_held_stays_and_is_said(shell: Shell) -> None:
    visit = add(shell, "Visited Rome", "--source", CRM)
    shell.ok("hold", "add", "--memory", visit, "--reason", "Case 1")
    assert "A hold keeps 1 memory (holdfast hold list)." in shell.ok("forget", "--source", CRM, "--dry-run")
    code, problem = shell.error("forget", "--source", CRM)
    assert code != 0
    assert "on hold" in problem["message"]


def test_a_bundle_is_restored_by_itself(shell: Shell) -> None:
    code, problem = shell.error("recycle", "restore", "--bundle", "source:x", "--agent", "cli")
    assert code != 0
    assert "--bundle" in problem["message"]
