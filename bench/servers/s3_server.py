"""An S3 server."""

from __future__ import annotations

import itertools
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.servers.guard import Guard, Server, Service, find_package, guarded, reserved_port


@contextmanager
def s3() -> Iterator[S3Server]:
    """An S3 server of its own (moto) that keeps everything in its memory."""
    find_package("moto", "the S3 server")
    with guarded() as guard, reserved_port() as port:
        server = S3Server(guard, port)
        server.start()
        yield server


class S3Server(Server):
    """An S3 server; its buckets are gone when it stops."""

    def __init__(self, guard: Guard, port: int) -> None:
        self.port = port
        self.url: Final = f"http://127.0.0.1:{port}"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # no proxy leads to loopback
        self._numbers = itertools.count(1)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._service = Service(
            "the S3 server", guard, command, self._is_ready, stop=signal.SIGTERM, farewell=signal.SIGTERM
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead an object store to this server, whatever the environment says of others."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_REGION": "us-east-1",
        }

    def new_bucket(self) -> str:
        """The URL of a bucket that is new and empty: ``s3://name``."""
        name = f"holdfast-{next(self._numbers)}"
        request = urllib.request.Request(f"{self.url}/{name}", data=b"", method="PUT")  # noqa: S310
        with self._open(request, timeout=30):
            return f"s3://{name}"

    def _is_ready(self) -> bool:
        try:
            with self._open(f"{self.url}/moto-api/", timeout=30):
                return True
        except OSError:
            return False
