"""Operations on people: everything that is kept of a person, exported, erased with a proof, or sent to the bin."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from operator import itemgetter
from typing import Annotated, Any, BinaryIO, TypedDict

from pydantic import Field

from holdfast.core.errors import ConfirmationNeededError
from holdfast.core.records import DURABLE
from holdfast.core.values import check_id
from holdfast.edges.operations.models import MEMORY_ID, Id, Input, KindName, OneUser, Paged, example
from holdfast.edges.operations.operation import GOVERN, READ, STORE, TENANT, USER, WHOSE, Group
from holdfast.edges.operations.outputs import FileAnswer, PageOf, encode, output_of
from holdfast.engine import Holdfast
from holdfast.privacy.certificates import Verdict
from holdfast.privacy.erasure import PlaceCount, ignore
from holdfast.results.figures import BrowseResult, FacetResult, UserResult
from holdfast.results.lifecycle import CertificateResult, ErasurePreviewResult, ForgetResult, LifeStoryResult

users = Group("users", "Everything that is kept of a person: exported, erased with a proof, sent to the recycle bin.")
certificates = Group("certificates", "Proofs of erasures. They name nobody: whose one is, only the pseudonym says.")


class EraseUser(OneUser):
    """Whom to erase."""

    confirm: bool = Field(False, description="It cannot be brought back.")


class ForgetUser(OneUser):
    """What of a user goes to the recycle bin."""

    memory_type: KindName | None = Field(None, description="Of one kind; of all, if not given.")


class ForgetSource(Input):
    """A source, all of which is to go."""

    model_config = example({"source": "import:crm-2026-05", "user_id": "alice", "dry_run": True})

    source: Id = Field(description="Who or what wrote it.")
    user_id: Id | None = Field(None, description="Of whom; of everyone, if it is not given.")
    dry_run: bool = Field(False, description="Only say how much it would be.")


class BrowseState(StrEnum):
    """The states that memories are in."""

    ACTIVE = "active"
    ARCHIVED = "archived"
    RECYCLED = "recycled"


class BrowseMemories(OneUser, Paged):
    """Which memories of a user to list; what is not given is any."""

    memory_type: KindName | None = Field(None, description="Of one kind.")
    state: Annotated[BrowseState, Field(strict=False)] | None = Field(None, description="In one state.")
    agent_id: Id | None = Field(None, description="Those that were made with this agent.")
    session_id: Id | None = Field(None, description="Those that were made in this session.")
    source: Id | None = Field(None, description="Those that came from there.")
    created_from: str | None = Field(None, max_length=64, description="Made at this moment, as ISO 8601, or later.")
    created_before: str | None = Field(None, max_length=64, description="Made before this moment.")


class OneUsersMemory(OneUser):
    """One memory of a user, whichever agent it is with."""

    memory_id: str = Field(description="The memory's id.", examples=[MEMORY_ID])


class Count(TypedDict):
    """How many."""

    count: int


class ExportFile(FileAnswer):
    """A ZIP with a page to read (`index.html`) and files for programs, sent while it is made."""

    media_type = "application/zip"
    file_name = "export-{user_id}.zip"


class ExportLines(FileAnswer):
    """One line of JSON for each thing that is held, sent while it is read; `type` says what it is."""

    media_type = "application/x-ndjson"
    file_name = "export-{user_id}.jsonl"


class Erased(TypedDict):
    """What became of everything that was kept of a person."""

    user_id: str
    pseudonym: str | None
    """What the ledger and the certificate know the person by."""
    pending: bool
    """Something is still to be done, though nobody can read anything of it any more."""
    waiting_for: list[str]
    memories: dict[str, int]
    places: list[PlaceCount]
    certificate: CertificateResult | None
    """Signed; it can be verified without this server."""


@users.add("GET /users", GOVERN, TENANT)
def list_users(holdfast: Holdfast, asked: Paged) -> PageOf[UserResult]:
    """List the users of the tenant of whom memories or conversations are kept, in whatever state, by their ids."""
    return asked.make_page(holdfast.users(after=asked.read_last(), limit=asked.limit + 1), itemgetter("user_id"))


@users.add("GET /users/{user_id}/memories", READ, USER, PageOf[BrowseResult])
def browse_memories(holdfast: Holdfast, asked: BrowseMemories) -> Any:
    """List the memories of a user in every state, whichever agent they are with, those that were stored last first.

    Of each, the beginning of its content is shown, what moves it next and when, and whether a hold keeps it. What
    nobody may read any more (it is past its time, its agent was removed, its text is kept out) has no content.
    """
    place: Any = asked.read_place(*[int] * len(DURABLE))
    which = asked.to_arguments("cursor")
    items, following = holdfast.memories.page(**which, after=None if place is None else tuple(place))
    return {"items": items, "next_cursor": None if following is None else asked.make_cursor(following)}


@users.add("GET /users/{user_id}/memories/{memory_id}", READ, USER, errors=(404,))
def get_life(holdfast: Holdfast, asked: OneUsersMemory) -> LifeStoryResult:
    """Read all that is known of a memory of a user, in whatever state: its past, its present and what is to come.

    What it says and said before, where it comes from and what was made of it, every step of its life with who took it,
    why and by which rule, what its rules do with it next, and the holds that protect it. Of a memory that is gone, what
    the audit chain says. What nobody may read any more has no content.
    """
    return holdfast.life(asked.user_id, asked.memory_id)


@users.add("GET /users/{user_id}/facets", READ, USER)
def count_facets(holdfast: Holdfast, asked: OneUser) -> FacetResult:
    """Count the memories of a user by kind, state, agent, session and source."""
    return holdfast.memories.facets(asked.user_id)


@users.add("GET /users/{user_id}/export", GOVERN, USER, ExportFile, errors=(404, 409))
def export_user(holdfast: Holdfast, asked: OneUser, file: BinaryIO) -> Any:
    """Export everything that is held on a user: in every state, of every kind, from every place."""
    return holdfast.export_user(asked.user_id, file)


@users.add("GET /users/{user_id}/export:lines", GOVERN, USER, ExportLines, errors=(404, 409))
def export_user_lines(holdfast: Holdfast, asked: OneUser, file: BinaryIO) -> Any:
    """Export everything that is held on a user as lines of JSON, for programs.

    Where the user is erased meanwhile, the answer is cut off.
    """
    for line in holdfast.services.exports.lines(holdfast.tenant, asked.user_id):
        file.write(encode(line) + b"\n")


@users.add("GET /users/{user_id}/erasure", GOVERN, USER, is_long=True)
def preview_erasure(
    holdfast: Holdfast, asked: OneUser, progress: Callable[[int, str], None] = ignore
) -> ErasurePreviewResult:
    """Say what erasing a user would remove from where, and what would refuse or delay it. Changes nothing."""
    return holdfast.preview_erasure(asked.user_id, progress=progress)


@users.add("DELETE /users/{user_id}", GOVERN, USER, Erased, errors=(423, 428), is_long=True)
def erase_user(holdfast: Holdfast, asked: EraseUser, progress: Callable[[int, str], None] = ignore) -> Any:
    """Erase a user for good: everything, in every place, past the recycle bin, with a signed certificate.

    Refused while a hold keeps anything of theirs, and without `confirm`. Where something is away just now the answer is
    `pending`: the next sweep goes on with it, and so does the same request.
    """
    user_id = check_id(asked.user_id, "user_id")
    if not asked.confirm:
        raise ConfirmationNeededError(
            f"erasing {user_id!r} removes all that is kept of them, for good; nothing was changed: confirm it"
        )
    erasure = holdfast.erase_user(user_id, progress=progress)
    return {
        "user_id": user_id,
        "pseudonym": erasure.alias,
        "pending": erasure.pending,
        "waiting_for": list(erasure.waiting_for),
        "memories": dict(erasure.kinds),
        "places": [place._asdict() for place in erasure.places],
        "certificate": erasure.certificate or None,
    }


@users.add("DELETE /users/{user_id}/memories", GOVERN, USER, errors=(423,))
def recycle_user_memories(holdfast: Holdfast, asked: ForgetUser) -> Count:
    """Send everything of a user, or all of one kind, to the recycle bin, whichever agent it is with."""
    memory = holdfast.manager(asked.user_id, "api")
    return {"count": memory.delete_user_memories(asked.user_id, asked.memory_type)}


@users.add("POST /sources:forget", GOVERN, WHOSE, errors=(423,))
def forget_source(holdfast: Holdfast, asked: ForgetSource) -> ForgetResult:
    """Send all that came from a source, and all that was derived from it, to the recycle bin."""
    return holdfast.forget_source(**asked.to_arguments())


# --- certificates -----------------------------------------------------------------------------------------------------


class OneCertificate(Input):
    """One certificate."""

    certificate_id: str = Field(min_length=1, max_length=64, description="The certificate's id.", examples=[MEMORY_ID])


class VerifyCertificate(Input):
    """A certificate to be verified."""

    model_config = example({"certificate": {"id": MEMORY_ID, "subject": "9f2c…", "signature": "…"}})

    certificate: dict[str, Any] = Field(description="All of it, as it was handed out.")


class CertificateVerdict(output_of(Verdict, "ok", without=frozenset({"document"}))):  # type: ignore[misc]
    """Whether a certificate is what it claims to be."""


@certificates.add("GET /certificates", READ, STORE)
def list_certificates(holdfast: Holdfast, asked: Paged) -> PageOf[CertificateResult]:
    """List certificates, the latest first."""
    return asked.make_page(
        holdfast.certificates.list(asked.limit + 1, before=asked.read_last())[::-1], itemgetter("id")
    )


@certificates.add("GET /certificates/{certificate_id}", READ, STORE, errors=(404,))
def get_certificate(holdfast: Holdfast, asked: OneCertificate) -> CertificateResult:
    """Read a certificate, as it is to be handed out."""
    return holdfast.certificates.get(asked.certificate_id)


@certificates.add("POST /certificates:verify", READ, TENANT, CertificateVerdict)
def verify_certificate(holdfast: Holdfast, asked: VerifyCertificate) -> Any:
    """Check that not a word of a certificate was changed, and that this store has signed it."""
    verdict = holdfast.certificates.verify(asked.certificate)
    return {name: getattr(verdict, name) for name in CertificateVerdict.model_fields}
