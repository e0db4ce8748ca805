"""All streams: creation by policy, appends, readers, retention."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, noop, value
from trio_stomp.broker.delivery import Destination, WallTime
from trio_stomp.broker.durability import Log, WrittenAgain
from trio_stomp.broker.headers import STREAMS, Start, StreamOptions, without_places
from trio_stomp.broker.names import STREAM, Kind
from trio_stomp.broker.queues import head_lines
from trio_stomp.broker.streams._stream import Stream, StreamRun
from trio_stomp.broker.streams._stream_reader import StreamReader
from trio_stomp.frames import Head
from trio_stomp.store import Append, Begin, Trim

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Timers
    from trio_stomp.broker.queues import Consumer, Source
    from trio_stomp.broker.routing import DestinationPolicy
    from trio_stomp.store import StreamState

MAX_STREAMS = 1_000
MAX_EXPIRED = 1_000
"""Limit of expired runs of all streams dropped in one turn."""
FIRST = "first:"
"""Prefix of the settings with the first offset of trimmed streams. The store drops whole files."""
_ROOT = STREAM.rstrip("/")
WINDOW_BYTES = 4 * 1024 * 1024
"""The part of a stored stream that is also in memory."""


@value
class Retention:
    """The retention limits of a stream.

    Args:
      stream: The name of the stream.
      max_bytes: The limit on disk; 0 = none.
      oldest_ms: Messages from before this time, in ms since 1970, are dropped; 0 = none.
    """

    stream: str
    max_bytes: int
    oldest_ms: int


@define(eq=False, repr=False)
class StreamAppended(WrittenAgain):
    """The effect of storing messages of a stream: readers see them."""

    name: str
    stream: Stream
    run: StreamRun
    is_urgent: bool
    log: Log
    client: "Client | None" = None

    def write(self) -> None:
        """Write the messages to the store."""
        run, lines = self.run, head_lines(self.run.head)
        record = Append(self.name, run.first, lines, run.bodies, run.written_ms)
        self.log.write(record, size=run.size, is_urgent=self.is_urgent)
        self.log.when_safe(self)
        self.stream.coming = run.end

    def take_back(self) -> None:
        """Implement ``WrittenAgain.take_back``."""
        self.stream.coming = self.run.first

    def write_again(self) -> None:
        """Implement ``WrittenAgain.write_again``."""
        if self.client is None:
            run = self.run
            if run.first != self.stream.coming:
                run = StreamRun(self.stream.coming, run.head, run.bodies, run.written_ms)
            StreamAppended(self.name, self.stream, run, self.is_urgent, self.log).write()

    def commit(self, _now: float) -> None:
        """Implement ``Effect.commit``."""
        self.stream.show(self.run)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``. ``take_back`` frees the offsets."""


@define(eq=False, repr=False)
class Streams:
    """The streams of a broker.

    Args:
      memory: Charged for windows.
      timers: Timers of readers that begin later.
      log: The log, if there is a store.
      mark: Schedules the hand-out of a reader.
      new_epoch: Returns a unique epoch.
      wall: Converts times.
    """

    memory: MemoryBudget
    timers: "Timers"
    log: Log | None
    mark: "Callable[[Source], None]"
    new_epoch: Callable[[], str]
    wall: WallTime
    recovered: "dict[str, StreamState]" = field(factory=dict)
    """The states of streams recovered from the store, by name."""
    warn: Callable[[str], None] = noop
    """Writes a warning to the operator's log."""
    refused: int = 0
    """Number of times that a topic got no stream because there were too many."""
    _streams: dict[str, Stream] = field(factory=dict)

    @property
    def in_use(self) -> Mapping[str, Stream]:
        """Return the streams that were used since the start, by name."""
        return self._streams

    # Creating.

    def of_topic(self, name: str, policy: "DestinationPolicy") -> Stream | None:
        """Return the stream of a topic with this policy, or None if there are too many streams."""
        stream = stream_name(name)
        if stream not in self._streams and len(self._streams) >= MAX_STREAMS:
            if not self.refused:
                self.warn(
                    f"{name[:80]} and other topics are not kept as streams: there are"
                    f" {MAX_STREAMS} of them, which is the limit; let fewer topics have the policy"
                    " stream = true"
                )
            self.refused += 1
            return None
        return self.open(stream, policy.stream_max_bytes, policy.stream_max_age_ms)

    def open(self, name: str, max_bytes: int, max_age_ms: int, window_bytes: int = 0) -> Stream:
        """Return the stream of ``name``, created if needed.

        Args:
          name: The name of the stream.
          max_bytes: The limit on disk; 0 = none.
          max_age_ms: The limit of age; 0 = none.
          window_bytes: The limit in memory; 0 = the default.
        """
        stream = self._streams.get(name)
        if stream is None:
            window_bytes = window_bytes or self._window_bytes(max_bytes)
            stream = Stream(
                name,
                destination=Destination(name, Kind.STREAM),
                epoch="",
                memory=self.memory,
                window_limit_bytes=window_bytes,
                max_bytes=max_bytes,
                max_age_ms=max_age_ms,
                is_stored=self.log is not None,
            )
            self._begin(stream)
            self._streams[name] = stream
        return stream

    def _window_bytes(self, max_bytes: int) -> int:
        """Return the default limit in memory. Without a store, it is the limit of the stream."""
        return WINDOW_BYTES if self.log is not None else max_bytes or self.memory.limit_bytes

    def _begin(self, stream: Stream) -> None:
        state = self.recovered.get(stream.name)
        if state is not None:
            stream.epoch, stream.first, stream.next = state.epoch, state.first, state.next
            stream.coming, stream.stored_bytes = state.next, state.bytes
            return
        stream.epoch = self.new_epoch()
        if self.log is not None:
            self.log.write(Begin(stream.name, stream.epoch))

    # Writing.

    def append(
        self,
        stream: Stream,
        head: Head,
        bodies: list[bytes],
        now: float,
        *,
        sender: "Client | None" = None,
        is_urgent: bool = True,
    ) -> int:
        """Append messages, and return the offset of the first.

        If the store fails, ``sender`` gets an ERROR; without a sender the append is retried. It may
        be delayed unless ``is_urgent``.
        """
        if any(name.startswith(STREAMS) for name, _ in head.headers):
            head = without_places(head)
        # Never backwards, even if the wall clock is set back: times are searched by bisection.
        stream.stamped_ms = max(stream.stamped_ms, self.wall.ms(now))
        run = StreamRun(stream.coming, head, bodies, stream.stamped_ms)
        if self.log is None:
            stream.show(run)
            stream.coming = run.end
        else:
            StreamAppended(stream.name, stream, run, is_urgent, log=self.log, client=sender).write()
        return run.first

    # Reading.

    def join(
        self, consumer: "Consumer", stream: Stream, options: StreamOptions, now: float
    ) -> None:
        """Create a reader of a stream for a consumer."""
        reader = StreamReader(
            consumer,
            stream=stream,
            at=self._start(stream, options),
            until=options.until,
            timers=self.timers,
            mark=self.mark,
            log=self.log,
        )
        consumer.queues[reader] = None
        if options.epoch not in ("", stream.epoch):
            reader.until = reader.at
        else:
            if options.delay_ms:
                reader.wait_until(now + options.delay_ms / 1000)
            if options.start is Start.TIME:
                reader.since_ms = options.value
                if stream.is_stored:
                    reader.seek()
        self.mark(reader)

    def find(self, name: str, open_topic: Callable[[str], object]) -> Stream:
        """Return the stream of ``name``, created if the policy of its topic enables it.

        Args:
          name: The name of the stream.
          open_topic: Opens a topic, and with it its stream.

        Raises:
          ProtocolError: There is no such stream.
        """
        if name not in self._streams:
            for topic in topics_of(name):
                open_topic(topic)
        stream = self._streams.get(name)
        if stream is None and name in self.recovered:
            stream = self.open(name, 0, 0)
        if stream is None:
            limit = f", and there are not {MAX_STREAMS} others" if self.refused else ""
            raise ProtocolError(
                "unknown-stream",
                f"{name[:80]} is not a stream; a topic has one if its policy has stream = true"
                f"{limit}",
                reason=CloseReason.UNSUPPORTED,
            )
        return stream

    def _start(self, stream: Stream, options: StreamOptions) -> int:
        if options.start is Start.FIRST:
            return stream.first
        if options.start is Start.LAST:
            return max(stream.first, stream.next - 1)
        if options.start is Start.OFFSET:
            return options.value
        if options.start is Start.TIME and not stream.is_stored:
            return stream.offset_at(options.value)
        return stream.next

    # Retention.

    def retentions(self, now: float) -> list[Retention]:
        """Return the retention limits of all stored streams that have any."""
        found = []
        now_ms = self.wall.ms(now)
        for stream in self._streams.values():
            if stream.is_stored and (stream.max_bytes or stream.max_age_ms):
                oldest_ms = now_ms - stream.max_age_ms if stream.max_age_ms else 0
                found.append(Retention(stream.name, stream.max_bytes, oldest_ms))
        return found

    def retain(self, name: str, state: "StreamState", before: int) -> None:
        """Apply retention: write a record to drop all messages before an offset.

        Args:
          name: The name of the stream.
          state: Its state in the store.
          before: The first offset to keep.
        """
        stream = self._streams.get(name)
        if stream is None or self.log is None:
            return
        stream.trimmed(max(before, state.first), state.bytes)
        if before > state.first:
            self.log.write(Trim(name, before), is_urgent=False)

    def trim(self, stream: Stream, before: int) -> int:
        """Drop all messages before an offset, also after a restart. Return how many.

        The memory of old runs is freed by ``Stream.free``.
        """
        before = min(max(before, stream.first), stream.next)
        dropped, stream.first = before - stream.first, before
        if dropped and self.log is not None:
            self.log.write(Trim(stream.name, before))
            self.log.keep(FIRST + stream.name, f"{before}")
        return dropped

    def restore(self, states: "Mapping[str, StreamState]", settings: Mapping[str, str]) -> None:
        """Take the streams that are in the store, as far as they were not trimmed."""
        for name, state in states.items():
            first = max(state.first, int(settings.get(FIRST + name, "0")))
            self.recovered[name] = evolve(state, first=min(first, state.next))

    @property
    def window_bytes(self) -> int:
        """Return the bytes of all streams in memory."""
        return sum(stream.window_bytes for stream in self._streams.values())

    def expire(self, now: float) -> bool:
        """Drop expired runs from memory, and others while memory is short.

        Returns:
          Whether more are left for another turn.
        """
        now_ms = self.wall.ms(now)
        left = MAX_EXPIRED
        for stream in self._streams.values():
            left -= stream.expire(now_ms, left)
            if left <= 0:
                return True
        return False

    def answer(self, stream: Stream) -> tuple[tuple[tuple[str, str], ...], bytes]:
        """Return headers and body with the bounds of a stream."""
        fields = {
            "stream": stream.name,
            "epoch": stream.epoch,
            "first": stream.first,
            "next": stream.next,
            "bytes": stream.bytes,
        }
        headers = [("x-stream", stream.name)]
        headers += [(f"x-stream-{key}", str(fields[key])) for key in list(fields)[1:]]
        return tuple(headers), json.dumps(fields, separators=(",", ":")).encode()


def stream_name(topic: str) -> str:
    """Return the name of a topic's stream."""
    return _ROOT + topic if topic.startswith("/") else STREAM + topic


def topics_of(name: str) -> tuple[str, ...]:
    """Return the topics whose stream may have this name."""
    path = name.removeprefix(_ROOT)
    return (path, path[1:]) if len(path) > 1 else ()
