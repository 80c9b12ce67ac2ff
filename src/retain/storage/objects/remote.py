"""Objects in a bucket of S3, Azure or Google Cloud, through obstore."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from retain.core.errors import (
    ClosedError,
    InvalidSettingsError,
    MissingExtraError,
    ObjectMissingError,
    ObjectStoreError,
)
from retain.storage.objects.answers import explain, is_panic, shorten
from retain.storage.objects.names import check_name, check_prefix, is_name
from retain.storage.objects.places import Place, read_endpoint
from retain.storage.objects.probe import try_out

if TYPE_CHECKING:
    import types

    from obstore.store import ClientConfig, RetryConfig

#: A server that is not there is given up after 3 tries to connect or 6 s, whichever comes first; one that is silent,
#: after 8 s. So nothing waits much longer than 10 s, and an answer that keeps coming may take two minutes.
_CONNECT: Final = timedelta(seconds=3)
_SILENCE: Final = timedelta(seconds=8)
_WHOLE: Final = timedelta(seconds=120)
_RETRY: Final[RetryConfig] = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=6),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=1), "base": 2},
}
#: While a large object is sent the server is silent; it is given the time of the whole.
_LARGE_BYTES: Final = 1024 * 1024
_PAGE: Final = 1_000

#: The process in which obstore started its threads; in a fork of it every call would wait for them for ever.
_started: list[int] = []


class RemoteObjects:
    """The object store of a bucket and a prefix; credentials come from the environment.

    Nothing is connected until the first call. A put is one request, never parts that a crash could leave in the
    bucket, unseen.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._endpoint = read_endpoint(place.scheme, os.environ)
        self._clients: dict[timedelta, Any] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._place.url

    def prepare(self) -> None:
        """A bucket is made by whoever pays for it."""

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        with self._translated(f"write {name}"):
            client = self._client(_WHOLE if len(data) > _LARGE_BYTES else _SILENCE)
            self._obstore().put(client, name, data, use_multipart=False)

    def get(self, name: str) -> bytes:
        check_name(name)
        with self._translated(f"read {name}"):
            try:
                return bytes(self._obstore().get(self._client(), name).bytes())
            except FileNotFoundError:
                self._require_bucket()
        raise ObjectMissingError(f"there is no object {name} in {self.url}; was it deleted by hand, or by a rule?")

    def delete(self, names: Sequence[str]) -> None:
        paths = [check_name(name) for name in names]
        if not paths:
            return
        with self._translated("delete objects"):
            try:
                self._obstore().delete(self._client(), paths)
            except FileNotFoundError:  # of one object, where the cloud is strict (Azure, Google), or of the bucket
                self._require_bucket()
                for path in paths:
                    self._delete_one(path)

    def names(self, prefix: str = "") -> Iterator[str]:
        return self._list(check_prefix(prefix))

    def check(self) -> None:
        try_out(self)

    # --- requests ------------------------------------------------------------------------------------------------

    def _delete_one(self, path: str) -> None:
        try:
            self._obstore().delete(self._client(), path)
        except FileNotFoundError:
            return

    def _list(self, prefix: str) -> Iterator[str]:
        with self._translated("list objects"):
            pages = iter(self._obstore().list(self._client(), prefix or None, chunk_size=_PAGE))
        while True:
            with self._translated("list objects"):
                page = next(pages, None)
            if page is None:
                return
            for found in page:
                if is_name(found["path"]):  # anything else is not ours
                    yield found["path"]

    def _require_bucket(self) -> None:
        """Raise unless the bucket is there: one that is gone also says 'not found' to everything."""
        next(iter(self._obstore().list(self._client(), chunk_size=1)), None)

    # --- the client ----------------------------------------------------------------------------------------------

    def _obstore(self) -> types.ModuleType:
        """The library, unless this is a fork of the process that began to use it."""
        if _started and os.getpid() not in _started:
            raise ClosedError(
                f"the object store {self.url} was used by process {_started[0]} before it forked, and its client does "
                "not survive a fork; start processes with 'spawn'"
            )
        try:
            import obstore  # noqa: PLC0415 - slow to import, and only needed where there is a bucket
        except ImportError as problem:
            raise MissingExtraError(
                f"the object store {self.url} needs an extra: pip install 'retain[objects]'"
            ) from problem
        if not _started:
            _started.append(os.getpid())
        return obstore

    def _client(self, silence: timedelta = _SILENCE) -> Any:
        self._obstore()
        with self._lock:
            if silence not in self._clients:
                self._clients[silence] = self._connect(silence)
            return self._clients[silence]

    def _connect(self, silence: timedelta) -> Any:
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415

        scheme, bucket, prefix = self._place
        makers: dict[str, Any] = {"s3": S3Store, "az": AzureStore, "gs": GCSStore}
        options: ClientConfig = {
            "connect_timeout": _CONNECT,
            "read_timeout": silence,
            "timeout": _WHOLE,
            "allow_http": (self._endpoint or "").lower().startswith("http://"),
        }
        try:
            return makers[scheme](bucket, prefix=prefix or None, client_options=options, retry_config=_RETRY)
        except (BaseError, ValueError) as problem:
            raise InvalidSettingsError(
                f"the object store {self.url} cannot be opened: {shorten(str(problem))}; "
                "check the credentials and the region in the environment"
            ) from None

    # --- errors --------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Errors in our words. The client's own text may hold a signed URL, so it is not shown, nor chained."""
        try:
            yield
        except Exception as problem:
            if type(problem).__module__ != "obstore.exceptions" and not isinstance(problem, FileNotFoundError):
                raise
            raise explain(problem, f"cannot {doing} in {self.url}") from None
        except BaseException as problem:
            if is_panic(problem):
                raise ObjectStoreError(
                    f"cannot {doing} in {self.url}: the client broke off ({shorten(str(problem))}); "
                    "check the region and the endpoint in the environment"
                ) from None
            raise
