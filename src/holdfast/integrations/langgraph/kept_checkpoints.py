"""Which checkpoints of a thread are still needed when only its last ones are to be kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Checkpoint(NamedTuple):
    """What decides whether a checkpoint is needed."""

    namespace: str
    id: str
    parent: str | None
    delta_channels: frozenset[str]
    """The channels whose values have to be put together from earlier checkpoints."""
    stored_channels: frozenset[str]
    """The channels whose values it has."""
    versions: Mapping[str, str]
    """The version of each channel's value."""
    needs_parent: bool
    """Whether it reads what its parent sent: checkpoints before version 4 do."""


def choose_kept(checkpoints: Iterable[Checkpoint], keep_last: int) -> list[Checkpoint]:
    """The last checkpoints of each namespace, and those before them that their values are put together from."""
    by_namespace: dict[str, dict[str, Checkpoint]] = defaultdict(dict)
    for checkpoint in checkpoints:
        by_namespace[checkpoint.namespace][checkpoint.id] = checkpoint
    kept: dict[tuple[str, str], Checkpoint] = {}
    for namespace, found in by_namespace.items():
        for checkpoint_id in sorted(found)[-keep_last:]:
            for one in _with_sources(found[checkpoint_id], found):
                kept[namespace, one.id] = one
    return list(kept.values())


def _with_sources(checkpoint: Checkpoint, found: Mapping[str, Checkpoint]) -> Iterable[Checkpoint]:
    """A checkpoint, and its ancestors until each of its delta channels has a stored value."""
    yield checkpoint
    missing = checkpoint.delta_channels - checkpoint.stored_channels
    walked = {checkpoint.id}
    ancestor, needed = checkpoint, checkpoint.needs_parent
    while (missing or needed) and ancestor.parent is not None and ancestor.parent not in walked:
        parent = found.get(ancestor.parent)
        if parent is None:
            return
        yield parent
        walked.add(parent.id)
        missing -= parent.stored_channels
        ancestor, needed = parent, False
