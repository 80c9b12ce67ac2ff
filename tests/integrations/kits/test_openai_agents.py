"""The OpenAI Agents SDK keeps its sessions in Holdfast."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage
from agents.memory import Session, SessionSettings
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import HeldError, InvalidScopeError
from holdfast.integrations.openai_agents import HoldfastSession

ITEMS: list[Any] = [
    {"role": "user", "content": "What is 6 × 7?"},
    {"role": "user", "content": [{"type": "input_text", "text": "Grüße \x00 \ud83d"}]},
    {"type": "function_call", "call_id": "c1", "name": "multiply", "arguments": "{}", "id": "__fake_id__"},
    {"type": "function_call_output", "call_id": "c1", "output": "x" * 2_000_000},
    {"type": "message", "role": "assistant", "id": "__fake_id__", "content": [], "status": "completed"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "a\x00b \ud83d"},
    {"role": "user", "content": "What is 6 × 7?"},
    {"role": None, "content": "by nobody"},
    {},
]


@pytest.fixture
def session(holdfast: Holdfast, user_id: str) -> HoldfastSession:
    return HoldfastSession("s1", holdfast, user_id=user_id, agent_id="helpdesk")


def items(session: Session, limit: int | None = None) -> list[Any]:
    return asyncio.run(session.get_items(limit))


def test_it_is_a_session_whose_items_come_back_as_they_were(session: HoldfastSession) -> None:
    assert isinstance(session, Session)
    asyncio.run(session.add_items(ITEMS))
    assert items(session) == ITEMS
    assert items(session, 2) == ITEMS[-2:]
    session.session_settings = SessionSettings(limit=3)
    assert items(session) == ITEMS[-3:]


def test_a_plain_message_is_plain_in_holdfast_too(session: HoldfastSession, holdfast: Holdfast, user_id: str) -> None:
    memory = holdfast.manager(user_id, "helpdesk", "s1")
    memory.short_term.add_message("user", "by another part of the program")
    asyncio.run(session.add_items(ITEMS[:1]))
    assert [one["content"] for one in memory.short_term.get_full_history()][1] == "What is 6 × 7?"
    assert items(session)[0] == {"role": "user", "content": "by another part of the program"}


def test_what_is_popped_or_cleared_can_be_restored(session: HoldfastSession, holdfast: Holdfast, user_id: str) -> None:
    asyncio.run(session.clear_session())
    assert asyncio.run(session.pop_item()) is None
    asyncio.run(session.add_items(ITEMS[:3]))
    assert asyncio.run(session.pop_item()) == ITEMS[2]
    asyncio.run(session.clear_session())
    assert items(session) == []
    assert holdfast.recycle.restore(session_id="s1", user_id=user_id) == 1
    assert items(session) == ITEMS[:2]


def test_a_conversation_is_gone_when_its_time_is_over(session: HoldfastSession, clock: FakeClock) -> None:
    asyncio.run(session.add_items(ITEMS[:1]))
    clock.advance(days=30, microseconds=-1)
    assert items(session) == ITEMS[:1]
    clock.advance(microseconds=1)
    assert items(session) == []


def test_a_hold_keeps_a_conversation(session: HoldfastSession, holdfast: Holdfast, user_id: str) -> None:
    asyncio.run(session.add_items(ITEMS[:2]))
    hold = holdfast.holds.add(
        user_id=user_id, session_id="s1", agent_id="helpdesk", reason="litigation", author="counsel"
    )
    for remove in (session.pop_item, session.clear_session):
        with pytest.raises(HeldError, match="hold"):
            asyncio.run(remove())
    with pytest.raises(HeldError):
        holdfast.erase_user(user_id)
    assert items(session) == ITEMS[:2]
    holdfast.holds.release(hold.id)
    asyncio.run(session.clear_session())
    assert items(session) == []


def test_erasing_the_user_and_exporting_reach_the_conversation(
    session: HoldfastSession, holdfast: Holdfast, user_id: str, export: Callable[[str], str]
) -> None:
    asyncio.run(session.add_items(ITEMS[:4]))
    twin = HoldfastSession("s1", holdfast, user_id=f"{user_id} and sons", agent_id="helpdesk")
    asyncio.run(twin.add_items(ITEMS[:1]))
    exported = export(user_id)
    assert "What is 6 × 7?" in exported
    assert "multiply" in exported

    assert holdfast.erase_user(user_id).certificate is not None
    assert items(session) == []
    assert items(twin) == ITEMS[:1]


def test_a_session_without_a_name_is_refused(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidScopeError, match="session_id"):
        HoldfastSession("", holdfast, user_id="ann", agent_id="helpdesk")


class Parrot(Model):
    """A model that repeats what it was asked, and how many items it saw."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: A002
        text = ResponseOutputText(text=f"{len(input)}: {input[-1]['content']}", type="output_text", annotations=[])
        said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_the_runner_goes_on_where_the_session_was_left(session: HoldfastSession) -> None:
    agent = Agent(name="parrot", model=Parrot())

    async def program() -> list[str]:
        quiet = RunConfig(tracing_disabled=True)
        runs = [await Runner.run(agent, text, session=session, run_config=quiet) for text in ("one", "two")]
        return [str(run.final_output) for run in runs]

    assert asyncio.run(program()) == ["1: one", "3: two"]
    assert [one["role"] for one in items(session)] == ["user", "assistant"] * 2


_steps = st.lists(
    st.lists(st.sampled_from(ITEMS[:3] + ITEMS[4:]), max_size=3)
    | st.sampled_from(["pop", "clear"])
    | st.integers(-1, 4),
    max_size=10,
)


@settings(max_examples=15)
@given(steps=_steps)
def test_it_does_what_the_kit_s_own_session_does(
    holdfast: Holdfast, new_user: Callable[[], str], steps: list[Any]
) -> None:
    mine = HoldfastSession("s1", holdfast, user_id=new_user(), agent_id="helpdesk")
    theirs = SQLiteSession("s1")

    async def program() -> None:
        for step in steps:
            for_each = []
            for one in (mine, theirs):
                if step == "pop":
                    for_each.append(json.dumps(await one.pop_item()))
                elif step == "clear":
                    await one.clear_session()
                elif isinstance(step, int):
                    for_each.append(json.dumps(await one.get_items(step)))
                else:
                    await one.add_items(step)
                for_each.append(json.dumps(await one.get_items()))
            half = len(for_each) // 2
            assert for_each[:half] == for_each[half:]

    try:
        asyncio.run(program())
    finally:
        theirs.close()
