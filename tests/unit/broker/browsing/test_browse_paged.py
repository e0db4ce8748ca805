"""Browsers and the store: messages in the store alone are shown too, and stay there."""

from collections.abc import Callable

import pytest

from tests.support.core import Actor, Received, numbered
from tests.support.durable_fakes import DurableBench
from tests.support.limits import MAX_PAGES
from trio_stomp.broker import MemoryBudget
from trio_stomp.store import MemoryStore

Q = "/queue/q"


def filled(*bodies: str, is_prompt: bool = True, **headers: str) -> DurableBench:
    """A core that finds messages in its store."""
    store = MemoryStore()
    core = DurableBench(store=store, memory=MemoryBudget(100_000_000))
    for body in bodies:
        core.actor().sends(Q, body, persistent="true", **headers)  # type: ignore[arg-type]
        core.turn()
    return DurableBench(
        store=store, memory=MemoryBudget(100_000_000), now=core.now, is_prompt=is_prompt
    )


def browses(core: DurableBench, name: str = Q, **headers: str) -> Actor:
    browser = core.actor()
    browser.subscribes(name, "b", browser="true", **headers)
    return browser


def shown(frames: list[Received]) -> list[str]:
    return ["end" if frame.get("browser") == "end" else frame.text for frame in frames]


def consumed(core: DurableBench) -> list[str]:
    reader = core.actor()
    reader.subscribes(Q)
    return reader.bodies()


def loads(core: DurableBench) -> None:
    """Let the store read the requested pages, and do nothing else."""
    assert core.log.reads
    core.loads()


def test_recovered_messages_are_browsed_in_order_and_stay() -> None:
    core = filled(*numbered("", 20))
    assert shown(browses(core).reads()) == [*numbered("", 20), "end"]
    queue = core.queue(Q)
    assert (queue.waiting.count, queue.waiting.paged) == (0, 20)
    assert core.memory.kept_bytes == 0
    assert core.broker.subscriptions.initial_delivery.browses.statistics().unfinished == 0
    assert core.commit == core.store.recover(lambda done, total: None).commit
    assert consumed(core) == numbered("", 20)


def test_priorities_and_messages_in_memory_are_browsed_in_the_order_of_delivery() -> None:
    store = MemoryStore()
    core = DurableBench(store=store)
    for body, priority in (("low", "1"), ("high", "9"), ("middle", "5")):
        core.actor().sends(Q, body, persistent="true", priority=priority)
        core.turn()
    core = core.restarts()
    core.actor().sends(Q, "now", priority="5")
    core.actor().sends(Q, "first", priority="7")
    core.turn()
    assert shown(browses(core).reads()) == ["high", "first", "middle", "now", "low", "end"]


def test_a_browse_shows_messages_that_are_on_their_way_to_the_store() -> None:
    core = filled("old", is_prompt=False)
    actor, left = core.actor(), core.actor()
    actor.sends(Q, "new")  # goes behind the old one, to the store
    actor.subscribes(Q, "b", browser="true")
    left.subscribes(Q, "b", browser="true")
    left.unsubscribes("b")
    assert actor.reads() == left.reads() == []
    core.turn()
    found: list[Received] = []
    while not found or found[-1].get("browser") != "end":
        for _ in range(3):  # the store reads faster than it writes
            core.loads()
            core.turn()
        core.answers()
        found += actor.reads()
    assert shown(found) == ["old", "new", "end"]
    assert left.reads() == []


def test_pages_come_at_the_pace_of_the_connection() -> None:
    core = filled(*(str(number) * 1000 for number in range(8)), is_prompt=False)
    browser = browses(core)
    browser.outbox.room = 0
    loads(core)
    assert browser.reads() == []
    assert core.memory.kept_bytes == 0, "what nobody takes can be read again"
    seen: list[str] = []
    for _ in range(20):
        browser.outbox.room, browser.outbox.asks_left = True, 2
        core.broker.writable(browser.client, core.now)
        seen += shown(browser.reads())
        if core.log.reads:
            loads(core)
    assert seen == [*(str(number) * 1000 for number in range(8)), "end"]
    assert core.memory.kept_bytes == 0


def test_a_browser_sees_the_messages_present_when_it_came() -> None:
    core = filled("a", "b", is_prompt=False)
    browser = browses(core)
    core.actor().sends(Q, "later", persistent="true")
    core.turn()
    core.answers()
    loads(core)
    assert shown(browser.reads()) == ["a", "b", "end"]


@pytest.mark.parametrize("taken", [1, 2])
def test_browse_may_skip_messages_consumed_meanwhile(taken: int) -> None:
    core = filled("a", "b", is_prompt=False)
    reader = core.actor()
    reader.subscribes(Q, ack="client-individual")
    core.turn()
    loads(core)
    core.turn()
    reader.acks(*reader.reads()[:taken])
    reader.unsubscribes()
    core.turn()
    browser = browses(core)
    core.answers()
    if core.log.reads:
        loads(core)
    assert shown(browser.reads()) == [*"ab"[taken:], "end"]


def test_a_queue_that_is_emptied_meanwhile_ends_the_browsing() -> None:
    core = filled("a", "b", is_prompt=False)
    browser = browses(core)
    reader = core.actor()
    reader.subscribes(Q)
    core.turn()
    wanted_of_browser, wanted_of_reader = core.log.take_reads()
    for wanted in (wanted_of_reader, wanted_of_browser):
        page = wanted.read(core.store, 1000)
        wanted.take(page, core.now)
        core.turn()
        core.answers()
    assert reader.bodies() == ["a", "b"]
    assert shown(browser.reads()) == ["end"]


def test_a_page_that_cannot_be_read_is_read_again() -> None:
    core = filled("a", is_prompt=False)
    browser = browses(core)
    (wanted,) = core.log.take_reads()
    wanted.take(None, core.now)
    assert browser.reads() == []
    loads(core)
    assert shown(browser.reads()) == ["a", "end"]


@pytest.mark.parametrize("leave", [lambda actor: actor.unsubscribes("b"), Actor.is_gone])
def test_a_browser_that_goes_while_a_page_is_read_leaves_nothing(
    leave: Callable[[Actor], None],
) -> None:
    core = filled("a", "b", is_prompt=False)
    browser = browses(core)
    leave(browser)
    loads(core)
    assert browser.reads() == []
    assert core.log.reads == []
    assert core.memory.kept_bytes == 0
    # The same in the middle of a page.
    browser = browses(core)
    core.broker.subscriptions.initial_delivery.browses._steps = 1
    loads(core)
    assert core.memory.kept_bytes > 0
    leave(browser)
    assert core.memory.kept_bytes == 0
    assert core.broker.subscriptions.initial_delivery.browses.statistics().pages == 0


def test_selectors_lifetimes_and_redeliveries_are_seen_to() -> None:
    store = MemoryStore()
    core = DurableBench(store=store)
    sender = core.actor()
    sender.sends(Q, "old", persistent="true", color="red", ttl="1000")
    sender.sends(Q, "red", persistent="true", color="red")
    sender.sends(Q, "blue", persistent="true", color="blue")
    reader = core.actor()
    reader.subscribes(Q, ack="client")
    assert len(reader.reads()) == 3
    core.turn()
    core.now += 2
    core = core.restarts()
    frames = browses(core, selector="color = 'red'").reads()
    assert shown(frames) == ["red", "end"]
    assert (frames[0].get("redelivered"), frames[0].get("delivery-count")) == ("true", "2")
    reader = core.actor()
    reader.subscribes(Q, ack="client")
    assert [frame.get("delivery-count") for frame in reader.reads()] == ["2", "2"]


def test_unreadable_message_does_not_hide_others() -> None:
    core = filled("bad", "good")
    lane = core.store._lanes[f"queue:{Q}", 4]  # type: ignore[attr-defined]
    object.__setattr__(next(iter(lane.values())).put, "head", b"no header")
    assert shown(browses(core).reads()) == ["good", "end"]
    assert core.broker.storage is not None
    assert core.broker.storage.lost == 0


def test_messages_loaded_during_a_browse_are_shown_once_and_in_order() -> None:
    core = filled(*numbered("", 12), is_prompt=False)
    browser, reader = core.actor(), core.actor()
    browser.outbox.asks_left = 0
    core.actor().sends(Q, "first", priority="9")
    core.turn()
    browser.subscribes(Q, "b", browser="true")
    reader.subscribes(Q, ack="client-individual", prefetch_count="3")
    core.turn()
    loads(core)  # all for the reader: now they are in memory, with their own numbers
    core.turn()
    assert reader.bodies() == ["first", "0", "1"]
    seen: list[str] = []
    for _ in range(40):
        browser.outbox.asks_left = 3
        core.broker.writable(browser.client, core.now)
        if core.log.reads:
            loads(core)
        seen += shown(browser.reads())
    assert seen == [*numbered("", 12)[2:], "end"]


def test_pages_are_read_for_some_browsers_at_once_and_for_the_others_after_them() -> None:
    core = filled(*(str(number) * 3000 for number in range(4)), is_prompt=False)
    browsers = [browses(core) for _ in range(MAX_PAGES + 3)]
    figures = core.broker.subscriptions.initial_delivery.browses.statistics
    assert (figures().unfinished, figures().pages) == (MAX_PAGES + 3, MAX_PAGES)
    assert len(core.log.reads) == MAX_PAGES
    browsers[0].unsubscribes("b")
    browsers[1].outbox.room = 0  # its page is dropped
    for _ in range(30):
        if core.log.reads:
            loads(core)
        assert figures().pages <= MAX_PAGES
        core.broker.tick(core.now)
        core.broker.end_turn(core.now)
    for each in browsers[2:]:
        assert [text[:1] for text in shown(each.reads())] == ["0", "1", "2", "3", "e"]
    assert core.memory.kept_bytes == 0
    assert (figures().unfinished, figures().pages) == (1, 0)


def test_a_page_that_finds_no_room_in_the_outbox_is_read_again() -> None:
    core = filled(*numbered("", 5), is_prompt=False)
    browser = browses(core)
    browser.outbox.asks_left = 2
    loads(core)
    assert core.memory.kept_bytes == 0
    assert shown(browser.reads()) == numbered("", 2)
    browser.outbox.asks_left = 1000
    core.broker.writable(browser.client, core.now)
    loads(core)
    assert shown(browser.reads()) == [*numbered("", 5)[2:], "end"]
