"""The client of a bucket (obstore): made when it is first needed, patient but not for ever, of one process; and what
its errors mean in Holdfast's words: what to do about them, and whether to try again.
"""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.errors import ClosedError, InvalidSettingsError, ObjectStoreError, ObjectStoreUnavailableError
from holdfast.installation import missing_extra
from holdfast.storage.objects.urls import Place, read_endpoint

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig


class Patience(NamedTuple):
    """How long a bucket is waited for, in seconds.

    A request that fails in passing is made again after a ``pause``, then after longer ones, up to ``retries`` times
    and no later than ``trying`` after the first: so it is answered, or given up, within ``trying + silence``. A server
    is silent while it is sent something, which takes longer the larger it is: ``slowest`` bytes a second are assumed.
    """

    connect: float = 3
    silence: float = 8
    whole: float = 120
    retries: int = 4
    trying: float = 15
    pause: float = 0.2
    slowest: int = 256 * 1024


#: Up to what size what is sent has a client of its own. Larger objects are given the time of the whole.
SIZES: Final = (1024 * 1024, 8 * 1024 * 1024)

#: The process in which obstore started its threads; in a fork of it every call would wait for them for ever.
_started: list[int] = []


class Clients:
    """The clients of one place; nothing is loaded or connected before the first is asked for."""

    def __init__(self, place: Place, patience: Patience) -> None:
        self.patience = patience
        self.endpoint = read_endpoint(place.scheme, os.environ)
        self._place = place
        self._made: dict[float, Any] = {}
        self._lock = threading.Lock()

    def get(self, sending: int = 0) -> Any:
        """A client to send as many bytes with; ``ClosedError`` in a fork of the process that used one."""
        if _started and os.getpid() not in _started:
            raise ClosedError(
                f"the object store {self._place.url} was used by process {_started[0]} before it forked, and its "
                "client does not survive a fork; start processes with 'spawn'"
            )
        smallest, largest = SIZES
        silence = self.patience.silence
        if sending > smallest:
            silence = self.patience.whole if sending > largest else silence + largest / self.patience.slowest
        with self._lock:
            if silence not in self._made:
                self._made[silence] = self._connect(silence)
            return self._made[silence]

    def _connect(self, silence: float) -> Any:
        try:
            from obstore import exceptions, store  # noqa: PLC0415 - slow, and only needed where there is a bucket
        except ImportError as problem:
            raise missing_extra(f"the object store {self._place.url}", "objects") from problem
        _started[:] = [os.getpid()]
        scheme, bucket, prefix = self._place
        makers: dict[str, Any] = {"s3": store.S3Store, "az": store.AzureStore, "gs": store.GCSStore}
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.patience.connect),
            "read_timeout": timedelta(seconds=silence),
            "timeout": timedelta(seconds=max(self.patience.whole, silence)),
            "allow_http": (self.endpoint or "").lower().startswith("http://"),
        }
        first = timedelta(seconds=self.patience.pause)
        retries: RetryConfig = {
            "max_retries": self.patience.retries,
            "retry_timeout": timedelta(seconds=self.patience.trying),
            "backoff": {"init_backoff": first, "max_backoff": 10 * first, "base": 2},
        }
        # S3 is sent a checksum of all that it is to keep, and refuses anything else.
        is_checked = scheme == "s3" and not os.environ.get("AWS_CHECKSUM_ALGORITHM")
        config = {"checksum_algorithm": "SHA256"} if is_checked else {}
        try:
            return makers[scheme](
                bucket, prefix=prefix or None, config=config, client_options=options, retry_config=retries
            )
        except (exceptions.BaseError, ValueError) as problem:
            raise InvalidSettingsError(
                f"the object store {self._place.url} cannot be opened: {shorten(str(problem))}; "
                "check the credentials and the region in the environment"
            ) from None


# --- errors -----------------------------------------------------------------------------------------------------------

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
_CLOCK: Final = "this machine's clock is too far from the server's ({said}); set it"
_EXPIRED: Final = "the credentials have expired ({said}); renew them"
_UNKNOWN: Final = "the server does not know these credentials ({said}); check them, in the environment"
_ELSEWHERE: Final = "the bucket {bucket} is in another region ({said}); set AWS_REGION to {region}"
_DENIED: Final = "not allowed ({said}); check the credentials, and that they may read, write, list and delete"
_INCAPABLE: Final = "the server cannot do this ({said}); use another"
#: What a server has against a request, by its code or else its status, and what can be done about it.
_REFUSALS: Final[dict[str | int | None, str]] = {
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"), _EXPIRED),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "AuthenticationFailed"), _UNKNOWN),
    **dict.fromkeys(
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"), _ELSEWHERE
    ),
    **dict.fromkeys(("AccessDenied", 401, 403), _DENIED),
    **dict.fromkeys(_FOR_GOOD, _INCAPABLE),
    404: "there is no such bucket, {bucket} ({said}); create it, or name another in {called}",
}
_REFUSED: Final = "the server refused ({said}); check the bucket, the region and the credentials"
#: What the client says of a request that was never answered, in the second part of its text, which is not shown.
#: What is invalid stays so; the others may be answered later.
_UNANSWERED: Final = {
    "InvalidCertificate(": "the server's certificate is not trusted; check its address, and this machine's "
    "certificates and clock",
    "InvalidMessage(": "the server does not speak TLS; write its address with http://, or correct it",
    "dns error": "the server's name was not found; check the network, the region and the endpoint, and try again",
    "kind: Timeout": "the server did not answer in time; try again later",
    "TimedOut": "the server did not answer in time; try again later",
    "": "the server did not answer; check the network and try again",
}


def explain(problem: Exception, doing: str, bucket: str, called: str = "its URL") -> ObjectStoreError:
    """The error to raise for one of the client's; ``doing`` says what could not be done, and where; ``called`` is the
    name of the setting that names the bucket.
    """
    text = str(problem)
    found, named = _STATUS.search(text), _CODE.search(text)
    status, code = found and int(found[1]), named and (named[1] or named[2])
    said = " ".join(str(part) for part in (status, code) if part)
    is_at_fault = status is not None and status not in _FOR_GOOD and (status >= 500 or status in _PASSING)
    if code in _PASSING_CODES or is_at_fault:
        return ObjectStoreUnavailableError(f"{doing}: the server is not ready ({said}); try again later")
    if any(mark in text.partition(" - ")[0] for mark in _MACHINE):
        return ObjectStoreError(
            f"{doing}: there are no credentials in the environment, and none of this machine's own; "
            "set the variables of the cloud (AWS_*, AZURE_*, GOOGLE_*); files with profiles are not read"
        )
    if said:
        region = _REGION.search(text)
        words = _REFUSALS.get(code) or _REFUSALS.get(status, _REFUSED)
        facts = {"said": said, "bucket": bucket, "called": called, "region": region[1] if region else "it"}
        return ObjectStoreError(f"{doing}: {words.format(**facts)}")
    if "redirect without LOCATION" in text:
        return ObjectStoreError(f"{doing}: the bucket is in another region; set AWS_REGION to it")
    if "HTTP error" not in text:
        return ObjectStoreError(f"{doing}: {shorten(text)}")
    mark = next(mark for mark in _UNANSWERED if mark in text)
    error = ObjectStoreError if mark.startswith("Invalid") else ObjectStoreUnavailableError
    return error(f"{doing}: {_UNANSWERED[mark]}")


def shorten(text: str) -> str:
    """The first line of a message, without what follows the ``?`` of a URL: it may be a signature."""
    return _QUERY.sub("", text.partition("\n")[0])[:200]
