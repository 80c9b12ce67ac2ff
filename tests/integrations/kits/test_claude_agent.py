"""The Claude Agent SDK keeps its sessions in Holdfast."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from claude_agent_sdk import delete_session_via_store, list_sessions_from_store
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import HeldError
from holdfast.integrations.claude_agent import HoldfastSessionStore

PROJECT = "-home-ann-shop"
MAIN: SessionKey = {"project_key": PROJECT, "session_id": "5e55"}
TITLE: Any = {"type": "custom-title", "customTitle": "Shop"}
AGENT: SessionKey = {**MAIN, "subpath": "subagents/agent-1"}


@pytest.fixture
def store(holdfast: Holdfast, user_id: str) -> HoldfastSessionStore:
    return HoldfastSessionStore(holdfast, user_id)


def entry(number: int, **fields: Any) -> Any:
    return {
        "type": "user",
        "uuid": f"uuid {number}",
        "message": {"role": "user", "content": f"turn {number}"},
        **fields,
    }


def test_it_passes_the_contracts_of_the_sdk(holdfast: Holdfast, new_user: Callable[[], str]) -> None:
    asyncio.run(run_session_store_conformance(lambda: HoldfastSessionStore(holdfast, new_user())))


def test_the_sdk_lists_and_deletes_through_it(store: HoldfastSessionStore, holdfast: Holdfast, user_id: str) -> None:
    session_id = "0198c2d4-7b1a-4c3e-9f60-5d2a1c8e4b77"
    key: SessionKey = {"project_key": PROJECT, "session_id": session_id}

    async def program() -> None:
        await store.append(key, [entry(1, timestamp="2026-01-01T00:00:00Z"), TITLE])
        (listed,) = await list_sessions_from_store(store, directory="/home/ann/shop")
        assert (listed.session_id, listed.summary, listed.first_prompt) == (session_id, "Shop", "turn 1")
        await delete_session_via_store(store, session_id, directory="/home/ann/shop")
        assert await store.load(key) is None

    asyncio.run(program())
    assert holdfast.recycle.restore(session_id=session_id, user_id=user_id) == 1
    assert len(asyncio.run(store.load(key)) or []) == 2


def test_entries_come_back_as_they_were(store: HoldfastSessionStore) -> None:
    entries: list[Any] = [
        entry(1, text="Grüße 🎿 \x00 \ud83d", deep=[{"a": None}, 1.5, True, ""]),
        entry(2, output="x" * 3_000_000),
        {"type": "mode", "value": 1},
        {"type": "mode", "value": 1},
        entry(3, text="half \udc80", large=float(10**20)),
    ]
    asyncio.run(store.append(MAIN, entries))
    assert asyncio.run(store.load(MAIN)) == entries


def test_a_batch_that_is_sent_again_is_kept_once(store: HoldfastSessionStore) -> None:
    async def program() -> None:
        await asyncio.gather(*(store.append(key, [entry(1), entry(2)]) for key in (MAIN, AGENT) * 3))
        await store.append(MAIN, [entry(2), entry(3)])
        assert await store.load(MAIN) == [entry(1), entry(2), entry(3)]
        assert await store.load(AGENT) == [entry(1), entry(2)], "another transcript may have the same ids"
        deep: SessionKey = {**MAIN, "subpath": "subagents/" + "deep/" * 60}
        for _ in range(2):
            await store.append(deep, [entry(1)])
        assert await store.load(deep) == [entry(1)]

    asyncio.run(program())


def test_subagents_go_and_come_back_with_their_session(
    store: HoldfastSessionStore, holdfast: Holdfast, clock: FakeClock, user_id: str
) -> None:
    async def begin() -> None:
        await store.append(MAIN, [entry(1)])
        await store.append(AGENT, [entry(2)])

    async def read() -> list[Any]:
        return [await store.load(MAIN), await store.load(AGENT), await store.list_subkeys(MAIN)]

    asyncio.run(begin())
    there = asyncio.run(read())
    assert there == [[entry(1)], [entry(2)], ["subagents/agent-1"]]
    clock.advance(days=29)
    asyncio.run(store.append(MAIN, [entry(3)]))
    clock.advance(days=29)
    assert asyncio.run(store.load(AGENT)) == [entry(2)], "a session in use keeps all of it"
    clock.advance(days=1)
    assert asyncio.run(read()) == [None, None, []], "30 days after its last activity"

    holdfast.sweep(confirm=True)
    assert holdfast.recycle.restore(session_id=MAIN["session_id"], user_id=user_id) == 1
    assert asyncio.run(read())[1:] == there[1:]


def test_a_hold_keeps_a_session_and_each_of_its_transcripts(
    store: HoldfastSessionStore, holdfast: Holdfast, user_id: str
) -> None:
    asyncio.run(store.append(MAIN, [entry(1)]))
    asyncio.run(store.append(AGENT, [entry(2)]))
    hold = holdfast.holds.add(user_id=user_id, reason="litigation", author="counsel")
    for key in (MAIN, AGENT):
        with pytest.raises(HeldError, match="hold"):
            asyncio.run(store.delete(key))
    with pytest.raises(HeldError):
        holdfast.erase_user(user_id)
    assert asyncio.run(store.load(AGENT)) == [entry(2)]

    holdfast.holds.release(hold.id)
    asyncio.run(store.delete(AGENT))
    assert (asyncio.run(store.load(AGENT)), asyncio.run(store.load(MAIN))) == (None, [entry(1)])


def test_erasing_the_user_and_exporting_reach_the_transcripts(
    store: HoldfastSessionStore, holdfast: Holdfast, user_id: str, export: Callable[[str], str]
) -> None:
    asyncio.run(store.append(MAIN, [entry(1, sweet="Marzipan")]))
    asyncio.run(store.append(AGENT, [entry(2, sweet="Nougat")]))
    other = HoldfastSessionStore(holdfast, f"{user_id} and sons")
    asyncio.run(other.append(MAIN, [entry(1)]))

    exported = export(user_id)
    assert all(word in exported for word in ("Marzipan", "Nougat", "uuid 1", "subagents/agent-1"))

    assert holdfast.erase_user(user_id).certificate is not None
    assert asyncio.run(store.load(MAIN)) is None
    assert asyncio.run(store.list_sessions(PROJECT)) == []
    assert asyncio.run(other.load(MAIN)) == [entry(1)]


_batches = st.lists(
    st.tuples(
        st.sampled_from([None, "subagents/a", "subagents/b"]), st.lists(st.none() | st.integers(1, 6), max_size=4)
    ),
    max_size=8,
)


@settings(max_examples=15)
@given(batches=_batches)
def test_transcripts_are_what_plain_lists_would_be(
    holdfast: Holdfast, new_user: Callable[[], str], batches: list[Any]
) -> None:
    """Batches for several transcripts, with repeated ids and without any, held against a list for each transcript."""
    store, model = HoldfastSessionStore(holdfast, new_user()), dict[str, list[Any]]()

    async def program() -> None:
        for number, (subpath, ids) in enumerate(batches):
            key: SessionKey = MAIN if subpath is None else {**MAIN, "subpath": subpath}
            entries = [{"type": "user", "n": number, **({"uuid": f"id {one}"} if one else {})} for one in ids]
            await store.append(key, entries)  # type: ignore[arg-type]
            kept = model.setdefault(subpath or "", [])
            for one in entries:
                if "uuid" not in one or one["uuid"] not in [each.get("uuid") for each in kept]:
                    kept.append(one)
        for subpath, kept in model.items():
            key = {**MAIN, "subpath": subpath} if subpath else MAIN
            assert await store.load(key) == (kept or None)
        assert set(await store.list_subkeys(MAIN)) == {subpath for subpath, kept in model.items() if subpath and kept}

    asyncio.run(program())


def test_a_session_is_listed_with_what_was_said_in_it(
    store: HoldfastSessionStore, holdfast: Holdfast, user_id: str
) -> None:
    blocks = [{"type": "text", "text": "It is on its way."}, {"type": "tool_use", "input": {"order": 7}}]
    asyncio.run(store.append(MAIN, [entry(1), TITLE, {"type": "assistant", "message": {"content": blocks}}]))  # type: ignore[typeddict-unknown-key]
    (session,) = holdfast.sessions.list(user_id)
    assert session["summary"] == "user: turn 1\nassistant: It is on its way."
