"""A reader of a stream: a position that advances as far as its consumer has credit."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NEVER, Delivery, Publication, Timers, Work
from trio_stomp.broker.durability import Log, StoreRead
from trio_stomp.broker.headers import END_MARK, PRIORITY_DEFAULT, decode_head
from trio_stomp.broker.queues import (
    AUTO_BATCH_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    Consumer,
    Message,
)
from trio_stomp.broker.routing import DestinationPolicy
from trio_stomp.broker.streams._stream import Stream, StreamRun
from trio_stomp.frames import Head, encode_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.queues import DeadLetterReason
    from trio_stomp.store import Store, Streamed

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


ONCE = DestinationPolicy(max_redeliveries=0)
"""The policy of readers: no redelivery."""
READ_OVERHEAD_BYTES = 48
"""The memory of a message that was read from the store, besides its body."""
_NO_HEAD = Head("SEND", ())


@define(eq=False, repr=False)
class StreamReader:
    """The source of a consumer that reads a stream. It takes the place of a queue.

    Args:
      at: The offset of the next message.
      until: The offset before which reading ends; None = no end.
      timers: Schedules a delayed beginning.
      mark: Schedules its hand-out at the end of the turn.
      log: The log, if there is a store. It reads what is not in memory.
    """

    consumer: Consumer
    stream: Stream
    at: int
    until: int | None
    timers: Timers
    mark: "Callable[[StreamReader], None]"
    log: Log | None
    starts_at: float = 0.0
    """Time of the first delivery, in seconds of the broker's clock."""
    since_ms: int = 0
    """Skip messages written before this time, in ms since 1970, up to the first later one."""
    is_ended: bool = False
    """It has sent the end marker, or its subscription has ended."""
    is_marked: bool = False
    is_trimmed: bool = False
    """Requested messages are gone. The next MESSAGE has ``x-stream-first``."""
    is_loading: bool = False
    is_seeking: bool = False
    """The store is searching for the first offset."""
    policy: DestinationPolicy = ONCE
    unacked: int = 0
    nacked: int = 0
    redelivered: int = 0
    reassign: Callable[[Message, float, float], Work] | None = None
    _own: deque[StreamRun] = field(factory=deque)
    """Runs read from the store for this reader."""
    _alarm: int = 0
    """The number of the timer for a delayed beginning; 0 = none."""

    @property
    def may_give_up(self) -> bool:
        """Return True: the stream keeps refused messages for others."""
        return True

    def wait_until(self, due: float) -> None:
        """Deliver nothing before a time."""
        self.starts_at = due
        self._alarm = self.timers.call_at(due, self._begin)

    def _begin(self, _now: float) -> None:
        self._alarm = 0
        self.mark(self)

    def pump(self, now: float) -> None:
        """Deliver messages as far as the consumer has credit."""
        stream, consumer = self.stream, self.consumer
        while not self.is_ended and now >= self.starts_at and not self.is_seeking:
            if not consumer.is_ready:
                if stream.memory.used_bytes * 2 > stream.memory.limit_bytes:
                    self._forget_own()  # they can be read again when there is room
                return
            if self.until is not None and self.at >= self.until:
                self._end(self.until)
            elif self.at < stream.first:
                self._leap(stream.first)
            elif self.at >= stream.next:
                stream.wait(self)
                return
            else:
                run = self._run()
                if run is None:
                    return
                if run.first > self.at:
                    self._leap(run.first)
                elif run.written_ms < self.since_ms:
                    self.at = min(run.end, stream.next)
                else:
                    self.since_ms = 0
                    self._give(run, now)

    def seek(self) -> None:
        """Find the offset of the first message that was written at its time or later."""
        self.is_seeking = True
        request_offset(self.log, self.stream, self.since_ms, self._sought)

    def _sought(self, offset: int | None) -> None:
        if offset is not None:
            self.is_seeking = False
            self.at = max(offset, self.stream.first)
            self.mark(self)
        elif not self.is_ended:
            self.seek()  # the store has failed

    def _loaded(self, runs: list[StreamRun] | None) -> None:
        """Take runs that were read from the store; None = it has failed, and is asked again."""
        self.is_loading = False
        if self.is_ended:
            return
        if runs is not None:
            self._own.extend(runs)
            self.stream.memory.used_bytes += sum(map(_cost_of, runs))
            if not runs and self.at < self.stream.window_first:
                # They are damaged or trimmed: continue with the window.
                self._leap(self.stream.window_first)
        self.mark(self)

    def _end(self, until: int) -> None:
        """Send the end marker before offset ``until``, and end."""
        consumer, stream = self.consumer, self.stream
        subscription = consumer.subscription
        rules = subscription.client.rules
        number = min(until, self.at)
        lines = [
            encode_header("destination", stream.name, rules),
            b"x-stream-end:true\nx-stream-offset:%d\n" % number,
            b"x-stream-first:%d\nx-stream-next:%d\n" % (stream.first, stream.next),
            encode_header("x-stream-epoch", stream.epoch, rules),
        ]
        repeat = consumer.repeats_number
        mark = END_MARK + b"%d" % number
        front = subscription.prefix + mark + (repeat + mark if repeat else b"") + b"\n"
        subscription.outbox.stage_frame(front + b"".join(lines) + b"\n\0\n")
        if consumer.tracks:
            self._track(number, b"", self._publication(_NO_HEAD, 0.0))
        self.close()

    def close(self) -> None:
        """End the reader."""
        self.is_ended = True
        self.stream.leave(self)
        self._forget_own()
        if self._alarm:
            self.timers.cancel(self._alarm)
            self._alarm = 0

    # Source: acknowledgements. Nothing is redelivered or dead-lettered.

    def settle(self, messages: list[Message]) -> None:
        """Take a run of ACKs."""
        self.unacked -= len(messages)
        for message in messages:
            self.give_back(message, 0.0, 0.0)

    def kill(self, message: Message, _death: "DeadLetterReason", _now: float) -> None:
        """Take a NACK, which counts as an ACK."""
        self.settle([message])

    def give_back(self, message: Message, _delay_s: float, _now: float) -> None:
        """Free a message. A returned one counts as acknowledged, and was counted by the caller."""
        self.stream.memory.give(len(message.body) + MESSAGE_OVERHEAD_BYTES)

    def detach(self, consumer: Consumer) -> None:
        """Detach from a leaving consumer."""
        self.close()
        consumer.queues.pop(self, None)

    def _leap(self, offset: int) -> None:
        if self.until is not None:
            offset = min(offset, self.until)
        self.stream.lost += offset - self.at
        self.at = offset
        self.is_trimmed = True

    def _run(self) -> StreamRun | None:
        """Return the run with the next message, or None if it must be read first."""
        found = self.stream.run_at(self.at)
        if found is not None:
            self._forget_own()
            return found
        if (own := self._own_at(self.at)) is not None:
            return own
        if not self.is_loading:
            self.is_loading = True
            # To find the first message by time, runs must keep their own times.
            joins = not self.since_ms
            request_runs(self.log, self.stream, self.at, self._loaded, joins=joins)
        return None

    def _own_at(self, offset: int) -> StreamRun | None:
        """Return the first run from the store that ends behind an offset. Free those before it."""
        own = self._own
        while own and own[0].end <= offset:
            self.stream.memory.give(_cost_of(own.popleft()))
        return own[0] if own else None

    def _forget_own(self) -> None:
        self.stream.memory.give(sum(map(_cost_of, self._own)))
        self._own.clear()

    def _give(self, run: StreamRun, now: float) -> None:
        """Stage a run and the following ones, as much as fits in one delivery."""
        subscription = self.consumer.subscription
        publication = self._publication(run.head, now)
        tails = [b""]
        size, room = 0, AUTO_BATCH_BYTES
        following: StreamRun | None = run
        while following is not None:
            taken = self._take(following, publication, room)
            tails += taken
            taken_bytes = sum(map(len, taken))
            size += taken_bytes
            room -= max(taken_bytes, MESSAGE_OVERHEAD_BYTES * len(taken))
            following = self._following() if room > 0 else None
        delivery = Delivery(tails, len(tails) - 1, size, publication, is_paced=True)
        self.consumer.fan_out.stage(subscription, delivery)

    def _following(self) -> StreamRun | None:
        """Return the next run if it is in memory and the consumer has credit."""
        at, consumer = self.at, self.consumer
        if at >= self.stream.next or at == self.until:
            return None
        if consumer.count_left <= 0 or consumer.bytes_left <= 0:
            return None
        own = self._own_at(at)
        return own if own is not None and own.first <= at else self.stream.run_at(at)

    def _take(self, run: StreamRun, publication: Publication, room: int) -> list[bytes]:
        """Advance over a run, and return the second halves of the MESSAGEs to deliver.

        They take about ``room`` bytes.
        """
        consumer = self.consumer
        subscription = consumer.subscription
        start = self.at - run.first
        # A run from the store may have messages that are not visible yet.
        stop = min(len(run.bodies), self.stream.next - run.first)
        if self.until is not None:
            stop = min(stop, self.until - run.first)
        if consumer.tracks or run.size > room:
            stop = self._fitting(run, start, stop, room)
        epoch = self.stream.epoch.encode()
        repeat = consumer.repeats_number
        is_part_of_own = bool(self._own) and run is self._own[0] and stop - start < len(run.bodies)
        if repeat or self.is_trimmed or is_part_of_own:
            tails = run.encode(start, stop, subscription.version_index, epoch, repeat)
            if self.is_trimmed:
                self.is_trimmed = False
                front, _, rest = tails[0].partition(b"\n")
                tails[0] = b"%b\nx-stream-first:%d\n%b" % (front, self.at, rest)
        else:
            tails = run.tails(subscription.version_index, epoch)
            if start or stop < len(run.bodies):
                tails = tails[start:stop]
        if consumer.tracks:
            for number, body in enumerate(run.bodies[start:stop], self.at):
                self._track(number, body, publication)
        self.at = run.first + stop
        return tails

    def _fitting(self, run: StreamRun, start: int, stop: int, room: int) -> int:
        """Return the index up to which credit and ``room`` suffice, for at least one message."""
        consumer, left = self.consumer, room
        if consumer.tracks:
            stop, left = min(stop, start + consumer.count_left), consumer.bytes_left
        for index in range(start, stop):
            size = len(run.bodies[index])
            left -= size
            room -= size + MESSAGE_OVERHEAD_BYTES
            if left <= 0 or room <= 0:
                return index + 1
        return stop

    def _track(self, number: int, body: bytes, publication: Publication) -> None:
        self.unacked += 1
        self.stream.memory.used_bytes += len(body) + MESSAGE_OVERHEAD_BYTES
        message = Message(number, publication, body, PRIORITY_DEFAULT, deliveries=1)
        message.source = self
        self.consumer.lend(number, message)

    def _publication(self, head: Head, now: float) -> Publication:
        return Publication(self.stream.destination, head, [], now, NEVER)


def _cost_of(run: StreamRun) -> int:
    """Return the memory of a run that was read from the store."""
    return sum(map(len, run.bodies)) + READ_OVERHEAD_BYTES * len(run.bodies)
