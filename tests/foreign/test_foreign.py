"""Clients that we did not write: stomp.py over TCP, and stompjs in Node over WebSocket."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import pytest
import stomp

from tests.support.foreign import JS, PATIENCE_S, ROOT, node_or_skip, running_broker

EXCHANGE = ROOT / "scripts" / "examples" / "exchange.py"
MESSAGES = 10_000

pytestmark = pytest.mark.foreign


@pytest.fixture
def port() -> Iterator[int]:
    """Run a broker in its own process that publishes statistics often."""
    with running_broker("--diag-interval-s", "0.5") as found:
        yield found


@pytest.fixture
def node() -> str:
    return node_or_skip()


def python_client(name: str, peer: str, port: int, version: str) -> list[str]:
    """Return the command that runs the example's client with stomp.py."""
    options = ["--port", str(port), "--version", version]
    return [sys.executable, str(EXCHANGE), name, peer, *options]


def node_client(node: str, name: str, peer: str, port: int, version: str) -> list[str]:
    """Return the command that runs the example's client with stompjs."""
    options = ["--port", str(port), "--version", version]
    return [node, str(JS / "exchange.mjs"), name, peer, *options]


def outputs(*commands: list[str]) -> list[str]:
    """Run clients at the same time. Return the output of each once all have succeeded."""
    clients = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    try:
        printed = [client.communicate(timeout=2 * PATIENCE_S)[0] for client in clients]
    finally:
        for client in clients:
            client.kill()
    assert [client.returncode for client in clients] == [0] * len(clients), printed
    return printed


def check(printed: str, name: str) -> None:
    """Check one client's output about an exchange and the statistics."""
    assert f"{name}: sent {MESSAGES}, received {MESSAGES} in order\n" in printed
    found = re.search(rf"{name}: DIAG/session says .*'?stomp_connected'?: (\d+)", printed)
    assert found, printed
    assert int(found[1]) >= 1


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_py_and_stompjs_exchange_messages(port: int, node: str, version: str) -> None:
    for_python, for_js = outputs(
        python_client("stomp.py", "stompjs", port, version),
        node_client(node, "stompjs", "stomp.py", port, version),
    )
    check(for_python, "stomp.py")
    check(for_js, "stompjs")


def test_two_of_stomp_py_exchange_messages(port: int) -> None:
    for_one, for_two = outputs(
        python_client("one", "two", port, "1.2"), python_client("two", "one", port, "1.1")
    )
    check(for_one, "one")
    check(for_two, "two")


class Mailbox(stomp.ConnectionListener):  # type: ignore[misc]
    """The frames that a client of stomp.py receives, to wait for."""

    def __init__(self) -> None:
        self.messages: Queue[stomp.utils.Frame] = Queue()
        self.receipts: Queue[str] = Queue()
        self.errors: Queue[stomp.utils.Frame] = Queue()
        self.ended: Queue[None] = Queue()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.ended.put(None)


@contextmanager
def connected(
    client: type, port: int, **options: object
) -> Iterator[tuple[stomp.Connection12, Mailbox]]:
    """Connect with stomp.py; disconnect at the end, if that has not happened."""
    connection = client([("127.0.0.1", port)], reconnect_attempts_max=1, **options)
    mailbox = Mailbox()
    connection.set_listener("", mailbox)
    connection.connect(wait=True)
    try:
        yield connection, mailbox
    finally:
        if connection.is_connected():
            connection.disconnect()


CLIENTS = [stomp.Connection10, stomp.Connection11, stomp.Connection12]


@pytest.mark.parametrize("client", CLIENTS)
def test_stomp_py_subscribes_sends_and_leaves(client: type, port: int) -> None:
    with connected(client, port) as (connection, mailbox):
        connection.subscribe("/topic/prices.*", id="7", receipt="subscribed")
        assert mailbox.receipts.get(timeout=PATIENCE_S) == "subscribed"
        connection.send("/topic/prices.tea", "Grüße, 茶: 5 €", content_type="text/plain")
        message = mailbox.messages.get(timeout=PATIENCE_S)
        assert message.body == "Grüße, 茶: 5 €"
        assert message.headers["destination"] == "/topic/prices.tea"
        assert message.headers["content-type"] == "text/plain"
        assert message.headers["subscription"] == "7"
        connection.unsubscribe(id="7", destination="/topic/prices.*")
        connection.disconnect(receipt="left")
        assert mailbox.receipts.get(timeout=PATIENCE_S) == "left"
        mailbox.ended.get(timeout=PATIENCE_S)


def test_stomp_py_gets_the_error(port: int) -> None:
    with connected(stomp.Connection12, port) as (connection, mailbox):
        connection.send("DIAG/session", "mine", receipt="9")
        error = mailbox.errors.get(timeout=PATIENCE_S)
        assert error.headers["code"] == "reserved-destination"
        assert error.headers["receipt-id"] == "9"
        mailbox.ended.get(timeout=PATIENCE_S)


BODIES = [b"", b"plain", "Grüße, 茶".encode(), bytes(range(256)) * 3, b"\0" * 100, b"x" * 1_000_000]
# stompjs trims the values of headers, and takes an escaped backslash before an n for a line end.
TEXTS = ["plain", "a:b:c", "back\\slash", "two\nlines", "Grüße 茶"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_bodies_and_headers_survive_both_ways(port: int, node: str, version: str) -> None:
    client = CLIENTS[["1.0", "1.1", "1.2"].index(version)]
    command = [node, str(JS / "echo.mjs"), str(port), version]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as echo,
        connected(client, port, auto_decode=False) as (connection, mailbox),
    ):
        try:
            assert echo.stdout is not None
            assert echo.stdin is not None
            assert echo.stdout.readline() == "subscribed\n"
            connection.subscribe("/topic/echo/back", id="1", receipt="subscribed")
            assert mailbox.receipts.get(timeout=PATIENCE_S) == "subscribed"
            for body in BODIES:
                connection.send("/topic/echo/there", body, text="plain")
                assert mailbox.messages.get(timeout=PATIENCE_S).body == body
            for text in TEXTS:
                connection.send("/topic/echo/there", b"", headers={"text": text})
                assert mailbox.messages.get(timeout=PATIENCE_S).headers["text"] == text
            echo.stdin.close()
            assert echo.wait(PATIENCE_S) == 0
        finally:
            echo.kill()
