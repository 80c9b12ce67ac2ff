"""The schedule: what runs when, how the last runs went, and running a job now."""

from __future__ import annotations

from typing import Any, Final

from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Entry, Fields, Section, Undo
from holdfast.edges.console.visit import Visit

schedule = Section("Schedule")
_PATH: Final = "/schedule"
#: What is told of a run's result.
_TOLD: Final = {
    "archive": "archived",
    "recycle": "to the recycle bin",
    "delete": "deleted for good",
    "memories": "memories",
    "users": "users",
    "held": "kept by holds",
    "stale": "changed meanwhile",
    "audit_entries_cut": "old audit entries cut",
}
_ONE: Final = {"memories": "memory", "users": "user", "audit_entries_cut": "old audit entry cut"}


@schedule.page(_PATH, calls=["list_jobs", "list_runs"])
def show_schedule(visit: Visit) -> dict[str, Any]:
    """Every job: when it runs next, what its last run did, and what is wrong."""
    runs = visit.call("list_runs", limit=20)["items"]
    return {**visit.call("list_jobs"), "runs": runs, "sum_up": sum_up}


def sum_up(result: dict[str, Any]) -> str:
    """What a run did, in a few words."""
    counts = {**result, **result.get("counts", {})}
    counts = {name: counts[name] for name in _TOLD if counts.get(name)}
    done = [f"{count:,} {_ONE.get(name, _TOLD[name]) if count == 1 else _TOLD[name]}" for name, count in counts.items()]
    return ", ".join(done) or "nothing was due"


def _describe_run(fields: Fields, result: dict[str, Any]) -> str:
    return f"{fields['name']} ran: {sum_up(result['result'])}"


@schedule.action(
    "run_job",
    "Run a job now",
    "Run it",
    back=lambda _fields: link(_PATH),
    describe=_describe_run,
    may_call=["list_jobs"],
)
def preview_run(visit: Visit, fields: Fields) -> Effect:
    """Say what the job does."""
    job = next((one for one in visit.call("list_jobs")["items"] if one["name"] == fields["name"]), None)
    return Effect(
        [
            job["meaning"] if job else f"there is no job {fields['name']}",
            "it runs now; when it runs by itself stays as it is. What a sweep deletes for good cannot be brought back",
        ]
    )


@schedule.action(
    "set_job",
    "Change when a job runs",
    "Change it",
    entries=(
        Entry("cron", "When", hint="Five fields of cron, such as 30 4 * * *; or: default.", needed=False),
        Entry("timezone", "Time zone", hint="Such as Europe/Berlin; or: default.", needed=False),
        Entry("enabled", "Whether it runs", "choice", choices=("true", "false"), needed=False),
    ),
    back=lambda _fields: link(_PATH),
    describe=lambda fields, _result: f"{fields['name']} is changed",
    undo=lambda fields, _result: Undo(
        "set_job", {"name": fields["name"], "cron": "default", "timezone": "default"}, "Default"
    ),
)
def preview_change(_visit: Visit, fields: Fields) -> Effect | None:
    """Say what would change."""
    changes = [f"{name} becomes {fields[name]}" for name in ("cron", "timezone", "enabled") if name in fields]
    return Effect([f"of {fields['name']}, {' and '.join(changes)}"]) if changes else None
