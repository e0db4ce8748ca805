"""Streams and consumers of the engine in memory."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import define, field, frozen

if TYPE_CHECKING:
    from _cluster.engine import Session


@frozen
class Stored:
    """A message of a stream."""

    sequence: int
    payload: bytes
    at: float


@define(eq=False)
class Stream:
    """A stream with one subject.

    Args:
      keeps_all: Messages stay until they are purged; else only the last one does.
      history: Every message that was ever stored.
      first: The sequence of the first message that is there.
    """

    name: str
    subject: bytes
    keeps_all: bool
    config: Mapping[str, object]
    history: list[Stored] = field(factory=list)
    first: int = 1
    size: int = 0

    @property
    def last(self) -> int:
        """Return the greatest sequence ever used."""
        return len(self.history)

    def expects(self, fields: Mapping[bytes, bytes]) -> bool:
        """Return whether the last message is the one that the headers expect."""
        wanted = fields.get(b"Nats-Expected-Last-Sequence")
        of_subject = fields.get(b"Nats-Expected-Last-Subject-Sequence")
        last_of_subject = self.last if self.first <= self.last else 0
        return (wanted is None or int(wanted) == self.last) and (
            of_subject is None or int(of_subject) == last_of_subject
        )

    def add(self, message: Stored) -> None:
        """Store a message."""
        self.history.append(message)
        self.size += len(message.payload)
        if not self.keeps_all:
            self.purge(self.last)

    def purge(self, below: int) -> int:
        """Delete messages with lesser sequences, and return how many."""
        below = min(below, self.last + 1)
        gone = self.history[self.first - 1 : max(below, self.first) - 1]
        self.size -= sum(len(message.payload) for message in gone)
        self.first = max(self.first, below)
        return len(gone)

    def message(self, sequence: int) -> dict[str, object]:
        """Return the answer to STREAM.MSG.GET."""
        if not self.first <= sequence <= self.last:
            return {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        data = b64encode(self.history[sequence - 1].payload).decode()
        return {"message": {"seq": sequence, "data": data}}

    def info(self) -> dict[str, object]:
        """Return the answer to STREAM.INFO."""
        count = self.last - self.first + 1
        state = {"first_seq": self.first, "last_seq": self.last}
        return {"config": self.config, "state": {**state, "messages": count, "bytes": self.size}}


@define(eq=False)
class Pull:
    """A client's request for messages."""

    session: "Session"
    reply: bytes
    left: int
    beat_s: float


@define(eq=False)
class Consumer:
    """A reader of a stream, with the requests of its client."""

    name: bytes
    session: "Session"
    stream: Stream
    next: int
    pulls: list[Pull] = field(factory=list)
    _delivered: int = 0

    def due(self) -> Iterator[tuple[Pull, bytes, bytes]]:
        """Yield messages to deliver: the client, the position as a subject, the payload."""
        stream = self.stream
        while self.pulls:
            self.next = max(self.next, stream.first)
            if self.next > stream.last:
                return
            pull, message = self.pulls[0], stream.history[self.next - 1]
            self.next += 1
            self._delivered += 1
            pull.left -= 1
            if not pull.left:
                self.pulls.pop(0)
            words = stream.name, self.name.decode(), 1, message.sequence, self._delivered
            position = ".".join(map(str, (*words, 0, stream.last - message.sequence)))
            yield pull, f"$JS.ACK.{position}".encode(), message.payload
