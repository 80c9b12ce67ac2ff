"""A memory: the verbs that agents use, over the seven kinds, for one user, agent and session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import InvalidContentError, InvalidInputError, NotFoundError, quote
from holdfast.core.filters import parse
from holdfast.core.records import (
    ALL_KINDS,
    DELETED_BY_USER,
    EMPTY_LATENCY_MS,
    SEVERAL_LATENCY_MS,
    TYPES,
    Kind,
    MemoryType,
    Message,
    Record,
    Scope,
    kind_of,
    kinds_of,
)
from holdfast.core.values import (
    MAX_QUERY_BYTES,
    When,
    check_content,
    check_count,
    check_flag,
    check_share,
    check_source,
    is_id,
    moment,
)
from holdfast.memory.additions import (
    MOST_AT_ONCE,
    Addition,
    Additions,
    Extract,
    change_item,
    check_contents,
    describe_added,
    describe_many,
    find_similar,
    remember,
)
from holdfast.memory.corrections import Corrections, check_versioned
from holdfast.memory.entity import Entity, refresh_entity_text, tell_changed
from holdfast.memory.records import DurableRecords, check_not_cold, item_result, memory_result
from holdfast.memory.search import Search, describe_match
from holdfast.memory.services import Services, start_watch
from holdfast.memory.user_data import MemoryKind, UserData, keep_durable, refuse_kind
from holdfast.memory.working import Working
from holdfast.recall.index import SearchOptions
from holdfast.recall.ranking import FLOOR

if TYPE_CHECKING:
    from holdfast.memory.episodic import Episodic
    from holdfast.memory.lineage import Lineage
    from holdfast.memory.short_term import ShortTerm
    from holdfast.memory.structured import Structured
    from holdfast.memory.text import TextMemory
    from holdfast.results.lifecycle import ExplainResult, RulesResult
    from holdfast.results.memory import (
        AddManyResult,
        AddResult,
        ConflictResult,
        Context,
        DeleteResult,
        GetResult,
        ImportResult,
        MemoryResult,
        RememberResult,
        RestoreResult,
        RetrieveResult,
        VersionResult,
    )

Content = str | Mapping[str, Any]
Metadata = Mapping[str, Any] | None
Filters = Mapping[str, Any] | None
Ids = Sequence[str] | None
_WITH_SOURCE = "deleted by the user, with what it was derived from"
_WITH_DERIVED = "deleted by the user, together with what was derived"


class Memory(UserData):
    """The memory of one user as one agent sees it, in one session.

    Safe for many threads. Every method that fails raises a ``HoldfastError`` and leaves the store as it was.
    """

    def __init__(self, services: Services, scope: Scope, *, auto_prune: bool = False) -> None:
        super().__init__(services, scope)
        self.auto_prune = auto_prune
        self._records = DurableRecords(services, scope)

    # A memory is made for each request of a service, which uses little of it: each part is made when it is first used.
    # A new process that only recalls does not load the others either.

    @cached_property
    def working(self) -> Working:
        """Working memory."""
        return Working(self._services, self._scope)

    @cached_property
    def short_term(self) -> ShortTerm:
        """Short-term memory, and the conversation."""
        from holdfast.memory.short_term import ShortTerm

        return ShortTerm(self._services, self._scope)

    @cached_property
    def long_term(self) -> TextMemory:
        """Long-term memory."""
        from holdfast.memory.text import TextMemory

        return TextMemory(self, MemoryType.LONG_TERM)

    @cached_property
    def persona(self) -> TextMemory:
        """Who the agent is to the user."""
        from holdfast.memory.text import TextMemory

        return TextMemory(self, MemoryType.PERSONA)

    @cached_property
    def episodic(self) -> Episodic:
        """Episodes."""
        from holdfast.memory.episodic import Episodic

        return Episodic(self._records)

    @cached_property
    def entity(self) -> Entity:
        """Entities, and how they are related."""
        return Entity(self._records)

    @cached_property
    def structured(self) -> Structured:
        """Documents."""
        from holdfast.memory.structured import Structured

        return Structured(self._records)

    @cached_property
    def _corrections(self) -> Corrections:
        return Corrections(self._records)

    @cached_property
    def _lineage(self) -> Lineage:
        from holdfast.memory.lineage import Lineage

        return Lineage(self._records)

    @cached_property
    def _additions(self) -> Additions:
        from holdfast.memory.short_term import ShortTerm

        working, short_term = Working(self._services, self._scope), ShortTerm(self._services, self._scope)
        return Additions(self._records, self._corrections, working, short_term)

    @property
    def _search(self) -> Search:
        return Search(self._records, self._items)  # not kept: it refers to this memory

    @property
    def user_id(self) -> str:
        """Whose memory it is."""
        return self._scope.user_id

    @property
    def agent_id(self) -> str:
        """The agent that sees it."""
        return self._scope.agent_id

    @property
    def session_id(self) -> str | None:
        """The session that it is in, if it is in one."""
        return self._scope.session_id

    def __repr__(self) -> str:
        return f"Memory(user_id={self.user_id!r}, agent_id={self.agent_id!r}, session_id={self.session_id!r})"

    # --- adding -----------------------------------------------------------------------------------------------------

    def add(
        self,
        content: Content,
        memory_type: MemoryKind = MemoryType.LONG_TERM,
        metadata: Metadata = None,
        *,
        key: str | None = None,
        supersedes: str | None = None,
        dedupe: bool | None = None,
        similar: int = 0,
        source: str | None = None,
        derived_from: Ids = None,
    ) -> AddResult:
        """Remember ``content``; when this returns, it is durable (working memory aside).

        Gives ``memory_id``, ``operation``, ``memory_type``, ``latency_ms`` and ``quota_remaining`` (``None``: no
        limit). At the quota it raises ``QuotaExceededError``, unless the memory prunes by itself. Short-term memory is
        a window that slides instead: at 1,000 messages ``quota_remaining`` stays 0, the oldest leave it for good, and
        ``dropped`` says how many did; the conversation's history keeps all of them. Of a text that is longer than what
        is indexed of it, ``indexed_chars`` says how much that is.

        Where a memory of the kind goes by ``key`` already, or with the id of one that this ``supersedes``, that memory
        says this from now on: ``operation`` is ``corrected``, and ``version`` counts. What it said ends, and is in
        ``history``.

        With ``dedupe``, a memory of the same kind and scope that has the same text already (whatever the case, the
        white space and the closing punctuation) is returned instead, and ``operation`` is ``exists``; if not said, the
        settings decide. So is one that said this before and was corrected: ``corrected_to`` is what it says now; to go
        back to what was said, ``correct`` it. With a key, only what the memory of that key says now is compared. It has
        no effect on working and short-term memory and on episodes. With ``similar``, the result has up to so many
        memories of the kind that are close to this one (``score`` 0.5 or more), so that one of them can be corrected
        instead; nothing is merged for being similar.

        A text that is kept out (see ``delete``) is not added: ``operation`` is ``kept_out``, and ``memory_id`` that of
        the memory that was deleted. A setting makes it a ``KeptOutError``, which other ways to write raise in any case.

        ``source`` names who or what it comes from (``import:crm-2026-05``; its agent, if not said); ``derived_from``
        has the ids of the memories and messages of this user that it was made from.
        """
        origin = self._records.origin(source, derived_from)
        new = Addition(kind_of(memory_type), content, metadata, origin, self.auto_prune, dedupe, key, supersedes)
        return self._add_one(new, similar)

    def add_with_auto_prune(
        self,
        content: Content,
        memory_type: MemoryKind = MemoryType.LONG_TERM,
        metadata: Metadata = None,
        *,
        dedupe: bool | None = None,
        similar: int = 0,
        source: str | None = None,
        derived_from: Ids = None,
    ) -> AddResult:
        """Remember ``content``; at the quota, the oldest tenth of the kind goes to the recycle bin first.

        ``operation`` is then ``add_with_prune``, and ``pruned`` says how many went.
        """
        origin = self._records.origin(source, derived_from)
        return self._add_one(Addition(kind_of(memory_type), content, metadata, origin, True, dedupe), similar)

    def add_many(
        self,
        contents: Sequence[Content],
        memory_type: MemoryKind = MemoryType.LONG_TERM,
        metadata: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        *,
        dedupe: bool | None = None,
        source: str | None = None,
        derived_from: Ids = None,
    ) -> AddManyResult:
        """Remember many contents in one transaction, all of them or none.

        ``metadata`` is one object for all, or a list with one for each; ``source`` and ``derived_from`` are for all.
        Gives ``memory_ids`` in the contents' order. With ``dedupe``, as in ``add``, contents that are there already or
        come twice are not added again; ``existing`` says how many, ``corrected`` how many of these were said before and
        corrected since, and ``kept_out`` how many texts are kept out.
        """
        elapsed_ms = start_watch()
        kind = kind_of(memory_type)
        check_contents(contents)
        origin = self._records.origin(source, derived_from)
        if self.auto_prune and contents:
            self._check_prune(kind)
        written = self._additions.write(kind, contents, metadata, origin, prune=self.auto_prune, dedupe=dedupe)
        return describe_many(describe_added(kind, "add_many", elapsed_ms(), written), written)

    def _add_one(self, new: Addition, similar: int) -> AddResult:
        elapsed_ms = start_watch()
        if similar:
            check_count(similar, "similar")
        if new.is_named:
            check_versioned(new.kind, new.key)
        if new.prune:
            self._check_prune(new.kind)
        result = self._additions.add(new, elapsed_ms)
        is_asked = similar and new.kind.durable and result["operation"] != "kept_out"
        return self._propose(result, new.kind, new.content, similar) if is_asked else result

    def _propose(self, result: AddResult, kind: Kind, content: Content, similar: int) -> AddResult:
        """What an add says, with the memories that are close to what was added."""
        own = result["memory_id"]
        text = content if isinstance(content, str) else self._records.read(own).content
        close = find_similar(self._services, self._search, kind, text, added=own, count=similar)
        return {**result, "similar": close}

    def _check_prune(self, kind: Kind) -> None:
        """Raises where whoever calls may not prune a kind."""

    def import_memories(
        self, items: Sequence[Mapping[str, Any]], *, source: str, dry_run: bool = False
    ) -> ImportResult:
        """Add memories that were made elsewhere, with the dates that they had, as from ``source`` (``import:crm``).

        Each has a ``key`` (its id where it comes from) and a ``content``, and may have ``memory_type``, ``metadata``,
        ``created_at`` and ``updated_at``; an episode has ``task``, ``messages``, ``steps`` and ``tool_calls``; an
        entity has ``name``, ``entity_type``, ``description``, ``attributes`` and ``relations``, and no content. What is
        there under its key is not added again; if it has changed since where it comes from, and not here, it is
        corrected. An entity that is there gets what was not known of it. Each is imported or ``skipped`` for itself.
        ``dry_run`` writes nothing; ``forget_source`` undoes it.
        """
        from holdfast.memory.imports import Imports

        return Imports(self._records, self._additions, self.episodic, self.entity, source).run(items, dry_run=dry_run)

    def remember(self, messages: Sequence[Mapping[str, Any]], extract: Extract) -> list[RememberResult]:
        """Add the facts of a conversation: what your own ``extract`` makes of its messages. None is built in.

        A message has a ``role`` and a ``content``. Those without a ``message_id`` are added to the session's
        conversation first, and stay there, whatever becomes of the facts. ``extract`` is given all messages with their
        ids and gives texts, or objects with ``content`` and what else ``add`` takes. Each fact says what it is derived
        from: the messages that it names, or all. One that is known is not added again, nor one that was known before
        and was corrected since (``corrected_to`` says what holds). Nothing is overwritten:
        ``similar`` has the memories that a fact may be meant to correct.
        """
        return remember(self.add, self.short_term, messages, extract)

    # --- recalling ----------------------------------------------------------------------------------------------------

    def retrieve(
        self,
        query: str,
        memory_types: Sequence[MemoryKind] | MemoryKind | None = None,
        top_k: int = 5,
        filters: Filters = None,
        *,
        memory_type: MemoryKind | None = None,
        include_archived: bool | None = None,
        as_of: When = None,
        min_score: float | None = None,
        explain: bool = False,
    ) -> list[RetrieveResult]:
        """What bears on ``query``: at most ``top_k`` memories, long-term ones unless kinds are named.

        Each has ``memory_id``, ``content``, ``memory_type``, ``score``, ``metadata`` and more. A score from 0 to 1 says
        how likely a memory is related, not whether it answers: 0.5 is as likely as not, for every user and embedder.
        What is below ``min_score`` is left out. With ``explain``, each has the parts of its evidence. Of memories of
        the same text (long-term, persona, entity and structured ones) the newest is given, and ``count`` says how many
        there are. Filters apply before the best are taken. Of several kinds each keeps its best match; working memory
        comes first, the others by score, and of equals the newer. With ``"all"`` every kind is asked, and one whose
        best match scores below 0.2 stays away. Archived memories are left out, episodes aside, unless asked for.

        With ``as_of``, the versions that were current at that moment, of memories that may be read now: never what was
        deleted or has expired since. Only kinds that are durable can be asked so.
        """
        elapsed_ms = start_watch()
        kinds = kinds_of(memory_types, memory_type)
        check_count(top_k, "top_k")
        then = None if as_of is None else moment(as_of, what="as_of")
        if then is not None:
            kinds = keep_durable(kinds, named=memory_types != ALL_KINDS)
        where = parse(filters)
        asked = self._services.recall.encode_query(check_content(query, "query", max_bytes=MAX_QUERY_BYTES))
        options = SearchOptions(top_k, self._services.now(), where, explain=explain, as_of=then)
        if min_score is not None:
            options = options._replace(min_score=check_share(min_score, "min_score"))
        floor = FLOOR if memory_types == ALL_KINDS else 0.0
        found = self._search.find(kinds, asked, options, include_archived=include_archived, floor=floor)
        results = [describe_match(self._scope, match, options) for match in found]
        one = kinds[0] if len(kinds) == 1 else None
        label, target = ("several", SEVERAL_LATENCY_MS) if one is None else (one.name.value, one.latency_ms)
        target = target if results else min(target, EMPTY_LATENCY_MS)
        self._services.latencies.record("retrieve", label, elapsed_ms(), target)
        return results

    def context(
        self,
        query: str | None = None,
        *,
        max_tokens: int = 1000,
        kinds: Sequence[MemoryKind] | MemoryKind = ALL_KINDS,
        format: str = "text",  # noqa: A002 - what people type
        count: Callable[[str], int] | None = None,
    ) -> Context:
        """One block for a prompt, of at most ``max_tokens`` tokens: who the agent is, what it knows now that bears on
        ``query`` (without one, what is newest), its notes, episodes, and the conversation.

        A line shows the end of its memory's id, since when it is so, and where it is from. What does not depend on the
        query stands first, and stays the same while nothing in it changes. ``format`` is ``text``, ``messages`` or
        ``json``. ``count`` says how many tokens a text has; if not given, the bundled tokenizer does.
        """
        from holdfast.memory.context import Wanted, read_context

        elapsed_ms = start_watch()
        wanted = Wanted.check(query, kinds_of(kinds, None), max_tokens, format, count)
        context = read_context(self._records, self.working.items, wanted)
        self._services.latencies.record("context", "several", elapsed_ms(), SEVERAL_LATENCY_MS)
        return context

    def _items(self, kind: Kind) -> list[Message]:
        """What the process or the session holds of a kind that is not durable."""
        return self.working.items() if kind.name is MemoryType.WORKING else self.short_term.messages()

    def list_memories(
        self,
        memory_type: MemoryKind = MemoryType.LONG_TERM,
        filters: Filters = None,
        *,
        limit: int = 100,
        include_archived: bool = False,
        source: str | None = None,
        before: str | None = None,
    ) -> list[MemoryResult]:
        """Memories of a kind that pass the filters, newest first; with ``source``, those that came from there.

        With ``before`` (the id of a memory, be it there or not), those older than that: a long list is read page by
        page, each from the last memory of the one before it. Fewer than ``limit`` means that there are no more.
        """
        kind = kind_of(memory_type)
        if before is not None and not is_id(before):
            raise InvalidInputError(f"before must be the id of a memory, not {quote(before)}")
        check_count(limit, "limit", most=MOST_AT_ONCE)
        where = parse(filters)
        if not kind.durable:
            instead = "working.items()" if kind.name is MemoryType.WORKING else "short_term.get_conversation_history()"
            raise refuse_kind(kind, "listed by filters", f"use memory.{instead}")
        now = self._services.now()
        options = SearchOptions(limit, now, where, include_archived, before=before)
        if source is None:
            found = self._records.select(kind.name, options)
        else:
            found = self._lineage.of_source(kind.name, check_source(source), options)
        told = tell_changed(self._services, self._scope.subject, {record.id: record for record in found})
        return [memory_result(record, now) for record in told.values()]

    def get(self, memory_id: str, *, as_of: When = None) -> GetResult:
        """One memory; ``NotFoundError`` says why there is none. With ``as_of``, as it was at that moment."""
        item, record = self._look_up(memory_id)
        if item is not None and as_of is not None:
            raise refuse_kind(item[0], "read as of a moment", "leave out as_of")
        if item is not None:
            return cast("GetResult", item_result(self._scope, *item))
        record = self._records.check_live(memory_id, record)
        when = None if as_of is None else moment(as_of, what="as_of")
        if when is not None:
            record = self._corrections.at(record, when)
        record = tell_changed(self._services, self._scope.subject, {record.id: record}, when)[record.id]
        now = self._services.now()
        result = cast("GetResult", memory_result(record, now))
        if record.body is not None and not record.is_archived(now):
            result.update(cast("GetResult", record.body))
        return result

    def derived(self, memory_id: str, *, deep: bool = False) -> list[MemoryResult]:
        """The memories that say they were derived from a memory or a message, which need not be there any more; with
        ``deep``, what was derived from those too, and so on, nearest first.
        """
        if not is_id(memory_id):
            raise InvalidInputError(f"{quote(memory_id)} is not the id of a memory or a message")
        now = self._services.now()
        return [memory_result(record, now) for record in self._lineage.derived(memory_id, deep=deep)]

    def conflicts(self, memory_type: MemoryKind = MemoryType.LONG_TERM, *, limit: int = 20) -> list[ConflictResult]:
        """Pairs of memories of a kind that are about the same thing and differ, the closest first, with why. They are
        candidates: both may be true, and nothing is changed.

        The newest 500 memories are looked at, each with the four that are closest to it. For long-term, persona and
        structured memory; of an entity, one value of an attribute holds at a time.
        """
        from holdfast.memory.conflicts import find_conflicts

        return find_conflicts(self._records, kind_of(memory_type), limit)

    def count_memories(self, memory_type: MemoryKind = MemoryType.LONG_TERM) -> int:
        """How many memories of a kind the user holds, without those in the recycle bin and those past their time."""
        kind = kind_of(memory_type)
        held = self._additions.usage(kind).memories
        over = self._services.dues.expired(self._scope.subject, kind.name, self._services.now()) if kind.durable else 0
        return held - over

    # --- changing -----------------------------------------------------------------------------------------------------

    def update(
        self,
        memory_id: str,
        content: Content | None = None,
        metadata: Metadata = None,
        *,
        source: str | None = None,
        derived_from: Ids = None,
    ) -> MemoryResult:
        """Change what a memory says, its metadata (all of it is replaced), or where it comes from; what is not given
        stays, and so does its age.
        """
        origin = self._records.origin(source, derived_from)
        if content is None and metadata is None and not origin.is_given:
            raise InvalidInputError("nothing to update: give content, metadata, source or derived_from")
        if memory_id in (origin.derived_from or ()):
            raise InvalidInputError(f"memory {memory_id} cannot be derived from itself")
        found, record = self._look_up_to_change(memory_id)
        if found is not None:
            if origin.is_given:
                raise refuse_kind(found[0], "given a source", "leave out where it is from")
            changed_item = change_item(*found, content, metadata)
            self.working.update(changed_item)
            return item_result(self._scope, found[0], changed_item)
        record = self._records.check_live(memory_id, record)
        check_not_cold(record)
        changes = origin.fields(record.scope.agent_id)
        if content is not None or metadata is not None:
            changes |= self._additions.change(record, content, metadata)
        changed, _ = self._records.change(record, **changes)
        return memory_result(changed, self._services.now())

    def correct(self, memory_id: str, content: Content, *, reason: str | None = None) -> AddResult:
        """Let a memory say something else from now on; its age counts anew.

        What it said is out of recall at once, and is shown by ``history`` with who ended it and the ``reason``. What
        says the same, in the kind's scope and without a key, is corrected with it.
        """
        elapsed_ms = start_watch()
        found, record = self._look_up_to_change(memory_id)
        if found is not None:
            raise refuse_kind(found[0], "corrected", "it is gone soon; add what is right")
        if content is None:
            raise InvalidContentError("content must be given: what the memory is to say from now on")
        changes = partial(self._additions.change, content=content, metadata=None)
        changed = self._corrections.correct(self._records.check_live(memory_id, record), changes, reason)
        return self._additions.describe_corrected(changed, content, elapsed_ms())

    def history(
        self, memory_id: str | None = None, *, key: str | None = None, memory_type: MemoryKind = MemoryType.LONG_TERM
    ) -> list[VersionResult]:
        """What a memory (or the one of a kind that goes by ``key``) says and said before, oldest first: when each
        version began and ended, who ended it, and why. Rules say how many ended ones are kept, and for how long.
        """
        return self._corrections.history(memory_id, key, kind_of(memory_type))

    def revert(self, memory_id: str, to: int) -> AddResult:
        """Let a memory say again what it said in an earlier version, as a new version; its age counts anew."""
        elapsed_ms = start_watch()
        self._records.check_agent()
        changed = self._corrections.revert(memory_id, to)
        return self._additions.describe_corrected(changed, changed.record.content, elapsed_ms())

    def delete(self, memory_id: str, *, with_derived: bool = False, keep_out: bool = False) -> DeleteResult:
        """Send a memory to the recycle bin, out of recall at once; working and short-term memory is gone for good.

        With ``with_derived``, all that was derived from it goes to the bin too, and ``deleted_with`` has the ids; a
        restore brings it all back. What stays though it was derived from it is named in ``derived``.

        With ``keep_out``, its text does not come back, whoever writes it, with whichever agent and in whichever durable
        kind: memories of the user that have it go to the bin too (``deleted_with``), and writing it again is refused
        until ``lift`` is called. Texts are compared as ``dedupe`` does.
        """
        is_plain = not (check_flag(with_derived, "with_derived") | check_flag(keep_out, "keep_out"))
        if is_plain and (result := self._delete_record(memory_id)) is not None:
            return result
        found, _ = self._look_up_to_change(memory_id)
        if found is not None and keep_out:
            raise refuse_kind(found[0], "kept out", "it is gone by itself; delete it without keep_out")
        if found is not None:
            kind, item = found
            (self.working if kind.name is MemoryType.WORKING else self.short_term).delete(item.id)
            went = self._lineage.recycle_derived(item.id, reason=_WITH_SOURCE) if with_derived else []
            return self._describe_removal(item.id, "delete", kind.name, went)
        if keep_out:
            record, went = self._records.keep_out(memory_id)
            went += self._lineage.recycle_derived(record.id, reason=_WITH_SOURCE) if with_derived else []
        else:
            record, went = self._lineage.recycle(memory_id, reason=_WITH_DERIVED)
        result = self._describe_removal(record.id, "recycle", record.kind, went)
        return {**result, "kept_out": True} if keep_out else result

    def _delete_record(self, memory_id: str) -> DeleteResult | None:
        """Send a record to the recycle bin by itself; ``None`` if there is a note or a message of this id."""
        if isinstance(memory_id, str) and self.working.get(memory_id) is not None:
            return None
        try:
            record, _, is_source = self._records.recycle(memory_id, reason=DELETED_BY_USER)
        except NotFoundError:
            if self._look_up_to_change(memory_id)[0] is not None:
                return None
            raise
        return self._describe_removal(record.id, "recycle", record.kind, [], is_source=is_source)

    def _describe_removal(
        self, memory_id: str, operation: str, name: MemoryType, went: list[str], *, is_source: bool = True
    ) -> DeleteResult:
        """What a removal says; entities are told what holds without what went."""
        result: DeleteResult = {"memory_id": memory_id, "operation": operation, "memory_type": name.value}
        self._refresh_entities(memory_id, name, went)
        if went:
            result["deleted_with"] = went
        if is_source and (left := [one.id for one in self._lineage.live_derived(memory_id)]):
            result["derived"] = left
        return result

    def _refresh_entities(self, memory_id: str, name: MemoryType, others: list[str]) -> None:
        changed = [memory_id, *others] if name is MemoryType.ENTITY else others
        refresh_entity_text(self._services, self._scope.subject, changed)

    def restore(self, memory_id: str) -> RestoreResult:
        """Bring a memory back from the recycle bin, exactly as it was, and with it what went there because it was
        derived from it (``restored_with``).
        """
        record = self._records.restore(memory_id)
        came = self._lineage.restore_derived(record)
        self._refresh_entities(record.id, record.kind, came)
        back = cast("RestoreResult", memory_result(self._records.read(memory_id), self._services.now()))
        if came:
            back["restored_with"] = came
        return back

    def explain(self, memory_id: str) -> ExplainResult:
        """Which rules a memory lives under, what happens to it next and when, and what protects it; of one that is
        gone: when, why and under which rule it went.
        """
        from holdfast.memory.explain import explain, explain_item

        found, _ = self._look_up(memory_id)
        if found is None:
            return explain(self._services, self._scope.tenant, memory_id, self._scope.subject)
        return explain_item(self._services, self._scope.subject, *found, self.short_term.get_ttl())

    def rules(self) -> RulesResult:
        """How long each kind is kept for this user, agent and session, by the rules in force, in words and numbers.

        When it is archived and when deleted, how long it is in the recycle bin, how much there may be, and which holds
        name them.
        """
        from holdfast.memory.explain import describe_rules

        self._services.check()
        return describe_rules(self._services, self._scope)

    def rehydrate(self, memory_id: str) -> MemoryResult:
        """Bring a memory back from cold storage: whole, in recall again, its age counted from now on."""
        self._records.check_agent()
        return memory_result(self._records.rehydrate(self._records.read(memory_id)), self._services.now())

    def end_task(self) -> int:
        """The task is over: working memory is cleared; how many memories that were."""
        return self.working.clear()

    # --- within -------------------------------------------------------------------------------------------------------

    def _look_up(self, memory_id: str) -> tuple[tuple[Kind, Message] | None, Record | None]:
        """The working note or short-term message of an id, or its record; looked for where it is cheapest first."""
        note = self.working.get(memory_id) if isinstance(memory_id, str) else None
        if note is not None:
            return (TYPES[MemoryType.WORKING], note), None
        record = self._records.find(memory_id)
        if record is not None:
            return None, record
        message = next((message for message in self.short_term.messages() if message.id == memory_id), None)
        return None if message is None else (TYPES[MemoryType.SHORT_TERM], message), None

    def _look_up_to_change(self, memory_id: str) -> tuple[tuple[Kind, Message] | None, Record | None]:
        """The same. What is kept in a store, a removed agent does not change: ``AgentRemovedError``, here or, of the
        user's records, where they are written.
        """
        item, record = found = self._look_up(memory_id)
        is_users = record is not None and "agent" not in TYPES[record.kind].scope
        if not is_users and (item is None or item[0].name is not MemoryType.WORKING):
            self._records.check_agent()
        return found
