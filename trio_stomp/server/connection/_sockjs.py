"""A connection that uses SockJS, selected at its upgrade: others have no overhead."""

import math
import weakref
from collections.abc import Callable

import trio
from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError, noop
from trio_stomp.broker import Delivery
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.io import Outbox, lose_some
from trio_stomp.transport import (
    JSON_GROWTH,
    SOCKJS_HEARTBEAT,
    SOCKJS_HEARTBEAT_S,
    SockJsCodec,
    quote_sockjs,
    sockjs_message,
    splice_sockjs,
)


def quote_delivery(delivery: Delivery, prefix_length: int) -> Delivery:
    """Return ``delivery`` as SockJS messages, for quoted prefixes of a length.

    The result is cached on ``delivery``, for all subscribers of the same fan-out.

    Raises:
      UnicodeDecodeError: one of its messages is not UTF-8.
    """
    if delivery.quoted is None:
        delivery.quoted = {}
    quoted = delivery.quoted.get(prefix_length)
    if quoted is None:
        tails = splice_sockjs(delivery.tails, prefix_length)
        quoted = delivery.quoted[prefix_length] = delivery.with_tails(tails)
    return quoted


class SockJsOutbox(Outbox):
    """An outbox that converts its items to SockJS messages when they are staged.

    So items are charged at their length on the wire. A MESSAGE that is not UTF-8 cannot be sent
    over SockJS: it ends the connection, and unacknowledged messages return to their queues.

    Args:
      plain: The connection's former outbox, whose wire and callbacks this one takes over.
      on_unfit: Called with the error to send to the peer.
    """

    def __init__(self, plain: Outbox, on_unfit: Callable[[RemoteError], None]) -> None:
        super().__init__(
            plain.shared,
            wire=plain.wire,
            on_blocked=plain.on_blocked,
            on_close=plain.on_close,
            on_room=plain.on_room,
            on_pause=plain.on_pause,
            last_sent=plain.last_sent,
        )
        self.on_unfit = on_unfit
        self._is_unfit = False

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        if self.is_closed:
            return True
        if self._is_unfit:
            self.shared.unsent += lose_some(delivery, delivery.count)
            return True
        try:
            prefix = quote_sockjs(prefix)
            quoted = quote_delivery(delivery, len(prefix))
        except UnicodeDecodeError:
            self._give_up(delivery)
            return True
        return super().stage(prefix, quoted)

    def stage_frame(self, frame: bytes) -> None:
        if not self.is_closed:
            self.stage_bytes(sockjs_message(frame))

    def has_room(self) -> bool:
        return not self._is_unfit and super().has_room()

    def end(self) -> None:
        self.on_unfit = noop
        super().end()

    def _give_up(self, delivery: Delivery) -> None:
        self._is_unfit = True
        self.shared.unsent += lose_some(delivery, delivery.count)
        error = ProtocolError(
            "not-text",
            f"a message of {delivery.publication.destination.name[:80]} is not UTF-8, and SockJS"
            " carries text only; subscribe over a plain WebSocket, or to something else",
            reason=CloseReason.UNSUPPORTED,
        )
        self.on_unfit(error)


@define(eq=False, repr=False)
class SockJsPulse:
    """Sends SockJS' heart-beats, called by the watchdog, when nothing else is sent.

    The watchdog keeps this object until its next check, so it references the connection weakly.
    """

    link: "weakref.ref[Link]"
    is_finished: bool = False
    next_look: float = math.inf

    def look(self, now: float) -> float:
        """Implement ``Watched.look``."""
        link = self.link()
        if link is None or link.outbox.is_closed:
            self.is_finished = True
            return math.inf
        outbox = link.outbox
        due = outbox.last_sent + SOCKJS_HEARTBEAT_S
        if outbox.waiting_bytes:
            return now + SOCKJS_HEARTBEAT_S  # data is being sent
        if now < due:
            return due
        # STOMP over SockJS does not see this heart-beat, so it does not replace STOMP's own.
        link.send_now(SOCKJS_HEARTBEAT, now, beat=True)
        return now + SOCKJS_HEARTBEAT_S


def speak_sockjs(link: Link, lifecycle: Lifecycle, max_frame_bytes: int) -> None:
    """Continue a connection in SockJS, after the upgrade was answered and ``SOCKJS_OPEN`` sent.

    Args:
      link: The connection's link.
      lifecycle: The reason and time of its end.
      max_frame_bytes: The largest STOMP frame.
    """
    before = link.outbox
    outbox = link.outbox = link.client.outbox = SockJsOutbox(before, lifecycle.abort)
    outbox.owner = before.owner
    before.end()
    link.outbox.shared.touched.add(outbox)
    link.websocket = SockJsCodec(max_message_bytes=JSON_GROWTH * max_frame_bytes)
    pulse = SockJsPulse(weakref.ref(link))
    link.shared.watchdog.watch(pulse, trio.current_time() + SOCKJS_HEARTBEAT_S)
