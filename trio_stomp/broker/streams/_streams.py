"""All streams: creation by policy, appends, readers, retention."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, noop, value
from trio_stomp.broker.delivery import Destination, WallTime
from trio_stomp.broker.durability import Log, StoreRead, WrittenAgain
from trio_stomp.broker.headers import STREAMS, Start, StreamOptions, decode_head, without_places
from trio_stomp.broker.names import STREAM, Kind
from trio_stomp.broker.queues import head_lines
from trio_stomp.broker.streams._stream import Stream, StreamRun
from trio_stomp.broker.streams._stream_reader import StreamReader
from trio_stomp.frames import Head
from trio_stomp.store import Append, Begin, Trim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery import Client, Timers
    from trio_stomp.broker.queues import Consumer, Source
    from trio_stomp.broker.routing import DestinationPolicy
    from trio_stomp.store import Store, Streamed, StreamState

STRETCH_BYTES = 1024 * 1024
"""The bytes of one read from the store."""


def request_runs(
    log: Log | None,
    stream: Stream,
    first: int,
    take: "Callable[[list[StreamRun] | None], None]",
    *,
    joins: bool = True,
) -> None:
    """Read messages from the store, and call ``take`` with them in a later turn.

    Args:
      log: The log. There is one, as the stream is in the store.
      stream: The stream.
      first: The offset of the first message.
      take: Gets runs; None = the read failed and may be repeated.
      joins: Whether to merge runs with equal header blocks, which then share a time.
    """
    assert log is not None

    def done(runs: "Sequence[Streamed] | None", _now: float) -> None:
        take(None if runs is None else _runs_of(runs, joins=joins))

    log.reads.append(StoreRead(partial(_read_stream, stream.name, first), STRETCH_BYTES, done))


def request_offset(
    log: Log | None, stream: Stream, written_ms: int, take: "Callable[[int | None], None]"
) -> None:
    """Find the first message of a time or later, and call ``take`` with its offset.

    Args:
      log: The log. There is one, as the stream is in the store.
      stream: The stream.
      written_ms: The time, in ms since 1970.
      take: Gets the offset; None = the store failed and may be asked again.
    """
    assert log is not None
    find = partial(_find_offset, stream.name, written_ms)
    log.reads.append(StoreRead(find, 0, lambda offset, _now: take(offset)))


def _runs_of(found: "Sequence[Streamed]", *, joins: bool) -> list[StreamRun]:
    """Return runs that the store has read. With ``joins``, merge those with equal header blocks."""
    spans: list[list[Streamed]] = []
    at = -1
    for each in found:
        if joins and spans and spans[-1][0].head == each.head and each.first == at:
            spans[-1].append(each)
        else:
            spans.append([each])
        at = each.first + len(each.bodies)
    heads = {lines: decode_head(lines) for lines in {span[0].head for span in spans}}
    return [_joined(heads[span[0].head], span) for span in spans]


def _joined(head: Head, span: "Sequence[Streamed]") -> StreamRun:
    first = span[0]
    bodies = [body for each in span for body in each.bodies]
    times_ms = None
    if span[-1].written_ms != first.written_ms:
        times_ms = [each.written_ms for each in span for _ in each.bodies]
    return StreamRun(first.first, head, bodies, first.written_ms, times_ms)


def _read_stream(name: str, first: int, store: "Store", max_bytes: int) -> "Sequence[Streamed]":
    return store.read_stream(name, first, max_bytes)


def _find_offset(name: str, written_ms: int, store: "Store", _max_bytes: int) -> int:
    return store.find_offset(name, written_ms)


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

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._streams.values()))

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
        start = self._start(stream, options)
        timers = self.timers
        reader = StreamReader(
            consumer,
            stream=stream,
            at=start,
            until=options.until,
            timers=timers,
            mark=self.mark,
            load=self._load,
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
                    self._seek(reader)
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

    def _load(self, reader: StreamReader, first: int) -> None:
        # To find the first message by time, runs must keep their own times.
        joins = not reader.since_ms
        request_runs(self.log, reader.stream, first, partial(self._loaded, reader), joins=joins)

    def _loaded(self, reader: StreamReader, runs: "list[StreamRun] | None") -> None:
        if runs is None:
            reader.retry()
        else:
            reader.loaded(runs)

    def _seek(self, reader: StreamReader) -> None:
        reader.is_seeking = True
        request_offset(self.log, reader.stream, reader.since_ms, partial(self._sought, reader))

    def _sought(self, reader: StreamReader, offset: int | None) -> None:
        if offset is not None:
            reader.found(offset)
        elif not reader.is_ended:
            self._seek(reader)

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
