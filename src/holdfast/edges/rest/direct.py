"""Requests that are answered directly: without a task and without a thread, while nothing else is at work.

What is quick costs less than a task, a thread and the messages between layers. So each layer of the service has two
ways: the usual one, which may wait, and ``answer_directly``, which may not. Both decide by the same functions. What
cannot be answered directly is ``None``, and nothing was done: the request then goes the usual way, from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, cast

from starlette.responses import Response
from starlette.types import Scope

from holdfast.edges.rest.streams import is_ndjson

#: No larger is the body of a request that may be quick, and that begins when all of it is here.
SMALL_BYTES: Final = 4 * 1024
#: The headers of a plain request. Others say that it came through a proxy, is made by a page, or may come again.
_PLAIN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "http2-settings",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-api-key",
        "x-holdfast-tenant",
        "x-request-id",
    }
)


class WholeRequest:
    """A request of which all has come, and which is small."""

    __slots__ = ("content", "headers", "lines", "record", "scope")

    def __init__(self, scope: Scope, content: bytes) -> None:
        self.scope, self.content = scope, content
        self.headers = read_headers(scope)
        self.lines = b""
        """Headers of the answer as they are sent, beside those that it has itself."""
        self.record: Callable[[], None] | None = None
        """To be called when it has been answered."""

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing, and nothing twice, that is to be looked at more closely."""
        headers, scope = self.headers, self.scope
        return (
            headers.keys() <= _PLAIN
            and len(headers) == len(scope["headers"])
            and not is_ndjson(headers.get("accept"))
            and not scope["query_string"]
        )


Directly = Callable[[WholeRequest], Response | None]


def find_direct_paths(app: object) -> Collection[bytes]:
    """The paths, as they are sent, at which an application may answer directly."""
    return cast("Collection[bytes]", getattr(app, "direct_paths", ()))


def find_direct_way(app: object) -> Directly:
    """How an application answers directly; one that cannot never does."""
    return cast("Directly", getattr(app, "answer_directly", _answer_nothing))


def _answer_nothing(_asked: WholeRequest) -> None:
    return None


def read_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request; of two with the same name, the first."""
    found: dict[str, str] = {}
    for name, value in reversed(scope["headers"]):
        found[name.decode("latin-1")] = value.decode("latin-1")
    return found
