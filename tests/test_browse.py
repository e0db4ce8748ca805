"""Browsers: queues shown as they are, and left as they are."""

import pytest

from tests._core_fakes import Core, Pairs, Peer, numbered
from trio_stomp.broker import DestinationPolicy

BROWSER: Pairs = (("browser", "true"),)


def seen(peer: Peer) -> list[str]:
    """Bodies, and where the end was told."""
    return ["end" if frame.get("browser") == "end" else frame.text for frame in peer.messages()]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_browser_sees_everything_and_takes_nothing(version: str, ack: str):
    core = Core()
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
    core.ends()


def test_an_acknowledgement_of_what_was_only_shown_is_ignored():
    core = Core()
    publisher, browser = core.peer(), core.peer("1.1")
    publisher.sends("/queue/q", "m")
    browser.subscribes("/queue/q", ack="client", headers=BROWSER)
    browser.acks(browser.messages()[0], receipt=b"r")
    assert browser.frames("RECEIPT")[0].get("receipt-id") == "r"
    assert browser.outbox.closed is None
    assert core.broker.routes.open("/queue/q").queue is not None
    assert core.broker.acks.ignored == 1


def test_a_browser_is_shown_as_much_as_it_takes():
    core = Core()
    publisher, browser, reader = core.peer(), core.peer(room=2), core.peer()
    publisher.sends("/queue/q", *numbered("m", 5))
    browser.subscribes("/queue/q", headers=BROWSER)
    assert seen(browser) == ["m0", "m1"]
    reader.subscribes("/queue/q")  # what it takes meanwhile is shown all the same
    browser.outbox.write()
    core.broker.writable(browser.client, core.now)
    assert seen(browser) == ["m0", "m1", "m2", "m3"]
    browser.drains()
    assert seen(browser)[4:] == ["m4", "end"]
    assert core.broker.subscriber.welcome.browses == {}
    reader.drains()
    core.ends()


def test_a_browser_that_goes_leaves_nothing_behind():
    core = Core()
    publisher, browser, reader = core.peer(), core.peer(room=1), core.peer()
    publisher.sends("/queue/q", "m0", "m1")
    browser.subscribes("/queue/q", headers=BROWSER)
    browser.unsubscribes()
    assert core.broker.subscriber.welcome.browses == {}
    browser.drains()
    assert seen(browser) == ["m0"]
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["m0", "m1"]
    reader.drains()
    core.ends()


def test_a_browser_sees_what_it_selects_and_what_lives():
    core = Core()
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
    core.ends()


def test_a_browser_looks_into_several_queues_and_makes_none():
    core = Core()
    publisher, browser = core.peer(), core.peer()
    publisher.sends("/queue/a.1", "1")
    publisher.sends("/queue/a.2", "2")
    publisher.sends("/queue/b", "3")
    publisher.sends("/queue/DLQ.a", "4")
    browser.subscribes("/queue/b,/queue/a.*,/queue/>", headers=BROWSER)
    assert seen(browser) == ["3", "1", "2", "end"]
    assert core.broker.routes.known("/queue/a.*") is None
    reader = core.peer()
    reader.subscribes("/queue/b,/queue/a.*,/queue/DLQ.*")
    reader.drains()
    core.ends()


def test_an_empty_queue_is_shown_by_its_end():
    core = Core()
    browser = core.peer()
    browser.subscribes("/queue/q", headers=BROWSER)
    assert seen(browser) == ["end"]
    core.ends()


def test_queues_and_topics_are_not_subscribed_to_together():
    peer = Core().peer()
    peer.subscribes("/queue/a,/topic/b")
    assert peer.error().get("code") == "mixed-destinations"


def test_a_topic_cannot_be_browsed_and_is_subscribed_to_as_ever():
    core = Core()
    publisher, peer = core.peer(), core.peer()
    peer.subscribes("a", headers=BROWSER, ack="client")
    publisher.sends("a", "m0")
    assert peer.bodies() == ["m0"]
    peer.acks(peer.messages()[0])
    core.ends()


# --- looking is no delivery -----------------------------------------------------------------------


def test_what_is_shown_is_counted_nowhere_as_delivered():
    core = Core()
    publisher, browser, reader = core.peer(), core.peer(), core.peer()
    publisher.sends("/queue/p", "0")
    publisher.sends("/queue/q", *numbered("m", 3))
    before = core.broker.fan_out.delivered
    browser.subscribes("/queue/p,/queue/q", headers=BROWSER)
    assert len(seen(browser)) == 5
    browser.drains()
    route = core.broker.routes.open("/queue/q")
    assert core.broker.fan_out.delivered == before
    assert (route.delivered, route.bytes_out, route.delivery) == (0, 0, None)
    reader.subscribes("/queue/q")
    reader.drains()
    assert (route.delivered, core.broker.fan_out.delivered - before) == (3, 3)
    core.broker.queues.end("/queue/p", core.now)
    core.ends()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "disconnect"])
def test_what_a_slow_browser_is_not_shown_is_not_dropped(policy: str):
    core = Core(by_destination={"/queue/q": DestinationPolicy(slow_consumer=policy)})
    publisher, browser = core.peer(), core.peer(capacity=2)
    publisher.sends("/queue/q", *numbered("m", 5))
    before = core.broker.fan_out.delivered
    browser.subscribes("/queue/q", headers=BROWSER)
    assert (browser.outbox.closed is not None) == (policy == "disconnect")
    route = core.broker.routes.open("/queue/q")
    assert (route.delivered, route.dropped) == (0, 0)
    assert core.broker.fan_out.delivered == before
    core.broker.queues.end("/queue/q", core.now)
