"""Objects in a bucket of S3, Azure or Google Cloud, through obstore."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core import errors
from holdfast.core.errors import quote
from holdfast.installation import missing_extra
from holdfast.storage.objects.checks import check_conditions, check_name, check_prefix, is_name, try_out
from holdfast.storage.objects.urls import Place, is_loopback, read_endpoint

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


@cache
def _refusals() -> dict[str, Any]:
    """What ``refusals.toml`` says, with the words of each code."""
    found = tomllib.loads(resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8"))
    return {**found, "words": {code: one["words"] for one in found["refusals"] for code in one["codes"]}}


def explain(problem: Exception, doing: str, bucket: str, called: str = "its URL") -> errors.ObjectStoreError:
    """The error to raise for one of the client's; ``doing`` says what could not be done, and where; ``called`` is the
    name of the setting that names the bucket.
    """
    text = str(problem)
    found, named = _STATUS.search(text), _CODE.search(text)
    status, code = found and int(found[1]), named and (named[1] or named[2])
    said = " ".join(str(part) for part in (status, code) if part)
    is_at_fault = status is not None and status not in _FOR_GOOD and (status >= 500 or status in _PASSING)
    known = _refusals()
    if code in known["passing"] or is_at_fault:
        return errors.ObjectStoreUnavailableError(f"{doing}: the server is not ready ({said}); try again later")
    if any(mark in text.partition(" - ")[0] for mark in _MACHINE):
        return errors.ObjectStoreError(
            f"{doing}: there are no credentials in the environment, and none of this machine's own; "
            "set the variables of the cloud (AWS_*, AZURE_*, GOOGLE_*); files with profiles are not read"
        )
    if said:
        region = _REGION.search(text)
        words = known["words"].get(code) or known["words"].get(str(status), known["other"])
        facts = {"said": said, "bucket": bucket, "called": called, "region": region[1] if region else "it"}
        return errors.ObjectStoreError(f"{doing}: {words.format(**facts)}")
    if "redirect without LOCATION" in text:
        return errors.ObjectStoreError(f"{doing}: the bucket is in another region; set AWS_REGION to it")
    if "HTTP error" not in text:
        return errors.ObjectStoreError(f"{doing}: {shorten(text)}")
    mark = next(mark for mark in known["unanswered"] if mark in text)
    error = errors.ObjectStoreError if mark.startswith("Invalid") else errors.ObjectStoreUnavailableError
    return error(f"{doing}: {known['unanswered'][mark]}")


def shorten(text: str) -> str:
    """The first line of a message, without what follows the ``?`` of a URL: it may be a signature."""
    return _QUERY.sub("", text.partition("\n")[0])[:200]


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
        self._patience = patience or Patience()
        self._endpoint = read_endpoint(place.scheme, os.environ)
        self._made: dict[float, Any] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._place.url

    def prepare(self) -> None:
        """A bucket is made by whoever pays for it."""

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        check_name(name)
        check_conditions(absent=absent, match=match)
        if absent or match is not None:
            return self._put_if(name, data, "create" if match is None else _read_tag(match))
        with self._translate_errors(f"write {name}"):
            return _make_tag(self._client(len(data)).put(name, data, use_multipart=False))

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
            client = self._client()
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
        endpoint = self._endpoint
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
        end = time.monotonic() + self._patience.trying
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
        client = self._client(len(data))
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - the client has loaded it

        try:
            return _make_tag(client.put(name, data, mode=mode, attributes={_MARK: mark}))
        except (AlreadyExistsError, PreconditionError):
            found = self._head(name)
        if found is not None and found["mark"] == mark:
            return _make_tag(found)
        if mode == "create":
            raise errors.ConflictError(f"there is an object {name} in {self.url} already; nothing was written")
        raise errors.StaleError(f"another writer has changed {name} in {self.url}; read it again and retry")

    def _head(self, name: str) -> dict[str, Any] | None:
        """What a bucket knows of an object, and the mark of who wrote it; ``None`` if there is none."""
        try:
            found = self._client().get(name, options={"head": True})
        except FileNotFoundError:
            self._require_bucket()
            return None
        return {**found.meta, "mark": found.attributes.get(_MARK)}

    def _read(self, name: str) -> tuple[bytes, Any]:
        check_name(name)
        with self._translate_errors(f"read {name}"):
            try:
                found = self._client().get(name)
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
            pages = iter(self._client().list(prefix or None, chunk_size=_PAGE))
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
        next(iter(self._client().list(chunk_size=1)), None)

    def _client(self, sending: int = 0) -> Any:
        """A client to send as many bytes with; ``ClosedError`` in a fork of the process that used one."""
        if _started and os.getpid() not in _started:
            raise errors.ClosedError(
                f"the object store {self._place.url} was used by process {_started[0]} before it forked, and its "
                "client does not survive a fork; start processes with 'spawn'"
            )
        smallest, largest = SIZES
        silence = self._patience.silence
        if sending > smallest:
            silence = self._patience.whole if sending > largest else silence + largest / self._patience.slowest
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
        make: Any = {"s3": store.S3Store, "az": store.AzureStore, "gs": store.GCSStore}[scheme]
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self._patience.connect),
            "read_timeout": timedelta(seconds=silence),
            "timeout": timedelta(seconds=max(self._patience.whole, silence)),
            "allow_http": (self._endpoint or "").lower().startswith("http://"),
        }
        first = timedelta(seconds=self._patience.pause)
        retries: RetryConfig = {
            "max_retries": self._patience.retries,
            "retry_timeout": timedelta(seconds=self._patience.trying),
            "backoff": {"init_backoff": first, "max_backoff": 10 * first, "base": 2},
        }
        # S3 is sent a checksum of all that it is to keep, and refuses anything else.
        is_checked = scheme == "s3" and not os.environ.get("AWS_CHECKSUM_ALGORITHM")
        config = {"checksum_algorithm": "SHA256"} if is_checked else {}
        try:
            return make(bucket, prefix=prefix or None, config=config, client_options=options, retry_config=retries)
        except (exceptions.BaseError, ValueError) as problem:
            raise errors.InvalidSettingsError(
                f"the object store {self._place.url} cannot be opened: {shorten(str(problem))}; "
                "check the credentials and the region in the environment"
            ) from None

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
        raise errors.InvalidInputError(f"{quote(tag)} is no tag of an object; take it from get_with_tag") from None
    return {part: value for part, value in found.items() if isinstance(value, str)}
