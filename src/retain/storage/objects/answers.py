"""What the client of a bucket reports, in Retain's words: what to do about it, and whether to try again."""

from __future__ import annotations

import re
from typing import Final

from retain.core.errors import ObjectStoreError, ObjectStoreUnavailableError

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_QUERY: Final = re.compile(r"\?\S+")
#: Where clouds keep the credentials of their own machines: asked when the environment has none.
_MACHINE: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
#: Too early, too many, and everything that is the server's own fault.
_PASSING: Final = frozenset({408, 425, 429})


def explain(problem: Exception, doing: str) -> ObjectStoreError:
    """The error to raise for one of the client's; ``doing`` says what could not be done, and where."""
    text = str(problem)
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    code = _CODE.search(text)
    said = f"{status} {code[1]}" if code else str(status)
    if status is not None and (status >= 500 or status in _PASSING):
        return ObjectStoreUnavailableError(f"{doing}: the server is not ready ({said}); try again later")
    if any(mark in text.partition(" - ")[0] for mark in _MACHINE):
        return ObjectStoreError(
            f"{doing}: there are no credentials in the environment, and none of this machine's own; "
            "set the variables of the cloud (AWS_*, AZURE_*, GOOGLE_*)"
        )
    if status is None:
        if "HTTP error" in text:
            return ObjectStoreUnavailableError(f"{doing}: the server did not answer; check the network and try again")
        return ObjectStoreError(f"{doing}: {shorten(text)}")
    if status in (401, 403):
        return ObjectStoreError(
            f"{doing}: not allowed ({said}); check the credentials, and that they may read, write, list and delete"
        )
    if status == 404:
        return ObjectStoreError(f"{doing}: there is no such bucket ({said}); create it, or name another")
    return ObjectStoreError(f"{doing}: the server refused ({said}); check the bucket, the region and the credentials")


def shorten(text: str) -> str:
    """The first line of a message, without what follows the ``?`` of a URL: it may be a signature."""
    return _QUERY.sub("", text.partition("\n")[0])[:200]


def is_panic(problem: BaseException) -> bool:
    """Whether the client's own code broke off: it says so with an exception that is no ``Exception``."""
    return type(problem).__name__ == "PanicException"
