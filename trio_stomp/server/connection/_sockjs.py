"""A connection that uses SockJS, selected at its upgrade: others have no overhead."""

import math
import weakref
from collections.abc import Callable

import trio
from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker import Delivery
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.io import Outbox, SockJsMessages, lose_some
from trio_stomp.transport import (
    JSON_GROWTH,
    SOCKJS_HEARTBEAT,
    SOCKJS_HEARTBEAT_S,
    SockJsCodec,
    quote_sockjs,
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


@define(eq=False, repr=False)
class SockJsOutbox:
    """Converts MESSAGEs to messages of SockJS when they are staged. Implements ``io.Output``.

    So they are charged at their length on the wire. A MESSAGE that is not UTF-8 cannot be sent
    over SockJS: it ends the connection, and unacknowledged messages return to their queues.

    Args:
      plain: The connection's outbox, which does everything else.
      on_unfit: Called with the error to send to the peer.
    """

    plain: Outbox
    on_unfit: Callable[[RemoteError], None]
    _is_unfit: bool = False

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Implement ``Outbox.stage``."""
        if self.plain.is_over:
            return True
        if self._is_unfit:
            self.plain.shared.unsent += lose_some(delivery, delivery.count)
            return True
        try:
            prefix = quote_sockjs(prefix)
            quoted = quote_delivery(delivery, len(prefix))
        except UnicodeDecodeError:
            self._give_up(delivery)
            return True
        return self.plain.stage(prefix, quoted)

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""
        self.plain.stage_frame(frame)

    def drop_oldest(self, size: int) -> int:
        """Implement ``Outbox.drop_oldest``."""
        return self.plain.drop_oldest(size)

    def has_room(self) -> bool:
        """Implement ``Outbox.has_room``."""
        return not self._is_unfit and self.plain.has_room()

    def discard(self) -> int:
        """Implement ``Outbox.discard``."""
        return self.plain.discard()

    def pause_reading(self, *, paused: bool) -> None:
        """Implement ``Outbox.pause_reading``."""
        self.plain.pause_reading(paused=paused)

    def close(self, reason: CloseReason) -> None:
        """Implement ``Outbox.close``."""
        self.plain.close(reason)

    @property
    def owner(self) -> object | None:
        """Implement ``Output.owner``."""
        return self.plain.owner

    @property
    def remote(self) -> str:
        """Implement ``Output.remote``."""
        return self.plain.remote

    def publish(self, now: float) -> None:
        """Implement ``Output.publish``."""
        self.plain.publish(now)

    def lose(self, reason: CloseReason) -> None:
        """Implement ``Output.lose``."""
        self.plain.lose(reason)

    def _give_up(self, delivery: Delivery) -> None:
        self._is_unfit = True
        self.plain.shared.unsent += lose_some(delivery, delivery.count)
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
    link.outbox.framing = SockJsMessages()
    link.client.outbox = SockJsOutbox(link.outbox, lifecycle.abort)
    link.websocket = SockJsCodec(max_message_bytes=JSON_GROWTH * max_frame_bytes)
    pulse = SockJsPulse(weakref.ref(link))
    link.shared.watchdog.watch(pulse, trio.current_time() + SOCKJS_HEARTBEAT_S)
