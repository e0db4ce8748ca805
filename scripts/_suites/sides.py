"""The brokers that a suite is run against: ours in the dialect that fits, and theirs."""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import trustme
from _bench import others
from _bench.process import BenchError

ROOT = Path(__file__).resolve().parents[2]
OURS = "trio_stomp"
START_S = 60
_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")

LOGIN = "guest"
PASSCODE = "guest"
STANDARD_PORT = 61613
"""Suites have them in their code."""


class Side(NamedTuple):
    """A running broker.

    Args:
      web_port: The port of STOMP over WebSocket, at ``/ws``; 0 = none.
      tls_port: The port of STOMP over TLS; 0 = none.
      authority: The certificate of its authority, in PEM; empty = none.
    """

    name: str
    port: int
    web_port: int
    tls_port: int
    authority: bytes = b""


Start = Callable[[], AbstractContextManager[Side]]


@contextmanager
def ours(
    *options: str, login: str = LOGIN, port: int = 0, not_after: datetime | None = None
) -> Iterator[Side]:
    """Run our broker of this tree, with plain text and TLS.

    Args:
      options: More options of its command line.
      login: The user who may do everything; "" = no login is required.
      port: The preferred port; 0 = any.
      not_after: The end of its certificate.
    """
    with tempfile.TemporaryDirectory(prefix="suites-") as name:
        home = Path(name)
        python = [sys.executable, "-m", "trio_stomp"]
        found = list(options)
        if login:
            users = str(home / "users")
            add = [*python, "passwd", "add", users, login, "--stdin"]
            subprocess.run(
                add, cwd=ROOT, input=PASSCODE, text=True, check=True, capture_output=True
            )
            found += ["--passwd-file", users]
        pem = home / "broker.pem"
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1", not_after=not_after)
        certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
        found += ["--port", str(_free(port)), "--tls-cert", str(pem)]
        with subprocess.Popen(
            [*python, *found], cwd=ROOT, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                bound = _port(process)
                yield Side(OURS, bound, bound, bound, authority.cert_pem.bytes())
            finally:
                process.terminate()
                try:
                    process.wait(START_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def _free(port: int) -> int:
    """Return a port if it is free. Otherwise return 0 and print that a test needs that port."""
    with socket.socket() as tried:
        # Remains of closed connections do not block the port.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            print(
                f"port {port} is in use; using another, which some tests do not accept",
                file=sys.stderr,
            )
            return 0
    return port


def _port(process: subprocess.Popen[str]) -> int:
    """Return the port that the broker reports. A thread then empties the pipe of its log."""
    assert process.stderr is not None
    text = ""
    for line in process.stderr:
        text += line
        if found := _LISTENING.search(line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return int(found[1])
    raise BenchError(f"the broker did not start:\n{text}")


@contextmanager
def rabbitmq(*, anonymous: bool = False) -> Iterator[Side]:
    """Run RabbitMQ."""
    with others.rabbitmq(LOGIN, PASSCODE, anonymous=anonymous) as broker:
        yield Side(broker.name, broker.port, broker.web_port, 0)


@contextmanager
def activemq(*, anonymous: bool = False, port: int = 0) -> Iterator[Side]:
    """Run ActiveMQ, on that port if it is free."""
    with others.activemq(LOGIN, PASSCODE, anonymous=anonymous, port=_free(port)) as broker:
        yield Side(broker.name, broker.port, broker.web_port, 0)


def missing(program: str) -> str:
    """Return a text that a program or path is missing, or ""."""
    is_there = Path(program).exists() if "/" in program else shutil.which(program)
    return "" if is_there else f"{program} is not installed"
