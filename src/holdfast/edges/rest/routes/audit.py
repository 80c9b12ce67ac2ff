"""``/v1/audit``: what happened, in order, and whether the record of it is whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MEMORY_ID, MOMENT, Answer, MaybeUser, Metadata, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

routes = Routes("audit", "What happened, in order, and whether the record of it is whole.")


class Entry(Answer):
    """Something that happened."""

    at: str
    action: str
    item: str | None
    detail: Metadata
    chain: str
    seq: int


class Entries(Answer):
    """The latest entries, the newest last."""

    model_config = example(
        {
            "items": [
                {
                    "at": MOMENT,
                    "action": "recycled",
                    "item": MEMORY_ID,
                    "detail": {"reason": "deleted by the user", "kind": "long_term"},
                    "chain": "5b0c…",
                    "seq": 7,
                }
            ]
        }
    )

    items: list[Entry]


class Finding(Answer):
    """Something that is wrong."""

    chain: str
    seq: int
    problem: str


class AuditVerdict(Answer):
    """Whether the audit chain is whole."""

    model_config = example({"ok": True, "chains": 3, "entries": 120, "checkpoints": 4, "problems": 0, "findings": []})

    ok: bool
    chains: int
    entries: int
    checkpoints: int
    problems: int
    findings: list[Finding]


@routes.add("GET", "/audit", Right.READ, Reach.WHOSE, answer=Entries)
def tail_audit(
    *,
    caller: Asking,
    user_id: MaybeUser = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many at most.")] = 20,
) -> Response:
    """Read the latest entries of the audit chain, of a user or of the tenant, the newest last."""
    return answer({"items": caller.whose(user_id).audit.tail(limit, user_id=user_id)})


@routes.add("POST", "/audit/verify", Right.READ, Reach.STORE, answer=AuditVerdict, long=True)
def verify_audit(caller: Asking) -> Response:
    """Look for any entry or checkpoint of the store that was changed, removed, moved or added."""
    verdict = caller.store().audit.verify()
    return answer(
        {
            "ok": verdict.ok,
            "chains": verdict.chains,
            "entries": verdict.entries,
            "checkpoints": verdict.checkpoints,
            "problems": verdict.problems,
            "findings": [finding._asdict() for finding in verdict.findings],
        }
    )
