"""What the client of Valkey reports, in Holdfast's words: what to do about it, and whether to try again."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from valkey import exceptions

from holdfast.core.errors import (
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.storage.valkey.addresses import Address

#: What a server says while it starts, fails over or moves slots: it passes.
_PASSING: Final = ("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS")
_CHECK: Final = "check HOLDFAST_SHORT_TERM_URL"


def explain(problem: Exception, address: Address) -> StorageError:
    """The error to raise for one of the client's. Neither a password nor what was sent is in its words."""
    where = f"the short-term store {address.shown}"
    if isinstance(problem, exceptions.ValkeyClusterException):
        return _of_a_cluster(problem, where, address)
    if isinstance(problem, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return StoreUnavailableError(f"{where} refused the user or the password; {_CHECK}")
    scheme = " (one without TLS is written valkey://)" if address.tls else " (one that speaks TLS is valkeys://)"
    if isinstance(problem, exceptions.TimeoutError):
        return StoreAwayError(f"{where} did not answer in time; try again, or {_CHECK}{scheme if address.tls else ''}")
    if isinstance(problem, exceptions.InvalidResponse):
        return StoreUnavailableError(f"{where} does not answer as a Valkey or Redis server does; {_CHECK}{scheme}")
    if isinstance(problem, exceptions.ConnectionError) and not isinstance(problem, exceptions.BusyLoadingError):
        return _of_a_connection(problem, where, address)
    return _of_an_answer(problem, where)


def is_cut_off(problem: Exception) -> bool:
    """Whether a connection that had been made was lost, so that making another one at once may help."""
    return type(problem) is exceptions.ConnectionError and (
        problem.__context__ is None
        or isinstance(problem.__context__, ConnectionResetError | BrokenPipeError | ConnectionAbortedError)
    )


def _of_a_connection(problem: Exception, where: str, address: Address) -> StorageError:
    cause = problem.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return StoreUnavailableError(
            f"{where} has a certificate that is not trusted ({cause.verify_message}); name the authority's file with "
            "?ssl_ca_certs=/path/to/ca.pem in HOLDFAST_SHORT_TERM_URL"
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        reason = (cause.reason or "it failed").lower().replace("_", " ")
        return StoreUnavailableError(
            f"{where} does not speak TLS with us ({reason}); {_CHECK} (valkey:// is without TLS, ?ssl_certfile= and "
            "&ssl_keyfile= name a certificate to show)"
        )
    if isinstance(cause, socket.gaierror):
        return StoreAwayError(f"{where} was not found: no address is known for {address.host!r}; {_CHECK}")
    if isinstance(cause, ConnectionRefusedError):
        return StoreAwayError(f"{where} refused the connection; is the server running? Try again, or {_CHECK}")
    if is_cut_off(problem) and "max number of clients" not in str(problem):
        hint = "" if address.tls else " (one that speaks TLS is valkeys://)"
        return StoreAwayError(f"{where} cut the connection; try again, or {_CHECK}{hint}")
    return StoreAwayError(f"{where} cannot be reached ({_reason(problem)}); try again, or {_CHECK}")


def _of_a_cluster(problem: Exception, where: str, address: Address) -> StorageError:
    if "mode is not enabled" in str(problem):
        return StoreUnavailableError(f"{where} is not a cluster; {_CHECK} (valkey:// is a single server)")
    cause = problem.__cause__
    if isinstance(cause, exceptions.ValkeyError):
        return explain(cause, address)
    return StoreAwayError(f"{where} has no node that answers; try again, or {_CHECK}")


def _of_an_answer(problem: Exception, where: str) -> StorageError:
    """The server's own words begin with a code; servers before 7 put it into a sentence where a script failed."""
    text = str(problem)
    code = text.partition(" ")[0]
    if isinstance(problem, exceptions.OutOfMemoryError) or "-OOM " in text:
        return StoreFullError(f"{where} has no memory left (maxmemory is reached); give it more, or try again later")
    if isinstance(problem, exceptions.ReadOnlyError) or "-READONLY " in text:
        return StoreReadOnlyError(f"{where} is a read-only replica; name the primary in HOLDFAST_SHORT_TERM_URL")
    if isinstance(problem, exceptions.NoPermissionError):
        return StoreUnavailableError(
            f"{where} does not permit what Holdfast needs of it (EVALSHA, EVAL, ZRANGEBYSCORE and the like on keys "
            "'holdfast:*'); change the user's rules (ACL SETUSER), or name another in HOLDFAST_SHORT_TERM_URL"
        )
    if isinstance(problem, exceptions.BusyLoadingError | exceptions.ClusterError) or code in _PASSING:
        return StoreAwayError(f"{where} is not ready (it starts, or fails over); try again")
    if code == "BUSY":
        return StoreBusyError(f"{where} is busy with a script that takes long; try again")
    if code == "MISCONF" or "-MISCONF " in text:
        return StoreAwayError(f"{where} cannot save to its disk and takes no writes; look at its log, then try again")
    if code in ("MOVED", "ASK"):
        return StoreUnavailableError(
            f"{where} is part of a cluster; write valkey+cluster:// in HOLDFAST_SHORT_TERM_URL"
        )
    if code == "WRONGTYPE" or "-WRONGTYPE " in text:
        return StorageError(
            f"{where} has keys 'holdfast:*' that are not Holdfast's; give Holdfast a database of its own"
        )
    if "DB index is out of range" in text:
        return StoreUnavailableError(f"{where} has no database of that number; {_CHECK}")
    return StorageError(f"{where} refused a command ({_reason(problem)}); is it Redis 6.2, Valkey 7.2 or newer?")


def _reason(problem: Exception) -> str:
    """What went wrong in a word: texts of servers repeat what was sent to them, so they are not shown."""
    cause = problem.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    word = str(problem).partition(" ")[0]
    return word if word.isupper() and word.isalpha() else type(problem).__name__
