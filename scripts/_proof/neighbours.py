"""Other clients during an attack: a ping-pong each 50 ms and a health probe, each a process."""

import select
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from _bench.process import cpu_of
from _bench.wire import HOST

from _proof.judge import Times

PING_S, PROBE_S = 0.05, 0.25
PATIENCE_S = 60.0
"""Time to wait for a last answer at the end. It counts with the time until then."""
ATTACKER, NEIGHBOUR = "attacker", "neighbour"
"""Users of a broker with logins. Their passcodes are their names."""
TOPIC = b"/topic/overload.ping"
PING = b"SEND\ndestination:%b\n\nping\0" % TOPIC
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Wait(NamedTuple):
    """A wait by the clock, and in processor time of the broker, in seconds."""

    clock_s: float
    cpu_s: float


LOST = Wait(3600.0, 3600.0)
"""The wait of a client that was disconnected."""


def hello(user: str = "") -> bytes:
    """Return the CONNECT of a user, or of anybody."""
    login = f"login:{user}\npasscode:{user}\n" if user else ""
    return f"CONNECT\naccept-version:1.2\nhost:localhost\n{login}\n\0".encode()


HELLO = hello()


def run_ping(port: int, pid: int, login: bytes, pipe: Pipe) -> None:
    """Report readiness. Measure from each ``begin`` to the next word, and send the results.

    A wait is counted in processor time of the broker, which other programs do not lengthen; and by
    the clock.
    """
    line = socket.create_connection((HOST, port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(login + b"SUBSCRIBE\nid:0\ndestination:%b\nreceipt:0\n\n\0" % TOPIC)
    _hear(line, b"RECEIPT\n", time.monotonic() + PATIENCE_S)

    def ping() -> Wait:
        began, used = time.monotonic(), cpu_of(pid)
        line.sendall(PING)
        if not _hear(line, b"ping\0", began + PATIENCE_S):
            return LOST
        return Wait(time.monotonic() - began, cpu_of(pid).since(used).exact)

    _serve(pipe, ping, PING_S)


def run_probe(port: int, pipe: Pipe) -> None:
    """Do the same for ``GET /livez``, with a connection each."""

    def probe() -> Wait:
        began = time.monotonic()
        with socket.create_connection((HOST, port), PATIENCE_S) as line:
            line.sendall(LIVEZ)
            is_well = _hear(line, b"HTTP/1.1 200", began + PATIENCE_S)
        took = time.monotonic() - began
        return Wait(took, took) if is_well else LOST

    _serve(pipe, probe, PROBE_S)


def _serve(pipe: Pipe, measure: Callable[[], Wait], every_s: float) -> None:
    pipe.send({})
    while pipe.recv() == "begin":
        times, used, longest, count = Times(), Times(), Wait(0.0, 0.0), 0
        due = time.monotonic()
        while not pipe.poll(max(0.0, due - time.monotonic())):
            try:
                took = measure()
            except OSError:
                took = LOST
            longest, count = Wait(*map(max, longest, took)), count + 1
            times.add(took.clock_s)
            used.add(took.cpu_s)
            due = max(due + every_s, time.monotonic())
            if took == LOST:
                break
        pipe.recv()
        seen = {"count": count, "p50": times.percentile(0.5), "longest": longest.clock_s}
        pipe.send(seen | {"cpu_p99": used.percentile(0.99), "cpu_longest": longest.cpu_s})


def _hear(line: socket.socket, wanted: bytes, until: float) -> bool:
    """Read until ``wanted`` has arrived. Return False if it does not."""
    data = b""
    while wanted not in data:
        ready, _, _ = select.select([line], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        piece = line.recv(65536)
        if not piece:
            return False
        data = data[-len(wanted) :] + piece
    return True
