"""Operations on streams: reading a part of one, dropping its oldest records."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError, noop
from trio_stomp.broker.managing._operation import PIECE, STEP_S, Step
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
        return Trimming(Position(self.streams, self.find(name), before, written_ms), self.turns)

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
        position = Position(self.streams, self.find(name), at, written_ms)
        return Reading(position, self.turns, limit, topics)


@define(eq=False, repr=False)
class Position:
    """A position in a stream, which may still have to be found by its time."""

    streams: Streams
    stream: Stream
    at: int
    written_ms: int
    wake: Callable[[], None] = noop
    is_waiting: bool = False

    def __attrs_post_init__(self) -> None:
        if self.written_ms and not self.stream.is_stored:
            self.at, self.written_ms = self.stream.offset_at(self.written_ms), 0

    def is_found(self) -> bool:
        """Return whether the offset is known. If not, ``wake`` is called when it may be."""
        if self.written_ms and not self.is_waiting:
            self.is_waiting = True
            request_offset(self.streams.log, self.stream, self.written_ms, self._found)
        return not self.written_ms

    def _found(self, offset: int | None) -> None:
        """Take an offset; None = the store has failed, and is asked again."""
        self.is_waiting = False
        if offset is not None:
            self.at, self.written_ms = offset, 0
        self.wake()


@define(eq=False, repr=False)
class Reading:
    """A part of a stream that is being read. Implements ``InSteps``.

    Args:
      position: The first record.
      turns: Limits the time of a step.
      limit: The most records.
      topics: The destinations of the records; empty = any.
      take: Takes a record, and returns whether the step may go on; None = records are found.
    """

    position: Position
    turns: "Turns"
    limit: int
    topics: frozenset[str]
    take: "Take | None" = None
    found: "list[Record]" = field(factory=list)
    done: int = 0
    """Number of records found."""
    seen: int = 0
    first: int = 0
    """The offset at which reading began."""
    total: int = 0
    problem: ProtocolError | None = None
    woken: Callable[[], None] = noop
    _at: int = -1
    """The offset of the next record; -1 = not begun."""
    _own: list[StreamRun] = field(factory=list)
    """Runs read from the store."""

    def __attrs_post_init__(self) -> None:
        self.position.wake = lambda: self.woken()

    @property
    def next(self) -> int:
        """Return the offset to continue with."""
        return self._at

    def step(self, _now: float) -> Step:
        """Implement ``InSteps.step``."""
        position = self.position
        stream = position.stream
        if position.is_waiting or not position.is_found():
            return Step.WAIT
        if self._at < 0:
            self._at = self.first = min(max(position.at, stream.first), stream.next)
            self.total = stream.next - stream.first
        self.turns.begin(STEP_S)
        while self.done < self.limit and self.seen < MAX_LOOKED and self._at < stream.next:
            run = stream.run_at(self._at) or self._loaded()
            if run is None:
                position.is_waiting = True
                request_runs(position.streams.log, stream, self._at, self._take, joins=False)
                return Step.WAIT
            self._look(run)
            if self.turns.is_over():
                return Step.MORE
        return Step.DONE

    def end(self, _now: float = 0.0) -> None:
        """Implement ``InSteps.end``."""
        self._own.clear()

    def _loaded(self) -> StreamRun | None:
        """Return the run from the store that has the next record, or the first one behind it."""
        self._own = [run for run in self._own if run.end > self._at]
        return self._own[0] if self._own else None

    def _look(self, run: StreamRun) -> None:
        """Examine some records of a run."""
        self._at = max(self._at, run.first)
        end = min(run.end, self._at + PIECE)
        if self.topics and run.head.get("destination") not in self.topics:
            self.seen, self._at = self.seen + 1, run.end
            return
        for offset in range(self._at, min(end, self._at + self.limit - self.done)):
            index = offset - run.first
            at_ms = run.times_ms[index] if run.times_ms else run.written_ms
            record = offset, at_ms, run.head, run.bodies[index]
            self._at = offset + 1
            self.seen += 1
            self.done += 1
            if self.take is None:
                self.found.append(record)
            elif not self.take(*record):
                self.turns.begin(0.0)
                break

    def _take(self, runs: Sequence[StreamRun] | None) -> None:
        """Take what the store has read; None = it has failed, and is asked again."""
        self.position.is_waiting = False
        if runs is not None:
            self._own += runs
            if not runs:  # they are damaged or trimmed: continue with the window
                self._at = max(self._at, self.position.stream.window_first)
        self.woken()


@define(eq=False, repr=False)
class Trimming:
    """The oldest records of a stream that are being dropped. Implements ``InSteps``.

    Args:
      position: The first record to keep.
      turns: Limits the time of a step.
    """

    position: Position
    turns: "Turns"
    total: int = 0
    done: int = 0
    problem: ProtocolError | None = None
    woken: Callable[[], None] = noop
    _is_freeing: bool = False

    def __attrs_post_init__(self) -> None:
        self.position.wake = lambda: self.woken()

    @property
    def seen(self) -> int:
        """Return the number of dropped records."""
        return self.done

    def step(self, _now: float) -> Step:
        """Implement ``InSteps.step``."""
        position = self.position
        stream = position.stream
        if position.is_waiting or not position.is_found():
            return Step.WAIT
        if not self._is_freeing:
            self._is_freeing = True
            self.total = stream.next - stream.first
            self.done = position.streams.trim(stream, position.at)
        self.turns.begin(STEP_S)
        while stream.free(PIECE):
            if self.turns.is_over():
                return Step.MORE
        return Step.DONE

    def end(self, _now: float = 0.0) -> None:
        """Implement ``InSteps.end``. Once begun, it is done."""


def _bounds(name: str, found: "Stream | StreamState") -> dict[str, object]:
    return {
        "stream": name,
        "epoch": found.epoch,
        "first": found.first,
        "next": found.next,
        "messages": found.next - found.first,
        "bytes": found.bytes,
    }
