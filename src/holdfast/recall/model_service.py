"""OpenAI-compatible services: which one a setting names, with which key, and how it is asked.

A request is bounded in time, attempts, pauses and the size of its answer. The API key goes into the request's header
and nowhere else: not into a message, nor a ``repr``. The extra ``openai`` brings the HTTP client.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.core.errors import HoldfastError, InvalidSettingsError
from holdfast.installation import missing_extra

if TYPE_CHECKING:
    import ssl

TIMEOUT: Final = 30.0
"""Seconds that one attempt may take."""
ATTEMPTS: Final = 4
"""How often a request is sent at most."""
MAX_WAIT = 10.0
"""Seconds between two attempts at most, whatever the service asks for."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
KEY_NAMES: Final = ("HOLDFAST_OPENAI_API_KEY", "OPENAI_API_KEY")

_FIRST_WAIT: Final = 0.5
_MAY_PASS: Final = frozenset({408, 425, 429})
_OPENAI_HOST: Final = "api.openai.com"
_MOST_SHOWN: Final = 65_536
_HINTS: Final = {
    401: "; check HOLDFAST_OPENAI_API_KEY",
    403: "; check HOLDFAST_OPENAI_API_KEY",
    404: "; check the address",
}


class Target(NamedTuple):
    """A model and the OpenAI-compatible service that runs it."""

    model: str
    base_url: str
    """Without a slash at the end."""


def parse_target(text: str) -> Target | None:
    """The target that ``<model>@<base_url>`` names; ``None`` if it is not of that form.

    The address is http or https with a host, and carries neither credentials nor a query.
    """
    match = re.fullmatch(r"(\S+?)@(https?://\S+)", text, re.ASCII)
    if match is None:
        return None
    model, url = match.groups()
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # a port that is no number, or a broken IPv6 address
        return None
    if not usable or parts.query or parts.fragment or not url.isascii():
        return None
    return Target(model, url.rstrip("/"))


def open_service(
    text: str, *, failed: type[HoldfastError], unavailable: type[HoldfastError], timeout: float = TIMEOUT
) -> ModelService | None:
    """The service that ``<model>@<base_url>`` names, with the key of the environment; ``None`` for any other form."""
    target = parse_target(text)
    if target is None:
        return None
    key = find_api_key(os.environ, target.base_url)
    return ModelService(target, api_key=key, failed=failed, unavailable=unavailable, timeout=timeout)


def find_api_key(environ: Mapping[str, str], base_url: str) -> str | None:
    """The key for a service: ``HOLDFAST_OPENAI_API_KEY``, or for OpenAI itself also ``OPENAI_API_KEY``.

    ``None`` without either (a local service needs none). A key that was meant for OpenAI is sent nowhere else.
    """
    for name in KEY_NAMES:
        key = environ.get(name, "").strip()
        if not key or (name != KEY_NAMES[0] and urlsplit(base_url).hostname != _OPENAI_HOST):
            continue
        if not (key.isascii() and key.isprintable()):
            raise InvalidSettingsError(
                f"{name} has characters that an HTTP header cannot carry; set it to the plain key"
            )
        return key
    return None


class ModelService:
    """A model behind an OpenAI-compatible service, which is posted JSON and answers with JSON.

    A refused or broken connection, and a status that may pass (408, 425, 429, 5xx), is tried again after a growing
    pause, or after what ``Retry-After`` asks for, up to ``MAX_WAIT``. An attempt that ran into the time limit is not.
    Redirects are refused: they would carry the key elsewhere. Proxies of the environment are used.

    Raises ``unavailable`` where the same call may succeed later, and ``failed`` for everything else.
    """

    def __init__(
        self,
        target: Target,
        *,
        api_key: str | None,
        failed: type[HoldfastError],
        unavailable: type[HoldfastError],
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if find_spec("httpx") is None:
            raise missing_extra("a service that speaks OpenAI's protocol", "openai")
        self.model = target.model
        self.name = f"openai:{target.model}@{target.base_url}"
        self._base_url = target.base_url
        self._api_key = api_key
        self._failed = failed
        self._unavailable = unavailable
        self._timeout = timeout
        self._sleep = sleep

    def post(self, path: str, body: object) -> Any:
        """The decoded answer to ``body``, posted to ``path`` (which begins with a slash) below the base address."""
        url = self._base_url + path
        for attempt in range(1, ATTEMPTS):
            try:
                return self._send(url, body)
            except _MayPassError as error:
                self._sleep(_pause(attempt, error.retry_after))
        try:
            return self._send(url, body)
        except _MayPassError as error:
            raise self._unavailable(f"{url} {error} ({ATTEMPTS} attempts); try again later") from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import httpx  # noqa: PLC0415 - only who asks a service pays for its import

        return httpx.create_ssl_context()

    def _send(self, url: str, body: object) -> Any:
        import httpx  # noqa: PLC0415

        headers = {"Accept": "application/json", "User-Agent": "holdfast"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        deadline = time.monotonic() + self._timeout
        try:
            with (
                httpx.Client(verify=self._tls, timeout=self._timeout, headers=headers) as client,
                client.stream("POST", url, json=body) as response,
            ):
                answer = self._read(url, response.iter_bytes(), deadline)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise self._unavailable(f"{url} did not answer within {self._timeout:g} s; try again later") from error
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._failed(f"{url} has a certificate that is not trusted: {error}") from error
            raise _MayPassError(f"cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            raise _MayPassError(f"broke the connection: {type(error).__name__}") from error
        if response.status_code in _MAY_PASS or response.status_code >= 500:
            pause = _retry_after(response.headers.get("Retry-After"))
            raise _MayPassError(f"answered {response.status_code}{self._quote(answer)}", pause)
        if not response.is_success:
            hint = _HINTS.get(response.status_code, "")
            raise self._failed(f"{url} answered {response.status_code}{self._quote(answer)}{hint}")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise self._failed(f"{url} did not answer with JSON, but with {self._excerpt(answer, 40)!r}") from error

    def _read(self, url: str, chunks: Iterable[bytes], deadline: float) -> bytes:
        """The whole answer; a service that sends it in drops, or without end, is cut off."""
        answer = bytearray()
        for chunk in chunks:
            answer += chunk
            if len(answer) > MAX_ANSWER_BYTES:
                raise self._failed(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
        return bytes(answer)

    def _quote(self, answer: bytes) -> str:
        """What the service said about its refusal, shortened."""
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            answer = str(json.loads(answer)["error"]["message"]).encode()
        return f": {self._excerpt(answer, 200)}" if answer.strip() else ""

    def _excerpt(self, answer: bytes, length: int) -> str:
        """The beginning of an answer on one line, without the key, which some services repeat."""
        text = answer[:_MOST_SHOWN].decode("utf-8", "replace")
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        return " ".join(text.split())[:length]


class _MayPassError(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def _pause(attempt: int, retry_after: float | None) -> float:
    """Seconds to wait after the given attempt; without the service's word it doubles, with some chance in it."""
    if retry_after is not None:
        return min(retry_after, MAX_WAIT)
    return min(_FIRST_WAIT * (1 << (attempt - 1)), MAX_WAIT) * random.uniform(0.5, 1)  # noqa: S311  (spreads callers)


def _retry_after(header: str | None) -> float | None:
    """The seconds that a ``Retry-After`` header asks for, in either of its forms; ``None`` if it makes no sense."""
    if header is None:
        return None
    header = header.strip()
    if re.fullmatch(r"\d{1,9}", header, re.ASCII):
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - time.time())
