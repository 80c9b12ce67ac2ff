"""Async callers have the same verbs, by the same names, with the same arguments."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from holdfast import QuotaExceededError, aio, engine
from holdfast.backups.service import Backups
from holdfast.lifecycle.audit import Audit
from holdfast.lifecycle.domains import Domains
from holdfast.lifecycle.holds import Holds
from holdfast.lifecycle.policies import Policies, Quotas
from holdfast.lifecycle.recycle_bin import Recycle
from holdfast.lifecycle.registry import Roster
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.lifecycle.sessions import Sessions
from holdfast.manager import Memory
from holdfast.memory.entity import Entity
from holdfast.memory.episodic import Episodic
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.structured import Structured
from holdfast.memory.text import TextMemory
from holdfast.memory.working import Working
from holdfast.privacy.certificates import Certificates

PAIRS = [
    (Memory, aio.AsyncMemory),
    (TextMemory, aio.AsyncTextMemory),
    (Working, aio.AsyncWorking),
    (ShortTerm, aio.AsyncShortTerm),
    (Episodic, aio.AsyncEpisodic),
    (Entity, aio.AsyncEntity),
    (Structured, aio.AsyncStructured),
    (Quotas, aio.AsyncQuotas),
    (Sessions, aio.AsyncSessions),
    (Policies, aio.AsyncPolicies),
    (Domains, aio.AsyncDomains),
    (Holds, aio.AsyncHolds),
    (Recycle, aio.AsyncRecycle),
    (Roster, aio.AsyncRoster),
    (Audit, aio.AsyncAudit),
    (Schedule, aio.AsyncSchedule),
    (Backups, aio.AsyncBackups),
    (Certificates, aio.AsyncCertificates),
    (engine.Holdfast, aio.Holdfast),
]


#: Steps of the engine's own work, which no program calls.
STEPS = {
    Audit: {"compare"},
    Backups: {"count_memories", "is_store_used"},
    Certificates: {"certify", "prepare"},
    Domains: {"follow", "most_collected", "vacuums"},
    Policies: {"finish"},
    Schedule: {"enrol", "problems"},
    Sessions: {"erase"},
}


@pytest.mark.parametrize(("sync", "colour"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_verb_has_its_async_twin_with_the_same_signature(sync: type, colour: type) -> None:
    verbs = {name: member for name, member in vars(sync).items() if inspect.isfunction(member) and name[0] != "_"}
    for name, member in verbs.items():
        if name in STEPS.get(sync, ()):
            continue
        twin = getattr(colour, name)
        assert [*inspect.signature(twin).parameters] == [*inspect.signature(member).parameters], name
        assert twin.__doc__, name


def test_an_async_program_remembers_and_recalls(home: Path) -> None:
    async def program() -> list[str]:
        async with aio.Holdfast.open(home=home) as holdfast:
            memory = holdfast.manager("user", "agent", "session")
            await asyncio.gather(*(memory.add(f"note {n}", "long_term") for n in range(20)))
            await memory.short_term.add_message("user", "hello")
            await memory.entity.add("Alice", attributes={"city": "Paris"})
            assert (await memory.entity.get("Alice"))["attributes"] == {"city": "Paris"}
            assert [m["content"] for m in await holdfast.sessions.history("agent", "session")] == ["hello"]
            await holdfast.quotas.set("long_term", max_memories=20)
            with pytest.raises(QuotaExceededError):
                await memory.add("one too many")
            return [result["content"] for result in await memory.retrieve("note 7", top_k=1)]

    assert asyncio.run(program()) == ["note 7"]


def test_an_async_program_backs_up_restores_and_erases(home: Path) -> None:
    async def program() -> None:
        async with aio.Holdfast.open(home=home) as holdfast:
            await holdfast.manager("ann", "agent").add("likes tea", "long_term")
            made = await holdfast.backups.create()
            assert (
                [one.id for one in await holdfast.backups.list()] == [made.id] == list(await holdfast.backups.latest())
            )
            assert await holdfast.backups.verify(made.id, restore=True)
            assert (await holdfast.backups.restore(made.id, user_id="ann")).kept == 1
            await holdfast.erase_user("ann")
            (issued,) = await holdfast.certificates.list()
            assert await holdfast.certificates.verify(issued)
            assert (await holdfast.backups.rotate()).rewritten == [made.id]

    asyncio.run(program())
