"""Operations on streams: reading a part of one, dropping its oldest records."""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.managing._operation import PIECE
from trio_stomp.broker.managing._task import InSteps, Step, Steps
from trio_stomp.broker.queues import Consumer
from trio_stomp.broker.streams import (
    Stream,
    StreamReader,
    StreamRun,
    Streams,
    request_offset,
    request_runs,
)

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Subscription, Turns
    from trio_stomp.frames import Head
    from trio_stomp.store import StreamState

    Record = tuple[int, int, Head, bytes]
    """Offset, time in ms since 1970, header block and body."""
    Take = Callable[[int, int, Head, bytes], bool]

MAX_LOOKED = 10_000
"""Limit of records examined for an answer."""
UNUSED: Mapping[str, object] = MappingProxyType(
    {
        "window_bytes": 0,
        "stored": True,
        "max_bytes": 0,
        "max_age_ms": 0,
        "oldest_ms": 0,
        "newest_ms": 0,
    }
)
"""Figures of a stream in the store that nobody has used since the start."""


@define(eq=False, repr=False)
class StreamManager:
    """Reads and trims streams.

    Args:
      streams: The streams of the broker.
      open_topic: Opens a topic, and with it its stream.
      turns: Limits the time of a step.
    """

    streams: Streams
    open_topic: Callable[[str], object]
    turns: "Turns"

    def find(self, name: str) -> Stream:
        """Return a stream.

        Raises:
          ProtocolError: There is no such stream.
        """
        if name in self.streams.in_use or name in self.streams.recovered:
            return self.streams.find(name, self.open_topic)
        raise ProtocolError(
            "unknown-stream",
            f"there is no stream {name[:80]!r}; a topic with the policy stream = true has one from"
            " its first message on (GET streams lists them)",
        )

    def names(self) -> list[str]:
        """Return the names of all streams, also of those that nobody has used since the start."""
        return list({**dict.fromkeys(self.streams.recovered), **dict.fromkeys(self.streams.in_use)})

    def figures(self, name: str) -> dict[str, object]:
        """Return the figures of one of ``names``."""
        stream = self.streams.in_use.get(name)
        if stream is None:
            state = self.streams.recovered[name]
            return {**_bounds(name, state), **UNUSED}
        return {
            **_bounds(name, stream),
            "window_bytes": stream.window_bytes,
            "stored": stream.is_stored,
            "max_bytes": stream.max_bytes,
            "max_age_ms": stream.max_age_ms,
            "oldest_ms": stream.oldest_ms,
            "newest_ms": stream.newest_ms,
        }

    def readers(self, subscription: "Subscription", stream: Stream) -> "list[StreamReader]":
        """Return the readers of a stream that a subscription has: one, or none."""
        consumer = subscription.consumer
        queues = consumer.queues if isinstance(consumer, Consumer) else {}
        return [each for each in queues if isinstance(each, StreamReader) and each.stream is stream]

    def trim(self, name: str, before: int, written_ms: int) -> "Trimming":
        """Begin to drop the oldest records of a stream.

        Args:
          name: The name of the stream.
          before: The first offset to keep.
          written_ms: Instead, the first time to keep, in ms since 1970; 0 = none.

        Raises:
          ProtocolError: There is no such stream.
        """
        stream = self.find(name)
        return Trimming(
            self.turns, None, self.streams, stream=stream, at=before, written_ms=written_ms
        )

    def read(
        self, name: str, at: int, written_ms: int, limit: int, topics: frozenset[str]
    ) -> "Reading":
        """Begin to read records of a stream.

        Args:
          name: The name of the stream.
          at: The offset of the first record.
          written_ms: Instead, the first time, in ms since 1970; 0 = none.
          limit: The most records.
          topics: The destinations of the records; empty = any.

        Raises:
          ProtocolError: There is no such stream.
        """
        return Reading(
            self.turns,
            None,
            self.streams,
            stream=self.find(name),
            at=at,
            written_ms=written_ms,
            limit=limit,
            topics=topics,
        )


@define(eq=False, repr=False)
class OfStream(InSteps):
    """What begins at a position of a stream.

    Args:
      streams: All streams.
      stream: The stream.
      at: The offset.
      written_ms: Instead, the first time, in ms since 1970; 0 = none.
    """

    streams: Streams
    stream: Stream
    at: int
    written_ms: int

    def begin(self) -> Generator[Step, None, int]:
        """Return the offset, and note how many records there are."""
        stream, written_ms, found = self.stream, self.written_ms, self.at
        if written_ms and not stream.is_stored:
            found = stream.offset_at(written_ms)
        elif written_ms:
            search = partial(request_offset, self.streams.log, stream, written_ms)
            while (offset := (yield from self.answer(search))) is None:
                pass  # the store has failed
            found = offset
        self.total = stream.next - stream.first
        return found


@define(eq=False, repr=False)
class Reading(OfStream):
    """A part of a stream that is being read.

    Args:
      limit: The most records.
      topics: The destinations of the records; empty = any.
      take: Takes a record, and returns whether the step may go on; None = records are found.
    """

    limit: int
    topics: frozenset[str]
    take: "Take | None" = None
    found: "list[Record]" = field(init=False, factory=list)
    first: int = field(init=False, default=0)
    """The offset at which reading began."""
    next: int = field(init=False, default=-1)
    """The offset to continue with; -1 = not begun."""

    def work(self) -> Steps:
        """Implement ``InSteps.work``. It looks at records, and finds some."""
        stream = self.stream
        self.next = self.first = min(max((yield from self.begin()), stream.first), stream.next)
        own: list[StreamRun] = []  # read from the store
        while self.done < self.limit and self.seen < MAX_LOOKED and self.next < stream.next:
            own = [run for run in own if run.end > self.next]
            run = stream.run_at(self.next) or next(iter(own), None)
            if run is None:
                own = yield from self._loaded()
            else:
                self._look(run)
                yield Step.MORE

    def _loaded(self) -> Generator[Step, None, list[StreamRun]]:
        """Return runs from the store."""
        stream = self.stream

        def load(take: "Callable[[list[StreamRun] | None], None]") -> None:
            request_runs(self.streams.log, stream, self.next, take, joins=False)

        while (runs := (yield from self.answer(load))) is None:
            pass  # the store has failed
        if not runs:  # they are damaged or trimmed: continue with the window
            self.next = max(self.next, stream.window_first)
        return runs

    def _look(self, run: StreamRun) -> None:
        """Examine some records of a run."""
        self.next = max(self.next, run.first)
        end = min(run.end, self.next + PIECE)
        if self.topics and run.head.get("destination") not in self.topics:
            self.seen, self.next = self.seen + 1, run.end
            return
        for offset in range(self.next, min(end, self.next + self.limit - self.done)):
            index = offset - run.first
            at_ms = run.times_ms[index] if run.times_ms else run.written_ms
            record = offset, at_ms, run.head, run.bodies[index]
            self.next = offset + 1
            self.seen += 1
            self.done += 1
            if self.take is None:
                self.found.append(record)
            elif not self.take(*record):
                self.turns.begin(0.0)
                break


@define(eq=False, repr=False)
class Trimming(OfStream):
    """The oldest records of a stream that are being dropped, once begun all of them."""

    def work(self) -> Steps:
        """Implement ``InSteps.work``."""
        before = yield from self.begin()
        self.seen = self.done = self.streams.trim(self.stream, before)
        while self.stream.free(PIECE):
            yield Step.MORE


def _bounds(name: str, found: "Stream | StreamState") -> dict[str, object]:
    return {
        "stream": name,
        "epoch": found.epoch,
        "first": found.first,
        "next": found.next,
        "messages": found.next - found.first,
        "bytes": found.bytes,
    }
