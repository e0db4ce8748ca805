"""A STOMP server that has streams and little else, after docs/use/streams.md: threads, and a list.

In a test: ``StreamServer()`` as a context manager, with ``append``, ``trim``, ``new_epoch``,
``kill`` and ``restart``. As a program it stands in for a broker whose log outlives it::

    python tests/support/stream_server.py --port 61613 --data-dir /tmp/log

SUBSCRIBE and UNSUBSCRIBE of anything that is no stream make one message of ``DIAG/event/…`` each.
"""

import argparse
import contextlib
import json
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TextIO

HEARTBEAT_S = 0.2
BURST = 500
"""MESSAGEs of one write."""

Headers = dict[str, str]


class Log:
    """One stream: its messages, its first offset, and its epoch."""

    def __init__(self, journal: Path | None = None) -> None:
        self.changed = threading.Condition()
        self.epoch = uuid.uuid4().hex
        self.first = 0
        self.is_old = False
        """Append like a broker that does not report the time of storing."""
        self.tails: list[bytes] = []
        self.times: list[float] = []
        self._file: TextIO | None = None
        if journal is not None:
            self._recover(journal)

    @property
    def next(self) -> int:
        return self.first + len(self.tails)

    def append(self, topic: str, body: bytes, headers: Headers | None = None) -> int:
        """Append a message, to the journal first if there is one. Return its offset."""
        with self.changed:
            offset, now = self.next, time.time()
            if self._file is not None:
                self._file.write(json.dumps([topic, body.decode(), now]) + "\n")
                self._file.flush()
            self._keep(topic, body, headers or {}, now)
            self.changed.notify_all()
            return offset

    def trim(self, first: int) -> None:
        """Forget the messages before ``first``."""
        with self.changed:
            del self.tails[: first - self.first], self.times[: first - self.first]
            self.first = first

    def new_epoch(self) -> None:
        """Lose everything."""
        with self.changed:
            self.epoch, self.first = uuid.uuid4().hex, 0
            self.tails.clear()
            self.times.clear()
            self.changed.notify_all()

    def _keep(self, topic: str, body: bytes, headers: Headers, now: float) -> None:
        lines = {"x-stream-offset": str(self.next), "x-stream-timestamp": str(int(now * 1000))}
        if self.is_old:
            del lines["x-stream-timestamp"]
        lines |= {"x-stream-epoch": self.epoch, "destination": topic, **headers}
        if body:
            lines["content-length"] = str(len(body))
        head = "".join(f"{name}:{escaped(text)}\n" for name, text in lines.items())
        self.tails.append(b"%d\n%b\n%b\0" % (self.next, head.encode(), body))
        self.times.append(now)

    def _recover(self, journal: Path) -> None:
        lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_bytes(b"".join(whole) or json.dumps(self.epoch).encode() + b"\n")
        if whole:
            self.epoch = json.loads(whole[0])
        for line in whole[1:]:
            topic, body, now = json.loads(line)
            self._keep(topic, body.encode(), {}, now)
        self._file = journal.open("a", encoding="utf-8")


class StreamServer:
    """Serves one log as ``stream`` on a port of the loopback interface.

    Args:
      port: 0 = any.
      tls: Context of a server, or None.
      passcode: Required in CONNECT, or None.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        log: Log | None = None,
        stream: str = "/stream/DIAG",
        tls: ssl.SSLContext | None = None,
        passcode: str | None = None,
    ) -> None:
        self.port, self.stream, self.tls, self.passcode = port, stream, tls, passcode
        self.log = log or Log()
        self.append, self.trim, self.new_epoch = self.log.append, self.log.trim, self.log.new_epoch
        self.received: list[tuple[str, Headers]] = []
        self.before_replay: Callable[[], None] = lambda: None
        self.cut_after: int | None = None
        """Close the connection in the middle of this message, once."""
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"{'stomps' if self.tls else 'stomp'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def restart(self) -> None:
        """Listen, on the port of the last time if there was one."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def kill(self) -> None:
        """Close everything immediately."""
        for opened in [self._listener, *self._sockets]:
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)
                opened.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self.tls is not None:
                accepted = self.tls.wrap_socket(accepted, server_side=True)
            self._sockets.add(accepted)
            with accepted, accepted.makefile("rb") as lines:
                session = Session(self, accepted)
                while (frame := read_frame(lines.readline, lines.read)) is not None:
                    self.received.append(frame)
                    session.handle(*frame)
        self._sockets.discard(accepted)


class Session:
    """One connection."""

    def __init__(self, server: StreamServer, accepted: socket.socket) -> None:
        self.server, self.log, self.socket = server, server.log, accepted
        self.lock = threading.Lock()

    def handle(self, command: str, headers: Headers) -> None:
        """Do what one frame asks for."""
        destination = headers.get("destination", "")
        if command == "CONNECT":
            if self.server.passcode not in (None, headers.get("passcode")):
                return self.refuse("not-authorized", "wrong passcode")
            threading.Thread(target=self.beat, daemon=True).start()
            return self.send("CONNECTED", {"version": "1.2", "heart-beat": "200,0"})
        if command in ("SEND", "SUBSCRIBE") and destination.startswith("/stream/"):
            if destination != self.server.stream:
                return self.refuse("invalid-destination", f"no stream {destination}")
            if command == "SEND":
                return self.answer(headers)
            return threading.Thread(target=self.replay, args=(headers,), daemon=True).start()
        if command in ("SUBSCRIBE", "UNSUBSCRIBE"):
            self.log.append(f"DIAG/event/{command.lower()}", event(command.lower(), destination))
        return None

    def answer(self, headers: Headers) -> None:
        """Send the bounds of the stream."""
        with self.log.changed:
            values = {"epoch": self.log.epoch, "first": self.log.first, "next": self.log.next}
        lines = {f"x-stream-{name}": str(value) for name, value in values.items()}
        lines["correlation-id"] = headers["correlation-id"]
        lines |= {"subscription": headers["reply-to"], "destination": "/reply-queue/1.answers"}
        body = json.dumps({"stream": self.server.stream, **values}).encode()
        self.send("MESSAGE", {"message-id": "a", **lines}, body)

    def replay(self, headers: Headers) -> None:
        """Send the requested messages, then the end marker or, without an end, new messages."""
        self.server.before_replay()
        log = self.log
        until = int(headers["x-stream-until"]) if "x-stream-until" in headers else None
        epoch = headers.get("x-stream-epoch", log.epoch)
        at = self.start(headers["x-stream-offset"])
        prefix = b"MESSAGE\nsubscription:%b\nmessage-id:x.1-" % headers["id"].encode()
        with contextlib.suppress(OSError):
            while epoch == log.epoch and (until is None or at < until):
                with log.changed:
                    at = max(at, log.first) if until is None else min(max(at, log.first), until)
                    burst = log.tails[at - log.first :][: min(BURST, (until or at + BURST) - at)]
                    if not burst and not (until is not None and at >= until):
                        log.changed.wait(HEARTBEAT_S)
                        continue
                self.write_burst(prefix, at, burst)
                at += len(burst)
            with log.changed:
                values = {"first": log.first, "next": log.next, "epoch": log.epoch}
            values |= {"offset": at, "end": "true"}
            lines = {f"x-stream-{name}": str(value) for name, value in values.items()}
            self.send("MESSAGE", {"subscription": headers["id"], "message-id": "x.1-e", **lines})

    def start(self, asked: str) -> int:
        """Return the offset that ``x-stream-offset`` means."""
        log = self.log
        name, _, number = asked.rpartition("=")
        if name == "timestamp":
            return log.first + sum(moment < float(number) for moment in log.times)
        named = {"first": log.first, "last": max(log.first, log.next - 1), "next": log.next}
        return named[asked] if asked in named else int(number)

    def write_burst(self, prefix: bytes, at: int, burst: list[bytes]) -> None:
        """Send MESSAGEs, or only a part of them if the connection is to be cut there."""
        data = prefix.join([b"", *burst])
        cut = self.server.cut_after
        if cut is not None and at <= cut < at + len(burst):
            self.server.cut_after = None
            kept = prefix.join([b"", *burst[: cut - at + 1]])[:-7]
            with self.lock:
                self.socket.sendall(kept)
                self.socket.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.socket.sendall(data)

    def beat(self) -> None:
        """Send a heart-beat now and then."""
        with contextlib.suppress(OSError):
            while True:
                time.sleep(HEARTBEAT_S)
                with self.lock:
                    self.socket.sendall(b"\n")

    def refuse(self, code: str, message: str) -> None:
        """Send an ERROR, and close."""
        self.send("ERROR", {"code": code, "message": message})
        self.socket.shutdown(socket.SHUT_WR)

    def send(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Send one frame."""
        lines = headers | ({"content-length": str(len(body))} if body else {})
        head = "".join(f"{name}:{escaped(text)}\n" for name, text in lines.items())
        with self.lock:
            self.socket.sendall(b"%b\n%b\n%b\0" % (command.encode(), head.encode(), body))


def escaped(text: str) -> str:
    """Return a header's value escaped for STOMP 1.2."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")


def read_frame(
    readline: Callable[[], bytes], read: Callable[[int], bytes]
) -> tuple[str, Headers] | None:
    """Return the next frame's command and headers. Its body is discarded."""
    while (line := readline()) == b"\n":
        pass
    if not line:
        return None
    headers: Headers = {}
    while header := readline().rstrip(b"\n"):
        name, _, text = header.decode().partition(":")
        value = text.replace("\\n", "\n").replace("\\c", ":").replace("\\\\", "\\")
        headers.setdefault(name, value)
    read(int(headers.get("content-length", 0)) + 1)
    return line.decode().rstrip("\n"), headers


def event(name: str, destination: str = "", number: int = 0) -> bytes:
    """The body of a message of ``DIAG/event/…``, as the broker writes it."""
    ts = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    prefix = {"v": 1, "broker_id": "north", "epoch": "e1", "offset": number, "ts": ts}
    fields = {"name": name, "session_id": "1795264529000001", "user": "anna"}
    record = prefix | {"interval_s": 0.0} | fields
    record |= {"destination": destination, "reason": "", "detail": ""}
    return json.dumps(record, separators=(",", ":")).encode()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--fill", type=int, default=0, help="messages to begin with")
    arguments = parser.parse_args()
    journal = arguments.data_dir / "journal" if arguments.data_dir else None
    with StreamServer(arguments.port, log=Log(journal)) as server:
        for number in range(arguments.fill):
            server.append("DIAG/event/subscribe", event("subscribe", "/topic/prices", number))
        threading.Event().wait()


if __name__ == "__main__":
    main()
