"""Backups: their state, what each holds, whether it was tried; making, verifying and trying one."""

from __future__ import annotations

from typing import Any, Final

from holdfast.edges.console.formats import link, number, size, when
from holdfast.edges.console.table import Effect, Entry, Fields, Section
from holdfast.edges.console.visit import Visit

backups = Section("Backups")
_PATH: Final = "/backups"


@backups.page(_PATH, calls=["list_backups"])
def show_backups(visit: Visit) -> dict[str, Any]:
    """All backups, the newest first; and the last one that is known to be good."""
    found = visit.call("list_backups", limit=1_000)["items"][::-1]
    last_good = next((one for one in found if one["good"]), None)
    return {"found": found, "last_good": last_good}


@backups.action(
    "create_backup",
    "Make a backup",
    "Make it",
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, result: (
        f"backup {result['id']} holds {result['memories']:,} memories of {result['users']:,} users"
    ),
    entries=(Entry("full", "Copy what has not changed since the backup before, too", "check", needed=False),),
)
def preview_creation(_visit: Visit, fields: Fields) -> Effect:
    """Say what is made."""
    how = "copies all of it" if fields.get("full") else "refers to what has not changed since the backup before"
    return Effect([f"a backup of the whole store as it is now; it {how}", "others go on writing meanwhile"])


def _describe_check(fields: Fields, result: dict[str, Any]) -> str:
    if not result["good"]:
        return f"backup {fields['backup_id']} is NOT good: {result['problems'][0]}"
    tried = "restored on trial and compared" if fields.get("restore") else "read"
    return f"backup {fields['backup_id']} is good: {result['memories']:,} memories were {tried}"


@backups.action(
    "verify_backup",
    "Verify a backup",
    "Verify it",
    back=lambda _fields: link(_PATH),
    describe=_describe_check,
    is_question=True,
)
def preview_check(_visit: Visit, fields: Fields) -> Effect:
    """Say what is looked at."""
    return Effect([f"all of backup {fields['backup_id']} is read; nothing else is changed"])


@backups.action(
    "restore_backup",
    "Bring back what a backup holds",
    "Bring it back",
    entries=(
        Entry("user_id", "User", hint="Everyone, if empty.", needed=False),
        Entry("memory_id", "One memory of that user", needed=False),
        Entry("overwrite", "What is there becomes what it was", "check", needed=False),
    ),
    may_call=["get_backup"],
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, result: f"brought back: {result['memories']:,} memories",
    is_danger=True,
)
def preview_restore(visit: Visit, fields: Fields) -> Effect:
    """What would come back."""
    backup = visit.call("get_backup", backup_id=fields["backup_id"])
    whom = f"user {fields['user_id']}" if "user_id" in fields else "everyone"
    then = (
        "memories that are there become what they were" if fields.get("overwrite") else "what is there stays as it is"
    )
    rows = [
        ("made", when(backup["created_at"])),
        ("memories in it", number(backup["memories"])),
        ("size", size(backup["bytes"])),
    ]
    return Effect(
        [f"what is missing of {whom} comes back, but nobody who was erased since", then], rows, {"confirm": "true"}
    )
