"""The order of a client's frames while the store is behind.

While earlier frames of a client are on their way to the store, its durable SENDs and its ACKs
continue, and all other frames are held. So its order, RECEIPTs and ERROR stay right. Other clients
do not wait.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from attrs import define

from trio_stomp.base import CloseReason, Quota, RemoteError
from trio_stomp.broker.delivery import SHARE_S, Client, Turns
from trio_stomp.broker.durability import Callback, Effect, FrameReply, Log, storage_error
from trio_stomp.broker.sending import Publisher
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Acked, Disconnected, Event
from trio_stomp.store import LeftOut


class SendOrderHost(Protocol):
    """The part of the core that ``SendOrder`` uses."""

    clients: dict[Client, None]

    def refuse(self, client: Client, error: RemoteError, now: float) -> None:
        """Send an ERROR to a client and end its connection."""

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Hold a client's events, before those already held, and pause reading."""

    def unblock(self, client: Client, now: float) -> None:
        """Apply a client's held events."""

    def forget(
        self, client: Client, reason: CloseReason, now: float, forgotten: Callable[[], None]
    ) -> None:
        """Release a disconnected client."""


@define(eq=False, repr=False)
class SendOrder:
    """Lets clients wait for the store. Without a store (``log`` is None) they never wait."""

    log: Log | None
    publisher: Publisher
    host: SendOrderHost
    turns: Turns

    def is_awaited(self, client: Client) -> bool:
        """Return whether any record of ``client`` is not stored yet."""
        return self.log is not None and self.log.is_awaited_by(client)

    def must_wait(self, client: Client, event: Event) -> bool:
        """Return whether an event must wait for its client's earlier frames."""
        log = self.log
        if log is None or not log.is_awaited_by(client):
            client.awaited = 0
            return False
        if type(event) is FrameRun:
            return log.is_full or not self.publisher.stores(event.head, client.quota)
        return type(event) is not Acked

    def check_accepts(self, log: Log, head: Head, quota: Quota | None) -> None:
        """Raise ``ProtocolError`` if messages would be stored while the log refuses them."""
        if any(self.publisher.storing(head, quota)):
            log.check_accepts()

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Hold events until their client's earlier frames are stored and visible."""
        assert self.log is not None
        self.log.waiting[client] = None
        self.host.hold(client, events, received_at)

    def holds_leaving(self, client: Client, event: Disconnected) -> bool:
        """Hold a DISCONNECT with a RECEIPT until ACKs are stored. Return False if it need not."""
        if self.log is None or event.receipt is None or client.acked <= self.log.committed:
            return False
        client.awaited = client.acked
        self.hold(client, [event], 0.0)
        return True

    def keeps(self, client: Client, reason: CloseReason, forgotten: Callable[[], None]) -> bool:
        """Defer ``forget`` of a client with records on their way. Return False if it has none."""
        if self.log is None or not self.log.is_awaited_by(client):
            return False
        self.log.leaving.append((client, reason, forgotten))
        return True

    def reply(self, client: Client, frame: bytes, receipt_id: bytes) -> None:
        """Send a RECEIPT as soon as all records of the client are stored."""
        if self.log is None:
            client.outbox.stage_frame(frame)
        else:
            self.log.stage_when_safe(client, frame, receipt_id)

    def committed(self, number: int, now: float, left_out: Sequence[LeftOut] = ()) -> None:
        """Carry out the effects up to a stored commit number, except for records left out."""
        assert self.log is not None
        for record, flaw in left_out:
            self.log.refuse(record, now, partial(self._end_losers, flaw))
        self.turns.begin(SHARE_S)
        self.log.commit(number, now, self.turns.is_over)
        self._go_on(self.log, now)

    @property
    def has_more(self) -> bool:
        """Return whether effects of stored records are left."""
        return self.log is not None and self.log.has_more

    def go_on(self, now: float) -> None:
        """Carry out more effects of stored records."""
        assert self.log is not None
        self.turns.begin(SHARE_S)
        self.log.go_on(now, self.turns.is_over)
        self._go_on(self.log, now)

    def uncommitted(self, error: str, now: float) -> None:
        """Withdraw records that the store refused, and send an ERROR to their senders."""
        assert self.log is not None
        losers = _receipts(self.log.fail(now))
        for client in self.host.clients:
            # Retried records have other commit numbers now.
            client.awaited = min(client.awaited, self.log.turn)
            client.acked = min(client.acked, self.log.turn)
        for client in losers:
            client.awaited = 0
        self._end(losers, error, now)
        self._go_on(self.log, now)

    def _end_losers(self, flaw: str, lost: Sequence[Effect], now: float) -> None:
        self._end(_receipts(lost), f"this cannot be stored: {flaw}", now, "unstorable")

    def refuse(self, error: str, doubt: str, now: float) -> None:
        """Accept no durable messages until the store answers.

        Args:
          error: The text for clients that send durable messages.
          doubt: The text for clients whose messages wait for the store: they may be stored yet.
          now: The time.
        """
        assert self.log is not None
        self.log.refusal = error
        waiting = _receipts(self.log.unanswered())
        senders = {
            effect.client for effect in self.log.unanswered() if not isinstance(effect, FrameReply)
        }
        self._end({each: waiting[each] for each in waiting if each in senders}, doubt, now)

    def _end(
        self, clients: Mapping[Client, bytes | None], error: str, now: float, code: str = "storage"
    ) -> None:
        """Send an ERROR to clients, for the receipt that each waits for, and end them."""
        for client, receipt_id in clients.items():
            if not client.is_refused:
                refusal = storage_error(error, code)
                refusal.receipt_id = receipt_id
                self.host.refuse(client, refusal, now)

    def _go_on(self, log: Log, now: float) -> None:
        """Resume clients whose records are stored or withdrawn."""
        for client in [each for each in log.waiting if not log.is_awaited_by(each)]:
            del log.waiting[client]
            self.host.unblock(client, now)
        for _ in range(len(log.leaving)):
            client, reason, forgotten = log.leaving.popleft()
            self.host.forget(client, reason, now, forgotten)


def _receipts(effects: Iterable[Effect]) -> dict[Client, bytes | None]:
    """Return the clients that wait for effects, with the first receipt of each."""
    found: dict[Client, bytes | None] = {}
    for effect in effects:
        client = effect.client
        if (
            client is not None
            and found.setdefault(client, None) is None
            and isinstance(effect, Callback | FrameReply)
        ):
            found[client] = effect.receipt_id
    return found
