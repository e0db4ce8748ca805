"""The steps of every client, for those written in Python. Each language has the same steps.

A program is run as ``PROGRAM TRANSPORT HOST PORT CUT_PORT CA_FILE TAG``. It prints one line of
JSON for itself, ``{"client": …, "version": …}``, and one for each step; its exit code is 1 if a
step failed. A connection to CUT_PORT cuts its link to the broker, or has the broker stopped in
order and started again; TAG is in all destinations. The variable INTEROP_STEPS names the only
steps that are wanted, with commas between them.
"""

import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PATIENCE_S = 20
BEATS_MS = 300

IDLE_S = 2.0
"""So long a client says nothing: the broker of the tests drops it after 1.3 s without beats."""

BINARY = bytes((each * 7 + each // 256) % 256 for each in range(1_000_000))
TOGETHER = 20
NOTHING: Mapping[str, str] = {}


class NotSupportedError(Exception):
    """The library cannot do it; the text says why."""


class Message(NamedTuple):
    """A MESSAGE; ``key`` identifies it in the library's acknowledgement."""

    headers: Mapping[str, str]
    body: bytes
    key: Any


class Arguments(NamedTuple):
    """The arguments of a program."""

    transport: str
    host: str
    port: int
    cut_port: int
    ca_file: str
    tag: str

    @classmethod
    def read(cls) -> "Arguments":
        """From the command line."""
        transport, host, port, cut_port, ca_file, tag = sys.argv[1:]
        return cls(transport, host, int(port), int(cut_port), ca_file, tag)

    def cut(self) -> None:
        """Have the link to the broker cut, and return when that is done."""
        with socket.create_connection((self.host, self.cut_port), PATIENCE_S) as link:
            link.recv(1)


class Client:
    """A library, behind one face. One connection; messages come in the order of the broker's."""

    name = ""
    version = ""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments

    def connect(self) -> str:
        """Connect with heart-beats; the version of STOMP that was agreed on."""
        raise NotImplementedError

    def idle(self, seconds: float) -> int:
        """Send only heart-beats for a while. Return the number of received ones."""
        raise NotImplementedError

    def subscribe(self, destination: str, id: str, ack: str = "auto") -> None:
        """SUBSCRIBE."""
        raise NotImplementedError

    def unsubscribe(self, id: str) -> None:
        """UNSUBSCRIBE."""
        raise NotImplementedError

    def send(self, destination: str, body: bytes, headers: Mapping[str, str] = NOTHING) -> None:
        """SEND."""
        raise NotImplementedError

    def send_and_wait(self, destination: str, body: bytes) -> str:
        """SEND, and wait for its RECEIPT; its receipt-id."""
        raise NotImplementedError

    def get(self) -> Message:
        """The next message."""
        raise NotImplementedError

    def ack(self, message: Message) -> None:
        """ACK."""
        raise NotImplementedError

    def nack(self, message: Message) -> None:
        """NACK."""
        raise NotImplementedError

    def begin(self, name: str) -> None:
        """BEGIN."""
        raise NotImplementedError

    def commit(self, name: str) -> None:
        """COMMIT."""
        raise NotImplementedError

    def abort(self, name: str) -> None:
        """ABORT."""
        raise NotImplementedError

    def lose_and_return(self, destination: str, id: str) -> str:
        """Lose the connection while subscribed, and subscribe again. Return who resubscribed."""
        raise NotImplementedError

    def leave(self) -> None:
        """DISCONNECT, and wait for the end."""
        raise NotImplementedError


def expect(found: object, wanted: object) -> None:
    """Fail unless they are the same."""
    if found != wanted:
        raise AssertionError(f"{found!r} came, not {wanted!r}")


class Scenario:
    """The steps."""

    def __init__(self, client: Client, other: Callable[[], Client]) -> None:
        self.client = client
        self.other = other
        self.tag = client.arguments.tag

    def connect(self) -> str:
        version = self.client.connect()
        return f"STOMP {version}"

    def heart_beat(self) -> str:
        beats = self.client.idle(IDLE_S)
        if beats < 2:
            raise AssertionError(f"{beats} heart-beats came in {IDLE_S} s")
        self.topic()
        return ""

    def topic(self) -> str:
        client, destination = self.client, f"/topic/{self.tag}.news"
        client.subscribe(destination, "topic")
        client.send(destination, "Tee: 5 €".encode(), {"colour": "green"})
        message = client.get()
        expect(message.body, "Tee: 5 €".encode())
        expect(message.headers["colour"], "green")
        expect(message.headers["destination"], destination)
        client.unsubscribe("topic")
        return ""

    def _fill(self, name: str, *bodies: bytes) -> str:
        destination = f"/queue/{self.tag}.{name}"
        for body in bodies:
            self.client.send(destination, body)
        return destination

    def _take(self, *bodies: bytes) -> list[Message]:
        messages = [self.client.get() for _ in bodies]
        expect([each.body for each in messages], list(bodies))
        return messages

    def together(self) -> str:
        """Frames that come in one segment: they wait, and are sent in one turn."""
        bodies = [f"m{number}".encode() for number in range(TOGETHER)]
        destination = self._fill("together", *bodies)
        self.client.subscribe(destination, "together")
        self._take(*bodies)
        self.client.unsubscribe("together")
        return ""

    def ack_auto(self) -> str:
        destination = self._fill("auto", b"a", b"b")
        self.client.subscribe(destination, "auto-1", "auto")
        self._take(b"a", b"b")
        self.client.unsubscribe("auto-1")
        self._fill("auto", b"c")
        self.client.subscribe(destination, "auto-2", "auto")
        self._take(b"c")
        self.client.unsubscribe("auto-2")
        return ""

    def ack_client(self) -> str:
        return self._ack("client", (b"c",))

    def ack_client_individual(self) -> str:
        return self._ack("client-individual", (b"a", b"c"))

    def _ack(self, mode: str, left: tuple[bytes, ...]) -> str:
        destination = self._fill(mode, b"a", b"b", b"c")
        self.client.subscribe(destination, f"{mode}-1", mode)
        self.client.ack(self._take(b"a", b"b", b"c")[1])
        self.client.unsubscribe(f"{mode}-1")
        self.client.subscribe(destination, f"{mode}-2", "auto")
        for message in self._take(*left):
            expect(message.headers["redelivered"], "true")
        self.client.unsubscribe(f"{mode}-2")
        return ""

    def nack(self) -> str:
        destination = self._fill("nack", b"a")
        self.client.subscribe(destination, "nack", "client-individual")
        self.client.nack(self._take(b"a")[0])
        [again] = self._take(b"a")
        expect(again.headers["redelivered"], "true")
        self.client.ack(again)
        self.client.unsubscribe("nack")
        return ""

    def commit(self) -> str:
        client, destination = self.client, f"/queue/{self.tag}.commit"
        client.subscribe(destination, "commit")
        client.begin("t1")
        client.send(destination, b"second", {"transaction": "t1"})
        client.send(destination, b"first")
        self._take(b"first")
        client.commit("t1")
        self._take(b"second")
        client.unsubscribe("commit")
        return ""

    def abort(self) -> str:
        client, destination = self.client, f"/queue/{self.tag}.abort"
        client.subscribe(destination, "abort")
        client.begin("t2")
        client.send(destination, b"never", {"transaction": "t2"})
        client.abort("t2")
        client.send(destination, b"after")
        self._take(b"after")
        client.unsubscribe("abort")
        return ""

    def receipt(self) -> str:
        self.client.send_and_wait(f"/topic/{self.tag}.receipt", b"")
        return ""

    def reply(self) -> str:
        client, server, destination = self.client, self.other(), f"/queue/{self.tag}.ask"
        server.connect()
        server.subscribe(destination, "asked")
        client.subscribe("/temp-queue/answers", "answers")
        client.send(destination, b"?", {"reply-to": "/temp-queue/answers"})
        server.send(server.get().headers["reply-to"], b"!")
        self._take(b"!")
        client.unsubscribe("answers")
        server.leave()
        return ""

    def wildcard(self) -> str:
        client = self.client
        client.subscribe(f"/topic/{self.tag}.wild.*", "wild")
        client.send(f"/topic/{self.tag}.tame.cat", b"no")
        client.send(f"/topic/{self.tag}.wild.cat", b"yes")
        [message] = self._take(b"yes")
        expect(message.headers["destination"], f"/topic/{self.tag}.wild.cat")
        client.unsubscribe("wild")
        return ""

    def binary(self) -> str:
        client, destination = self.client, f"/queue/{self.tag}.binary"
        client.subscribe(destination, "binary")
        client.send(destination, BINARY, {"content-type": "application/octet-stream"})
        body = client.get().body
        expect(len(body), len(BINARY))
        digest = hashlib.sha256(body).hexdigest()
        expect(digest, hashlib.sha256(BINARY).hexdigest())
        client.unsubscribe("binary")
        return f"SHA-256 {digest[:16]}"

    def reconnect(self) -> str:
        destination = f"/topic/{self.tag}.back"
        who = self.client.lose_and_return(destination, "back")
        self.client.send(destination, b"again")
        self._take(b"again")
        return who

    def run(self) -> int:
        """Run all; the exit code."""
        say(client=self.client.name, version=self.client.version, on=platform.python_version())
        steps: dict[str, Callable[[], str]] = {
            "connect": self.connect,
            "heart-beat": self.heart_beat,
            "topic": self.topic,
            "together": self.together,
            "ack-auto": self.ack_auto,
            "ack-client": self.ack_client,
            "ack-client-individual": self.ack_client_individual,
            "nack": self.nack,
            "commit": self.commit,
            "abort": self.abort,
            "receipt": self.receipt,
            "reply": self.reply,
            "wildcard": self.wildcard,
            "binary": self.binary,
            "reconnect": self.reconnect,
        }
        wanted = os.environ.get("INTEROP_STEPS", ",".join(steps)).split(",")
        for name, deed in ((name, steps[name]) for name in wanted):
            try:
                say(step=name, result="ok", detail=deed())
            except NotSupportedError as error:
                say(step=name, result="not supported by the library", detail=str(error))
            except Exception as error:
                # After a failure the state of the connection is unknown: further steps would prove
                # nothing.
                say(step=name, result="failed", detail=f"{type(error).__name__}: {error}")
                return 1
        self.client.leave()
        return 0


def say(**line: object) -> None:
    """Print a line of JSON."""
    print(json.dumps(line), flush=True)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for an action that a library performs in its own thread without notice."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never so: {what}")
        time.sleep(0.01)
