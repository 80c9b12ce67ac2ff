"""How facts follow one another: a fact that is replaced ends, it is not overwritten."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.content import same_json
from holdfast.core.records import Fact


def holds_at(fact: Fact, moment: int) -> bool:
    """Whether a fact is true at a moment."""
    return fact.since <= moment and (fact.until is None or moment < fact.until)


def succession(known: Iterable[Fact], new: Fact, *, replacing: bool) -> tuple[list[Fact], list[Fact]]:
    """What to end and what to add, so that ``new`` joins the ``known`` facts of the same source and name.

    A fact that says what is known to hold already changes nothing, or tells when it ended. With ``replacing`` there is
    one fact of a name at a time: those that hold when the new one begins end there, and one that is older than what is
    known ends where that begins. The facts to end are given with their new ``until``.
    """
    alike = [fact for fact in known if fact.source == new.source and fact.name == new.name]
    for fact in alike:
        if says_already(fact, new):
            return ([fact._replace(until=new.until)] if fact.until != new.until and fact.until is None else []), []
    if not replacing:
        return [], [new]
    ended = [fact._replace(until=new.since) for fact in alike if holds_at(fact, new.since)]
    later = [fact.since for fact in alike if fact.since > new.since]
    if later and (new.until is None or new.until > min(later)):
        new = new._replace(until=min(later))
    return ended, [new]


def says_already(fact: Fact, new: Fact) -> bool:
    """Whether a fact of the same source and name holds all the time for which a new one says the same."""
    if fact.target != new.target or not same_json(fact.value, new.value) or fact.since > new.since:
        return False
    return fact.until is None or (new.until is not None and fact.until >= new.until)
