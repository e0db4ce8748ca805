"""One client cannot delay others: large work is done in pieces, with others in between."""

import random

import pytest

from tests.support.core import Actor, run_of, texts
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy, internal_error
from trio_stomp.broker.names import SortedNames
from trio_stomp.broker.queues import FEW_QUEUES, Queue
from trio_stomp.broker.routing import JOIN_BYTES
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Disconnected, Subscribed, Unsubscribed

CHUNK_SIZE = 512
"""Names of a chunk of ``SortedNames``."""

MANY = 1_500
WILD = "/queue/z*"
TOPIC = "/topic/s"
ASKED = 60
"""Selectors, each of which takes a piece of work to ask."""


def wild(id: str = "0", receipt: bytes | None = None, ack: str = "client") -> Subscribed:
    return Subscribed(id, WILD, ack, (), receipt)


def receipts(actor: Actor) -> list[str]:
    return [frame.get("receipt-id") or "" for frame in actor.frames() if frame.command == "RECEIPT"]


# A batch of one connection.


@pytest.mark.parametrize("slept_s", [0, 3600])
def test_a_long_batch_is_held_while_others_are_served(desk: Clocked, slept_s: int):
    busy, light = desk.actor(), desk.actor()
    batch = [run_of("/queue/q", [f"{n}"], receipts=[(1, b"%d" % n)]) for n in range(100)]
    desk.now += slept_s  # the machine was suspended, for which its process saw no time pass
    busy.does(*batch)
    assert busy.outbox.is_paused, "it is not read meanwhile"
    light.sends("/queue/q", "light")
    assert desk.waiting("/queue/q")[-1] == "light"
    busy.sends("/queue/q", "behind")  # the frames read before the pause
    assert desk.broker.has_more
    desk.settles()
    assert not busy.outbox.is_paused
    others = [body for body in desk.waiting("/queue/q") if body != "light"]
    assert others == [f"{n}" for n in range(100)] + ["behind"], "in the order sent"
    assert receipts(busy) == [f"{n}" for n in range(100)]
    assert max(desk.pieces) <= MOST


def test_waiting_clients_are_served_in_turn(desk: Clocked):
    actors = [desk.actor() for _ in range(3)]
    for number, actor in enumerate(actors):
        actor.does(*[run_of(f"/queue/{number}", [f"{n}"]) for n in range(60)])
    desk.turn()
    depths = [len(desk.waiting(f"/queue/{number}")) for number in range(3)]
    assert depths[0] > depths[1], "it has had a share of this turn, too"
    desk.turn()
    desk.turn()
    assert min(len(desk.waiting(f"/queue/{number}")) for number in range(3)) > depths[1]
    desk.settles()
    assert [len(desk.waiting(f"/queue/{number}")) for number in range(3)] == [60] * 3


@pytest.mark.parametrize("is_gone_first", [False, True])
def test_frames_before_a_disconnect_are_processed(desk: Clocked, is_gone_first: bool):
    busy = desk.actor()
    busy.does(*[run_of("/queue/q", [f"{n}"]) for n in range(60)])
    reported: list[bool] = []
    desk.broker.forget(
        busy.client, CloseReason.CONNECTION_LOST, desk.now, lambda: reported.append(True)
    )
    assert not reported
    assert busy.client in desk.broker.clients
    desk.settles()
    assert reported == [True]
    assert busy.client not in desk.broker.clients
    assert len(desk.waiting("/queue/q")) == 60


def test_the_broker_does_not_stop_before_all_is_done(desk: Clocked):
    busy = desk.actor()
    busy.does(*[run_of("/queue/q", [f"{n}"]) for n in range(60)])
    assert not desk.broker.is_finished
    desk.broker.finish(desk.now)
    assert desk.broker.is_finished
    assert len(desk.waiting("/queue/q")) == 60


def test_a_bug_in_a_piece_of_work_ends_its_connection_alone(monkeypatch: pytest.MonkeyPatch):
    desk = Clocked()
    desk.queues(MANY)
    reader, other = desk.actor(), desk.actor()
    reader.does(wild())
    monkeypatch.setattr(Queue, "attach", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.turn()
    assert reader.outbox.closed is CloseReason.INTERNAL_ERROR
    monkeypatch.undo()
    reader.is_gone()
    other.sends("/queue/q", "x")
    desk.settles()
    desk.broker.leaving.finish(desk.now)
    assert reader.client not in desk.broker.clients
    assert desk.waiting("/queue/q") == ["x"]


# Wildcards over queues (F2).


def test_a_wildcard_over_many_queues_joins_and_leaves_them_in_pieces(desk: Clocked):
    desk.queues(MANY)
    reader, other = desk.actor(), desk.actor()
    reader.does(
        wild(receipt=b"r1"),
        run_of("/queue/q", ["behind"]),
        Unsubscribed("0", None, b"r2"),
        run_of("/queue/q", ["last"]),
    )
    assert len(reader.consumer().queues) < MANY / 2
    other.sends("/queue/q", "other")
    assert desk.waiting("/queue/q") == ["other"], "whoever else sends does not wait"
    turns = desk.settles()
    assert turns > 10
    assert max(desk.pieces) <= MOST
    assert desk.waiting("/queue/q") == ["other", "behind", "last"]
    found = [each.get("receipt-id") for each in reader.frames() if each.command == "RECEIPT"]
    assert found == ["r1", "r2"]
    assert all(not queue.consumers for queue in desk.broker.queues)
    assert sum(queue.waiting.count for queue in desk.broker.queues) == MANY + 3
    assert not desk.broker.queues.ending


def test_queues_that_come_and_go_while_a_wildcard_joins_are_joined_once(desk: Clocked):
    desk.queues(MANY)
    reader, other = desk.actor(), desk.actor()
    reader.does(wild(ack="auto"))
    assert len(reader.consumer().queues) < MANY
    other.sends("/queue/z00000a", "behind the place where it is")
    other.sends("/queue/z01499a", "before it")
    desk.broker.queues.end("/queue/z01400", desk.now)
    desk.broker.queues.open("/queue/DLQ.z")
    desk.settles()
    assert len(reader.consumer().queues) == MANY + 1
    assert [len(desk.queue(f"/queue/{name}").consumers) for name in ("z00000a", "z01499a")] == [
        1,
        1,
    ]
    assert len(reader.bodies()) == MANY + 1
    desk.ends()
    assert desk.broker.queues.find("/queue/z01400") is None


def test_each_queue_that_a_wildcard_reaches_is_charged_until_it_leaves(desk: Clocked):
    desk.queues(MANY)
    reader = desk.actor()
    before = desk.memory.tables_bytes
    reader.subscribes("/queue/none")
    one = desk.memory.tables_bytes - before
    reader.does(wild("1"))
    desk.settles()
    assert desk.memory.tables_bytes - before - one > MANY * JOIN_BYTES
    sender = desk.actor()
    sender.sends("/queue/znew", "x")
    assert reader.consumer("1").joined == MANY + 1
    reader.unsubscribes("1")
    reader.unsubscribes()
    desk.settles()
    desk.broker.queues.end("/queue/znew", desk.now)
    # The route of /queue/znew and that of /queue/none are known still.
    assert desk.memory.tables_bytes - before < MANY * JOIN_BYTES / 10


def test_a_wildcard_that_reaches_more_than_there_is_memory_for_is_refused(desk: Clocked):
    desk.queues(MANY)
    reader = desk.actor()
    limit = desk.memory.tables_bytes + MANY * JOIN_BYTES // 2
    desk.memory.limit_bytes = 2 * limit
    reader.does(wild(receipt=b"r"), run_of("/queue/q", ["never"]))
    desk.settles()
    frames = reader.frames()
    assert [frame.command for frame in frames if frame.command != "MESSAGE"] == ["RECEIPT", "ERROR"]
    assert frames[-1].get("code") == "memory-limit"
    assert desk.waiting("/queue/q") == []
    desk.passes(0)
    reader.is_gone()
    while not desk.broker.leaving.is_over:
        desk.passes(0)
    assert all(not queue.consumers for queue in desk.broker.queues)
    assert desk.memory.tables_bytes < limit


@pytest.mark.parametrize("turns", [1, 8])
def test_a_client_with_a_wildcard_over_many_queues_leaves_in_slices(desk: Clocked, turns: int):
    desk.queues(MANY)
    reader = desk.actor()
    reader.does(wild())
    for _ in range(turns):
        desk.turn()
    reported: list[bool] = []
    desk.broker.forget(
        reader.client, CloseReason.CONNECTION_LOST, desk.now, lambda: reported.append(True)
    )
    for _ in range(100):
        desk.passes(0)
    assert reported
    assert desk.broker.leaving.is_over
    assert all(not queue.consumers for queue in desk.broker.queues)
    assert sum(queue.waiting.count for queue in desk.broker.queues) == MANY
    assert max(desk.pieces) <= MOST


def test_messages_of_one_that_unsubscribes_in_pieces_come_back_before_others_are_served(
    desk: Clocked,
):
    sender, first, second = desk.actor(), desk.actor(), desk.actor()
    bodies = [f"{n}" for n in range(10 * FEW_QUEUES)]
    first.subscribes("/queue/q", ack="client", prefetch_count="0")
    sender.sends("/queue/q", *bodies)
    desk.settles()
    assert len(first.consumer().unacked) == len(bodies)
    second.subscribes("/queue/q", ack="client", prefetch_count="0")
    desk.broker.turns.begin(0)
    work = desk.broker.unsubscriber.unsubscribe(
        first.client, Unsubscribed("0", None, None), desk.now
    )
    next(work)
    sender.sends("/queue/q", "later")
    desk.broker.queues.want(first.consumer())
    desk.turn()
    assert not second.reads(), "or it got what came later first"
    for _ in work:
        desk.turn()
    desk.settles()
    assert texts(second.reads()) == [*bodies, "later"]


def test_a_consumer_of_many_queues_is_served_from_all_as_it_acknowledges(desk: Clocked):
    desk.queues(10 * FEW_QUEUES)
    reader = desk.reader(WILD, ack="client", prefetch_count="1")
    sender = desk.actor()
    sender.sends("/queue/x", "plain")
    found: list[str] = []
    desk.settles()
    while frames := reader.reads():
        found += texts(frames)
        reader.acks(*frames)
        desk.settles()
        assert max(desk.pieces) <= MOST
    assert sorted(map(int, found)) == list(range(10 * FEW_QUEUES))
    sender.sends("/queue/z00007", "again")
    desk.settles()
    assert reader.bodies() == ["again"]


def test_a_consumer_of_many_queues_gets_the_rest_when_its_outbox_has_room():
    desk = Clocked(book={}, dialect="apollo")
    desk.queues(2 * FEW_QUEUES)
    reader = desk.actor()
    reader.outbox.room = 0
    reader.subscribes(f"{WILD},/queue/plain,/queue/none")
    sender = desk.actor()
    sender.sends("/queue/plain", "plain")
    desk.settles()
    assert reader.bodies() == []
    desk.broker.queues.end("/queue/none", desk.now)
    reader.opens_up()
    desk.settles()
    assert len(reader.bodies()) == 2 * FEW_QUEUES + 1
    desk.ends()


def test_ack_with_credit_left_searches_no_message(desk: Clocked):
    desk.queues(2 * FEW_QUEUES)
    reader = desk.reader(WILD, ack="client-individual", prefetch_count=f"{2 * FEW_QUEUES + 1}")
    desk.settles()
    messages = reader.reads()
    assert len(messages) == 2 * FEW_QUEUES
    reader.acks(messages[0])
    assert not desk.broker.queues.wildcard_queues.searching
    reader.acks(*messages[1:])
    desk.settles()
    assert desk.broker.acknowledger.counters.acked == len(messages)


def test_a_search_ends_with_its_consumer(desk: Clocked):
    desk.queues(2 * FEW_QUEUES)
    reader = desk.reader(WILD, ack="client", prefetch_count="1")
    desk.settles()
    [message] = reader.reads()
    reader.acks(message)
    reader.unsubscribes()
    desk.settles()
    assert not desk.broker.queues.wildcard_queues.searching
    assert reader.bodies() == []


# Many selectors (F3).


def asked(desk: Clocked) -> list[Actor]:
    """Return ASKED subscribers to TOPIC with a selector each. The even ones select k = 'v'."""
    actors = [desk.actor() for _ in range(ASKED)]
    for number, actor in enumerate(actors):
        wanted = "v" if number % 2 == 0 else "w"
        actor.subscribes(TOPIC, selector=f"k = '{wanted}' AND n <> '{number}'")
    desk.settles()
    return actors


# State left by a client of the dialect stompica.


def test_a_session_that_ends_on_a_socket_that_stays_ends_in_pieces():
    desk = Clocked(book={}, dialect="stompica")
    reader, other = desk.actor("1.1"), desk.actor()
    for number in range(100):
        reader.subscribes(f"/topic/{number}", f"{number}")
    desk.settles()
    reader.does(Disconnected(b"bye"))
    assert reader.client in desk.broker.clients
    other.sends("/queue/q", "other")
    desk.settles()
    assert reader.client not in desk.broker.clients
    assert receipts(reader) == ["bye"]
    assert not reader.client.subscriptions


def test_a_session_that_ends_and_whose_connection_is_lost_meanwhile_ends_once():
    desk = Clocked(book={}, dialect="stompica")
    reader = desk.actor("1.1")
    for number in range(100):
        reader.subscribes(f"/topic/{number}", f"{number}")
    desk.settles()
    reader.does(Disconnected(b"bye"))
    desk.broker.refuse(reader.client, internal_error(), desk.now)
    desk.broker.leaving.finish(desk.now)
    del desk.broker.clients[reader.client]
    desk.settles()
    assert receipts(reader) == []


# Names in order.


@pytest.mark.parametrize("count", [0, 1, 2 * CHUNK_SIZE, 5 * CHUNK_SIZE])
def test_names_are_found_in_order_whatever_comes_and_goes(count: int):
    chance = random.Random(count)
    names, model = SortedNames(), set[str]()
    for _ in range(count):
        name = f"{chance.randrange(4 * count)}"
        if name in model:
            names.discard(name)
            model.remove(name)
        else:
            names.add(name)
            model.add(name)
    assert len(names) == len(model)
    for since in ("", "2", "25", "99999999"):
        found: list[str] = []
        at = since
        while some := names.since(at):
            found += some
            at = some[-1] + "\0"
        assert found == sorted(name for name in model if name >= since)
    for name in model:
        names.discard(name)
    assert names.since("") == []


def test_names_between_two_chunks_are_found_in_the_next_one():
    names = SortedNames()
    for number in range(2 * CHUNK_SIZE + 1):
        names.add(f"{number:05}")
    last = f"{CHUNK_SIZE - 1:05}"
    assert names.since(last + "x")[0] == f"{CHUNK_SIZE:05}"


def test_a_join_stops_when_its_client_is_thrown_out(desk: Clocked):
    desk.queues(MANY)
    reader = desk.actor()
    reader.does(wild())
    joined = len(reader.consumer().queues)
    desk.broker.refuse(reader.client, internal_error(), desk.now)
    desk.settles()
    assert len(reader.consumer().queues) == joined
    desk.broker.leaving.finish(desk.now)
    assert all(not queue.consumers for queue in desk.broker.queues)


def test_a_session_ends_with_its_temporary_destinations():
    desk = Clocked(book={}, dialect="stompica")
    reader = desk.actor("1.1")
    reader.subscribes("/temp-queue/mine")
    assert reader.client.temporary
    reader.does(Disconnected(None))
    desk.settles()
    assert not reader.client.temporary


def test_producers_that_have_room_again_wait_for_another_turn_if_this_one_is_over():
    desk = Clocked(book={"/queue/**": DestinationPolicy(max_messages=1, overflow="block")})
    senders = [desk.actor() for _ in range(60)]
    for number, sender in enumerate(senders):
        sender.sends(f"/queue/{number}", "1", "2")
        sender.sends(f"/queue/{number}", "3")
    reader = desk.reader("/queue/*")
    desk.turn()
    assert desk.broker.has_more
    desk.settles()
    assert len(reader.writes()) == 3 * 60
    assert max(desk.pieces) <= MOST


# Large COMMITs.

RUNS = 150


def much(bodies: str = "") -> list[FrameRun]:
    """RUNS messages to two queues, in turn."""
    return [run_of(f"/queue/q{n % 2}", [f"{bodies}{n}"], (("n", f"{n}"),)) for n in range(RUNS)]


def test_a_consumer_that_ends_in_pieces_looks_for_nothing_more(desk: Clocked):
    desk.queues(2 * FEW_QUEUES)
    reader = desk.reader(WILD, ack="client")
    desk.settles()
    consumer = reader.consumer()
    desk.broker.queues.part(consumer, 1, desk.now)
    desk.broker.queues.want(consumer)
    assert not desk.broker.queues.wildcard_queues.searching
    reader.unsubscribes()
    desk.settles()
    assert all(not queue.consumers for queue in desk.broker.queues)


def test_a_commit_waits_until_wildcards_have_joined_a_new_queue(desk: Clocked):
    reader, sender = desk.actor(), desk.actor()
    for number in range(500):
        reader.subscribes("/queue/*", f"{number}")
    desk.settles()
    sender.commits(run_of("/queue/new", ["x"]))
    desk.settles()
    assert [frame.text for frame in reader.messages()] == ["x"]
    assert [frame.command for frame in sender.frames()] == ["RECEIPT"]
