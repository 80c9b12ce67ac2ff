"""How well episodes are found once only their summaries are left: ``python -m bench.archive [locomo10.json]``.

LoCoMo (given by path or ``HOLDFAST_LOCOMO``; CC BY-NC, so it is no part of this repository) is recorded as episodes:
one user per conversation, one episode per session with its messages, and a task that tells no session from another. The
questions of categories 1 to 4 ask for the sessions that their evidence is from. R@5 is the share of those sessions
among the first five found, averaged over questions:

- messages: the sessions of the best single messages (``query_messages``), while episodes have their messages;
- episodes: ``query_similar_episodes``, while episodes have their messages;
- archived: ``query_similar_episodes``, once they have not.

Everything goes through an engine on a store of its own.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast import Holdfast
from holdfast.core.records import Keeping, Move, Outcome, State, Subject
from holdfast.recall.passages import compact

_CUT = 5
#: So many single messages are asked for, so that they come from more than ``_CUT`` sessions.
_MESSAGES = 100


class Conversation(NamedTuple):
    """The sessions of two people, by name, and questions with the names of the sessions that answer them."""

    task: str
    sessions: dict[str, list[dict[str, str]]]
    questions: list[tuple[str, frozenset[str]]]


class Figures(NamedTuple):
    """What was measured. Recalls are R@5; the part is of the characters of the messages with their speakers."""

    sessions: int
    questions: int
    messages: float
    episodes: float
    archived: float
    summary_part: float
    record_ms: float
    """Milliseconds that recording one episode takes, at the median."""

    @property
    def before(self) -> float:
        """The better of the two ways to find a session by its messages."""
        return max(self.messages, self.episodes)

    @property
    def ratio(self) -> float:
        """What is left of the recall."""
        return self.archived / self.before

    def __str__(self) -> str:
        return (
            f"LoCoMo episodes: {self.sessions:,} sessions, {self.questions:,} questions\n"
            f"  R@{_CUT} before, by messages  {self.messages:8.3f}\n"
            f"  R@{_CUT} before, by episodes  {self.episodes:8.3f}\n"
            f"  R@{_CUT} archived             {self.archived:8.3f}\n"
            f"  archived / before         {self.ratio:8.1%}\n"
            f"  summary / text            {self.summary_part:8.1%}\n"
            f"  record_episode, ms        {self.record_ms:8.2f}"
        )


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(path: Path, folder: Path | None = None) -> Figures:
    """Record every conversation of the file, ask, archive, ask again."""
    conversations = [_conversation(sample) for sample in json.loads(path.read_text("utf-8"))]
    with tempfile.TemporaryDirectory(dir=folder) as home, Holdfast.open(home=home) as holdfast:
        outcomes = [
            _outcome(holdfast, f"user{number}", conversation) for number, conversation in enumerate(conversations)
        ]
    messages, episodes, archived = np.mean([each for outcome in outcomes for each in outcome.recalls], axis=0).tolist()
    return Figures(
        sessions=sum(len(conversation.sessions) for conversation in conversations),
        questions=sum(len(conversation.questions) for conversation in conversations),
        messages=messages,
        episodes=episodes,
        archived=archived,
        summary_part=float(np.mean([part for outcome in outcomes for part in outcome.parts])),
        record_ms=float(np.median([taken for outcome in outcomes for taken in outcome.milliseconds])),
    )


class _Outcome(NamedTuple):
    recalls: list[tuple[float, float, float]]
    """Of each question: by messages, by episodes, archived."""
    parts: list[float]
    milliseconds: list[float]


def _outcome(holdfast: Holdfast, user: str, conversation: Conversation) -> _Outcome:
    memory = holdfast.manager(user, "bench")
    names: dict[str, str] = {}
    parts, milliseconds = [], []
    for name, messages in conversation.sessions.items():
        start = time.perf_counter()
        episode = memory.episodic.record_episode(conversation.task, messages=messages)
        milliseconds.append((time.perf_counter() - start) * 1_000)
        names[episode] = name
        whole = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        parts.append(len(memory.get(episode)["content"]) / len(whole))

    def ask(search: Callable[..., Sequence[Mapping[str, Any]]], top_k: int) -> list[float]:
        return [
            _recall((names[found["episode_id"]] for found in search(text, top_k=top_k)), relevant)
            for text, relevant in conversation.questions
        ]

    by_messages = ask(memory.episodic.query_messages, _MESSAGES)
    by_episodes = ask(memory.episodic.query_similar_episodes, _CUT)
    for episode in names:
        _archive(holdfast, Subject(holdfast.tenant, user), episode)
    archived = ask(memory.episodic.query_similar_episodes, _CUT)
    return _Outcome(list(zip(by_messages, by_episodes, archived, strict=True)), parts, milliseconds)


def _recall(found: Iterable[str], relevant: frozenset[str]) -> float:
    first = list(dict.fromkeys(found))[:_CUT]
    return len(relevant.intersection(first)) / len(relevant)


def _archive(holdfast: Holdfast, subject: Subject, episode: str) -> None:
    """Leave of an episode its summary and what recall needs of that."""
    parts = holdfast.services
    record = parts.records.get(subject, episode)
    assert record is not None
    (encoding,) = parts.recall.encode([record])
    keeping = Keeping(record.content, None, record.metadata, compact(record, encoding), None)
    move = Move(record.id, record.version, record.state, State.ARCHIVED, "its time is over", keeping=keeping)
    outcomes = parts.records.transition(subject, [move], now=parts.now())
    if outcomes != [Outcome.DONE]:
        raise RuntimeError(f"episode {episode} could not be archived: {outcomes[0]}")


# --- the set ----------------------------------------------------------------------------------------------------------


def _conversation(sample: dict[str, Any]) -> Conversation:
    spoken = sample["conversation"]
    sessions = {
        f"D{key[8:]}": [{"role": turn["speaker"], "content": _said(turn)} for turn in turns]
        for key, turns in spoken.items()
        if re.fullmatch(r"session_\d+", key) and turns
    }
    questions = []
    for question in sample["qa"]:
        # Some evidence is written as several turns in one string.
        evidence = frozenset(re.findall(r"(D\d+):\d+", " ".join(question["evidence"]))) & sessions.keys()
        if question["category"] != 5 and evidence:
            questions.append((question["question"], evidence))
    return Conversation(f"Chat of {spoken['speaker_a']} and {spoken['speaker_b']}", sessions, questions)


def _said(turn: dict[str, str]) -> str:
    caption = turn.get("blip_caption")
    return turn["text"] + (f" [{caption}]" if caption else "")


def main(arguments: Sequence[str] = ()) -> Figures | None:
    """Print the figures, where the file is there."""
    given = arguments[0] if arguments else os.environ.get("HOLDFAST_LOCOMO")
    if given is None:
        print("Nothing to measure: give the path of locomo10.json, or set HOLDFAST_LOCOMO.")
        return None
    figures = measure(Path(given))
    print(figures)
    return figures


if __name__ == "__main__":
    main(sys.argv[1:])
