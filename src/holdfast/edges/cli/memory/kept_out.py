"""List the texts that are not to come back, and let them.

Examples:
    holdfast kept-out list --user alice
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import MemoryId, of_memory
from holdfast.edges.cli.output import Cell, minute, table

kept_out = add_group(__name__, "kept-out", __doc__)


@table("memory!, since!, by", empty="No text is kept out.")
def _show_kept_out(one: Mapping[str, Any]) -> list[Cell]:
    return [one["memory_id"], minute(one["kept_out_at"]), one["author"]]


@command(kept_out, "list", of_memory, render=_show_kept_out)
def list_kept_out(call: Call) -> Any:
    """List the memories of a user that were deleted with --keep-out. The texts themselves are not kept.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast delete $id --user alice --keep-out
        holdfast kept-out list --user alice
    """
    return call.memory.kept_out()


@command(kept_out, "lift", of_memory, render=lambda lifted: f"The text of {lifted['memory_id']} may come back.")
def lift_kept_out(call: Call, *, memory_id: MemoryId) -> Any:
    """Let a text come back: it can be added again, or its memory restored while that is in the recycle bin.

    Examples:
        id=$(holdfast add "Likes tea" --user alice --quiet)
        holdfast delete $id --user alice --keep-out
        holdfast kept-out lift $id --user alice
        holdfast restore $id --user alice
    """
    call.memory.lift(memory_id)
    return {"memory_id": memory_id, "operation": "lift"}
