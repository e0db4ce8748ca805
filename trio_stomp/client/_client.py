"""The client: an application's interface to a broker."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Literal, overload

from attrs import define

from trio_stomp.base import OptionError
from trio_stomp.client._awaited import Awaited, Receipt
from trio_stomp.client._core import ClientEvent, Core
from trio_stomp.client._errors import NoResponder, RequestTimedOut
from trio_stomp.client._message import Message
from trio_stomp.client._send import send_headers
from trio_stomp.client._subscription import Subscription
from trio_stomp.client._transaction import Transaction
from trio_stomp.client.loops import Receiver
from trio_stomp.frames import DEDUP_HEADERS
from trio_stomp.protocol import ClientFrames

AckMode = Literal["auto", "client", "client-individual"]

PREFETCH = 100

_ACK_MODES = ("auto", "client", "client-individual")


@define(eq=False, repr=False)
class Client:
    """An open client, created by ``open_client``. Many tasks may use its methods at once.

    Each method also raises the error that ended the client.
    """

    _core: Core

    @property
    def events(self) -> Receiver[ClientEvent]:
        """A channel with the newest 64 events of the connection."""
        return self._core.events

    @property
    def is_connected(self) -> bool:
        """Return whether the client is connected at this moment."""
        return self._core.link is not None

    @property
    def connected_headers(self) -> Mapping[str, str]:
        """The headers of the last CONNECTED: ``version``, ``server``, ``session`` and others."""
        return MappingProxyType(dict(self._core.connected))

    @overload
    async def send(
        self,
        destination: str,
        body: bytes | str = ...,
        *,
        headers: Mapping[str, str] | None = ...,
        persistent: bool = ...,
        receipt: Literal[True] = ...,
    ) -> Receipt: ...
    @overload
    async def send(
        self,
        destination: str,
        body: bytes | str = ...,
        *,
        headers: Mapping[str, str] | None = ...,
        persistent: bool = ...,
        receipt: Literal[False],
    ) -> None: ...
    @overload
    async def send(
        self,
        destination: str,
        body: bytes | str = ...,
        *,
        headers: Mapping[str, str] | None = ...,
        persistent: bool = ...,
        receipt: bool,
    ) -> Receipt | None: ...
    async def send(
        self,
        destination: str,
        body: bytes | str = b"",
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool = False,
        receipt: bool = True,
    ) -> Receipt | None:
        """Send a message.

        With ``receipt`` this waits for the RECEIPT. If the connection breaks meanwhile, the message
        is sent again on the next one, with an ``x-dedup-id`` so that the broker accepts it only
        once. Without it, this waits only for room in the outgoing buffer, whose content is lost
        with the connection.

        Args:
          destination: The destination.
          body: Text is sent as UTF-8.
          headers: Further headers, unescaped.
          persistent: Whether the message survives a restart (docs/operate/durability.md).
          receipt: Whether to wait for a RECEIPT.

        Returns: The RECEIPT, or None without ``receipt``.

        Raises:
          OptionError: a header cannot be sent; the caller's fault.
          Refused: the broker answered with an ERROR; the class says whose fault it is.
          LinkLost: the client does not connect again.
        """
        data = body.encode() if isinstance(body, str) else body
        fields = send_headers(headers, persistent) if headers or persistent else ()
        core = self._core
        if not receipt:
            link = core.link
            if link is None or link.is_full:
                link = await core.ready()
            await core.loop.checkpoint_if_cancelled()
            link.write(link.frames.send(destination, data, fields))
            return None
        again = core.options.policy is not None
        if again and not any(name in DEDUP_HEADERS for name, _ in fields):
            fields = (*fields, ("x-dedup-id", f"{core.nonce}-{core.number()}"))
        return await core.ask(
            lambda frames, receipt: frames.send(destination, data, fields, receipt=receipt),
            again=again,
        )

    @asynccontextmanager
    async def subscribe(
        self,
        destination: str,
        *,
        ack: AckMode = "auto",
        prefetch: int = PREFETCH,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        selector: str | None = None,
        durable: str | None = None,
        offset: int | str | None = None,
        on_stale: Literal["raise", "ignore"] = "raise",
    ) -> AsyncIterator[Subscription]:
        """Subscribe within the block, again on each new connection.

        Args:
          destination: The destination.
          ack: ``auto``, ``client`` or ``client-individual``; with ``auto`` messages need no ACK.
          prefetch: The size of the buffer in messages; unless ``ack`` is ``auto``, also the limit
            of unacknowledged messages.
          id: The id of the subscription; the default is a new one.
          headers: Further headers.
          selector: Receive only matching messages.
          durable: The name of a durable subscription, whose messages the broker stores while no
            client is connected.
          offset: The start in a stream: a number, ``first``, ``last``, ``next`` or
            ``timestamp=S``.
          on_stale: The effect of ACK and NACK for a message of an earlier connection.

        Raises:
          OptionError: an argument is wrong.
          Refused: the broker answered with an ERROR; also raised later, by the iterator.
        """
        core = self._core
        fields = _subscribe_headers(
            destination,
            ack=ack,
            prefetch=prefetch,
            selector=selector,
            durable=durable,
            offset=offset,
        )
        name = id or f"s{core.number()}"
        if name in core.subscriptions:
            raise OptionError(f"id={name!r} is in use by another subscription of this client")
        subscription = Subscription(
            name,
            headers={**fields, **(headers or {})},
            prefetch=prefetch,
            tracks=ack != "auto",
            is_durable=durable is not None,
            ignores_stale=on_stale == "ignore",
            owner=core,
        )
        try:
            await subscription.enter()
            yield subscription
        finally:
            subscription.leave()

    async def end_durable(self, name: str, destination: str | None = None) -> None:
        """End the durable subscription ``name`` permanently, and drop its messages.

        It is the one of this client's ``client_id``. It need not be open; to end an open one use
        ``Subscription.forget``. A connected subscriber continues until it leaves.

        Args:
          name: The name of the durable subscription.
          destination: Its destination, to select one of several with this name (possible only
            without a client id); None = there is only one.

        Raises:
          OptionError: the name or the destination is empty.
          ProtocolViolation: there is no such subscription (``code`` ``unknown-subscription``), or
            there are several and ``destination`` is None (``ambiguous-subscription``).
          NotAuthorized: it belongs to another user.
          LinkLost: the connection broke; the subscription may have been ended.
        """
        if not name:
            raise OptionError("the name of the durable subscription is empty; give one")
        if destination is not None and not destination:
            raise OptionError("the destination is empty; leave it out if there is only one")
        core = self._core

        def make(frames: ClientFrames, receipt: str) -> bytes:
            # The broker looks for the id first, and could end another subscription of this client.
            unused = name if name not in core.subscriptions else f"{name}-{core.nonce}"
            fields = _durable_headers(name)
            if destination is not None:
                fields["destination"] = destination
            return frames.unsubscribe((("id", unused), *fields.items(), ("receipt", receipt)))

        await core.ask(make, again=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Begin a transaction. The end of the block sends COMMIT, an exception sends ABORT.

        Raises:
          LinkLost: the connection broke, and the transaction is lost; if COMMIT was waiting for
            its RECEIPT, either all of it was done or nothing.
          Refused: the broker answered with an ERROR; nothing was done.
        """
        transaction = Transaction(f"t{self._core.number()}", core=self._core)
        await transaction.begin()
        try:
            yield transaction
        except BaseException:
            transaction.abort()
            raise
        await transaction.commit()

    async def request(
        self,
        destination: str,
        body: bytes | str = b"",
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Message:
        """Send a request with ``reply-to`` and ``correlation-id``, and wait for the answer.

        Args:
          destination: The destination.
          body: The body.
          timeout_s: The limit for the whole request, including the wait for a connection.
          headers: Further headers.

        Raises:
          RequestTimedOut: no answer arrived; the request may have been handled.
          NoResponder: the broker's RECEIPT says that nobody got the request, or will get it.
          LinkLost: the connection broke; the request may have been handled.
          Refused: the broker's ERROR.
        """
        core = self._core
        data = body.encode() if isinstance(body, str) else body
        correlation = f"{core.nonce}-{core.number()}"
        own = (("reply-to", core.reply_to), ("correlation-id", correlation))
        reply = Awaited(core.loop.event())
        receipt = ""

        def on_receipt(outcome: object) -> None:
            if not isinstance(outcome, Receipt):
                reply.settle(outcome)
            elif outcome.headers.get("matched") == "0" and "stored" not in outcome.headers:
                hint = f"; {outcome.headers['hint']}" if "hint" in outcome.headers else ""
                reply.settle(NoResponder(f"nobody is subscribed to {destination}{hint}"))

        try:
            with core.loop.move_on_after(timeout_s):
                link = await core.ready()
                receipt = core.expect(Awaited(core.loop.event(), on_settled=on_receipt))
                fields = (*own, *send_headers(headers, False))
                link.write(link.frames.send(destination, data, fields, receipt=receipt))
                core.replies[correlation] = reply
                answer = await reply.wait()
                assert isinstance(answer, Message)
                return answer
        finally:
            core.replies.pop(correlation, None)
            core.awaited.pop(receipt, None)
        raise RequestTimedOut(f"{destination}: no answer within {timeout_s:g} s")


def _subscribe_headers(
    destination: str,
    ack: str,
    prefetch: int,
    *,
    selector: str | None,
    durable: str | None,
    offset: int | str | None,
) -> dict[str, str]:
    if ack not in _ACK_MODES:
        raise OptionError(f"ack={ack!r} is not one of {', '.join(_ACK_MODES)}")
    if prefetch < 1:
        raise OptionError(f"prefetch={prefetch} must be 1 or more")
    fields = {"destination": destination, "ack": ack}
    if ack != "auto":
        fields["prefetch-count"] = str(prefetch)
    if selector is not None:
        fields["selector"] = selector
    if durable is not None:
        fields |= _durable_headers(durable)
    if offset is not None:
        fields["x-stream-offset"] = f"offset={offset}" if isinstance(offset, int) else offset
    return fields


def _durable_headers(name: str) -> dict[str, str]:
    """Return the headers that name a durable subscription, for trio_stomp and other brokers."""
    return {"durable-subscription-name": name, "activemq.subscriptionName": name}
