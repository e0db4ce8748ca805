"""Clients that we did not write, behind one face: stomp.py over TCP, stompjs over WebSocket."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

import pytest
import stomp

ROOT = Path(__file__).parents[2]
JS = ROOT / "tests" / "js"
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")

# Only something broken takes so long.
PATIENCE_S = 60

Headers = Mapping[str, str]
NOTHING: Headers = {}


@contextmanager
def running_broker(*options: str) -> Iterator[int]:
    """Run a broker in a process of its own, and yield its port."""
    command = [sys.executable, "-m", "trio_stomp", "--port", "0", *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = LISTENING.search(line)
            assert found, line + process.stderr.read()
            # The log is not read further, so it must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield int(found[1])
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def node_or_skip() -> str:
    """Return the path of Node, or skip, and say so loudly."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("NODE IS NOT THERE: nothing was tested with stompjs")
    if not (JS / "node_modules" / "@stomp").is_dir():
        pytest.skip("NODE'S PACKAGES ARE NOT THERE (npm ci in tests/js): no test with stompjs")
    return path


class Message(NamedTuple):
    """A MESSAGE or ERROR as a client saw it. ``key`` identifies it in an acknowledgement."""

    headers: Headers
    body: str
    key: Any = None


class Peer:
    """A connected client. Received frames wait in queues."""

    def __init__(self) -> None:
        self.connected: Queue[Headers] = Queue()
        self.messages: Queue[Message] = Queue()
        self.receipts: Queue[Headers] = Queue()
        self.errors: Queue[Message] = Queue()
        self.ended: Queue[None] = Queue()
        self.welcome: Headers = NOTHING
        self.has_left = False
        self._numbers = count(1)

    # Operations that each library performs in its own way.

    def _subscribe(self, destination: str, headers: dict[str, str]) -> None:
        raise NotImplementedError

    def _unsubscribe(self, headers: dict[str, str]) -> None:
        raise NotImplementedError

    def _send(self, destination: str, body: str, headers: dict[str, str]) -> None:
        raise NotImplementedError

    def _transact(self, command: str, name: str, headers: dict[str, str]) -> None:
        raise NotImplementedError

    def ack(self, message: Message, transaction: str = "") -> None:
        """ACK, with the headers that the client's library sends."""
        raise NotImplementedError

    def nack(self, message: Message, requeue: str = "") -> None:
        """Send NACK. ``requeue`` is RabbitMQ's header."""
        raise NotImplementedError

    def vanish(self) -> None:
        """Close the connection without DISCONNECT."""
        raise NotImplementedError

    def leave(self) -> None:
        """DISCONNECT, if that has not happened, and wait for the end."""
        raise NotImplementedError

    # Interface of the tests.

    def subscribe(
        self, destination: str, id: str = "1", ack: str = "auto", headers: Headers = NOTHING
    ) -> None:
        """SUBSCRIBE, and wait for its RECEIPT."""
        receipt = self._receipt()
        self._subscribe(destination, {"id": id, "ack": ack, "receipt": receipt, **headers})
        self._wait(receipt)

    def unsubscribe(self, id: str = "1", headers: Headers = NOTHING) -> None:
        """UNSUBSCRIBE, and wait for its RECEIPT."""
        receipt = self._receipt()
        self._unsubscribe({"id": id, "receipt": receipt, **headers})
        self._wait(receipt)

    def send(self, destination: str, body: str, headers: Headers = NOTHING) -> Headers:
        """SEND, and return the headers of its RECEIPT."""
        receipt = self._receipt()
        self._send(destination, body, {"receipt": receipt, **headers})
        return self._wait(receipt)

    def try_send(self, destination: str, body: str, headers: Headers = NOTHING) -> None:
        """SEND without waiting for an answer."""
        self._send(destination, body, dict(headers))

    def begin(self, name: str) -> None:
        """BEGIN."""
        self._transact("BEGIN", name, {})

    def commit(self, name: str) -> None:
        """COMMIT, and wait for its RECEIPT."""
        receipt = self._receipt()
        self._transact("COMMIT", name, {"receipt": receipt})
        self._wait(receipt)

    def abort(self, name: str) -> None:
        """ABORT, and wait for its RECEIPT."""
        receipt = self._receipt()
        self._transact("ABORT", name, {"receipt": receipt})
        self._wait(receipt)

    def get(self) -> Message:
        """The next message."""
        try:
            return self.messages.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError("no message came") from None

    def bodies(self, count: int) -> list[str]:
        """The bodies of the next messages."""
        return [self.get().body for _ in range(count)]

    def settle(self) -> None:
        """Wait until the broker has processed all frames, and its answers have arrived."""
        self.send("/topic/settle", "")

    def is_quiet(self) -> bool:
        """Return whether nothing more arrived before the answer to a later frame."""
        self.settle()
        return self.messages.empty()

    def refused(self) -> Message:
        """The ERROR, after which the connection has ended."""
        error = self.errors.get(timeout=PATIENCE_S)
        self.ended.get(timeout=PATIENCE_S)
        self.has_left = True
        return error

    def _receipt(self) -> str:
        return f"r{next(self._numbers)}"

    def _wait(self, receipt: str) -> Headers:
        try:
            headers = self.receipts.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"no RECEIPT came, but {list(self.errors.queue)}") from None
        assert headers["receipt-id"] == receipt
        return headers


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        self.peer.connected.put(frame.headers)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.peer.messages.put(Message(frame.headers, frame.body))

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.peer.receipts.put(frame.headers)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.peer.errors.put(Message(frame.headers, frame.body))

    def on_disconnected(self) -> None:
        self.peer.ended.put(None)


class PythonPeer(Peer):
    """stomp.py."""

    def __init__(self, port: int, version: str, headers: Headers) -> None:
        super().__init__()
        client = {"1.1": stomp.Connection11, "1.2": stomp.Connection12}[version]
        self.is_1_1 = version == "1.1"
        self.connection = client([("127.0.0.1", port)], reconnect_attempts_max=1)
        self.connection.set_listener("", _Listener(self))
        self.connection.connect(wait=True, headers=dict(headers))
        self.welcome = self.connected.get(timeout=PATIENCE_S)

    def _subscribe(self, destination: str, headers: dict[str, str]) -> None:
        id, ack = headers.pop("id"), headers.pop("ack")
        self.connection.subscribe(destination, id=id, ack=ack, headers=headers)

    def _unsubscribe(self, headers: dict[str, str]) -> None:
        self.connection.unsubscribe(headers.pop("id"), headers=headers)

    def _send(self, destination: str, body: str, headers: dict[str, str]) -> None:
        self.connection.send(destination, body, headers=headers)

    def _transact(self, command: str, name: str, headers: dict[str, str]) -> None:
        method = getattr(self.connection, command.lower())
        method(name, headers=headers)

    def ack(self, message: Message, transaction: str = "") -> None:
        self.connection.ack(*self._id(message), transaction=transaction or None)

    def nack(self, message: Message, requeue: str = "") -> None:
        more = {"requeue": requeue} if requeue else {}
        self.connection.nack(*self._id(message), **more)

    def _id(self, message: Message) -> tuple[str, ...]:
        fields = message.headers
        if self.is_1_1:
            return fields["message-id"], fields["subscription"]
        return (fields["ack"],)

    def vanish(self) -> None:
        self.has_left = True
        self.connection.transport.disconnect_socket()
        self.ended.get(timeout=PATIENCE_S)

    def leave(self) -> None:
        if not self.has_left and self.connection.is_connected():
            self.has_left = True
            # It asks for a receipt, and closes when that has come.
            self.connection.disconnect()
            self.ended.get(timeout=PATIENCE_S)


class Node:
    """One process of Node, in which all clients of stompjs run."""

    def __init__(self, path: str) -> None:
        pipe = subprocess.PIPE
        command = [path, str(JS / "drive.mjs")]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.peers: dict[int, Peer] = {}
        self._numbers = count(1)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def add(self, peer: Peer) -> int:
        """Register a client. Return the number by which Node knows it."""
        number = next(self._numbers)
        self.peers[number] = peer
        return number

    def tell(self, **order: object) -> None:
        """Send an order of ``drive.mjs``."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record = json.loads(line)
            peer = self.peers[record["client"]]
            headers, body = record.get("headers", {}), record.get("body", "")
            match record["event"]:
                case "connected":
                    peer.connected.put(headers)
                case "message":
                    peer.messages.put(Message(headers, body, record["key"]))
                case "receipt":
                    peer.receipts.put(headers)
                case "error":
                    peer.errors.put(Message(headers, body))
                case "ended":
                    peer.ended.put(None)

    def close(self) -> None:
        """End the process in order."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(PATIENCE_S) == 0
        finally:
            self.process.kill()
            self._listener.join(PATIENCE_S)
            self.process.stdout.close()


class NodePeer(Peer):
    """stompjs."""

    def __init__(self, node: Node, port: int, version: str, headers: Headers) -> None:
        super().__init__()
        self.node = node
        self.number = node.add(self)
        self._tell("connect", port=port, version=version, headers=dict(headers))
        self.welcome = self.connected.get(timeout=PATIENCE_S)

    def _tell(self, do: str, **more: object) -> None:
        self.node.tell(client=self.number, do=do, **more)

    def _subscribe(self, destination: str, headers: dict[str, str]) -> None:
        self._tell("subscribe", destination=destination, headers=headers)

    def _unsubscribe(self, headers: dict[str, str]) -> None:
        self._tell("unsubscribe", id=headers.pop("id"), headers=headers)

    def _send(self, destination: str, body: str, headers: dict[str, str]) -> None:
        self._tell("publish", destination=destination, body=body, headers=headers)

    def _transact(self, command: str, name: str, headers: dict[str, str]) -> None:
        self._tell("transact", command=command, name=name, headers=headers)

    def ack(self, message: Message, transaction: str = "") -> None:
        headers = {"transaction": transaction} if transaction else {}
        self._tell("ack", key=message.key, headers=headers)

    def nack(self, message: Message, requeue: str = "") -> None:
        self._tell("nack", key=message.key, headers={"requeue": requeue} if requeue else {})

    def vanish(self) -> None:
        self.has_left = True
        self._tell("vanish")
        self.ended.get(timeout=PATIENCE_S)

    def leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            self._tell("leave")
            self.ended.get(timeout=PATIENCE_S)
