"""Objects in a bucket of S3, Azure or Google Cloud, through obstore."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdfast.core import errors
from holdfast.core.errors import quote
from holdfast.storage.objects.checks import check_conditions, check_name, check_prefix, is_name, try_out
from holdfast.storage.objects.client import Clients, Patience, explain, shorten
from holdfast.storage.objects.urls import Place, is_loopback

_PAGE: Final = 1_000
#: Whose writing an object is: to know one's own where an answer was lost. Azure takes letters and digits only.
_MARK: Final = "holdfastmark"
_TRIES: Final = 3


class RemoteObjects:
    """The object store of a bucket and a prefix; credentials come from the environment.

    Nothing is connected until the first call. What fails in passing is tried again for as long as ``Patience`` says.
    A ``put`` is one request. S3 is sent a SHA-256 with every request and keeps nothing else; the others rely on the
    connection.
    """

    def __init__(self, place: Place, patience: Patience | None = None, *, called: str = "its URL") -> None:
        self._place = place
        self._called = called
        self._clients = Clients(place, patience or Patience())

    @property
    def url(self) -> str:
        return self._place.url

    def __repr__(self) -> str:
        return f"RemoteObjects({self.url})"

    def prepare(self) -> None:
        """A bucket is made by whoever pays for it."""

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        check_name(name)
        check_conditions(absent=absent, match=match)
        if absent or match is not None:
            return self._put_if(name, data, "create" if match is None else _read_tag(match))
        with self._translate_errors(f"write {name}"):
            return _make_tag(self._clients.get(len(data)).put(name, data, use_multipart=False))

    def get(self, name: str) -> bytes:
        return self._read(name)[0]

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data, meta = self._read(name)
        return data, _make_tag(meta)

    def delete(self, names: Sequence[str]) -> None:
        paths = [check_name(name) for name in names]
        if not paths:
            return
        with self._translate_errors("delete objects"):
            client = self._clients.get()
            try:
                client.delete(paths)
            except FileNotFoundError:  # of one object, where the cloud is strict (Azure, Google), or of the bucket
                self._require_bucket()
                for path in paths:
                    with suppress(FileNotFoundError):
                        client.delete(path)

    def names(self, prefix: str = "") -> Iterator[str]:
        return (name for name, _ in self._list(check_prefix(prefix)))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._list(check_prefix(prefix))

    def check(self) -> Sequence[str]:
        tag, warnings = try_out(self)
        version = _read_tag(tag).get("version")
        if self._place.scheme != "gs" and version not in (None, "null"):  # Google numbers every object
            warnings.append(
                f"the bucket {self._place.bucket} keeps versions: what is deleted or replaced stays there; turn "
                "versioning off, or let a lifecycle rule delete old versions"
            )
        endpoint = self._clients.endpoint
        if endpoint is not None and endpoint.lower().startswith("http://") and not is_loopback(endpoint):
            warnings.append(f"{endpoint} is not encrypted: what is archived can be read on the way; use https://")
        return warnings

    # --- requests ------------------------------------------------------------------------------------------------

    def _put_if(self, name: str, data: bytes, mode: Any) -> str:
        """Write an object on a condition, once.

        A request of which the answer was lost may have been carried out: made again, it would find its own object and
        take it for another's. So each has a mark, and where the condition does not hold, the mark decides.
        """
        mark = secrets.token_hex(16)
        end = time.monotonic() + self._clients.patience.trying
        for turn in range(_TRIES):
            try:
                with self._translate_errors(f"write {name}"):
                    return self._put_marked(name, data, mode, mark)
            except errors.ObjectStoreUnavailableError:
                if turn == _TRIES - 1 or time.monotonic() >= end:
                    raise
            except errors.ConflictError:
                with self._translate_errors(f"read {name}"):
                    if mode != "create" or self._head(name) is not None:
                        raise
        raise errors.ObjectStoreUnavailableError(f"cannot write {name} in {self.url}: others are writing it; try again")

    def _put_marked(self, name: str, data: bytes, mode: Any, mark: str) -> str:
        client = self._clients.get(len(data))
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - the client has loaded it

        try:
            return _make_tag(client.put(name, data, mode=mode, attributes={_MARK: mark}))
        except (AlreadyExistsError, PreconditionError):
            found = self._head(name)
        if found is not None and found["mark"] == mark:
            return _make_tag(found)
        if mode == "create":
            raise errors.ConflictError(f"there is an object {name} in {self.url} already; nothing was written")
        raise errors.StaleError(
            f"the object {name} in {self.url} was changed by another writer; read it again and retry"
        )

    def _head(self, name: str) -> dict[str, Any] | None:
        """What a bucket knows of an object, and the mark of who wrote it; ``None`` if there is none."""
        try:
            found = self._clients.get().get(name, options={"head": True})
        except FileNotFoundError:
            self._require_bucket()
            return None
        return {**found.meta, "mark": found.attributes.get(_MARK)}

    def _read(self, name: str) -> tuple[bytes, Any]:
        check_name(name)
        with self._translate_errors(f"read {name}"):
            try:
                found = self._clients.get().get(name)
            except FileNotFoundError:
                self._require_bucket()
                raise errors.ObjectMissingError(
                    f"there is no object {name} in {self.url}; was it deleted by hand, or by a rule?"
                ) from None
            data, size = bytes(found.bytes()), found.meta["size"]
        if len(data) != size:
            raise errors.ObjectStoreUnavailableError(
                f"cannot read {name} in {self.url}: it broke off after {len(data):,} of {size:,} bytes; try again"
            )
        return data, found.meta

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._translate_errors("list objects"):
            pages = iter(self._clients.get().list(prefix or None, chunk_size=_PAGE))
        while True:
            with self._translate_errors("list objects"):
                page = next(pages, None)
            if page is None:
                return
            for found in page:
                if is_name(found["path"]):  # anything else is not ours
                    yield found["path"], found["size"]

    def _require_bucket(self) -> None:
        """Raise unless the bucket is there: one that is gone also says 'not found' to everything."""
        next(iter(self._clients.get().list(chunk_size=1)), None)

    @contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        """Errors in our words. The client's own text may hold a signed URL, so it is not shown, nor chained."""
        try:
            yield
        except Exception as problem:
            if type(problem).__module__ != "obstore.exceptions" and not isinstance(problem, FileNotFoundError):
                raise
            raise explain(problem, f"cannot {doing} in {self.url}", self._place.bucket, self._called) from None
        except BaseException as problem:
            if type(problem).__name__ != "PanicException":  # so the client says that its own code broke off
                raise
            raise errors.ObjectStoreError(
                f"cannot {doing} in {self.url}: the client broke off ({shorten(str(problem))}); "
                "check the region and the endpoint in the environment"
            ) from None


def _make_tag(found: Any) -> str:
    """The tag of an object in a bucket. Some clouds go by its ETag, others by its version: it has both."""
    return json.dumps([found["e_tag"], found["version"]])


def _read_tag(tag: str) -> dict[str, str]:
    """What a bucket compares, out of a tag of ``_make_tag``."""
    try:
        found = dict(zip(("e_tag", "version"), json.loads(tag), strict=True))
    except (TypeError, ValueError):
        raise errors.InvalidInputError(
            f"{quote(tag)} is no tag of an object in a bucket; take it from get_with_tag"
        ) from None
    return {part: value for part, value in found.items() if isinstance(value, str)}
