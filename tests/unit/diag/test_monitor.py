"""stompserver's ``/queue/monitor``."""

import pytest

from tests.support.core import Bench
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker.explain import Monitor


def monitor_body(bench: Bench) -> bytes:
    reported: list[bytes] = []
    broker = bench.broker
    monitor = Monitor(
        broker.destinations, broker.turns, lambda _, body, *rest: reported.append(body)
    )
    assert not list(monitor.work())
    return b"".join(reported)


def test_a_block_for_each_queue_in_the_order_of_the_man_page():
    bench = Bench()
    sender, reader = bench.actor(), bench.actor()
    sender.sends("/queue/test", "a", "b", "c")
    sender.sends("/queue/client2", "d")
    reader.subscribes("/queue/test", ack="client-individual", prefetch_count="1")
    reader.acks(*reader.reads())
    assert len(reader.reads()) == 1
    assert monitor_body(bench) == (
        b"Queue: /queue/test\nsize: 1\ndequeued: 1\nenqueued: 3\n\n"
        b"Queue: /queue/client2\nsize: 1\ndequeued: 0\nenqueued: 1\n\n"
    )


def test_no_queue_no_text():
    assert monitor_body(Bench()) == b""


def test_the_text_on_many_queues_is_made_in_pieces_and_one_at_a_time():
    desk = Clocked()
    many = 6_400
    desk.queues(many)
    reader, ender = desk.actor(), desk.actor()
    reader.subscribes("/queue/monitor")
    desk.pieces.clear()
    for _ in range(3):
        desk.broker.publish_monitor(desk.now)
    assert reader.writes() == []
    ender.subscribes(f"/queue/z{many - 1:05}")
    desk.settles()
    assert max(desk.pieces) <= MOST
    [text] = [frame.text for frame in reader.writes()]
    assert text.count("Queue: ") == many
    assert text.endswith(f"Queue: /queue/z{many - 1:05}\nsize: 0\ndequeued: 1\nenqueued: 1\n\n")
    desk.broker.publish_monitor(desk.now)
    desk.settles()
    assert len(reader.writes()) == 1


def test_delayed_messages_count_as_waiting():
    bench = Bench()
    reader = bench.actor()
    reader.subscribes("/queue/q", ack="client")
    reader.sends("/queue/q", "a")
    for _ in range(2):
        reader.nacks(*reader.reads())
    assert reader.reads() == []
    assert b"size: 1\ndequeued: 0\nenqueued: 1\n" in monitor_body(bench)


def test_every_subscriber_gets_it_and_nothing_is_kept_or_counted():
    bench = Bench()
    readers = [bench.actor("1.2"), bench.actor("1.0")]
    bench.broker.publish_monitor(bench.now)  # no queue: nothing
    readers[0].sends("/queue/q", "a")
    bench.broker.publish_monitor(bench.now)  # nobody there: not kept
    for reader in readers:
        reader.subscribes("/queue/monitor", "m")
        assert reader.reads() == []
    bench.broker.publish_monitor(bench.now)
    body = "Queue: /queue/q\nsize: 1\ndequeued: 0\nenqueued: 1\n\n"
    for reader in readers:
        [frame] = reader.reads()
        assert frame.get("destination") == "/queue/monitor"
        assert frame.text == body
    assert "/queue/monitor" not in monitor_body(bench).decode()


def test_a_wildcard_over_queues_does_not_get_it():
    bench = Bench()
    reader = bench.actor()
    reader.subscribes("/queue/*")
    reader.sends("/queue/q", "a")
    bench.broker.publish_monitor(bench.now)
    assert reader.bodies() == ["a"]


@pytest.mark.parametrize("name", ["/queue/monitor", "/queue/monitor,/queue/q"])
def test_send_to_the_monitor_is_refused(name):
    bench = Bench()
    sender = bench.actor()
    sender.sends(name, "fake")
    assert sender.error().get("code") == "reserved-destination"
