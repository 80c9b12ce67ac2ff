"""The stops of the tour at which a year goes by: what it does to a user's memories, what a backup brings back, and what
an erasure leaves nothing of.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.cli.render import counted

if TYPE_CHECKING:
    from holdfast.edges.cli.tour import Tour

_USER: Final = "carol"
_MONTH: Final = 30
_FACT: Final = "Carol's passport has the number X4711"


def a_year(tour: Tour) -> None:
    """A memory of each kind, month after month, until a year is over."""
    stage, holdfast = tour.stage, tour.holdfast
    memory = holdfast.manager(_USER, "travel_agent", "sess_9")
    memory.add(_FACT, "long_term")
    memory.add("Prefers a window seat", "persona")
    memory.add({"booking": "VIE-102", "nights": 2}, "structured")
    memory.episodic.record_episode("Book a hotel in Vienna", ["Compared three", "Booked the one by the park"])
    memory.short_term.add_message("user", "A quiet room, please")
    stage.say("Carol leaves a memory of each kind and does not come back. The schedule runs every night:")
    stage.code("holdfast.schedule.run_due()")
    rows = []
    for month in range(14):
        done = _pass_month(tour) if month else Counter[str]()
        kept = [result for kind in ("long_term", "persona", "structured", "episodic") for result in _all(memory, kind)]
        cold = sum(1 for result in kept if result["is_archived"])
        said = ", ".join(f"{count:,} {what}" for what, count in done.items()) or "-"
        rows.append((f"{month * _MONTH:,}", "█" * len(kept), f"{len(kept):,} ({cold:,} archived)", said))
    stage.rows(("day>", "", "her memories", "what was done that month, to anyone"), rows)
    found = memory.retrieve("passport", include_archived=True, top_k=1)
    if found:
        stage.say(f"Cold is not gone: {found[0]['content']!r} is still found when asked for, and can be brought back.")


def backups(tour: Tour) -> None:
    """What the nights have left, tried."""
    stage, holdfast = tour.stage, tour.holdfast
    stage.say("Backups were made on the way; what had not changed was not copied again. One counts as good only")
    stage.say("after it was restored on trial and compared:")
    made = holdfast.backups.create()
    stage.code(f'holdfast.backups.verify("{made.id[:8]}…", restore=True)')
    check = holdfast.backups.verify(made.id, restore=True)
    said = f"{counted(check.memories, 'memory', 'memories')} of {counted(check.users, 'user')}"
    same = "the same as what it holds" if check else f"NOT the same: {check.problems[0]}"
    stage.say(f"{said}, restored in {check.seconds:.2f} s: {same}.")


def erasure(tour: Tour) -> None:
    """Nothing is left, anywhere, and that can be shown."""
    stage, holdfast = tour.stage, tour.holdfast
    latest = holdfast.backups.list()[-1]
    stage.code(f'holdfast.erase_user("{_USER}")')
    erased = holdfast.erase_user(_USER)
    found = [place for place in erased.places if place.found]
    rows = [(place.name, f"{place.found:,}", f"{place.removed:,}", f"{place.left:,}") for place in found]
    stage.rows(("place", "found>", "removed>", "left>"), rows)
    check = holdfast.backups.verify(latest.id)
    gone = counted(check.erased, "user")
    stage.say(f"Her key is destroyed: {gone} of yesterday's backup cannot be read any more, by anyone.")
    certificate: dict[str, Any] = erased.certificate or {}
    verdict = holdfast.certificates.verify(certificate)
    stage.say(f"The certificate names her by pseudonym, is signed, and is {'genuine' if verdict else 'NOT genuine'}.")
    chain = holdfast.audit.verify()
    stage.say(f"The audit chain has {chain.entries:,} entries and is {'whole' if chain else 'BROKEN'}.")


def _pass_month(tour: Tour) -> Counter[str]:
    """Let a month pass; what its nights did."""
    done: Counter[str] = Counter()
    words = {"archive": "archived", "recycle": "recycled", "delete": "deleted"}
    tour.clock.advance(_MONTH)
    for run in tour.holdfast.schedule.run_due():
        for action, count in ((run.get("result") or {}).get("counts") or {}).items():
            done[words.get(action, action)] += count
    return +done


def _all(memory: Any, kind: str) -> list[dict[str, Any]]:
    return list(memory.list_memories(kind, limit=10, include_archived=True))
