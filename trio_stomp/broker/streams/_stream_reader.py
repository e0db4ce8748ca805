"""A reader of a stream: a position that advances as far as its consumer has credit."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NEVER, Delivery, Publication, Timers
from trio_stomp.broker.headers import END_MARK, PRIORITY_DEFAULT
from trio_stomp.broker.queues import AUTO_BATCH_BYTES, Consumer, Message, Unacked
from trio_stomp.broker.routing import DestinationPolicy
from trio_stomp.broker.streams._stream import Stream, StreamRun
from trio_stomp.frames import Head, encode_header

if TYPE_CHECKING:
    from trio_stomp.broker.queues import DeadLetterReason

ONCE = DestinationPolicy(max_redeliveries=0)
"""The policy of readers: no redelivery."""
_NO_HEAD = Head("SEND", ())


@define(eq=False, repr=False)
class StreamReader:
    """The source of a consumer that reads a stream. It takes the place of a queue.

    Args:
      at: The offset of the next message.
      until: The offset before which reading ends; None = no end.
      timers: Schedules a delayed beginning.
      mark: Schedules its hand-out at the end of the turn.
      load: Requests messages from the store, from an offset on.
    """

    consumer: Consumer
    stream: Stream
    at: int
    until: int | None
    timers: Timers
    mark: "Callable[[StreamReader], None]"
    load: "Callable[[StreamReader, int], None]"
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
    reassign: Callable[[Message, float, float], bool] | None = None
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
                if stream.memory.is_short:
                    # They can be read again when there is room.
                    self._own.clear()
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

    def more(self) -> None:
        """Continue: there are new messages after the end."""
        self.mark(self)

    def loaded(self, runs: list[StreamRun]) -> None:
        """Take runs that were read from the store."""
        self.is_loading = False
        if self.is_ended:
            return
        self._own.extend(runs)
        if not runs and self.at < self.stream.window_first:
            # They are damaged or trimmed: continue with the window.
            self._leap(self.stream.window_first)
        self.mark(self)

    def retry(self) -> None:
        """Repeat a read that the store failed."""
        self.is_loading = False
        self.mark(self)

    def found(self, offset: int) -> None:
        """Continue at the offset that the store found for its beginning."""
        self.is_seeking = False
        self.at = max(offset, self.stream.first)
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
        self._own.clear()
        if self._alarm:
            self.timers.cancel(self._alarm)
            self._alarm = 0

    # Source: acknowledgements. Nothing is redelivered or dead-lettered.

    def settle(self, _message: Message) -> None:
        """Take an ACK."""
        self.unacked -= 1

    def settle_all(self, messages: list[Message]) -> None:
        """Take a run of ACKs."""
        self.unacked -= len(messages)

    def kill(self, _message: Message, _death: "DeadLetterReason", _now: float) -> None:
        """Take a NACK, which counts as an ACK."""
        self.unacked -= 1

    def give_back(self, message: Message, delay_s: float, now: float) -> None:
        """Do nothing: a returned message counts as acknowledged, and was counted by the caller."""

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
            self._own.clear()
            return found
        own = self._own
        while own and own[0].end <= self.at:
            own.popleft()
        if own:
            return own[0]
        if not self.is_loading:
            self.is_loading = True
            self.load(self, self.at)
        return None

    def _give(self, run: StreamRun, now: float) -> None:
        """Stage a run and the following ones, as much as fits in one delivery."""
        subscription = self.consumer.subscription
        publication = self._publication(run.head, now)
        tails = [b""]
        size = 0
        following: StreamRun | None = run
        while following is not None:
            taken = self._take(following, publication)
            tails += taken
            size += sum(map(len, taken))
            following = self._following() if size < AUTO_BATCH_BYTES else None
        delivery = Delivery(tails, len(tails) - 1, size, publication, is_paced=True)
        self.consumer.fan_out.stage(subscription, delivery)

    def _following(self) -> StreamRun | None:
        """Return the next run if it is in memory and the consumer has credit."""
        at, consumer = self.at, self.consumer
        if at >= self.stream.next or at == self.until:
            return None
        if consumer.count_left <= 0 or consumer.bytes_left <= 0:
            return None
        own = self._own
        while own and own[0].end <= at:
            own.popleft()
        return own[0] if own and own[0].first <= at else self.stream.run_at(at)

    def _take(self, run: StreamRun, publication: Publication) -> list[bytes]:
        """Advance over a run, and return the second halves of the MESSAGEs to deliver."""
        consumer = self.consumer
        subscription = consumer.subscription
        start = self.at - run.first
        # A run from the store may have messages that are not visible yet.
        stop = min(len(run.bodies), self.stream.next - run.first)
        if self.until is not None:
            stop = min(stop, self.until - run.first)
        if consumer.tracks:
            stop = self._credited(run, start, stop)
        epoch = self.stream.epoch.encode()
        repeat = consumer.repeats_number
        if repeat or self.is_trimmed:
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

    def _credited(self, run: StreamRun, start: int, stop: int) -> int:
        """Return the index in a run up to which credit suffices, for at least one message."""
        left = self.consumer.bytes_left
        for index in range(start, min(stop, start + self.consumer.count_left)):
            left -= len(run.bodies[index])
            if left <= 0:
                return index + 1
        return min(stop, start + self.consumer.count_left)

    def _track(self, number: int, body: bytes, publication: Publication) -> None:
        self.unacked += 1
        message = Message(number, publication, body, PRIORITY_DEFAULT, deliveries=1)
        self.consumer.lend(number, Unacked(message, self))

    def _publication(self, head: Head, now: float) -> Publication:
        return Publication(self.stream.destination, head, [], now, NEVER)
