"""A client of an application in the same process and thread: each request is carried out when it is made."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import httpx
from starlette.types import ASGIApp


class Client:
    """Sends requests to an application, one at a time. Errors that an application lets through are raised here too,
    unless ``lenient``: then they are the response that a server's client would see.
    """

    def __init__(self, app: ASGIApp, *, lenient: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=not lenient), base_url="http://localhost"
        )

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._http.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}), **options)

    def put(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("PUT", path, json=body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def together(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        """Several requests at once."""

        async def send() -> list[httpx.Response]:
            return await asyncio.gather(*(self._http.request(m, path, **options) for m, path, options in requests))

        return self._runner.run(send())

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()
