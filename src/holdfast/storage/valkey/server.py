"""A Valkey or Redis server, or a cluster of them: connections, scripts, errors in our words."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import tomllib
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from valkey import Connection, ConnectionPool, SSLConnection, Valkey, ValkeyCluster, exceptions

from holdfast.core import errors
from holdfast.core.errors import quote
from holdfast.storage.valkey.addresses import Address

_CHECK: Final = "check HOLDFAST_SHORT_TERM_URL"
#: The codes of answers that the client has classes for.
_CODES: Final = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ClusterError: "CLUSTERDOWN",
}


@cache
def _refusals() -> dict[str, dict[str, str]]:
    """What ``refusals.toml`` says, by code."""
    found = tomllib.loads(resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8"))
    return {code: one for one in found["refusals"] for code in one["codes"]}


def explain(problem: Exception, address: Address) -> errors.StorageError:
    """The error to raise for one of the client's. Neither a password nor what was sent is in its words."""
    where = f"the short-term store {address.safe_url}"
    if isinstance(problem, exceptions.ValkeyClusterException):
        return _of_a_cluster(problem, where, address)
    if isinstance(problem, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return errors.StoreUnavailableError(f"{where} refused the user or the password; {_CHECK}")
    scheme = " (one without TLS is written valkey://)" if address.tls else " (one that speaks TLS is valkeys://)"
    if isinstance(problem, exceptions.TimeoutError):
        return errors.StoreAwayError(
            f"{where} did not answer in time; try again, or {_CHECK}{scheme if address.tls else ''}"
        )
    if isinstance(problem, exceptions.InvalidResponse):
        return errors.StoreUnavailableError(
            f"{where} does not answer as a Valkey or Redis server does; {_CHECK}{scheme}"
        )
    if isinstance(problem, exceptions.ConnectionError) and not isinstance(problem, exceptions.BusyLoadingError):
        return _of_a_connection(problem, where, address)
    return _of_an_answer(problem, where)


def is_cut_off(problem: Exception) -> bool:
    """Whether a connection that had been made was lost, so that making another one at once may help."""
    return type(problem) is exceptions.ConnectionError and (
        problem.__context__ is None
        or isinstance(problem.__context__, ConnectionResetError | BrokenPipeError | ConnectionAbortedError)
    )


def _of_a_connection(problem: Exception, where: str, address: Address) -> errors.StorageError:
    cause = problem.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return errors.StoreUnavailableError(
            f"{where} has a certificate that is not trusted ({cause.verify_message}); name the authority's file with "
            "?ssl_ca_certs=/path/to/ca.pem in HOLDFAST_SHORT_TERM_URL"
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        reason = (cause.reason or "it failed").lower().replace("_", " ")
        return errors.StoreUnavailableError(
            f"{where} does not speak TLS with us ({reason}); {_CHECK} (valkey:// is without TLS, ?ssl_certfile= and "
            "&ssl_keyfile= name a certificate to show)"
        )
    if isinstance(cause, socket.gaierror):
        return errors.StoreAwayError(f"{where} was not found: no address is known for {address.host!r}; {_CHECK}")
    if isinstance(cause, ConnectionRefusedError):
        return errors.StoreAwayError(f"{where} refused the connection; is the server running? Try again, or {_CHECK}")
    if is_cut_off(problem) and "max number of clients" not in str(problem):
        hint = "" if address.tls else " (one that speaks TLS is valkeys://)"
        return errors.StoreAwayError(f"{where} cut the connection; try again, or {_CHECK}{hint}")
    return errors.StoreAwayError(f"{where} cannot be reached ({_reason(problem)}); try again, or {_CHECK}")


def _of_a_cluster(problem: Exception, where: str, address: Address) -> errors.StorageError:
    if "mode is not enabled" in str(problem):
        return errors.StoreUnavailableError(f"{where} is not a cluster; {_CHECK} (valkey:// is a single server)")
    cause = problem.__cause__
    if isinstance(cause, exceptions.ValkeyError):
        return explain(cause, address)
    return errors.StoreAwayError(f"{where} has no node that answers; try again, or {_CHECK}")


def _of_an_answer(problem: Exception, where: str) -> errors.StorageError:
    """The server's own words begin with a code; servers before 7 put it into a sentence where a script failed."""
    text = str(problem)
    known = (code for kind, code in _CODES.items() if isinstance(problem, kind))
    said = next(known, text.partition(" ")[0])
    code = next((one for one in _refusals() if one == said or f"-{one} " in text), None)
    if code is None:
        return errors.StorageError(f"{where} refused a command ({_reason(problem)}); is it Redis 6.2+ or Valkey 7.2+?")
    error: type[errors.StorageError] = getattr(errors, _refusals()[code]["error"])
    return error(f"{where} {_refusals()[code]['words']}")


def _reason(problem: Exception) -> str:
    """What went wrong in a word: texts of servers repeat what was sent to them, so they are not shown."""
    cause = problem.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    word = str(problem).partition(" ")[0]
    return word if word.isupper() and word.isalpha() else type(problem).__name__


Client: TypeAlias = Any  # ``Valkey`` or ``ValkeyCluster``, whose own types say nothing
Word = str | bytes | int
Answer = TypeVar("Answer")
#: So many commands travel together.
_TOGETHER: Final = 512
_ERRORS: Final = (exceptions.ValkeyError, exceptions.ValkeyClusterException)


class Script(NamedTuple):
    """A Lua script, and the digest that the server knows it by once it has run there."""

    text: bytes
    sha: bytes


def read_script(name: str) -> Script:
    """The script in ``scripts/<name>.lua``."""
    text = resources.files(__package__).joinpath("scripts", f"{name}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


class Run(NamedTuple):
    """A script to run, with its keys and arguments; all keys are in one slot."""

    script: Script
    keys: Sequence[bytes]
    arguments: Sequence[Word]

    def command(self, *, whole: bool = False) -> tuple[Word, ...]:
        """The command that runs it: by its digest, or (``whole``) by its text, which the server then remembers."""
        head = ("EVAL", self.script.text) if whole else ("EVALSHA", self.script.sha)
        return (*head, len(self.keys), *self.keys, *self.arguments)


class Server:
    """Runs commands; may be used by any number of threads, and by forked processes, each on connections of its own.

    Nothing is connected until the first call, and what was lost is connected again by the next.
    """

    def __init__(self, address: Address, *, timeout: float) -> None:
        if not 0 < timeout < 3_600:
            raise errors.InvalidSettingsError(
                f"the short-term store's timeout must be some seconds, not {quote(timeout)}"
            )
        self.address = address
        self._timeout = timeout
        self._clients: dict[int, Client] = {}
        self._closed = False

    def run(self, run: Run, *, again: bool = False) -> Any:
        """Run a script. With ``again``, for what may be done twice, once more if the connection was lost."""
        return self._use(lambda client: _run(client, run), again=again)

    def run_all(self, runs: Sequence[Run]) -> list[Any]:
        """Run scripts one after the other, many at a time on the way."""
        return self._use(lambda client: _run_all(client, runs), again=False)

    def ask(self, *command: Word) -> Any:
        """The answer to a command that any node can give."""
        return self._use(lambda client: _ask(client, command), again=True)

    def ask_all(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """The answers to commands that only read, each on keys of one slot."""
        return self._use(lambda client: _ask_all(client, commands), again=True)

    def close(self) -> None:
        """Let go of all connections; there are no others after that."""
        self._closed = True
        self._drop()

    # --- the client ----------------------------------------------------------------------------------------------

    def _use(self, use: Callable[[Client], Answer], *, again: bool) -> Answer:
        try:
            return self._insist(use, again=again)
        except _ERRORS as problem:
            error = explain(problem, self.address)
            if self.address.cluster and not isinstance(problem, exceptions.ResponseError):
                self._drop()  # its client forgets nodes that failed it, and could never find them again
        raise error  # unchained: the client's own text may repeat what was sent

    def _insist(self, use: Callable[[Client], Answer], *, again: bool) -> Answer:
        try:
            return use(self._client())
        except exceptions.ReadOnlyError:
            self._drop()  # the primary moved, and its name may lead to another server by now
        except exceptions.ConnectionError as problem:
            if not (again and is_cut_off(problem)):
                raise
        return use(self._client())

    def _client(self) -> Client:
        if self._closed:
            raise errors.ClosedError(f"the short-term store {self.address.safe_url} was closed; open the engine again")
        process = os.getpid()  # a forked process must not speak on the connections of its parent
        client = self._clients.get(process)
        if client is None:
            made = self._connect()
            client = self._clients.setdefault(process, made)
            if client is not made:
                _hang_up(made)
        return client

    def _drop(self) -> None:
        """Let the next call begin with new connections; those that other threads are using now end with their calls."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            _hang_up(client)

    def _connect(self) -> Client:
        address = self.address
        options: dict[str, Any] = {
            "connection_class": Connection,
            "username": address.username,
            "password": address.password,
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "socket_keepalive": True,
        }
        if address.tls:  # bound here, since the client of a cluster would drop what it does not know of TLS
            secured = partial(SSLConnection, ssl_check_hostname=address.check_hostname, **address.files)
            options["connection_class"] = secured
        if address.cluster:
            start = f"valkey://{address.host_and_port}"
            return ValkeyCluster(url=start, cluster_error_retry_attempts=1, **options)
        pool = ConnectionPool(host=address.host, port=address.port, db=address.database, **options)
        return Valkey.from_pool(pool)


def _is_cluster(client: Client) -> bool:
    return isinstance(client, ValkeyCluster)


def _hang_up(client: Client) -> None:
    """Close the connections of a client that nobody is using."""
    nodes = [node.valkey_connection for node in client.get_nodes()] if _is_cluster(client) else [client]
    for node in nodes:
        if node is not None:
            node.connection_pool.disconnect(inuse_connections=False)


def _run(client: Client, run: Run) -> Any:
    try:
        return client.execute_command(*run.command())
    except exceptions.NoScriptError:  # the server is new, or was started again
        return client.execute_command(*run.command(whole=True))


def _run_all(client: Client, runs: Sequence[Run]) -> list[Any]:
    if _is_cluster(client):
        return [_run(client, run) for run in runs]
    replies = zip(runs, _send(client, [run.command() for run in runs]), strict=True)
    return [_run(client, run) if isinstance(one, exceptions.NoScriptError) else _check(one) for run, one in replies]


def _ask_all(client: Client, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
    if _is_cluster(client):
        return [client.execute_command(*command) for command in commands]
    return [_check(reply) for reply in _send(client, commands)]


def _send(client: Client, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
    """The replies to commands, many of which travel together; errors among them."""
    replies: list[Any] = []
    for at in range(0, len(commands), _TOGETHER):
        with client.pipeline(transaction=False) as pipeline:
            for command in commands[at : at + _TOGETHER]:
                pipeline.execute_command(*command)
            replies += pipeline.execute(raise_on_error=False)
    return replies


def _check(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _ask(client: Client, command: tuple[Word, ...]) -> Any:
    if _is_cluster(client):
        return client.execute_command(*command, target_nodes=client.get_default_node())
    return client.execute_command(*command)
