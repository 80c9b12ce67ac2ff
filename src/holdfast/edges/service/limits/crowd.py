"""How many requests are answered at once."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.core.errors import RateLimitedError
from holdfast.edges.service.asgi import refuse


class CrowdLimit:
    """Refuses with 429 what would be one too many; a request counts until all that it set off has ended."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._inside >= self._most:
            problem = RateLimitedError(
                f"{self._most:,} requests are being answered already (HOLDFAST_REQUESTS_AT_ONCE); try again in a moment"
            )
            await refuse(scope, send, problem, wait_seconds=1, close=True)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
