"""Browsers: queues shown as they are, and left as they are."""

import tracemalloc

import attrs
import pytest

from tests.support.core import Core, Pairs, Peer, numbered
from tests.support.limits import MAX_BROWSES
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.protocol import Subscribed, Unsubscribed

TURN_STEPS = 256
"""Messages that are looked at in a turn, of all queues."""

BROWSER: Pairs = (("browser", "true"),)


def seen(peer: Peer) -> list[str]:
    """Return the bodies, and the position of the end marker."""
    return ["end" if frame.get("browser") == "end" else frame.text for frame in peer.messages()]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_browser_sees_everything_and_takes_nothing(core: Core, version: str, ack: str):
    publisher, browser, reader = core.peer(), core.peer(version), core.peer()
    publisher.sends("/queue/q", *numbered("m", 3))
    browser.subscribes("/queue/q", "b", ack=ack, headers=BROWSER, receipt=b"r")
    assert browser.frames()[0].command == "RECEIPT"
    assert seen(browser) == ["m0", "m1", "m2", "end"]
    last = browser.messages()[-1]
    assert (last.get("destination"), last.get("subscription")) == ("/queue/q", "b")
    assert all(frame.get("message-id") and not frame.get("ack") for frame in browser.messages())
    publisher.sends("/queue/q", "later")
    assert len(seen(browser)) == 4
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["m0", "m1", "m2", "later"]
    assert [frame.get("redelivered") for frame in reader.messages()] == [None] * 4
    reader.drains()
    browser.drains()


def test_an_acknowledgement_of_a_browsed_message_is_ignored(core: Core):
    publisher, browser = core.peer(), core.peer("1.1")
    publisher.sends("/queue/q", "m")
    browser.subscribes("/queue/q", ack="client", headers=BROWSER)
    browser.acks(browser.messages()[0], receipt=b"r")
    assert browser.frames("RECEIPT")[0].get("receipt-id") == "r"
    assert browser.outbox.closed is None
    assert core.broker.destinations.open("/queue/q").queue is not None
    assert core.broker.acknowledger.counters.ignored == 1


def test_a_browser_is_shown_as_much_as_it_takes(core: Core):
    publisher, browser, reader = core.peer(), core.peer(room=2), core.peer()
    publisher.sends("/queue/q", *numbered("m", 5))
    browser.subscribes("/queue/q", headers=BROWSER)
    assert seen(browser) == ["m0", "m1"]
    publisher.sends("/queue/q", "later")
    browser.outbox.write()
    core.broker.writable(browser.client, core.now)
    assert seen(browser) == ["m0", "m1", "m2", "m3"]
    browser.drains()
    assert seen(browser)[4:] == ["m4", "end"]
    assert core.broker.subscriptions.initial_delivery.browses.statistics().unfinished == 0
    reader.subscribes("/queue/q")
    reader.drains()


def test_browse_skips_consumed_messages_and_shows_none_twice(core: Core):
    publisher, browser, reader = core.peer(), core.peer(room=2), core.peer()
    publisher.sends("/queue/q", *numbered("m", 6))
    browser.subscribes("/queue/q", headers=BROWSER)
    reader.subscribes("/queue/q", ack="client-individual", headers=(("prefetch-count", "4"),))
    assert reader.bodies() == ["m0", "m1", "m2", "m3"]
    reader.acks(reader.messages()[2])  # m2; m4 comes in its place
    reader.nacks(reader.messages()[3])  # m3 is redelivered
    browser.outbox.write()
    core.broker.writable(browser.client, core.now)
    assert seen(browser) == ["m0", "m1", "m5", "end"]
    reader.unsubscribes()  # m0, m1, m3, m4 are back
    browser.subscribes("/queue/q", "again", headers=BROWSER)
    browser.drains()
    assert seen(browser)[4:] == ["m0", "m1", "m3", "m4", "m5", "end"]
    reader.subscribes("/queue/q")
    reader.drains()


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_priorities_and_returned_messages_are_shown_in_the_order_of_delivery(core: Core, room: int):
    publisher, browser, reader = core.peer(), core.peer(room=room), core.peer()
    bodies = []
    for number in range(30):
        priority = (number * 7) % 10
        bodies.append((-priority, number))
        publisher.sends("/queue/q", f"{number}", headers=(("priority", f"{priority}"),))
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "12"),))
    reader.unsubscribes()
    browser.subscribes("/queue/q", headers=BROWSER)
    while seen(browser)[-1:] != ["end"]:
        browser.outbox.write()
        core.broker.writable(browser.client, core.now)
        core.broker.end_turn(core.now)
    assert seen(browser) == [f"{number}" for _, number in sorted(bodies)] + ["end"]
    core.broker.queues.end("/queue/q", core.now)


def test_groups_and_others_are_shown_as_they_stand(core: Core):
    publisher, browser, reader = core.peer(), core.peer(), core.peer()
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "1"),))
    for number in range(6):
        publisher.sends("/queue/q", f"{number}", headers=(("JMSXGroupID", f"g{number % 2}"),))
    browser.subscribes("/queue/q", headers=BROWSER)
    assert seen(browser) == ["1", "2", "3", "4", "5", "end"]  # 0 is with the reader
    core.broker.queues.end("/queue/q", core.now)


def test_a_connection_is_shown_some_browses_at_once_and_the_rest_after_them(core: Core):
    publisher, browser, reader = core.peer(), core.peer(room=1), core.peer()
    publisher.sends("/queue/q", "m0", "m1")
    browses = core.broker.subscriptions.initial_delivery.browses
    for number in range(MAX_BROWSES + 5):
        browser.subscribes("/queue/q", f"{number}", headers=BROWSER)
    assert attrs.astuple(browses.statistics()) == (MAX_BROWSES + 5, MAX_BROWSES, 0)
    browser.unsubscribes(f"{MAX_BROWSES + 4}")  # one that has not begun
    browser.unsubscribes("1")
    assert attrs.astuple(browses.statistics()) == (MAX_BROWSES + 3, MAX_BROWSES, 0)
    publisher.sends("/queue/q", "m2")
    while browses.statistics().unfinished:
        browser.outbox.write()
        core.broker.writable(browser.client, core.now)
        core.passes(0)
    reported: dict[str, list[str]] = {}
    for frame in browser.messages():
        text = "end" if frame.get("browser") == "end" else frame.text
        reported.setdefault(frame.get("subscription") or "", []).append(text)
    reported.pop("1", None)
    expected = {f"{number}": ["m0", "m1", "end"] for number in range(MAX_BROWSES)}
    # A waiting browse shows the messages present at its turn.
    late = range(MAX_BROWSES + 1, MAX_BROWSES + 4)
    expected |= {f"{number}": ["m0", "m1", "m2", "end"] for number in late}
    del expected["1"]
    assert {name: reported[name] for name in expected} == expected
    reader.subscribes("/queue/q")
    reader.drains()
    browser.drains()


def test_a_turn_shows_a_bounded_number_to_each_browser(core: Core):
    publisher, many, few = core.peer(), core.peer(), core.peer()
    publisher.sends("/queue/deep", *numbered("", 5 * TURN_STEPS))
    publisher.sends("/queue/few", *numbered("", 3))
    many.subscribes("/queue/deep", headers=BROWSER)
    assert 0 < len(many.messages()) <= TURN_STEPS
    assert core.broker.timers.next_due <= core.now, "it goes on in the next turn"
    few.subscribes("/queue/few", headers=BROWSER)
    assert seen(few) == ["0", "1", "2", "end"]
    assert len(many.messages()) <= 2 * TURN_STEPS
    turns = 2
    while seen(many)[-1] != "end":
        shown = len(many.messages())
        core.passes(0)
        assert len(many.messages()) - shown <= TURN_STEPS
        turns += 1
    assert turns > 5
    assert seen(many) == [*numbered("", 5 * TURN_STEPS), "end"]
    core.passes(0)
    assert core.broker.timers.next_due > core.now
    for name in ("/queue/deep", "/queue/few"):
        core.broker.queues.end(name, core.now)


def test_a_selector_that_takes_nothing_is_asked_in_pieces():
    pytest.importorskip("lark")
    core = Core()
    publisher, browser = core.peer(), core.peer()
    publisher.sends("/queue/q", *numbered("", 2 * TURN_STEPS))
    core.broker.end_turn(core.now)
    selector = " OR ".join(f"color = '{number}'" for number in range(100))
    browser.subscribes("/queue/q", headers=(*BROWSER, ("selector", selector)))
    turns = 0
    while not browser.messages():
        core.passes(0)
        turns += 1
    assert turns > 1.5 * len(selector) / 64
    core.broker.queues.end("/queue/q", core.now)


def test_many_browses_of_a_deep_queue_take_no_memory(core: Core):
    """F1: 2 MiB were held for each, and not counted."""
    publisher = core.peer()
    publisher.sends("/queue/q", *numbered("", 5_000))
    peers = [core.peer(room=1) for _ in range(20)]
    core.broker.end_turn(core.now)
    tracemalloc.start()
    try:
        for peer in peers:
            for number in range(MAX_BROWSES):
                peer.subscribes("/queue/q", f"{number}", headers=BROWSER)
            core.passes(0)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / len(peers) / MAX_BROWSES < 10_000
    for peer in peers:
        peer.is_gone()
    while not core.broker.leaving.is_over:
        core.passes(0)
    assert core.broker.subscriptions.initial_delivery.browses.statistics().unfinished == 0
    core.broker.queues.end("/queue/q", core.now)


def test_charge_for_browsed_messages_covers_their_memory(core: Core):
    """Outboxes held three times their charge, as each message was a delivery."""
    publisher, browser = core.peer(), core.peer(room=10)
    publisher.sends("/queue/q", *numbered("", 2_000))
    browser.subscribes("/queue/q", "b", headers=BROWSER)
    browser.outbox.room = 3_000
    tracemalloc.start()
    try:
        while core.broker.subscriptions.initial_delivery.browses.statistics().unfinished:
            core.broker.writable(browser.client, core.now)
            core.passes(0)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    charged = sum(each.size for _, each in browser.outbox.staged if each is not None)
    assert len(browser.outbox.staged) > 1_900
    assert taken <= charged < 2 * taken


def test_a_queue_that_was_forgotten_before_its_browse_began_is_shown_as_empty(core: Core):
    browser = core.peer(room=0)
    browses = core.broker.subscriptions.initial_delivery.browses
    for number in range(MAX_BROWSES + 1):
        browser.subscribes(f"/queue/{number}", f"{number}", headers=BROWSER)
    core.broker.queues.end(f"/queue/{MAX_BROWSES}", core.now)
    browser.drains()
    browser.outbox.room = 1000
    while browses.statistics().unfinished:
        core.broker.writable(browser.client, core.now)
        core.passes(0)
    assert seen(browser) == ["end"] * (MAX_BROWSES + 1)


def test_a_browser_that_unsubscribes_ends_its_browse(core: Core):
    publisher, browser, reader = core.peer(), core.peer(room=1), core.peer()
    publisher.sends("/queue/q", "m0", "m1")
    browser.subscribes("/queue/q", headers=BROWSER)
    browser.unsubscribes()
    assert core.broker.subscriptions.initial_delivery.browses.statistics().unfinished == 0
    browser.drains()
    assert seen(browser) == ["m0"]
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["m0", "m1"]
    reader.drains()


def test_a_browser_may_go_before_its_first_look(core: Core):
    publisher, browser = core.peer(), core.peer()
    publisher.sends("/queue/q", *map(str, range(TURN_STEPS)))
    first, second = (Subscribed(id, "/queue/q", "auto", BROWSER, None) for id in "01")
    browser.does(first, second, Unsubscribed("1", None, None, ()))
    assert core.broker.subscriptions.initial_delivery.browses.statistics().unfinished == 1
    browser.drains()
    assert len(browser.bodies("0")) == TURN_STEPS + 1
    assert browser.bodies("1") == []
    reader = core.peer()
    reader.subscribes("/queue/q")
    reader.drains()


def test_a_browser_sees_selected_and_unexpired_messages(core: Core):
    publisher, browser = core.peer(), core.peer()
    publisher.sends("/queue/q", "red", headers=(("color", "red"),))
    publisher.sends("/queue/q", "dead", headers=(("color", "blue"), ("ttl", "1000")))
    publisher.sends("/queue/q", "blue", headers=(("color", "blue"),))
    core.now += 2
    headers = (*BROWSER, ("selector", "color = 'blue'"), ("browser-end", "false"))
    browser.subscribes("/queue/q", headers=headers)
    assert seen(browser) == ["blue"]
    reader = core.peer()
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["red", "blue"]
    reader.drains()


def test_a_browser_looks_into_several_queues_and_makes_none(core: Core):
    publisher, browser = core.peer(), core.peer()
    publisher.sends("/queue/a.1", "1")
    publisher.sends("/queue/a.2", "2")
    publisher.sends("/queue/b", "3")
    publisher.sends("/queue/DLQ.a", "4")
    browser.subscribes("/queue/b,/queue/a.*,/queue/>", headers=BROWSER)
    assert seen(browser) == ["3", "1", "2", "end"]
    assert core.broker.destinations.find_current("/queue/a.*") is None
    reader = core.peer()
    reader.subscribes("/queue/b,/queue/a.*,/queue/DLQ.*")
    reader.drains()


@pytest.mark.parametrize("events", [0, 100])
def test_an_empty_queue_is_shown_by_its_end(events: int):
    core = Core(BrokerPolicies(explain_events=events))
    browser, publisher = core.peer(), core.peer()
    browser.subscribes("/queue/q", headers=BROWSER)
    assert seen(browser) == ["end"]
    publisher.sends("/queue/q", "m")
    browser.subscribes("/queue/q", "again", headers=BROWSER)
    assert seen(browser) == ["end", "m", "end"]
    core.broker.queues.end("/queue/q", core.now)
    core.ends()


def test_queues_and_topics_are_not_subscribed_to_together():
    peer = Core().peer()
    peer.subscribes("/queue/a,/topic/b")
    assert peer.error().get("code") == "mixed-destinations"


def test_a_topic_cannot_be_browsed_and_is_subscribed_to_as_ever(core: Core):
    publisher, peer = core.peer(), core.peer()
    peer.subscribes("a", headers=BROWSER, ack="client")
    publisher.sends("a", "m0")
    assert peer.bodies() == ["m0"]
    peer.acks(peer.messages()[0])


# --- looking is no delivery -----------------------------------------------------------------------


def test_browsed_messages_do_not_count_as_delivered(core: Core):
    publisher, browser, reader = core.peer(), core.peer(), core.peer()
    publisher.sends("/queue/p", "0")
    publisher.sends("/queue/q", *numbered("m", 3))
    before = core.broker.fan_out.delivered
    browser.subscribes("/queue/p,/queue/q", headers=BROWSER)
    assert len(seen(browser)) == 5
    browser.drains()
    destination = core.broker.destinations.open("/queue/q")
    assert core.broker.fan_out.delivered == before
    assert (destination.delivered, destination.bytes_out, destination.delivery) == (0, 0, None)
    reader.subscribes("/queue/q")
    reader.drains()
    assert (destination.delivered, core.broker.fan_out.delivered - before) == (3, 3)
    core.broker.queues.end("/queue/p", core.now)


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "disconnect"])
def test_messages_not_shown_to_a_slow_browser_are_not_dropped(policy: str):
    core = Core(book={"/queue/q": DestinationPolicy(slow_consumer=policy)})
    publisher, browser = core.peer(), core.peer(capacity=2)
    publisher.sends("/queue/q", *numbered("m", 5))
    before = core.broker.fan_out.delivered
    browser.subscribes("/queue/q", headers=BROWSER)
    assert (browser.outbox.closed is not None) == (policy == "disconnect")
    destination = core.broker.destinations.open("/queue/q")
    assert (destination.delivered, destination.dropped) == (0, 0)
    assert core.broker.fan_out.delivered == before
    core.broker.queues.end("/queue/q", core.now)
