"""A synchronous client of the broker's streams (docs/use/streams.md), for processes without Trio.

It requests the bounds of a stream, and reads ranges of it. Every wait is bounded: it reconnects
when a broker is silent, and after ``retry_s`` raises the failure.
"""

import contextlib
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self, TypeVar

from trio_stomp.base import PASSING_CODES
from trio_stomp.frames import OPENING, V1_2, encode_frame
from trio_stomp.spark._address import StreamAddress, StreamAway, StreamError
from trio_stomp.spark._frames import Frame, FrameError, FrameSplitter, header, unescaped

Answer = TypeVar("Answer")

Message = tuple[int, int, bytes, bytes]
"""Offset, time of storing in ms since 1970, head, and body of one message of a stream."""

READ_BYTES = 1024 * 1024
FIRST_DELAY_S = 0.1
LAST_DELAY_S = 5.0
SAY_EVERY_S = 5.0
IDLE_S = 0.25
"""The least time between two questions for the bounds of a stream that does not grow."""

_PLACE = re.compile(rb"\nx-stream-offset:(\d+)\nx-stream-timestamp:(\d+)\n")
"""The headers of a message of a stream that the broker writes side by side."""


class Bounds(NamedTuple):
    """The bounds of a stream: offsets ``first`` to ``next`` - 1 of ``epoch``."""

    epoch: str
    first: int
    next: int


class Patience:
    """Waits between attempts: increasing, randomized, and bounded in total.

    Args:
      address: The broker, and the time from the first failure after a success to the last attempt.
      say: Is told every five seconds that the broker is awaited.
    """

    def __init__(
        self,
        address: StreamAddress,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], object] | None = None,
    ) -> None:
        self._address, self._clock, self._sleep, self._say = address, clock, sleep, say
        self._since: float | None = None
        self._said = 0
        self._delay_s = FIRST_DELAY_S

    def restore(self) -> None:
        """Note a success: the next failure is the first again."""
        if self._since is not None:
            self._since, self._delay_s = None, FIRST_DELAY_S

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt.

        Raises:
          StreamAway: the time limit has passed.
        """
        now, url = self._clock(), self._address.url
        self._since = now if self._since is None else self._since
        waited_s = now - self._since
        reason = (isinstance(error, OSError) and error.strerror) or f"{error}"
        # Jitter, so that all readers of a restarted broker do not return at once.
        delay_s = self._delay_s * random.uniform(0.5, 1.0)
        if waited_s + delay_s > self._address.retry_s:
            raise StreamAway(
                f"{url} did not answer for {waited_s:.0f} s ({reason}): is a broker running there?"
                " Check the url"
            ) from error
        if self._say is not None and waited_s >= self._said * SAY_EVERY_S:
            self._said += 1
            self._say(f"waiting for {url}: {reason}")
        self._sleep(delay_s)
        self._delay_s = min(self._delay_s * 2, LAST_DELAY_S)


class Connection:
    """One session. After any failure it is closed, and another one is opened.

    Raises:
      StreamError: the broker refuses.
      OSError: the broker is away.
    """

    def __init__(self, stream_address: StreamAddress) -> None:
        host, port, tls = stream_address.address()
        credentials = stream_address.credentials()
        self._timeout_s = stream_address.timeout_s
        self._name = f"{host}:{port}"
        self._splitter = FrameSplitter()
        self._socket = socket.create_connection((host, port), stream_address.timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self._socket = _tls(self._socket, stream_address, host)
            # Offer no heart-beats: a reader that waits for Spark could not send them in time.
            beat_ms = max(1, int(stream_address.timeout_s * 1000 / 3))
            opening = {"accept-version": "1.2", "host": host, "heart-beat": f"0,{beat_ms}"}
            self.send("CONNECT", opening | credentials)
            self._expect(b"CONNECTED", next(self.frames()))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError), self._socket:
            self._socket.settimeout(1)
            self.send("DISCONNECT", {})

    def send(self, command: str, headers: dict[str, str]) -> None:
        """Send one frame without a body."""
        rules = OPENING if command == "CONNECT" else V1_2
        self.send_bytes(encode_frame(command, headers.items(), rules))

    def send_bytes(self, frames: bytes) -> None:
        """Send encoded frames."""
        self._socket.sendall(frames)

    def frames(self) -> Iterator[list[Frame]]:
        """Yield the completed frames of each read.

        Raises:
          StreamAway: the broker closed, or sent nothing but heart-beats for ``timeout_s``.
        """
        last_frame_at = time.monotonic()
        while data := self._socket.recv(READ_BYTES):
            if frames := self._splitter.feed(data):
                yield frames
            # The caller's own time is not silence of the broker, but heart-beats alone are.
            if frames or data.strip(b"\r\n"):
                last_frame_at = time.monotonic()
            elif time.monotonic() - last_frame_at > self._timeout_s:
                raise StreamAway(f"{self._name} sent no frame for {self._timeout_s:g} s")
        raise StreamAway(f"{self._name} closed the connection")

    def messages(self) -> Iterator[list[Frame]]:
        """Yield the MESSAGEs of each read, as ``answers`` does."""
        return self.answers(b"MESSAGE")

    def answers(self, command: bytes) -> Iterator[list[Frame]]:
        """Yield the frames of each read, all of which have this command.

        Raises:
          StreamError: the broker sent an ERROR that is not temporary.
        """
        for frames in self.frames():
            # An ERROR is the last frame of a connection, so only the last frame is checked.
            if not frames[-1][0].startswith(command + b"\n"):
                if frames[:-1]:
                    yield frames[:-1]
                self._expect(command, frames[-1:])
            yield frames

    def bounds(self, stream: str) -> Bounds:
        """Return the current bounds of a stream."""
        question = {"reply-to": "/temp-queue/bounds", "correlation-id": "bounds"}
        self.send("SEND", {"destination": stream} | question)
        return bounds_of(next(self.messages())[0][0])

    def _expect(self, command: bytes, frames: list[Frame]) -> None:
        head, _ = frames[0]
        if head.startswith(command + b"\n"):
            return
        code = unescaped(header(head, b"code") or b"")
        message = unescaped(header(head, b"message") or head[:80])
        if code in PASSING_CODES:
            raise StreamAway(f"{self._name}: {message}")
        raise StreamError(f"{self._name} refused: {message}")


def _tls(plain: socket.socket, stream_address: StreamAddress, host: str) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=stream_address.ca_file or None)
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise StreamError(f"TLS with {host}: {error}") from None
    except FileNotFoundError as error:
        raise StreamError(f"ca_file {stream_address.ca_file}: {error.strerror}") from None


class StreamClient:
    """A client of one stream, which opens a connection for each request.

    Every method raises ``StreamError`` if the broker refuses, and ``StreamAway`` if it stays away.
    """

    def __init__(self, stream_address: StreamAddress) -> None:
        self.stream_address = stream_address

    def bounds(self, say: Callable[[str], object] | None = None) -> Bounds:
        """Return the current bounds of the stream.

        Args:
          say: Is told every five seconds that the broker is awaited.
        """
        return self.retried(self._ask, say)

    def offset_at(self, timestamp: float) -> int:
        """Return the offset of the first message at or after a time in seconds since 1970."""
        return self.retried(lambda: self._search(timestamp))

    def read(self, epoch: str, lo: int, hi: int) -> "Replay":
        """Return the messages ``lo`` to ``hi`` - 1 of ``epoch`` that retention has kept."""
        return Replay(self.stream_address, epoch, lo, hi)

    def retried(
        self, ask: Callable[[], Answer], say: Callable[[str], object] | None = None
    ) -> Answer:
        """Return an answer, after several attempts if the broker is away."""
        patience = Patience(self.stream_address, say=say)
        while True:
            try:
                return ask()
            except FrameError as error:
                url = self.stream_address.url
                raise StreamError(
                    f"what answers at {url} is no STOMP broker ({error}): check the url"
                ) from None
            except OSError as error:
                patience.wait(error)

    def _ask(self) -> Bounds:
        with Connection(self.stream_address) as connection:
            return connection.bounds(self.stream_address.stream)

    def _search(self, timestamp: float) -> int:
        bounds = self._ask()
        start = {"x-stream-offset": f"timestamp={timestamp!r}"}
        # Only the first message is needed, so limit the delivery to it.
        one = {"ack": "client", "prefetch-count": "1"}
        with Connection(self.stream_address) as connection:
            connection.send(
                "SUBSCRIBE",
                subscription(self.stream_address, bounds.epoch, bounds.next) | start | one,
            )
            head, _ = next(connection.messages())[0]
            return int(header(head, b"x-stream-offset") or bounds.next)


class Following:
    """Asks for the bounds of a stream again and again, over one connection.

    An idle query of Spark asks a hundred times a second, so this waits if nothing has changed.
    """

    def __init__(self, client: StreamClient, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client, self._sleep = client, sleep
        self._connection: Connection | None = None
        self._last: Bounds | None = None
        self._due = 0.0

    def __reduce__(self) -> tuple[type["Following"], tuple[StreamClient]]:
        """Pickle it without its connection."""
        return Following, (self._client,)

    def bounds(self) -> Bounds:
        """Return the current bounds. Errors as those of ``StreamClient``."""
        self._sleep(max(0.0, self._due - time.monotonic()))
        found = self._client.retried(self._ask)
        self._due = time.monotonic() + IDLE_S if found == self._last else 0.0
        self._last = found
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.__exit__()
            self._connection = None

    def __del__(self) -> None:
        """Close the connection: Spark may forget a reader without a stop()."""
        self.close()

    def _ask(self) -> Bounds:
        address = self._client.stream_address
        self._connection = self._connection or Connection(address)
        try:
            return self._connection.bounds(address.stream)
        except BaseException:
            self.close()
            raise


class Replay:
    """An iterator over the messages of a range, which reconnects and continues if necessary.

    It yields lists of messages with increasing offsets. Messages removed by retention are missing.
    ``end`` holds the stream's bounds at the end.
    """

    def __init__(self, stream_address: StreamAddress, epoch: str, lo: int, hi: int) -> None:
        self.end: Bounds | None = None
        self._stream_address, self._epoch, self._lo, self._hi = stream_address, epoch, lo, hi
        self._at = lo

    def __iter__(self) -> Iterator[list[Message]]:
        patience = Patience(self._stream_address)
        # If the connection ended just before the end marker, the range is complete.
        while self.end is None and not self._lo < self._hi <= self._at:
            try:
                with Connection(self._stream_address) as connection:
                    for messages in self._replay(connection):
                        self._at = messages[-1][0] + 1
                        patience.restore()
                        yield messages
            except (OSError, FrameError) as error:
                patience.wait(error)

    def _replay(self, connection: Connection) -> Iterator[list[Message]]:
        headers = subscription(self._stream_address, self._epoch, self._hi)
        connection.send("SUBSCRIBE", headers | {"x-stream-offset": f"offset={self._at}"})
        for frames in connection.messages():
            ending = frames.pop() if is_end(*frames[-1]) else None
            if messages := list(numbered(frames)):
                yield messages
            if ending is not None:
                self.end = bounds_of(ending[0])
                return


def subscription(stream_address: StreamAddress, epoch: str, until: int) -> dict[str, str]:
    """Return the headers of a SUBSCRIBE that ends."""
    return {
        "id": "0",
        "destination": stream_address.stream,
        "x-stream-epoch": epoch,
        "x-stream-until": str(until),
    }


def is_end(head: bytes, body: bytes) -> bool:
    """Return whether a MESSAGE is the end marker."""
    return not body and header(head, b"x-stream-end") == b"true"


def numbered(frames: list[Frame]) -> Iterator[Message]:
    """Return MESSAGEs with their offsets, and the broker's times.

    Raises:
      StreamError: one has no offset, so it is not from a stream, or no time.
    """
    for head, body in frames:
        found = _PLACE.search(head)
        if found is None:
            if header(head, b"x-stream-offset") is None:
                raise StreamError("a MESSAGE without x-stream-offset: the broker has no streams")
            raise StreamError("a MESSAGE without x-stream-timestamp: the broker is too old")
        yield int(found[1]), int(found[2]), head, body


def bounds_of(head: bytes) -> Bounds:
    """Return the bounds in an answer or an end marker.

    Raises:
      StreamError: it has no bounds.
    """
    try:
        epoch, first, following = (
            (header(head, b"x-stream-" + name) or b"").decode()
            for name in (b"epoch", b"first", b"next")
        )
        return Bounds(epoch, int(first), int(following))
    except ValueError:
        raise StreamError("the broker does not report the bounds of the stream") from None
