"""One subscription: a bounded buffer between the reader and the application."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol, Self

from attrs import define, field

from trio_stomp.base import OptionError, StompError
from trio_stomp.client._awaited import Awaited
from trio_stomp.client._errors import (
    BrokerError,
    ClientClosed,
    LinkLost,
    SlowConsumer,
    StaleMessage,
)
from trio_stomp.client._link import Link
from trio_stomp.client._message import Message
from trio_stomp.client.loops import Loop, ParkingLot
from trio_stomp.protocol import Delivered

MAX_EXCESS_BYTES = 16 * 1024 * 1024
"""Maximum bytes of bodies to buffer beyond a full buffer, while a RECEIPT is awaited."""

_STARTS = frozenset(
    {"x-stream-offset", "from-seq", "last-message-id", "x-stream-epoch", "replay-delay"}
)
"""Headers for the start position in a stream, sent only the first time."""
DURABLE_HEADERS = frozenset(
    {
        "durable",
        "persistent",
        "auto-delete",
        "durable-subscription-name",
        "durable-subscriber-name",
        "activemq.subscriptionName",
        "x-queue-name",
        "client-id",
    }
)
"""The names of a durable subscription; in UNSUBSCRIBE they end it permanently."""
_KEPT_BY_BROKER = ("/queue/", "/amq/queue/", "/dsub/", "queue://", "#")
"""Destinations whose unacknowledged messages are redelivered."""


class Owner(Protocol):
    """The part of a client that a subscription uses."""

    loop: Loop
    link: Link | None
    link_number: int

    async def ready(self) -> Link:
        """Wait for an open link with room to write, and return it."""

    async def unsubscribe(self, headers: tuple[tuple[str, str], ...]) -> None:
        """Send UNSUBSCRIBE with these headers and a receipt, and wait for the RECEIPT."""

    def expect(self, awaited: Awaited) -> str:
        """Return a new receipt id, whose RECEIPT settles ``awaited``."""

    def note_crowd(self, subscription: "Subscription", is_crowded: bool) -> None:
        """Note whether a subscription's buffer is full."""

    def remember(self, subscription: "Subscription") -> None:
        """Register a subscription for its messages, on later connections, too."""

    def forget(self, subscription: "Subscription") -> None:
        """Stop passing messages to a subscription."""


@define(eq=False, repr=False)
class Subscription:
    """The messages of one SUBSCRIBE: ``async for message in messages``.

    The buffer holds ``prefetch`` messages, plus those of one further read. When it is full, the
    client stops reading for all subscriptions, until half of the buffer is free. While a task waits
    for a RECEIPT, reading continues, up to 16 MiB of bodies.

    Args:
      id: The id, unique within the client.
      headers: The headers of SUBSCRIBE, except id and receipt.
      prefetch: The size of the buffer, in messages.
      tracks: Whether messages are acknowledged.
      is_durable: Whether the broker stores messages while the client is away.
      ignores_stale: Whether an ACK for an earlier connection is ignored instead of raising.
    """

    id: str
    headers: Mapping[str, str]
    prefetch: int
    tracks: bool
    is_durable: bool
    ignores_stale: bool
    _owner: Owner
    excess_bytes: int = 0
    is_crowded: bool = False
    error: StompError | None = None
    """The error to raise once the buffer is empty."""
    _comes_again: bool = field(init=False)
    _buffer: deque[Message] = field(factory=deque)
    _lot: ParkingLot = field(init=False)
    _awaited: Awaited = field(init=False)
    _last: Delivered | None = None
    _epoch: str = field(init=False)
    _is_at_end: bool = False
    _is_subscribed: bool = False
    """Whether the broker has the subscription, as far as known."""

    def __attrs_post_init__(self) -> None:
        self._lot = self._owner.loop.parking_lot()
        self._epoch = self.headers.get("x-stream-epoch", "")
        destination = self.headers["destination"]
        kept = self.is_durable or destination.startswith(_KEPT_BY_BROKER)
        self._comes_again = self.tracks and kept

    # --- for the application --------------------------------------------------------------

    @property
    def next_offset(self) -> int | None:
        """Return the offset after the last message, at which a reader continues, or None.

        Store it with the epoch, which is the header ``x-stream-epoch`` of each message, and pass
        both to the next ``subscribe``, as ``offset`` and in ``headers``: in a stream that is
        another one since, the offset means nothing.
        """
        if self._buffer:
            return self._buffer[0].stream_offset
        return self._next_offset()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def receive(self) -> Message:
        """Wait for the next message, and return it.

        Checkpoint: if it waits; otherwise it only checks for cancellation.

        Raises:
          ClientClosed: the block of the subscription has ended.
          ClientError: the subscription was ended, by an ERROR or with the client.
        """
        while not self._buffer:
            if self.error is not None:
                raise self.error
            await self._lot.park()
        await self._owner.loop.checkpoint_if_cancelled()
        # No checkpoint: another task could take the message meanwhile.
        return self._pop()

    def receive_nowait(self) -> Message:
        """Return the next message without waiting.

        Raises:
          trio.WouldBlock, or on asyncio asyncio.QueueEmpty: the buffer is empty.
          ClientError: as ``receive``.
        """
        if not self._buffer:
            raise self._owner.loop.would_block if self.error is None else self.error
        return self._pop()

    async def receive_batch(self) -> list[Message]:
        """Wait for messages, and return all in the buffer: the fastest way to receive.

        Raises:
          ClientError: as ``receive``.
        """
        first = await self.receive()
        batch = [first, *self._buffer]
        self._buffer.clear()
        self._ease()
        return batch

    async def forget(self) -> None:
        """End a durable subscription permanently, and drop its messages.

        Raises:
          ClientError: the broker refused, or the connection broke and the result is unknown.
        """
        self.end(ClientClosed("the subscription has been ended"))
        self._buffer.clear()
        self._is_subscribed = False
        self._owner.forget(self)
        durable = (pair for pair in self.headers.items() if pair[0] in DURABLE_HEADERS)
        await self._owner.unsubscribe((("id", self.id), *durable))

    def _pop(self) -> Message:
        message = self._buffer.popleft()
        if self.is_crowded and len(self._buffer) <= self.prefetch // 2:
            self._ease()
        return message

    def _ease(self) -> None:
        if self.is_crowded:
            self.is_crowded = False
            self.excess_bytes = 0
            self._owner.note_crowd(self, False)

    # --- for the messages -----------------------------------------------------------------

    @property
    def loop(self) -> Loop:
        """The functions of the async library."""
        return self._owner.loop

    def acknowledge(
        self,
        message: Message,
        *,
        negative: bool = False,
        requeue: bool = True,
        passes: bool = False,
        transaction: str | None = None,
    ) -> bool:
        """Send ACK or NACK unless done before, and return whether a frame was sent.

        Args:
          message: The message.
          negative: Send NACK.
          requeue: Whether NACK returns the message to the queue.
          passes: Whether an exception is being raised already, which an error would hide.
          transaction: The transaction; None = none.

        Raises:
          StaleMessage: the message arrived over an earlier connection.
        """
        if not self.tracks or message.is_settled or not message.delivered.ack:
            return False
        owner = self._owner
        link = owner.link
        if link is None or message.link_number != link.number:
            if self._comes_again and not self.ignores_stale and not passes:
                raise StaleMessage(
                    f"{message!r} was received over an earlier connection; the broker will "
                    "redeliver it"
                )
            return False
        try:
            frame = link.frames.acknowledge(
                message.delivered.ack,
                message.delivered.subscription,
                negative=negative,
                requeue=requeue,
                transaction=transaction,
            )
        except OptionError:
            if passes:
                return False
            raise
        message.is_settled = True
        link.write(frame)
        return True

    # --- for the client -------------------------------------------------------------------

    def put(self, delivered: Delivered, link_number: int) -> None:
        """Put a message from the reader into the buffer."""
        if delivered.offset is not None and self._note_offset(delivered):
            return
        self._buffer.append(Message(delivered, self, link_number))
        if len(self._buffer) >= self.prefetch:
            self.excess_bytes += len(delivered.body)
            if not self.is_crowded:
                self.is_crowded = True
                self._owner.note_crowd(self, True)
            elif self.excess_bytes > MAX_EXCESS_BYTES:
                self._overflow()
        if self._lot:
            self._lot.unpark()

    def _overflow(self) -> None:
        self.end(
            SlowConsumer(
                f"{self.headers['destination']}: {MAX_EXCESS_BYTES} bytes beyond the buffer "
                "arrived before an awaited RECEIPT; receive the messages in a separate task"
            )
        )
        self.leave()

    def _note_offset(self, delivered: Delivered) -> bool:
        """Note the offset in the stream, and return whether the message only reports that."""
        if delivered.body or delivered.head.get("x-stream-end") != "true":
            self._last = delivered
            return False
        if self._epoch and delivered.head.get("x-stream-epoch") != self._epoch:
            self.end(
                BrokerError(
                    "stream-lost",
                    f"the stream of {self.headers['destination']} was lost since the last message: "
                    "its offsets start again",
                    delivered.headers(),
                )
            )
            return True
        self._is_at_end = True
        return False

    def _next_offset(self) -> int | None:
        last = self._last
        return None if last is None or last.offset is None else last.offset + 1

    def end(self, error: StompError) -> None:
        """End the subscription. Only the first error counts."""
        if self.error is None:
            self.error = error
            self._ease()
            self._lot.unpark_all()

    def leave(self) -> None:
        """Unsubscribe on the current connection, if any, and ignore further messages."""
        self.end(ClientClosed("the subscription has been closed"))
        self._buffer.clear()
        self._ease()
        self._owner.forget(self)
        link = self._owner.link
        if link is not None and self._is_subscribed:
            self._is_subscribed = False
            link.write(link.frames.unsubscribe((("id", self.id),)))

    def lose_link(self) -> None:
        """Drop buffered messages that the broker will redeliver."""
        if self._comes_again:
            self._buffer.clear()
            self._ease()

    async def enter(self) -> None:
        """Subscribe, and wait for the RECEIPT, over several connections if necessary.

        Raises:
          ClientError: the broker refused, or the client has ended.
        """
        link = await self._owner.ready()
        self.subscribe_on(link)
        self._owner.remember(self)
        while True:
            try:
                await self._awaited.wait()
                return
            except LinkLost:
                await self._owner.ready()

    def subscribe_on(self, link: Link) -> None:
        """Send SUBSCRIBE on a link. A stream continues after its last message."""
        if self._is_at_end:
            return
        self._awaited = Awaited(self._owner.loop.event(), on_settled=self._settled)
        headers = dict(self.headers)
        offset = self._next_offset()
        if offset is not None and self._last is not None:
            headers = {name: text for name, text in headers.items() if name not in _STARTS}
            headers["x-stream-offset"] = f"offset={offset}"
            self._epoch = self._last.head.get("x-stream-epoch") or ""
            if self._epoch:
                headers["x-stream-epoch"] = self._epoch
        receipt = self._owner.expect(self._awaited)
        pairs = (("id", self.id), *headers.items(), ("receipt", receipt))
        link.write(link.frames.subscribe(pairs))
        self._is_subscribed = True

    def _settled(self, outcome: object) -> None:
        if isinstance(outcome, StompError) and not isinstance(outcome, LinkLost):
            self._is_subscribed = False
            self.end(outcome)
            self._owner.forget(self)
