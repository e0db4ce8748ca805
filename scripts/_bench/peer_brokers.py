"""The brokers of ``scripts/bench.py --peers``: ours, others to start, and running ones."""

import argparse
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from _bench.guarded import write_users
from _bench.others import LOGIN, PASSCODE, OtherBroker, activemq, rabbitmq
from _bench.process import BenchError, Broker, family, running_broker
from _bench.wire import HOST, PATIENCE_S, STRANGER, Visitor

OURS = "trio_stomp"
STARTED = ("rabbitmq", "activemq")

SPEC = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*)=(?:(?P<login>[^:@]+):(?P<passcode>[^@]*)@)?"
    r"(?P<host>[\w.-]+):(?P<port>\d{1,5})(?:/(?P<pid>\d+))?"
)
HOSTS = (HOST, "localhost")
SERVER = re.compile(rb"\nserver:([^\r\n]+)")
LISTENS = "0A"
"""TCP_LISTEN as ``/proc/net/tcp`` has it."""


class Standing(NamedTuple):
    """A running broker.

    Args:
      web: The port of its WebSocket at ``/ws``; None = it has none.
      visitor: The login of clients.
      server: Its ``server`` header in CONNECTED; "" = none.
    """

    broker: Broker
    web: Broker | None
    visitor: Visitor
    server: str


class Peer(NamedTuple):
    """A broker to be measured.

    Args:
      start: Starts it, or returns the running one. Its argument says whether messages must survive.
    """

    name: str
    start: Callable[[bool], AbstractContextManager[Standing]]


class Running(NamedTuple):
    """A broker that is already running on this machine.

    Args:
      pid: Its process; 0 = the one that listens on the port.
    """

    name: str
    port: int
    pid: int
    visitor: Visitor

    @classmethod
    def parse(cls, text: str) -> "Running":
        """Read ``NAME=[LOGIN:PASSCODE@]HOST:PORT[/PID]``.

        Raises:
          argparse.ArgumentTypeError: it is none; the message has no passcode in it.
        """
        found = SPEC.fullmatch(text)
        shown = text.rpartition("@")[2]
        if found is None or not 0 < int(found["port"]) < 65_536:
            raise argparse.ArgumentTypeError(
                f"{shown!r} is no NAME=[LOGIN:PASSCODE@]{HOST}:PORT[/PID]"
            )
        if found["host"] not in HOSTS:
            raise argparse.ArgumentTypeError(
                f"{found['host']} is not this machine, whose processor time counts; use {HOST}"
            )
        if found["name"] in (OURS, *STARTED):
            raise argparse.ArgumentTypeError(f"{found['name']} is in use; choose another name")
        visitor = Visitor(found["login"], found["passcode"]) if found["login"] else STRANGER
        return cls(found["name"], int(found["port"]), int(found["pid"] or 0), visitor)


def peers_of(options: Sequence[str], running: Sequence[Running]) -> list[Peer]:
    """Return our broker, those of Debian, and the running ones.

    Args:
      options: The options of our broker.

    Raises:
      BenchError: a broker that should be running cannot be found.
    """
    return [
        Peer(OURS, lambda durable: _ours(options, durable=durable)),
        Peer("rabbitmq", lambda _: _other(rabbitmq(), host="/")),
        Peer("activemq", lambda durable: _other(activemq(persistent=durable), host="localhost")),
        *(_peer_of(each) for each in running),
    ]


@contextmanager
def _ours(options: Sequence[str], *, durable: bool) -> Iterator[Standing]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        # The others check a passcode, too.
        (visitor,) = write_users(Path(name) / "users", [LOGIN])
        more = ["--passwd-file", f"{name}/users"]
        if durable:
            more += ["--data-dir", f"{name}/data"]
        with running_broker((*more, *options)) as broker:
            yield _standing(broker, broker.port, visitor)


@contextmanager
def _other(starting: AbstractContextManager[OtherBroker], host: str) -> Iterator[Standing]:
    with starting as other:
        visitor = Visitor(LOGIN, PASSCODE, host=host)
        yield _standing(Broker(other.port, other.pid, family=True), other.web_port, visitor)


def _peer_of(running: Running) -> Peer:
    pid = running.pid or listener(running.port)
    if not Path(f"/proc/{pid}").exists():
        raise BenchError(f"{running.name}: there is no process {pid}")
    broker = Broker(running.port, pid, family=True)

    @contextmanager
    def start(_: bool) -> Iterator[Standing]:
        yield _standing(broker, broker.port, running.visitor)

    return Peer(running.name, start)


def _standing(broker: Broker, web_port: int, visitor: Visitor) -> Standing:
    web = broker._replace(port=web_port) if web_port else None
    return Standing(broker, web, visitor, server_of(broker.port, visitor))


def server_of(port: int, visitor: Visitor) -> str:
    """Return the ``server`` header of a broker, or "".

    Raises:
      BenchError: it lets no client in.
      OSError: it does not answer.
    """
    data = b""
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as connected:
        connected.sendall(visitor.connect)
        while b"\0" not in data and (more := connected.recv(4096)):
            data += more
    if not data.lstrip().startswith(b"CONNECTED"):
        raise BenchError(f"it answered CONNECT by {data[:200]!r}")
    found = SERVER.search(data)
    return found[1].decode(errors="replace") if found else ""


def listener(port: int) -> int:
    """Return the process that listens at a port, the first of a family that shares it.

    Raises:
      BenchError: there is none, there are several, or it belongs to another user.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    if not sockets:
        raise BenchError(f"no process listens on port {port}")
    holders = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # closed meanwhile, or not ours to see
            if os.readlink(path) in sockets:
                holders.add(int(path.parts[2]))
    younger = {child for pid in holders for child in family(pid)[1:]}
    eldest = sorted(holders - younger)
    if not eldest:
        raise BenchError(f"the owner of port {port} is hidden; add /PID, or run as it or root")
    if len(eldest) > 1:
        raise BenchError(f"processes {eldest} all listen at port {port}; add /PID of one for all")
    return eldest[0]


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of sockets that listen at a port (proc(5), ``/proc/net/tcp``)."""
    for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
