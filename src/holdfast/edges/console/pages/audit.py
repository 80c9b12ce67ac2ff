"""The audit chain: what happened, who did it, and whether the record of it is whole."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.audit import Action
from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Fields, Section
from holdfast.edges.console.visit import Visit

audit = Section("Audit")
_PATH: Final = "/audit"
_READ: Final = 1_000
_SHOWN: Final = 100


@audit.page(_PATH, calls=["tail_audit"])
def show_audit(visit: Visit) -> dict[str, Any]:
    """The latest entries, the newest first; of one user, of one action, by one actor, or of one thing."""
    asked = {name: visit.query.get(name) for name in ("action", "actor", "item")} | {"user_id": visit.user_id}
    entries = visit.call("tail_audit", user_id=asked["user_id"], limit=_READ)["items"][::-1]
    wanted = {name: asked[name] for name in ("action", "actor", "item") if asked[name] is not None}
    found = [one for one in entries if all(one[name] == value for name, value in wanted.items())]
    return {"asked": asked, "found": found[:_SHOWN], "known": [one.value for one in Action]}


@audit.action(
    "verify_audit",
    "Verify the audit chain",
    "Verify the chain",
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, result: (
        "the audit chain is whole"
        if result["ok"]
        else f"the audit chain is NOT whole: {result['findings'][0]['problem']}"
    ),
    is_question=True,
)
def preview_verdict(_visit: Visit, _fields: Fields) -> Effect:
    """That it only looks."""
    return Effect(["every entry and every checkpoint is read and compared; nothing is changed"])
