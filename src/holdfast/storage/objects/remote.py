"""Objects in a bucket of S3, Azure or Google Cloud, through obstore."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdfast.core.errors import (
    ConflictError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    StaleError,
)
from holdfast.storage.objects.checks import (
    check_conditions,
    check_name,
    check_prefix,
    is_name,
    make_tag,
    read_tag,
    try_out,
)
from holdfast.storage.objects.chunks import PART_BYTES, Source
from holdfast.storage.objects.client import PATIENCE, Clients, Patience, explain, is_panic, read_status, shorten
from holdfast.storage.objects.urls import Place, is_loopback

_PAGE: Final = 1_000
#: How many parts are sent at once: so much is in memory, and one more that is being filled.
_AT_ONCE: Final = 2
#: Whose writing an object is: to know one's own where an answer was lost. Azure takes letters and digits only.
_MARK: Final = "holdfastmark"
_TRIES: Final = 3


class RemoteObjects:
    """The object store of a bucket and a prefix; credentials come from the environment.

    Nothing is connected until the first call. What fails in passing is tried again for as long as ``Patience`` says.
    A ``put`` is one request. A stream of more than one part is given up, parts and all, if anything goes wrong; if
    the process is killed, or the server does not answer any more, S3 and Google keep the parts, unseen, until a
    lifecycle rule of the bucket clears them away (Azure does so itself).

    S3 is sent a SHA-256 with every request and keeps nothing else; the others rely on the connection.
    """

    def __init__(self, place: Place, patience: Patience = PATIENCE, *, called: str = "its URL") -> None:
        self._place = place
        self._called = called
        self._clients = Clients(place, patience)

    @property
    def url(self) -> str:
        return self._place.url

    def __repr__(self) -> str:
        return f"RemoteObjects({self.url})"

    def prepare(self) -> None:
        """A bucket is made by whoever pays for it."""

    # --- writing -------------------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        check_name(name)
        check_conditions(absent=absent, match=match)
        if absent:
            return self._put_if(name, data, "create")
        if match is not None:
            return self._put_if(name, data, read_tag(match))
        with self._translated(f"write {name}"):
            client = self._clients.get(len(data))
            return make_tag(self._obstore.put(client, name, data, use_multipart=False))

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> tuple[int, bytes]:
        check_name(name)
        source = Source(chunks)
        parts = source.parts()
        some = list(itertools.islice(parts, 2))
        with self._translated(f"write {name}", source):
            if len(some) == 1:
                made = self._obstore.put(self._clients.get(len(some[0])), name, some[0], use_multipart=False)
            else:
                made = self._obstore.put(
                    self._clients.get(PART_BYTES),
                    name,
                    itertools.chain(some, parts),
                    chunk_size=PART_BYTES,
                    max_concurrency=_AT_ONCE,
                )
            found = self._obstore.head(self._clients.get(), name)
        if found["e_tag"] == made["e_tag"] and found["size"] != source.size:  # else it is another's by now
            with suppress(ObjectStoreError):
                self.delete([name])
            raise ObjectDamagedError(
                f"{self.url} had {found['size']:,} of the {source.size:,} bytes that were written to {name}; it was "
                "deleted: write it again"
            )
        return source.size, source.digest

    def delete(self, names: Sequence[str]) -> None:
        paths = [check_name(name) for name in names]
        if not paths:
            return
        with self._translated("delete objects"):
            try:
                self._obstore.delete(self._clients.get(), paths)
            except FileNotFoundError:  # of one object, where the cloud is strict (Azure, Google), or of the bucket
                self._require_bucket()
                for path in paths:
                    self._delete_one(path)

    # --- reading -------------------------------------------------------------------------------------------------

    def get(self, name: str) -> bytes:
        return self._read(name)[0]

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data, meta = self._read(name)
        return data, make_tag(meta)

    def get_stream(self, name: str) -> Iterator[bytes]:
        check_name(name)
        return self._parts(name, *self._read_first(name))

    def names(self, prefix: str = "") -> Iterator[str]:
        return (name for name, _ in self._list(check_prefix(prefix)))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._list(check_prefix(prefix))

    def check(self) -> Sequence[str]:
        tag, warnings = try_out(self)
        version = read_tag(tag).get("version")
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

    @property
    def _obstore(self) -> Any:
        return self._clients.obstore()

    def _put_if(self, name: str, data: bytes, mode: Any) -> str:
        """Write an object on a condition, once.

        A request of which the answer was lost may have been carried out: made again, it would find its own object and
        take it for another's. So each has a mark, and where the condition does not hold, the mark decides.
        """
        mark = secrets.token_hex(16)
        end = time.monotonic() + self._clients.patience.trying
        for turn in range(_TRIES):
            try:
                with self._translated(f"write {name}"):
                    return self._put_marked(name, data, mode, mark)
            except ObjectStoreUnavailableError:
                if turn == _TRIES - 1 or time.monotonic() >= end:
                    raise
            except ConflictError:
                if mode != "create" or self._has(name):
                    raise
        raise ObjectStoreUnavailableError(f"cannot write {name} in {self.url}: others are writing it; try again")

    def _put_marked(self, name: str, data: bytes, mode: Any, mark: str) -> str:
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        client = self._clients.get(len(data))
        try:
            return make_tag(self._obstore.put(client, name, data, mode=mode, attributes={_MARK: mark}))
        except (AlreadyExistsError, PreconditionError):
            found = self._head(name)
        if found is not None and found["mark"] == mark:
            return make_tag(found)
        if mode == "create":
            raise ConflictError(f"there is an object {name} in {self.url} already; nothing was written")
        raise StaleError(f"the object {name} in {self.url} was changed by another writer; read it again and retry")

    def _has(self, name: str) -> bool:
        with self._translated(f"read {name}"):
            return self._head(name) is not None

    def _head(self, name: str) -> dict[str, Any] | None:
        """What a bucket knows of an object, and the mark of who wrote it; ``None`` if there is none."""
        try:
            found = self._obstore.get(self._clients.get(), name, options={"head": True})
        except FileNotFoundError:
            self._require_bucket()
            return None
        return {**found.meta, "mark": found.attributes.get(_MARK)}

    def _read(self, name: str) -> tuple[bytes, Any]:
        check_name(name)
        with self._translated(f"read {name}"), self._missed(name):
            found = self._obstore.get(self._clients.get(), name)
            return self._whole(name, bytes(found.bytes()), found.meta["size"]), found.meta

    def _read_first(self, name: str) -> tuple[bytes, Any]:
        """The first part of an object, and what the bucket knows of it."""
        from obstore.exceptions import GenericError  # noqa: PLC0415

        with self._translated(f"read {name}"), self._missed(name):
            try:
                found = self._obstore.get(self._clients.get(), name, options={"range": (0, PART_BYTES)})
            except GenericError as problem:
                if read_status(str(problem)) != 416:  # of an empty object, no part can be had
                    raise
            else:
                size = min(PART_BYTES, found.meta["size"])
                return self._whole(name, bytes(found.bytes()), size), found.meta
        return self._read(name)

    def _parts(self, name: str, first: bytes, meta: Any) -> Iterator[bytes]:
        """An object part by part, all of one writing. A request of its own for each: nothing waits for the reader."""
        from obstore.exceptions import PreconditionError  # noqa: PLC0415

        if first:
            yield first
        for start in range(PART_BYTES, meta["size"], PART_BYTES):
            end = min(start + PART_BYTES, meta["size"])
            options = {"range": (start, end), "if_match": meta["e_tag"]}
            with self._translated(f"read {name}"):
                try:
                    part = bytes(self._obstore.get(self._clients.get(), name, options=options).bytes())
                except (FileNotFoundError, PreconditionError):
                    self._require_bucket()
                    raise StaleError(
                        f"the object {name} in {self.url} was replaced or deleted while it was read; read it again"
                    ) from None
            yield self._whole(name, part, end - start)

    @contextmanager
    def _missed(self, name: str) -> Iterator[None]:
        """What is not found is a missing object, if there is a bucket that it could be in."""
        try:
            yield
        except FileNotFoundError:
            self._require_bucket()
            raise ObjectMissingError(
                f"there is no object {name} in {self.url}; was it deleted by hand, or by a rule?"
            ) from None

    def _whole(self, name: str, data: bytes, size: int) -> bytes:
        if len(data) != size:
            raise ObjectStoreUnavailableError(
                f"cannot read {name} in {self.url}: it broke off after {len(data):,} of {size:,} bytes; try again"
            )
        return data

    def _delete_one(self, path: str) -> None:
        try:
            self._obstore.delete(self._clients.get(), path)
        except FileNotFoundError:
            return

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._translated("list objects"):
            pages = iter(self._obstore.list(self._clients.get(), prefix or None, chunk_size=_PAGE))
        while True:
            with self._translated("list objects"):
                page = next(pages, None)
            if page is None:
                return
            for found in page:
                if is_name(found["path"]):  # anything else is not ours
                    yield found["path"], found["size"]

    def _require_bucket(self) -> None:
        """Raise unless the bucket is there: one that is gone also says 'not found' to everything."""
        next(iter(self._obstore.list(self._clients.get(), chunk_size=1)), None)

    # --- errors --------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, doing: str, source: Source | None = None) -> Iterator[None]:
        """Errors in our words. The client's own text may hold a signed URL, so it is not shown, nor chained."""
        try:
            yield
        except Exception as problem:
            if source is not None and source.trouble is not None:
                raise source.trouble from None
            if type(problem).__module__ != "obstore.exceptions" and not isinstance(problem, FileNotFoundError):
                raise
            raise explain(problem, f"cannot {doing} in {self.url}", self._place.bucket, self._called) from None
        except BaseException as problem:
            if is_panic(problem):
                raise ObjectStoreError(
                    f"cannot {doing} in {self.url}: the client broke off ({shorten(str(problem))}); "
                    "check the region and the endpoint in the environment"
                ) from None
            raise
