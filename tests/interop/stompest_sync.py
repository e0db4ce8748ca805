"""stompest's synchronous client, over TCP and TLS."""

import importlib.metadata
import ssl
import sys
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from stompest.config import StompConfig
from stompest.error import StompConnectionError
from stompest.protocol import StompSpec
from stompest.sync import Stomp

from tests.interop._scenario import (
    BEATS_MS,
    NOTHING,
    PATIENCE_S,
    Arguments,
    Client,
    Message,
    Scenario,
    expect,
)


class Stompest(Client):
    """One connection of stompest."""

    name = "stompest"
    version = importlib.metadata.version("stompest")

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        context = None
        if arguments.transport == "tls":
            context = ssl.create_default_context(cafile=arguments.ca_file)
        where = f"tcp://{arguments.host}:{arguments.port}"
        config = StompConfig(where, version=StompSpec.VERSION_1_2, sslContext=context)
        self.stomp = Stomp(config)
        self.tokens: dict[str, Any] = {}
        self._numbers = count(1)

    def connect(self) -> str:
        beats = (BEATS_MS, BEATS_MS)
        self.stomp.connect(heartBeats=beats, host=self.arguments.host, connectedTimeout=PATIENCE_S)
        return str(self.stomp.session.version)

    def idle(self, seconds: float) -> int:
        beats, end = 0, time.monotonic() + seconds
        before = self.stomp.lastReceived
        while time.monotonic() < end:
            assert not self.stomp.canRead(BEATS_MS / 3000)
            self.stomp.beat()
            beats += self.stomp.lastReceived != before
            before = self.stomp.lastReceived
        return beats

    def subscribe(self, destination: str, id: str, ack: str = "auto") -> None:
        self.tokens[id] = self.stomp.subscribe(destination, {"id": id, "ack": ack})

    def unsubscribe(self, id: str) -> None:
        self.stomp.unsubscribe(self.tokens.pop(id))

    def send(self, destination: str, body: bytes, headers: Mapping[str, str] = NOTHING) -> None:
        # It counts no bytes itself, so without this a body would end at its first NUL.
        self.stomp.send(destination, body, {**headers, "content-length": str(len(body))})

    def send_and_wait(self, destination: str, body: bytes) -> str:
        receipt = f"r{next(self._numbers)}"
        self.stomp.send(destination, body, receipt=receipt)
        expect(self.stomp.receipt(self._frame("RECEIPT")), receipt)
        return receipt

    def get(self) -> Message:
        frame = self._frame("MESSAGE")
        self.stomp.message(frame)
        return Message(frame.headers, frame.body, frame)

    def _frame(self, command: str) -> Any:
        if not self.stomp.canRead(PATIENCE_S):
            raise AssertionError(f"no {command} came")
        frame = self.stomp.receiveFrame()
        expect(frame.command, command)
        return frame

    def ack(self, message: Message) -> None:
        self.stomp.ack(message.key)

    def nack(self, message: Message) -> None:
        self.stomp.nack(message.key)

    def begin(self, name: str) -> None:
        self.stomp.begin(name)

    def commit(self, name: str) -> None:
        self.stomp.commit(name)

    def abort(self, name: str) -> None:
        self.stomp.abort(name)

    def lose_and_return(self, destination: str, id: str) -> str:
        self.subscribe(destination, id)
        self.send(destination, b"before")
        expect(self.get().body, b"before")
        self.arguments.cut()
        try:
            self.stomp.receiveFrame()
        except StompConnectionError:
            # It repeats all its subscriptions.
            self.connect()
            return "connect() by the program; the library subscribes again"
        raise AssertionError("the link was not cut")

    def leave(self) -> None:
        self.stomp.disconnect(receipt="left")
        expect(self._frame("RECEIPT").headers["receipt-id"], "left")
        self.stomp.close()


if __name__ == "__main__":
    arguments = Arguments.read()
    sys.exit(Scenario(Stompest(arguments), lambda: Stompest(arguments)).run())
