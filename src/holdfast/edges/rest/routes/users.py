"""``/v1/users``: everything that is kept of a person: counted, handed out, and erased with a proof."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_ID_CHARS, check_id
from holdfast.core.errors import ConfirmationNeededError
from holdfast.core.types import MemoryType
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import Answer, Counted, Metadata, Request, UserId, UserInPath, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach
from holdfast.edges.rest.streaming import stream_file
from holdfast.privacy.erasure import Erasure

routes = Routes("users", "Everything that is kept of a person: handed out, forgotten, erased with a proof.")

#: What a file's name is left with of a user's id.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@+-]+")
ZIP: Final = "application/zip"


class ErasedPlace(Answer):
    """What was found, removed and left in one place."""

    name: str
    found: int
    removed: int
    left: int


class Erased(Answer):
    """What became of everything that was kept of a person."""

    model_config = example(
        {
            "user_id": "alice",
            "pseudonym": "9f2c…",
            "pending": False,
            "waiting_for": [],
            "memories": {"long_term": 12},
            "places": [{"name": "memories", "found": 12, "removed": 12, "left": 0}],
            "certificate": {"id": "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"},
        }
    )

    user_id: str
    pseudonym: str | None = Field(description="What the ledger and the certificate know the person by.")
    pending: bool = Field(description="Something is still to be done, though nobody can read anything of it any more.")
    waiting_for: list[str]
    memories: dict[str, int]
    places: list[ErasedPlace]
    certificate: Metadata | None = Field(description="Signed; it can be verified without this server.")


class Forget(Request):
    """A source, all of which is to go."""

    model_config = example({"source": "import:crm-2026-05", "user_id": "alice", "dry_run": True})

    source: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Who or what wrote it.")
    user_id: UserId | None = Field(default=None, description="Of whom; of everyone, if it is not given.")
    dry_run: bool = Field(default=False, description="Only say how much it would be.")


class Forgotten(Answer):
    """How much went to the recycle bin, or would."""

    model_config = example(
        {"source": "import:crm-2026-05", "memories": 40, "derived": 3, "held": 0, "dry_run": True}, closed=False
    )

    memories: int = Field(description="What the source wrote.")
    derived: int = Field(description="What others made of it.")
    held: int = Field(description="What holds keep.")


@routes.add(
    "GET",
    "/users/{user_id:id}/export",
    Right.GOVERN,
    Reach.USER,
    answer={
        "description": "A ZIP with a page to read (`index.html`) and files for programs, sent while it is made.",
        "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}},
    },
    errors=(409,),
    long=True,
)
def export_user(caller: Asking, user_id: UserInPath) -> Response:
    """Export everything that is held on a user: in every state, of every kind, from every place."""
    holdfast = caller.user(user_id)
    name = f"export-{_UNSAFE.sub('_', user_id)[:64]}.zip"
    return stream_file(lambda file: holdfast.export_user(user_id, file), media_type=ZIP, filename=name)  # type: ignore[arg-type]


@routes.add("DELETE", "/users/{user_id:id}", Right.GOVERN, Reach.USER, answer=Erased, errors=(423, 428), long=True)
def erase_user(
    *,
    caller: Asking,
    user_id: UserInPath,
    confirm: Annotated[bool, Query(description="It cannot be brought back.")] = False,
) -> Response:
    """Erase a user for good: everything, in every place, past the recycle bin, with a signed certificate.

    Refused while a hold stands on anything of theirs, and without `confirm`. Where something is away just now the
    answer is `pending`: the next sweep goes on with it, and so does the same request.
    """
    holdfast = caller.user(user_id)
    check_id(user_id, "user_id")
    if not confirm:
        raise ConfirmationNeededError(
            f"erasing {user_id!r} removes all that is kept of them, for good; nothing was changed: confirm it"
        )
    return answer(_shown(user_id, holdfast.erase_user(user_id)))


@routes.add("DELETE", "/users/{user_id:id}/memories", Right.GOVERN, Reach.USER, answer=Counted, errors=(409, 423))
def recycle_user_memories(
    *,
    caller: Asking,
    user_id: UserInPath,
    memory_type: Annotated[MemoryType | None, Query(description="Of one kind; of all, if not given.")] = None,
) -> Response:
    """Send everything of a user, or all of one kind, to the recycle bin, whichever agent it is with."""
    memory = caller.user(user_id).manager(user_id, "api")
    return answer({"count": memory.delete_user_memories(user_id, memory_type)})


@routes.add("POST", "/sources:forget", Right.GOVERN, Reach.WHOSE, answer=Forgotten, errors=(423,))
def forget_source(caller: Asking, what: Forget) -> Response:
    """Send all that came from a source, and all that was derived from it, to the recycle bin."""
    holdfast = caller.whose(what.user_id)
    return answer(holdfast.forget_source(what.source, what.user_id, dry_run=what.dry_run))


def _shown(user_id: str, erasure: Erasure) -> dict[str, Any]:
    return {
        "user_id": user_id,
        "pseudonym": erasure.alias,
        "pending": erasure.pending,
        "waiting_for": list(erasure.waiting_for),
        "memories": dict(erasure.kinds),
        "places": [place._asdict() for place in erasure.places],
        "certificate": erasure.certificate or None,
    }
