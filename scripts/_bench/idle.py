"""Many idle connections: the rate of opening them, and the cost of each."""

import resource
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from _bench.process import BenchError, Broker, Cpu
from _bench.wire import HOST, STRANGER, Visitor, masked

SPARE_FILES = 64
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Idle(NamedTuple):
    """The cost of opening and keeping connections."""

    connections: int
    wall_s: float
    broker: Cpu
    rss_bytes: int


def raise_file_limit(connections: int) -> None:
    """Let this process open a file for each connection.

    Raises:
      BenchError: the system does not allow it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise BenchError(f"{connections} connections need {wanted} open files, not {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Opening:
    """One connection while it is being opened: the frames to send, and the expected answers."""

    def __init__(self, port: int, connect: bytes, *, websocket: bool) -> None:
        self.steps = [UPGRADE, masked(connect)] if websocket else [connect]
        self.data = b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex((HOST, port))

    def say(self) -> None:
        """Send the next bytes, which always fit into the socket's buffer."""
        self.data = b""
        self.socket.send(self.steps.pop(0))

    def hear(self) -> bool:
        """Receive. Return whether the session is open."""
        more = self.socket.recv(4096)
        self.data += more
        if not more:
            raise BenchError(f"a connection was refused: {self.data[:200]!r}")
        if self.steps:
            if self.data.endswith(b"\r\n\r\n"):
                self.say()
            return False
        return b"CONNECTED\n" in self.data


def open_idle(
    broker: Broker,
    connections: int,
    at_once: int,
    limit_s: float,
    *,
    websocket: bool,
    visitors: Sequence[Visitor] = (STRANGER,),
) -> Idle:
    """Open connections, measure the broker, and close them. Arguments as for ``held_idle``."""
    with held_idle(
        broker, connections, at_once, limit_s, websocket=websocket, visitors=visitors
    ) as idle:
        return idle


@contextmanager
def held_idle(
    broker: Broker,
    connections: int,
    at_once: int,
    limit_s: float,
    *,
    websocket: bool,
    visitors: Sequence[Visitor] = (STRANGER,),
) -> Iterator[Idle]:
    """Open connections, ``at_once`` at a time, and keep all of them. Yield their cost.

    Args:
      visitors: The logins of connections, used in turn, without TLS.

    Raises:
      BenchError: one was refused, or they were not open within ``limit_s``.
    """
    raise_file_limit(connections)
    epoll = select.epoll()
    opening: dict[int, _Opening] = {}
    opened: list[_Opening] = []
    before, cpu = broker.rss_bytes(), broker.cpu()
    start = time.perf_counter()
    try:
        while len(opened) < connections:
            while len(opening) < min(at_once, connections - len(opened)):
                visitor = visitors[(len(opened) + len(opening)) % len(visitors)]
                new = _Opening(broker.port, visitor.connect, websocket=websocket)
                opening[new.socket.fileno()] = new
                epoll.register(new.socket, select.EPOLLOUT)
            for file, events in epoll.poll(1.0):
                each = opening[file]
                if events & select.EPOLLOUT:
                    each.say()
                    epoll.modify(file, select.EPOLLIN)
                elif each.hear():
                    epoll.unregister(file)
                    opened.append(opening.pop(file))
            if time.perf_counter() - start > limit_s:
                raise BenchError(f"{len(opened)} of {connections} opened within {limit_s:g} s")
        wall_s = time.perf_counter() - start
        used = broker.cpu().since(cpu)
        yield Idle(connections, wall_s, used, broker.rss_bytes() - before)
    finally:
        epoll.close()
        for each in (*opened, *opening.values()):
            each.socket.close()
