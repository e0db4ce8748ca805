"""The link of a client to an owner in its own process."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from tests.support.core import OutboxFake
from trio_stomp.base import CloseReason, Identity
from trio_stomp.broker import Client
from trio_stomp.cluster.routing import LocalLink
from trio_stomp.cluster.routing._encoder import Routed
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    STOMP_1_2,
    Acked,
    Committed,
    Event,
    Opened,
    Received,
    Subscribed,
)

ALICE = Identity("alice")
HEADERS = (("host", "h"), ("passcode", "p"), ("heart-beat", "1,2"), ("client-id", "c"))


@define(eq=False)
class Session:
    """A session at an owner, whose inbox has room for some batches."""

    room: int = 99
    got: list[Event] = field(factory=list)
    left: list[CloseReason] = field(factory=list)
    resumed: int = 0
    has_stopped: bool = False
    _more: trio.Event = field(factory=trio.Event)

    def offer(self, events: Sequence[Event], size: int) -> bool:
        if self.has_stopped:
            raise trio.ClosedResourceError
        if not self.room:
            return False
        self.room -= 1
        self.got += events
        return True

    async def put(self, events: Sequence[Event], size: int) -> None:
        while not self.offer(events, size):
            await self._more.wait()
        await trio.lowlevel.checkpoint()

    def make_room(self, count: int) -> None:
        self.room += count
        self._more.set()
        self._more = trio.Event()

    def resume(self) -> None:
        self.resumed += 1

    async def leave(self, reason: CloseReason) -> None:
        await trio.lowlevel.checkpoint()
        self.left.append(reason)


@define(eq=False)
class Owner:
    """An owner in this process."""

    session: Session = field(factory=Session)
    ended: trio.Event = field(factory=trio.Event)

    def open(self, guest: LocalLink) -> Session:
        return self.session


@define(eq=False)
class Upstream:
    """A client's session, as its link sees it."""

    client: Client
    outbox: Any
    opened: Opened
    is_noted: bool = False
    is_over: bool = False
    is_full: bool = False
    is_finishing: bool = False
    released: list[int] = field(factory=list)
    calls: list[tuple[str, object]] = field(factory=list)
    drained: int = 0
    turns: Any = None

    def charge(self, size: int) -> None:
        raise AssertionError

    def release(self, size: int) -> None:
        self.released.append(size)

    def tell_drained(self) -> None:
        self.drained += 1

    def receive(self, pieces: Sequence[Any]) -> bool:
        self.calls += [("receive", each.data) for each in pieces]
        return True

    def note(self, message: bytes) -> None:
        self.calls.append(("note", message))

    def hold(self, *, held: bool) -> None:
        self.calls.append(("hold", held))

    def cancel(self) -> None:
        self.calls.append(("cancel", None))


@define(eq=False)
class Bench:
    upstream: Upstream
    owner: Owner
    link: LocalLink

    @property
    def session(self) -> Session:
        return self.owner.session

    @property
    def got(self) -> list[Event]:
        """Return what the owner got after the CONNECT."""
        return self.session.got[1:]


def bench(room: int = 99) -> Bench:
    outbox: Any = OutboxFake()
    client = Client("s", outbox, identity=ALICE)
    upstream = Upstream(client, outbox, Opened(STOMP_1_2, NO_HEARTBEATS, HEADERS))
    owner = Owner(Session(room))
    return Bench(upstream, owner, LocalLink(upstream, owner))


def run(*bodies: bytes, head: Head | None = None) -> FrameRun:
    return FrameRun(head or block(), list(bodies), [])


def block() -> Head:
    head = Head("SEND", (("destination", "/queue/q"),), -1, "/queue/q")
    head.plan = Routed((0,), (0,))
    return head


def acked(name: bytes) -> Acked:
    return Acked([name], "id", None, negative=False, requeue=True, receipts=[])


def test_the_session_begins_with_the_clients_connect_without_what_only_its_node_needs() -> None:
    here = bench()
    (opened,) = here.session.got
    assert isinstance(opened, Opened)
    assert opened.headers == (("host", "h"), ("client-id", "c"))
    assert (opened.version, opened.identity, opened.heartbeats) == (STOMP_1_2, ALICE, NO_HEARTBEATS)


def test_events_and_their_bytes_are_accepted_in_order() -> None:
    here = bench()
    here.link.send([acked(b"1"), acked(b"2")], 10)
    here.link.send([acked(b"3")], 5)
    assert [each.ids for each in here.got if isinstance(each, Acked)] == [[b"1"], [b"2"], [b"3"]]
    assert here.upstream.released == [0, 10, 5]


async def test_nothing_overtakes_what_had_no_room() -> None:
    here = bench(room=2)
    for number in (b"1", b"2", b"3"):
        here.link.send([acked(number)], int(number))
    assert here.upstream.released == [0, 1]
    here.session.room = 1  # without waking: a later event must not take this place
    here.link.send([acked(b"4")], 4)
    assert [each.ids for each in here.got if isinstance(each, Acked)] == [[b"1"]]
    async with trio.open_nursery() as tasks:
        tasks.start_soon(here.link.run)
        await wait_all_tasks_blocked()
        assert here.upstream.released == [0, 1, 2]
        here.session.make_room(9)
        await wait_all_tasks_blocked()
        assert here.upstream.released == [0, 1, 2, 3, 4]
        assert here.upstream.drained == 3
        here.link.send([acked(b"5")], 5)
        order = [each.ids for each in here.got if isinstance(each, Acked)]
        assert order == [[b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]
        tasks.cancel_scope.cancel()


async def test_the_session_is_left_after_all_events_that_waited() -> None:
    here = bench(room=1)
    here.link.send([acked(b"1")], 1)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(here.link.run)
        await wait_all_tasks_blocked()
        here.upstream.is_finishing = True
        here.link.finish()
        await wait_all_tasks_blocked()
        assert here.session.left == []
        here.session.make_room(1)
    assert len(here.got) == 1
    assert here.session.left == [CloseReason.CLIENT_CLOSED]


async def test_an_owner_that_ends_or_a_cancelled_session_leaves_as_a_lost_connection() -> None:
    for ends_owner in (True, False):
        here = bench(room=1)
        here.link.send([acked(b"1")], 1)  # it waits, and must not keep the link
        async with trio.open_nursery() as tasks:
            tasks.start_soon(here.link.run)
            await wait_all_tasks_blocked()
            if ends_owner:
                here.owner.ended.set()
            else:
                tasks.cancel_scope.cancel()
        assert here.session.left == [CloseReason.CONNECTION_LOST]


async def test_an_owner_that_takes_nothing_more_does_no_harm() -> None:
    here = bench(room=1)
    here.link.send([acked(b"1")], 1)
    here.session.has_stopped = True
    here.link.send([acked(b"2")], 2)
    await here.link.run()
    assert here.session.left == [CloseReason.CONNECTION_LOST]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda each: each,
        lambda each: Committed([acked(b"1"), each], None, "t"),
        lambda each: Received([], each.head, transaction="t"),
    ],
    ids=["SEND", "COMMIT", "SEND to be checked"],
)
def test_an_owner_keeps_plans_at_header_blocks_of_its_own(
    wrap: Callable[[FrameRun], Event],
) -> None:
    here, head = bench(), block()
    mine = head.plan
    here.link.send([wrap(run(b"a", head=head)), wrap(run(b"b", head=head))], 1)
    first, second = map(head_of, here.got)
    assert first is second  # it plans a block once
    assert first is not head
    assert (first.headers, first.destination) == (head.headers, head.destination)
    first.plan = "the owner's"
    assert head.plan is mine
    next_owner = bench()  # of the same partition, with other plans
    next_owner.link.send([wrap(run(b"c", head=head))], 1)
    assert head_of(next_owner.got[0]) is not first


def head_of(event: Event) -> Head:
    """Return the header block in an event."""
    if isinstance(event, Committed):
        _, event = event.actions
    found = event.head if isinstance(event, FrameRun | Received) else None
    assert found is not None
    return found


def test_bodies_receipts_and_other_events_are_passed_on_as_they_are() -> None:
    here = bench()
    bodies, receipts = [b"a", b"b"], [(2, b"r")]
    other = Subscribed("1", "/queue/q", "auto", (), None)
    here.link.send([FrameRun(block(), bodies, receipts), other], 1)
    sent, subscribed = here.got
    assert isinstance(sent, FrameRun)
    assert sent.bodies is bodies
    assert sent.receipts is receipts
    assert subscribed is other


def test_the_owner_reaches_the_client_through_the_link() -> None:
    here = bench()
    link = here.link
    assert (link.client, link.outbox) == (here.upstream.client, here.upstream.outbox)
    assert link.is_noted is False
    here.upstream.is_noted = True
    assert link.is_noted is True
    link.take(b"RECEIPT")
    link.note(b"MESSAGE")
    link.pause(paused=True)
    link.close()
    assert here.upstream.calls == [
        ("receive", b"RECEIPT"),
        ("note", b"MESSAGE"),
        ("hold", True),
        ("cancel", None),
    ]
    here.link.make_room()
    assert here.session.resumed == 1
