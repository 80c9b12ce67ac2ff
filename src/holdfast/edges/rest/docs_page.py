"""The page that describes the API to people: one document, which loads nothing from anywhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

_CODE: Final = re.compile(r"`([^`]+)`")
_BOLD: Final = re.compile(r"\*\*([^*]+)\*\*")
_PARAMETER: Final = re.compile(r"{(\w+)}")
_WORDS: Final[Mapping[str, str]] = {"string": "text", "integer": "whole number", "boolean": "true or false"}


def render_index(info: Mapping[str, str]) -> str:
    """The page at ``/``: what this is, and where to go."""
    return _fill("index.html", info)


def render(api: Mapping[str, Any], base_url: str, query: str = "") -> str:
    """The page of an OpenAPI document. With a query it has the operations that mention all of its words."""
    words = query.lower().split()
    found = {
        tag["name"]: operations
        for tag in api["tags"]
        if (operations := [one for one in _operations(api, tag["name"]) if _mentions(one, words)])
    }
    groups = "".join(f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in found)
    abouts = {tag["name"]: render_marks(tag["description"]) for tag in api["tags"]}
    parts = [
        f"<h2 id='{escape(name)}'>{escape(name)}</h2>{abouts[name]}"
        + "".join(part for one in operations for part in _operation(api, one, base_url))
        for name, operations in found.items()
    ]
    nothing = f"<p>No operation mentions {escape(query)}. <a href=docs>Show all of them.</a></p>"
    return _fill("docs.html", api["info"], query=escape(query), groups=groups, operations="".join(parts) or nothing)


def _fill(page: str, info: Mapping[str, str], **html: str) -> str:
    """A page with texts about the API, and with HTML, in their places."""
    texts = {name: escape(info[name]) for name in ("title", "version")}
    about = escape(info["description"])
    return Template(_read(page)).substitute(texts, about=about, style=_read("docs.css"), **html)


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Operation(NamedTuple):
    path: str
    method: str
    about: Mapping[str, Any]


def _operations(api: Mapping[str, Any], tag: str) -> Iterator[_Operation]:
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            if tag in about.get("tags", ()):
                yield _Operation(path, method, about)


def _mentions(one: _Operation, words: list[str]) -> bool:
    about = one.about
    names = (parameter["name"] for parameter in about.get("parameters", ()))
    parts = (one.path, one.method, about["operationId"], about["summary"], about["description"], *about["tags"], *names)
    text = " ".join(parts).lower()
    return all(word in text for word in words)


def render_marks(text: str) -> str:
    """Text with the marks of Markdown that descriptions use (`code`, **bold**, lists, paragraphs), as HTML."""
    return "".join(_block(block) for block in text.split("\n\n") if block.strip())


def _block(block: str) -> str:
    lines = block.strip().splitlines()
    if all(line.startswith(("- ", "  ")) for line in lines):
        items = " ".join(line if line.startswith("- ") else line.strip() for line in lines)[2:].split(" - ")
        return "<ul>" + "".join(f"<li>{_inline(item)}" for item in items) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(text: str) -> str:
    return _BOLD.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\1</code>", escape(text)))


def _operation(api: Mapping[str, Any], one: _Operation, base_url: str) -> Iterator[str]:
    about = one.about
    yield f"<details id='{escape(about['operationId'])}'><summary>"
    yield f"<span class=method>{escape(one.method.upper())}</span> "
    yield f"<code>{escape(one.path)}</code> {_inline(about['summary'])}</summary>"
    yield render_marks(about["description"])
    yield f"<pre>{escape(_curl_line(api, one, base_url))}</pre><h4>Parameters</h4><table>"
    for part in about["parameters"]:
        needed = "" if part["required"] else " (optional)"
        yield f"<tr><td><code>{escape(part['name'])}</code><td>{escape(part['in'])}{needed}"
        yield f"<td>{_inline(part['description'])}"
    yield "</table>"
    if "requestBody" in about:
        yield "<h4>Body</h4>"
        yield from _fields(api, _body_schema(one))
        yield _example(api, {"schema": _body_schema(one)})
    yield "<h4>Answers</h4><table>"
    for status, response in about["responses"].items():
        yield f"<tr><td><code>{escape(status)}</code><td>{_inline(response['description'])}"
        if status.startswith("2"):
            yield from (_example(api, content) for content in response["content"].values())
    yield "</table></details>"


def _curl_line(api: Mapping[str, Any], one: _Operation, base_url: str) -> str:
    """A command that calls an operation: with the examples of its path, of what it needs, and of its body."""
    parameters = one.about["parameters"]
    values = {part["name"]: str(example_of(api, part["schema"]) or part["name"].upper()) for part in parameters}
    filled = _PARAMETER.sub(lambda match: quote(values[match[1]], safe=""), one.path)
    needed = {part["name"]: values[part["name"]] for part in parameters if part["in"] == "query" and part["required"]}
    query = f"?{urlencode(needed)}" if needed else ""
    method = [] if one.method == "get" else ["-X", one.method.upper()]
    line = shlex.join(["curl", *method, f"{base_url.rstrip('/')}{filled}{query}"])
    body = ""
    if "requestBody" in one.about:
        example = json.dumps(example_of(api, _body_schema(one)), ensure_ascii=False)
        body = f" -H 'Content-Type: application/json' -d {shlex.quote(example)}"
    return f'{line} -H "Authorization: Bearer $HOLDFAST_KEY"{body}'


def _body_schema(one: _Operation) -> Mapping[str, Any]:
    found: Mapping[str, Any] = one.about["requestBody"]["content"]["application/json"]["schema"]
    return found


def _fields(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a body: what each must be, whether it is needed or what it is else, and what it means."""
    body = _resolve(api, schema)
    needed = body.get("required", ())
    yield "<table><tr><th>field<th>type<th>needed<th>meaning"
    for name, part in body.get("properties", {}).items():
        default = part.get("default")
        without = "" if default is None else f", else <code>{escape(json.dumps(default))}</code>"
        yield f"<tr><td><code>{escape(name)}</code><td>{escape(type_of(api, part))}"
        yield f"<td>{'yes' if name in needed else f'no{without}'}<td>{_inline(meaning_of(part))}"
    yield "</table>"


def type_of(api: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What a schema asks for, in words."""
    schema = _resolve(api, schema)
    if "anyOf" in schema:
        kinds = [type_of(api, one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(api, schema.get('items', {}))}"
    kind = schema.get("type", "anything")
    return _WORDS.get(kind, kind)


def meaning_of(schema: Mapping[str, Any]) -> str:
    """What is said of a field, or of the first of its alternatives of which something is said."""
    if "description" in schema:
        return str(schema["description"])
    return next((said for one in schema.get("anyOf", ()) if (said := meaning_of(one))), "")


def _resolve(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def _example(api: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    if "example" in content:
        return f"<pre>{escape(str(content['example']))}</pre>"
    shown = example_of(api, content.get("schema", {}))
    return "" if shown is None else f"<pre>{escape(json.dumps(shown, indent=2, ensure_ascii=False))}</pre>"


def example_of(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """An example of what a schema describes, if it has one."""
    schema = _resolve(api, schema)
    return schema["example"] if "example" in schema else next(iter(schema.get("examples", ())), None)
