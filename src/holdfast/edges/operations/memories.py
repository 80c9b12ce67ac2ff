"""Operations on memories: they are added, found, read, changed, deleted and restored."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any, Final, Literal, TypedDict

from pydantic import Field

from holdfast import results
from holdfast.core.prompts import Format
from holdfast.core.records import ALL_KINDS, MemoryType
from holdfast.core.values import MAX_DERIVED_FROM, MAX_TOP_K
from holdfast.edges.operations.models import MEMORY_ID, Id, KindName, Paged, Scoped, example
from holdfast.edges.operations.operation import GOVERN, MEMORY, READ, WRITE, Brief, Group
from holdfast.edges.operations.outputs import Answer, ListOf, PageOf
from holdfast.engine import MemoryManager
from holdfast.memory.context import MAX_TOKENS
from holdfast.results.memory import Metadata

memories = Group("memories", "What is remembered: added, found, read, changed, deleted and restored.")
MAX_BATCH: Final = 1_000
#: A model is shown so much of each memory that a search finds or a list has.
MAX_SHOWN_CHARS: Final = 8_000
_CUT: Final = "… (memory_get has the rest)"

WHO: Final = {"user_id": "alice", "agent_id": "travel_agent"}
_KINDS: Final = (
    "long_term: facts and preferences of the user. short_term: what was said in this session. persona: who this agent "
    "is to the user. episodic: a task and how it went. entity: a person or thing. structured: a JSON object; its "
    "collection is named in the metadata."
)
_FILTERS: Final = (
    "What the metadata must be, such as {'topic': 'travel'}, {'price': {'gte': 10}} or {'created_at': {'gte': "
    "'2026-01-01'}}."
)
_SOURCE: Final = "Who or what it comes from, such as `import:crm-2026-05`; this agent, if not given."
_DERIVED: Final = "Ids of the memories and messages of this user it was made from."
_METADATA: Final = "A JSON object to filter by later, such as {'topic': 'travel'}."
Source = Annotated[Id | None, Field(description=_SOURCE)]
DerivedFrom = Annotated[list[str] | None, Field(max_length=MAX_DERIVED_FROM, description=_DERIVED)]
NewMetadata = Annotated[Metadata | None, Field(description=_METADATA)]
Kinds = Annotated[list[KindName], Field(min_length=1, max_length=len(MemoryType))] | Literal["all"]
_KEY: Final = "What it goes by, such as `home_city`: a memory that does already says this from now on."
Key = Annotated[Id | None, Field(description=_KEY)]
_AS_OF: Final = "Read what was remembered at this moment, as ISO 8601, of what may be read now."
AsOf = Annotated[str | None, Field(description=_AS_OF)]
Filters = Annotated[Metadata | None, Field(description=_FILTERS, examples=[{"topic": "drinks"}])]


_DEDUPE: Final = (
    "Whether a text that is there already is not added again: the memory that is there is returned, with the operation "
    "`exists`. So is one that said it before and was corrected: `corrected_to` is what it says now. If not given, the "
    "settings decide."
)


class _New(Scoped):
    memory_type: KindName = Field(MemoryType.LONG_TERM, description=_KINDS)
    dedupe: bool | None = Field(None, description=_DEDUPE)
    source: Source = None
    derived_from: DerivedFrom = None
    auto_prune: bool = Field(False, description="At the quota, send the oldest tenth of the kind to the bin first.")


class NewMemory(_New):
    """A memory to be added."""

    model_config = example({**WHO, "content": "Ann likes green tea.", "metadata": {"topic": "drinks"}})

    content: str | dict[str, Any] = Field(description="A text; of working and structured memory also a JSON object.")
    metadata: NewMetadata = None
    key: Key = None
    supersedes: Id | None = Field(None, description="The id of the memory that says this from now on.")
    similar: int = Field(
        0,
        ge=0,
        le=MAX_TOP_K,
        description="So many memories that are close to this one, at most, are in the answer: perhaps one of them is "
        "to be corrected instead.",
    )


class NewMemories(_New):
    """Memories to be added together, all of them or none."""

    model_config = example({**WHO, "contents": ["Ann likes green tea.", "Ann lives in Leeds."]})

    contents: list[str | dict[str, Any]] = Field(max_length=MAX_BATCH, description="What each of them says.")
    metadata: Metadata | list[Metadata | None] | None = Field(None, description="One object for all, or one for each.")


class Question(Scoped):
    """What to look for, in whose memory."""

    model_config = example({**WHO, "query": "What does Ann drink?", "top_k": 5, "filters": {"topic": "drinks"}})

    query: str = Field(description="What to look for, in any words.")
    memory_types: Kinds | None = Field(None, description="Kinds to look in; `all` is every kind that has something.")
    top_k: int = Field(5, ge=1, le=MAX_TOP_K, description="How many at most.")
    filters: Filters = None
    include_archived: bool | None = Field(
        None, description="Whether archived memories are found too; only archived episodes are, if not given."
    )
    as_of: AsOf = None
    min_score: float | None = Field(None, ge=0, le=1, description="Leave out what scores less; 0.5 is even odds.")
    explain: bool = Field(False, description="The parts of each score too.")


class ContextQuestion(Scoped):
    """What a prompt is to be given, of whose memory."""

    model_config = example({**WHO, "query": "What does Ann drink?", "max_tokens": 500})

    query: str | None = Field(None, description="What is asked or to be done; the newest memories, if not given.")
    max_tokens: int = Field(1_000, ge=1, le=MAX_TOKENS, description="How many tokens the block has at most.")
    kinds: Kinds = Field(ALL_KINDS, description="Kinds to take from.")
    format: Annotated[Format, Field(strict=False)] = Field(
        Format.TEXT, description="text; messages: a JSON list of them; json: an object with a list for each section."
    )


class ListMemories(Scoped, Paged):
    """Which memories to list."""

    memory_type: KindName = Field(MemoryType.LONG_TERM, description="The kind of memory.")
    filters: Filters = None
    include_archived: bool = Field(False, description="Archived memories too.")
    source: Id | None = Field(None, description="Only what came from there.")


class OneMemory(Scoped):
    """One memory, by its id."""

    memory_id: str = Field(description="The memory's id.", examples=[MEMORY_ID])


class GetMemory(OneMemory):
    """Which memory to read, and as of when."""

    as_of: AsOf = None


class Correction(OneMemory):
    """What a memory is to say instead."""

    model_config = example({"content": "Ann lives in Lyon.", "reason": "She moved."})

    content: str | dict[str, Any] = Field(description="What it says from now on.")
    reason: str | None = Field(None, description="Why, as its history shows it.")


class Reversion(OneMemory):
    """Which version of a memory to bring back."""

    model_config = example({"to": 1})

    to: int = Field(ge=1, description="The number of the version, as the history has it.")


class HistoryOf(Scoped):
    """Of which memory to show the history: by its id, or by its key."""

    memory_id: Id | None = Field(None, description="The memory's id.", examples=[MEMORY_ID])
    key: Id | None = Field(None, description="What the memory goes by, instead of its id.")
    memory_type: KindName = Field(MemoryType.LONG_TERM, description="The kind of the memory that goes by the key.")


class MemoryChange(OneMemory):
    """What is to change of a memory; what is not given stays."""

    model_config = example({"content": "Ann likes white tea."})

    content: str | dict[str, Any] | None = Field(None, description="What it says from now on.")
    metadata: Metadata | None = Field(None, description="All of its metadata from now on.")
    source: Source = None
    derived_from: DerivedFrom = None


class DeleteMemory(OneMemory):
    """Which memory to delete."""

    with_derived: bool = Field(False, description="All that was derived from it too.")
    keep_out: bool = Field(
        False,
        description="Its text does not come back, whoever adds it again. All memories of the user that have it go to "
        "the bin.",
    )


class Conflicts(Scoped):
    """Which memories to compare."""

    memory_type: KindName = Field(MemoryType.LONG_TERM, description="long_term, persona or structured.")
    limit: int = Field(20, ge=1, le=500, description="How many pairs at most.")


class KeptOut(Scoped):
    """Whose texts that are kept out to list."""


class Lifted(TypedDict):
    """A memory whose text may come back."""

    memory_id: str
    operation: str


class DerivedOf(OneMemory):
    """Of which memory or message to list what was derived."""

    deep: bool = Field(False, description="And what was derived from that, and so on.")


class BriefMemory(Answer):
    """A memory in few characters. What is usual is left out; memory_get has all of it."""

    memory_id: str
    content: str
    score: float | None = Field(None, description="How well it matches, from 0 to 1.")
    created_at: str = Field(description="The day.")
    memory_type: MemoryType | None = Field(None, description="Where several kinds were asked for.")
    is_archived: bool | None = Field(None, description="Where it is: then only a summary is left.")
    count: int | None = Field(None, description="How many memories say this, where several do.")


class BriefContext(Answer):
    """A block for a prompt."""

    text: str = Field(description="Empty, where there is nothing to say.")
    left_out: int | None = Field(None, description="How many memories bear on it and did not fit.")


class BriefMemories(Answer):
    """Memories in few characters."""

    items: list[BriefMemory]
    next_cursor: str | None = Field(None, description="Of a list that goes on: call again with this as cursor.")


def shorten(given: dict[str, Any], asked: Question | ListMemories) -> dict[str, Any]:
    """Memories that were found or listed, as a model reads them: few characters beside the content."""
    kinds = asked.memory_types or () if isinstance(asked, Question) else ()
    items = [_shorten_one(one, with_kind=len(kinds) > 1) for one in given["items"]]  # "all" is more than one
    cursor = given.get("next_cursor")
    return {"items": items} if cursor is None else {"items": items, "next_cursor": cursor}


def _shorten_one(memory: dict[str, Any], *, with_kind: bool) -> dict[str, Any]:
    content: str = memory["content"]
    return {
        "memory_id": memory["memory_id"],
        "content": content if len(content) <= MAX_SHOWN_CHARS else content[:MAX_SHOWN_CHARS] + _CUT,
        **({"score": round(memory["score"], 2)} if "score" in memory else {}),
        "created_at": memory["created_at"][:10],
        **({"memory_type": memory["memory_type"]} if with_kind else {}),
        **({"is_archived": True} if memory["is_archived"] else {}),
        **({"count": memory["count"]} if "count" in memory else {}),
    }


#: A model seldom knows which kind it looks for.
_ALL: Final = {"memory_types": ALL_KINDS}
_BRIEF: Final = Brief(BriefMemories, shorten)


#: A model adds what it has added before, and does not know what it could correct.
_CAREFUL: Final = {"dedupe": True, "similar": 3}


@memories.add(
    "POST /memories", WRITE, MEMORY, tool="memory_add", tool_defaults=_CAREFUL, status=201, errors=(423,), is_quick=True
)
def add_memory(memory: MemoryManager, asked: NewMemory) -> results.AddResult:
    """Remember something.

    Use it for what matters beyond this conversation: a fact, a preference, a decision, how a task went. Write one
    thought for each memory, in a sentence that can be understood by itself later. When this answers, it is durable
    (working memory aside, which lives in the process that serves the session). The operation `exists` says that the
    text was there already, `kept_out` that the user does not want it remembered: then nothing was added. With
    `corrected_to`, the memory said this before it was corrected: if it is so again, correct it. Where `similar`
    memories say something else than this one, correct or delete what is no longer true.
    """
    return memory.add(**asked.to_arguments("auto_prune"))


@memories.add("POST /memories:batch", WRITE, MEMORY, status=201, errors=(423,))
def add_memories(memory: MemoryManager, asked: NewMemories) -> results.AddManyResult:
    """Remember many things together: all of them, or none."""
    return memory.add_many(**asked.to_arguments("auto_prune"))


@memories.add("POST /recall", READ, MEMORY, tool="memory_search", tool_defaults=_ALL, brief=_BRIEF, is_quick=True)
def recall(memory: MemoryManager, asked: Question) -> ListOf[results.RetrieveResult]:
    """Recall what bears on a question, best first.

    Use it before you answer or ask the user for something they may have said before. It finds by meaning and by words.
    Of several kinds each keeps its best match; working memory comes first, the others by score. Of `all` kinds those
    have no part whose best match is unrelated. Memories whose time is over or that were deleted are never found.
    """
    return {"items": memory.retrieve(**asked.to_arguments())}


def _shorten_context(given: dict[str, Any], _asked: ContextQuestion) -> dict[str, Any]:
    left = len(given["left_out"])
    return {"text": given["text"], **({"left_out": left} if left else {})}


@memories.add("POST /context", READ, MEMORY, tool="memory_context", brief=Brief(BriefContext, _shorten_context))
def read_context(memory: MemoryManager, asked: ContextQuestion) -> results.ContextResult:
    """Read one block for a prompt, within a budget: who this agent is, what is known now, episodes, the conversation.

    Use it at the beginning of a task. A line shows the end of the memory's id, since when it is so, and where it is
    from. What does not depend on the query stands first and stays the same while nothing in it changes. Nothing
    unrelated is in it, nothing twice, and nothing that has ended.
    """
    return memory.context(**asked.to_arguments()).to_dict()


@memories.add("GET /memories", READ, MEMORY, tool="memory_list", brief=_BRIEF)
def list_memories(memory: MemoryManager, asked: ListMemories) -> PageOf[results.MemoryResult]:
    """List memories of a kind, newest first.

    Use it to go through what is remembered; to find something, searching is better.
    """
    which = asked.to_arguments("limit", "cursor")
    found = memory.list_memories(**which, limit=asked.limit + 1, before=asked.read_last())
    return asked.make_page(found, itemgetter("memory_id"))


@memories.add("GET /memories/{memory_id}", READ, MEMORY, tool="memory_get", errors=(404,))
def get_memory(memory: MemoryManager, asked: GetMemory) -> results.GetResult:
    """Read one memory, with all that belongs to it."""
    return memory.get(**asked.to_arguments())


@memories.add("PATCH /memories/{memory_id}", WRITE, MEMORY, tool="memory_update", errors=(404, 423))
def update_memory(memory: MemoryManager, asked: MemoryChange) -> results.MemoryResult:
    """Change what a memory says, its metadata, or where it comes from; its age stays.

    Use it for its metadata, or where it comes from. When what it says is wrong or has changed, memory_correct is
    better: its age counts anew then. Entities cannot be changed as text, short-term messages not at all.
    """
    return memory.update(**asked.to_arguments())


@memories.add("POST /memories/{memory_id}/correct", WRITE, MEMORY, tool="memory_correct", errors=(404, 423))
def correct_memory(memory: MemoryManager, asked: Correction) -> results.AddResult:
    """Let a memory say something else from now on; its age counts anew.

    Use it when the user corrects something or things have changed. What it said is out of recall at once;
    memory_history shows it, with who changed it and the reason.
    """
    return memory.correct(**asked.to_arguments())


@memories.add("GET /history", READ, MEMORY, tool="memory_history", errors=(404,))
def get_history(memory: MemoryManager, asked: HistoryOf) -> ListOf[results.VersionResult]:
    """Show what a memory says and said before, oldest first: when, who changed it, and why.

    Use it when the user asks what was known before, or who changed it.
    """
    return {"items": memory.history(**asked.to_arguments())}


@memories.add("POST /memories/{memory_id}/revert", WRITE, MEMORY, tool="memory_revert", errors=(404, 423))
def revert_memory(memory: MemoryManager, asked: Reversion) -> results.AddResult:
    """Let a memory say again what it said in an earlier version, as a new version.

    Use it when a correction was wrong; memory_history has the numbers of the versions.
    """
    return memory.revert(asked.memory_id, asked.to)


@memories.add("DELETE /memories/{memory_id}", WRITE, MEMORY, tool="memory_delete", errors=(404, 423))
def delete_memory(memory: MemoryManager, asked: DeleteMemory) -> results.DeleteResult:
    """Send a memory to the recycle bin for 15 days, out of recall at once.

    Use it when the user asks for it or the memory is wrong; memory_restore brings it back. Working and short-term
    memory is gone for good. A memory on hold is not deleted. Where the user never wants to see it again, set keep_out.
    """
    return memory.delete(asked.memory_id, with_derived=asked.with_derived, keep_out=asked.keep_out)


@memories.add("GET /conflicts", READ, MEMORY, tool="memory_conflicts")
def list_conflicts(memory: MemoryManager, asked: Conflicts) -> ListOf[results.ConflictResult]:
    """List pairs of memories that are about the same thing and differ, the closest first, with why.

    Use it to tidy up: ask the user which is true, then change or delete the other. Both may be true. Nothing is changed
    by looking. The newest 500 memories of the kind are compared with those that are closest to them.
    """
    return {"items": memory.conflicts(asked.memory_type, limit=asked.limit)}


@memories.add("GET /kept-out", GOVERN, MEMORY)
def list_kept_out(memory: MemoryManager, asked: KeptOut) -> ListOf[results.KeptOutResult]:  # noqa: ARG001
    """List the memories of a user that were deleted with keep_out: their texts do not come back.

    The texts themselves are not kept.
    """
    return {"items": memory.kept_out()}


@memories.add("POST /memories/{memory_id}/lift", GOVERN, MEMORY, errors=(404,))
def lift_kept_out(memory: MemoryManager, asked: OneMemory) -> Lifted:
    """Let the text of a memory that was deleted with keep_out come back: it can be added again, or restored."""
    memory.lift(asked.memory_id)
    return {"memory_id": asked.memory_id, "operation": "lift"}


@memories.add("POST /memories/{memory_id}/restore", WRITE, MEMORY, tool="memory_restore", errors=(404,))
def restore_memory(memory: MemoryManager, asked: OneMemory) -> results.RestoreResult:
    """Bring a memory back from the recycle bin, exactly as it was, with what was deleted along with it."""
    return memory.restore(asked.memory_id)


@memories.add("POST /memories/{memory_id}/rehydrate", WRITE, MEMORY, errors=(404, 410))
def rehydrate_memory(memory: MemoryManager, asked: OneMemory) -> results.MemoryResult:
    """Bring a memory back from cold storage: whole, in recall again, its age counted from now on."""
    return memory.rehydrate(asked.memory_id)


@memories.add("GET /memories/{memory_id}/explain", READ, MEMORY, tool="memory_explain", errors=(404,))
def explain_memory(memory: MemoryManager, asked: OneMemory) -> results.ExplainResult:
    """Say which rules a memory lives under, what happens to it next, and what protects it; or how it went.

    Use it when the user asks why something is, or is not, remembered.
    """
    return memory.explain(asked.memory_id)


@memories.add("GET /memories/{memory_id}/derived", READ, MEMORY, errors=(404,))
def list_derived(memory: MemoryManager, asked: DerivedOf) -> ListOf[results.MemoryResult]:
    """List what was derived from a memory or a message."""
    return {"items": memory.derived(asked.memory_id, deep=asked.deep)}
