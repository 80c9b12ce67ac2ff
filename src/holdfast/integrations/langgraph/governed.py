"""``Governed``: a LangGraph saver whose threads are gone at the instant their time is over."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from holdfast.core.errors import HeldError, InvalidInputError, quote
from holdfast.integrations.langgraph.threads import Threads


class Governed(BaseCheckpointSaver[Any]):
    """Wraps a saver of the database that ``threads`` governs. Without it, a thread that is past its time can be read
    until the next sweep; with it, it is gone at that instant, and a run begins anew.

    ``delete_thread`` and ``prune(strategy="delete")`` send threads to the recycle bin; ``prune`` with ``keep_latest``
    sends what comes before their last checkpoints there, also of those with delta channels (``Threads.restore`` brings
    it back). ``HeldError`` while a hold keeps one. A run that goes on after its
    user was erased is refused (``ConflictError``). Everything else is the saver's.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], threads: Threads) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._threads = threads

    @property
    def config_specs(self) -> list[Any]:
        return self._saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Governed:
        return Governed(self._saver.with_allowlist(extra_allowlist), self._threads)

    # --- reading ------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return None if self._threads.is_over(_thread_of(config)) else self._saver.get_tuple(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        is_over = await to_thread(self._threads.is_over, _thread_of(config))
        return None if is_over else await self._saver.aget_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        over: dict[str, bool] = {}
        taken = 0
        for found in self._saver.list(config, filter=filter, before=before):
            if taken == limit:
                return
            thread_id = _thread_of(found.config)
            if thread_id not in over:
                over[thread_id] = self._threads.is_over(thread_id)
            if not over[thread_id]:
                taken += 1
                yield found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        over: dict[str, bool] = {}
        taken = 0
        async for found in self._saver.alist(config, filter=filter, before=before):
            if taken == limit:
                return
            thread_id = _thread_of(found.config)
            if thread_id not in over:
                over[thread_id] = await to_thread(self._threads.is_over, thread_id)
            if not over[thread_id]:
                taken += 1
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._saver.aget_delta_channel_history(config=config, channels=channels)

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._check(config)
        return self._saver.put(config, checkpoint, metadata, new_versions)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        await to_thread(self._check, config)
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._check(config)
        self._saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await to_thread(self._check, config)
        await self._saver.aput_writes(config, writes, task_id, task_path)

    def _check(self, config: RunnableConfig) -> None:
        """What is past its time makes way for what begins anew; what was erased is not gone on with."""
        thread_id, checkpoint_id = _thread_of(config), config["configurable"].get("checkpoint_id")
        if checkpoint_id is None:  # only then has nobody seen that the thread is past its time
            self._threads.begin_anew(thread_id)
        else:
            named = {**config.get("metadata", {}), **config["configurable"]}
            self._threads.check_not_erased(thread_id, str(checkpoint_id), named)

    # --- removing -----------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        if not self._threads.remove(str(thread_id)):
            self._saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        if not await to_thread(self._threads.remove, str(thread_id)):
            await self._saver.adelete_thread(thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if _keeps_latest(thread_ids, strategy):
            self._thin(thread_ids)
            return
        for thread_id in thread_ids:
            self.delete_thread(thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if _keeps_latest(thread_ids, strategy):
            await to_thread(self._thin, thread_ids)
            return
        for thread_id in thread_ids:
            await self.adelete_thread(thread_id)

    def _thin(self, thread_ids: Sequence[str]) -> None:
        done = self._threads.thin(keep_last=1, thread_ids=[str(thread_id) for thread_id in thread_ids])
        if done["held"]:
            raise HeldError(f"holds keep {done['held']:,} of these threads as they are; the others were pruned")


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _keeps_latest(thread_ids: Sequence[str], strategy: str) -> bool:
    if isinstance(thread_ids, str):
        raise InvalidInputError(f"thread_ids must be a list of ids, not {quote(thread_ids)}")
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInputError(f"strategy must be 'keep_latest' or 'delete', not {quote(strategy)}")
    return strategy == "keep_latest"
