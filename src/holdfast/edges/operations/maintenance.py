"""Operations on the store as a whole: backups, the schedule, the audit chain; and who calls."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, BinaryIO, Final, TypedDict

from pydantic import Field

from holdfast.backups.catalog import Backup
from holdfast.backups.restore import Check, Restored
from holdfast.backups.rotate import Rotation
from holdfast.core.access import Right, list_rights
from holdfast.core.errors import ConfirmationNeededError, NotFoundError, quote
from holdfast.core.values import MAX_ID_CHARS
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.models import ConfirmClock, Id, Input, KindName, MaybeUser, Nothing, Paged, example
from holdfast.edges.operations.operation import ADMIN, CALLER, GOVERN, READ, STORE, WHOSE, Group
from holdfast.edges.operations.outputs import FileAnswer, ListOf, PageOf, output_of
from holdfast.engine import Holdfast
from holdfast.lifecycle.audit import Verdict
from holdfast.results.lifecycle import AuditEntryResult, AuditResult, JobResult, RunResult
from holdfast.results.memory import Metadata

audit = Group("audit", "What happened, in order, and whether the record of it is whole.")
backups = Group("backups", "Backups of the whole store: made, verified, restored and rotated.")
schedule = Group("schedule", "What runs when, how it went, and running it.")
access = Group("access", "Who calls, and what they may do.")
_BACKUP_ID: Final = "20260115-120000-000-7c3e-9f60-5d2a1c8e4b77"
Progress = Callable[[int], None]


class NewBackup(Input):
    """What is backed up."""

    model_config = example({"kinds": ["long_term", "persona"]})

    kinds: list[KindName] | None = Field(None, min_length=1, description="All that last, if not given.")
    full: bool = Field(False, description="Copy what has not changed since the backup before, too.")
    confirm: bool = Field(False, description="The clock is right, though it leaped.")


class OneBackup(Input):
    """One backup."""

    backup_id: str = Field(max_length=64, description="The backup's id.", examples=[_BACKUP_ID])


class VerifyBackup(OneBackup):
    """How a backup is verified."""

    model_config = example({"restore": True})

    restore: bool = Field(False, description="Restore it into a store of its own, too, and compare.")


class RestoreBackup(OneBackup):
    """What comes back: all of it, one user, or one memory of a user."""

    model_config = example({"user_id": "alice", "confirm": True})

    user_id: Id | None = Field(None, description="What is this user's; everyone's, if not given.")
    memory_id: str | None = Field(None, max_length=MAX_ID_CHARS, description="Of that user, this one alone.")
    overwrite: bool = Field(False, description="What is there becomes what it was.")
    confirm: bool = Field(False, description="The store is in use, and it may be changed.")


class RotateBackups(Input):
    """Whether the clock was looked at."""

    model_config = example({"confirm": False})

    confirm: ConfirmClock = False


class RestoredBackup(output_of(Restored, without=frozenset({"counts", "outdated"}))):  # type: ignore[misc]
    """What came back."""


class BackupVerdict(output_of(Check)):  # type: ignore[misc]
    """Whether a backup is whole."""

    good: bool


@backups.add("GET /backups", ADMIN, STORE, PageOf[Backup])
def list_backups(holdfast: Holdfast, asked: Paged) -> Any:
    """List all backups, the oldest first."""
    return asked.cut_page([one.as_dict() for one in holdfast.backups.list()], itemgetter("id"))


@backups.add("POST /backups", ADMIN, STORE, Backup)
def create_backup(holdfast: Holdfast, asked: NewBackup, progress: Progress) -> Any:
    """Make a backup of the store as it is now; others go on writing meanwhile. Tell how far it is."""
    return holdfast.backups.create(**asked.to_arguments(), progress=progress).as_dict()


@backups.add("GET /backups/{backup_id}", ADMIN, STORE, Backup, errors=(404,))
def get_backup(holdfast: Holdfast, asked: OneBackup) -> Any:
    """Read what is known of a backup."""
    return holdfast.backups.get(asked.backup_id).as_dict()


@backups.add("POST /backups/{backup_id}/verify", ADMIN, STORE, BackupVerdict, errors=(404,))
def verify_backup(holdfast: Holdfast, asked: VerifyBackup, progress: Progress) -> Any:
    """Read all of a backup and see that each byte is as it was written; on request, restore it on trial and compare."""
    return holdfast.backups.verify(asked.backup_id, restore=asked.restore, progress=progress).as_dict()


@backups.add("POST /backups/{backup_id}/restore", ADMIN, STORE, RestoredBackup, errors=(404, 410, 428))
def restore_backup(holdfast: Holdfast, asked: RestoreBackup, progress: Progress) -> Any:
    """Bring back what a backup holds, but nobody who was erased since.

    Into a store that nothing was ever kept in, all of it comes, exactly as it was. One that is in use needs `confirm`,
    and so does a user: what is missing comes back, and what is there stays as it is, unless `overwrite` is given.
    """
    if not asked.confirm:
        _check_unused(holdfast, asked)
    return holdfast.backups.restore(**asked.to_arguments("confirm"), progress=progress).as_dict()


@backups.add("POST /backups:rotate", ADMIN, STORE, Rotation, errors=(428,), is_long=True)
def rotate_backups(holdfast: Holdfast, asked: RotateBackups) -> Any:
    """Remove the backups past their time, but never the last good one of a kind."""
    return holdfast.backups.rotate(confirm=asked.confirm).as_dict()


def _check_unused(store: Holdfast, asked: RestoreBackup) -> None:
    """``ConfirmationNeededError``, with what would come back, if a restore would change a store in use."""
    if asked.memory_id is not None and asked.user_id is None:
        return  # restoring says what is wrong with that
    backup = store.backups.get(asked.backup_id)
    if asked.user_id is None and not store.backups.is_store_used():
        return
    missing = "what is missing" if asked.memory_id is None else f"memory {quote(asked.memory_id)}"
    whom = "of everyone" if asked.user_id is None else f"of {quote(asked.user_id)}"
    then = "memories that are there become what they were" if asked.overwrite else "what is there stays as it is"
    raise ConfirmationNeededError(
        f"the store is in use: {missing} {whom} would be brought back from backup {backup.id} of "
        f"{backup.created_at} ({', '.join(backup.kinds)}; memories: {backup.memories:,}, users: {backup.users:,}); "
        f"{then}. Nothing was changed"
    )


# --- the schedule -----------------------------------------------------------------------------------------------------


class OneJob(Input):
    """One job."""

    name: str = Field(max_length=64, description="The job.", examples=["daily"])


class JobChange(OneJob):
    """When a job is to run, or whether; what is not given stays, and `default` goes back to the default."""

    model_config = example({"cron": "30 4 * * *", "timezone": "Europe/Berlin"})

    cron: str | None = Field(None, min_length=1, max_length=200, description="When, as five fields of cron.")
    timezone: str | None = Field(None, min_length=1, max_length=100, description="The zone of that time.")
    enabled: bool | None = Field(None, description="Whether it runs at all.")


class Jobs(ListOf[JobResult]):
    """All jobs, and what an operator should know of them."""

    problems: list[str]


class JobRun(TypedDict):
    """A job that was run."""

    name: str
    result: Metadata


@schedule.add("GET /schedule", ADMIN, STORE)
def list_jobs(holdfast: Holdfast, _asked: Nothing) -> Jobs:
    """List the jobs: when each runs next, how its last run went, and what is wrong."""
    jobs = holdfast.schedule
    return {"items": jobs.list(), "problems": jobs.problems()}


class ListRuns(Paged):
    """Of which job to list the runs."""

    name: str | None = Field(None, max_length=64, description="Of this job; of all, if not given.", examples=["daily"])


@schedule.add("GET /schedule/runs", ADMIN, STORE, errors=(404,))
def list_runs(holdfast: Holdfast, asked: ListRuns) -> PageOf[RunResult]:
    """List the runs of jobs that did something or failed, the latest first; the last hundred of each job are kept."""
    if asked.name is not None:
        _check_job(holdfast, asked.name)

    def key(one: RunResult) -> str:
        return f"{one['started_at']}\x1f{one['name']}"

    return asked.cut_page(holdfast.schedule.runs(asked.name), key, descending=True)


@schedule.add("PATCH /schedule/{name}", ADMIN, STORE, errors=(404,))
def set_job(holdfast: Holdfast, asked: JobChange) -> JobResult:
    """Change when a job runs, or whether."""
    _check_job(holdfast, asked.name)
    return holdfast.schedule.set(**asked.to_arguments())


@schedule.add("POST /schedule/{name}/run", ADMIN, STORE, errors=(404,), is_long=True)
def run_job(holdfast: Holdfast, asked: OneJob) -> JobRun:
    """Run a job now, by hand; its slots stay as they are."""
    _check_job(holdfast, asked.name)
    return {"name": asked.name, "result": holdfast.schedule.run(asked.name)}


def _check_job(holdfast: Holdfast, name: str) -> None:
    known = [job.name for job in holdfast.schedule.runners]
    if name not in known:
        raise NotFoundError(f"there is no job {quote(name)}; jobs are: {', '.join(known)}")


# --- the audit chain --------------------------------------------------------------------------------------------------


class TailAudit(Input):
    """How many entries, and whose."""

    user_id: MaybeUser = None
    limit: int = Field(20, ge=1, le=10_000, description="How many at most.")


class AuditVerdict(output_of(Verdict, "ok")):  # type: ignore[misc]
    """Whether the audit chain is whole."""


@audit.add("GET /audit", READ, WHOSE)
def tail_audit(holdfast: Holdfast, asked: TailAudit) -> ListOf[AuditResult]:
    """Read the latest entries of the audit chain, of a user or of the tenant, the newest last."""
    return {"items": holdfast.audit.tail(asked.limit, user_id=asked.user_id)}


class AuditFilter(Input):
    """Which entries are meant; what is not given is any."""

    user_id: MaybeUser = None
    item: Id | None = Field(None, description="About this memory, session, hold, rule, agent or tool, by its id.")
    actor: Id | None = Field(None, description="Done by this one, such as `key:<id>`, `schedule` or an author.")
    action: str | None = Field(None, max_length=64, description="Such as `recycled`.", examples=["recycled"])
    since: str | None = Field(None, max_length=64, description="At this moment, as ISO 8601, or later.")
    until: str | None = Field(None, max_length=64, description="Before this moment.")


class ListAudit(AuditFilter, Paged):
    """Which entries to list."""


class AuditFile(FileAnswer):
    """Lines of JSON, an entry each, the newest first, sent while they are read."""

    media_type = "application/x-ndjson"
    file_name = "audit.ndjson"


@audit.add("GET /audit/entries", READ, WHOSE, PageOf[AuditEntryResult])
def list_audit(holdfast: Holdfast, asked: ListAudit) -> Any:
    """List entries of the audit chain, of a user or of the tenant, the newest first.

    A page may have fewer entries than `limit` though others follow; `next_cursor` tells.
    """
    place = asked.read_place(int)
    before: Any = None if place is None else place[0]
    items, following = holdfast.audit.page(**asked.to_arguments("cursor"), before=before)
    return {"items": items, "next_cursor": None if following is None else asked.make_cursor([following])}


@audit.add("GET /audit/export", GOVERN, WHOSE, AuditFile)
def export_audit(holdfast: Holdfast, asked: AuditFilter, file: BinaryIO) -> Any:
    """Export entries of the audit chain, of a user or of the tenant, as lines of JSON."""
    return holdfast.audit.write(file, **asked.to_arguments())


@audit.add("POST /audit/verify", READ, STORE, AuditVerdict, is_long=True)
def verify_audit(holdfast: Holdfast, _asked: Nothing, progress: Progress | None = None) -> Any:
    """Look for any entry or checkpoint of the store that was changed, removed, moved or added."""
    verdict = holdfast.audit.verify(progress)
    found = {name: getattr(verdict, name) for name in AuditVerdict.model_fields}
    return {**found, "findings": [finding._asdict() for finding in verdict.findings]}


# --- who calls --------------------------------------------------------------------------------------------------------


class Me(TypedDict):
    """Who calls."""

    key_id: str | None
    """`null`: the local caller, who needs no key."""
    tenant: str
    """The tenant that is acted for."""
    operator: bool
    """May act for any tenant, and for the whole store."""
    rights: list[str]
    users: list[str] | None
    """Bound to these users; `null`: to none."""
    agents: list[str] | None
    """Bound to these agents; `null`: to none."""


@access.add("GET /me", READ, CALLER)
def get_me(gate: Gate, _asked: Nothing) -> Me:
    """Say who calls, and what they may do."""
    principal = gate.principal
    return {
        "key_id": principal.key_id,
        "tenant": gate.tenant_id,
        "operator": principal.is_operator,
        "rights": list_rights(right for right in Right if principal.allows(right)),
        "users": None if principal.users is None else sorted(principal.users),
        "agents": None if principal.agents is None else sorted(principal.agents),
    }
