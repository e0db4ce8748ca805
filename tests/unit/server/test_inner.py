"""Clients of a broker in the same process as their router: frames as objects."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from attrs import define, field

from tests.support.core import AMPLE
from trio_stomp import CloseReason
from trio_stomp.base import MemoryBudget
from trio_stomp.broker import Client, Consumer, Delivery
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.names import Kind
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Acked, Disconnected
from trio_stomp.server import InnerServer, ServerLimits
from trio_stomp.server._inner import InnerClient, InnerOutbox, is_given_back
from trio_stomp.server.io import Batch, ConnectionEnd, Inbox, Outbox, OutboxShared, Output

PREFIX = b"P:"


@define(eq=False)
class Wire:
    """A wire that takes everything, or nothing."""

    remote: str = "192.0.2.7:5"
    is_loopback: bool = False
    gathers: bool = False
    is_stuck: bool = False
    sent: bytearray = field(factory=bytearray)

    def send_nowait(self, data: bytes, _behind: object = ()) -> int:
        if self.is_stuck:
            return 0
        self.sent += data
        return len(data)


@define(eq=False)
class Guest:
    """The router's side of a client."""

    client: Client
    outbox: Outbox
    is_noted: bool = False
    calls: list[tuple[str, object]] = field(factory=list)

    def take(self, frame: bytes) -> None:
        self.calls.append(("take", frame))
        self.outbox.stage_frame(frame)

    def note(self, message: bytes) -> None:
        self.calls.append(("note", message))

    def pause(self, *, paused: bool) -> None:
        self.calls.append(("pause", paused))

    def close(self) -> None:
        self.calls.append(("close", None))


@define(eq=False)
class Bench:
    """A broker, and the outbox of a connection to the router."""

    wire: Wire
    real: Outbox
    guest: Guest
    server: Any
    client: InnerClient

    @property
    def outbox(self) -> InnerOutbox:
        return self.client.outbox

    @property
    def dirty(self) -> list[Output]:
        """Return the outboxes that the broker publishes at the end of its turn."""
        return cast("list[Output]", self.server.outboxes.dirty)

    def end_turn(self) -> None:
        """Publish as the broker's dispatcher does."""
        dirty, self.server.outboxes.dirty = self.server.outboxes.dirty, []
        self.server.outboxes.touched.update(dirty)
        for each in dirty:
            each.publish(0.0)


def bench(limit: int = AMPLE, *, is_noted: bool = False, frames: int = 100) -> Bench:
    wire = Wire()
    real = Outbox(
        OutboxShared(MemoryBudget(AMPLE), limit),
        cast("Any", wire),
        on_blocked=lambda: None,
        on_close=lambda _: None,
        on_room=lambda: None,
    )
    client = Client("router's", real, wire.remote, "wss")
    client.network = "192.0.2.0"
    guest = Guest(client, real, is_noted)
    unsent: list[Delivery] = []
    server = SimpleNamespace(
        outboxes=OutboxShared(MemoryBudget(AMPLE), AMPLE),
        on_unsent=unsent.append,
        unsent=unsent,
        accepted=0,
        inbox=Inbox(ServerLimits(max_input_queue_size=frames)),
        dispatcher=SimpleNamespace(resumed=[]),
    )
    server.dispatcher.resume = server.dispatcher.resumed.append
    return Bench(wire, real, guest, server, InnerServer(cast("Any", server)).open(guest))


def messages(*tails: bytes, ticket: Any = None) -> Delivery:
    head = Head("SEND", (("destination", "/t"),), -1, "/t")
    publication = Publication(Destination("/t", Kind.TOPIC), head, [], 0.0, NEVER)
    return Delivery([b"", *tails], len(tails), sum(map(len, tails)), publication, ticket=ticket)


# The broker's side.


def test_the_broker_knows_the_client_as_its_own_with_the_address_of_the_real_one() -> None:
    here = bench()
    client = here.client.client
    assert (client.session_id, client.remote, client.transport, client.network) == (
        "router's",
        "192.0.2.7:5",
        "wss",
        "192.0.2.0",
    )
    assert here.server.accepted == 1
    assert here.outbox.remote == "192.0.2.7:5"


def test_messages_and_frames_keep_their_order_on_the_clients_connection() -> None:
    here = bench()
    assert here.outbox.stage(PREFIX, messages(b"1", b"2"))
    here.outbox.stage_frame(b"RECEIPT")
    assert here.outbox.stage(PREFIX, messages(b"3"))
    assert here.dirty == [here.outbox]  # once in a turn
    assert not here.wire.sent
    here.end_turn()
    assert bytes(here.wire.sent) == b"P:1P:2RECEIPTP:3"
    here.outbox.stage(PREFIX, messages(b"4"))
    here.end_turn()
    assert here.wire.sent.endswith(b"P:3P:4")


@pytest.mark.parametrize("is_noted", [True, False])
def test_each_message_is_noted_if_the_router_wants_that(*, is_noted: bool) -> None:
    here = bench(is_noted=is_noted)
    here.outbox.stage(PREFIX, messages(b"1", b"2"))
    assert here.guest.calls == ([("note", b"P:1"), ("note", b"P:2")] if is_noted else [])


def test_a_full_connection_takes_no_message_and_notes_none() -> None:
    here = bench(limit=100, is_noted=True)
    here.wire.is_stuck = True
    assert here.outbox.stage(PREFIX, messages(b"x" * 200))
    here.guest.calls.clear()
    assert not here.outbox.stage(PREFIX, messages(b"y"))
    assert not here.outbox.has_room()
    assert here.guest.calls == []


def test_messages_are_dropped_and_discarded_at_the_connection() -> None:
    here = bench()
    here.wire.is_stuck = True
    for _ in range(3):
        here.outbox.stage(PREFIX, messages(b"x" * 100))
    waiting = here.real.waiting_bytes
    assert here.outbox.drop_oldest(100) == 1
    assert here.real.waiting_bytes < waiting
    assert here.outbox.discard() == 2
    assert here.real.waiting_bytes == 0
    assert here.dirty == [here.outbox]


def test_the_end_of_the_session_is_told_once_and_nothing_follows_it() -> None:
    here = bench(is_noted=True)
    here.outbox.close(CloseReason.PROTOCOL_ERROR)
    here.outbox.close(CloseReason.SHUTTING_DOWN)
    assert here.guest.calls == [("close", None)]
    assert here.outbox.stage(PREFIX, messages(b"x"))  # accepted, so that the broker goes on
    here.outbox.stage_frame(b"RECEIPT")
    here.outbox.pause_reading(paused=True)
    assert (here.outbox.drop_oldest(1), here.outbox.discard()) == (0, 0)
    assert not here.outbox.has_room()
    here.end_turn()
    assert here.guest.calls == [("close", None)]
    assert not here.wire.sent


def test_the_broker_may_pause_the_client_and_end_its_session() -> None:
    here = bench()
    here.outbox.pause_reading(paused=True)
    here.client.throttle_next_read()  # the router's connection is throttled
    error = SimpleNamespace(reason=CloseReason.PROTOCOL_ERROR)
    here.client.end(cast("Any", error))
    here.client.release()
    assert here.guest.calls == [("pause", True), ("close", None)]


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_client_that_has_left_is_counted_no_more(*, is_late: bool) -> None:
    """Its traffic is that of its connection to the router; until it leaves, nobody minds."""
    here = bench()
    touched = cast("set[Output]", here.server.outboxes.touched)
    touched.add(here.outbox)  # as the dispatcher does with a batch
    here.outbox.stage_frame(b"RECEIPT")
    await here.client.leave(CloseReason.CLIENT_CLOSED)
    if is_late:
        here.client.release()
    here.end_turn()
    touched.add(here.outbox)
    here.client.release()
    here.end_turn()
    assert not touched


async def test_a_bug_while_it_is_published_ends_the_clients_connection() -> None:
    here = bench()
    reasons: list[CloseReason] = []
    here.real.on_close = reasons.append
    here.outbox.stage(PREFIX, messages(b"1"))
    here.outbox.lose(CloseReason.INTERNAL_ERROR)
    assert reasons == [CloseReason.INTERNAL_ERROR]
    assert here.real.waiting_bytes == here.real.shared.memory.used_bytes == 0


# The router's side.


def batch_of(here: Bench) -> Batch:
    item = here.server.inbox.take_nowait()
    assert isinstance(item, Batch)
    return item


async def test_events_are_one_batch_whose_frames_count_for_the_limit() -> None:
    here = bench(frames=6)
    run = FrameRun(Head("SEND", (), -1, "/t"), [b"", b""], [])
    acks = Acked([b"1", b"2"], "id", None, negative=False, requeue=True, receipts=[])
    assert here.client.offer([run, acks, Disconnected(None)], 7)
    assert not here.client.offer([run, acks], 7)
    batch = batch_of(here)
    assert (batch.frames, batch.size, batch.source) == (5, 7, here.client)
    assert here.client.offer([run, acks], 7)


async def test_put_waits_for_room_and_the_end_follows_all_events() -> None:
    here = bench(frames=2)
    run = FrameRun(Head("SEND", (), -1, "/t"), [b"", b""], [])
    assert here.client.offer([run], 1)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(here.client.put, [run], 1)
        await trio.testing.wait_all_tasks_blocked()
        batch_of(here)
        await trio.testing.wait_all_tasks_blocked()
        tasks.start_soon(here.client.leave, CloseReason.CLIENT_CLOSED)
        await trio.testing.wait_all_tasks_blocked()
        batch_of(here)
        await trio.testing.wait_all_tasks_blocked()
    end = here.server.inbox.take_nowait()
    assert isinstance(end, ConnectionEnd)
    assert (end.source, end.reason) == (here.client, CloseReason.CLIENT_CLOSED)


async def test_a_session_that_is_left_gets_nothing_more_at_once() -> None:
    here = bench()
    await here.client.leave(CloseReason.CLIENT_CLOSED)
    here.outbox.stage_frame(b"RECEIPT")
    assert here.guest.calls == []


async def test_a_broker_that_has_stopped_says_so() -> None:
    here = bench()
    here.server.inbox.close()
    with pytest.raises(trio.ClosedResourceError):
        here.client.offer([Disconnected(None)], 0)
    with pytest.raises(trio.ClosedResourceError):
        await here.client.leave(CloseReason.CLIENT_CLOSED)


def test_room_in_the_connection_resumes_the_deliveries() -> None:
    here = bench()
    here.client.resume()
    assert here.server.dispatcher.resumed == [here.client.client]


# Messages that expired in the connection's outbox.


def test_expired_messages_go_back_to_the_broker_that_staged_them() -> None:
    here = bench()
    consumer = Consumer.__new__(Consumer)
    consumer.subscription = cast("Any", SimpleNamespace(outbox=here.outbox))
    expired = messages(b"x", ticket=(consumer, 1))
    assert is_given_back(expired, here.real.shared)
    assert here.server.unsent == [expired]
    assert not is_given_back(expired, here.server.outboxes)  # the broker's own outbox
    assert not is_given_back(messages(b"x"), here.real.shared)
    consumer.subscription = cast("Any", SimpleNamespace(outbox=here.real))
    assert not is_given_back(expired, here.real.shared)
    assert here.server.unsent == [expired]
