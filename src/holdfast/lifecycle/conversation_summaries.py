"""Summaries of conversations by the summarizer that the settings name.

While messages come, a conversation's summary is carried on without network or model (``sessions.roll``): no message
waits for a service. Conversations that have been idle for a while are summarized here, with the daily job or when that
is asked for. One that goes on afterwards carries that summary on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from holdfast.core.errors import SummarizerError
from holdfast.core.records import Scope
from holdfast.core.times import SECOND
from holdfast.lifecycle.sessions import FULL, SHORT
from holdfast.ports import History, Session, Summarizer

_log = logging.getLogger("holdfast.sessions")
#: A conversation is left alone until nothing was said in it for so long: its short-term window is over then.
IDLE: Final = 3_600 * SECOND
#: So many of the last messages are read; of those before them, the summary so far stands in.
_MOST_MESSAGES: Final = 1_000
_PAGE: Final = 100


class ConversationSummaries:
    """Summarizes the conversations of one tenant."""

    def __init__(self, history: History, summarizer: Summarizer, tenant: str, now: Callable[[], int]) -> None:
        self._history = history
        self._summarizer = summarizer
        self._tenant = tenant
        self._now = now

    def refresh(self, limit: int) -> int:
        """Summarize conversations that have changed and are idle now, ``limit`` of them at most; how many.

        Where the summarizer fails, the others wait for the next time: what there is goes on as their summary.
        """
        done = after = 0
        while done < limit:
            now = self._now()
            found, after = self._history.to_summarize(
                self._tenant, idle_since=now - IDLE, now=now, after=after, limit=_PAGE
            )
            for session in found[: limit - done]:
                try:
                    done += self._summarize(session)
                except SummarizerError as problem:
                    _log.warning("conversations keep the summaries they have: %s", problem)
                    return done
            if len(found) < _PAGE:
                break
        return done

    def _summarize(self, session: Session) -> bool:
        """Summarize one; whether its summary is another now. One that has changed meanwhile is left for later."""
        tenant, user_id = session.subject.split("/", 1)
        scope = Scope(tenant, user_id, session.agent_id, session.session_id)
        messages = self._history.messages(scope, now=self._now(), limit=_MOST_MESSAGES)
        if not messages:  # out of sight, with its agent
            return False
        texts = [f"{message.role}: {message.content}" for message in messages]
        if session.messages > len(messages):
            texts.insert(0, session.summary)
        whole = sum(map(len, texts)) <= FULL  # then the summary is what was said, word for word
        summary = session.summary if whole else self._summarizer.summarize(texts, max_chars=SHORT)
        return self._history.save_summary(session, summary) and not whole
