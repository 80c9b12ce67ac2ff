"""Conversations as people know them: listed, read, removed and summarized."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from holdfast.core import errors
from holdfast.core.errors import quote
from holdfast.core.records import HISTORY, Cause, Message, Outcome, Scope, State, Subject
from holdfast.core.values import SECOND, check_count, check_id, iso
from holdfast.lifecycle.bulk_delete import recycle_move
from holdfast.recall.summaries import open_summarizer

if TYPE_CHECKING:
    from holdfast.ports.conversations import Session
    from holdfast.ports.coordination import Lease
    from holdfast.ports.feed import Summarizer
    from holdfast.ports.stores import Tenant
    from holdfast.results.lifecycle import ExplainResult
    from holdfast.results.memory import MessageResult, SessionResult

#: A summary that has grown over so many characters is cut down to so many.
FULL: Final = 1_200
SHORT: Final = 600
#: Of what is new, the last part is looked at, and of one message the first.
_MOST: Final = 12_000
_MOST_OF_ONE: Final = 4_000
_MOST_JSON: Final = 100_000
#: Words without their sentences, at the end of a summary: they would crowd out the sentences of the next one.
_WORDS: Final = "Also: "
_TRIES: Final = 16


@dataclass(eq=False, repr=False)
class Sessions:
    """``holdfast.sessions``: conversations, kept beside the short-term window."""

    tenant: Tenant

    def history(
        self, agent_id: str, session_id: str | None = None, *, user_id: str | None = None, limit: int | None = None
    ) -> list[MessageResult]:
        """Every message of a session, in order; with ``limit``, its last ones. Where users share a name, say whose."""
        if limit is not None:
            check_count(limit, "limit", most=10**9)
        now = self.tenant.now()
        scope = self._whose(agent_id, session_id, user_id, now)
        found = [] if scope is None else self.tenant.history.messages(scope, now=now, limit=limit)
        return [message_to_dict(message) for message in found]

    def remove(self, agent_id: str, session_id: str | None = None, *, user_id: str | None = None) -> int:
        """Send a session to the recycle bin, with what belongs to it elsewhere, and its short-term window gone for
        good; how many messages it had.
        """
        from holdfast.lifecycle.session_parts import SessionParts

        now, parts = self.tenant.now(), SessionParts(self.tenant)
        check_id(agent_id, "agent_id")
        parts.refresh(agent_id=agent_id, session_id=session_id or "")
        scope = self._whose(agent_id, session_id, user_id, now)
        for _ in range(_TRIES):
            session = None if scope is None else self.tenant.history.find(scope, now=now)
            if scope is None or session is None:
                raise _unknown(agent_id, session_id)
            move = recycle_move(session, "removed by the user", Cause.USER, now)
            ((outcome,),) = self.tenant.history.transition_all([(session.subject, [move])], now=now)
            if outcome is Outcome.DONE and parts.follow_session(session.subject, session.id) is Outcome.DONE:
                return session.messages
            if outcome is Outcome.HELD:
                raise errors.HeldError(
                    f"session {session_id!r} with agent {agent_id!r} is on hold and was not removed; "
                    "see the holds with: holdfast hold list"
                )
        raise errors.StaleError(f"session {session_id!r} with agent {agent_id!r} keeps changing; try again")

    def explain(self, agent_id: str, session_id: str | None = None, *, user_id: str | None = None) -> ExplainResult:
        """Which rules a session lives under, with all that belongs to it; what happens to it next and when, and what
        protects it.
        """
        from holdfast.lifecycle.explanation import Links, explain_session
        from holdfast.lifecycle.session_parts import SessionParts

        now, tenant = self.tenant.now(), self.tenant
        check_id(agent_id, "agent_id")
        SessionParts(tenant).refresh(agent_id=agent_id, session_id=session_id or "")
        scope = self._whose(agent_id, session_id, user_id, now)
        session = None if scope is None else tenant.history.find(scope, now=now)
        if scope is None or session is None:
            raise _unknown(agent_id, session_id)
        hold = tenant.history.hold_on(session.subject, session.id)
        links = Links(tenant.audit.of_item(session.subject, session.id), [], None)
        life = tenant.rules.life(HISTORY, scope, session.id)
        return cast("ExplainResult", explain_session(session, life, [] if hold is None else [hold], links, now))

    def list(self, user_id: str, agent_id: str | None = None) -> list[SessionResult]:
        """The sessions of a user, the latest active first."""
        agent = None if agent_id is None else check_id(agent_id, "agent_id")
        subject = Subject.check(self.tenant.name, user_id)
        return [_describe(session) for session in self.tenant.history.sessions(subject, agent, now=self.tenant.now())]

    def find(self, scope: Scope) -> Session | None:
        """The session of a scope; ``None`` if it is not to be seen, and nothing that belongs to it either."""
        return self.tenant.history.find(scope, now=self.tenant.now())

    def touch(self, scope: Scope) -> Session:
        """The session of a scope, active now; begun if there is none."""
        return self.tenant.history.touch(scope, now=self.tenant.now())

    def erase(self, subject: Subject, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        """Remove what a session that is being deleted holds, what belongs to it first; how many things are left."""
        session = self.tenant.history.get(subject, item_id)
        if session is None:
            return 0
        if session.state is not State.DELETING:
            raise errors.ConflictError(
                f"session {item_id} is {session.state}, not being deleted; claim it before erasing it"
            )
        from holdfast.lifecycle.session_parts import SessionParts

        SessionParts(self.tenant).purge(session)
        return self.tenant.history.erase(subject, item_id, limit=limit, lease=lease)

    def _whose(self, agent_id: str, session_id: str | None, user_id: str | None, now: int) -> Scope | None:
        """The scope that is meant; ``None`` if nobody has such a session."""
        asked = Scope.check(self.tenant.name, "anybody" if user_id is None else user_id, agent_id, session_id)
        if user_id is not None:
            return asked
        users = self.tenant.history.owners(self.tenant.name, agent_id, session_id, now=now)
        if len(users) > 1:
            raise errors.InvalidInputError(
                f"{len(users)} users have a session {quote(session_id)} with agent {agent_id!r}; say whose is meant",
                needs=("user_id",),
            )
        return Scope(self.tenant.name, users[0], agent_id, session_id) if users else None


def _unknown(agent_id: str, session_id: str | None) -> errors.NotFoundError:
    return errors.NotFoundError(
        f"agent {agent_id!r} has no session {session_id!r}; see holdfast.sessions.list(user_id)"
    )


def _describe(session: Session) -> SessionResult:
    """A session as callers see it."""
    return {
        "agent_id": session.agent_id,
        "session_id": session.session_id,
        "summary": session.summary,
        "created_at": iso(session.created_at),
        "updated_on": iso(session.updated_at),
        "messages": session.messages,
        "bytes": session.size,
        "part_bytes": session.part_size,
        "expires_at": None if session.hidden_from is None else iso(session.hidden_from),
    }


def roll(summary: str, messages: Sequence[Message]) -> str:
    """The summary of a conversation, carried on by its new messages: their text while it is short, and now and then,
    when it no longer is, the telling sentences of all of it. Uses neither network nor model, since a message waits for
    it, whatever summarizer the settings name: that one is asked about conversations that are idle
    (``conversation_summaries``).
    """
    lines: list[str] = []
    room = _MOST
    for message in reversed(messages):
        if room <= 0:
            break
        if words := _words(message.content):
            lines.append(f"{message.role}: {words[:_MOST_OF_ONE]}"[:room])
            room -= len(lines[-1])
    before = summary.splitlines()
    whole = "\n".join([*before, *reversed(lines)])
    if len(whole) <= FULL:
        return whole
    sentences = [line for line in before if not line.startswith(_WORDS)]
    return _summarizer().summarize([*sentences, *reversed(lines)], max_chars=SHORT)


def _words(content: str) -> str:
    """What a message says in words: of a JSON object, as agent kits write them, the texts that are in it."""
    if content[:1] != "{" or len(content) > _MOST_JSON:
        return content
    try:
        words = " ".join(_find_texts(json.loads(content)))
    except (ValueError, RecursionError):
        return content
    return words.encode(errors="replace").decode().replace("\0", "")  # JSON can say what text cannot hold


def _find_texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                yield from _find_texts(inner)
            elif isinstance(inner, str) and name in {"text", "content"}:
                yield inner
    elif isinstance(value, list):
        for inner in value:
            yield from _find_texts(inner)


@cache
def _summarizer() -> Summarizer:
    return open_summarizer("extractive")


def message_to_dict(message: Message) -> MessageResult:
    """A message as callers see it."""
    result: MessageResult = {
        "message_id": message.id,
        "role": message.role,
        "content": message.content,
        "timestamp": iso(message.created_at),
        "metadata": message.metadata,
    }
    if message.external_id is not None:
        result["external_id"] = message.external_id
    return result


_log = logging.getLogger("holdfast.sessions")
#: A conversation is left alone until nothing was said in it for so long: its short-term window is over then.
IDLE: Final = 3_600 * SECOND
#: So many of the last messages are read; of those before them, the summary so far stands in.
_MOST_MESSAGES: Final = 1_000
_PAGE: Final = 100


@dataclass(eq=False, repr=False)
class ConversationSummaries:
    """Summarizes the conversations of one tenant."""

    tenant: Tenant
    summarizer: Summarizer

    def refresh(self, limit: int) -> int:
        """Summarize conversations that have changed and are idle now, ``limit`` of them at most; how many.

        Where the summarizer fails, the others wait for the next time: what there is goes on as their summary.
        """
        done = after = 0
        while done < limit:
            now = self.tenant.now()
            found, after = self.tenant.history.to_summarize(
                self.tenant.name, idle_since=now - IDLE, now=now, after=after, limit=_PAGE
            )
            for session in found[: limit - done]:
                try:
                    done += self._summarize(session)
                except errors.SummarizerError as problem:
                    _log.warning("conversations keep the summaries they have: %s", problem)
                    return done
            if len(found) < _PAGE:
                break
        return done

    def _summarize(self, session: Session) -> bool:
        """Summarize one; whether its summary is another now. One that has changed meanwhile is left for later."""
        tenant, user_id = session.subject.tenant, session.subject.user_id
        scope = Scope(tenant, user_id, session.agent_id, session.session_id)
        messages = self.tenant.history.messages(scope, now=self.tenant.now(), limit=_MOST_MESSAGES)
        if not messages:  # out of sight, with its agent
            return False
        texts = [f"{message.role}: {words}" for message in messages if (words := _words(message.content))]
        if session.messages > len(messages):
            texts.insert(0, session.summary)
        whole = sum(map(len, texts)) <= FULL  # then the summary is what was said, word for word
        summary = session.summary if whole else self.summarizer.summarize(texts, max_chars=SHORT)
        return self.tenant.history.save_summary(session, summary) and not whole
