"""Holds: while one stands, nothing that it covers is archived, recycled, deleted, pruned or erased."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Held(NamedTuple):
    """What a hold can look at: whose something is, and what it is."""

    user_id: str
    agent_id: str
    session_id: str | None
    item_id: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on all that one user, agent, session or tag has in a tenant, or on one memory."""

    id: str
    tenant: str
    reason: str
    author: str
    created_at: int
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_id: str | None = None
    tag: str | None = None
    released_at: int | None = None
    released_by: str | None = None

    def covers(self, thing: Held) -> bool:
        """Whether something is under this hold. Every part that the hold names must be the thing's, whole."""
        return (
            self.released_at is None
            and self.user_id in (None, thing.user_id)
            and self.agent_id in (None, thing.agent_id)
            and self.session_id in (None, thing.session_id)
            and self.memory_id in (None, thing.item_id)
            and (self.tag is None or is_tagged(thing.metadata, self.tag))
        )


def is_tagged(metadata: Mapping[str, Any], tag: str) -> bool:
    """Whether metadata carry a tag: ``key=value`` is a field with that value, any other text is one of ``tags``."""
    key, equals, wanted = tag.partition("=")
    if equals:
        value = metadata.get(key)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return value is not None and text == wanted
    tags = metadata.get("tags")
    return tag == tags or (isinstance(tags, list) and tag in tags)


def standing(thing: Held, holds: Iterable[Hold]) -> Hold | None:
    """The first hold that covers something."""
    return next((hold for hold in holds if hold.covers(thing)), None)
