"""Provenance: who or what wrote a memory, and what it was derived from; checked here, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.content import check_id
from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.ids import is_id

#: A memory may be derived from so many others.
MAX_DERIVED_FROM: Final = 1_000
_AGENT: Final = "agent:"


def agent_source(agent_id: str) -> str:
    """The source of what an agent wrote and nothing else was said of."""
    return f"{_AGENT}{agent_id}"


def agent_of(source: str) -> str | None:
    """The agent that a source is; ``None`` if it is something else."""
    return source.removeprefix(_AGENT) if source.startswith(_AGENT) else None


def check_source(source: object) -> str:
    """``source`` itself, if it can name who or what wrote something: a text like an id, such as ``import:crm``."""
    agent = agent_of(source) if isinstance(source, str) else None
    if agent is not None:
        check_id(agent, "the agent of a source")
        return agent_source(agent)
    return check_id(source, "source")


def check_derived_from(ids: object) -> tuple[str, ...]:
    """Ids of memories and messages, each once, in the order given. They need not be there (any more)."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidInputError(f"derived_from must be a list of the ids of memories or messages, not {quote(ids)}")
    if len(ids) > MAX_DERIVED_FROM:
        raise InvalidInputError(
            f"derived_from has {len(ids):,} ids, which are too many (max: {MAX_DERIVED_FROM:,}); "
            "name what matters, or sum it up in between"
        )
    for one in ids:
        if not is_id(one):
            raise InvalidInputError(f"derived_from has {quote(one)}, which is not the id of a memory or a message")
    return tuple(dict.fromkeys(ids))


class Origin(NamedTuple):
    """What a caller says of where a memory comes from; ``None`` where nothing was said."""

    source: str | None = None
    derived_from: tuple[str, ...] | None = None

    @staticmethod
    def checked(source: object, derived_from: object) -> Origin:
        """What was said, if it can be kept."""
        return Origin(
            None if source is None else check_source(source),
            None if derived_from is None else check_derived_from(derived_from),
        )

    @property
    def is_said(self) -> bool:
        """Whether anything was said."""
        return self != UNSAID

    def fields(self, agent_id: str) -> dict[str, Any]:
        """What a record of an agent's is to say, as far as it was said. Its agent is its source anyway."""
        said: dict[str, Any] = {}
        if self.source is not None:
            said["source"] = None if self.source == agent_source(agent_id) else self.source
        if self.derived_from is not None:
            said["derived_from"] = self.derived_from
        return said


UNSAID: Final = Origin()
