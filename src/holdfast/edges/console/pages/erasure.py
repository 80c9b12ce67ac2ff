"""Erasure: what would go, why it would be refused, the run and its proof; verifying a proof; and the export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.edges.console.formats import kind, link, number
from holdfast.edges.console.table import Effect, Entry, Fields, Section
from holdfast.edges.console.visit import Visit

erasure = Section("Erasure")
_PATH: Final = "/erasure"
_LISTED: Final = 10


@erasure.page(_PATH, may_call=["preview_erasure", "verify_certificate", "list_certificates"])
def show_erasure(visit: Visit) -> dict[str, Any]:
    """Where to erase, export and verify, by what the key may; and, for operators, the proofs of what was erased."""
    asked = {"cursor": visit.query.get("cursor")}
    may = visit.may("list_certificates")
    return {
        "asked": asked,
        "user_id": visit.user_id,
        "found": visit.call("list_certificates", **asked, limit=_LISTED) if may else None,
    }


def _describe_preview(found: dict[str, Any], _query: object) -> dict[str, Any]:
    """How much of the user lies where, and what refuses or delays it."""
    user_id = found["user_id"]
    rows = [(f"{kind(name)} memories", number(count)) for name, count in found["memories"].items() if count]
    rows += [(one["name"], number(one["found"])) for one in found["places"] if one["name"] != "memories"]
    if not found["is_known"]:
        effect = Effect([f"nothing was ever kept of a user {user_id}"], is_possible=False)
    elif found["is_refused"]:
        reasons = [f"a hold keeps it: {one['reason']}" for one in found["holds"]]
        effect = Effect([f"to erase {user_id} is refused", *reasons], rows, is_possible=False)
    else:
        effect = Effect([*_warn(user_id, found["waiting_for"])], rows, {"user_id": user_id, "confirm": "true"})
    return {"effect": effect, "user_id": user_id}


def _warn(user_id: str, waiting_for: Sequence[str]) -> Iterator[str]:
    yield f"all that is kept of {user_id} goes, in every place, past the recycle bin: memories, conversations, rules"
    yield "backups that hold any of it can no longer be read there: the key that sealed it is destroyed"
    yield "this cannot be undone; what comes of it is a signed certificate, which names no one"
    for one in waiting_for:
        yield f"it would be finished later, because something does not answer: {one}"


@erasure.action(
    "preview_erasure",
    "Erase a user",
    "See what would go",
    entries=(Entry("user_id", "User"),),
    back=lambda fields: link(_PATH, user_id=fields.get("user_id")),
    describe=lambda _fields, _result: "nothing is changed by looking",
    result="erasure_preview.html",
    arrange=_describe_preview,
    is_question=True,
)
def preview_preview(_visit: Visit, _fields: Fields) -> Effect:
    """That it only looks."""
    return Effect(["every place is looked at; nothing is changed"])


def _describe_erasure(_fields: Fields, result: dict[str, Any]) -> str:
    if result["pending"]:
        return "nobody can read anything of this user any more; something is still to be done"
    return "this user is erased, in every place"


@erasure.action(
    "erase_user",
    "Erase a user",
    "Erase for good",
    entries=(Entry("user_id", "User"),),
    asks="preview_erasure",
    back=lambda fields: link(_PATH, user_id=fields.get("user_id")),
    describe=_describe_erasure,
    result="erased.html",
    forgets=("user_id",),
    is_danger=True,
)
def preview_erase(_visit: Visit, _fields: Fields) -> None:
    """A job of its own shows it."""


@erasure.action(
    "export_user",
    "Export all of a user",
    "Export",
    back=lambda fields: link(_PATH, user_id=fields.get("user_id")),
    describe=lambda fields, _result: f"all that is kept of {fields['user_id']} was sent",
    is_question=True,
)
def preview_export(_visit: Visit, fields: Fields) -> Effect:
    """What is in the file."""
    return Effect([f"a ZIP file with all that is kept of {fields['user_id']}: a page to read, and files for programs"])


def _describe_verdict(_fields: Fields, result: dict[str, Any]) -> str:
    if result["ok"]:
        return "the certificate is genuine: not a word of it was changed, and this store has signed it"
    return f"do not trust this certificate: {'; '.join(result['reasons'])}"


@erasure.action(
    "verify_certificate",
    "Verify a certificate",
    "Verify",
    entries=(Entry("certificate", "The certificate", "file", "The file as it was handed out, or drop it here."),),
    back=lambda _fields: link(_PATH),
    describe=_describe_verdict,
    is_question=True,
)
def preview_verdict(_visit: Visit, _fields: Fields) -> Effect:
    """That it only looks."""
    return Effect(["the signature is checked with this store's keys; nothing is changed"])
