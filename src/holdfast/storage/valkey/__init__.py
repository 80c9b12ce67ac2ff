"""Short-term memory in Valkey or Redis: sessions that the server itself forgets in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.installation import missing_extra

if TYPE_CHECKING:
    from holdfast.storage.valkey.short_term import ValkeyShortTerm


def open_short_term(url: str, *, timeout: float = 2.0) -> ValkeyShortTerm:
    """The short-term store at a URL; nothing is connected until the first call.

    ``valkey://[user:password@]host:port/db``, ``redis://…``; ``valkeys://`` and ``rediss://`` are the same through
    TLS; ``valkey+cluster://`` (or ``?cluster=true``) is a cluster. ``timeout`` bounds, in seconds, how long is waited
    for a connection and for an answer. ``InvalidSettingsError`` for any other URL, ``MissingExtraError`` where the
    client is not installed.
    """
    from holdfast.storage.valkey.addresses import read_address  # noqa: PLC0415 - programs without a server need none

    address = read_address(url)
    try:
        from holdfast.storage.valkey.short_term import ValkeyShortTerm  # noqa: PLC0415 - imports the client
    except ModuleNotFoundError as problem:
        if problem.name != "valkey":
            raise
        raise missing_extra(f"the short-term store {address.safe_url}", "valkey") from problem
    return ValkeyShortTerm(address, timeout=timeout)
