"""Streams and consumers of the engine in memory."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

if TYPE_CHECKING:
    from _cluster.engine import Session


@frozen
class Stored:
    """A message of a stream."""

    sequence: int
    payload: bytes
    at: float
    subject: bytes


@define(eq=False)
class Stream:
    """A stream.

    Args:
      keeps_all: Messages stay until they are purged; else only the last one of each subject does.
      history: Every message that was ever stored.
      first: The sequence before which there are no messages.
    """

    name: str
    subjects: Sequence[bytes]
    keeps_all: bool
    config: Mapping[str, object]
    history: list[Stored] = field(factory=list)
    first: int = 1
    size: int = 0
    _last: dict[bytes, int] = field(factory=dict)
    """The sequence of the last message of each subject."""

    @property
    def last(self) -> int:
        """Return the greatest sequence ever used."""
        return len(self.history)

    def has(self, sequence: int) -> bool:
        """Return whether a message is there."""
        if not self.first <= sequence <= self.last:
            return False
        return self.keeps_all or self._last[self.history[sequence - 1].subject] == sequence

    def expects(self, fields: Mapping[bytes, bytes], subject: bytes) -> bool:
        """Return whether the last message is the one that the headers expect."""
        wanted = fields.get(b"Nats-Expected-Last-Sequence")
        of_subject = fields.get(b"Nats-Expected-Last-Subject-Sequence")
        last = self._last.get(subject, 0)
        return (wanted is None or int(wanted) == self.last) and (
            of_subject is None or int(of_subject) == (last if self.has(last) else 0)
        )

    def add(self, message: Stored) -> None:
        """Store a message."""
        self.history.append(message)
        self.size += len(message.payload)
        self._last[message.subject] = message.sequence

    def purge(self, below: int) -> int:
        """Delete messages with lesser sequences, and return how many."""
        below = min(below, self.last + 1)
        gone = self.history[self.first - 1 : max(below, self.first) - 1]
        self.size -= sum(len(message.payload) for message in gone)
        self.first = max(self.first, below)
        return len(gone)

    def message(self, order: Mapping[str, Any]) -> dict[str, object]:
        """Return the answer to STREAM.MSG.GET, for a sequence or the last of a subject."""
        sequence = order.get("seq", self._last.get(order.get("last_by_subj", "").encode(), 0))
        if not self.has(sequence):
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
    """A reader of a stream, with the requests of its client.

    Args:
      subject: Other subjects are left out; b"" = all are read.
    """

    name: bytes
    session: "Session"
    stream: Stream
    next: int
    subject: bytes = b""
    pulls: list[Pull] = field(factory=list)
    _delivered: int = 0

    def due(self) -> Iterator[tuple[Pull, bytes, Stored]]:
        """Yield messages to deliver: the client, the position as a subject, the message."""
        stream = self.stream
        while self.pulls:
            self.next = max(self.next, stream.first)
            if self.next > stream.last:
                return
            pull, message = self.pulls[0], stream.history[self.next - 1]
            self.next += 1
            if not stream.has(message.sequence) or self.subject not in (b"", message.subject):
                continue
            self._delivered += 1
            pull.left -= 1
            if not pull.left:
                self.pulls.pop(0)
            words = stream.name, self.name.decode(), 1, message.sequence, self._delivered
            position = ".".join(map(str, (*words, 0, stream.last - message.sequence)))
            yield pull, f"$JS.ACK.{position}".encode(), message
