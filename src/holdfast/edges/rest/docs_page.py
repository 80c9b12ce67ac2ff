"""The page that describes the API to people: one document, which loads nothing from anywhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

_STYLE: Final = resources.files(__package__).joinpath("docs.css").read_text(encoding="utf-8")
_CODE: Final = re.compile(r"`([^`]+)`")
_BOLD: Final = re.compile(r"\*\*([^*]+)\*\*")
_PARAMETER: Final = re.compile(r"{(\w+)}")
_MOST_DEPTH: Final = 6
_TYPES: Final = MappingProxyType(
    {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "object": "object"}
)


def render_index(title: str, version: str, about: str, links: Mapping[str, str]) -> str:
    """The page at ``/``: what this is, and where to go. ``links`` has a path for each description."""
    items = "".join(
        f"<tr><td><a href='{escape(path)}'>{escape(path)}</a><td>{escape(text)}" for text, path in links.items()
    )
    return (
        f"{_head(title)}<h1>{escape(title)} <small>{escape(version)}</small></h1><p>{escape(about)}</p>"
        f"<table><tr><th>path<th>what is there{items}</table></html>"
    )


def render(api: Mapping[str, Any], base_url: str, query: str = "") -> str:
    """The page of an OpenAPI document. With a query it has the operations that mention all of its words."""
    return "".join(_page(api, base_url, query))


def _head(title: str) -> str:
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f'<meta name=viewport content="width=device-width, initial-scale=1"><style>{_STYLE}</style>'
    )


def _page(api: Mapping[str, Any], base_url: str, query: str) -> Iterator[str]:
    info, words = api["info"], query.lower().split()
    yield _head(f"{info['title']} API")
    yield f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
    yield f"<p>{escape(info['description'])}</p>"
    yield "<p>For programs: <a href=openapi.json>openapi.json</a>. A key goes with each request as "
    yield "<code>Authorization: Bearer holdfast_…</code>. Every error is <code>application/problem+json</code>; "
    yield "programs test its <code>code</code>.</p><form role=search>"
    yield f"<input type=search name=q value='{escape(query)}' placeholder='Search the operations' aria-label=Search>"
    yield "<button>Search</button></form>"
    sections = {
        tag["name"]: [one for one in _operations(api, tag["name"]) if _mentions(one, words)] for tag in api["tags"]
    }
    found = {name: operations for name, operations in sections.items() if operations}
    yield "<nav aria-label=Groups>"
    yield from (f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in found)
    yield "</nav>"
    if not found:
        yield f"<p>No operation mentions {escape(query)}. <a href=docs>Show all of them.</a></p>"
    for tag in api["tags"]:
        if tag["name"] in found:
            yield f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2>{render_marks(tag['description'])}"
            for one in found[tag["name"]]:
                yield from _operation(api, one, base_url)
    yield "</html>"


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
    yield f"<pre>{escape(curl_line(api, one.path, one.method, about, base_url))}</pre>"
    yield from _parameters(about.get("parameters", ()))
    body = about.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield "<h4>Body</h4>"
        yield from _fields(api, body["schema"])
        yield _example(api, body)
    yield "<h4>Answers</h4><table>"
    for status, response in about["responses"].items():
        yield f"<tr><td><code>{escape(str(status))}</code><td>{_inline(response['description'])}"
        if str(status).startswith("2"):
            for content in response.get("content", {}).values():
                yield _example(api, content)
    yield "</table></details>"


def curl_line(api: Mapping[str, Any], path: str, method: str, about: Mapping[str, Any], base_url: str) -> str:
    """A command that calls an operation: with the examples of its path, of what it needs, and of its body."""
    parameters = about.get("parameters", ())
    values = {one["name"]: str(_parameter_example(api, one)) for one in parameters}
    filled = _PARAMETER.sub(lambda match: quote(values.get(match[1], match[1]), safe=""), path)
    needed = [(one["name"], values[one["name"]]) for one in parameters if one["in"] == "query" and one.get("required")]
    query = f"?{urlencode(needed)}" if needed else ""
    words = ["curl", *([] if method == "get" else ["-X", method.upper()]), f"{base_url.rstrip('/')}{filled}{query}"]
    line = f'{shlex.join(words)} -H "Authorization: Bearer $HOLDFAST_KEY"'
    body = about.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        example = json.dumps(example_of(api, body["schema"]), ensure_ascii=False)
        line += f" -H 'Content-Type: application/json' -d {shlex.quote(example)}"
    return line


def _parameter_example(api: Mapping[str, Any], parameter: Mapping[str, Any]) -> Any:
    example = parameter.get("example") or example_of(api, parameter["schema"])
    return parameter["name"].upper() if example is None else example


def _parameters(parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield "<h4>Parameters</h4><table>"
    for one in parameters:
        needed = "" if one.get("required") else " (optional)"
        yield f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}{needed}"
        yield f"<td>{_inline(one.get('description', ''))}"
    yield "</table>"


def _fields(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a body: what each must be, whether it is needed or what it is else, and what it means."""
    body = _resolved(api, schema)
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
    schema = _resolved(api, schema)
    if "anyOf" in schema:
        kinds = [type_of(api, one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(api, schema.get('items', {}))}"
    return _TYPES.get(schema.get("type", ""), "anything")


def meaning_of(schema: Mapping[str, Any]) -> str:
    """What is said of a field, or of the first of its alternatives of which something is said."""
    if "description" in schema:
        return str(schema["description"])
    return next((said for one in schema.get("anyOf", ()) if (said := meaning_of(one))), "")


def _resolved(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def _example(api: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    if "example" in content:
        return f"<pre>{escape(str(content['example']))}</pre>"
    shown = example_of(api, content.get("schema", {}))
    return "" if shown is None else f"<pre>{escape(json.dumps(shown, indent=2, ensure_ascii=False))}</pre>"


def example_of(api: Mapping[str, Any], schema: Mapping[str, Any], depth: int = 0) -> Any:
    """An example of what a schema describes: its own, or one that is put together from those of its parts."""
    schema = _resolved(api, schema)
    if "example" in schema:
        return schema["example"]
    if schema.get("examples"):
        return schema["examples"][0]
    if depth > _MOST_DEPTH:
        return None
    if schema.get("type") == "array":
        one = example_of(api, schema.get("items", {}), depth + 1)
        return [] if one is None else [one]
    if schema.get("properties"):
        return {name: example_of(api, part, depth + 1) for name, part in schema["properties"].items()}
    return None
