"""Selections: records by what their metadata say of where they come from, without what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.core.content import to_json


class Labels(NamedTuple):
    """What a selection looks at in a record's metadata."""

    source_type: str | None = None
    context_id: int | None = None


def labels_of(metadata: Mapping[str, Any]) -> Labels:
    """The labels that metadata carry; what is no label (a number as a source, a text as a context) is none."""
    source = metadata.get("source_type")
    return Labels(source if isinstance(source, str) else None, context_number(metadata.get("context_id")))


def context_number(value: object) -> int | None:
    """A context's number: a whole one above 0, however it is written; anything else is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or not 0 < value < 2**63:  # noqa: PLR0124 - NaN is not itself
        return None
    return int(value) if value == int(value) else None


class Selection(NamedTuple):
    """Records of some source types, but none of a session or a context that is kept."""

    source_types: frozenset[str]
    keep_session_ids: frozenset[str]
    keep_context_ids: frozenset[int]

    def selects(self, session_id: str | None, labels: Labels) -> bool:
        """Whether a record of a session is selected by its labels."""
        return (
            labels.source_type in self.source_types
            and session_id not in self.keep_session_ids
            and labels.context_id not in self.keep_context_ids
        )

    def is_within(self, other: Selection) -> bool:
        """Whether the other selects everything that this one does."""
        return (
            self.source_types <= other.source_types
            and self.keep_session_ids >= other.keep_session_ids
            and self.keep_context_ids >= other.keep_context_ids
        )

    def text(self) -> str:
        """As it is stored: the same for the same selection."""
        return to_json([sorted(part) for part in self])

    @staticmethod
    def parsed(text: str) -> Selection:
        """A selection as it was stored."""
        sources, sessions, contexts = json.loads(text)
        return Selection(frozenset(sources), frozenset(sessions), frozenset(contexts))
