"""``/v1/certificates``: proofs of erasures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MEMORY_ID, Answer, Metadata, Request, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, cut, read_cursor, write_cursor
from holdfast.edges.rest.rights import Reach

routes = Routes("certificates", "Proofs of erasures. They name nobody: whose one is, only the pseudonym says.")

CertificateId = Annotated[str, Path(max_length=64, description="The certificate's id.", examples=[MEMORY_ID])]


class CertificatePage(Page):
    """Some certificates, the latest first."""

    items: list[Metadata]


class Certificate(Answer):
    """A certificate, as it is to be handed out."""

    model_config = example({"id": MEMORY_ID, "subject": "9f2c…"}, closed=False)

    id: str
    subject: str = Field(description="The pseudonym of whoever was erased.")


class ToVerify(Request):
    """A certificate to be verified."""

    model_config = example({"certificate": {"id": MEMORY_ID, "subject": "9f2c…", "signature": "…"}})

    certificate: dict[str, Any] = Field(description="All of it, as it was handed out.")


class CertificateVerdict(Answer):
    """Whether a certificate is what it claims to be."""

    model_config = example({"ok": True, "signed": True, "trusted": True, "reasons": []})

    ok: bool
    signed: bool = Field(description="Every word of it was signed with the key that it names.")
    trusted: bool = Field(description="That key is one that this store has signed with.")
    reasons: list[str]


@routes.add("GET", "/certificates", Right.READ, Reach.STORE, answer=CertificatePage)
def list_certificates(caller: Asking, limit: Limit = 100, cursor: After = None) -> Response:
    """List certificates, the latest first."""
    place = read_cursor(cursor, "certificates", (), str)
    before = None if place is None else str(place[0])
    found = caller.store().certificates.list(limit + 1, before=before)[::-1]
    return answer(cut(found, limit, lambda one: write_cursor("certificates", (), [one["id"]])))


@routes.add("GET", "/certificates/{certificate_id:id}", Right.READ, Reach.STORE, answer=Certificate, errors=(404,))
def get_certificate(caller: Asking, certificate_id: CertificateId) -> Response:
    """Read a certificate, as it is to be handed out."""
    return answer(caller.store().certificates.get(certificate_id))


@routes.add("POST", "/certificates:verify", Right.READ, Reach.TENANT, answer=CertificateVerdict)
def verify_certificate(caller: Asking, given: ToVerify) -> Response:
    """Check that not a word of a certificate was changed, and that this store has signed it."""
    verdict = caller.tenant().certificates.verify(given.certificate)
    return answer(
        {
            "ok": verdict.ok,
            "signed": verdict.signed,
            "trusted": verdict.trusted,
            "reasons": list(verdict.reasons),
        }
    )
