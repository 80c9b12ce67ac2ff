"""Clients of obstore: made when they are first needed, patient but not for ever, and of one process."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.errors import ClosedError, InvalidSettingsError
from holdfast.installation import missing_extra
from holdfast.storage.objects.errors import shorten
from holdfast.storage.objects.urls import Place, read_endpoint

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
