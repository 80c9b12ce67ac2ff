"""The audit chain: what happened, who did it, and whether the record of it is whole."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.audit import Action
from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Fields, Section
from holdfast.edges.console.visit import Visit

audit = Section("Audit")
_PATH: Final = "/audit"
_NAMES: Final = ("action", "actor", "item", "since", "until")


@audit.page(_PATH, calls=["list_audit"])
def show_audit(visit: Visit) -> dict[str, Any]:
    """The entries, the newest first; of one user, of one action, by one actor, of one thing, or of some days."""
    asked = {**{name: visit.query.get(name) for name in (*_NAMES, "cursor")}, "user_id": visit.user_id}
    found = visit.call("list_audit", **asked, limit=50)
    return {"asked": asked, "found": found, "known": [one.value for one in Action]}


@audit.action(
    "export_audit",
    "Export entries of the audit chain",
    "Export",
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, _result: "the entries were sent",
    is_question=True,
)
def preview_export(_visit: Visit, _fields: Fields) -> Effect:
    """What is in the file."""
    return Effect(["a file of lines of JSON, an entry each, the newest first: those that are chosen, on every page"])


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
