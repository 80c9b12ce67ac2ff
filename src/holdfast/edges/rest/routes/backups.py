"""``/v1/backups``: of the whole store: made, verified, restored and rotated."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from holdfast.backups.contents import is_used
from holdfast.core.access import Right
from holdfast.core.content import MAX_ID_CHARS
from holdfast.core.errors import ConfirmationNeededError, quote
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MOMENT, Answer, Kind, Request, UserId, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of
from holdfast.edges.rest.rights import Reach
from holdfast.edges.rest.streaming import NDJSON, stream_progress
from holdfast.engine import Holdfast
from holdfast.storage.transfer.stores import view_of

routes = Routes("backups", "Backups of the whole store: made, verified, restored and rotated.")

BACKUP_ID = "20260115-120000-000-7c3e-9f60-5d2a1c8e4b77"
BackupId = Annotated[str, Path(max_length=64, description="The backup's id.", examples=[BACKUP_ID])]


def _lines(result: str) -> dict[str, Any]:
    """What the documentation says of work that tells how far it is."""
    return {
        "description": (
            'Lines of JSON: `{"progress": memories}` now and then, then `{"result": {…}}`; or, if something goes wrong '
            'in between, `{"problem": {…}}`.'
        ),
        "content": {
            NDJSON: {"schema": {"type": "string"}, "example": f'{{"progress": 500}}\n{{"result": {result}}}\n'}
        },
    }


class NewBackup(Request):
    """What is backed up."""

    model_config = example({"kinds": ["long_term", "persona"]})

    kinds: list[Kind] | None = Field(default=None, min_length=1, description="All that last, if not given.")
    full: bool = Field(default=False, description="Copy what has not changed since the backup before, too.")
    confirm: bool = Field(default=False, description="The clock is right, though it leaped.")


class VerifyRequest(Request):
    """How a backup is verified."""

    model_config = example({"restore": True})

    restore: bool = Field(default=False, description="Restore it into a store of its own, too, and compare.")


class RestoreRequest(Request):
    """What comes back: all of it, one user, or one memory of a user."""

    model_config = example({"user_id": "alice", "confirm": True})

    user_id: UserId | None = None
    memory_id: Annotated[str, Field(max_length=MAX_ID_CHARS, description="Of that user, this one alone.")] | None = None
    overwrite: bool = Field(default=False, description="What is there becomes what it was.")
    confirm: bool = Field(default=False, description="The store is in use, and it may be changed.")


class RotateRequest(Request):
    """Whether the clock was looked at."""

    model_config = example({"confirm": False})

    confirm: bool = Field(default=False, description="The clock is right, though it leaped or is far ahead.")


# What is asked by those who send no body.
_ALL_THAT_LASTS: Final = NewBackup()
_READ_ONLY: Final = VerifyRequest()
_EVERYONE: Final = RestoreRequest()
_UNCONFIRMED: Final = RotateRequest()


class Backup(Answer):
    """A backup."""

    model_config = example(
        {
            "id": BACKUP_ID,
            "created_at": MOMENT,
            "kinds": ["long_term"],
            "users": 3,
            "memories": 120,
            "bytes": 48_000,
            "written": 1_200,
            "keeps_until": "2026-02-14T12:00:00+00:00",
            "good": True,
            "tried_at": MOMENT,
            "problem": None,
            "left_out": [],
        }
    )

    id: str
    created_at: str
    kinds: list[str]
    users: int
    memories: int
    bytes: int = Field(description="All that it refers to.")
    written: int = Field(description="What it took beside the ones before.")
    keeps_until: str
    good: bool | None = Field(description="Whether a trial restore was the same as it holds; `null`: none was made.")
    tried_at: str | None
    problem: str | None
    left_out: list[str] = Field(description="Pseudonyms of users who are not in it: their keys could not be opened.")


class BackupPage(Page):
    """Some backups, the oldest first."""

    items: list[Backup]


class Rotated(Answer):
    """What a rotation did."""

    model_config = example(
        {
            "removed": [BACKUP_ID],
            "kept": [],
            "rewritten": [],
            "damaged": [],
            "ahead": [],
            "waiting": [],
            "waiting_for": None,
            "objects": 12,
        }
    )

    removed: list[str]
    kept: list[str] = Field(description="Past their time, and the last good ones of a kind.")
    rewritten: list[str] = Field(description="What was sealed for the erased was taken out of them.")
    damaged: list[str] = Field(description="They cannot be read, or lack something; they were left as they are.")
    ahead: list[str] = Field(description="Dated later than now; they were left alone.")
    waiting: list[str] = Field(description="Past their time by a clock that is far ahead of what the store has seen.")
    waiting_for: str | None = Field(description="Why they wait, and what to do about it.")
    objects: int


@routes.add("GET", "/backups", Right.ADMIN, Reach.STORE, answer=BackupPage)
def list_backups(caller: Asking, limit: Limit = 100, cursor: After = None) -> Response:
    """List all backups, the oldest first."""
    found = [one.as_dict() for one in caller.store().backups.list()]
    return answer(page_of(found, limit, cursor, listing="backups", asked=(), key=lambda one: str(one["id"])))


@routes.add(
    "POST",
    "/backups",
    Right.ADMIN,
    Reach.STORE,
    answer=_lines('{"id": "…", "memories": 512}'),
    errors=(409,),
    long=True,
)
def create_backup(caller: Asking, new: NewBackup = _ALL_THAT_LASTS) -> Response:
    """Make a backup of the store as it is now; others go on writing meanwhile. Tell how far it is."""
    backups = caller.store().backups
    return stream_progress(
        lambda progress: backups.create(new.kinds, full=new.full, confirm=new.confirm, progress=progress).as_dict()
    )


@routes.add("GET", "/backups/{backup_id:id}", Right.ADMIN, Reach.STORE, answer=Backup, errors=(404,))
def get_backup(caller: Asking, backup_id: BackupId) -> Response:
    """Read what is known of a backup."""
    return answer(caller.store().backups.get(backup_id).as_dict())


@routes.add(
    "POST",
    "/backups/{backup_id:id}/verify",
    Right.ADMIN,
    Reach.STORE,
    answer=_lines('{"id": "…", "good": true, "problems": []}'),
    errors=(404, 409),
    long=True,
)
def verify_backup(caller: Asking, backup_id: BackupId, how: VerifyRequest = _READ_ONLY) -> Response:
    """Read all of a backup and see that each byte is as it was written; on request, restore it on trial and compare."""
    backups = caller.store().backups
    return stream_progress(lambda progress: backups.verify(backup_id, restore=how.restore, progress=progress).as_dict())


@routes.add(
    "POST",
    "/backups/{backup_id:id}/restore",
    Right.ADMIN,
    Reach.STORE,
    answer=_lines('{"memories": 512, "kept": 0}'),
    errors=(404, 409, 410, 428),
    long=True,
)
def restore_backup(caller: Asking, backup_id: BackupId, what: RestoreRequest = _EVERYONE) -> Response:
    """Bring back what a backup holds, but nobody who was erased since.

    Into a store that nothing was ever kept in, all of it comes, exactly as it was. One that is in use needs `confirm`,
    and so does a user: what is missing comes back, and what is there stays as it is, unless `overwrite` is given.
    """
    store = caller.store()
    backups = store.backups
    if not what.confirm:
        _look_first(store, backup_id, what)
    return stream_progress(
        lambda progress: backups.restore(
            backup_id,
            user_id=what.user_id,
            memory_id=what.memory_id,
            overwrite=what.overwrite,
            progress=progress,
        ).as_dict()
    )


@routes.add("POST", "/backups:rotate", Right.ADMIN, Reach.STORE, answer=Rotated, errors=(409, 428), long=True)
def rotate_backups(caller: Asking, how: RotateRequest = _UNCONFIRMED) -> Response:
    """Remove the backups past their time, but never the last good one of a kind."""
    return answer(caller.store().backups.rotate(confirm=how.confirm).as_dict())


def _look_first(store: Holdfast, backup_id: str, what: RestoreRequest) -> None:
    """``ConfirmationNeededError``, with what would come back, if a restore would change a store in use."""
    if what.memory_id is not None and what.user_id is None:
        return  # restoring says what is wrong with that
    backup = store.backups.get(backup_id)
    if what.user_id is None:
        with view_of(store.database) as view:
            if not is_used(view):
                return
    missing = "what is missing" if what.memory_id is None else f"memory {quote(what.memory_id)}"
    whom = "of everyone" if what.user_id is None else f"of {quote(what.user_id)}"
    then = "memories that are there become what they were" if what.overwrite else "what is there stays as it is"
    raise ConfirmationNeededError(
        f"the store is in use: {missing} {whom} would be brought back from backup {backup.id} of "
        f"{backup.created_at} ({', '.join(backup.kinds)}; {backup.memories:,} memories of {backup.users:,} users); "
        f"{then}. Nothing was changed"
    )
