"""What a client must wait for: nothing may overtake what it sent before and is not safe yet.

A client's stored SENDs and its ACKs go on while earlier ones are under way; whatever else it sends
is held, so that its order, its RECEIPTs and its ERROR mean what they say. Other clients do not
notice.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker.delivery import SHARE_S, Client, Work
from trio_stomp.broker.durability import Callback, FrameReply, Log
from trio_stomp.broker.sending import Publisher
from trio_stomp.broker.streams import Streams
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Event, Left


class SendOrderHost(Protocol):
    """The part of the core that it uses."""

    clients: dict[Client, None]

    def refuse(self, client: Client, error: RemoteError, now: float) -> None:
        """Tell a client what was wrong, and that it was the last it will be told."""

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Keep back what a client sent, ahead of all that was kept before, and read no more."""

    def wait_turn(
        self, client: Client, work: Work, events: Sequence[Event], received_at: float
    ) -> None:
        """Defer a client's ``work``, and then its ``events``, to later turns."""

    def unblock(self, client: Client, now: float) -> None:
        """Do what was kept back while its client had to wait."""

    def forget(
        self, client: Client, reason: CloseReason, now: float, forgotten: Callable[[], None]
    ) -> None:
        """Release a disconnected client."""


@define(eq=False, repr=False)
class SendOrder:
    """Lets clients wait for the store. Without one (``log`` is None) none ever does."""

    log: Log | None
    publisher: Publisher
    streams: Streams
    host: SendOrderHost
    _has_seen: bool = False
    """What the store has answered was seen to in this turn."""

    def is_awaited(self, client: Client) -> bool:
        """Return whether something that ``client`` sent is not safe yet."""
        return self.log is not None and self.log.is_awaited_by(client)

    def must_wait(self, client: Client, event: Event) -> bool:
        """Return whether an event must not overtake what its client sent before."""
        log = self.log
        if log is None or not log.is_awaited_by(client):
            if self.publisher.lines.has(client):
                return True  # it is safe, but there was no time to have all of it seen
            client.awaited = 0
            return False
        if type(event) is FrameRun:
            return log.is_full or not self.publisher.stores(event.head, client.quota)
        return type(event) is not Acked

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Keep events back until what their client sent before is safe."""
        assert self.log is not None
        if self.log.is_awaited_by(client):
            self.log.waiting[client] = None
            self.host.hold(client, events, received_at)
        else:
            work = self.publisher.lines.until_sent(client)
            self.host.wait_turn(client, work, events, received_at)

    def holds_leaving(self, client: Client, event: Left) -> bool:
        """Return whether a DISCONNECT must wait: its RECEIPT says that ACKs before it are safe."""
        if self.log is None or event.receipt is None or client.acked <= self.log.committed:
            return False
        client.awaited = client.acked
        self.hold(client, [event], 0.0)
        return True

    def keeps(self, client: Client, reason: CloseReason, forgotten: Callable[[], None]) -> bool:
        """Return whether a client that is gone cannot be forgotten yet. It will be later."""
        if self.log is None or not self.log.is_awaited_by(client):
            return False
        self.log.leaving.append((client, reason, forgotten))
        return True

    def tell(self, client: Client, frame: bytes, receipt_id: bytes) -> None:
        """Send a RECEIPT, behind whatever must be safe first."""
        if self.log is None:
            client.outbox.stage_frame(frame)
        else:
            self.log.stage_when_safe(client, frame, receipt_id)

    def committed(self, number: int, now: float) -> None:
        """Publish everything up to a commit number, now that it is stored."""
        assert self.log is not None
        turns, self._has_seen = self.publisher.lines.turns, True
        turns.begin(SHARE_S)
        self.log.commit(number, now, turns.is_over)
        self._go_on(self.log, now)

    @property
    def has_more(self) -> bool:
        """Return whether more is to be done of what the store has answered."""
        return self.log is not None and self.log.has_more

    def go_on(self, now: float) -> None:
        """Do more of it, once in a turn."""
        log, has_seen, self._has_seen = self.log, self._has_seen, False
        if log is None:
            return
        log.begin_turn()
        if has_seen or not log.has_more:
            return
        turns = self.publisher.lines.turns
        turns.begin(SHARE_S)
        log.go_on(now, turns.is_over)
        self._go_on(log, now)

    def uncommitted(self, error: str, now: float) -> None:
        """Withdraw everything that the store refused, and report the loss to its senders."""
        assert self.log is not None
        withdrawn = self.log.fail(now)
        self.streams.again(self.log.take_unshown())
        told: dict[Client, bytes | None] = {}
        for effect in withdrawn:
            client = effect.client
            assert client is not None
            if told.setdefault(client, None) is None and isinstance(effect, (Callback, FrameReply)):
                told[client] = effect.receipt_id
        for client in self.host.clients:
            # What is tried again has other numbers now.
            client.awaited = min(client.awaited, self.log.turn)
            client.acked = min(client.acked, self.log.turn)
        for client, receipt_id in told.items():
            client.awaited = 0
            if not client.is_refused:
                refusal = ProtocolError("storage", error, reason=CloseReason.STORAGE)
                refusal.receipt_id = receipt_id
                self.host.refuse(client, refusal, now)
        self._go_on(self.log, now)

    def _go_on(self, log: Log, now: float) -> None:
        """Let those go on who waited for what is safe now, or never will be."""
        for client in [each for each in log.waiting if not log.is_awaited_by(each)]:
            del log.waiting[client]
            self.host.unblock(client, now)
        for _ in range(len(log.leaving)):
            client, reason, forgotten = log.leaving.popleft()
            self.host.forget(client, reason, now, forgotten)
