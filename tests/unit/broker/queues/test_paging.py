"""Queues that are deeper than their share of memory: out to the store, and back in order."""

from typing import Any

import pytest
from attrs import evolve

from tests.support.core import Actor, numbered
from tests.support.durable_fakes import PAGE_BYTES, DurableBench, answered
from tests.support.small_queues import keep_few
from trio_stomp.base import BrokenInvariant
from trio_stomp.broker import DestinationPolicy, MemoryBudget
from trio_stomp.broker.managing import Choice
from trio_stomp.store import MemoryStore, Page

Q = "/queue/q"
LOW = 5


@pytest.fixture(autouse=True)
def _few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_few(monkeypatch, LOW)


def made(*, is_prompt: bool = True, **fields: object) -> DurableBench:
    book = {Q: DestinationPolicy(**fields)} if fields else {}  # type: ignore[arg-type]
    return DurableBench(book=book, memory=MemoryBudget(100_000_000), is_prompt=is_prompt)


def stores(actor: Actor, *bodies: str, **headers: str) -> None:
    for body in bodies:
        actor.sends(Q, body, persistent="true", **headers)  # type: ignore[arg-type]
        actor.core.turn()


def deep(core: DurableBench, count: int = 20) -> Actor:
    """Fill a queue with more messages than memory holds."""
    sender = core.actor()
    stores(sender, *numbered("", count))
    answered(core)
    assert core.queue(Q).waiting.count == LOW
    assert core.queue(Q).waiting.paged == count - LOW
    assert core.queue(Q).depth == count
    return sender


def all_read(core: DurableBench, reader: Actor) -> list[str]:
    """Return all messages that a reader receives."""
    got: list[str] = []
    while True:
        answered(core)
        found = reader.bodies()
        if not found:
            return got
        got += found


def is_empty(core: DurableBench) -> None:
    queue = core.queue(Q)
    assert queue.message_count == queue.size == queue.arriving == queue.spilling == 0
    assert core.memory.kept_bytes == core.memory.used_bytes == core.memory.stored_bytes == 0
    assert core.store.statistics().live_messages == 0


def test_paged_messages_return_in_order() -> None:
    core = made()
    deep(core)
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader) == numbered("", 20)
    is_empty(core)


def test_only_messages_in_memory_are_charged() -> None:
    core = made()
    deep(core, 100)
    heads = core.memory.kept_bytes - LOW * (1 + 256)
    assert heads == core.heads_bytes() > 0


def test_a_run_is_paged_and_read_in_pieces() -> None:
    core = made()
    deep(core)
    core.actor().sends(Q, *("x" * 100 + f"{n}" for n in range(200)), persistent="true")
    reader = core.actor()
    reader.subscribes(Q, ack="client", prefetch_count="7")
    got: list[str] = []
    while found := reader.reads():
        got += [frame.text for frame in found]
        reader.acks(found[-1])
        assert core.memory.kept_bytes < 5 * PAGE_BYTES
    core.turn()
    assert got == [*numbered("", 20), *("x" * 100 + f"{n}" for n in range(200))]
    is_empty(core)


def test_transient_messages_queue_behind_paged_ones_and_end_with_the_process() -> None:
    core = made()
    sender = deep(core)
    sender.sends(Q, "transient")
    sender.sends(Q, "stored", persistent="true")
    core.turn()
    again = core.restarts()
    reader = again.actor()
    reader.subscribes(Q)
    assert all_read(again, reader) == [*numbered("", 20), "stored"]


def test_a_transient_message_does_not_overtake_one_that_is_on_its_way_to_the_store() -> None:
    core = made(is_prompt=False)
    sender = deep(core, LOW + 1)
    reader = core.actor()
    sender.sends(Q, "first")
    core.turn()
    assert len(core.turns) == 1
    turns, core.turns = core.turns, []
    reader.subscribes(Q)
    core.turn()
    core.loads()
    assert not core.queue(Q).waiting.is_paging(4)
    sender.sends(Q, "second")
    core.turn()
    core.turns = turns + core.turns
    got = all_read(core, reader)
    assert got[-2:] == ["first", "second"]
    is_empty(core)


def test_message_left_in_the_store_is_offered_behind_later_ones_that_were_passed() -> None:
    core = made(is_prompt=False)
    sender, other, reader = core.actor(), core.actor(), core.actor()
    reader.subscribes(Q, selector="kind = 'saved'")
    other.sends(Q, *numbered("", 20))
    sender.sends(Q, "saved", persistent="true", kind="saved")
    core.turn()
    other.sends(Q, "later")
    core.turn()
    assert reader.bodies() == []
    assert all_read(core, reader) == ["saved"]
    assert core.queue(Q).depth == 21


def test_message_arriving_during_a_page_read_is_not_lost() -> None:
    core = made(is_prompt=False)
    sender = deep(core, LOW + 1)
    reader = core.actor()
    reader.subscribes(Q, ack="client", prefetch_count=f"{LOW}")
    core.turn()
    (wanted,) = core.log.take_reads()
    page = wanted.read(core.store, PAGE_BYTES)
    assert page.is_last
    stores(sender, "late")
    core.answers()
    wanted.take(page, core.now)
    assert core.queue(Q).depth + core.queue(Q).unacked == LOW + 2
    reader.unsubscribes()
    reader.subscribes(Q)
    assert all_read(core, reader)[-1] == "late"
    is_empty(core)


def test_unconfirmed_message_of_the_store_is_not_loaded_twice() -> None:
    core = made(is_prompt=False)
    stores(core.actor(), "old")
    answered(core)
    core = DurableBench(book=core.book, store=core.store, now=core.now, is_prompt=False)
    reader = core.actor()
    reader.subscribes(Q)
    core.turn()
    (wanted,) = core.log.take_reads()
    stores(core.actor(), "new")
    core.commit = core.store.append(core.turns, core.commit)
    core.turns = []
    page = core.store.read(f"queue:{Q}", 4, 0, PAGE_BYTES)
    wanted.take(page, core.now)
    assert reader.bodies() == ["old"]
    core.broker.committed(core.commit, core.now)
    assert reader.bodies() == ["new"]
    answered(core)
    is_empty(core)


def test_a_page_that_cannot_be_read_is_asked_for_again() -> None:
    core = made(is_prompt=False)
    deep(core, LOW + 2)
    reader = core.actor()
    reader.subscribes(Q)
    core.turn()
    (wanted,) = core.log.take_reads()
    wanted.take(None, core.now)
    core.turn()
    assert len(core.log.reads) == 1
    assert len(all_read(core, reader)) == LOW + 2
    is_empty(core)


def test_a_page_of_a_queue_that_has_ended_is_dropped() -> None:
    core = made(is_prompt=False)
    deep(core)
    core.actor().subscribes(Q)
    core.turn()
    (wanted,) = core.log.take_reads()
    page = core.store.read(f"queue:{Q}", 4, 0, PAGE_BYTES)
    queue = core.queue(Q)
    core.broker.queues.end(Q, core.now)
    wanted.take(page, core.now)
    assert queue.message_count == queue.size == core.memory.kept_bytes == 0


def test_each_priority_is_paged_separately() -> None:
    core = made()
    sender = deep(core)
    stores(sender, *numbered("low", 10), priority="1")
    stores(sender, *numbered("high", 10), priority="8")
    reader = core.actor()
    reader.subscribes(Q, ack="client", prefetch_count="1")
    got: list[str] = []
    while found := reader.reads():
        got += [frame.text for frame in found]
        reader.acks(*found)
    assert got == [*numbered("high", 10), *numbered("", 20), *numbered("low", 10)]
    core.turn()
    is_empty(core)


def test_a_nacked_message_precedes_paged_messages() -> None:
    core = made(backoff_s=())
    deep(core)
    reader = core.actor()
    reader.subscribes(Q, ack="client-individual", prefetch_count="2")
    first, second = reader.reads()
    reader.nacks(first)
    reader.acks(second)
    assert reader.bodies()[0] == "0"


def test_a_selector_finds_paged_messages() -> None:
    core = made()
    sender = deep(core, 3 * LOW)
    stores(sender, "wanted", color="red")
    reader = core.actor()
    reader.subscribes(Q, selector="color = 'red'")
    assert all_read(core, reader) == ["wanted"]
    assert core.queue(Q).depth == 3 * LOW


def test_a_group_stays_with_its_consumer_over_pages() -> None:
    core = made()
    sender = core.actor()
    stores(sender, *numbered("", 30), JMSXGroupID="g")
    one, other = core.actor(), core.actor()
    one.subscribes(Q)
    other.subscribes(Q)
    got = [*one.bodies(), *one.bodies()]
    assert got == numbered("", 30)
    assert other.bodies() == []
    is_empty(core)


def test_an_expired_message_is_not_delivered_though_it_was_paged() -> None:
    core = made()
    sender = deep(core, 10)
    stores(sender, "short", ttl="1000")
    stores(sender, "long")
    core.now += 5
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader) == [*numbered("", 10), "long"]
    is_empty(core)


def mixed() -> DurableBench:
    """Store messages that expire after 1, 2 and 3 s, by time of day, and never, behind others."""
    core = made(**EXPIRING)
    sender = deep(core)
    for text, ttl in (("a", "1000"), ("stays", ""), ("b", "2000"), ("c", "3000")):
        stores(sender, text, text, **({"ttl": ttl} if ttl else {}))
    day_ms = core.broker.timers.wall.ms(core.now) + 1_500
    stores(sender, "day", expires=f"{day_ms}")
    return core


def buried(core: DurableBench, seconds: float) -> int:
    """Let time pass in small steps, and return the number of dead letters."""
    for _ in range(int(seconds * 10)):
        core.passes(0.1)
        core.settles()
    found = core.broker.queues.find(DEAD)
    return 0 if found is None else found.depth


def all_are_dead(core: DurableBench) -> None:
    """Check that all that could expire did, and that nothing is left or charged behind it."""
    reader = core.actor()
    reader.subscribes(DEAD)
    assert sorted(all_read(core, reader)) == ["a", "a", "b", "b", "c", "c", "day"]
    is_empty(core)


def test_messages_expire_in_the_store_behind_others_that_stay() -> None:
    core = mixed()
    assert buried(core, 1.2) == 2
    assert core.queue(Q).depth == 20 + 2 + 5
    assert buried(core, 5) == 7
    queue = core.queue(Q)
    assert (queue.depth, queue.waiting.count, queue.destination.expired) == (22, LOW, 7)
    all_are_alive_or_dead(core)


@pytest.mark.parametrize("at", ["looked", "removed"])
def test_what_happens_while_the_store_is_searched_for_expired_messages(at: str) -> None:
    core = mixed()
    core.is_prompt = False
    core.passes(1.0)
    core.turn()
    assert core.log.reads
    if at == "removed":
        core.loads()
    reader = core.actor()
    reader.subscribes(Q, selector="never = 'there'")  # examines all
    other = core.actor()
    other.subscribes(Q, ack="client", prefetch_count="3")
    core.is_prompt = True
    core.settles()
    assert buried(core, 5) == 7
    got = other.reads()
    while got:
        other.acks(*got)
        core.settles()
        got = other.reads()
    core.settles()
    all_are_dead(core)


@pytest.mark.parametrize("is_read", [False, True])
def test_the_search_waits_while_an_operator_removes_messages(*, is_read: bool) -> None:
    core = mixed()
    core.is_prompt = False
    paged = core.queue(Q).waiting.paging(4)
    assert paged is not None
    paged.is_loading = not is_read
    core.passes(1.0)
    core.turn()
    assert bool(core.log.reads) == is_read
    paged.is_loading = True
    core.is_prompt = True
    assert buried(core, 3) == 0
    paged.is_loading = False
    assert buried(core, 5) == 7
    all_are_alive_or_dead(core)


def all_are_alive_or_dead(core: DurableBench) -> None:
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader) == [*numbered("", 20), "stays", "stays"]
    all_are_dead(core)


LARGE = "x" * 100_000
"""Few of these make a page."""


@pytest.mark.parametrize("is_purged", [False, True])
def test_all_that_is_in_the_store_expires_page_by_page(*, is_purged: bool) -> None:
    core = made()
    sender = core.actor()
    stores(sender, *numbered("", LOW))
    stores(sender, *([LARGE] * 20), ttl="1000")
    core.passes(1.0)
    core.settles()
    queue = core.queue(Q)
    assert LOW < queue.depth < LOW + 20
    if is_purged:
        queue.forget_paged(4)
    core.passes(1.0)
    for _ in range(20):
        core.passes(0.1)
        core.settles()
    assert queue.depth == queue.waiting.count == LOW
    assert core.broker.queues.storage.windows.swept is None  # type: ignore[union-attr]


def test_a_queue_ends_while_its_store_is_searched_for_expired_messages() -> None:
    core = mixed()
    core.is_prompt = False
    core.passes(1.0)
    core.turn()
    core.broker.queues.end(Q, core.now)
    core.is_prompt = True
    core.settles()
    assert buried(core, 2) == 0


@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_a_full_queue_drops_its_first_messages_even_if_the_rest_is_paged(overflow: str) -> None:
    core = made(max_messages=20, overflow=overflow)
    sender = deep(core)
    stores(sender, *numbered("new", 15))
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader) == [*numbered("", 20)[15:], *numbered("new", 15)]


def test_a_durable_subscription_is_paged_too() -> None:
    core = made()
    sender, reader = core.actor(), core.actor()
    durable = {"durable_subscription_name": "d"}
    reader.subscribes("/topic/t", ack="client", **durable)
    core.turn()
    reader.is_gone()
    for body in numbered("", 20):
        sender.sends("/topic/t", body, persistent="true")
        core.turn()
    (binding,) = core.broker.bindings.durables
    assert binding.queue.waiting.paged == 20 - LOW
    back = core.actor()
    back.subscribes("/topic/t", ack="client", **durable)
    assert [*back.bodies(), *back.bodies()] == numbered("", 20)
    core.broker.bindings.end_durable(binding, core.now)
    back.is_gone()
    core.turn()
    core.ends()


def test_the_end_of_a_durable_subscription_drops_paged_messages() -> None:
    core = made()
    sender, reader = core.actor(), core.actor()
    reader.subscribes("/topic/t", ack="client", durable_subscription_name="d")
    core.turn()
    reader.is_gone()
    for body in numbered("", 20):
        sender.sends("/topic/t", body, persistent="true")
        core.turn()
    (binding,) = core.broker.bindings.durables
    core.broker.bindings.end_durable(binding, core.now)
    core.turn()
    assert binding.queue.message_count == binding.queue.size == core.memory.kept_bytes == 0
    assert core.store.statistics().live_messages == 0


def test_no_page_is_read_ahead_of_earlier_messages_in_memory() -> None:
    core = made(is_prompt=False)
    sender = deep(core)
    sender.sends(Q, "urgent", priority="9")
    core.turn()
    reader = core.actor(room=0)
    reader.subscribes(Q)
    core.turn()
    assert core.log.reads == []
    reader.opens_up()
    assert all_read(core, reader) == ["urgent", *numbered("", 20)]
    is_empty(core)


def test_message_paged_out_for_lack_of_memory_is_retried_whatever_its_id() -> None:
    core = made(is_prompt=False)
    deep(core)
    core.actor().sends(Q, "transient", x_dedup_id="1")
    core.turn()
    core.fails()
    answered(core)
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader) == [*numbered("", 20), "transient"]
    is_empty(core)


DEAD = "/queue/dead"
EXPIRING: dict[str, Any] = {"dead_letter": DEAD, "dead_letter_expired": True}


def expires(core: DurableBench, seconds: float) -> None:
    """Let time pass, and then everything that follows from it."""
    core.passes(seconds)
    for _ in range(10):
        answered(core)
        core.passes(0.001)


def dead(core: DurableBench) -> list[str]:
    reader = core.actor()
    reader.subscribes(DEAD, ack="client", prefetch_count="1000")
    return all_read(core, reader)


@pytest.mark.parametrize("header", ["ttl", "expires"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_messages_that_expire_in_the_store_become_dead_letters_without_consumers(
    header: str, *, is_restarted: bool
) -> None:
    core = made(priority=True, **EXPIRING)
    lifetime = 60_000 if header == "ttl" else core.broker.wall.ms(core.now) + 60_000
    stores(core.actor(), *numbered("", 20), **{header: f"{lifetime}"})
    stores(core.actor(), *numbered("p", 2), priority="7", **{header: f"{lifetime}"})
    answered(core)
    if is_restarted:
        core = core.restarts()
        core.turn()
    expires(core, 59.0)
    assert core.queue(Q).depth == 22
    assert core.queue(Q).waiting.count == (0 if is_restarted else LOW)
    expires(core, 1.1)
    assert sorted(dead(core)) == sorted([*numbered("", 20), *numbered("p", 2)])
    is_empty_of(core, Q)


def is_empty_of(core: DurableBench, name: str) -> None:
    queue = core.broker.queues.find(name)
    assert queue is None or queue.message_count == queue.size == 0


def test_messages_that_expire_in_the_store_wait_for_room_of_their_dead_letters() -> None:
    core = made(**EXPIRING)
    stores(core.actor(), *numbered("", 20), ttl="60000")
    answered(core)
    core.memory.force_kept(100_000_000)
    expires(core, 60.1)
    assert core.queue(Q).depth == 20 - LOW
    expires(core, 1.1)
    assert core.queue(Q).depth == 20 - LOW
    core.memory.give_kept(100_000_000)
    expires(core, 1.1)
    assert sorted(dead(core)) == sorted(numbered("", 20))


def test_expired_messages_that_are_being_read_are_read_once() -> None:
    core = made(**EXPIRING)
    stores(core.actor(), *numbered("", 20), ttl="60000")
    answered(core)
    core.passes(60.1)
    queue = core.queue(Q)
    reads = len(core.broker.log.reads)  # type: ignore[union-attr]
    queue.pump(core.now)
    assert len(core.broker.log.reads) == reads  # type: ignore[union-attr]
    expires(core, 1.1)
    assert sorted(dead(core)) == sorted(numbered("", 20))


def test_what_expires_behind_what_stays_leaves_and_one_page_is_in_memory_at_most() -> None:
    core = made(**EXPIRING)
    sender = core.actor()
    stores(sender, *numbered("", LOW), ttl="60000")
    stores(sender, *numbered("stays ", 40))
    stores(sender, *numbered("late ", 3), ttl="60000")
    answered(core)
    expires(core, 60.1)
    queue = core.queue(Q)
    assert queue.depth == 40
    assert queue.waiting.count <= 43
    assert dead(core) == [*numbered("", LOW), *numbered("late ", 3)]


def test_a_message_that_expired_with_its_consumer_expires_when_it_returns() -> None:
    core = made(**EXPIRING)
    stores(core.actor(), "held", ttl="60000")
    reader = core.actor()
    reader.subscribes(Q, ack="client")
    core.turn()
    assert core.queue(Q).unacked == 1
    expires(core, 60.1)
    reader.unsubscribes()
    expires(core, 0.1)
    assert dead(core) == ["held"]


def test_what_a_leaving_consumer_leaves_in_the_store_expires() -> None:
    core = made(**EXPIRING)
    stores(core.actor(), *numbered("", 20), ttl="60000")
    reader = core.actor()
    reader.subscribes(Q, ack="client", prefetch_count=f"{LOW}")
    core.turn()
    reader.unsubscribes()
    expires(core, 60.1)
    assert sorted(dead(core)) == sorted(numbered("", 20))


def leaves_out(monkeypatch: pytest.MonkeyPatch, lost: int = 0) -> None:
    """Let pages lack the first of their runs, and report ``lost`` messages as damaged."""
    read = MemoryStore.read

    def reads(*arguments: Any) -> Page:
        page = read(*arguments)
        return evolve(page, runs=page.runs[1:], lost=lost)

    monkeypatch.setattr(MemoryStore, "read", reads)


def test_a_page_without_messages_that_are_counted_is_told_and_the_queue_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = made()
    sender = deep(core)
    leaves_out(monkeypatch)
    reader = core.actor()
    reader.subscribes(Q)
    with pytest.raises(BrokenInvariant, match="queue-counts: 15 counted") as told:
        answered(core)
    assert Q in told.value.concerns
    assert told.value.concerns != Q, "the queue would be paused"
    core.loads()
    got = all_read(core, reader)
    stores(sender, "later")
    assert all_read(core, reader) == ["later"]
    assert got[:LOW] == numbered("", LOW)
    assert core.queue(Q).message_count == core.queue(Q).size == 0
    assert core.memory.kept_bytes == core.memory.stored_bytes == 0


def test_messages_that_are_damaged_in_the_store_are_no_broken_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = made()
    deep(core)
    leaves_out(monkeypatch, lost=20)
    reader = core.actor()
    reader.subscribes(Q)
    assert all_read(core, reader)[:LOW] == numbered("", LOW)
    assert core.queue(Q).message_count == 0
    storage = core.broker.storage
    assert storage is not None
    lost = storage.lost
    storage.note_lost(core.queue(Q), 4, 1)  # a browser found another one
    assert storage.lost == lost + 1


def test_few_large_messages_leave_their_place_in_memory_too() -> None:
    core = DurableBench(memory=MemoryBudget(2_000_000))
    sender = core.actor()
    stores(sender, *(["x" * 100_000] * 60))
    answered(core)
    queue = core.queue(Q)
    assert (queue.depth, sender.frames()) == (60, [])
    assert queue.waiting.paged > 40
    reader = core.actor()
    reader.subscribes(Q)
    assert len(all_read(core, reader)) == 60
    is_empty(core)


def interleaved(core: DurableBench, rounds: int = 3) -> list[str]:
    """Have messages in memory between and behind others that were stored later. Return all."""
    sender, other = core.actor(), core.actor()
    stores(sender, *numbered("", LOW))
    answered(core)
    expected = numbered("", LOW)
    for number in range(rounds):
        core.is_prompt = False
        sender.sends(Q, f"stored{number}", persistent="true")
        core.turn()
        other.sends(Q, f"memory{number}")
        core.turn()
        core.is_prompt = True
        answered(core)
        expected += [f"stored{number}", f"memory{number}"]
    return expected


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_browser_sees_what_is_stored_before_others_in_memory(rounds: int) -> None:
    core = made()
    expected = interleaved(core, rounds)
    assert core.queue(Q).waiting.paged > 0
    browser = core.actor()
    browser.subscribes(Q, browser="true")
    got = all_read(core, browser)
    assert list(filter(None, got)) == expected


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_purge_removes_what_is_stored_before_others_in_memory(rounds: int) -> None:
    core = made()
    expected = interleaved(core, rounds)
    operation = core.broker.manager.purge(Choice(Q))
    for _ in range(100):
        operation.step(core.now)
        core.turn()
    assert (operation.done, core.queue(Q).depth) == (len(expected), 0)
