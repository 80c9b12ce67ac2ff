"""Sets to measure recall with: conversations, their messages, and questions with the messages that answer them.

A set is a JSON file of this form. Ids are unique within a conversation, and questions are asked of their own
conversation. ``session``, ``category`` and ``about`` may be left out; whatever else is there is not looked at.

{"name": "tea",
 "about": "what it is, for people",
 "conversations": [
  {"id": "ann",
   "messages": [{"id": "m1", "text": "I drink oolong in the morning", "session": "monday"}],
   "questions": [{"text": "What does she drink?", "gold": ["m1"], "category": "facts"}]}]}

Instead of ``messages`` a conversation may have ``messages_of``, the name of another file in the same folder: it has
those of the conversation there that has the same id.

LoCoMo's own file is read as well: one conversation for each of its samples, one message per turn (``Speaker: text``,
with the caption of a shared image in brackets), the turn's session, and the questions of categories 1 to 4 that name
at least one turn as evidence. It is CC BY-NC, so it is no part of this repository.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Memory(NamedTuple):
    """One record of a set."""

    id: str
    text: str
    session: str | None = None


class Question(NamedTuple):
    """A query and the ids of the memories that answer it."""

    text: str
    relevant: frozenset[str]
    category: str = ""


class Collection(NamedTuple):
    """One user's memories and the questions about them."""

    memories: list[Memory]
    questions: list[Question]

    @property
    def texts(self) -> list[str]:
        """All that is said and asked."""
        return [memory.text for memory in self.memories] + [question.text for question in self.questions]


class RecallSet(NamedTuple):
    """A set by its name."""

    name: str
    collections: list[Collection]

    @property
    def questions(self) -> list[Question]:
        """All questions, in their order."""
        return [question for collection in self.collections for question in collection.questions]


class SetError(ValueError):
    """A file that is no set, and why."""


def read_set(path: Path) -> RecallSet:
    """The set in a file; ``SetError`` says what is wrong with it."""
    try:
        written = _load(path)
        if isinstance(written, list):
            return RecallSet("LoCoMo turns", [_convert_sample(sample) for sample in written])
        conversations = _get(written, "conversations", list, "the set")
        name = _get(written, "name", str, "the set")
        found = [_read_conversation(one, number, path) for number, one in enumerate(conversations, 1)]
    except SetError as problem:
        raise SetError(f"{path} is not a set to measure recall with: {problem}") from None
    return RecallSet(name, found)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise SetError(f"it cannot be read ({problem.strerror})") from problem
    except ValueError as problem:
        raise SetError(f"it is not JSON in UTF-8 ({problem})") from problem


def _get(part: Any, name: str, kind: type, where: str) -> Any:
    """A field that must be there, be of a kind, and not be empty."""
    if not isinstance(part, dict):
        raise SetError(f"{where} must be an object, not {json.dumps(part)[:40]}")
    if not isinstance(part.get(name), kind) or not part[name]:
        what = "a list with something in it" if kind is list else "a text that is not empty"
        raise SetError(f"{where} must have {name!r}, {what}, not {json.dumps(part.get(name))[:40]}")
    return part[name]


def _read_conversation(part: Any, number: int, path: Path) -> Collection:
    name = _get(part, "id", str, f"conversation {number}")
    where = f"conversation {name!r}"
    memories = []
    for place, message in enumerate(_messages(part, name, where, path), 1):
        at = f"message {place} of {where}"
        memories.append(Memory(_get(message, "id", str, at), _get(message, "text", str, at), message.get("session")))
    known = Counter(memory.id for memory in memories)
    if twice := [one for one, times in known.items() if times > 1]:
        raise SetError(f"{where} has more than one message with the id {twice[0]!r}")
    questions = []
    for place, question in enumerate(_get(part, "questions", list, where), 1):
        at = f"question {place} of {where}"
        gold = _get(question, "gold", list, at)
        if strange := [one for one in gold if not isinstance(one, str) or one not in known]:
            raise SetError(f"{at} names {strange[0]!r} as gold, which is no message of its conversation")
        questions.append(Question(_get(question, "text", str, at), frozenset(gold), str(question.get("category", ""))))
    return Collection(memories, questions)


def _messages(part: dict[str, Any], name: str, where: str, path: Path) -> list[Any]:
    if "messages_of" not in part:
        return list(_get(part, "messages", list, where))
    other = path.with_name(_get(part, "messages_of", str, where))
    for conversation in _get(_load(other), "conversations", list, other.name):
        if conversation.get("id") == name:
            return list(_get(conversation, "messages", list, f"{where} in {other.name}"))
    raise SetError(f"{other.name} has no {where}")


def _convert_sample(sample: Any) -> Collection:
    try:
        conversation, questions = sample["conversation"], sample["qa"]
    except (KeyError, TypeError):
        raise SetError("it is a list, and not LoCoMo's; a set is an object with 'name' and 'conversations'") from None
    sessions = sorted((key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
    memories = [Memory(turn["dia_id"], _join(turn), session) for session in sessions for turn in conversation[session]]
    known = {memory.id for memory in memories}
    asked = []
    for question in questions:
        # Some evidence is written as several turns in one string.
        evidence = known.intersection(re.findall(r"D\d+:\d+", " ".join(question["evidence"])))
        if question["category"] != 5 and evidence:
            asked.append(Question(question["question"], frozenset(evidence), f"category {question['category']}"))
    return Collection(memories, asked)


def _join(turn: dict[str, str]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [{caption}]" if caption else "")


# --- the standard library as a set ------------------------------------------------------------------------------------


def documentation() -> RecallSet:
    """Long texts: the first line of each docstring of the standard library asks for the rest of it."""
    found = ((module, title, rest) for module, title, rest, _ in _documented() if len(rest) >= 300)
    return RecallSet("stdlib docstrings", [_collect(found)])


def code() -> RecallSet:
    """Code: the first line of each docstring of the standard library asks for the function's source without it."""
    found = ((module, title, source) for module, title, _, source in _documented() if 0 < len(source) <= 6_000)
    return RecallSet("stdlib code", [_collect(found)])


def _collect(found: Iterable[tuple[str, str, str]], asked: int = 800) -> Collection:
    """Each distinct text once, and some of their titles as questions (the same ones on every run)."""
    memories: list[Memory] = []
    questions: list[Question] = []
    seen: set[str] = set()
    for module, title, text in found:
        if title not in seen and text not in seen:
            seen |= {title, text}
            memories.append(Memory(str(len(memories)), text, module))
            questions.append(Question(title, frozenset({memories[-1].id})))
    random.Random(7).shuffle(questions)
    return Collection(memories, questions[:asked])


def _documented() -> Iterator[tuple[str, str, str, str]]:
    """Module, first line and rest of the docstring, and source of what the standard library documents."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "site-packages", "idlelib", "lib2to3", "turtledemo", "idle_test"}
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root)
        if skipped.isdisjoint(module.parts):
            for node in _parsed(path):
                title, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                title = " ".join(title.split())
                if len(title.split()) >= 4 and len(title) <= 160:
                    yield str(module), title, rest.strip(), _source(node)


def _parsed(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # samples of what Python refuses are part of the library
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def _source(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """A function's source without its docstring; nothing for one that does nothing, and for classes."""
    if isinstance(node, ast.ClassDef) or len(node.body) < 3:
        return ""
    node.body = node.body[1:]
    return ast.unparse(node)
