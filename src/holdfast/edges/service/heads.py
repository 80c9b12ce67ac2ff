"""Heads of requests and of answers, and answers where there is no request that could be answered otherwise."""

from __future__ import annotations

import http
from collections.abc import Iterable
from typing import Final

import httptools

#: So many requests may come before the one in front of them is answered; who sends more does not wait for answers.
MAX_WAITING: Final = 16
#: Headers that say where a request ends, and for whom it is.
_FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})
_STATUS_LINES: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}".encode() for one in http.HTTPStatus}


# --- requests ---------------------------------------------------------------------------------------------------------


def make_parser(callbacks: object) -> httptools.HttpRequestParser:
    """A reader of requests, which says what it finds to ``on_url`` and so on."""
    made = httptools.HttpRequestParser(callbacks)
    # What comes after a request that ends the connection is no error: it is not read.
    made.set_dangerous_leniencies(lenient_data_after_close=True)
    return made


def read_framing(headers: list[tuple[bytes, bytes]]) -> tuple[int, int, int, bool]:
    """How many hosts a request names, its codings (more than 1: some that are unknown), the length of its body, and
    whether its caller waits to be told to send that.
    """
    hosts = codings = length = 0
    expects_continue = False
    for name, value in headers:
        if name not in _FRAMING:
            continue
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value.lstrip(b"0")[:20] or 0)  # the parser has seen that it is a number
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
        else:
            codings += 1 if value.lower() == b"chunked" else 2
    return hosts, codings, length, expects_continue


def split_url(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query of what a request is for."""
    if url[:1] == b"/" and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""


# --- answers ----------------------------------------------------------------------------------------------------------


def make_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, int | None, bool]:
    """The head of an answer without its end, how long the headers say that the body is, and whether the connection may
    go on. How a connection ends and how a body is coded is said by who writes them.
    """
    lines, length, keep_alive = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status], None, True
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"connection" and value.lower() == b"close":
            keep_alive = False
            continue
        elif name == b"transfer-encoding":
            continue
        lines.append(name + b": " + value)
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
        raise RuntimeError("a header has a line break, which would begin another header")
    return head, length, keep_alive


def say_plainly(status: str, said: str, headers: str = "") -> bytes:
    """A whole answer where no page can be made of it: to what is no request yet, or where the application failed."""
    head = f"HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-type: text/plain\r\ncontent-length: {len(said)}"
    return f"{head}\r\n\r\n{said}".encode()


NO_HTTP: Final = say_plainly("400 Bad Request", "This is no HTTP request.")
NO_HOST: Final = say_plainly("400 Bad Request", "The request must name one host.")
TOO_SLOW: Final = say_plainly("408 Request Timeout", "The request did not arrive in time.")
LARGE: Final = say_plainly(
    "431 Request Header Fields Too Large", "The address and the headers of the request come to more than 64 KiB."
)
VERSION: Final = say_plainly("505 HTTP Version Not Supported", "Of HTTP, versions 1.0 and 1.1 are known here.")
CODING: Final = say_plainly("501 Not Implemented", "Of transfer codings only chunked is known, once.")
NO_PROXY: Final = say_plainly("501 Not Implemented", "CONNECT is for proxies, and this is none.")
MUCH: Final = say_plainly(
    "429 Too Many Requests",
    f"More than {MAX_WAITING} requests, or a large body, were sent before an answer came; wait for answers.",
)
FULL: Final = say_plainly("503 Service Unavailable", "All connections are taken; try again.", "retry-after: 1\r\n")
