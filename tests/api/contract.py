"""Whether answers are what the documentation says."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema

from holdfast.edges.rest.routes import route_table


def check_contract(api: dict[str, Any], response: httpx.Response) -> str:
    """The operation that gave a response, which must be one that it documents."""
    method, path = response.request.method, response.request.url.raw_path.decode().partition("?")[0]
    route = next(
        route
        for route in route_table()
        if method == route.method and route.path_regex.match(path) and _is_most_exact(route.path_format, path)
    )
    responses = api["paths"][route.path_format][method.lower()]["responses"]
    status = str(response.status_code)
    assert status in responses, f"{method} {path}: {status} is not documented: {response.text}"
    content_type = response.headers["content-type"].partition(";")[0]
    content = responses[status]["content"]
    assert content_type in content, f"{method} {path}: {content_type} is not documented"
    if content_type.endswith("json") and content_type != "application/x-ndjson":
        schema = {**content[content_type]["schema"], "components": api["components"]}
        jsonschema.Draft202012Validator(schema).validate(response.json())
    return route.name


def _is_most_exact(template: str, path: str) -> bool:
    """Whether a route is the one for a path, where a name in another route's path would take it too."""
    exact = {route.path_format for route in route_table() if "{" not in route.path_format}
    return template == path or path not in exact
