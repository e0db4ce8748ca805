"""A stream: the log of a topic, with its newest part in memory."""

from bisect import bisect_left, bisect_right
from itertools import repeat
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import BrokenInvariant, MemoryBudget
from trio_stomp.broker.queues import cost_alone
from trio_stomp.frames import Head, message_blocks, message_tail

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.streams._stream_reader import StreamReader

MAX_AGED = 16
"""Limit of expired runs dropped with each new run. ``expire`` drops the others."""
MIN_DROP = 16
"""Dropped runs are removed from the lists when there are this many, or an eighth of all."""


@define(eq=False, repr=False)
class StreamRun:
    """Consecutive messages of a stream with one header block. Shared, so do not change it.

    Args:
      first: The offset of the first message.
      written_ms: The time of the append, in ms since 1970; of the first message if they differ.
      times_ms: The time of each message if they differ, which only runs from the store do.
    """

    first: int
    head: Head
    bodies: list[bytes]
    written_ms: int
    times_ms: list[int] | None = None
    size: int = field(init=False)
    _encoded: list[list[bytes] | None] = field(factory=lambda: [None, None, None])

    def __attrs_post_init__(self) -> None:
        self.size = cost_alone(self.head, len(self.bodies), sum(map(len, self.bodies)))

    @property
    def end(self) -> int:
        """Return the offset after the last message."""
        return self.first + len(self.bodies)

    def tails(self, version_index: int, epoch: bytes) -> list[bytes]:
        """Return the second halves of all MESSAGEs, encoded once for all readers."""
        tails = self._encoded[version_index]
        if tails is None:
            tails = self._encoded[version_index] = self.encode(
                0, len(self.bodies), version_index, epoch
            )
        return tails

    def encode(
        self, start: int, stop: int, version_index: int, epoch: bytes, again: bytes = b""
    ) -> list[bytes]:
        """Return the second halves of some MESSAGEs.

        Args:
          start: The index of the first message.
          stop: The index after the last message.
          version_index: The index of the STOMP version.
          epoch: The epoch of the stream.
          again: ``Consumer.repeats_number``, the text between an offset and its repetition.
        """
        block = _literal(epoch + message_blocks(self.head)[version_index])
        form = b"\nx-stream-offset:%%d\nx-stream-timestamp:%%d\nx-stream-epoch:%b" % block
        # One formatting for each message. The offset occurs two or three times.
        if again:
            form = _literal(again) + b"%d" + form
        start_format = b"%d" + form
        bodies = self.bodies[start:stop]
        times = self.times_ms[start:stop] if self.times_ms else repeat(self.written_ms)
        parts = zip(range(self.first + start, self.first + stop), bodies, times, strict=False)
        if self.head.content_length < 0:
            if again:
                return [message_tail(start_format % (n, n, n, ms), body) for n, body, ms in parts]
            return [message_tail(start_format % (n, n, ms), body) for n, body, ms in parts]
        whole = start_format + b"%b\0\n"
        if again:
            return [whole % (n, n, n, ms, body) for n, body, ms in parts]
        return [whole % (n, n, ms, body) for n, body, ms in parts]


@define(eq=False, repr=False)
class Stream:
    """One stream. Readers see only stored messages.

    Args:
      name: ``/stream/…``.
      destination: Counts the deliveries.
      epoch: An id of the log, which changes only if the log was lost.
      memory: Charged for the window.
      window_limit_bytes: The limit of the part in memory (the window).
      max_bytes: The limit on disk; 0 = none.
      max_age_ms: The limit of age; 0 = none.
      is_stored: Whether older messages are in the store.
      first: The offset of the oldest message.
      next: The offset of the next visible message.
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
    """The size on disk as last reported by the store, plus the messages since."""
    window_bytes: int = 0
    coming: int = field(init=False)
    """The offset of the next message to write. Those from ``next`` on are on their way to the
    store."""
    stamped_ms: int = 0
    """The time of the last append, in ms since 1970, stored or not."""
    lost: int = 0
    """Messages that readers missed because they were trimmed or damaged."""
    _firsts: list[int] = field(factory=list)
    _runs: list[StreamRun] = field(factory=list)
    _dropped: int = 0
    """The number of dropped runs at the front of both lists."""
    _waiting: "dict[StreamReader, None]" = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.coming = self.next

    @property
    def bytes(self) -> int:
        """Return the size, in the store or otherwise in memory."""
        return self.stored_bytes if self.is_stored else self.window_bytes

    @property
    def window_first(self) -> int:
        """Return the oldest offset in memory."""
        return self._firsts[self._dropped] if self._dropped < len(self._runs) else self.next

    @property
    def newest_ms(self) -> int:
        """Return the time of the newest message in memory, in ms since 1970, or 0 without any."""
        return self._runs[-1].written_ms if self._dropped < len(self._runs) else 0

    @property
    def oldest_ms(self) -> int:
        """Return the time of the oldest message, in ms since 1970, or 0 if it is not in memory."""
        run = self.run_at(self.first)
        if run is None:
            return 0
        return run.times_ms[self.first - run.first] if run.times_ms else run.written_ms

    def show(self, run: StreamRun) -> None:
        """Make stored messages visible to readers.

        Raises:
          BrokenInvariant: They do not follow the last ones.
        """
        if run.first != self.next:
            state = f"offset {run.first} comes after {self.next - 1}"
            raise BrokenInvariant("stream-offsets", state, self.name)
        self.next = run.end
        self.stored_bytes += sum(map(len, run.bodies))
        self.memory.force_kept(run.size)
        self.window_bytes += run.size
        self._firsts.append(run.first)
        self._runs.append(run)
        self._shrink(run.written_ms)
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.mark(reader)

    def run_at(self, offset: int) -> StreamRun | None:
        """Return the run in memory that holds an offset, or None."""
        if not self.window_first <= offset < self.next:
            return None
        return self._runs[bisect_right(self._firsts, offset) - 1]

    def offset_at(self, written_ms: int) -> int:
        """Return the first offset in memory written at a time or later, or the next one."""
        index = bisect_left(self._runs, written_ms, self._dropped, key=lambda run: run.written_ms)
        return self._firsts[index] if index < len(self._runs) else self.next

    def wait(self, reader: "StreamReader") -> None:
        """Let a reader continue as soon as there are new messages."""
        self._waiting[reader] = None

    def leave(self, reader: "StreamReader") -> None:
        """Remove a reader."""
        self._waiting.pop(reader, None)

    def trimmed(self, first: int, stored_bytes: int) -> None:
        """Record that the store has dropped all messages before an offset."""
        self.first = max(self.first, min(first, self.next))
        self.stored_bytes = stored_bytes

    def expire(self, now_ms: int, limit: int) -> int:
        """Drop up to ``limit`` expired runs from memory, and return how many."""
        return self._shrink(now_ms, limit)

    def free(self, limit: int) -> bool:
        """Free up to ``limit`` runs before the first message. Return whether more are left."""
        newest = len(self._runs) - 1
        for _ in range(limit):
            if self._dropped > newest or self._runs[self._dropped].end > self.first:
                return False
            self._drop(newest)
        return True

    def clear(self) -> None:
        """Free the window."""
        self.memory.give_kept(self.window_bytes)
        self.window_bytes = self._dropped = 0
        self._runs.clear()
        self._firsts.clear()

    def _shrink(self, now_ms: int, most: int = MAX_AGED) -> int:
        """Drop runs above the memory limit, and up to ``most`` expired ones. Return how many."""
        limit, newest = self.window_limit_bytes, len(self._runs) - 1
        dropped = 0
        while self._dropped <= newest:
            run = self._runs[self._dropped]
            is_old = 0 < self.max_age_ms < now_ms - run.written_ms
            is_large = self.window_bytes > limit or self.memory.is_short
            # Keep the newest run for waiting readers, whatever its size.
            is_large = is_large and self._dropped < newest
            if not is_large and (not is_old or dropped >= most):
                break
            self._drop(newest)
            dropped += 1
        if self._dropped > max(MIN_DROP, len(self._runs) // 8):
            del self._runs[: self._dropped], self._firsts[: self._dropped]
            self._dropped = 0
        if not self.is_stored:
            self.first = max(self.first, self.window_first)
        return dropped

    def _drop(self, newest: int) -> None:
        """Free the oldest run now, as freeing all when the lists are cut would take long."""
        run = self._runs[self._dropped]
        self._runs[self._dropped] = self._runs[newest]
        self._dropped += 1
        self.window_bytes -= run.size
        self.memory.give_kept(run.size)


def _literal(text: bytes) -> bytes:
    """Return text as a literal part of a format."""
    return text.replace(b"%", b"%%")
