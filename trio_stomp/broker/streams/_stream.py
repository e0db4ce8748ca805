"""A stream: the log of a topic, of which the newest part is in memory."""

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.queues import cost_alone
from trio_stomp.frames import Head, message_blocks

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

MAX_AGED = 16
"""So many runs that are too old are dropped when another comes; the others as time passes."""
MIN_DROP = 16
"""The front of the window is cut off by so many runs at once, or an eighth of it."""


class Reader(Protocol):
    """A reader of a stream."""

    def more(self) -> None:
        """There is more behind the end that it had reached."""


@define(eq=False, repr=False)
class StreamRun:
    """Consecutive messages of a stream with one header block. Not to be changed.

    Args:
      first: Offset of the first.
      written_ms: When they came, in ms since 1970.
    """

    first: int
    head: Head
    bodies: list[bytes]
    written_ms: int
    size: int = field(init=False)
    _encoded: list[list[bytes] | None] = field(factory=lambda: [None, None, None])

    def __attrs_post_init__(self) -> None:
        self.size = cost_alone(self.head, len(self.bodies), sum(map(len, self.bodies)))

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.first + len(self.bodies)

    def tails(self, wire: int, epoch: bytes) -> list[bytes]:
        """Return the back halves of its MESSAGEs, made once for all readers."""
        tails = self._encoded[wire]
        if tails is None:
            tails = self._encoded[wire] = self.encode(0, len(self.bodies), wire, epoch)
        return tails

    def encode(
        self, start: int, stop: int, wire: int, epoch: bytes, behind: bytes = b""
    ) -> list[bytes]:
        """Return the back halves of some of its MESSAGEs.

        Args:
          start: The index of the first message.
          stop: The index after the last message.
          wire: The index of the STOMP version.
          epoch: The epoch of the stream.
          behind: What stands before the message's number in a second header that repeats it.
        """
        block = message_blocks(self.head)[wire]
        told = b"\nx-stream-offset:%%d\nx-stream-epoch:%b" % _literal(epoch + block)
        # One formatting for a message, whatever its headers: the number as often as it is told.
        if behind:
            told = _literal(behind) + b"%d" + told
        lead = b"%d" + told
        bodies = self.bodies[start:stop]
        numbered = enumerate(bodies, self.first + start)
        if self.head.content_length >= 0:
            whole = lead + b"%b\0\n"
            if behind:
                return [whole % (n, n, n, body) for n, body in numbered]
            return [whole % (n, n, body) for n, body in numbered]
        whole, empty = lead + b"content-length:%d\n\n%b\0\n", lead + b"\n\0\n"
        repeats = 3 if behind else 2
        return [
            whole % (*(n,) * repeats, len(body), body) if body else empty % ((n,) * repeats)
            for n, body in numbered
        ]


@define(eq=False, repr=False)
class Stream:
    """One stream as its readers see it: what is not safe yet is not there.

    Args:
      name: ``/stream/…``.
      destination: Where what is read is counted.
      epoch: Changes only if the log was lost.
      first: Offset of the oldest message kept.
      next: Offset of the message to come.
      window_limit_bytes: Of the part in memory.
      max_age_ms: Of messages; 0 = no bound.
      is_stored: Whether what is no more in memory is in the store.
    """

    name: str
    destination: "Destination"
    epoch: str
    memory: MemoryBudget
    window_limit_bytes: int
    max_bytes: int
    max_age_ms: int
    is_stored: bool
    first: int = 0
    next: int = 0
    stored_bytes: int = 0
    """As the store has told, and what has come since then."""
    window_bytes: int = 0
    coming: int = field(init=False)
    """Offset of the next message to be written; between it and ``next`` they are under way."""
    stamped_ms: int = 0
    """When the newest message came that this process has written, or is writing."""
    lost: int = 0
    """Messages that readers were not given, since they were gone or damaged."""
    _firsts: list[int] = field(factory=list)
    _runs: list[StreamRun] = field(factory=list)
    _dropped: int = 0
    """How many at the front of the lists are no more part of the window."""
    _waiting: dict[Reader, None] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.coming = self.next

    @property
    def bytes(self) -> int:
        """Return the bytes that it takes, in the store or in memory."""
        return self.stored_bytes if self.is_stored else self.window_bytes

    @property
    def window_first(self) -> int:
        """The oldest offset in memory."""
        return self._firsts[self._dropped] if self._dropped < len(self._runs) else self.next

    @property
    def newest_ms(self) -> int:
        """Return when the newest message came."""
        return self._runs[-1].written_ms if self._dropped < len(self._runs) else 0

    def show(self, run: StreamRun) -> None:
        """Messages are safe: readers may have them."""
        self.next = run.end
        self.stored_bytes += sum(map(len, run.bodies))
        self.memory.force_kept(run.size)
        self.window_bytes += run.size
        self._firsts.append(run.first)
        self._runs.append(run)
        self._shrink(run.written_ms)
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.more()

    def run_at(self, offset: int) -> StreamRun | None:
        """Return the run in memory that holds an offset, or None."""
        if not self.window_first <= offset < self.next:
            return None
        return self._runs[bisect_right(self._firsts, offset) - 1]

    def offset_at(self, written_ms: int) -> int:
        """Return the first offset in memory written at a time or later, or the next one."""
        place = bisect_left(self._runs, written_ms, self._dropped, key=lambda run: run.written_ms)
        return self._firsts[place] if place < len(self._runs) else self.next

    def wait(self, reader: Reader) -> None:
        """Tell a reader as soon as there is more."""
        self._waiting[reader] = None

    def leave(self, reader: Reader) -> None:
        """Remove a reader."""
        self._waiting.pop(reader, None)

    def trimmed(self, first: int, stored_bytes: int) -> None:
        """Note that the store has dropped everything before an offset."""
        self.first = max(self.first, min(first, self.next))
        self.stored_bytes = stored_bytes

    def expire(self, now_ms: int, limit: int) -> int:
        """Drop at most ``limit`` runs that have become too old from memory, and return how many."""
        return self._shrink(now_ms, limit)

    def clear(self) -> None:
        """Give the memory back."""
        self.memory.give_kept(self.window_bytes)
        self.window_bytes = self._dropped = 0
        self._runs.clear()
        self._firsts.clear()

    def _shrink(self, now_ms: int, most: int = MAX_AGED) -> int:
        """Drop the excess, and up to ``most`` expired runs. Return the number of runs dropped."""
        limit, newest = self.window_limit_bytes, len(self._runs) - 1
        dropped = 0
        while self._dropped <= newest:
            run = self._runs[self._dropped]
            is_old = 0 < self.max_age_ms < now_ms - run.written_ms
            is_much = self.window_bytes > limit or self.memory.is_short
            # The newest run stays, however large it is, for those who wait for it.
            is_much = is_much and self._dropped < newest
            if not is_much and (not is_old or dropped >= most):
                break
            # Let go of now: a thousand at a time, not all when the front is cut off.
            self._runs[self._dropped] = self._runs[newest]
            self._dropped += 1
            dropped += 1
            self.window_bytes -= run.size
            self.memory.give_kept(run.size)
        if self._dropped > max(MIN_DROP, len(self._runs) // 8):
            del self._runs[: self._dropped], self._firsts[: self._dropped]
            self._dropped = 0
        if not self.is_stored:
            self.first = self.window_first
        return dropped


def _literal(text: bytes) -> bytes:
    """Bytes that stand for themselves in what is formatted."""
    return text.replace(b"%", b"%%")
