"""A client of NATS that stays connected to one server of a cluster at a time."""

import random
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count

import trio
from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.nats._address import NatsOptions, Servers
from trio_stomp.nats._errors import Disconnected, NoAnswer, NoResponders, OutgoingFull
from trio_stomp.nats._link import Link, open_link
from trio_stomp.nats.codec import (
    Message,
    NatsError,
    check_subject,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
)

AGES = 8
CLOSING_S = 1.0
"""Maximum time to write published messages before the client closes."""
_NO_RESPONDERS = b"NATS/1.0 503"

Answer = Message | NatsError
OnAnswer = Callable[[Answer], None]
OnMessages = Callable[[list[Message]], None]


@define(eq=False, repr=False)
class Subscription:
    """A subscription of a client, renewed on each server that it connects to, until it is ended.

    ``on_lost`` is called when the connection ends: messages of the subscription may be missing.
    """

    sid: bytes
    subject: bytes
    group: bytes
    on_messages: OnMessages
    on_lost: Callable[[], None]


@define(eq=False, repr=False)
class NatsClient:
    """Publishes, subscribes and requests over one connection, which is renewed when it ends.

    Only subscriptions survive the end of a connection: the last published messages may be lost, and
    requests without an answer fail with ``Disconnected``. ``open_client`` makes a client.

    Args:
      on_change: Called when a connection has opened or ended. It must not wait or raise.
      on_fault: Called with each error that a server reports, and why a connection failed.
    """

    options: NatsOptions
    on_change: Callable[[], None]
    on_fault: Callable[[str], None]
    _servers: Servers
    _link: Link | None = None
    _subscriptions: dict[bytes, Subscription] = field(factory=dict)
    _sids: "count[int]" = field(factory=lambda: count(1))
    _inbox: bytes = field(factory=lambda: b"_INBOX.%b." % secrets.token_hex(11).encode())
    _tokens: "count[int]" = field(factory=count)
    _requests: dict[bytes, tuple[int, OnAnswer]] = field(factory=dict)
    """Open requests, with the ``_age`` at their start, by the subject of the answer."""
    _age: int = 0
    """Grows by ``AGES`` during ``answer_s``."""
    _connected: trio.Event = field(factory=trio.Event)

    @property
    def info(self) -> Mapping[str, object]:
        """Return the connected server's latest description of itself; {} = none is connected."""
        return self._link.info if self._link is not None else {}

    @property
    def is_connected(self) -> bool:
        """Return whether a server is connected."""
        return self._link is not None

    async def wait_until_connected(self) -> None:
        """Wait until a server is connected. A checkpoint only if none is."""
        while self._link is None:
            await self._connected.wait()

    def publish(
        self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b""
    ) -> None:
        """Publish a message without waiting. It is unknown whether a server receives it.

        Args:
          subject: The destination.
          payload: At most ``info["max_payload"]`` bytes, headers included.
          reply: The subject for answers.
          headers: Encoded headers, from ``encode_headers``; b"" = none.

        Raises:
          Disconnected: No server is connected.
          OutgoingFull: Too many bytes wait to be sent: call ``flush``, or publish less.
          NatsError: The message is too large, or a subject is invalid, by the caller's fault.
        """
        check_subject(subject)
        if reply:
            subject = b"%b %b" % (subject, check_subject(reply))
        self._send(subject, payload, headers)

    def _send(self, subject: bytes, payload: bytes, headers: bytes) -> None:
        link = self._link
        if link is not None and len(payload) + len(headers) > link.max_payload:
            raise NatsError(
                f"a message of {len(payload) + len(headers)} bytes for {subject!r} is larger than"
                f" {link.max_payload}, which is the server's limit (max_payload)"
            )
        self.send(encode_publish(subject, payload, headers))

    def send(self, operations: bytes) -> None:
        """Send complete protocol operations without waiting.

        Raises:
          Disconnected: No server is connected.
          OutgoingFull: Too many bytes wait to be sent: call ``flush``, or send less.
        """
        link = self._link
        if link is None:
            raise Disconnected("no server of NATS is connected")
        if link.outgoing_bytes > self.options.max_outgoing_bytes:
            raise OutgoingFull(f"{link.outgoing_bytes} bytes wait to be sent to {link.address}")
        link.say(operations)

    async def flush(self) -> None:
        """Wait until the server has processed all earlier publications.

        Raises:
          Disconnected: No server is connected, or the connection ended during the wait.
        """
        link = self._link
        if link is None or not await link.flush():
            raise Disconnected("the connection ended before the server had answered")

    def subscribe(
        self,
        subject: bytes,
        on_messages: OnMessages,
        *,
        group: bytes = b"",
        on_lost: Callable[[], None] = noop,
    ) -> Subscription:
        """Subscribe to ``subject``, on the current server and all later ones.

        Args:
          subject: ``*`` stands for a token, ``>`` at the end for one or more.
          on_messages: Called with the messages of each read, in order. It must not wait or raise.
          group: Each message goes to one subscription of the group; b"" = no group.
          on_lost: Called when the connection ends: messages may be missing. It must not wait or
            raise.

        Raises:
          NatsError: ``subject`` or ``group`` is not a valid subject, by the caller's fault.
        """
        subscription = Subscription(b"%d" % next(self._sids), subject, group, on_messages, on_lost)
        order = encode_subscribe(subject, subscription.sid, group)
        self._subscriptions[subscription.sid] = subscription
        if self._link is not None:
            self._link.say(order)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Its callbacks are not called again."""
        if self._subscriptions.pop(subscription.sid, None) and self._link is not None:
            self._link.say(encode_unsubscribe(subscription.sid))

    def start_request(
        self, subject: bytes, payload: bytes, on_answer: OnAnswer, *, headers: bytes = b""
    ) -> bytes:
        """Publish a request without waiting.

        Args:
          subject: The subject to which the responder subscribes.
          payload: The content.
          on_answer: Called once: with the answer, or with ``Disconnected``, ``NoResponders`` or
            ``NoAnswer`` (after ``answer_s``, approximately). It must not wait or raise.
          headers: Encoded headers, from ``encode_headers``; b"" = none.

        Returns:
          A key for ``give_up``.

        Raises:
          NatsError: As ``publish``; ``on_answer`` is not called.
        """
        reply = self._inbox + b"%d" % next(self._tokens)
        self._send(b"%b %b" % (check_subject(subject), reply), payload, headers)
        self._requests[reply] = self._age, on_answer
        return reply

    def give_up(self, key: bytes) -> None:
        """Forget a request. Its callback is not called any more."""
        self._requests.pop(key, None)

    async def request(self, subject: bytes, payload: bytes, *, headers: bytes = b"") -> Message:
        """Publish a request and return its answer.

        Raises:
          Disconnected: No server is connected, or the connection ended. If it ended, the request
            may have been carried out.
          NoResponders: No client subscribes to the subject.
          NoAnswer: No answer came within ``answer_s``. It may have been carried out.
          NatsError: As ``publish``.
        """
        answers: list[Answer] = []
        answered = trio.Event()

        def take(answer: Answer) -> None:
            answers.append(answer)
            answered.set()

        key = self.start_request(subject, payload, take, headers=headers)
        try:
            await answered.wait()
        finally:
            self.give_up(key)
        if isinstance(answers[0], NatsError):
            raise answers[0]
        return answers[0]

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection ends, until cancelled."""
        self.subscribe(self._inbox + b"*", self._take_answers)
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._expire)
            while True:
                address, wait_s = self._servers.next()
                await trio.sleep(wait_s)
                try:
                    async with open_link(
                        address, self.options, self._take_messages, self.on_fault
                    ) as link:
                        self._servers.note_success(address, link.info)
                        await self._use(link)
                except NatsError as error:
                    self.on_fault(str(error))

    async def _use(self, link: Link) -> None:
        """Run an open link until it ends.

        Raises:
          NatsError: always, with the reason of its end.
        """
        for each in self._subscriptions.values():
            link.say(encode_subscribe(each.subject, each.sid, each.group))
        self._link = link
        self._connected.set()
        self.on_change()
        try:
            raise await link.run()
        finally:
            self._link = None
            self._connected = trio.Event()
            self._fail_requests()
            for each in list(self._subscriptions.values()):
                each.on_lost()
            self.on_change()

    def _take_messages(self, messages: list[Message]) -> None:
        """Pass messages to their subscriptions, consecutive ones of a subscription together."""
        start, sid = 0, messages[0].sid
        for at, message in enumerate(messages):
            if message.sid != sid:
                self._give(sid, messages[start:at])
                start, sid = at, message.sid
        self._give(sid, messages[start:] if start else messages)

    def _give(self, sid: bytes, messages: list[Message]) -> None:
        subscription = self._subscriptions.get(sid)
        if subscription is not None:  # else it was ended meanwhile
            subscription.on_messages(messages)

    def _take_answers(self, messages: list[Message]) -> None:
        for message in messages:
            waiting = self._requests.pop(message.subject, None)
            if waiting is None:
                continue  # given up, or a second answer
            answer: Answer = message
            if message.headers.startswith(_NO_RESPONDERS) and not message.payload:
                answer = NoResponders("no client subscribes to the subject of the request")
            waiting[1](answer)

    def _fail_requests(self) -> None:
        requests, self._requests = self._requests, {}
        for _, on_answer in requests.values():
            on_answer(Disconnected("the connection ended before an answer came"))

    async def _expire(self) -> None:
        """End requests whose time is up. All have the same limit, so the oldest expire first."""
        while True:
            await trio.sleep(self.options.answer_s / AGES)
            self._age += 1
            while self._requests and (key := next(iter(self._requests))):
                since, on_answer = self._requests[key]
                if since > self._age - AGES:
                    break
                del self._requests[key]
                on_answer(NoAnswer(f"no answer within {self.options.answer_s} s"))


@asynccontextmanager
async def open_client(
    options: NatsOptions,
    *,
    on_change: Callable[[], None] = noop,
    on_fault: Callable[[str], None] = noop,
) -> AsyncGenerator[NatsClient, None]:
    """Run a client for the duration of the block. It writes published messages before it closes.

    It does not wait for a connection: see ``wait_until_connected``.
    """
    servers = Servers(
        options.servers, options.first_wait_s, options.last_wait_s, random.SystemRandom()
    )
    client = NatsClient(options, on_change, on_fault, servers)
    # If the block is cancelled, its cleanup may still need the client to close in order.
    running = trio.CancelScope(shield=True)

    async def run() -> None:
        with running:
            await client.run()

    async with trio.open_nursery() as tasks:
        tasks.start_soon(run)
        try:
            yield client
            with trio.move_on_after(CLOSING_S), suppress(Disconnected):
                await client.flush()
        finally:
            running.cancel()
