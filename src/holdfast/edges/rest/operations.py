"""How a route is declared: what it needs, what it answers, and what can go wrong, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import cleandoc, getdoc
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from holdfast.core.access import Right
from holdfast.core.content import to_json
from holdfast.edges.rest.errors import documented
from holdfast.edges.rest.guard import LONG, PREFIX, REACH, RIGHT, GuardedRoute
from holdfast.edges.rest.idempotency import WRITES
from holdfast.edges.rest.rights import Reach

_Handler = TypeVar("_Handler", bound=Callable[..., Response])


class Routes:
    """The routes of one resource."""

    def __init__(self, tag: str, about: str) -> None:
        self.tag = tag
        self.about = about
        self.router = APIRouter(prefix=PREFIX, route_class=GuardedRoute)

    def add(
        self,
        method: str,
        path: str,
        right: Right,
        reach: Reach,
        *,
        answer: type[BaseModel] | Mapping[str, Any],
        status: int = 200,
        errors: Iterable[int] = (),
        long: bool = False,
    ) -> Callable[[_Handler], _Handler]:
        """Declare a function as a route; its name becomes the operation's id, and its docstring what is said of it.

        ``answer`` is the model of what it answers, or (of what is no JSON document) what the documentation says of it.
        """
        wrong = {*errors, 409} if method in WRITES else set(errors)  # of a write, one like it may be at work
        fine: dict[str, Any] = {"model": answer} if isinstance(answer, type) else dict(answer)

        def register(handler: _Handler) -> _Handler:
            summary, description = _summary_and_description(handler)
            self.router.add_api_route(
                path,
                handler,
                methods=[method],
                operation_id=handler.__name__,
                summary=summary,
                description=description,
                tags=[self.tag],
                status_code=status,
                response_model=None,
                response_class=JSONResponse if isinstance(answer, type) else Response,
                responses={status: {"description": "Done.", **fine}, **documented(wrong)},
                openapi_extra={RIGHT: right.value, REACH: reach.value, **({LONG: True} if long else {})},
            )
            return handler

        return register


def _summary_and_description(handler: Callable[..., Any]) -> tuple[str, str]:
    summary, _, more = cleandoc(getdoc(handler) or "").partition("\n\n")
    return " ".join(summary.split()).rstrip("."), more


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document. What the engine gives is JSON already; nothing of it is looked at again."""
    return Response(to_json(value).encode(), status, dict(headers or {}), media_type="application/json")
