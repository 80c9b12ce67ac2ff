"""Memories from elsewhere, read in bounded memory: exports of ChatGPT and of Claude, and lines of JSON.

Each reader gives what it finds, one memory or conversation at a time, as ``memory.import_memories`` takes it, or says
what is wrong with it and goes on.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError

_CHUNK_CHARS: Final = 1 << 20
#: No conversation and no line is longer.
_MAX_CHARS: Final = 64 << 20
#: A conversation is imported in parts of so many characters.
_PART_CHARS: Final = 200_000
#: What is no UTF-8 stays where it is, so that it spoils one memory and not the rest of the file.
_TEXT: Final[Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
_ROLES: Final = {"human": "user"}


class Found(NamedTuple):
    """Something that was read: a memory, or what is wrong with it."""

    where: str
    item: dict[str, Any] | None = None
    problem: str = ""


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def _open(path: Path, pattern: str) -> Iterator[Iterator[tuple[str, IO[str]]]]:
    """The files of a folder or of a ZIP whose names are like a pattern, or the one file that was named."""
    try:
        if path.is_dir():
            yield ((file.name, file.open(**_TEXT)) for file in sorted(path.glob(pattern)))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if fnmatch(name.rpartition("/")[2], pattern)]
                names.sort(key=lambda name: (name == "facts.jsonl", name))  # facts are of entities
                yield ((name, io.TextIOWrapper(archive.open(name), **_TEXT)) for name in names)
        else:
            is_meant = fnmatch(path.name, pattern) or pattern.startswith(("conversations", "*"))
            yield iter([(path.name, path.open(**_TEXT))] if is_meant else [])
    except (OSError, zipfile.BadZipFile) as problem:
        raise InvalidInputError(f"cannot read {path}: {problem}") from None


def _read_elements(file: IO[str], name: str) -> Iterator[Found | tuple[str, Any]]:
    """The elements of a JSON array, one at a time; the fields of an object as one element."""
    decoder, text, more, number = json.JSONDecoder(), "", _CHUNK_CHARS, 0
    try:
        text = file.read(more).lstrip()
        if not text.startswith("["):
            yield f"{name}, entry 1", json.loads(text + file.read(_MAX_CHARS))
            return
        text = text[1:]
        while True:
            text = text.lstrip(" \t\r\n,")
            if text.startswith("]"):
                return
            try:
                value, end = decoder.raw_decode(text)
            except ValueError as problem:
                read = file.read(more)
                if not read or len(text) > _MAX_CHARS:
                    yield Found(f"{name}, entry {number + 1}", problem=f"it and what follows is not JSON: {problem}")
                    return
                text, more = text + read, more * 2
                continue
            number, more, text = number + 1, _CHUNK_CHARS, text[end:]
            yield f"{name}, entry {number}", value
    except (ValueError, RecursionError) as problem:  # it is nested too deep, or its numbers are too long
        yield Found(f"{name}, entry {number + 1}", problem=f"it and what follows cannot be read: {problem}")


def _read_each(path: Path, pattern: str, read: Callable[[Any], Iterator[dict[str, Any]]]) -> Iterator[Found]:
    """What is made of each element of the files that are like a pattern."""
    with _open(path, pattern) as files:
        for name, file in files:
            with file:
                for element in _read_elements(file, name):
                    if isinstance(element, Found):
                        yield element
                        continue
                    where, value = element
                    try:
                        items = list(read(value))
                    except (KeyError, TypeError, ValueError, AttributeError) as problem:
                        yield Found(where, problem=f"it does not have the form of this export ({problem!r})")
                        continue
                    yield from (Found(where, item) for item in items)


def _need(found: Iterator[Found], path: Path, what: str) -> Iterator[Found]:
    """What was found; an error where there is nothing at all."""
    nothing = True
    for one in found:
        nothing = False
        yield one
    if nothing:
        raise InvalidInputError(f"{path} has no {what}; name the export's folder, its ZIP, or that file")


# --- conversations ----------------------------------------------------------------------------------------------------


def _make_episodes(
    key: str, title: str, messages: list[dict[str, Any]], made: Any, metadata: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A conversation as episodes: one, or where it is long, several. What was said first stays in its part."""
    parts: list[list[dict[str, Any]]] = [[]]
    size = 0
    for message in messages:
        size += len(message["content"])
        if parts[-1] and size > _PART_CHARS:
            parts.append([])
            size = len(message["content"])
        parts[-1].append(message)
    for number, part in enumerate(parts, 1):
        if part:
            yield {
                "key": key if number == 1 else f"{key}#{number}",
                "memory_type": "episodic",
                "task": title if number == 1 else f"{title} ({number})",
                "messages": part,
                "metadata": dict(metadata),
                "created_at": part[0].get("timestamp") or made,
                "updated_at": part[-1].get("timestamp") or made,
            }


def _say(role: str, content: str, when: Any) -> dict[str, Any]:
    return {"role": _ROLES.get(role, role), "content": content, **({} if when is None else {"timestamp": when})}


def _walk(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of the branch of a conversation that was shown last, in their order."""
    nodes: Mapping[str, Any] = conversation["mapping"]

    def said_at(node: Mapping[str, Any]) -> float:
        return float((node.get("message") or {}).get("create_time") or 0)

    leaves = [node_id for node_id, node in nodes.items() if not node.get("children")]
    at: Any = conversation.get("current_node") or max(leaves, key=lambda leaf: said_at(nodes[leaf]), default=None)
    found: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while at in nodes and at not in seen:
        seen.add(at)
        if nodes[at].get("message"):
            found.append(nodes[at]["message"])
        at = nodes[at].get("parent")
    return found[::-1]


def _read_chatgpt_conversation(given: Any) -> Iterator[dict[str, Any]]:
    messages = []
    for message in _walk(given):
        role = message["author"]["role"]
        parts = (message.get("content") or {}).get("parts") or ()
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        if role in ("user", "assistant") and text:
            messages.append(_say(role, text, message.get("create_time")))
    key = f"chatgpt:{given.get('conversation_id') or given['id']}"
    yield from _make_episodes(key, given.get("title") or "Untitled", messages, given.get("create_time"), {})


def _read_claude_conversation(given: Any) -> Iterator[dict[str, Any]]:
    messages = []
    for message in given["chat_messages"]:
        blocks = [one.get("text") or "" for one in message.get("content") or () if one.get("type") == "text"]
        text = ("\n".join(blocks) or message.get("text") or "").strip()
        if text:
            messages.append(_say(message["sender"], text, message.get("created_at")))
    title = given.get("name") or "Untitled"
    yield from _make_episodes(f"claude:{given['uuid']}", title, messages, given.get("created_at"), {})


# --- memories ---------------------------------------------------------------------------------------------------------


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _read_chatgpt_memories(given: Any) -> Iterator[dict[str, Any]]:
    for one in given["memories"] if isinstance(given, Mapping) and "memories" in given else [given]:
        text = one.get("content") or one.get("memory") or one["text"]
        yield {
            "key": f"chatgpt:memory:{one.get('id') or _digest(text)}",
            "content": text,
            "created_at": one.get("created_at") or one.get("create_time"),
            "updated_at": one.get("updated_at") or one.get("update_time"),
        }


def _split(text: str, prefix: str, metadata: Mapping[str, Any], made: Any = None) -> Iterator[dict[str, Any]]:
    """The paragraphs of a text as memories."""
    for part in dict.fromkeys(one.strip() for one in text.split("\n\n") if one.strip()):
        yield {"key": f"{prefix}:{_digest(part)}", "content": part, "metadata": dict(metadata), "created_at": made}


def _read_claude_memories(given: Any) -> Iterator[dict[str, Any]]:
    yield from _split(given.get("conversations_memory") or "", "claude:memory", {})
    for project, text in (given.get("project_memories") or {}).items():
        yield from _split(text, f"claude:memory:{project}", {"project": project})


def _read_claude_project(given: Any) -> Iterator[dict[str, Any]]:
    name, made, prefix = given["name"], given.get("created_at"), f"claude:project:{given['uuid']}"
    for field in ("description", "prompt_template"):
        yield from _split(given.get(field) or "", prefix, {"project": name}, made)
    for document in given.get("docs") or ():
        metadata = {"project": name, "file": document["filename"]}
        yield from _split(document["content"], f"{prefix}:{document['uuid']}", metadata, document.get("created_at"))


def read_chatgpt(path: Path) -> Iterator[Found]:
    """The conversations of an export of ChatGPT as episodes, and its memories, if it has any."""
    yield from _need(_read_each(path, "conversations*.json", _read_chatgpt_conversation), path, "conversations.json")
    yield from _read_each(path, "memories.json", _read_chatgpt_memories)


def read_claude(path: Path) -> Iterator[Found]:
    """The conversations of an export of Claude as episodes; its memories and projects, a memory for each paragraph."""
    yield from _need(_read_each(path, "conversations*.json", _read_claude_conversation), path, "conversations.json")
    yield from _read_each(path, "memories.json", _read_claude_memories)
    yield from _read_each(path, "projects.json", _read_claude_project)


# --- lines ------------------------------------------------------------------------------------------------------------


def read_jsonl(path: Path) -> Iterator[Found]:
    """Memories as lines of JSON, in a file, or those of an export that Holdfast made."""
    with _open(path, "*.jsonl") as files:
        for name, file in files:
            with file:
                yield from _read_lines(name, file)


def _read_lines(name: str, file: IO[str]) -> Iterator[Found]:
    number = 0
    while line := file.readline(_MAX_CHARS):
        number += 1
        if line.strip():
            try:
                found = _read_line(json.loads(line))
            except (ValueError, RecursionError) as problem:
                found = f"it is not JSON: {problem}"
            except KeyError as missing:
                found = f"it has no {missing}"
            where = f"{name}, line {number}"
            if found is not None:
                yield Found(where, problem=found) if isinstance(found, str) else Found(where, found)


_OF_ENTITIES: Final = ("name", "entity_type", "description", "attributes", "relations")
_PARTS: Final = ("content", "memory_type", "created_at", "updated_at", "task", "steps", "messages", "tool_calls")


def _read_line(given: Any) -> dict[str, Any] | str | None:
    """A line as ``import_memories`` takes it, or why it is none; ``None`` if it says nothing that others do not."""
    if not isinstance(given, dict):
        return "it is not a JSON object"
    if given.get("type") == "fact":
        return _read_fact(given)
    if "type" in given and given["type"] != "memory":
        return f"a {given['type']} of an export is not imported; only its memories and entities are"
    if "type" in given and given.get("state") not in ("active", "archived"):
        return "it is in the recycle bin there"
    details, metadata = given.get("details") or {}, dict(given.get("metadata") or {})
    if given.get("type") and given.get("memory_type") == "structured":
        given = {**given, "content": metadata.pop("document", None)}
    if given.get("memory_type") == "entity":
        return _read_entity(given, metadata)
    unknown = [] if "memory_id" in given else [name for name in given if name not in (*_PARTS, "id", "key", "metadata")]
    if unknown:
        return f"there is no field {unknown[0]!r}; what else there is to say goes into metadata"
    item = {name: value for name in _PARTS if (value := {**given, **details}.get(name)) is not None}
    said = json.dumps([item.get("memory_type"), given.get("content")])
    own = given.get("memory_id") or f"jsonl:{given.get('id') or _digest(said)}"
    named = given.get("name") if given.get("memory_type") == "long_term" else None
    return {**item, "metadata": metadata, "key": given.get("key") or named or own}


def _read_entity(given: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any] | str:
    """The same of an entity. An export has in its metadata what is known of it; its relations are facts."""
    if "memory_id" in given:
        known = {name: metadata.pop(name, None) for name in _OF_ENTITIES}
    else:
        known = {name: given.get(name) for name in _OF_ENTITIES}
        fields = ("memory_type", "id", "key", "metadata", "created_at", "updated_at", *_OF_ENTITIES)
        if unknown := [name for name in given if name not in fields]:
            return f"an entity has no field {unknown[0]!r}; what else there is to say goes into metadata"
    if not isinstance(known["name"], str):
        return "an entity is imported by its name, and this one has none"
    made = {name: given[name] for name in ("created_at", "updated_at") if given.get(name) is not None}
    item = {name: value for name, value in known.items() if value is not None}
    key = given.get("key") or given.get("id") or f"entity:{known['name']}"
    return {**item, **made, "memory_type": "entity", "metadata": metadata, "key": key}


def _read_fact(given: dict[str, Any]) -> dict[str, Any] | str | None:
    """A relation that holds, as an entity that has it; ``None`` for an attribute that does, which the entity has."""
    if given.get("until") is not None:
        return "a fact that has ended is not imported"
    if given.get("target") is None:
        return None
    relation = {"relation": given["name"], "target": given["target"], "since": given["since"]}
    return {"key": given["fact_id"], "memory_type": "entity", "name": given["entity"], "relations": [relation]}
