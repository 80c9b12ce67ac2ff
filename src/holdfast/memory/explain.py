"""What can be said of a memory: its rules, what happens to it next, and how long each kind is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from holdfast.core.decisions import Hold, Life, RecordFacts, reason_for
from holdfast.core.errors import NotFoundError, quote
from holdfast.core.records import (
    BIN,
    HISTORY,
    LIVE,
    OWN,
    TYPES,
    Archive,
    Kind,
    MemoryType,
    Message,
    Record,
    Scope,
    State,
    Subject,
    Terms,
)
from holdfast.core.rules import Labels, Rule, labels_of, terms_to_dict
from holdfast.core.texts import hash_text
from holdfast.core.values import DAY, SECOND, describe_duration, is_id, iso, to_json
from holdfast.lifecycle.explanation import (
    Links,
    explain_gone,
    explain_message,
    explain_record,
    explain_waiting,
    list_coming,
    list_steps,
)
from holdfast.lifecycle.holds import as_held_message, hold_to_dict
from holdfast.lifecycle.policies import life_to_dict
from holdfast.lifecycle.previews import rule_to_dict
from holdfast.memory.corrections import version_result
from holdfast.memory.records import memory_result
from holdfast.memory.services import Services
from holdfast.memory.short_term import short_term_life
from holdfast.ports.conversations import Turn
from holdfast.results.lifecycle import ExplainResult, HoldResult, KindRulesResult, LifeStoryResult, RulesResult

_SHORT_TERM: Final = MemoryType.SHORT_TERM
#: So many exceptions are named for each kind.
_MOST_EXCEPTIONS: Final = 20
_BIN_DAYS: Final = BIN // DAY


def describe_rules(services: Services, scope: Scope) -> RulesResult:
    """The rules in force for what one agent keeps of one user in one session: a row for each kind and one for the
    conversation (``history``), the time in the recycle bin, the holds that name them, and a summary in sentences.
    """
    scope.check_one()
    rules = services.rules.rules(scope.tenant)
    rows = [_describe(services, scope, kind, rules) for kind in (*(known.value for known in TYPES), HISTORY)]
    named = [hold for hold in services.holds.list(scope.tenant) if _names(hold, scope)]
    removed = services.removed_agent(scope)
    said = [f"{row['memory_type']}: {row['rule']}" for row in rows]
    if removed is not None:
        own = ", ".join(kind.value for kind in OWN)
        said.append(
            f"The agent {scope.agent_id!r} was removed on {iso(removed.moved_at or 0)}: what is its own ({own}, "
            f"{HISTORY}) is out of sight and follows it."
        )
    if named:
        said.append(f"Holds keep, whatever these rules say: {'; '.join(map(_describe_hold, named))}.")
    return {
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "summary": "\n".join(said),
        "recycle_bin_days": _BIN_DAYS,
        "kinds": rows,
        "holds": [cast("HoldResult", hold_to_dict(hold)) for hold in named],
    }


def _describe(services: Services, scope: Scope, kind: str, rules: Sequence[Rule]) -> KindRulesResult:
    known = TYPES[MemoryType(kind)] if kind in TYPES else None
    usage = services.records.usage(scope.subject, known) if known is not None and known.durable else None
    quota = usage or known
    life = None if kind == MemoryType.WORKING else services.rules.life(kind, scope)
    exceptions = [rule for rule in rules if life is not None and _is_exception(rule, kind, scope)]
    sentences = [_describe_life(kind, life), *_describe_selections(services, scope, kind, life, rules)]
    if exceptions:
        names = sorted({rule.name for rule in exceptions})
        sentences.append(f"Some of it goes by more specific rules instead: {'; '.join(names)}.")
    delete = None if life is None else life.delete_after
    gone = None if delete is None else delete + (0 if kind == _SHORT_TERM else BIN)
    row = {
        "memory_type": kind,
        "rule": " ".join(sentences),
        **(dict.fromkeys(_LIFE) if life is None else life_to_dict(life)),
        "gone_after_days": terms_to_dict(Terms(delete_after=gone)).get("delete_after_days"),
        "ttl_seconds": _in_seconds(short_term_life(life)) if life is not None and kind == _SHORT_TERM else None,
        "max_memories": None if quota is None else quota.max_memories,
        "max_bytes": None if quota is None else quota.max_bytes,
        "quota_remaining": None if usage is None else usage.remaining,
        "exceptions": [rule_to_dict(rule) for rule in exceptions[:_MOST_EXCEPTIONS]],
    }
    return cast("KindRulesResult", row)


def _describe_selections(
    services: Services, scope: Scope, kind: str, life: Life | None, rules: Sequence[Rule]
) -> Iterator[str]:
    """What becomes of memories that a domain's policy selects by the source type in their metadata."""
    chosen = [rule.selection for rule in rules if rule.selection is not None and _speaks_of(rule, kind)]
    for source in sorted({source for selection in chosen for source in selection.source_types}):
        other = services.rules.life(kind, scope, labels=Labels(source))
        if life is not None and other.delete_after != life.delete_after:
            yield f"With source_type {source} in its metadata: {_describe_life(kind, other)}"


def _in_seconds(duration: int) -> float:
    return duration / SECOND if duration % SECOND else duration // SECOND


_LIFE: Final = tuple(life_to_dict(Life(None, None, None, "", "", None)))


def _describe_life(kind: str, life: Life | None) -> str:
    """How long something of a kind lives, in sentences."""
    if life is None:
        return "Kept in the agent's own process until its task ends; no rule and no recycle bin is for it."
    if kind == _SHORT_TERM:
        window = describe_duration(short_term_life(life))
        return (
            f"Out of the session's window {window} after the session's last message, by {life.delete_by}; it is in no "
            f"recycle bin. The conversation is kept beside it: see {HISTORY}."
        )
    parts = []
    if life.archive_after is not None:
        cold = kind in TYPES and TYPES[MemoryType(kind)].archive is Archive.COLD
        how = "Archived to cold storage" if cold else "Cut down to its summary, which can still be found,"
        parts.append(f"{how} {reason_for(kind, life, State.ARCHIVED)}.")
    if life.delete_after is not None:
        when = reason_for(kind, life, State.RECYCLED)
        parts.append(f"Moved to the recycle bin {when}, and deleted for good {_BIN_DAYS} days after that.")
    else:
        parts.append(f"Never deleted by a rule ({life.keep_by or life.delete_by}); it stays until someone deletes it.")
    return " ".join(parts)


def _is_exception(rule: Rule, kind: str, scope: Scope) -> bool:
    """Whether a rule is for some of the memories of a kind here, and not for all of them. One that names a session or
    a memory is told of only where it names this user: ids of others are not for everyone.
    """
    narrower = rule.memory_id is not None or rule.session_id not in (None, scope.session_id)
    ours = rule.user_id == scope.user_id and rule.agent_id in (None, scope.agent_id)
    return _speaks_of(rule, kind) and rule.selection is None and narrower and ours


def _speaks_of(rule: Rule, kind: str) -> bool:
    """Whether a rule is in force and says something of a kind."""
    return rule.version > 0 and rule.terms != Terms() and rule.governs(kind)


def _names(hold: Hold, scope: Scope) -> bool:
    """Whether a hold names this user, or (whoever the user is) this agent or this session, and nobody else."""
    ours = hold.user_id == scope.user_id
    anyone = hold.user_id is None and hold.memory_id is None and hold.tag is None
    of_user = ours or (anyone and (hold.agent_id is not None or hold.session_id is not None))
    here = ours or hold.session_id in (None, scope.session_id)
    return of_user and here and hold.agent_id in (None, scope.agent_id)


def _describe_hold(hold: Hold) -> str:
    named = {part: getattr(hold, f"{part}_id") for part in ("user", "agent", "session", "memory")}
    parts = [f"{part} {value}" for part, value in named.items() if value is not None]
    tagged = [] if hold.tag is None else [f"what is tagged {hold.tag}"]
    return f"{', '.join([*parts, *tagged])} ({hold.reason})"


def explain(services: Services, tenant: str, memory_id: str, subject: Subject | None) -> ExplainResult:
    """What can be said of a memory, or of one that is gone; of whomever it is, if no subject is named."""
    if not is_id(memory_id):
        raise NotFoundError(f"{quote(memory_id)} is not the id of a memory")
    now = services.now()
    found = services.records.find(tenant, memory_id) if subject is None else services.records.get(subject, memory_id)
    if found is not None:
        entries = services.audit.of_item(found.scope.subject, memory_id)
        about = (found.kind.value, found.scope, found.id)
        life = services.rules.life(*about, labels=labels_of(found.metadata), ttl=found.ttl)
        derived = _live_derived(services, found.scope.subject, memory_id)
        agent = services.removed_agent(found.scope) if "agent" in TYPES[found.kind].scope else None
        said = explain_record(found, life, services.holds.list(tenant), Links(entries, derived, agent), now)
        return cast("ExplainResult", explain_waiting(said, services.trust.look, now))
    if subject is None:
        raise NotFoundError(
            f"no memory {memory_id} is there; of a message, or of one that is gone, say whose it is with user_id"
        )
    turn = services.history.find_message(subject, memory_id)
    if turn is not None:
        return explain_turn(services, turn)
    entries = services.audit.of_item(subject, memory_id)
    if not entries:
        raise NotFoundError(f"no memory {memory_id} is there, and none of this id was ever removed from this user")
    gone = explain_gone(memory_id, entries)
    if gone is None:
        last = entries[-1]
        raise NotFoundError(
            f"no memory {memory_id} is there; the last that the audit chain says of it is {last.action!r} on "
            f"{iso(last.at)}, and of a message that went with its whole session it says no more"
        )
    return cast("ExplainResult", gone)


def describe_life(services: Services, subject: Subject, memory_id: str) -> LifeStoryResult:
    """All that is known of a memory: what it says and said, where it comes from and what was made of it, what happened
    to it and what is to come; of one that is gone, what the audit chain says.
    """
    said = explain(services, subject.tenant, memory_id, subject)
    record, entries = services.records.get(subject, memory_id), services.audit.of_item(subject, memory_id)
    if record is None:
        steps = list_steps(None, (), entries, ())
        return _life_story(said, None, [], [], [], steps, [])
    now, known = services.now(), services.versions.ended(subject, memory_id, now=services.now())
    versions = services.keep_out.leave_out(subject, known) if known else []
    hashed = hash_text(record.content)
    is_kept_out = record.state not in LIVE and hashed in services.kept_out.find(subject, [hashed])
    is_over = record.state in LIVE and record.hidden_from is not None and record.hidden_from <= now
    readable = not is_over and not is_kept_out
    life = services.rules.life(
        record.kind.value, record.scope, record.id, labels=labels_of(record.metadata), ttl=record.ttl
    )
    coming, first = list_coming(record, life, now), said["next"]
    if first is not None:  # a record whose agent was removed follows that, whatever its rules say
        coming = [dict(first), *(coming[1:] if coming and coming[0]["at"] == first["at"] else ())]
    return _life_story(
        said,
        _describe_record(record, now) if readable else None,
        [version_result(record, one) for one in versions] if readable else [],
        [_relation(one.facts) for one in services.provenance.derived(subject, [memory_id])],
        _find_sources(services, subject, record),
        list_steps(record, known, entries, services.holds.list(subject.tenant, released=True)),
        coming,
    )


def _life_story(said: ExplainResult, record: Any, *parts: Any) -> LifeStoryResult:
    names = ("versions", "derived", "sources", "steps", "coming")
    story = {**said, "memory": record, **dict(zip(names, parts, strict=True))}
    for name in ("history", "derived_from"):
        story.pop(name, None)
    return cast("LifeStoryResult", story)


def _describe_record(record: Record, now: int) -> dict[str, Any]:
    size = len(record.content.encode()) + (0 if record.body is None else len(to_json(record.body).encode()))
    return {**memory_result(record, now), "bytes": size, "body": record.body}


def _find_sources(services: Services, subject: Subject, record: Record) -> list[dict[str, Any]]:
    """What a record was derived from, be it there or not."""
    ids = list(record.derived_from)
    found = services.records.entries(subject, ids) if ids else {}
    return [
        {
            "memory_id": one,
            "memory_type": found[one].record.kind.value if one in found else None,
            "state": found[one].record.state.value if one in found else None,
        }
        for one in ids
    ]


def _relation(facts: RecordFacts) -> dict[str, Any]:
    return {"memory_id": facts.id, "memory_type": facts.kind, "state": facts.state.value}


def explain_turn(services: Services, turn: Turn) -> ExplainResult:
    """What can be said of a message of the conversation history."""
    now = services.now()
    session, message = turn.session, turn.message
    tenant, user_id = session.subject.tenant, session.subject.user_id
    scope = Scope(tenant, user_id, session.agent_id, session.session_id)
    holds = [hold for hold in services.holds.list(tenant) if hold.covers(as_held_message(turn))]
    if not holds and turn.purge_at is None:  # a hold on another message keeps all of the session
        hold = services.history.hold_on(session.subject, session.id)
        holds = [] if hold is None else [hold]
    entries = services.audit.of_item(session.subject, message.id)
    derived = _live_derived(services, session.subject, message.id)
    life = services.rules.life(HISTORY, scope, session.id)
    said = explain_message(turn, life, holds, Links(entries, derived, services.removed_agent(scope)), now)
    return cast("ExplainResult", explain_waiting(said, services.trust.look, now))


def _live_derived(services: Services, subject: Subject, memory_id: str) -> list[str]:
    """What is live and says that it was derived from a memory or a message."""
    found = services.provenance.derived(subject, [memory_id])
    return [written.facts.id for written in found if written.facts.state in LIVE]


def explain_item(services: Services, subject: Subject, kind: Kind, item: Message, ttl: int | None) -> ExplainResult:
    """What can be said of a working note, or of a message in the short-term window."""
    turn = services.history.find_message(subject, item.id)
    if turn is not None:
        said = explain_turn(services, turn)
        leaves = f"It leaves short-term memory {ttl} seconds from now, unless a message comes."
        return {**said, "summary": f"{said['summary']} {leaves}"}
    ends = "its task ends" if kind.name is MemoryType.WORKING else f"{ttl} seconds from now, unless a message comes"
    return {
        "memory_id": item.id,
        "memory_type": kind.name.value,
        "state": State.ACTIVE.value,
        "is_visible": True,
        "is_archived": False,
        "created_at": iso(item.created_at),
        "next": {"action": "delete", "at": None, "due": False, "rule": f"the rule for {kind.name}", "reason": ends},
        "protected_by": [],
        "summary": f"This {kind.name} memory is gone when {ends}." if ttl is None else f"It is gone {ends}.",
    }
