"""The description of the API is whole and true: each route with an example, its errors, and what it needs."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
from bench.pages.reference import render_rest

from api.client import Client
from holdfast.core.errors import HoldfastError, InvalidInputError
from holdfast.edges.operations.errors import STATUSES, status_of
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.docs_page import example_of, meaning_of, render, render_marks, type_of
from holdfast.edges.rest.routes import route_table
from holdfast.edges.rest.streams import NDJSON


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return describe(keys_required=True)


def operations(api: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in api["paths"].values() for operation in path.values()]


def _families(root: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [root, *(one for child in root.__subclasses__() for one in _families(child))]


def test_every_error_has_a_status_and_every_status_an_error() -> None:
    codes = {family.code for family in _families(HoldfastError) if family.__module__ == "holdfast.core.errors"}
    assert set(STATUSES) == codes


def test_a_status_says_whose_fault_it_is() -> None:
    for family in _families(HoldfastError):
        if family.__module__ != "holdfast.core.errors":
            continue
        status = status_of(family("…"))
        if issubclass(family, InvalidInputError) and family.code != "invalid_settings":
            assert 400 <= status < 500, family
        if family.retryable:
            assert status in (409, 429, 503, 507), family


def test_names_of_operations_are_known_to_programs_and_do_not_change(api: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(api)]
    assert len(names) == len(set(names)) == len(route_table())
    assert {"add_memory", "recall", "carry_out_sweep", "erase_user", "export_user"} <= set(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_operation_says_what_it_does_what_it_needs_and_what_can_go_wrong(api: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in api["tags"]}
    for operation in operations(api):
        name = operation["operationId"]
        assert operation["summary"], name
        assert "Needs the right `" in operation["description"], name
        assert set(operation["tags"]) <= tags, name
        responses = operation["responses"]
        assert {"400", "401", "403", "413", "422", "429", "5XX"} <= responses.keys(), name
        for status, response in responses.items():
            assert response["description"], name
            if status.startswith(("4", "5")):
                assert list(response["content"]) == ["application/problem+json"], name


def test_writes_can_be_repeated_and_questions_need_not_be(api: dict[str, Any]) -> None:
    for path in api["paths"].values():
        for method, operation in path.items():
            named = {one["name"] for one in operation["parameters"]}
            assert ("Idempotency-Key" in named) == (method != "get")
            assert "X-Holdfast-Tenant" in named


def test_every_request_and_every_answer_has_an_example_that_is_valid(api: dict[str, Any]) -> None:
    for operation in operations(api):
        contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
        contents += [one.get("content", {}) for status, one in operation["responses"].items() if status.startswith("2")]
        for content in contents:
            for media_type, described in content.items():
                if media_type == "application/json":
                    example = example_of(api, described["schema"])
                    assert example is not None, operation["operationId"]
                    schema = {**described["schema"], "components": api["components"]}
                    jsonschema.Draft202012Validator(schema).validate(example)


def test_the_page_for_people_shows_all_of_it_and_loads_nothing(client: Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for route in route_table():
        assert f"id='{route.name}'" in page.text
    assert "Ann likes green tea." in page.text
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|<script|@import|url\(""", page.text)


def test_the_page_can_be_searched(client: Client) -> None:
    found = client.get("/docs", params={"q": "restore backup"}).text
    assert "id='restore_backup'" in found
    assert "id='add_memory'" not in found
    assert "value='restore backup'" in found
    nothing = client.get("/docs", params={"q": "<script>alert(1)</script>"}).text
    assert "<script" not in nothing
    assert "No operation mentions &lt;script&gt;" in nothing


def test_the_page_renders_the_marks_of_descriptions(client: Client) -> None:
    assert render_marks("Say `a<b` **now**.\n\n- one\n- two\n  of them") == (
        "<p>Say <code>a&lt;b</code> <strong>now</strong>.</p><ul><li>one<li>two of them</ul>"
    )
    text = re.sub(r"<pre>.*?</pre>", "", client.get("/docs").text, flags=re.DOTALL)
    assert "`" not in text
    assert "**" not in text


def test_each_operation_shows_a_curl_line_that_calls_it(client: Client, api: dict[str, Any]) -> None:
    page = unescape(render(api, "http://localhost:8765/"))
    lines = re.findall(r"<pre>(curl .*?)</pre>", page)
    assert len(lines) == len(operations(api))
    called = set()
    for line in lines:
        words = shlex.split(line)
        method = words[2] if words[1] == "-X" else "GET"
        url = next(word for word in words if word.startswith("http://localhost:8765/v1/"))
        path = urlsplit(url).path
        called |= {route.name for route in route_table() if route.method == method and route.path_regex.fullmatch(path)}
        if "-d" in words:
            assert isinstance(json.loads(words[words.index("-d") + 1]), dict)
    assert called == {route.name for route in route_table()}
    add = next(shlex.split(line) for line in lines if "-X POST http://localhost:8765/v1/memories -H" in line)
    assert client.post("/v1/memories", json.loads(add[-1])).status_code == 201


def test_every_field_of_every_body_is_explained(client: Client, api: dict[str, Any]) -> None:
    page = client.get("/docs").text
    for operation in operations(api):
        if "requestBody" in operation:
            name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[-1]
            shown = page.partition(f"<details id='{operation['operationId']}'>")[2].partition("</details>")[0]
            for field, schema in api["components"]["schemas"][name]["properties"].items():
                assert meaning_of(schema), f"{name}.{field}"
                assert type_of(api, schema) != "anything", f"{name}.{field}"
                assert f"<tr><td><code>{field}</code><td>" in shown, f"{name}.{field}"
    assert "<tr><td><code>user_id</code><td>text<td>yes<td>Whose memory it is." in page
    assert "<tr><td><code>top_k</code><td>whole number<td>no, else <code>5</code><td>How many at most." in page
    assert "<td>number or &quot;never&quot;<td>no<td>" in page


def test_the_reference_has_every_code_and_how_answers_come() -> None:
    page = render_rest()
    for status, code in ((400, "malformed_request"), (405, "method_not_allowed"), (428, "confirmation_needed")):
        row = next(line for line in page.splitlines() if line.startswith(f"| {status} |"))
        assert f"`{code}`" in row
    for named in ("X-API-Key", "Idempotency-Replayed", "next_cursor", NDJSON, '{"problem": ', '"confirm": true'):
        assert named in page


def test_the_description_for_programs_is_served(client: Client) -> None:
    served = client.get("/openapi.json")
    assert served.json() == describe(keys_required=False)
    assert served.json()["openapi"].startswith("3.1")


def test_keys_are_described_as_needed_where_they_are(api: dict[str, Any]) -> None:
    assert {} not in api["security"]
    assert {} in describe(keys_required=False)["security"]
    assert api["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
