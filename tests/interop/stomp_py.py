"""stomp.py, over TCP, TLS and WebSocket."""

import importlib.metadata
import sys
import time
from collections.abc import Mapping
from itertools import count
from queue import Queue
from typing import Any

import stomp
from stomp.adapter.ws import WSStompConnection

from tests.interop._scenario import (
    BEATS_MS,
    NOTHING,
    PATIENCE_S,
    Arguments,
    Client,
    Message,
    Scenario,
)


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, client: "StompPy") -> None:
        self.client = client

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        self.client.connected.put(frame.headers["version"])

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.client.messages.put(Message(frame.headers, frame.body, frame.headers.get("ack")))

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.client.receipts.put(frame.headers["receipt-id"])

    def on_heartbeat(self) -> None:
        self.client.beats += 1

    def on_disconnected(self) -> None:
        self.client.ended.put(None)


class StompPy(Client):
    """One connection of stomp.py."""

    name = "stomp.py"
    version = importlib.metadata.version("stomp.py")

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.connected: Queue[str] = Queue()
        self.messages: Queue[Message] = Queue()
        self.receipts: Queue[str] = Queue()
        self.ended: Queue[None] = Queue()
        self.beats = 0
        self._numbers = count(1)
        where = [(arguments.host, arguments.port)]
        options: dict[str, Any] = {"heartbeats": (BEATS_MS, BEATS_MS), "auto_decode": False}
        # By default it gives up after 1.5 intervals of its own, without a margin.
        options["heart_beat_receive_scale"] = 10
        if arguments.transport in ("ws", "wss"):
            self.connection: Any = WSStompConnection(
                where, ws_path="/ws", binary_mode=True, **options
            )
        else:
            self.connection = stomp.Connection12(where, **options)
        if arguments.transport in ("tls", "wss"):
            self.connection.set_ssl(where, ca_certs=arguments.ca_file)
        self.connection.set_listener("", _Listener(self))

    def connect(self) -> str:
        self.connection.connect(wait=True)
        return self.connected.get(timeout=PATIENCE_S)

    def idle(self, seconds: float) -> int:
        before = self.beats
        time.sleep(seconds)
        return self.beats - before

    def subscribe(self, destination: str, id: str, ack: str = "auto") -> None:
        self.connection.subscribe(destination, id=id, ack=ack)

    def unsubscribe(self, id: str) -> None:
        self.connection.unsubscribe(id)

    def send(self, destination: str, body: bytes, headers: Mapping[str, str] = NOTHING) -> None:
        self.connection.send(destination, body, headers=dict(headers))

    def send_and_wait(self, destination: str, body: bytes) -> str:
        receipt = f"r{next(self._numbers)}"
        self.connection.send(destination, body, headers={"receipt": receipt})
        assert self.receipts.get(timeout=PATIENCE_S) == receipt
        return receipt

    def get(self) -> Message:
        return self.messages.get(timeout=PATIENCE_S)

    def ack(self, message: Message) -> None:
        self.connection.ack(message.key)

    def nack(self, message: Message) -> None:
        self.connection.nack(message.key)

    def begin(self, name: str) -> None:
        self.connection.begin(name)

    def commit(self, name: str) -> None:
        self.connection.commit(name)

    def abort(self, name: str) -> None:
        self.connection.abort(name)

    def lose_and_return(self, destination: str, id: str) -> str:
        self.subscribe(destination, id)
        self.send_and_wait(destination, b"")
        self.get()
        reader = self.connection.transport.io_thread
        self.arguments.cut()
        self.ended.get(timeout=PATIENCE_S)
        # Its thread reports the end, and cleans up after that, but not a new connection.
        reader.join(PATIENCE_S)
        self.connect()
        self.subscribe(destination, id)
        return "connect() by the program"

    def leave(self) -> None:
        self.connection.disconnect(receipt="left")
        self.ended.get(timeout=PATIENCE_S)


if __name__ == "__main__":
    arguments = Arguments.read()
    sys.exit(Scenario(StompPy(arguments), lambda: StompPy(arguments)).run())
