"""ACK and NACK, and messages that return to their queues."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.delivery import (
    MAX_DIGITS,
    Client,
    MessageNames,
    may_have_been_given,
)
from trio_stomp.broker.headers import ID_MARK
from trio_stomp.broker.queues._consumer import CLIENT, INDIVIDUAL, Consumer, Source
from trio_stomp.broker.queues._message import DeadLetterReason, Message
from trio_stomp.broker.queues._queue import AGAIN_S
from trio_stomp.broker.queues._queues import QueueBook
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Work

TIMED_OUT = 16
"""Deliveries that are checked for a timeout in one piece of work."""


@define(eq=False, repr=False)
class AckCounters:
    """Counts of acknowledgements, in messages, since the start."""

    acked: int = 0
    nacked: int = 0
    ignored: int = 0
    """ACKs of messages that needed none (A14), or of deliveries that had ended (A13)."""
    redelivered: int = 0


@define(eq=False, repr=False)
class Acknowledger:
    """Finds the deliveries of an ACK or NACK, and settles them or returns them to the queue."""

    queues: QueueBook
    ignores_unknown: bool
    names: MessageNames
    counters: AckCounters = field(factory=AckCounters)

    def apply(
        self, client: Client, event: Acked, now: float, *, forgiving: bool = False
    ) -> tuple[bool, Sequence[int]]:
        """Apply a run of ACKs or NACKs in order.

        Args:
          client: The sender.
          event: The ACKs or NACKs.
          now: Seconds of the broker's clock.
          forgiving: Ignore unknown ids.

        Returns:
          Whether a message in the store is concerned; and the numbers in the run, from 1, of those
          without effect.

        Raises:
          ProtocolError: An id is none that the broker gave to a delivery (A13).
          Exception: A bug. What it did not let settle has returned to its queue.
        """
        # For a single ACK the general path is cheaper.
        run = [] if event.negative or len(event.ids) == 1 else self._take_run(client, event)
        if run:
            return self._settle_run(run, now), ()
        is_stored, without = False, list[int]()
        for number, name in enumerate(event.ids, 1):
            taken = self.take(client, event, name, forgiving=forgiving)
            if not taken:
                without.append(number)
            left = iter(taken)
            for message in left:
                is_stored |= message.stored > 0
                try:
                    self.settle(message, event, now)
                except Exception:
                    self._give_all_back((message, *left), now)
                    raise
        return is_stored, without

    def resolve(self, client: Client, event: Acked) -> Acked:
        """Return ``event`` with the ids of deliveries in place of message ids.

        One consumer at a time has a message, so its id identifies the delivery.
        """
        names = event.ids
        if not names or names[0].rpartition(b"-")[0] in client.tags:
            return event
        ids = [self._delivery_of(client, name) for name in names]
        header, subscription, requeue = event.header, event.subscription, event.requeue
        return Acked(
            ids,
            header=header,
            subscription=subscription,
            negative=event.negative,
            requeue=requeue,
            receipts=event.receipts,
        )

    def _delivery_of(self, client: Client, name: bytes) -> bytes:
        if client.lent is None:
            _note_lent(client)
        found = (client.lent or {}).get(self.names.number_of(name))
        if found is None:
            return name
        consumer, number = found
        assert isinstance(consumer, Consumer)
        if not self.names.begins(name, is_stored=consumer.unacked[number].stored > 0):
            return name
        return f"{consumer.subscription.tag}-{number}".encode()

    def _take_run(self, client: Client, event: Acked) -> list[Message]:
        """Take the deliveries of a run of ACKs at once, at half the cost of one by one.

        This works for the usual run: valid ACKs of one consumer that each settle one message.

        Returns:
          The deliveries, or [] for any other run, from which nothing was taken.
        """
        names = event.ids
        if not names:
            return []  # frames that were refused one by one
        tag = names[0].rpartition(b"-")[0] + b"-"
        subscription = client.tags.get(tag[:-1])
        if subscription is None or event.subscription not in (None, subscription.id):
            return []
        consumer = subscription.consumer
        # Valid ids leave only digits between two tags.
        before, *digits = (b"\n" + b"\n".join(names)).split(b"\n" + tag)
        if not isinstance(consumer, Consumer) or consumer.ack != INDIVIDUAL:
            return []
        if before or len(digits) != len(names):
            return []
        if not all(digits) or max(map(len, digits)) > MAX_DIGITS or not b"".join(digits).isdigit():
            return []
        numbers = list(map(int, digits))
        wanted = set(numbers)
        if len(wanted) < len(numbers) or not consumer.unacked.keys() >= wanted:
            return []
        self.note_room(consumer)
        return consumer.take_run(numbers)

    def _settle_run(self, run: list[Message], now: float) -> bool:
        """Settle the deliveries of a run, and return whether any of them is in the store."""
        self.counters.acked += len(run)
        left = run
        while left:
            source = left[0].source
            messages = [message for message in left if message.source is source]
            try:
                source.settle(messages)
            except Exception:
                self._give_all_back(left, now)
                raise
            is_all = len(messages) == len(left)
            left = [] if is_all else [each for each in left if each.source is not source]
        return any(message.stored for message in run)

    def take(
        self, client: Client, event: Acked, name: bytes, *, forgiving: bool = False
    ) -> list[Message]:
        """Take the deliveries of an ACK or NACK from their consumer, and return them.

        Raises:
          ProtocolError: As ``apply``.
        """
        found = self.find(client, event, name, forgiving=forgiving)
        if found is None:
            self.counters.ignored += 1
            return []
        consumer, number = found
        self.note_room(consumer)
        return consumer.take_acked(number, cumulative=consumer.ack == CLIENT)

    def note_room(self, consumer: Consumer) -> None:
        """Note that a consumer is about to gain credit."""
        # A consumer with credit was already offered all messages of its queues. With one queue
        # pumping is cheaper than this check.
        if len(consumer.queues) == 1 or not consumer.has_credit:
            self.queues.want(consumer)

    def bind(self, client: Client, bound: Sequence[Acked], freed: Sequence[Acked]) -> None:
        """Free or restore credit for ACKs and NACKs in a transaction.

        Deliveries acknowledged in an open transaction use no credit, but stay with their consumer
        until COMMIT. Unknown ids are ignored here and refused at COMMIT.

        Args:
          client: The sender.
          bound: ACKs and NACKs that joined a transaction.
          freed: ACKs and NACKs of an aborted transaction.
        """
        for event in bound:
            for consumer, number in self._unacknowledged(client, event):
                self.note_room(consumer)
                consumer.widen(number, cumulative=consumer.ack == CLIENT)
        self.free(client, freed)

    def free(self, client: Client, events: Sequence[Acked]) -> None:
        """Let the deliveries of aborted ACKs and NACKs use credit again."""
        found = [each for event in events for each in self._unacknowledged(client, event)]
        for consumer, number in without_covered(found):
            consumer.narrow(number, cumulative=consumer.ack == CLIENT)

    def _unacknowledged(self, client: Client, event: Acked) -> list[tuple[Consumer, int]]:
        """Return the unacknowledged deliveries among those that ``event`` names."""
        deliveries: list[tuple[Consumer, int]] = []
        for name in self.resolve(client, event).ids:
            try:
                found = self.find(client, event, name, forgiving=True)
            except ProtocolError:
                continue
            if found is not None:
                deliveries.append(found)
        return deliveries

    def settle(self, message: Message, event: Acked, now: float) -> None:
        """Apply an ACK or NACK to a delivery that was taken from its consumer.

        Raises:
          Exception: A bug in an ACK. The delivery is not settled.
        """
        if event.negative:
            self.counters.nacked += 1
            message.source.nacked += 1
            if event.requeue:
                self.give_back(message, now, failed=True, elsewhere=True)
            else:
                message.source.kill(message, DeadLetterReason.REJECTED, now)
        else:
            message.source.settle([message])
            self.counters.acked += 1

    def find(
        self,
        client: Client,
        event: Acked,
        name: bytes,
        *,
        forgiving: bool = False,
        in_transaction: bool = False,
        claimed: dict[Consumer, int] | None = None,
    ) -> tuple[Consumer, int] | None:
        """Return the consumer and the number of a delivery, or None if it needs no ACK.

        Args:
          client: The sender.
          event: The ACK or NACK.
          name: The id in its header.
          forgiving: Ignore unknown ids.
          in_transaction: A late ACK is an error: it would be half done.
          claimed: The last number that a cumulative ACK has claimed, by consumer.

        Raises:
          ProtocolError: As ``apply``.
        """
        tag, _, digits = name.rpartition(b"-")
        subscription = client.tags.get(tag)
        if subscription is not None and digits.isdigit() and len(digits) <= MAX_DIGITS:
            consumer = subscription.consumer
            if not isinstance(consumer, Consumer) or not consumer.tracks:
                return None
            key = event.subscription
            if key is not None and key != subscription.id:
                raise ProtocolError(
                    "unknown-ack",
                    f"{event.header}:{_text(name)} was not delivered to subscription:{key[:60]},"
                    f" but to {subscription.id}",
                )
            number = int(digits)
            if number in consumer.unacked and (
                claimed is None or number > claimed.get(consumer, 0)
            ):
                return consumer, number
        if forgiving or self.ignores_unknown:
            return None
        if not in_transaction and may_have_been_given(name):
            return None
        if client.takes_unasked and self.names.number_of(name):
            return None  # deliveries that need no ACK are not recorded
        command = "NACK" if event.negative else "ACK"
        by_header = client.version.acks_by_header
        header, source = ("id", "ack") if by_header else ("message-id", "message-id")
        raise ProtocolError(
            "unknown-ack",
            f"{command} {event.header}:{_text(name)} is not an unacknowledged delivery of this "
            f"connection; STOMP {client.version.name} needs the header {header} with the value of "
            f"the MESSAGE's {source} header",
        )

    def return_all(self, consumer: Consumer, now: float) -> None:
        """Return all unacknowledged messages of a departed consumer to the queue, in order."""
        self.return_some(consumer, len(consumer.unacked), now)

    def return_some(self, consumer: Consumer, count: int, now: float) -> None:
        """Return a leaving consumer's oldest ``count`` messages to the queue."""
        suspect = self._suspect(consumer)
        for message in consumer.take_oldest(count):
            self.give_back(message, now, failed=message is suspect)

    def _give_all_back(self, deliveries: Iterable[Message], now: float) -> None:
        for message in deliveries:
            self.give_back(message, now)

    def give_back(
        self, message: Message, now: float, *, failed: bool = False, elsewhere: bool = False
    ) -> None:
        """Return a delivery to its queue, or make it a dead letter. A bug only delays that.

        Args:
          message: A delivery that was taken from its consumer.
          now: Seconds of the broker's clock.
          failed: It counts as failed.
          elsewhere: It has been refused: it returns after a delay, or goes to another member.
        """
        source, delay_s, reassign = message.source, 0.0, None
        try:
            if failed and self._fail(source, message, now):
                return
            if elsewhere:
                delay_s, reassign = source.policy.delay_s(message.failures), source.reassign
        except Exception as bug:
            self.queues.turns.bug, delay_s = bug, AGAIN_S
        self.counters.redelivered += 1
        source.redelivered += 1
        source.unacked -= 1
        if reassign is None:
            source.give_back(message, delay_s, now)
        else:
            self.queues.carry_out(reassign(message, delay_s, now))

    def _suspect(self, consumer: Consumer) -> Message | None:
        """Return the message that a lost consumer may have been processing, or None."""
        if consumer.subscription.client.is_lost and not consumer.was_lost:
            consumer.was_lost = True
            consumer.suspect = consumer.in_work()
        return consumer.suspect

    def timing_out(self, consumer: Consumer, numbers: Iterable[int], now: float) -> "Work":
        """Treat deliveries that were not acknowledged in time as NACKed, in pieces."""
        for looked, number in enumerate(numbers, 1):
            if number in consumer.unacked:
                self.note_room(consumer)
                for message in consumer.take_acked(number, cumulative=False):
                    self.give_back(message, now, failed=True, elsewhere=True)
            if looked % TIMED_OUT == 0:
                yield

    def take_unsent(self, consumer: Consumer, numbers: Sequence[int], now: float) -> None:
        """Dead-letter deliveries that expired before they were written, and free their credit."""
        self.note_room(consumer)
        for number in numbers:
            if number in consumer.unacked:
                for message in consumer.take_acked(number, cumulative=False):
                    message.source.kill(message, DeadLetterReason.EXPIRED, now)

    def _fail(self, queue: Source, message: Message, now: float) -> bool:
        """Count a failed delivery. Return whether the message was dead-lettered for it."""
        message.failures += 1
        options = message.publication.options
        limit = options.max_exceptions if options is not None else -1
        if 0 <= limit < message.failures:
            queue.kill(message, DeadLetterReason.MAX_EXCEPTIONS, now)
        elif message.failures > queue.policy.max_redeliveries and queue.may_give_up:
            queue.kill(message, DeadLetterReason.DELIVERY_LIMIT, now)
        else:
            self.queues.note_failed(message)
            return False
        return True


def without_covered(found: list[tuple[Consumer, int]]) -> list[tuple[Consumer, int]]:
    """Return deliveries without those that a cumulative ACK of a later one covers."""
    last: dict[Consumer, int] = {}
    for consumer, number in found:
        if consumer.ack == CLIENT:
            last[consumer] = max(number, last.get(consumer, 0))
    return [each for each in found if each[0].ack != CLIENT] + list(last.items())


def _note_lent(client: Client) -> None:
    """Create a client's index from messages to deliveries, for its first ACK by message id."""
    lent = client.lent = {}
    for subscription in client.subscriptions.values():
        consumer = subscription.consumer
        if isinstance(consumer, Consumer) and not subscription.tag.endswith(ID_MARK):
            consumer.lent = lent
            for number, message in consumer.unacked.items():
                lent[message.number] = (consumer, number)


def _text(name: bytes) -> str:
    return name[:60].decode(errors="replace")
