"""The same verbs for async callers: each runs its one implementation in a worker thread.

async with Holdfast.open() as holdfast:
    memory = holdfast.manager("user_123", "travel_agent")
    await memory.add("User enjoys skiing", "long_term")
    await memory.retrieve("a holiday in the mountains")
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast import engine
from holdfast.backups.service import Backups
from holdfast.lifecycle.audit import Audit
from holdfast.lifecycle.domains import Domains
from holdfast.lifecycle.figures.memories import Memories
from holdfast.lifecycle.holds import Holds
from holdfast.lifecycle.policies import Policies, Quotas
from holdfast.lifecycle.recycle_bin import Recycle
from holdfast.lifecycle.registry import Roster
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.lifecycle.sessions import Sessions
from holdfast.manager import Memory
from holdfast.memory.additions import Facts
from holdfast.memory.entity import Entity
from holdfast.memory.episodic import Episodic
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.structured import Structured
from holdfast.memory.text import TextMemory
from holdfast.memory.working import Working
from holdfast.privacy.certificates import Certificates
from holdfast.results.memory import RememberResult

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
W_co = TypeVar("W_co", covariant=True)
AsyncExtract = Callable[[list[dict[str, Any]]], Facts | Awaitable[Facts]]


class _Wrapper(Generic[W_co]):
    """Holds what does the work."""

    def __init__(self, wrapped: W_co) -> None:
        self.sync = wrapped


def _verb(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[_Wrapper[S], P], Coroutine[Any, Any, T]]:
    """``method``, run in a worker thread on what is wrapped."""

    @wraps(method)
    async def call(self: _Wrapper[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


class AsyncWorking(_Wrapper[Working]):
    """``memory.working`` for async callers."""

    items = _verb(Working.items)
    get = _verb(Working.get)
    add = _verb(Working.add)
    put = _verb(Working.put)
    update = _verb(Working.update)
    delete = _verb(Working.delete)
    clear = _verb(Working.clear)


class AsyncShortTerm(_Wrapper[ShortTerm]):
    """``memory.short_term`` for async callers."""

    add_message = _verb(ShortTerm.add_message)
    add_messages = _verb(ShortTerm.add_messages)
    append = _verb(ShortTerm.append)
    messages = _verb(ShortTerm.messages)
    get_conversation_history = _verb(ShortTerm.get_conversation_history)
    get_full_history = _verb(ShortTerm.get_full_history)
    get_ttl = _verb(ShortTerm.get_ttl)
    delete = _verb(ShortTerm.delete)
    pop_message = _verb(ShortTerm.pop_message)


class AsyncEpisodic(_Wrapper[Episodic]):
    """``memory.episodic`` for async callers."""

    record_episode = _verb(Episodic.record_episode)
    query_similar_episodes = _verb(Episodic.query_similar_episodes)
    query_messages = _verb(Episodic.query_messages)
    get_messages = _verb(Episodic.get_messages)
    get_steps = _verb(Episodic.get_steps)
    get_tool_calls = _verb(Episodic.get_tool_calls)
    cleanup_old_episodes = _verb(Episodic.cleanup_old_episodes)


class AsyncEntity(_Wrapper[Entity]):
    """``memory.entity`` for async callers."""

    add = _verb(Entity.add)
    set = _verb(Entity.set)
    relate = _verb(Entity.relate)
    end = _verb(Entity.end)
    delete = _verb(Entity.delete)
    delete_user_entities = _verb(Entity.delete_user_entities)
    export_all = _verb(Entity.export_all)
    get = _verb(Entity.get)
    history = _verb(Entity.history)
    neighbours = _verb(Entity.neighbours)


class AsyncStructured(_Wrapper[Structured]):
    """``memory.structured`` for async callers."""

    define = _verb(Structured.define)
    put = _verb(Structured.put)
    put_many = _verb(Structured.put_many)
    get = _verb(Structured.get)
    read = _verb(Structured.read)
    find = _verb(Structured.find)
    collections = _verb(Structured.collections)
    refresh = _verb(Structured.refresh)
    delete = _verb(Structured.delete)
    delete_user_data = _verb(Structured.delete_user_data)
    export_all = _verb(Structured.export_all)


class AsyncTextMemory(_Wrapper[TextMemory]):
    """``memory.long_term`` and ``memory.persona`` for async callers."""

    add = _verb(TextMemory.add)
    retrieve = _verb(TextMemory.retrieve)
    list = _verb(TextMemory.list)
    count = _verb(TextMemory.count)
    delete_all = _verb(TextMemory.delete_all)
    export_all = _verb(TextMemory.export_all)
    archive_old_memories = _verb(TextMemory.archive_old_memories)


class AsyncMemory(_Wrapper[Memory]):
    """A memory for async callers; the kinds' own verbs are below ``working``, ``short_term`` and so on."""

    def __init__(self, wrapped: Memory) -> None:
        super().__init__(wrapped)
        self.working = AsyncWorking(wrapped.working)
        self.short_term = AsyncShortTerm(wrapped.short_term)
        self.long_term = AsyncTextMemory(wrapped.long_term)
        self.persona = AsyncTextMemory(wrapped.persona)
        self.episodic = AsyncEpisodic(wrapped.episodic)
        self.entity = AsyncEntity(wrapped.entity)
        self.structured = AsyncStructured(wrapped.structured)

    async def remember(self, messages: Sequence[Mapping[str, Any]], extract: AsyncExtract) -> list[RememberResult]:
        """``Memory.remember``, whose ``extract`` may be a coroutine function: that runs in the caller's loop."""
        loop = asyncio.get_running_loop()

        async def wait(facts: Awaitable[Facts]) -> Facts:
            return await facts

        def extract_here(named: list[dict[str, Any]]) -> Facts:
            facts = extract(named)
            if isinstance(facts, Awaitable):
                return asyncio.run_coroutine_threadsafe(wait(facts), loop).result()
            return facts

        return await asyncio.to_thread(self.sync.remember, messages, extract_here if callable(extract) else extract)

    add = _verb(Memory.add)
    add_with_auto_prune = _verb(Memory.add_with_auto_prune)
    add_many = _verb(Memory.add_many)
    import_memories = _verb(Memory.import_memories)
    retrieve = _verb(Memory.retrieve)
    context = _verb(Memory.context)
    list_memories = _verb(Memory.list_memories)
    get = _verb(Memory.get)
    derived = _verb(Memory.derived)
    update = _verb(Memory.update)
    correct = _verb(Memory.correct)
    history = _verb(Memory.history)
    revert = _verb(Memory.revert)
    delete = _verb(Memory.delete)
    conflicts = _verb(Memory.conflicts)
    kept_out = _verb(Memory.kept_out)
    lift = _verb(Memory.lift)
    restore = _verb(Memory.restore)
    count_memories = _verb(Memory.count_memories)
    end_task = _verb(Memory.end_task)
    explain = _verb(Memory.explain)
    rules = _verb(Memory.rules)
    rehydrate = _verb(Memory.rehydrate)
    delete_user_memories = _verb(Memory.delete_user_memories)
    gdpr_export_user_data = _verb(Memory.gdpr_export_user_data)
    export_kind = _verb(Memory.export_kind)
    archive_due = _verb(Memory.archive_due)
    gdpr_delete_user_data = _verb(Memory.gdpr_delete_user_data)


class AsyncQuotas(_Wrapper[Quotas]):
    """``holdfast.quotas`` for async callers."""

    set = _verb(Quotas.set)
    get = _verb(Quotas.get)


class AsyncSessions(_Wrapper[Sessions]):
    """``holdfast.sessions`` for async callers."""

    history = _verb(Sessions.history)
    list = _verb(Sessions.list)
    remove = _verb(Sessions.remove)
    explain = _verb(Sessions.explain)
    find = _verb(Sessions.find)
    touch = _verb(Sessions.touch)


class AsyncMemories(_Wrapper[Memories]):
    """``holdfast.memories`` for async callers."""

    page = _verb(Memories.page)
    facets = _verb(Memories.facets)


class AsyncParts(_Wrapper[SessionParts]):
    """``holdfast.parts`` for async callers."""

    add = _verb(SessionParts.add)
    list = _verb(SessionParts.list)
    contents = _verb(SessionParts.contents)
    remove = _verb(SessionParts.remove)


class AsyncPolicies(_Wrapper[Policies]):
    """``holdfast.policies`` for async callers."""

    list = _verb(Policies.list)
    get = _verb(Policies.get)
    preview = _verb(Policies.preview)
    preview_removal = _verb(Policies.preview_removal)
    set = _verb(Policies.set)
    preview_all = _verb(Policies.preview_all)
    set_all = _verb(Policies.set_all)
    set_episodic = _verb(Policies.set_episodic)
    remove = _verb(Policies.remove)


class AsyncDomains(_Wrapper[Domains]):
    """``holdfast.domains`` for async callers."""

    configure = _verb(Domains.configure)
    get = _verb(Domains.get)
    list = _verb(Domains.list)
    apply = _verb(Domains.apply)
    archive = _verb(Domains.archive)
    archives = _verb(Domains.archives)
    read_archive = _verb(Domains.read_archive)
    resolve_gc_params = _verb(Domains.resolve_gc_params)
    get_retention_policies = _verb(Domains.get_retention_policies)
    set_retention_policy = _verb(Domains.set_retention_policy)


class AsyncHolds(_Wrapper[Holds]):
    """``holdfast.holds`` for async callers."""

    add = _verb(Holds.add)
    get = _verb(Holds.get)
    covered = _verb(Holds.covered)
    count = _verb(Holds.count)
    count_some = _verb(Holds.count_some)
    preview = _verb(Holds.preview)
    list = _verb(Holds.list)
    release = _verb(Holds.release)


class AsyncRecycle(_Wrapper[Recycle]):
    """``holdfast.recycle`` for async callers."""

    list = _verb(Recycle.list)
    page = _verb(Recycle.page)
    restore = _verb(Recycle.restore)
    purge = _verb(Recycle.purge)


class AsyncRoster(_Wrapper[Roster]):
    """``holdfast.agents`` and ``holdfast.tools`` for async callers."""

    add = _verb(Roster.add)
    get = _verb(Roster.get)
    list = _verb(Roster.list)
    remove = _verb(Roster.remove)
    restore = _verb(Roster.restore)


class AsyncAudit(_Wrapper[Audit]):
    """``holdfast.audit`` for async callers."""

    tail = _verb(Audit.tail)
    page = _verb(Audit.page)
    write = _verb(Audit.write)
    verify = _verb(Audit.verify)
    seal = _verb(Audit.seal)
    cut = _verb(Audit.cut)


class AsyncSchedule(_Wrapper[Schedule]):
    """``holdfast.schedule`` for async callers."""

    list = _verb(Schedule.list)
    next_run = _verb(Schedule.next_run)
    runs = _verb(Schedule.runs)
    set = _verb(Schedule.set)
    run = _verb(Schedule.run)
    run_due = _verb(Schedule.run_due)
    serve = _verb(Schedule.serve)


class AsyncBackups(_Wrapper[Backups]):
    """``holdfast.backups`` for async callers."""

    create = _verb(Backups.create)
    list = _verb(Backups.list)
    last = _verb(Backups.last)
    get = _verb(Backups.get)
    verify = _verb(Backups.verify)
    restore = _verb(Backups.restore)
    latest = _verb(Backups.latest)
    rotate = _verb(Backups.rotate)
    remove = _verb(Backups.remove)


class AsyncCertificates(_Wrapper[Certificates]):
    """``holdfast.certificates`` for async callers."""

    issue = _verb(Certificates.issue)
    list = _verb(Certificates.list)
    get = _verb(Certificates.get)
    page = _verb(Certificates.page)
    verify = _verb(Certificates.verify)


class Opener:
    """An engine that is about to be opened: ``await`` it, or use it in ``async with``, which closes it again."""

    def __init__(self, open_sync: Callable[[], engine.Holdfast]) -> None:
        self._open = open_sync

    def __await__(self) -> Generator[Any, None, Holdfast]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Holdfast:
        self._holdfast = Holdfast(await asyncio.to_thread(self._open))
        return self._holdfast

    async def __aexit__(self, *_problem: object) -> None:
        await self._holdfast.close()


def _open_later(open_sync: Callable[P, engine.Holdfast]) -> Callable[P, Opener]:
    """``open_sync``, to be called in a worker thread when it is awaited or entered."""

    @wraps(open_sync)
    def open_async(*args: P.args, **kwargs: P.kwargs) -> Opener:
        return Opener(partial(open_sync, *args, **kwargs))

    return open_async


class Holdfast(_Wrapper[engine.Holdfast]):
    """An open engine for async callers."""

    def __init__(self, wrapped: engine.Holdfast) -> None:
        super().__init__(wrapped)
        self.quotas = AsyncQuotas(wrapped.quotas)
        self.sessions = AsyncSessions(wrapped.sessions)
        self.memories = AsyncMemories(wrapped.memories)
        self.parts = AsyncParts(wrapped.parts)
        self.policies = AsyncPolicies(wrapped.policies)
        self.domains = AsyncDomains(wrapped.domains)
        self.holds = AsyncHolds(wrapped.holds)
        self.recycle = AsyncRecycle(wrapped.recycle)
        self.agents = AsyncRoster(wrapped.agents)
        self.tools = AsyncRoster(wrapped.tools)
        self.audit = AsyncAudit(wrapped.audit)
        self.schedule = AsyncSchedule(wrapped.schedule)
        self.backups = AsyncBackups(wrapped.backups)
        self.certificates = AsyncCertificates(wrapped.certificates)

    open = staticmethod(_open_later(engine.Holdfast.open))

    def manager(
        self, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> AsyncMemory:
        """The memory of a user as an agent sees it, in a session."""
        return AsyncMemory(self.sync.manager(user_id, agent_id, session_id, auto_prune=auto_prune))

    def of_tenant(self, tenant: str) -> Holdfast:
        """The same open store for another tenant. Closing either closes both."""
        return self if tenant == self.sync.tenant else Holdfast(self.sync.of_tenant(tenant))

    reembed = _verb(engine.Holdfast.reembed)
    summarize_conversations = _verb(engine.Holdfast.summarize_conversations)
    sweep = _verb(engine.Holdfast.sweep)
    explain = _verb(engine.Holdfast.explain)
    life = _verb(engine.Holdfast.life)
    forecast = _verb(engine.Holdfast.forecast)
    overview = _verb(engine.Holdfast.overview)
    users = _verb(engine.Holdfast.users)
    forget_source = _verb(engine.Holdfast.forget_source)
    erase_user = _verb(engine.Holdfast.erase_user)
    preview_erasure = _verb(engine.Holdfast.preview_erasure)
    abandon_keys = _verb(engine.Holdfast.abandon_keys)
    gdpr_delete_user_data = _verb(engine.Holdfast.gdpr_delete_user_data)
    metrics = _verb(engine.Holdfast.metrics)
    export_user = _verb(engine.Holdfast.export_user)
    gdpr_export_user_data = _verb(engine.Holdfast.gdpr_export_user_data)
    close = _verb(engine.Holdfast.close)

    async def __aenter__(self) -> Holdfast:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.close()


def _memory_maker(make: Callable[P, Memory]) -> Callable[P, AsyncMemory]:
    """``make``, whose memory is for async callers."""

    @wraps(make, updated=())
    def make_async(*args: P.args, **kwargs: P.kwargs) -> AsyncMemory:
        return AsyncMemory(make(*args, **kwargs))

    return make_async


#: A memory in the store that the settings name.
MemoryManager = _memory_maker(engine.MemoryManager)
