"""JSON over HTTP with the standard library alone, for the services that Holdfast may be told to ask.

Bounded in every direction: time, attempts, waiting and the size of an answer. The API key goes into the request's
header and nowhere else: not into a message, nor a ``repr``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from holdfast.core.errors import HoldfastError, InvalidSettingsError

TIMEOUT = 30.0
"""Seconds that one attempt may take."""
ATTEMPTS = 4
"""How often a request is sent at most."""
MAX_WAIT = 10.0
"""Seconds between two attempts at most, whatever the service asks for."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_FIRST_WAIT = 0.5
_MAY_PASS = frozenset({408, 425, 429})
KEY_NAMES = ("HOLDFAST_OPENAI_API_KEY", "OPENAI_API_KEY")
_OPENAI_HOST = "api.openai.com"
_CHUNK = 65_536


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


class JsonClient:
    """Posts JSON to one service and returns its JSON answer.

    A refused or broken connection, and a status that may pass (408, 425, 429, 5xx), is tried again after a growing
    pause, or after what ``Retry-After`` asks for, up to ``MAX_WAIT``. An attempt that ran into the time limit is not.
    Redirects are refused: they would carry the key elsewhere. Proxies of the environment are used.

    Raises ``unavailable`` where the same call may succeed later, and ``failed`` for everything else.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        failed: type[HoldfastError],
        unavailable: type[HoldfastError],
        timeout: float = TIMEOUT,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._failed = failed
        self._unavailable = unavailable
        self._timeout = timeout
        self._attempts = attempts
        self._sleep = sleep
        self._open = urllib.request.build_opener(_NoRedirects).open

    def post(self, path: str, body: object) -> Any:
        """The decoded answer to ``body``, posted to ``path`` (which begins with a slash) below the base address."""
        url = self._base_url + path
        data = json.dumps(body).encode()
        for attempt in range(1, self._attempts + 1):
            try:
                return self._decode(url, self._send(url, data))
            except _MayPassError as error:
                if attempt == self._attempts:
                    raise self._unavailable(f"{url} {error} ({attempt} attempts); try again later") from error
                self._sleep(_pause(attempt, error.retry_after))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send(self, url: str, data: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310  (parse_target lets in http(s))
        deadline = time.monotonic() + self._timeout
        try:
            with self._open(request, timeout=self._timeout) as response:
                return self._read(url, response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                self._refuse(url, error)
        except TimeoutError as error:
            raise self._unavailable(f"{url} did not answer within {self._timeout:g} s; try again later") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._unavailable(f"{url} did not answer within {self._timeout:g} s; try again later") from error
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise self._failed(f"{url} has a certificate that is not trusted: {error.reason}") from error
            raise _MayPassError(f"cannot be reached: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _MayPassError(f"broke the connection: {type(error).__name__}") from error

    def _read(self, url: str, response: http.client.HTTPResponse, deadline: float) -> bytes:
        """The whole answer; a service that sends it in drops, or without end, is cut off."""
        answer = bytearray()
        while chunk := response.read1(_CHUNK):
            answer += chunk
            if len(answer) > MAX_ANSWER_BYTES:
                raise self._failed(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
        promised = response.headers.get("Content-Length", "")
        if promised.isdecimal() and len(answer) < int(promised):  # ``read1`` ends quietly where the connection does
            raise http.client.IncompleteRead(bytes(answer))
        return bytes(answer)

    def _refuse(self, url: str, error: urllib.error.HTTPError) -> NoReturn:
        said = self._what_it_said(error)
        if error.code in _MAY_PASS or error.code >= 500:
            retry_after = _retry_after(error.headers.get("Retry-After"))
            raise _MayPassError(f"answered {error.code}{said}", retry_after) from None
        hint = {
            401: "; check HOLDFAST_OPENAI_API_KEY",
            403: "; check HOLDFAST_OPENAI_API_KEY",
            404: "; check the address",
        }
        raise self._failed(f"{url} answered {error.code}{said}{hint.get(error.code, '')}") from None

    def _what_it_said(self, error: urllib.error.HTTPError) -> str:
        """The service's own words, shortened (some services repeat the key in them)."""
        text = ""
        with contextlib.suppress(OSError, http.client.HTTPException):
            text = error.read(_CHUNK).decode("utf-8", "replace")
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            text = str(json.loads(text)["error"]["message"])
        return f": {self._excerpt(text, 200)}" if text.strip() else ""

    def _decode(self, url: str, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            text = answer[:_CHUNK].decode("utf-8", "replace")
            raise self._failed(f"{url} did not answer with JSON, but with {self._excerpt(text, 40)!r}") from error

    def _excerpt(self, text: str, length: int) -> str:
        """The beginning of ``text`` on one line, without the key."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        return " ".join(text.split())[:length]


class _MayPassError(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


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
