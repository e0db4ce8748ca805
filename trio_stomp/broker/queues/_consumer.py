"""The consumer of a subscription: its credit, and its unacknowledged messages."""

from bisect import bisect_right
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import BrokenInvariant
from trio_stomp.broker.delivery import (
    NEVER,
    AnyConsumer,
    Delivery,
    Destination,
    Publication,
    Subscription,
)
from trio_stomp.broker.headers import PREFETCH_COUNT_MAX, SubscribeOptions
from trio_stomp.broker.queues._message import MESSAGE_OVERHEAD_BYTES, Message
from trio_stomp.broker.routing import FanOut
from trio_stomp.frames import Head, message_blocks, message_tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Work
    from trio_stomp.broker.queues._message import DeadLetterReason
    from trio_stomp.broker.routing import DestinationPolicy
    from trio_stomp.broker.selectors import Selector

AUTO = "auto"
CLIENT = "client"
INDIVIDUAL = "client-individual"

TIME_STEP_S = 1.0
MAX_TIMES = 1_000
"""Limit of recorded times of delivery. Above it, every second one is forgotten."""
AUTO_BATCH_BYTES = 256 * 1024
"""The batch size of an auto consumer whose outbox has room."""
SHOWN_BYTES = 576
"""The measured overhead of one browsed message in an outbox: each is a separate delivery."""


class Source(Protocol):
    """A source of messages for consumers: a queue, or a reader of a stream."""

    policy: "DestinationPolicy"
    unacked: int
    nacked: int
    redelivered: int
    is_marked: bool
    reassign: "Callable[[Message, float, float], Work] | None"

    @property
    def may_give_up(self) -> bool:
        """Return whether messages that fail too often have a dead-letter destination."""

    def settle(self, messages: list[Message]) -> None:
        """Finish acknowledged messages."""

    def kill(self, message: Message, reason: "DeadLetterReason", now: float) -> None:
        """Dead-letter an unacknowledged message."""

    def give_back(self, message: Message, delay_s: float, now: float) -> None:
        """Return a failed delivery to its position, at once or after a delay."""

    def detach(self, consumer: "Consumer") -> None:
        """Stop serving a consumer."""

    def pump(self, now: float) -> None:
        """Hand out messages to the consumers."""


@define(eq=False, repr=False)
class Consumer:
    """The consumer of a subscription. A wildcard or composite destination has several queues.

    Args:
      subscription: The subscription, with the prefix of its MESSAGEs.
      ack: The ack mode.
      options: Prefetch, priority and other options of the SUBSCRIBE.
      fan_out: Numbers and stages the deliveries.
    """

    subscription: Subscription
    ack: str
    options: SubscribeOptions
    fan_out: FanOut
    selector: "Selector | None" = None
    always_sends_redelivered: bool = False
    queues: "dict[Source, None]" = field(factory=dict)
    unacked: dict[int, Message] = field(factory=dict)
    """Deliveries that must be acknowledged, by number, in order."""
    excused: dict[int, None] = field(factory=dict)
    """Unacknowledged deliveries that an open transaction acknowledges. They use no credit."""
    watched: list[tuple[float, int, int]] = field(factory=list)
    """Deliveries with an ack time-out: deadline, number of the first, count."""
    watch_due: float = NEVER
    """Time of the next check of ``watched``."""
    is_early: bool = False
    """The consumer gets nothing: its SUBSCRIBE is not stored yet, or it is ending."""
    turn: "Source | Consumer | None" = None
    """During a search of its queues, the only one that may serve it: the one found last, or itself
    before there is one. None = any queue."""
    joined: int = 0
    """The number of queues joined through wildcards, which are charged."""
    was_lost: bool = False
    """The connection ended without a DISCONNECT, and ``suspect`` is set."""
    suspect: Message | None = None
    """The message in process when the connection was lost."""
    _shown: Destination | None = None
    """The counters of a browser, for the destination of the last message shown."""
    _times: list[tuple[float, int]] = field(factory=list)
    """Times, each with the number of the first delivery since."""
    count_left: int = field(init=False)
    bytes_left: int = field(init=False)
    has_ack: bool = field(init=False)
    """Whether MESSAGEs have an ``ack`` header."""
    repeats_number: bytes = field(init=False)
    """For stream readers: the bytes between the offset in ``ack`` and in ``message-id``."""
    lent: dict[int, tuple[AnyConsumer, int]] | None = None
    """The client's index of ``unacked`` by message; None = unused, or it reads a stream."""

    def __attrs_post_init__(self) -> None:
        self.count_left = self.options.prefetch_count
        self.bytes_left = self.options.prefetch_bytes if self.tracks else AUTO_BATCH_BYTES
        self.repeats_number = b""
        self.subscription.client.acks_up_to |= self.ack == CLIENT
        self.has_ack = self.ack != AUTO and self.subscription.client.version.acks_by_header
        if self.has_ack:
            # The prefix ends with the tag of the ack header. The message id has the same value.
            self.repeats_number = b"\nmessage-id:%b-" % self.subscription.tag.encode()

    @property
    def is_ready(self) -> bool:
        """Return whether it can get another message now."""
        if self.is_early:
            return False
        if self.ack == AUTO:
            return self.bytes_left > 0 and self.subscription.outbox.has_room()
        return self.count_left > 0 and self.bytes_left > 0 and self.subscription.outbox.has_room()

    @property
    def has_credit(self) -> bool:
        """Return whether it may have another unacknowledged message."""
        return self.count_left > 0 and self.bytes_left > 0

    @property
    def tracks(self) -> bool:
        """Return whether its messages must be acknowledged."""
        return self.ack != AUTO

    def wants(self, message: Message) -> bool:
        """Return whether its selector matches the message."""
        return self.selector is None or self.selector.matches(message.publication.head)

    def room_for(self, size: int) -> int:
        """Return the minimum number of messages with bodies of ``size`` bytes that fit."""
        if self.ack == AUTO:
            return self.bytes_left // (size + MESSAGE_OVERHEAD_BYTES)
        return min(self.count_left, self.bytes_left // size) if size else self.count_left

    def charge(self, messages: list[Message]) -> bool:
        """Use credit for messages, and return whether any is left."""
        self.bytes_left -= self.cost_of(messages)
        if self.ack == AUTO:
            return self.bytes_left > 0
        self.count_left -= len(messages)
        return self.count_left > 0 and self.bytes_left > 0

    def uncharge(self, messages: list[Message]) -> None:
        """Undo ``charge``."""
        self.bytes_left += self.cost_of(messages)
        self.count_left += len(messages) if self.tracks else 0

    def cost_of(self, messages: list[Message]) -> int:
        """Return the bytes of credit that messages use."""
        size = sum([len(message.body) for message in messages])
        # An auto consumer has no limit of messages, so count headers in the outbox as well.
        return size + MESSAGE_OVERHEAD_BYTES * len(messages) if self.ack == AUTO else size

    def deliver(self, source: Source, destination: Destination, messages: list[Message]) -> int:
        """Stage messages charged by ``charge``, and return the number of the first delivery."""
        tracks = self.ack != AUTO
        held = self.count_left + len(messages) + len(self.unacked) - len(self.excused)
        if tracks and not (self.count_left >= 0 and held <= self.options.prefetch_count):
            state = f"{self.count_left} left and {held} in all of {self.options.prefetch_count}"
            raise BrokenInvariant("consumer-credit", state, destination.name)
        first = self.fan_out.number(len(messages))
        for start, stop in _spans(messages):
            span = messages[start:stop]
            tails = self._encode(span, first + start)
            if tracks:
                for message in span:
                    message.source = source
                self.unacked.update(enumerate(span, first + start))
                if self.lent is not None:
                    for number, message in enumerate(span, first + start):
                        self.lent[message.number] = (self, number)
            publication = _publication_at(span[0].publication, destination)
            delivery = Delivery(tails, len(span), sum(map(len, tails)), publication, is_paced=True)
            delivery.returns = tracks
            if tracks and publication.expires_at != NEVER:
                delivery.ticket = (self, first + start)
            self.fan_out.stage(self.subscription, delivery)
        if not tracks:
            self.bytes_left = AUTO_BATCH_BYTES
        return first

    def note_time(self, first: int, now: float) -> None:
        """Record the time of the deliveries from ``first`` on, once a second."""
        times = self._times
        if not times or now - times[-1][0] >= TIME_STEP_S:
            times.append((now, first))
            if len(times) > MAX_TIMES:
                del times[1::2]

    def oldest_age_s(self, now: float) -> float:
        """Return the age of the oldest unacknowledged delivery, to about a second."""
        times = self._times
        if not self.unacked or not times:
            times.clear()
            return 0.0
        oldest = next(iter(self.unacked))
        passed = sum(1 for _, first in times[1:] if first <= oldest)
        del times[:passed]
        return max(0.0, now - times[0][0])

    def show(self, destination: Destination, message: Message) -> None:
        """Stage a message to a browser. It stays in its queue and does not count as delivered."""
        shown = self._shown
        if shown is None or shown.name != destination.name:
            # Counters of its own: shown messages must not count in the queue's.
            shown = self._shown = Destination(
                destination.name, destination.kind, reserved=destination.reserved
            )
        shown.slow_consumer = destination.slow_consumer
        deliveries = message.deliveries
        tails = self._encode([message], self.fan_out.number(1))
        message.deliveries = deliveries
        publication = _publication_at(message.publication, shown)
        delivery = Delivery(tails, 1, len(tails[1]) + SHOWN_BYTES, publication)
        delivery.returns = True  # if this is not sent, the message is not lost
        self.fan_out.show(self.subscription, delivery)

    def take_acked(self, number: int, *, cumulative: bool) -> list[Message]:
        """Remove and return the deliveries that an ACK or NACK of ``number`` settles."""
        numbers = [number]
        if cumulative and next(iter(self.unacked)) != number:
            numbers = list(takewhile(lambda each: each <= number, self.unacked))
        return [self._forget(each) for each in numbers]

    def claim(self, number: int, *, cumulative: bool) -> dict[int, Message]:
        """Take the same deliveries as ``take_acked``. They use credit until ``release``."""
        unacked = self.unacked
        numbers = [number]
        if cumulative and next(iter(unacked)) != number:
            numbers = list(takewhile(lambda each: each <= number, unacked))
        claimed = {each: unacked.pop(each) for each in numbers}
        if self.lent is not None:
            for each in claimed.values():
                del self.lent[each.number]
        return claimed

    def take_run(self, numbers: list[int]) -> list[Message]:
        """Remove and return the deliveries of these numbers, all of which it has."""
        if self.excused or self.lent is not None:
            return [self._forget(number) for number in numbers]
        run = list(map(self.unacked.pop, numbers))
        self.count_left += len(run)
        self.bytes_left += sum([len(message.body) for message in run])
        return run

    def take_all(self) -> list[Message]:
        """Remove and return all unacknowledged deliveries, in order."""
        return [self._forget(number) for number in list(self.unacked)]

    def take_oldest(self, count: int) -> list[Message]:
        """Remove and return the oldest unacknowledged deliveries, in order."""
        return [self._forget(number) for number in list(islice(self.unacked, count))]

    def in_work(self) -> Message | None:
        """Return the message that the consumer may be processing: the first unacknowledged one.

        If an open transaction acknowledges all, this is the last one.
        """
        last: Message | None = None
        for number, message in self.unacked.items():
            last = message
            if number not in self.excused:
                break
        return last

    def widen(self, number: int, *, cumulative: bool) -> None:
        """Return the credit of a delivery, or of all up to it. They stay unacknowledged.

        At most a largest window of them: so a consumer never holds more than two.
        """
        # From the newest back, so as to stop at those of an earlier ACK of the transaction.
        numbers = [number]
        if cumulative:
            numbers = list(self.unacked)
            del numbers[bisect_right(numbers, number) :]
            numbers.reverse()
        for each in islice(numbers, PREFETCH_COUNT_MAX - len(self.excused)):
            if each in self.excused:
                return
            self.excused[each] = None
            self.count_left += 1
            self.bytes_left += len(self.unacked[each].body)

    def narrow(self, number: int, *, cumulative: bool) -> None:
        """Undo ``widen``: the deliveries use credit again."""
        numbers = [each for each in self.excused if each <= number] if cumulative else [number]
        for each in numbers:
            if each in self.excused:
                del self.excused[each]
                self.count_left -= 1
                self.bytes_left -= len(self.unacked[each].body)

    def lend(self, number: int, message: Message) -> None:
        """Add an unacknowledged delivery, which uses credit."""
        self.unacked[number] = message
        self.count_left -= 1
        self.bytes_left -= len(message.body)

    def _forget(self, number: int) -> Message:
        message = self.unacked.pop(number)
        if self.lent is not None:
            del self.lent[message.number]
        self.release(number, message)
        return message

    def release(self, number: int, message: Message) -> None:
        """Return the credit of a delivery that was taken."""
        if number in self.excused:
            del self.excused[number]
        else:
            self.count_left += 1
            self.bytes_left += len(message.body)

    def _encode(self, messages: list[Message], first: int) -> list[bytes]:
        tails = [b""]
        version_index, has_ack, names = (
            self.subscription.version_index,
            self.has_ack,
            self.fan_out.names,
        )
        separator = b"\nmessage-id:" if has_ack else b""
        in_memory, in_store = separator + names.in_memory, separator + names.in_store
        last: Head | None = None
        block, is_plain = b"", False
        for number, message in enumerate(messages, first):
            head, body = message.publication.head, message.body
            if head is not last:
                block = message_blocks(head)[version_index]
                is_plain = head.content_length >= 0 and not self.always_sends_redelivered
                last = head
            message.deliveries += 1
            name, id = in_store if message.stored else in_memory, message.number
            if is_plain and message.deliveries == 1:  # the usual case, in one step
                if has_ack:
                    tails.append(b"%d%b%d%b%b\0\n" % (number, name, id, block, body))
                else:
                    tails.append(b"%b%d%b%b\0\n" % (name, id, block, body))
                continue
            start = b"%d%b%d" % (number, name, id) if has_ack else b"%b%d" % (name, id)
            if message.deliveries > 1:
                start += b"\nredelivered:true\ndelivery-count:%d" % message.deliveries
            elif self.always_sends_redelivered:
                start += b"\nredelivered:false"
            if head.content_length >= 0:
                tails.append(b"%b%b%b\0\n" % (start, block, body))
            else:
                tails.append(message_tail(start + block, body))
        return tails


def _publication_at(origin: Publication, destination: Destination) -> Publication:
    """Return the publication of a delivery: ``origin`` at another destination, without bodies."""
    at, until = origin.received_at, origin.expires_at
    return Publication(destination, origin.head, [], at, until, end=origin.end)


def _spans(messages: list[Message]) -> list[tuple[int, int]]:
    """Return the spans of messages with equal expiry, as indexes of start and stop."""
    spans: list[tuple[int, int]] = []
    start = 0
    last = messages[0].publication
    for index, message in enumerate(messages):
        this = message.publication
        if this is not last:
            if this.expires_at != last.expires_at or this.end != last.end:
                spans.append((start, index))
                start = index
            last = this
    spans.append((start, len(messages)))
    return spans
