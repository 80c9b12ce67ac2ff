"""The URLs of Valkey and Redis servers, checked before anything is connected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast.core.errors import InvalidSettingsError, quote

UNDERSTOOD: Final = "valkey://user:password@host:6379/0 (valkeys:// for TLS, valkey+cluster:// for a cluster)"
_PORT: Final = 6379
_SCHEME: Final = re.compile(r"(valkey|redis)(s?)(\+cluster)?")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")
_DATABASE: Final = re.compile(r"/?|/(\d{1,5})/?")
#: Files that TLS may be told of in the query of the URL.
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SWITCHES: Final = {**dict.fromkeys(("true", "1", "yes"), "true"), **dict.fromkeys(("false", "0", "no"), "false")}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how it is spoken to. Its ``repr`` and ``safe_url`` hold no secret."""

    product: str
    """``valkey`` or ``redis``, as it was written."""
    host: str
    port: int = _PORT
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    cluster: bool = False
    check_hostname: bool = True
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def safe_url(self) -> str:
        """The address as messages show it."""
        scheme = f"{self.product}{'s' if self.tls else ''}{'+cluster' if self.cluster else ''}"
        return f"{scheme}://{self.host_and_port}" + ("" if self.cluster else f"/{self.database}")

    @property
    def host_and_port(self) -> str:
        """Both, as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(url: str) -> Address:
    """The server that a URL names; ``InvalidSettingsError`` if it names none.

    No message shows more of a URL than its scheme: where a password was not percent-encoded, any other part of what
    was parsed may be a piece of it.
    """
    scheme = url.partition("://")[0]
    known = _SCHEME.fullmatch(scheme) if "://" in url else None
    if known is None:
        shown = quote(scheme) if re.fullmatch(r"[a-z+]{1,20}", scheme) else "it"
        raise InvalidSettingsError(
            f"the URL of the short-term store is not understood ({shown} is no scheme that it may have); "
            f"set HOLDFAST_SHORT_TERM_URL to something like {UNDERSTOOD}"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:
        raise _refusal(scheme, "its port is no number from 1 to 65535, or its host is not written right") from None
    if port == 0 or not _HOST.fullmatch(host):
        raise _refusal(scheme, "it names no host, or no port, that can be used")
    database = _DATABASE.fullmatch(parts.path)
    if database is None or parts.fragment:
        raise _refusal(scheme, "what follows the host is not the number of a database")
    options = _read_options(parts, scheme)
    cluster = bool(known[3]) or options.pop("cluster", "false") == "true"
    number = int(database[1] or 0)
    if cluster and number:
        raise _refusal(scheme, f"a cluster has database 0 only, not {number}")
    return Address(
        product=known[1],
        host=host,
        port=_PORT if port is None else port,
        database=number,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=bool(known[2]),
        cluster=cluster,
        check_hostname=options.pop("ssl_check_hostname", "true") == "true",
        files=MappingProxyType(options),
    )


def _read_options(parts: SplitResult, scheme: str) -> dict[str, str]:
    """The options in the query of a URL, each checked; switches as ``true`` or ``false``."""
    options = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("cluster", "ssl_check_hostname"):
            if value.lower() not in _SWITCHES:
                raise _refusal(scheme, f"{name} is neither true nor false")
            options[name] = _SWITCHES[value.lower()]
        elif name in _FILES:
            if not Path(value).is_file():
                raise _refusal(scheme, f"{name} names no file that is there")
            options[name] = value
        else:
            raise _refusal(scheme, f"an option is unknown; known are cluster, ssl_check_hostname, {', '.join(_FILES)}")
    if not scheme.removesuffix("+cluster").endswith("s") and set(options) - {"cluster"}:
        raise _refusal(scheme, "it has options of TLS, which valkeys:// and rediss:// speak")
    return options


def _refusal(scheme: str, problem: str) -> InvalidSettingsError:
    return InvalidSettingsError(
        f"the short-term store {scheme}://… cannot be used: {problem}; set HOLDFAST_SHORT_TERM_URL to something like "
        f"{UNDERSTOOD}, with special characters of user and password percent-encoded ('/' as %2F, '#' as %23)"
    )
