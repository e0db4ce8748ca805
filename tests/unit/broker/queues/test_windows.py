"""Consumers that look for messages among those that a queue has left in the store."""

import gc
import random
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.core import Actor, Received, numbered, texts
from tests.support.durable_fakes import DurableBench, answered
from tests.support.managing import drive
from tests.support.small_queues import keep_few, search_in_few
from trio_stomp.broker import DestinationPolicy, MemoryBudget
from trio_stomp.broker.delivery import Turns
from trio_stomp.broker.durability import StoreRead
from trio_stomp.broker.managing import Choice
from trio_stomp.broker.queues import Queue, searches
from trio_stomp.broker.queues._scan_positions import Window
from trio_stomp.broker.queues._windows import Windows
from trio_stomp.broker.selectors import Selector
from trio_stomp.frames import Head
from trio_stomp.store import Page, Stored

Q = "/queue/q"
LOW = 5
MANY = 100
B = "type = 'b'"


@pytest.fixture(autouse=True)
def _few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_few(monkeypatch, LOW)


def made(*, is_prompt: bool = True, **fields: object) -> DurableBench:
    policy = DestinationPolicy(backoff_s=(), max_redeliveries=999, **fields)  # type: ignore[arg-type]
    return DurableBench(book={Q: policy}, memory=MemoryBudget(100_000_000), is_prompt=is_prompt)


def stores(actor: Actor, *bodies: str, **headers: str) -> None:
    actor.sends(Q, *bodies, persistent="true", **headers)  # type: ignore[arg-type]
    actor.core.turn()


def deep(core: DurableBench, *behind: str, count: int = MANY) -> Actor:
    """Fill a queue with many messages of type a, and some of type b behind them."""
    sender = core.actor()
    for number in range(count):
        stores(sender, f"{number}", type="a", n=f"{number}")
    for body in behind:
        stores(sender, body, type="b")
    answered(core)
    assert core.queue(Q).waiting.count == LOW
    return sender


def drained(core: DurableBench) -> list[str]:
    """Take all that is left, as a consumer without a selector."""
    reader = core.actor()
    reader.subscribes(Q, ack="client-individual", prefetch_count="3")
    got: list[str] = []
    answered(core)
    while frames := reader.reads():
        got += texts(frames)
        reader.acks(*frames)
        answered(core)
    return got


def is_empty(core: DurableBench) -> None:
    queue = core.queue(Q)
    assert queue.message_count == queue.size == queue.arriving == 0
    assert core.memory.kept_bytes == core.memory.stored_bytes == 0
    assert core.store.statistics().live_messages == 0


def test_each_message_is_evaluated_once_and_stays_in_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Head] = []
    matches = Selector.matches

    def spy(self: Selector, headers: Head) -> bool:
        asked.append(headers)
        return matches(self, headers)

    monkeypatch.setattr(Selector, "matches", spy)
    core = made()
    sender = deep(core, *numbered("b", 9))
    reader, second = core.actor(), core.actor()
    got: list[str] = []
    for each in (reader, second):
        each.subscribes(Q, ack="client-individual", prefetch_count="1", selector=B)
        for _ in range(3):
            frames = each.reads()
            got += texts(frames)
            each.acks(*frames)
    assert got == ["b0", "b1", "b2", "b3", "b5", "b6"]
    stores(sender, "another", type="a")
    seen = [head for head in asked if dict(head.headers).get("n")]
    assert len(seen) == len({dict(head.headers)["n"] for head in seen}) == MANY
    assert core.queue(Q).waiting.count <= 2 * LOW + 40
    reader.is_gone()
    second.is_gone()
    assert drained(core) == [*numbered("", MANY), "b4", "b7", "b8", "another"]
    is_empty(core)


def test_a_page_that_nobody_examines_to_its_end_is_freed_without_a_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: list[weakref.ref[Stored]] = []
    found = Windows._found

    def spy(self: Windows, queue: Queue, window: Window, last: int, page: Page, now: float) -> None:
        known.extend(map(weakref.ref, page.runs))
        found(self, queue, window, last, page, now)

    monkeypatch.setattr(Windows, "_found", spy)
    core = made()
    deep(core, *numbered("b", 500))
    gc.collect()
    gc.disable()
    try:
        reader = core.actor()
        reader.subscribes(Q, ack="client-individual", prefetch_count="1", selector=B)
        assert texts(reader.reads()) == ["b0"]
        reader.is_gone()
        answered(core)
        assert core.queue(Q).window is None
        assert known
        assert not any(each() for each in known)
    finally:
        gc.enable()


def test_what_returns_goes_back_to_its_place_in_the_store() -> None:
    core = made()
    deep(core, "b0", "b1")
    reader = core.actor()
    reader.subscribes(Q, ack="client-individual", selector=B)
    first, second = reader.reads()
    kept = core.memory.kept_bytes
    reader.nacks(first)
    again = reader.reads()
    assert texts(again) == ["b0"]
    assert again[0]["delivery-count"] == "2"
    reader.is_gone()
    assert core.memory.kept_bytes < kept
    assert drained(core) == [*numbered("", MANY), "b0", "b1"]
    assert second.text == "b1"
    is_empty(core)


def test_what_is_out_is_not_loaded_and_returns_to_memory_when_others_are_there() -> None:
    core = made()
    deep(core, "b0", "b1")
    reader, rest = core.actor(), core.actor()
    reader.subscribes(Q, ack="client-individual", selector=B)
    assert texts(reader.reads()) == ["b0", "b1"]
    rest.subscribes(Q)
    got = rest.bodies()
    answered(core)
    assert got + rest.bodies() == numbered("", MANY)
    reader.is_gone()
    assert rest.bodies() == ["b0", "b1"]
    is_empty(core)


def test_a_page_that_cannot_be_read_is_read_again() -> None:
    core = made(is_prompt=False)
    deep(core, "b0")
    reader = core.actor()
    reader.subscribes(Q, selector=B)
    core.turn()
    while core.queue(Q).window is None:
        core.loads()
    paged = core.queue(Q).waiting.paging(4)
    assert paged is not None
    assert list(searches(reader.consumer())) == [(Q, paged.after)]
    (wanted,) = core.log.take_reads()
    wanted.take(None, core.now)
    answered(core)
    assert reader.bodies() == ["b0"]
    assert list(searches(reader.consumer())) == []


def page_of(core: DurableBench, wanted: StoreRead) -> Callable[[], None]:
    """Read a page now. Return what gives it to the broker."""
    return partial(wanted.take, wanted.read(core.store, wanted.max_bytes), core.now)


def test_what_ended_while_a_page_was_read_does_not_come_again() -> None:
    """A browser's read, which begins behind that of the page, knows of the end."""
    core = made(is_prompt=False)
    deep(core, "b0", "b1")
    first, second, browser = core.actor(), core.actor(), core.actor()
    first.subscribes(Q, ack="client-individual", prefetch_count="1", selector=B)
    answered(core)
    (frame,) = first.reads()
    first.acks(frame)
    first.unsubscribes()
    second.subscribes(Q, ack="client-individual", selector=f"{B} AND n IS NULL")
    core.turn()
    while core.queue(Q).window is None:
        core.loads()
    (wanted,) = core.log.take_reads()
    give = page_of(core, wanted)
    core.answers()
    give()
    browser.subscribes(Q, browser="true")
    answered(core)
    assert (frame.text, second.bodies()) == ("b0", ["b1"])


@pytest.mark.parametrize("how", ["purged", "ended", "left", "paused"])
def test_a_page_that_comes_too_late_is_forgotten(how: str) -> None:
    core = made(is_prompt=False)
    deep(core, "b0", count=LOW + 1)  # so few are purged in one step
    reader = core.actor()
    reader.subscribes(Q, selector=B)
    core.turn()
    queue = core.queue(Q)
    while queue.window is None:
        core.loads()
    (wanted,) = core.log.take_reads()
    give = page_of(core, wanted)
    if how == "purged":
        drive(core, core.broker.manager.purge(Choice(Q)), lambda: answered(core))
    elif how == "ended":
        core.broker.queues.end(Q, core.now)
    elif how == "left":
        reader.unsubscribes()
    else:
        queue.is_paused = True
    give()
    answered(core)
    assert queue.window is None
    assert reader.bodies() == []
    if how == "purged":
        is_empty(core)


def test_a_search_begins_when_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    search_in_few(monkeypatch, 1)
    core = made()
    readers = [core.actor() for _ in range(3)]
    for index in range(3):
        for number in range(MANY):
            core.actor().sends(f"{Q}{index}", f"{number}", persistent="true", type="a")
        core.actor().sends(f"{Q}{index}", "b", persistent="true", type="b")
        core.turn()
    for index, reader in enumerate(readers):
        reader.subscribes(f"{Q}{index}", selector=B)
    answered(core)
    assert [reader.bodies() for reader in readers] == [["b"]] * 3


def test_expired_messages_in_the_store_are_removed_where_they_are_found() -> None:
    core = made()
    sender = deep(core)
    stores(sender, "short", type="a", ttl="1000")
    stores(sender, "b0", type="b")
    core.now += 5
    reader = core.actor()
    reader.subscribes(Q, selector=B)
    assert reader.bodies() == ["b0"]
    assert core.queue(Q).destination.expired == 1
    assert drained(core) == numbered("", MANY)
    is_empty(core)


def test_a_new_selector_does_not_delay_those_that_are_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.durable_fakes.PAGE_BYTES", 40)
    core = made(is_prompt=False)
    sender = deep(core)
    ahead, late = core.actor(), core.actor()
    ahead.subscribes(Q, selector=B)
    answered(core)
    late.subscribes(Q, selector="type = 'c'")
    sender.sends(Q, "b0", persistent="true", type="b")
    core.appends()
    for _ in range(3):
        core.loads()
    assert ahead.bodies() == ["b0"]
    assert core.queue(Q).window is not None
    answered(core)
    assert core.queue(Q).window is None


def test_a_selector_waits_for_the_store_before_it_gets_lower_priorities() -> None:
    core = made(priority=True)
    sender = core.actor()
    for number in range(MANY):
        stores(sender, f"{number}", type="a", priority="4")
    stores(sender, "low", type="b", priority="1")
    stores(sender, "high", type="b", priority="4")
    reader = core.actor()
    reader.subscribes(Q, selector=B)
    assert reader.bodies() == ["high", "low"]
    again = core.restarts()
    reader = again.actor()
    reader.subscribes(Q, selector="type = 'a' AND priority = 9")
    assert reader.bodies() == []
    assert drained(again) == numbered("", MANY)


def test_a_lower_priority_is_loaded_if_nobody_wants_the_few_of_a_higher_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_few(monkeypatch, LOW, share=0.5)
    core = made(priority=True)
    stores(core.actor(), "high", type="a", priority="4")
    stores(core.actor(), "low", type="b", priority="1")
    again = core.restarts()
    reader = again.actor()
    reader.subscribes(Q, selector=B)
    assert reader.bodies() == ["low"]
    assert drained(again) == ["high"]


def test_a_search_is_told_of_the_priority_that_it_is_at() -> None:
    core = made(priority=True)
    sender, reader = core.actor(), core.actor()
    sender.sends(Q, *numbered("", 30), type="a", priority="5")
    reader.subscribes(Q, selector=B)
    core.turn()
    queue = core.queue(Q)
    queue.is_marked = True
    assert list(searches(reader.consumer())) == []
    sender.sends(Q, "low", type="a", priority="2")
    assert list(searches(reader.consumer())) == [(Q, 0)]


def test_no_page_is_examined_while_an_operator_removes_messages() -> None:
    core = made(is_prompt=False)
    deep(core, "b0")
    queue = core.queue(Q)
    paged = queue.waiting.paging(4)
    assert paged is not None
    paged.is_loading, queue.sought = True, (4, paged.after)
    core.broker.queues.pages.look_ahead(queue)
    assert queue.window is None
    paged.is_loading = False
    core.broker.queues.pages.look_ahead(queue)
    assert queue.window is not None
    answered(core)


def test_a_message_with_an_unreadable_header_block_hides_no_others() -> None:
    core = made()
    deep(core, "b0")
    lane = core.store._lanes[f"queue:{Q}", 4]  # type: ignore[attr-defined]
    object.__setattr__(list(lane.values())[50].put, "head", b"no header")
    reader = core.actor()
    reader.subscribes(Q, selector=B)
    assert reader.bodies() == ["b0"]


def test_an_exclusive_consumer_examines_what_owners_of_groups_had_passed() -> None:
    core = made()
    sender, first, second = core.actor(), core.actor(), core.actor()
    first.subscribes(Q, ack="client", prefetch_count="1")
    stores(sender, *numbered("", 60), JMSXGroupID="g")
    [held] = first.reads()
    second.subscribes(Q, ack="client", prefetch_count="9")
    assert second.bodies() == []
    alone = core.actor()
    alone.subscribes(Q, ack="client", prefetch_count="2", exclusive="true", x_priority="5")
    assert alone.bodies() == []
    first.acks(held)
    assert (first.bodies(), alone.bodies()) == ([], ["1", "2"])


def test_a_scan_of_the_store_continues_in_the_next_turn() -> None:
    core = DurableBench(book={Q: DestinationPolicy()}, memory=MemoryBudget(100_000_000))
    deep(core, "b0")  # type: ignore[arg-type]
    reader = core.actor()
    reader.subscribes(Q, selector=f"{B} AND n IS NULL")
    got: list[str] = []
    for _ in range(100):
        got += reader.bodies()
    assert got == ["b0"]


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_what_returns_while_a_page_is_examined_comes_in_order_and_others_once(
    ack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = made(is_prompt=False)
    deep(core, *numbered("b", 4))
    first, second = core.actor(), core.actor()
    first.subscribes(Q, ack="client-individual", prefetch_count="1", selector=B)
    answered(core)
    assert texts(first.reads()) == ["b0"]
    queue, is_held = core.queue(Q), [True]
    monkeypatch.setattr("trio_stomp.broker.queues._hand_out.WEIGHT", 1)

    def has_b1() -> bool:
        return queue.taken is not None and len(queue.taken.ids) > 1

    # The turn ends when the second has b1 of a page that began before b0.
    monkeypatch.setattr(Turns, "is_over", lambda _: is_held[0] and has_b1())
    second.subscribes(Q, ack=ack, selector=f"{B} AND n IS NULL")
    core.turn()
    while not has_b1():
        core.loads()
    assert queue.window is not None
    is_held[0] = False
    got = texts(second.writes())
    first.is_gone()
    answered(core)
    assert [*got, *second.bodies()] == ["b1", "b0", "b2", "b3"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_cut", [False, True])
def test_nothing_is_lost_doubled_or_out_of_order(
    seed: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selectors, groups, NACKs, lost consumers and turns that end anywhere, in any order."""
    rng = random.Random(seed)
    core = made(is_prompt=seed % 2 == 0)
    if is_cut:
        monkeypatch.setattr("trio_stomp.broker.queues._hand_out.WEIGHT", 1)
        monkeypatch.setattr(Turns, "is_over", lambda _: rng.random() < 0.3)
    sent = 0
    done: list[str] = []
    held: list[tuple[Actor, str, list[Received]]] = []
    sender = core.actor()

    def leaves(reader: Actor, ack: str) -> None:
        if ack == "auto":
            done.extend(texts(reader.writes()))
        reader.is_gone()

    for _ in range(200):
        step = rng.randrange(8)
        if step < 3:
            kind = {"type": rng.choice("abc")}
            kind |= {"JMSXGroupID": rng.choice("gh")} if seed % 3 == 0 else {}
            stores(sender, *numbered("", sent + 6)[sent:], **kind)
            sent += 6
        elif step == 3 and len(held) < 4:
            reader, ack = core.actor(), rng.choice(["client-individual", "auto"])
            selector = rng.choice(["type = 'a'", "type = 'b'", "type = 'c'", ""])
            given = {"selector": selector} if selector else {}
            reader.subscribes(Q, ack=ack, prefetch_count=rng.choice("1379"), **given)
            held.append((reader, ack, []))
        elif step == 4 and held:
            reader, ack, _ = held.pop(rng.randrange(len(held)))
            leaves(reader, ack)
        elif held:
            reader, ack, frames = rng.choice(held)
            frames += reader.reads()
            rng.shuffle(frames)
            for _ in range(min(rng.randrange(1, 9), len(frames))):
                frame = frames.pop()
                if ack != "auto" and not rng.randrange(3):
                    reader.nacks(frame)
                    continue
                if ack != "auto":
                    reader.acks(frame)
                done.append(frame.text)
            if ack == "auto":
                done += texts(frames)
                frames.clear()
        if rng.randrange(2):
            answered(core)
    for reader, ack, _ in held:
        leaves(reader, ack)
    answered(core)
    left = drained(core)
    assert left == sorted(left, key=int)
    assert sorted([*done, *left], key=int) == numbered("", sent)
    is_empty(core)
