"""Async callers have the same verbs, by the same names, with the same arguments."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from retain import QuotaExceededError, aio, engine
from retain.kinds.entity import Entity
from retain.kinds.episodic import Episodic
from retain.kinds.short_term import ShortTerm
from retain.kinds.structured import Structured
from retain.kinds.working import Working
from retain.lifecycle.audit import Audit
from retain.lifecycle.domains import Domains
from retain.lifecycle.holds import Holds
from retain.lifecycle.policies import Policies
from retain.lifecycle.quotas import Quotas
from retain.lifecycle.recycle import Recycle
from retain.lifecycle.registry import Roster
from retain.lifecycle.schedule import Schedule
from retain.lifecycle.sessions import Sessions
from retain.manager import Memory, Plain
from retain.privacy.backups import Backups
from retain.privacy.issuing import Certificates

PAIRS = [
    (Memory, aio.AsyncMemory),
    (Plain, aio.AsyncPlain),
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
    (engine.Retain, aio.Retain),
]


@pytest.mark.parametrize(("sync", "colour"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_verb_has_its_async_twin_with_the_same_signature(sync: type, colour: type) -> None:
    verbs = {name: member for name, member in vars(sync).items() if inspect.isfunction(member) and name[0] != "_"}
    for name, member in verbs.items():
        twin = getattr(colour, name)
        assert [*inspect.signature(twin).parameters] == [*inspect.signature(member).parameters], name
        assert twin.__doc__, name


def test_an_async_program_remembers_and_recalls(home: Path) -> None:
    async def program() -> list[str]:
        async with aio.Retain.open(home=home) as retain:
            memory = retain.manager("user", "agent", "session")
            await asyncio.gather(*(memory.add(f"note {n}", "long_term") for n in range(20)))
            await memory.short_term.add_message("user", "hello")
            await memory.entity.add("Alice", attributes={"city": "Paris"})
            assert (await memory.entity.get("Alice"))["attributes"] == {"city": "Paris"}
            assert [m["content"] for m in await retain.sessions.history("agent", "session")] == ["hello"]
            await retain.quotas.set("long_term", max_memories=20)
            with pytest.raises(QuotaExceededError):
                await memory.add("one too many")
            return [result["content"] for result in await memory.retrieve("note 7", top_k=1)]

    assert asyncio.run(program()) == ["note 7"]


def test_an_async_program_backs_up_restores_and_erases(home: Path) -> None:
    async def program() -> None:
        async with aio.Retain.open(home=home) as retain:
            await retain.manager("ann", "agent").add("likes tea", "long_term")
            made = await retain.backups.create()
            assert [one.id for one in await retain.backups.list()] == [made.id] == list(await retain.backups.latest())
            assert await retain.backups.verify(made.id, restore=True)
            assert (await retain.backups.restore(made.id, user_id="ann")).kept == 1
            await retain.erase_user("ann")
            (issued,) = await retain.certificates.list()
            assert await retain.certificates.verify(issued)
            assert (await retain.backups.rotate()).rewritten == [made.id]

    asyncio.run(program())
