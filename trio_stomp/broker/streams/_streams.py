"""All streams: made by policy, written by publishers, read by subscribers, asked by anybody."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

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
    from trio_stomp.broker.delivery import Client, Timers
    from trio_stomp.broker.queues import Consumer, Source
    from trio_stomp.broker.routing import DestinationPolicy
    from trio_stomp.store import Store, Streamed, StreamState

MAX_STREAMS = 1_000
MAX_EXPIRED = 1_000
"""Runs of all streams that are dropped in one turn, since they are too old."""
_ROOT = STREAM.rstrip("/")
STRETCH_BYTES = 1024 * 1024
"""What is read of a stream at once."""
WINDOW_BYTES = 4 * 1024 * 1024
"""What of a stream is kept in memory beside the store."""


@value
class Retention:
    """The bounds of what is kept of a stream.

    Args:
      max_bytes: On disk; 0 = no bound.
      oldest_ms: What is older than this goes, in ms since 1970; 0 = no bound.
    """

    stream: str
    max_bytes: int
    oldest_ms: int


@define(eq=False, repr=False)
class StreamAppended(WrittenAgain):
    """Messages of a stream that its readers see as soon as the store has them."""

    stream: Stream
    run: StreamRun
    is_urgent: bool
    client: "Client | None" = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        self.stream.show(self.run)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``. Its offset is given to others."""


@define(eq=False, repr=False)
class Streams:
    """The streams of a broker.

    Args:
      new_epoch: A word that no stream ever had as its epoch.
    """

    memory: MemoryBudget
    timers: "Timers"
    log: Log | None
    mark: "Callable[[Source], None]"
    new_epoch: Callable[[], str]
    wall: WallTime
    known: "dict[str, StreamState]" = field(factory=dict)
    """What the store holds of streams that are not in use yet."""
    warn: Callable[[str], None] = noop
    """Tells the operator."""
    refused: int = 0
    """Times that a topic could not be given the stream that its policy wants."""
    _streams: dict[str, Stream] = field(factory=dict)

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._streams.values()))

    # Making.

    def of_topic(self, name: str, policy: "DestinationPolicy") -> Stream | None:
        """Return the stream of a topic whose policy wants one, or None if there are too many."""
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
        """Return a stream, begun if need be.

        Args:
          name: The name.
          max_bytes: The maximum size of the stream on disk.
          max_age_ms: The maximum age of its messages.
          window_bytes: Of the part in memory; 0 = what is fit.
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
        """Return the bytes kept in memory: without a store all, as long as there is room."""
        return WINDOW_BYTES if self.log is not None else max_bytes or self.memory.limit_bytes

    def _begin(self, stream: Stream) -> None:
        state = self.known.get(stream.name)
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
        """Put messages behind all others, and return the offset of the first.

        Args:
          stream: The stream.
          head: The header block of the messages.
          bodies: The bodies of the messages.
          now: The time, in seconds of the broker's clock.
          sender: Who is told if the store cannot; None = nobody, it is tried again.
          is_urgent: Readers are waiting for them.
        """
        if any(name.startswith(STREAMS) for name, _ in head.headers):
            head = without_places(head)
        # In order, though the wall clock is set back: who begins at a time finds it by halving.
        stream.stamped_ms = max(stream.stamped_ms, self.wall.ms(now))
        run = StreamRun(stream.coming, head, bodies, stream.stamped_ms)
        stream.coming = run.end
        if self.log is None:
            stream.show(run)
        else:
            self._write(self.log, StreamAppended(stream, run, is_urgent, sender))
        return run.first

    def _write(self, log: Log, showing: StreamAppended) -> None:
        run = showing.run
        lines = head_lines(run.head)
        record = Append(showing.stream.name, run.first, lines, run.bodies, run.written_ms)
        log.write(record, size=run.size, is_urgent=showing.is_urgent)
        log.when_safe(showing)

    def again(self, effects: Sequence[WrittenAgain]) -> None:
        """Write again what was not withdrawn after a failure of the store, without a gap."""
        unshown = [each for each in effects if isinstance(each, StreamAppended)]
        for stream in {showing.stream: None for showing in unshown}:
            stream.coming = stream.next
        for showing in unshown:
            if showing.client is None and self.log is not None:
                run, stream = showing.run, showing.stream
                if run.first != stream.coming:
                    run = StreamRun(stream.coming, run.head, run.bodies, run.written_ms)
                stream.coming = run.end
                self._write(self.log, StreamAppended(stream, run, showing.is_urgent))

    # Reading.

    def join(
        self, consumer: "Consumer", stream: Stream, options: StreamOptions, now: float
    ) -> None:
        """Let a consumer read a stream."""
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
        """Return a stream that is there, or begins now since its topic's policy says so.

        Args:
          name: The name of the stream.
          open_topic: Opens a topic, and with it the stream that it may have.

        Raises:
          ProtocolError: there is none.
        """
        if name not in self._streams:
            for topic in topics_of(name):
                open_topic(topic)
        stream = self._streams.get(name)
        if stream is None and name in self.known:
            stream = self.open(name, 0, 0)
        if stream is None:
            limit = f", and there are not {MAX_STREAMS} others" if self.refused else ""
            raise ProtocolError(
                "unknown-stream",
                f"{name[:80]} is no stream; a topic has one if its policy says stream = true"
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
        assert self.log is not None
        read = partial(_read_stream, reader.stream.name, first)
        self.log.reads.append(StoreRead(read, STRETCH_BYTES, partial(self._loaded, reader)))

    def _loaded(self, reader: StreamReader, runs: "Sequence[Streamed] | None", now: float) -> None:
        if runs is None:
            reader.retry()
        else:
            # Whoever begins at a time must be told how old each message is.
            reader.loaded(_runs_of(runs, joins=not reader.since_ms))

    def _seek(self, reader: StreamReader) -> None:
        assert self.log is not None
        reader.is_seeking = True
        read = partial(_find_offset, reader.stream.name, reader.since_ms)
        self.log.reads.append(StoreRead(read, 0, partial(self._sought, reader)))

    def _sought(self, reader: StreamReader, offset: int | None, now: float) -> None:
        if offset is not None:
            reader.found(offset)
        elif not reader.is_ended:
            self._seek(reader)

    # Keeping.

    def retentions(self, now: float) -> list[Retention]:
        """Return how much of each stored stream is to be kept."""
        found = []
        now_ms = self.wall.ms(now)
        for stream in self._streams.values():
            if stream.is_stored and (stream.max_bytes or stream.max_age_ms):
                oldest_ms = now_ms - stream.max_age_ms if stream.max_age_ms else 0
                found.append(Retention(stream.name, stream.max_bytes, oldest_ms))
        return found

    def retain(self, name: str, state: "StreamState", before: int) -> None:
        """Apply retention: have the store drop everything before an offset."""
        stream = self._streams.get(name)
        if stream is None or self.log is None:
            return
        stream.trimmed(max(before, state.first), state.bytes)
        if before > state.first:
            self.log.write(Trim(name, before), is_urgent=False)

    @property
    def window_bytes(self) -> int:
        """Return the bytes of all streams that are in memory."""
        return sum(stream.window_bytes for stream in self._streams.values())

    def expire(self, now: float) -> bool:
        """Let time pass: drop from memory what is too old, or too much while memory is short.

        Returns: whether there is more to drop, for another turn.
        """
        now_ms = self.wall.ms(now)
        left = MAX_EXPIRED
        for stream in self._streams.values():
            left -= stream.expire(now_ms, left)
            if left <= 0:
                return True
        return False

    def answer(self, stream: Stream) -> tuple[tuple[tuple[str, str], ...], bytes]:
        """Return headers and body that answer a question about a stream."""
        told = {
            "stream": stream.name,
            "epoch": stream.epoch,
            "first": stream.first,
            "next": stream.next,
            "bytes": stream.bytes,
        }
        headers = [("x-stream", stream.name)]
        headers += [(f"x-stream-{key}", str(told[key])) for key in list(told)[1:]]
        return tuple(headers), json.dumps(told, separators=(",", ":")).encode()


def stream_name(topic: str) -> str:
    """Return the name of a topic's stream."""
    return _ROOT + topic if topic.startswith("/") else STREAM + topic


def _runs_of(found: "Sequence[Streamed]", *, joins: bool) -> list[StreamRun]:
    """Return what the store has read, neighbours with one header block as one run if ``joins``."""
    spans: list[tuple[Streamed, list[bytes]]] = []
    for each in found:
        first, bodies = spans[-1] if spans else (each, [])
        if bodies and joins and first.head == each.head and first.first + len(bodies) == each.first:
            bodies += each.bodies
        else:
            spans.append((each, [*each.bodies]))
    heads = {lines: decode_head(lines) for lines in {first.head for first, _ in spans}}
    return [
        StreamRun(first.first, heads[first.head], bodies, first.written_ms)
        for first, bodies in spans
    ]


def topics_of(name: str) -> tuple[str, ...]:
    """Return the topics whose stream may be called so."""
    path = name.removeprefix(_ROOT)
    return (path, path[1:]) if len(path) > 1 else ()


def _read_stream(name: str, first: int, store: "Store", max_bytes: int) -> "Sequence[Streamed]":
    return store.read_stream(name, first, max_bytes)


def _find_offset(name: str, written_ms: int, store: "Store", max_bytes: int) -> int:
    return store.find_offset(name, written_ms)
