"""API keys on the command line: made, listed, revoked; a secret is printed once."""

from __future__ import annotations

import pytest

from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast, UnauthenticatedError


def create(shell: Shell, *args: str) -> str:
    return shell.ok("access", "create", "--name", "laptop", "--right", "write", *args, "--quiet").strip()


def test_a_key_that_was_made_lets_in_until_it_is_revoked(shell: Shell) -> None:
    made = shell.json(
        *("access", "create", "--name", "bot", "--right", "read", "--right", "govern", "--tenant", "acme"),
        *("--user", "ann", "--user", "bob", "--agent", "travel", "--expires", "+90d"),
    )
    assert (made["tenant"], made["rights"]) == ("acme", ["read", "govern"])
    assert (made["users"], made["agents"]) == (["ann", "bob"], ["travel"])
    with Holdfast.open(home=shell.home) as holdfast:
        who = holdfast.access.identify(made["secret"])
    assert (who.key_id, who.tenant, who.users) == (made["key_id"], "acme", frozenset({"ann", "bob"}))

    revoked = shell.json("access", "revoke", made["key_id"])
    assert revoked["revoked_at"] is not None
    assert "secret" not in revoked
    with Holdfast.open(home=shell.home) as holdfast, pytest.raises(UnauthenticatedError):
        holdfast.access.identify(made["secret"])
    assert shell.error("access", "revoke", made["key_id"])[0] == 1


def test_a_secret_is_printed_when_it_is_made_and_never_again(shell: Shell) -> None:
    shown = shell.ok("access", "create", "--name", "laptop", "--right", "write")
    assert "only time that it is shown" in shown
    assert "from its next start" in shown, "a service that asks nobody goes on so until then"
    secret = next(line for line in shown.splitlines() if line.startswith("holdfast_"))
    random = secret.split("_", 2)[2]

    listed = shell.ok("access", "list") + shell.ok("access", "list", "--json")
    assert random not in listed
    assert "laptop" in listed
    key_id = shell.ok("access", "list", "--quiet").strip()
    assert random not in shell.ok("access", "revoke", key_id)
    assert random not in shell.ok("audit", "tail", "--json")
    assert shell.ok("access", "list", "--quiet") == ""
    assert "revoked" in shell.ok("access", "list")


def test_whom_a_key_is_for_is_said_in_words(shell: Shell) -> None:
    create = ("access", "create", "--name", "bot", "--right", "read", "--user", "ann")
    assert "may read for tenant default; user ann." in shell.ok(*create)
    assert "may read for tenant default; users ann, bob." in shell.ok(*create, "--user", "bob")


def test_keys_are_listed_by_tenant(shell: Shell) -> None:
    assert "There are no API keys" in shell.ok("access", "list")
    for args in ((), ("--tenant", "acme"), ("--operator",)):
        create(shell, *args)

    assert [key["tenant"] for key in shell.json("access", "list")] == ["default", "acme", "*"]
    assert [key["tenant"] for key in shell.json("access", "list", "--tenant", "acme")] == ["acme"]
    assert [key["tenant"] for key in shell.json("access", "list", "--operator")] == ["*"]
    assert all(key["valid"] for key in shell.json("access", "list"))


def test_a_key_that_is_over_is_told_to_be(shell: Shell) -> None:
    clock = FakeClock()
    with Holdfast.open(home=shell.home, clock=clock) as holdfast:
        holdfast.access.create("old", rights=["read"], tenant="default", expires_at="2026-01-16")

    assert "expired 2026-01-16" in shell.ok("access", "list")
    assert shell.ok("access", "list", "--quiet") == ""


@pytest.mark.parametrize(
    "args",
    [
        ("--right", "fly"),
        ("--right", "read", "--tenant", "acme", "--operator"),
        ("--right", "read", "--operator", "--user", "ann"),
        ("--right", "read", "--expires", "2020-01-01"),
        ("--right", "read", "--expires", "soon"),
        ("--right", "read", "--user", "*"),
        (),
    ],
    ids=" ".join,
)
def test_a_key_that_makes_no_sense_is_wrong_usage(shell: Shell, args: tuple[str, ...]) -> None:
    assert shell("access", "create", "--name", "x", *args).exit_code == 2
    assert shell.json("access", "list") == []
