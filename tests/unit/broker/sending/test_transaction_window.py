"""An ACK in a transaction opens its consumer's window; ABORT closes it again (S6)."""

import pytest

from tests.support.core import Actor, Bench, bench, numbered, run_of
from tests.support.fakes import TCP, Client, bodies, open_dial
from tests.support.fakes import Received as Frame
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy
from trio_stomp.protocol import Acked, Received

Q, DEAD = "/queue/q", "/queue/DLQ.q"
MODES = pytest.mark.parametrize("ack", ["client", "client-individual"])


async def fence(client: Client) -> list[Frame]:
    """Do as the client's own fence, on a destination that is a topic in every dialect."""
    return await client.publish("/topic/fence", b"", receipt=True)


def takes_in(actor: Actor, *acks: Acked) -> None:
    """Report ACKs in an open transaction, as the session does."""
    for each in acks:
        actor.does(Received((), acked=(each,)))


def aborts(actor: Actor, *acks: Acked) -> None:
    """ABORT a transaction with these."""
    actor.does(Received((), returned=acks))


def window(actor: Actor) -> tuple[int, int]:
    """Return the remaining window of its consumer in messages and bytes."""
    consumer = actor.consumer()
    return consumer.count_left, consumer.bytes_left


def worker(desk: Bench, ack: str, prefetch: int, count: int = 9) -> Actor:
    actor = desk.actor()
    actor.subscribes(Q, ack=ack, prefetch_count=f"{prefetch}")
    actor.sends(Q, *numbered("", count))
    return actor


@pytest.mark.parametrize("dialect", ["native", "rabbitmq", "activemq", "artemis", "apollo"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
async def test_a_window_of_one_sees_the_end_of_its_transaction(
    dialect: str, ack: str, command: str
) -> None:
    async with open_dial(TCP, dialect=dialect) as dial:
        client = await dial.connect("1.1")
        headers = {"ack": ack, "prefetch-count": "1", "activemq.prefetchSize": "1"}
        await client.publish("/queue/q", *[b"%d" % n for n in range(150)], receipt=True)
        await client.send("BEGIN", {"transaction": "t"})
        got = await client.subscribe("/queue/q", "s", headers)
        for number in range(150):
            message = got.pop() if got else await client.receive()
            assert message.body == b"%d" % number
            names = {"message-id": message["message-id"], "subscription": "s", "requeue": "false"}
            await client.send(command, {"transaction": "t", **names})
        await client.send("COMMIT", {"transaction": "t", "receipt": "end"})
        assert await client.receive_until_receipt("end") == []
        await client.send("UNSUBSCRIBE", {"id": "s"})
        assert await client.subscribe("/queue/q", "again") == []
        assert len(await client.subscribe(DEAD, "dead") + await fence(client)) == (
            150 if command == "NACK" else 0
        )


@MODES
def test_commit_restores_the_window(ack: str) -> None:
    desk = bench()
    actor = worker(desk, ack, 2)
    frames = actor.reads()
    acks = [actor.acked(each) for each in frames]
    takes_in(actor, *acks)
    more = actor.reads()
    assert [each.text for each in more] == ["2", "3"]
    actor.commits(*acks, receipt=None)
    assert actor.reads() == []
    assert window(actor)[0] == 0
    actor.acks(more[0])
    assert actor.bodies() == ["4"]
    consumer = actor.consumer()
    assert len(consumer.unacked) == consumer.options.prefetch_count
    assert consumer.excused == {}
    desk.ends()


@MODES
def test_aborted_acks_leave_messages_with_their_consumer(ack: str) -> None:
    desk = bench()
    actor = worker(desk, ack, 2)
    first, second = actor.reads()
    takes_in(actor, actor.acked(first), actor.acked(second))
    assert actor.bodies() == ["2", "3"]
    aborts(actor, actor.acked(first), actor.acked(second))
    assert window(actor)[0] == -2
    assert len(actor.consumer().unacked) == 4
    actor.acks(second)  # in the mode client, of the first as well
    actor.reads()
    assert actor.reads() == []
    actor.leaves()
    assert desk.waiting(Q)[:3] == (["2", "3", "4"] if ack == "client" else ["0", "2", "3"])
    desk.ends()


def test_a_run_of_acks_outside_settles_messages_acknowledged_in_a_transaction() -> None:
    desk = bench()
    actor = worker(desk, "client-individual", 4)
    frames = actor.reads()
    takes_in(actor, actor.acked(frames[1]))
    assert actor.bodies() == ["4"]
    actor.acks(*frames)
    assert actor.bodies() == ["5", "6", "7"]
    aborts(actor, actor.acked(frames[1]))  # it has been removed: nothing to undo
    assert (window(actor)[0], len(actor.consumer().unacked)) == (0, 4)
    desk.ends()


def test_transactions_may_overlap() -> None:
    desk = bench()
    actor = worker(desk, "client", 3)
    first, second, third = actor.reads()
    takes_in(actor, actor.acked(second), actor.acked(first), actor.acked(third))
    assert actor.bodies() == ["3", "4", "5"]
    aborts(actor, actor.acked(first))
    aborts(actor, actor.acked(second))
    assert window(actor)[0] == -2
    actor.commits(actor.acked(third), receipt=None)
    assert actor.reads() == []
    assert (window(actor)[0], len(actor.consumer().unacked)) == (0, 3)
    desk.ends()


@MODES
def test_bytes_are_as_messages(ack: str) -> None:
    desk = bench()
    actor = desk.actor()
    actor.subscribes(Q, ack=ack, consumer_window_size="10")
    actor.sends(Q, *[b"x" * 10] * 3)
    [first] = actor.reads()
    takes_in(actor, actor.acked(first))
    assert len(actor.reads()) == 1
    assert window(actor)[1] == 0
    aborts(actor, actor.acked(first))
    assert window(actor)[1] == -10
    actor.acks(first)
    assert actor.reads() == []
    assert window(actor)[1] == 0
    desk.ends()


def test_unknown_ids_in_a_transaction_are_reported_at_commit() -> None:
    desk = bench()
    actor = worker(desk, "client", 1)
    [first] = actor.reads()
    wrong = actor.acked(first, subscription="other")
    takes_in(actor, actor.acked("b.9-1"), wrong)
    assert actor.reads() == []
    assert window(actor)[0] == 0
    actor.commits(actor.acked(first), actor.acked("b.9-1"))
    assert actor.error().get("code") == "unknown-ack"
    desk.ends()


def test_a_commit_that_is_refused_closes_the_window_again() -> None:
    desk = bench(max_messages=2)
    actor = worker(desk, "client", 1, 2)
    [first] = actor.reads()
    takes_in(actor, actor.acked(first))
    assert actor.bodies() == ["1"]
    consumer = actor.consumer()
    actor.commits(actor.acked(first), run_of(Q, "xyz"))
    assert actor.error().get("code") == "queue-full"
    assert (consumer.count_left, consumer.excused) == (1, {})
    assert desk.waiting(Q) == ["0", "1"]
    desk.ends()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_messages_acknowledged_in_a_transaction_were_not_in_work_of_a_lost_consumer(
    count: int,
) -> None:
    desk = bench(DestinationPolicy(max_redeliveries=0))
    actor = worker(desk, "client-individual", 3, 3)
    frames = actor.reads()
    takes_in(actor, *map(actor.acked, frames[:count]))
    desk.broker.forget(actor.client, CloseReason.CLIENT_CLOSED, desk.now)
    # Its last acknowledgement was its last action before it was lost.
    assert desk.waiting(DEAD) == [f"{min(count, 2)}"]
    desk.ends()


async def test_a_session_tells_of_acks_in_transactions_and_of_their_abort() -> None:
    async with open_dial(dialect="native") as dial:
        client = await dial.connect("1.2")
        headers = {"ack": "client", "prefetch-count": "1"}
        await client.publish("/queue/q", b"a", b"b", b"c", receipt=True)
        got = await client.subscribe("/queue/q", "s", headers)
        first = got.pop() if got else await client.receive()
        await client.send("BEGIN", {"transaction": "t"})
        await client.send("ACK", {"id": first["ack"], "transaction": "t"})
        second = await client.receive()
        await client.send("ABORT", {"transaction": "t"})
        await client.send("ACK", {"id": second["ack"]})
        third = await client.receive()
        assert bodies([first, second, third]) == [b"a", b"b", b"c"]
        await client.send("ACK", {"id": third["ack"]})
        await fence(client)
