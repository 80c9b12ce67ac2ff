"""What the schedule does about backups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.errors import ObjectDamagedError
from holdfast.privacy.backups.service import DAILY, WEEKLY, Backup, Backups


def backup_runners(backups: Backups) -> dict[str, Callable[[], dict[str, Any]]]:
    """What each of the jobs for backups does."""

    def daily() -> dict[str, Any]:
        made = backups.create(DAILY)
        return {**_told(made), **backups.rotate().as_dict()}

    def weekly() -> dict[str, Any]:
        made = backups.create(WEEKLY)
        return _told(made)

    def trial() -> dict[str, Any]:
        checks = [backups.verify(backup_id, restore=True) for backup_id in backups.latest()]
        wrong = [f"backup {check.id}: {check.problems[0]}" for check in checks if not check]
        if wrong:
            raise ObjectDamagedError(f"{'; '.join(wrong)}; make another with: holdfast backup create --full")
        return {"backups": [check.id for check in checks], "memories": sum(check.memories for check in checks)}

    return {"backup": daily, "backup_persona": weekly, "backup_trial": trial}


def _told(made: Backup) -> dict[str, Any]:
    said: dict[str, Any] = {"backup": made.id, "memories": made.memories, "written": made.written}
    return {**said, "left_out": list(made.left_out)} if made.left_out else said
