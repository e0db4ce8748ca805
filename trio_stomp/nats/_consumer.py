"""Consumers of JetStream: one that pulls messages, and one that follows a stream in order.

Source: the NATS documentation, "JetStream wire API Reference", and ADR-13, ADR-17 and ADR-37.
"""

import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from trio_stomp.base import value
from trio_stomp.nats._client import NatsClient, Subscription
from trio_stomp.nats._errors import (
    Disconnected,
    JetStreamError,
    NoAnswer,
    NoResponders,
    OutgoingFull,
)
from trio_stomp.nats._jetstream import JetStream
from trio_stomp.nats.codec import (
    Headers,
    Message,
    NatsError,
    NatsProtocolError,
    encode_publish,
    parse_headers,
)

_ACK = b"+ACK"
SILENT_BEATS = 2.5
"""A consumer without a message or heart-beat for this many intervals is abandoned."""
_NS = 1_000_000_000
_STATUS = b"NATS/1.0 "
_HEARTBEAT = 100
UNAVAILABLE = 503


@value
class Position:
    """The position of a consumer's message, from its ``reply``.

    Args:
      sequence: Its sequence in the stream.
      delivery: The number of this delivery by the consumer, from 1, without gaps.
      time_ns: When the stream stored it, since 1970.
      pending: Number of later messages of the stream for this consumer.
    """

    sequence: int
    delivery: int
    time_ns: int
    pending: int


def position_of(message: Message) -> Position:
    """Return the position of a message that a consumer delivered.

    Raises:
      NatsProtocolError: the message is not from a consumer.
    """
    words = message.reply.split(b".")
    # $JS.ACK.STREAM.CONSUMER.delivered.sequence.delivery.time.pending, or with domain and account
    # after ACK, and perhaps more at the end.
    start = 4 if len(words) == 9 else 6
    try:
        _, sequence, delivery, time_ns, pending = map(int, words[start : start + 5])
    except ValueError:
        raise NatsProtocolError(f"{message.reply!r} is no position in a stream") from None
    return Position(sequence, delivery, time_ns, pending)


@define(eq=False, repr=False)
class Puller:
    """Requests messages from a consumer, a window at a time. ``open_puller`` makes it.

    At most twice ``window`` messages wait here: the next window is requested when half of one has
    been received.

    Args:
      next_subject: The subject of its requests.
      window: Messages per request.
      window_bytes: Bytes per request; more than the largest message.
      beat_s: Interval of the consumer's heart-beats while it has no messages.
    """

    client: NatsClient
    next_subject: bytes
    window: int
    window_bytes: int
    beat_s: float
    _inbox: bytes = field(factory=lambda: b"_INBOX." + secrets.token_hex(11).encode())
    _subscription: Subscription = field(init=False)
    _arrived: list[Message] = field(factory=list)
    _requested: int = 0
    """Requested messages that have not arrived."""
    _error: NatsError | None = None
    _news: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._subscription = self.client.subscribe(self._inbox, self._take, on_lost=self._lose)

    async def receive(self) -> list[Message]:
        """Return the messages that have arrived, at least one, oldest first.

        Raises:
          Disconnected: The connection ended.
          NoResponders: The consumer does not exist (any more).
          NoAnswer: The consumer is silent: its server is gone, or has no leader.
          JetStreamError: The server refuses further messages.
        """
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._ask()
            self._news = trio.Event()
            with trio.move_on_after(self.beat_s * SILENT_BEATS) as scope:
                await self._news.wait()
            if scope.cancelled_caught:
                raise NoAnswer(f"{self.next_subject.decode()}: the consumer is silent")
        arrived, self._arrived = self._arrived, []
        if self._error is None:
            self._ask()
        return arrived

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages of this consumer, without waiting.

        Raises:
          NatsError: As ``NatsClient.publish``; none of them was acknowledged.
        """
        acks = [encode_publish(message.reply, _ACK) for message in messages]
        self.client.send(b"".join(acks))

    def close(self) -> None:
        """End its subscription. The consumer stays."""
        self.client.unsubscribe(self._subscription)

    def _ask(self) -> None:
        """Request another window if at most half of one is outstanding."""
        if self._requested > self.window // 2:
            return
        order = {
            "batch": self.window,
            "max_bytes": self.window_bytes,
            "expires": int(self.beat_s * 20 * _NS),
            "idle_heartbeat": int(self.beat_s * _NS),
        }
        payload = json.dumps(order).encode()
        self.client.publish(self.next_subject, payload, reply=self._inbox)
        self._requested += self.window

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            if message.headers.startswith(_STATUS) and not message.payload:
                self._take_status(parse_headers(message.headers))
            else:
                self._requested -= 1
                self._arrived.append(message)
        self._news.set()

    def _take_status(self, headers: Headers) -> None:
        """Process the end of a window, a heart-beat or a refusal."""
        if headers.status == _HEARTBEAT:
            return
        unsent = headers.fields.get(b"Nats-Pending-Messages", b"")
        if unsent.isdigit():
            self._requested -= int(unsent)
        elif headers.status == UNAVAILABLE:
            self._error = NoResponders(f"{self.next_subject.decode()}: there is no such consumer")
        else:
            self._error = JetStreamError(headers.status, 0, headers.description)

    def _lose(self) -> None:
        self._error = Disconnected("the connection ended; messages may be missing")
        self._news.set()


@value
class Entry:
    """A message of a stream.

    Args:
      time_ns: When it was stored, since 1970.
      pending: Number of later messages in the stream; 0 = it was the last one.
    """

    sequence: int
    time_ns: int
    pending: int
    message: Message


@define(eq=False, repr=False)
class Follower:
    """Reads a stream in order, from one sequence on, without a gap. ``follow`` makes it.

    When the connection, the consumer or its server is lost, it continues with another one. A gap in
    the sequences means that messages were deleted.

    Args:
      last: The sequence of the last message received.
      subject: Other subjects of the stream are left out; b"" = all are read.
    """

    jetstream: JetStream
    stream: str
    last: int
    subject: bytes = b""
    window: int = 1024
    window_bytes: int = 8 * 1024 * 1024
    beat_s: float = 0.5
    _puller: Puller | None = None
    _delivery: int = 0

    async def receive(self) -> list[Entry]:
        """Return the next messages, at least one.

        Raises:
          NotFound: the stream does not exist.
          JetStreamError: The server refuses a consumer.
        """
        client = self.jetstream.client
        while True:
            await client.wait_until_connected()
            try:
                if self._puller is None:
                    await self._open()
                assert self._puller is not None
                entries = self._in_order(await self._puller.receive())
            except (Disconnected, NoResponders, NoAnswer, OutgoingFull):
                await self._pause()
            except JetStreamError as error:
                if self._puller is None and error.code != UNAVAILABLE:
                    raise
                await self._pause()
            else:
                if entries:
                    return entries

    async def _pause(self) -> None:
        """Abandon the consumer, and wait briefly before creating another."""
        self.close()
        await trio.sleep(self.beat_s / 4)

    def close(self) -> None:
        """End its subscription. The server removes its consumer."""
        if self._puller is not None:
            self._puller.close()
            self._puller = None

    async def _open(self) -> None:
        """Create a consumer that begins after the last message."""
        name = secrets.token_hex(11)
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.last + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(self.beat_s * 40 * _NS),
        }
        if self.subject:
            config["filter_subject"] = self.subject.decode()
        order = {"stream_name": self.stream, "config": config, "action": "create"}
        jetstream = self.jetstream
        await jetstream.call(f"CONSUMER.CREATE.{self.stream}.{name}", order)
        subject = f"CONSUMER.MSG.NEXT.{self.stream}.{name}".encode()
        self._delivery = 0
        self._puller = Puller(
            jetstream.client,
            b"%b.%b" % (jetstream.prefix, subject),
            window=self.window,
            window_bytes=self.window_bytes,
            beat_s=self.beat_s,
        )

    def _in_order(self, messages: list[Message]) -> list[Entry]:
        """Return entries up to the first gap. After a gap, close the consumer."""
        entries: list[Entry] = []
        for message in messages:
            position = position_of(message)
            if position.delivery != self._delivery + 1:
                self.close()
                break
            self._delivery = position.delivery
            self.last = position.sequence
            entries.append(Entry(position.sequence, position.time_ns, position.pending, message))
        return entries


@asynccontextmanager
async def follow(
    jetstream: JetStream, stream: str, after: int, subject: bytes = b""
) -> AsyncGenerator[Follower, None]:
    """Follow a stream for the duration of the block, from the first message after a sequence.

    Args:
      jetstream: The interface of the servers.
      stream: The stream.
      after: The sequence before the first message; 0 = from the beginning.
      subject: Other subjects are left out; b"" = all are read.
    """
    follower = Follower(jetstream, stream, after, subject)
    try:
        yield follower
    finally:
        follower.close()
