"""The URLs of object stores, checked before anything is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.settings import mask_password

UNDERSTOOD: Final = "file:///absolute/folder, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"
#: Other ways to write a scheme, as other programs have it.
_SAME: Final = {"azure": "az", "abfs": "az", "abfss": "az", "gcs": "gs", "s3a": "s3"}
#: Variables that name another server than the cloud's own; the first that is set counts.
ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*)?")
#: The client answers anything else with a panic. (Where all is in folders, the pattern is never compiled.)
_ENDPOINT: Final = r"(?i:https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._/-]*)?)"


class Place(NamedTuple):
    """Where objects are kept: a folder, or a bucket and what all names in it begin with."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def folder(self) -> Path:
        """The folder of a ``file`` URL."""
        return Path(self.prefix)

    @property
    def url(self) -> str:
        """The place as a URL; no secret is ever part of one."""
        return self.folder.as_uri() if self.scheme == "file" else f"{self.scheme}://{self.bucket}/{self.prefix}"


def read_place(url: str) -> Place:
    """The place that a URL names."""
    shown = quote(mask_password(url), 120)
    written, colon, rest = url.partition("://")
    scheme = _SAME.get(written, written)
    if not colon or scheme not in ("file", *ENDPOINTS):
        raise InvalidSettingsError(f"the object store {shown} is not understood; write it as {UNDERSTOOD}")
    if scheme == "file":
        return Place(scheme, "", _folder(rest, shown))
    if any(mark in unquote(rest) for mark in "@?#"):  # told whole, it might show a password or a key
        raise InvalidSettingsError(
            f"the {written}:// URL of an object store has more than a bucket and a prefix; credentials and options "
            f"belong in the environment: write it as {UNDERSTOOD}"
        )
    bucket, _, prefix = rest.partition("/")
    prefix = unquote(prefix).removesuffix("/")
    if not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix):
        raise InvalidSettingsError(
            f"the object store {shown} names no bucket or prefix that can be used (letters, digits, '.', '_', '-'); "
            f"write it as {UNDERSTOOD}"
        )
    return Place(scheme, bucket, prefix)


def read_endpoint(scheme: str, environ: Mapping[str, str]) -> str | None:
    """The server that the environment names for a scheme; ``None`` for the cloud's own."""
    variable = next((name for name in ENDPOINTS[scheme] if environ.get(name)), None)
    if variable is None:
        return None
    endpoint = environ[variable]
    if not re.fullmatch(_ENDPOINT, endpoint):
        raise InvalidSettingsError(
            f"{variable} is {quote(mask_password(endpoint), 120)}, which is no address of a server; "
            "write it as http://host:port or https://host"
        )
    return endpoint


def is_loopback(endpoint: str) -> bool:
    """Whether a server is on this machine: what is sent to it cannot be read on the way."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _folder(rest: str, shown: str) -> str:
    """The absolute path in the rest of a ``file`` URL."""
    text = unquote(rest)
    if os.name == "nt":
        text = text.removeprefix("/")
    path = Path(text)
    if "\x00" in text or not path.is_absolute() or not path.name or ".." in path.parts:
        raise InvalidSettingsError(
            f"the object store {shown} names no folder by its absolute path; write it as file:///absolute/folder"
        )
    try:
        os.fsencode(text)
    except UnicodeError as problem:
        raise InvalidSettingsError(f"the object store {shown} names no folder: {problem}") from problem
    return str(path)
