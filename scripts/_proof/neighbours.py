"""Other clients during an attack: a ping-pong each 50 ms and a health probe, each a process."""

import select
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

from _bench.wire import HOST

from _proof.judge import Times

PING_S, PROBE_S = 0.05, 0.25
PATIENCE_S = 60.0
"""Time to wait for a last answer at the end. It counts with the time until then."""
HELLO = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
TOPIC = b"/topic/overload.ping"
PING = b"SEND\ndestination:%b\n\nping\0" % TOPIC
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LOST_S = 3600.0
"""The waiting time of a client that was disconnected."""


def run_ping(port: int, pipe: Pipe) -> None:
    """Report readiness. Measure from each ``begin`` to the next word, and send the results."""
    line = socket.create_connection((HOST, port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(HELLO + b"SUBSCRIBE\nid:0\ndestination:%b\nreceipt:0\n\n\0" % TOPIC)
    _hear(line, b"RECEIPT\n", time.monotonic() + PATIENCE_S)

    def ping() -> float:
        began = time.monotonic()
        line.sendall(PING)
        if not _hear(line, b"ping\0", began + PATIENCE_S):
            return LOST_S
        return time.monotonic() - began

    _serve(pipe, ping, PING_S)


def run_probe(port: int, pipe: Pipe) -> None:
    """Do the same for ``GET /livez``, with a connection each."""

    def probe() -> float:
        began = time.monotonic()
        with socket.create_connection((HOST, port), PATIENCE_S) as line:
            line.sendall(LIVEZ)
            is_well = _hear(line, b"HTTP/1.1 200", began + PATIENCE_S)
        return time.monotonic() - began if is_well else LOST_S

    _serve(pipe, probe, PROBE_S)


def _serve(pipe: Pipe, measure: Callable[[], float], every_s: float) -> None:
    pipe.send({})
    while pipe.recv() == "begin":
        times, longest, count = Times(), 0.0, 0
        due = time.monotonic()
        while not pipe.poll(max(0.0, due - time.monotonic())):
            try:
                took = measure()
            except OSError:
                took = LOST_S
            longest, count = max(longest, took), count + 1
            times.add(took)
            due = max(due + every_s, time.monotonic())
            if took == LOST_S:
                break
        pipe.recv()
        pipe.send({"count": count, "p50": times.percentile(0.5), "longest": longest})


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
