"""The page that describes the API to people: one document, which loads nothing from anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Any, Final

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid #8886}
details{border:1px solid #8886;border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
code,pre{font:14px/1.45 ui-monospace,monospace}
pre{overflow:auto;background:#8881;padding:.6rem;border-radius:.3rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-top:1px solid #8883}
.method{display:inline-block;min-width:4.5rem;font-weight:700}
nav a{margin-right:.8rem}
"""
_MOST_DEPTH: Final = 6
_TYPES: Final = MappingProxyType(
    {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "object",
    }
)


def render(api: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    return "".join(_page(api))


def _page(api: Mapping[str, Any]) -> Iterator[str]:
    info = api["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>"
    yield f'<meta name=viewport content="width=device-width"><style>{_STYLE}</style>'
    yield f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
    yield f"<p>{escape(info['description'])}</p>"
    yield "<p>For programs: <a href=openapi.json>openapi.json</a>. A key goes with each request as "
    yield "<code>Authorization: Bearer holdfast_…</code>. Every error is <code>application/problem+json</code>; "
    yield "programs test its <code>code</code>.</p><nav>"
    for tag in api["tags"]:
        yield f"<a href='#{escape(tag['name'])}'>{escape(tag['name'])}</a>"
    yield "</nav>"
    for tag in api["tags"]:
        yield f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>"
        for path, methods in api["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation.get("tags", ()):
                    yield from _operation(api, path, method, operation)
    yield "</html>"


def _operation(api: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f"<details id='{name}'><summary><span class=method>{escape(method.upper())}</span> "
    yield f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
    for paragraph in operation["description"].split("\n\n"):
        yield f"<p>{escape(paragraph)}</p>"
    yield from _parameters(operation.get("parameters", ()))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield "<h4>Body</h4>"
        yield from _fields(api, body["schema"])
        yield _example(api, body)
    yield "<h4>Answers</h4><table>"
    for status, response in operation["responses"].items():
        yield f"<tr><td><code>{escape(str(status))}</code><td>{escape(response['description'])}"
        if str(status).startswith("2"):
            for content in response.get("content", {}).values():
                yield _example(api, content)
    yield "</table></details>"


def _parameters(parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield "<h4>Parameters</h4><table>"
    for one in parameters:
        needed = "" if one.get("required") else " (optional)"
        yield f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}{needed}"
        yield f"<td>{escape(one.get('description', ''))}"
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
        yield f"<td>{'yes' if name in needed else f'no{without}'}<td>{escape(meaning_of(part))}"
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
