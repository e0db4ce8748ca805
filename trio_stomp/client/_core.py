"""The state that outlives a connection: pending requests, subscriptions, reconnecting."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from types import MappingProxyType
from typing import Literal

from attrs import define, field, frozen

from trio_stomp.base import OptionError, StompError
from trio_stomp.client._awaited import Awaited, Receipt
from trio_stomp.client._errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    LinkLost,
    Refused,
    refusal,
)
from trio_stomp.client._link import Link
from trio_stomp.client._message import Message
from trio_stomp.client._pipe import Endpoint, open_pipe
from trio_stomp.client._reconnect import ReconnectPolicy
from trio_stomp.client._subscription import Subscription
from trio_stomp.client.loops import Event, Loop, Receiver, Scope, Sender
from trio_stomp.frames import FrameLimits
from trio_stomp.protocol import (
    ClientFrames,
    ClientSession,
    Delivered,
    Failed,
    ProtocolOptions,
    Receipted,
    SessionEvent,
    SessionOpened,
)

EVENTS_KEPT = 64
GOODBYE_S = 1.0
"""Maximum time for the broker to close the connection after it confirmed the DISCONNECT."""

FrameMaker = Callable[[ClientFrames, str], bytes]
"""Builds a frame, given its receipt id."""


@frozen
class ClientEvent:
    """An event of the connection.

    Args:
      kind: ``connected``; ``disconnected``; ``reconnecting``: the next attempt follows after
        ``delay_s``.
      attempt: The number of successive failures, from 1; 0 = none failed.
      error: The cause of the end or the failure.
      headers: The headers of CONNECTED.
    """

    kind: Literal["connected", "disconnected", "reconnecting"]
    attempt: int = 0
    delay_s: float = 0.0
    error: StompError | None = None
    headers: Mapping[str, str] = field(factory=dict)


@frozen
class CoreOptions:
    """The options of a client's connections, as ``open_client`` takes them."""

    endpoint: Endpoint
    headers: Callable[[], tuple[tuple[str, str], ...]] = field(repr=False)
    protocol: ProtocolOptions
    limits: FrameLimits
    versions: tuple[str, ...]
    policy: ReconnectPolicy | None
    connect_timeout_s: float
    close_timeout_s: float
    max_outgoing_bytes: int
    renews_token: bool = False
    """Whether each connection attempt gets a new token."""


@define(eq=False, repr=False)
class Core:
    """The state that a client shares with its messages, subscriptions and transactions."""

    options: CoreOptions
    loop: Loop
    link: Link | None = None
    """The open link, if there is one."""
    link_number: int = 0
    failure: StompError | None = None
    on_failure: Callable[[], None] = lambda: None
    nonce: str = field(factory=lambda: secrets.token_hex(6))
    """A random part that makes this client's ids unique."""
    connected: Mapping[str, str] = field(factory=dict)
    events: Receiver[ClientEvent] = field(init=False)
    ended: Event = field(init=False)
    subscriptions: dict[str, Subscription] = field(factory=dict)
    replies: dict[str, Awaited] = field(factory=dict)
    awaited: dict[str, Awaited] = field(factory=dict)
    _emit_to: Sender[ClientEvent] = field(init=False)
    _numbers: "count[int]" = field(factory=lambda: count(1))
    _crowded: set[Subscription] = field(factory=set)
    _wanted: Event | None = None
    _changed: Event = field(init=False)
    _scope: Scope = field(init=False)
    is_leaving: bool = False
    _was_refused: bool = False
    """Whether the ERROR that ended the connection was raised to the sender of the refused frame."""

    def __attrs_post_init__(self) -> None:
        loop = self.loop
        self.ended, self._changed, self._scope = loop.event(), loop.event(), loop.scope()
        self._emit_to, self.events = loop.open_channel(EVENTS_KEPT)

    @property
    def reply_to(self) -> str:
        """Return the temporary queue to which answers to this client's requests go."""
        return f"/temp-queue/replies-{self.nonce}"

    def number(self) -> str:
        """Return a number that this client has not used before."""
        return str(next(self._numbers))

    # --- asking ---------------------------------------------------------------------------

    async def ready(self) -> Link:
        """Wait for an open link with room to write, and return it.

        Raises:
          ClientError: the client has ended.
        """
        while True:
            if self.failure is not None:
                raise self.failure
            link = self.link
            if link is None:
                await self._changed.wait()
            elif link.is_full:
                self._want()
                await link.wait_for_room()
                if link.reason is not None:
                    await self.loop.checkpoint()
            else:
                return link

    def expect(self, awaited: Awaited) -> str:
        """Return a new receipt id, whose RECEIPT settles ``awaited``."""
        receipt = self.number()
        self.awaited[receipt] = awaited
        self._want()
        return receipt

    async def ask(self, make: FrameMaker, *, again: bool) -> Receipt:
        """Send a frame and wait for its RECEIPT.

        Args:
          make: Builds the frame, given a receipt id.
          again: Whether to send it again on the next link if this one breaks.

        Raises:
          OptionError: the frame cannot be built.
          ClientError: refused; or the link broke, and the frame is not sent again.
        """
        link = await self.ready()
        receipt = self.number()
        link.write(make(link.frames, receipt))
        remake = (lambda frames: make(frames, receipt)) if again else None
        awaited = self.awaited[receipt] = Awaited(self.loop.event(), remake)
        self._want()
        try:
            outcome = await awaited.wait()
        finally:
            self.awaited.pop(receipt, None)
        assert isinstance(outcome, Receipt)
        return outcome

    # --- input ----------------------------------------------------------------------------

    def _receive(self, events: list[SessionEvent]) -> None:
        subscriptions, number = self.subscriptions, self.link_number
        for each in events:
            if type(each) is Delivered:
                subscription = subscriptions.get(each.subscription or "")
                if subscription is not None:
                    subscription.put(each, number)
                elif each.subscription == self.reply_to:
                    self._reply(each)
            elif type(each) is Receipted:
                awaited = self.awaited.pop(each.receipt_id, None)
                if awaited is not None:
                    awaited.settle(Receipt(MappingProxyType(dict(each.headers))))
            else:
                assert isinstance(each, Failed)  # a second CONNECTED violates the protocol
                self._refuse(each)

    def _reply(self, delivered: Delivered) -> None:
        awaited = self.replies.pop(delivered.head.get("correlation-id") or "", None)
        if awaited is not None:
            awaited.settle(Message(delivered))

    def _refuse(self, failed: Failed) -> None:
        error = refusal(failed, opening=False)
        asker = self.awaited.pop(failed.get("receipt-id") or "", None)
        if asker is not None:
            self._was_refused = True
            asker.settle(error)
        assert self.link is not None  # the caller is its reader
        self.link.end(error)

    def _wait_until_wanted(self) -> Event | None:
        is_full = self.link is not None and self.link.is_full
        if not self._crowded or self.awaited or self.replies or is_full or self.is_leaving:
            self._wanted = None
            return None
        self._wanted = self.loop.event()
        return self._wanted

    def _want(self) -> None:
        if self._wanted is not None:
            self._wanted.set()
            self._wanted = None

    def note_crowd(self, subscription: Subscription, is_crowded: bool) -> None:
        """Pause reading while a buffer is full."""
        if is_crowded:
            self._crowded.add(subscription)
        else:
            self._crowded.discard(subscription)
            self._want()

    def remember(self, subscription: Subscription) -> None:
        """Register a subscription for its messages, on later connections, too."""
        self.subscriptions[subscription.id] = subscription

    def forget(self, subscription: Subscription) -> None:
        """Stop passing messages to a subscription."""
        self.subscriptions.pop(subscription.id, None)

    async def unsubscribe(self, headers: tuple[tuple[str, str], ...]) -> None:
        """Send UNSUBSCRIBE, and wait for the RECEIPT."""
        await self.ask(
            lambda frames, receipt: frames.unsubscribe((*headers, ("receipt", receipt))),
            again=False,
        )

    # --- links ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a link open until the client leaves or fails.

        This sets ``failure`` and never raises.
        """
        with self._scope:
            await self._stay_connected()
            self._end()

    async def _stay_connected(self) -> None:
        policy, attempt = self.options.policy, 0
        while True:
            self._was_refused = False
            before, opened_at = self.link_number, self.loop.current_time()
            error = await self._attempt()
            is_first = self.link_number == 0
            if self.link_number > before:
                self._lose_link(error)
                held_s = self.loop.current_time() - opened_at
                if policy is not None and held_s >= policy.stable_after_s:
                    attempt = 0
            attempt += 1
            if self.is_leaving:
                self.failure = ClientClosed("the client has been left")
                break
            if policy is None or (is_first and not policy.retry_first):
                self.failure = error
                break
            if not (self._goes_on_anyway(error) or policy.goes_on(attempt, error)):
                self.failure = error
                break
            delay_s = policy.delay_s(attempt, error)
            self._emit(ClientEvent("reconnecting", attempt, delay_s, error))
            await self.loop.sleep(delay_s)

    def _goes_on_anyway(self, error: StompError) -> bool:
        expired = isinstance(error, Refused) and error.code == "credentials-expired"
        return self._was_refused or (expired and self.options.renews_token)

    async def _attempt(self) -> StompError:
        """Connect, stay connected as long as the link lasts, and return why it ended."""
        options = self.options
        session = ClientSession(options.limits, options.protocol, options.versions)
        scope = self.loop.scope(deadline=self.loop.current_time() + options.connect_timeout_s)
        with scope:
            try:
                connect = session.connect(options.headers())
                async with open_pipe(options.endpoint, options.versions, self.loop) as pipe:
                    link = Link(
                        pipe,
                        self.loop,
                        session=session,
                        number=self.link_number + 1,
                        receive=self._receive,
                        wait_until_wanted=self._wait_until_wanted,
                        max_outgoing_bytes=options.max_outgoing_bytes,
                    )
                    welcomed = await link.open(connect)
                    scope.deadline = float("inf")
                    self._take_up(link, welcomed)
                    return await link.run()
            except LinkLost as error:
                return ConnectFailed(f"no session at {options.endpoint.address}: {error}")
            except StompError as error:
                return error
        return ConnectFailed(
            f"no session at {options.endpoint.address} within {options.connect_timeout_s:g} s"
        )

    def _take_up(self, link: Link, welcomed: SessionOpened) -> None:
        """Restore subscriptions on a new connection, before any other frame is sent."""
        self.link, self.link_number = link, link.number
        self.connected = dict(welcomed.headers)
        for subscription in tuple(self.subscriptions.values()):
            subscription.subscribe_on(link)
        for awaited in tuple(self.awaited.values()):
            if awaited.again is not None:
                try:
                    link.write(awaited.again(link.frames))
                except OptionError as error:  # this link negotiated an older version
                    awaited.settle(LinkLost(f"not sent again: {error}"))
        self._emit(ClientEvent("connected", headers=self.connected))
        self._change()

    def _lose_link(self, error: StompError) -> None:
        self.link = None
        self._emit(ClientEvent("disconnected", error=error))
        lost = [(key, each) for key, each in self.awaited.items() if each.again is None]
        for receipt, _ in lost:
            del self.awaited[receipt]
        for awaited in (*(each for _, each in lost), *self.replies.values()):
            awaited.settle(LinkLost(f"the connection ended before the answer arrived ({error})"))
        self.replies.clear()
        for subscription in tuple(self.subscriptions.values()):
            subscription.lose_link()

    def stop(self) -> None:
        """End the connection and all pending requests."""
        self._scope.cancel()
        self.link = None
        if self.failure is None:
            self.failure = ClientClosed("the client has been left")
            self.is_leaving = True
            self._end()

    def _end(self) -> None:
        failure = self.failure
        assert failure is not None
        for awaited in (*self.awaited.values(), *self.replies.values()):
            awaited.settle(failure)
        for subscription in tuple(self.subscriptions.values()):
            subscription.end(failure)
        self._change()
        self._emit_to.close()
        self.ended.set()
        if not self.is_leaving:
            self.on_failure()

    def _change(self) -> None:
        self._changed.set()
        self._changed = self.loop.event()

    async def wait_opened(self) -> None:
        """Wait for the first link.

        Raises:
          ClientError: the client failed to connect.
        """
        while self.link_number == 0 and self.failure is None:
            await self._changed.wait()
        if self.link_number == 0 and self.failure is not None:
            raise self.failure

    async def leave(self) -> None:
        """Send DISCONNECT, and wait a limited time until the broker has handled all frames."""
        if self.failure is not None:
            return
        self.is_leaving = True
        self._want()
        if self.link is None:
            return
        with self.loop.move_on_after(self.options.close_timeout_s), suppress(ClientError):
            await self.ask(lambda frames, receipt: frames.disconnect(receipt), again=False)
            with self.loop.move_on_after(GOODBYE_S):
                await self.ended.wait()

    def _emit(self, event: ClientEvent) -> None:
        with suppress(*self.loop.broken):
            try:
                self._emit_to.send_nowait(event)
            except self.loop.would_block:
                self.events.receive_nowait()  # a late reader gets the newest events
                self._emit_to.send_nowait(event)
