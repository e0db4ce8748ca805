"""Charges of names, subscriptions, patterns, selectors, ids and groups, and their release.

``Core.ends`` and ``Bench.ends`` look at the sums at the end of each of their tests, too.
"""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from tests.support.core import Bench, Core, Peer
from tests.support.durable_fakes import DurableBench
from tests.support.hostile import calls_of
from tests.support.limits import MAX_GROUPS
from trio_stomp.base import CloseReason, Quota
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget, Queue
from trio_stomp.broker.routing import hold_selector, release_selector
from trio_stomp.broker.selectors import SelectorCompiler

Q = "/queue/q"
DURABLE = (("durable-subscription-name", "d"),)
LEAST = 1024 * 1024


def small(**policies: int) -> Core:
    """A core whose tables may take a MiB."""
    return Core(BrokerPolicies(**policies), MemoryBudget(1 << 20))  # type: ignore[arg-type]


def is_full(core: Core) -> bool:
    return core.memory.tables_room < 32 * 1024


# --- the account ----------------------------------------------------------------------------------


def test_half_as_much_as_messages_may_take_but_never_too_little() -> None:
    assert MemoryBudget(1).tables_room == MemoryBudget(2 * LEAST + 1).tables_room == LEAST
    memory = MemoryBudget(4 * LEAST)
    assert memory.take_table(2 * LEAST)
    assert (memory.tables_room, memory.used_bytes, memory.kept_bytes) == (0, 0, 0)
    assert not memory.take_table(1)
    memory.force_table(1)
    assert memory.tables_room == -1
    memory.give_table(2 * LEAST + 1)
    assert memory.tables_bytes == 0


# --- the figures ----------------------------------------------------------------------------------


def subscribing(
    destination: Callable[[int], str], ack: str = "auto", **headers: str
) -> Callable[[Core, Peer, int], None]:
    def act(core: Core, peer: Peer, number: int) -> None:
        pairs = tuple((name, text.format(number)) for name, text in headers.items())
        peer.subscribes(destination(number), f"{number}", ack=ack, headers=pairs)

    return act


def use_topic(core: Core, peer: Peer, number: int) -> None:
    peer.sends(f"/t/{number}")


def use_queue(core: Core, peer: Peer, number: int) -> None:
    for level in range(10):
        peer.sends(f"/queue/{number}", headers=(("priority", f"{level}"),))
    destination = core.broker.destinations.find_current(f"/queue/{number}")
    assert destination is not None
    assert isinstance(destination.queue, Queue)
    while destination.queue.drop_oldest():
        pass
    assert destination.queue.waiting.pop() is None


def send_once(core: Core, peer: Peer, number: int) -> None:
    peer.sends("/t", headers=(("x-dedup-id", f"{number}" * 10),))


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(use_topic, id="topic"),
        pytest.param(use_queue, id="queue"),
        pytest.param(send_once, id="id"),
        pytest.param(subscribing(lambda _: "/t"), id="one-topic"),
        pytest.param(subscribing("/t/{}".format), id="topics"),
        pytest.param(subscribing(lambda _: "/t", "client"), id="feed"),
        pytest.param(subscribing("/t/{}".format, "client"), id="feeds"),
        pytest.param(subscribing(lambda _: Q), id="one-queue"),
        pytest.param(subscribing("/queue/{}".format), id="queues"),
        pytest.param(subscribing("{}.*".format), id="pattern"),
        pytest.param(subscribing("a.*.{}.>".format), id="longer-pattern"),
        pytest.param(subscribing(lambda n: f"{n}." * 31 + "*"), id="longest-pattern"),
        pytest.param(subscribing(lambda n: "*.*." + f"{n}." * 29 + "*"), id="longest-of-a-crowd"),
        pytest.param(subscribing("/queue/{}.*".format), id="queue-pattern"),
        pytest.param(subscribing("a.{}.*".format, "client"), id="feed-pattern"),
        pytest.param(subscribing(lambda n: ",".join(f"/t/{n}.{p}" for p in range(9))), id="nine"),
    ],
)
@pytest.mark.parametrize("is_somebodys", [False, True])
def test_charge_covers_the_memory(
    act: Callable[[Core, Peer, int], None], is_somebodys: bool
) -> None:
    core = Core(BrokerPolicies(explain_events=0))
    peer = core.peer()
    peer.client.quota = Quota("alice") if is_somebodys else None
    act(core, peer, 10_000)
    peer.outbox.staged.clear()
    core.broker.events.take()
    # At this number the inner dicts have just grown, so they take most memory.
    count, charged = 190, core.memory.tables_bytes
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000, 20_000 + count):
            act(core, peer, number)
        peer.outbox.staged.clear()
        core.broker.events.take()
        gc.collect()  # clears CPython's free lists, too
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    charged = core.memory.tables_bytes - charged
    assert taken <= charged < 5 * taken
    core.ends()


@pytest.mark.parametrize(
    "text",
    [
        "price > 10",
        "color = 'red' AND price > 10 AND type IN ('a', 'b')",
        "+".join(["-a"] * 340) + " > 1",
        " OR ".join(["a>-b"] * 200),
        " OR ".join(["a IS NULL"] * 200),
        "x LIKE '" + "%a" * 1500 + "'",
        "x LIKE '" + "a_" * 1500 + "%'",
        "x IN (" + ",".join(f"'{number}'" for number in range(400)) + ")",
        "NOT " * 30 + "a",
        "- " * 30 + "a = 1",
    ],
    ids=lambda text: text[:16],
)
def test_a_selector_is_charged_at_least_its_memory(text: str) -> None:
    pytest.importorskip("lark")
    compiler = SelectorCompiler(max_cached_bytes=1 << 20)
    compiler.compile("a = 1")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = [compiler.compile(text + " " * number) for number in range(5)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= sum(selector.cost for selector in found) < 20 * taken


# --- given back -----------------------------------------------------------------------------------


def test_a_selector_is_charged_once_for_all_that_use_it() -> None:
    pytest.importorskip("lark")
    memory, selector = MemoryBudget(0), SelectorCompiler().compile("a = 1")
    assert hold_selector(memory, selector)
    assert hold_selector(memory, selector)
    assert memory.tables_bytes == selector.cost
    release_selector(memory, selector)
    assert memory.tables_bytes == selector.cost
    release_selector(memory, selector)
    assert memory.tables_bytes == selector.users == 0
    memory.force_table(LEAST)
    assert not hold_selector(memory, selector)
    assert selector.users == 0


@pytest.mark.parametrize("ack", ["auto", "client"])
@pytest.mark.parametrize("destination", ["/t", "a.*.>", Q, "/queue/*.x", "#w", "/t,a.*"])
def test_unsubscribe_gives_everything_back(destination: str, ack: str) -> None:
    core = Core()
    peer = core.peer()
    peer.sends("/t")
    peer.subscribes(destination, ack=ack)
    peer.unsubscribes()
    before = core.memory.tables_bytes
    for _ in range(3):
        peer.subscribes(destination, ack=ack, headers=(("selector", "a = 1"),))
        assert core.memory.tables_bytes > before + 768 + 832
        peer.unsubscribes()
        assert core.memory.tables_bytes == before
    core.ends()


def beside_names(core: Core | Bench) -> int:
    """Return the charge for everything but names, of which the broker's events have some, too."""
    return core.memory.tables_bytes - sum(
        destination.cost for destination in core.broker.destinations
    )


def test_a_durable_subscription_is_charged_until_it_is_ended() -> None:
    pytest.importorskip("lark")
    core = Core()
    durable = (*DURABLE, ("selector", "a = 1"))
    first = core.peer(client_id="me")
    first.subscribes("a.*", "d", headers=durable)
    held = beside_names(core)
    first.is_gone()
    kept = beside_names(core)
    assert 2048 + 832 < kept < held
    again = core.peer(client_id="me")
    again.subscribes("a.*", "d", headers=durable)
    assert beside_names(core) == held
    again.unsubscribes("d", headers=DURABLE)
    assert beside_names(core) == 0
    core.ends()


def test_a_durable_subscription_that_came_from_the_store_is_charged_the_same() -> None:
    pytest.importorskip("lark")
    core = DurableBench()
    actor = core.actor()
    actor.subscribes("/topic/a.*", "d", durable_subscription_name="d", selector="a = 1")
    core.turn()
    actor.is_gone()
    core.turn()
    again = core.restarts()
    assert beside_names(again) == beside_names(core) > 2048 + 832


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("destination", "ack", "headers"),
    [
        ("/t", "auto", ()),
        ("/t", "client", ()),
        (Q, "client", ()),
        ("/t", "auto", (("selector", "a = '" + "x" * 3000 + "'"),)),
        ("/t", "client", DURABLE),
        (">", "auto", ()),
    ],
)
def test_a_subscription_that_there_is_no_memory_for_is_refused_and_leaves_nothing(
    destination: str, ack: str, headers: tuple[tuple[str, str], ...]
) -> None:
    pytest.importorskip("lark")
    core = small()
    holder, peer = core.peer(), core.peer(client_id="c")
    holder.subscribes(Q, "q")
    holder.sends("/t")
    core.broker.destinations.make_room(core.memory.tables_room + 1, None)  # none is idle now
    core.memory.force_table(core.memory.tables_room - 500)
    before = core.memory.tables_bytes
    peer.subscribes(destination, ack=ack, headers=headers)
    error = peer.error()
    assert error.get("code") == "memory-limit"
    assert "UNSUBSCRIBE" in (error.get("message") or "")
    assert peer.outbox.closed is CloseReason.MEMORY_LIMIT
    assert core.memory.tables_bytes == before
    assert len(core.broker.subscriptions) == 1
    core.memory.give_table(before - sum(each.cost for each in core.broker.destinations) - 4000)
    holder.is_gone()
    assert len(core.broker.subscriptions) == 0


def test_a_subscribe_that_fails_later_returns_its_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Core()
    peer, other = core.peer(client_id="a"), core.peer(client_id="b")
    monkeypatch.setattr("trio_stomp.broker.topics._durables.MAX_DURABLES", 1)
    peer.subscribes("/t", headers=DURABLE)
    before = core.memory.tables_bytes
    other.subscribes("/t", headers=(*DURABLE, ("selector", "a = 1")))
    assert other.error().get("code") == "too-many-durable-subscriptions"
    assert core.memory.tables_bytes == before
    core.ends()


def test_long_patterns_of_many_clients_share_one_bound() -> None:
    """10,000 patterns would take hundreds of MiB; other clients can still publish."""
    core = small()
    taken, peer = 0, core.peer()
    while peer.outbox.closed is None:
        peer = core.peer()
        for number in range(20):
            peer.subscribes(f"{taken}." + "*." * 30 + "*", f"{number}")
            if peer.outbox.closed is not None:
                assert peer.error().get("code") == "memory-limit"
                break
            taken += 1
    assert 30 < taken < LEAST // (64 * 300)
    assert core.memory.tables_bytes <= LEAST
    other = core.peer()
    other.sends("/t/new", "x")
    assert other.outbox.closed is None
    core.ends()


def test_names_are_forgotten_when_they_fill_the_memory_and_refused_if_none_is_idle() -> None:
    core = small()
    sender = core.peer()
    for number in range(3000):
        sender.sends(f"/t/{number}")
        assert core.memory.tables_bytes <= LEAST
    assert sender.outbox.closed is None
    assert 500 < len(core.broker.destinations) < 1100
    for number in range(3000):
        sender.sends(f"/queue/{number}")
        if sender.outbox.closed is not None:
            break
    assert sender.error().get("code") == "memory-limit"
    assert is_full(core)
    for name in ("DIAG/event/connect", "/queue/monitor"):
        assert core.broker.destinations.own(name).cost  # the broker's own are never refused
    reader = core.peer()
    reader.sends("/queue/0", "more")  # nor are known destinations
    assert reader.outbox.closed is None


# --- ids of duplicates ----------------------------------------------------------------------------


USER = len("x-trio-stomp-user:\n")
"""The line before an id, which names its user."""


def once(peer: Peer, id: str, name: str = "/t", **headers: str) -> None:
    peer.sends(name, headers=(("x-dedup-id", id), *headers.items()))


def test_an_id_that_there_is_no_memory_for_refuses_its_message() -> None:
    """To forget another sooner, or this one, would take a message twice."""
    core = small()
    reader, sender = core.peer(), core.peer()
    reader.subscribes("/t")
    for number in range(100):
        once(sender, f"{number:03}" + "x" * 16_000)
        if sender.outbox.closed is not None:
            break
    assert sender.error().get("code") == "memory-limit"
    assert 60 < number < 66
    assert len(reader.bodies()) == number
    other = core.peer()
    once(other, "000" + "x" * 16_000)  # still known
    other.sends("/t")
    assert other.outbox.closed is None
    assert len(reader.bodies()) == number + 1
    core.ends()


@pytest.mark.parametrize("id", ["a", "ü" * 3000])
def test_the_dedup_window_bounds_the_charge_for_ids(id: str) -> None:
    core = Core(book={"/t": DestinationPolicy(dedup_window=3)})
    sender = core.peer()
    sizes = []
    for number in range(6):
        once(sender, f"{number}{id}")
        sizes.append(core.memory.tables_bytes)
    assert sizes[1] - sizes[0] == 256 + (USER + 2 if id == "a" else 4 * (USER + 3001))
    assert sizes[2] == sizes[3] == sizes[5]


def test_scheduled_ids_are_charged_too() -> None:
    core = small()
    sender = core.peer()
    core.memory.force_table(core.memory.tables_room - 2000)
    once(sender, "x" * 2000, AMQ_SCHEDULED_DELAY="1000")
    assert sender.error().get("code") == "memory-limit"
    assert core.memory.used_bytes == core.broker.scheduler.waiting == 0


def id_bytes(core: DurableBench) -> int:
    """Return the charge for the ids of a queue, all of them one byte long."""
    destination = core.broker.destinations.find_current(Q)
    return (USER + 257) * len(destination.seen) if destination is not None else 0


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_ids_that_are_withdrawn_are_given_back(is_forgotten: bool) -> None:
    """Even if their destination was forgotten meanwhile, with all that it knew."""
    core = DurableBench(book={Q: DestinationPolicy(dedup_window=2)}, is_prompt=False)
    for id in "12":
        core.actor().sends(Q, x_dedup_id=id, persistent="true")
        core.turn()
        core.answers()
    assert beside_names(core) == id_bytes(core) == 2 * (USER + 257)
    core.actor().sends(Q, x_dedup_id="3", persistent="true")
    core.turn()
    assert beside_names(core) == id_bytes(core) == 2 * (USER + 257)
    if is_forgotten:
        destination = core.broker.destinations.open(Q)
        core.broker.destinations.forget(destination)
        core.memory.give_table(destination.cost)
        destination.cost = 0
        assert beside_names(core) == 0
    core.fails()
    assert beside_names(core) == (0 if is_forgotten else 2 * (USER + 257))


# --- message groups -------------------------------------------------------------------------------


def grouped(bench: Bench, count: int, size: int, ack: str = "client-individual") -> int:
    """Send a number of groups to two consumers, and return how many the broker remembers."""
    sender, readers = bench.actor(), [bench.actor(), bench.actor()]
    for reader in readers:
        reader.subscribes(Q, ack=ack, x_prefetch_count="1000")
    for number in range(count):
        sender.sends(Q, message_group=f"{number:05}" + "g" * (size - 5))
        bench.turn()
    return len(bench.queue(Q).groups.owners)


def test_groups_are_charged_and_given_back_with_their_consumers() -> None:
    bench = Bench()
    assert grouped(bench, 10, 100) == 10
    before = bench.memory.tables_bytes
    one = bench.peers[1]
    groups = [
        name for name, owner in bench.queue(Q).groups.owners.items() if owner is one.consumer()
    ]
    cost = one.client.subscriptions["0"].cost
    names = sum(destination.cost for destination in bench.broker.destinations)
    one.is_gone()
    # Events that tell of it have names of their own.
    result = sum(destination.cost for destination in bench.broker.destinations) - names
    assert bench.memory.tables_bytes == before - cost - len(groups) * 356 + result
    bench.ends()


def test_an_exclusive_consumer_takes_the_groups_of_others_away() -> None:
    bench = Bench()
    assert grouped(bench, 10, 100) == 10
    before = bench.memory.tables_bytes
    actor = bench.actor()
    actor.subscribes(Q, exclusive="true", x_priority="9")
    cost = actor.client.subscriptions["0"].cost
    assert bench.queue(Q).groups.owners == {}
    assert bench.memory.tables_bytes == before + cost - 10 * 356
    bench.ends()


def test_the_oldest_group_goes_when_there_are_too_many() -> None:
    bench = Bench()
    assert grouped(bench, MAX_GROUPS + 6, 100, "auto") == MAX_GROUPS
    assert next(iter(bench.queue(Q).groups.owners))[:5] == "00006"
    bench.ends()


def test_without_memory_the_oldest_group_ends_and_messages_are_delivered() -> None:
    bench = Bench(memory=MemoryBudget(20 * LEAST))
    bench.memory.force_table(9 * LEAST)
    assert 55 < grouped(bench, 100, 16_000) < 66
    assert sum(len(actor.reads()) for actor in bench.peers[1:]) == 100
    bench.memory.force_table(bench.memory.tables_room)
    bench.queue(Q).groups.keep_only(())
    bench.memory.force_table(bench.memory.tables_room)
    bench.peers[0].sends(Q, message_group="new")
    assert sum(len(actor.reads()) for actor in bench.peers[1:]) == 1
    assert bench.queue(Q).groups.owners == {}


# --- selectors are asked once ---------------------------------------------------------------------


def test_a_selector_is_evaluated_once_for_all_its_subscribers() -> None:
    pytest.importorskip("lark")

    def cost(count: int) -> int:
        core = Core()
        sender = core.peer()
        text = " OR ".join(["x LIKE '%a%a%b'"] * 100)
        for number in range(count):
            core.peer().subscribes("/t", f"{number}", headers=(("selector", text),))
        return calls_of(lambda: sender.sends("/t", headers=(("x", "a" * 100),)))

    one, many = cost(1), cost(50)
    assert many - one < 49 * 20
    assert one > 1000


def test_last_query_is_neither_kept_alive_nor_confused() -> None:
    pytest.importorskip("lark")
    core = Core()
    reader, sender = core.peer(), core.peer()
    reader.subscribes("/t", headers=(("selector", "x = 'a'"),))
    for text in "abaabb":
        sender.sends("/t", text, headers=(("x", text),))
    assert reader.bodies() == ["a", "a", "a"]
    selector = reader.client.subscriptions["0"].selector
    assert selector is not None
    assert selector._head is None
    assert core.broker.turns.ends == {}
    core.ends()
