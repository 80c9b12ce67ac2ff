"""Standard input and output: ``holdfast mcp`` as a client starts it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from typer.testing import CliRunner

from holdfast import Holdfast
from holdfast.edges.cli.app import app
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.operations.operation import Reach
from holdfast.installation import install_command
from launcher import launcher
from mcp_clients import MODES, answer, error, run

COMMAND = [sys.executable, "-m", "holdfast.edges.cli", "mcp"]
ADD = {"content": "Likes tea"}
DEEP: Any = json.loads('{"a":' * 300 + "1" + "}" * 300)


@asynccontextmanager
async def started(home: Path, log: Path, *arguments: str, mode: str = "auto", **env: str) -> AsyncIterator[Client]:
    """The SDK's client, with a server that it started itself."""
    command = str(launcher().folder / "holdfast")
    params = StdioServerParameters(command=command, args=["mcp", "--home", str(home), *arguments], env=env)
    with log.open("w") as said:
        async with Client(stdio_client(params, errlog=said), mode=mode) as client:
            yield client


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


HELLO = (
    request(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
    + b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
)


def test_two_clients_at_once_share_one_memory(home: Path, tmp_path: Path) -> None:
    """Of both eras of the protocol, each with a server of its own, on one store."""

    async def one(mode: str, found: dict[str, Any]) -> None:
        async with started(home, tmp_path / mode, "--user", "alice", "--agent", mode, mode=mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == set(TOOLS)
            for number in range(5):
                answer(await client.call_tool("memory_add", {"content": f"{mode} likes number {number}"}))
            found[mode] = answer(await client.call_tool("memory_search", {"query": "likes", "top_k": 20}))
            (page,) = (await client.read_resource("holdfast://users/alice/memories")).contents
            assert f"{mode} likes number 4" in page.model_dump_json()

    async def talk() -> None:
        found: dict[str, Any] = {}
        async with anyio.create_task_group() as group:
            for mode in MODES:
                group.start_soon(one, mode, found)
        for mode in MODES:
            assert str(found[mode]).count(f"{mode} likes number") == 5

    run(talk)
    for mode in MODES:
        assert (tmp_path / mode).read_text() == "", "nothing is said on stderr while all goes well"
    with Holdfast.open(home=home) as holdfast:
        assert holdfast.manager("alice", "any").count_memories() == 10
        agents = {one["agent_id"] for one in holdfast.manager("alice", "any").list_memories()}
    assert agents == set(MODES)


def test_it_ends_with_its_input_and_says_nothing_but_the_protocol(home: Path) -> None:
    lines = [
        b"garbage\n",
        b"\n",
        b'{"jsonrpc": "2.0", "id": 1}\n',
        b"[" * 100_000 + b"\n",
        b'\xff\xfe{"jsonrpc"\n',
        HELLO,
        request(2, "tools/call", name="memory_add", arguments={"content": "x" * 9_000_000}),
        request(3, "tools/call", name="memory_add", arguments=ADD),
        request(4, "no/such/method"),
        request(5, "tools/call", name="memory_get", arguments=[1]),
        request(7, "tools/call", name="memory_add", arguments={"content": "\ud800 lone"}),
        request(8, "tools/call", name="memory_add", arguments={**ADD, "metadata": DEEP}),
        request(6, "ping"),
    ]
    command = [*COMMAND, "--home", str(home), "--user", "alice"]
    done = subprocess.run(command, input=b"".join(lines), capture_output=True, timeout=60, check=True)
    assert b"Traceback" not in done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {message["jsonrpc"] for message in said} == {"2.0"}
    answers = {message.get("id"): message for message in said}
    assert answers.keys() == {None, 0, 1, 2, 3, 4, 5, 6, 7, 8}, "what was asked before the input ended is answered"
    assert answers[0]["result"]["serverInfo"]["name"] == "holdfast"
    assert answers[2]["result"]["structuredContent"]["error"]["code"] == "invalid_content"
    assert answers[3]["result"]["structuredContent"]["operation"] == "add"
    assert "error" in answers[4]
    assert "error" in answers[5]
    assert answers[6]["result"] == {}
    assert [answers[one]["error"]["code"] for one in (None, 1, 7, 8)] == [-32700, -32600, -32700, -32700]
    assert "the request cannot be read" in answers[7]["error"]["message"]
    with Holdfast.open(home=home) as holdfast:
        assert holdfast.manager("alice", "mcp").count_memories() == 1


def test_the_key_in_the_environment_decides_what_the_agent_may_do(home: Path, tmp_path: Path) -> None:
    with Holdfast.open(home=home) as holdfast:
        bounds = {"tenant": "acme", "users": ["alice"], "agents": ["claude"]}
        key, secret = holdfast.access.create("alice's", rights=["write"], **bounds)  # type: ignore[arg-type]

    async def talk() -> None:
        async with started(home, tmp_path / "log", HOLDFAST_API_KEY=secret) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                name for name, tool in TOOLS.items() if tool.reach is Reach.MEMORY
            }
            answer(await client.call_tool("memory_add", ADD))
            assert error(await client.call_tool("memory_add", {**ADD, "user_id": "bob"}))["code"] == "forbidden"
            assert error(await client.call_tool("sweep_preview"))["code"] == "forbidden"

    run(talk)
    elsewhere = CliRunner().invoke(app, ["mcp", "--home", str(home), "--tenant", "b"], env={"HOLDFAST_API_KEY": secret})
    assert (elsewhere.exit_code, elsewhere.stdout) == (1, "")
    assert "another tenant than 'b'" in elsewhere.stderr
    with Holdfast.open(home=home, tenant="acme") as holdfast:
        assert holdfast.manager("alice", "claude").count_memories() == 1
        holdfast.access.revoke(key.id)
    refused = CliRunner().invoke(app, ["mcp", "--home", str(home)], env={"HOLDFAST_API_KEY": secret})
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "unknown, revoked or expired" in refused.stderr
    assert secret not in refused.stderr


def test_the_tools_can_be_looked_at_without_a_store(home: Path) -> None:
    shown = CliRunner().invoke(app, ["mcp", "--json", "--home", str(home), "--user", "alice"])
    assert shown.exit_code == 0
    tools = json.loads(shown.stdout)
    assert [tool["name"] for tool in tools] == list(TOOLS)
    assert "'alice'" in tools[0]["inputSchema"]["properties"]["user_id"]["description"]
    assert not home.exists()


def test_without_the_extra_it_says_how_to_install_it() -> None:
    probe = "import sys; sys.modules['mcp'] = None; sys.argv = ['holdfast', 'mcp']; from holdfast.edges.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: holdfast mcp needs the extra 'mcp'; install it with: {install_command('mcp')}\n"


@pytest.mark.parametrize("arguments", [["--user", ""], ["--agent", "*"], ["--tenant", "a/b"]])
def test_a_name_that_cannot_be_one_is_refused_at_once(home: Path, arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, ["mcp", "--home", str(home), *arguments])
    assert shown.exit_code != 0
    assert shown.stdout == ""


def test_on_a_terminal_it_says_what_it_waits_for(home: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\x04")  # the end of standard input
    done = subprocess.run(
        [launcher().folder / "holdfast", "mcp", "--home", str(home)],
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "waiting for an MCP client on standard input; Ctrl-C ends it\n"
