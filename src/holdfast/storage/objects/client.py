"""Clients of obstore: made when they are first needed, patient but not for ever, and of one process."""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.errors import ClosedError, InvalidSettingsError, ObjectStoreError, ObjectStoreUnavailableError
from holdfast.installation import missing_extra
from holdfast.storage.objects.urls import Place, read_endpoint

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


if TYPE_CHECKING:
    import types

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


PATIENCE: Final = Patience()
#: Up to what size what is sent has a client of its own. Larger objects are given the time of the whole.
_SIZES: Final = (1024 * 1024, 8 * 1024 * 1024)

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

    def obstore(self) -> types.ModuleType:
        """The library, unless this is a fork of the process that began to use it."""
        if _started and os.getpid() not in _started:
            raise ClosedError(
                f"the object store {self._place.url} was used by process {_started[0]} before it forked, and its "
                "client does not survive a fork; start processes with 'spawn'"
            )
        try:
            import obstore  # noqa: PLC0415 - slow to import, and only needed where there is a bucket
        except ImportError as problem:
            raise missing_extra(f"the object store {self._place.url}", "objects") from problem
        if not _started:
            _started.append(os.getpid())
        return obstore

    def get(self, sending: int = 0) -> Any:
        """A client to send as many bytes with."""
        self.obstore()
        silence = self._silence(sending)
        with self._lock:
            if silence not in self._made:
                self._made[silence] = self._connect(silence)
            return self._made[silence]

    def _silence(self, sending: int) -> float:
        smallest, *larger = _SIZES
        if sending <= smallest:
            return self.patience.silence
        size = next((size for size in larger if sending <= size), None)
        return self.patience.whole if size is None else self.patience.silence + size / self.patience.slowest

    def _connect(self, silence: float) -> Any:
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415

        scheme, bucket, prefix = self._place
        makers: dict[str, Any] = {"s3": S3Store, "az": AzureStore, "gs": GCSStore}
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.patience.connect),
            "read_timeout": timedelta(seconds=silence),
            "timeout": timedelta(seconds=max(self.patience.whole, silence)),
            "allow_http": (self.endpoint or "").lower().startswith("http://"),
        }
        try:
            return makers[scheme](
                bucket,
                prefix=prefix or None,
                config=_config(scheme),
                client_options=options,
                retry_config=_retry_config(self.patience),
            )
        except (BaseError, ValueError) as problem:
            raise InvalidSettingsError(
                f"the object store {self._place.url} cannot be opened: {shorten(str(problem))}; "
                "check the credentials and the region in the environment"
            ) from None


def _config(scheme: str) -> dict[str, Any]:
    """What is not left to the client: that S3 is sent a checksum of all it is to keep, and refuses anything else."""
    if scheme == "s3" and not os.environ.get("AWS_CHECKSUM_ALGORITHM"):
        return {"checksum_algorithm": "SHA256"}
    return {}


def _retry_config(patience: Patience) -> RetryConfig:
    first = timedelta(seconds=patience.pause)
    return {
        "max_retries": patience.retries,
        "retry_timeout": timedelta(seconds=patience.trying),
        "backoff": {"init_backoff": first, "max_backoff": 10 * first, "base": 2},
    }
