"""What the client of a bucket reports, in Holdfast's words: what to do about it, and whether to try again."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.errors import ObjectStoreError, ObjectStoreUnavailableError

_STATUS: Final = re.compile(r"status code: (\d{3})")
#: A code as a server's answer has it, or as the client tells it of one object among many.
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>|\(code: (\w{1,60})\)")
_REGION: Final = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_QUERY: Final = re.compile(r"\?\S+")
#: Where clouds keep the credentials of their own machines: asked when the environment has none.
_MACHINE: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
#: Too early, too many, and everything that is the server's own fault but the one that stays so.
_PASSING: Final = frozenset({408, 425, 429})
_FOR_GOOD: Final = frozenset({501, 505})
#: Codes that say the same under whatever status they come: 400, 200, or none.
_PASSING_CODES: Final = frozenset(
    {
        "BadDigest", "InternalError", "NoSuchUpload", "OperationAborted", "OperationTimedOut", "RequestTimeout",
        "ServerBusy", "ServiceUnavailable", "SlowDown", "TooManyRequests", "XAmzContentSHA256Mismatch",
    }
)  # fmt: skip
_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_UNKNOWN: Final = frozenset({"InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "AuthenticationFailed"})
_ELSEWHERE: Final = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
)


def explain(problem: Exception, doing: str, bucket: str, called: str = "its URL") -> ObjectStoreError:
    """The error to raise for one of the client's; ``doing`` says what could not be done, and where; ``called`` is what
    the setting goes by that names the bucket.
    """
    text = str(problem)
    status = read_status(text)
    code = read_code(text)
    if _passes(status, code):
        return ObjectStoreUnavailableError(f"{doing}: the server is not ready ({_said(status, code)}); try again later")
    if any(mark in text.partition(" - ")[0] for mark in _MACHINE):
        return ObjectStoreError(
            f"{doing}: there are no credentials in the environment, and none of this machine's own; "
            "set the variables of the cloud (AWS_*, AZURE_*, GOOGLE_*); files with profiles are not read"
        )
    if status is None and code is None:
        return _without_answer(text, doing)
    return ObjectStoreError(f"{doing}: {_refusal(status, code, text, bucket, called)}")


def read_status(text: str) -> int | None:
    """The status of an answer, such as 404; ``None`` if there was none."""
    found = _STATUS.search(text)
    return None if found is None else int(found[1])


def read_code(text: str) -> str | None:
    """The code of an answer, such as ``NoSuchBucket``."""
    found = _CODE.search(text)
    return None if found is None else found[1] or found[2]


def shorten(text: str) -> str:
    """The first line of a message, without what follows the ``?`` of a URL: it may be a signature."""
    return _QUERY.sub("", text.partition("\n")[0])[:200]


def is_panic(problem: BaseException) -> bool:
    """Whether the client's own code broke off: it says so with an exception that is no ``Exception``."""
    return type(problem).__name__ == "PanicException"


def _passes(status: int | None, code: str | None) -> bool:
    if code in _PASSING_CODES:
        return True
    return status is not None and status not in _FOR_GOOD and (status >= 500 or status in _PASSING)


def _said(status: int | None, code: str | None) -> str:
    return " ".join(str(part) for part in (status, code) if part)


def _refusal(status: int | None, code: str | None, text: str, bucket: str, called: str) -> str:
    """What a server has against a request, and what can be done about it."""
    said = _said(status, code)
    if code in _CLOCK:
        return f"this machine's clock is too far from the server's ({said}); set it"
    if code in _EXPIRED:
        return f"the credentials have expired ({said}); renew them"
    if code in _UNKNOWN:
        return f"the server does not know these credentials ({said}); check them, in the environment"
    if code in _ELSEWHERE:
        return f"the bucket {bucket} is in another region ({said}); {_where(text)}"
    if status in (401, 403) or code == "AccessDenied":
        return f"not allowed ({said}); check the credentials, and that they may read, write, list and delete"
    if status == 404:
        return f"there is no such bucket, {bucket} ({said}); create it, or name another in {called}"
    if status in _FOR_GOOD:
        return f"the server cannot do this ({said}); use another"
    return f"the server refused ({said}); check the bucket, the region and the credentials"


def _without_answer(text: str, doing: str) -> ObjectStoreError:
    """Of what never became an answer. The client tells the cause in its second part, which is not shown."""
    if "redirect without LOCATION" in text:
        return ObjectStoreError(f"{doing}: the bucket is in another region; set AWS_REGION to it")
    if "HTTP error" not in text:
        return ObjectStoreError(f"{doing}: {shorten(text)}")
    if "InvalidCertificate(" in text:
        return ObjectStoreError(
            f"{doing}: the server's certificate is not trusted; check its address, and this machine's certificates "
            "and clock"
        )
    if "InvalidMessage(" in text:
        return ObjectStoreError(
            f"{doing}: the server does not speak TLS; write its address with http://, or correct it"
        )
    if "dns error" in text:
        return ObjectStoreUnavailableError(
            f"{doing}: the server's name was not found; check the network, the region and the endpoint, and try again"
        )
    if "kind: Timeout" in text or "TimedOut" in text:
        return ObjectStoreUnavailableError(f"{doing}: the server did not answer in time; try again later")
    return ObjectStoreUnavailableError(f"{doing}: the server did not answer; check the network and try again")


def _where(text: str) -> str:
    region = _REGION.search(text)
    return f"set AWS_REGION to {region[1]}" if region else "set AWS_REGION to it"
