"""Late subscribers: first the parked messages, in order, at their own pace (SEEDS A6, E)."""

from collections.abc import Iterator

import pytest

from tests.support.core import AMPLE, Core, Peer, numbered, ttl_core
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies, MemoryBudget

TTL = 10.0


def late(core: Core, destination: str, id: str = "0", *, room: int = AMPLE) -> Peer:
    return core.reader(destination, id, room=room)


# --- the seed's rules ---------------------------------------------------------------------------


@pytest.fixture
def core() -> Iterator[Core]:
    """Yield a core that must be empty at the end of the test."""
    core = ttl_core()
    yield core
    core.ends()


def test_a_late_subscriber_gets_the_backlog_before_new_messages(core: Core):
    publisher = core.peer()
    publisher.sends("/t/a", "0", "1", headers=(("foo", "bar"),))
    publisher.is_gone()  # parked messages survive their sender
    reader = late(core, "/t/a", "late")
    core.peer().sends("/t/a", "2")
    assert reader.bodies("late") == ["0", "1", "2"]
    frame = reader.messages()[0]
    assert (frame.get("foo"), frame.get("destination")) == ("bar", "/t/a")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_revived_message_is_encoded_for_its_reader(core: Core, version: str):
    core.peer().sends("a", "x", headers=(("k", "a:b"), ("lf", "1\n2")))
    reader = core.peer(version)
    reader.subscribes("a")
    (frame,) = reader.messages()
    assert frame.get("k") == "a:b"
    assert frame.get("lf") == (None if version == "1.0" else "1\n2")


@pytest.mark.parametrize("destination", ["/t/", "/t/x", "/t/x/y"])
def test_the_same_grammar_for_parked_and_new_messages_empty_rest_included(destination: str):
    core = ttl_core()
    core.peer().sends(destination, "parked")
    reader = late(core, "/t/*")
    core.peer().sends(destination, "new")
    assert [frame.get("destination") for frame in reader.messages()] == [destination] * 2


def test_without_a_ttl_nothing_is_parked():
    core = Core()
    core.peer().sends("a", "0", "1")
    assert core.broker.stale.size == 0
    assert core.broker.fan_out.drops.no_subscriber == 2
    assert late(core, "a").bodies() == []
    core.now += 1e9
    core.peer().sends("a", "for ever", received_at=0.0)
    assert core.broker.fan_out.drops.expired == 0


# --- order ----------------------------------------------------------------------------------------


def test_several_destinations_are_merged_by_arrival(core: Core):
    publisher = core.peer()
    expected = []
    for number in range(12):
        body = f"m{number}"
        publisher.sends(f"a.{number * 7 % 5}", body, body + "'")
        expected += [body, body + "'"]
    publisher.sends("b", "not asked for")
    assert late(core, "a.*").bodies() == expected
    assert core.broker.stale.size == 1


def test_a_slow_late_subscriber_gets_parked_and_new_messages_in_order(core: Core):
    publisher = core.peer()
    for number in range(4):
        publisher.sends(f"a{number % 2}", f"p{number}")
    reader = late(core, "a*", room=2)
    assert reader.bodies() == ["p0", "p1"]
    publisher.sends("a0", "n0")
    publisher.sends("a1", "n1", "n1'")
    assert reader.bodies() == ["p0", "p1"]
    assert core.memory.used_bytes > core.broker.stale.bytes
    reader.outbox.write(core.now)
    core.broker.writable(reader.client, core.now)
    core.broker.end_turn(core.now)
    assert reader.bodies() == ["p0", "p1", "p2", "p3"]
    publisher.sends("a0", "n2")
    reader.drains()
    publisher.sends("a1", "n3")
    assert reader.bodies() == [*numbered("p", 4), "n0", "n1", "n1'", "n2", "n3"]
    assert core.memory.used_bytes == 0
    assert reader.client.catching_up == 0


def test_merging_continues_when_the_first_message_expires_meanwhile(core: Core):
    publisher = core.peer()
    publisher.sends("a.x", "0")
    publisher.sends("a.x", "1")  # expires before it is asked for
    core.now += 5
    publisher.sends("a.y", "2")
    publisher.sends("a.x", "3")
    reader = late(core, "a.*", room=1)
    assert reader.bodies() == ["0"]
    core.now += 5
    reader.drains()
    assert reader.outbox.expired == 1  # 0 waited too long to be written
    assert reader.bodies() == ["2", "3"]


def test_two_revivals_of_one_client_share_its_room(core: Core):
    publisher = core.peer()
    for number in range(3):
        publisher.sends("a", f"a{number}")
        publisher.sends("b", f"b{number}")
    reader = late(core, "a", "a", room=1)
    reader.subscribes("b", "b")
    assert reader.client.catching_up == 2
    reader.drains()
    assert reader.bodies("a") == ["a0", "a1", "a2"]
    assert reader.bodies("b") == ["b0", "b1", "b2"]
    assert reader.client.catching_up == 0


# --- expiry ---------------------------------------------------------------------------------------


def test_message_that_expired_after_reading_is_not_delivered_but_confirmed(core: Core):
    reader, publisher = late(core, "a"), core.peer()
    publisher.sends("a", "x", "y", received_at=core.now - TTL, receipts=[(2, b"r")])
    publisher.sends("b", "z", received_at=core.now - TTL)
    publisher.sends("a", "in time", received_at=core.now - TTL + 0.001)
    assert reader.bodies() == ["in time"]
    assert [frame.get("receipt-id") for frame in publisher.frames("RECEIPT")] == ["r"]
    assert core.broker.stale.size == 0
    assert core.broker.fan_out.drops.expired == 3
    assert core.broker.destinations.open("a").expired == 2


@pytest.mark.parametrize("sweeps", [True, False])
def test_message_parked_too_long_is_not_delivered(core: Core, sweeps: bool):
    publisher = core.peer()
    publisher.sends("a", "old", received_at=core.now - 1)
    publisher.sends("a", "young")
    publisher.sends("b", "old too", received_at=core.now - 1)
    core.now += TTL - 0.5
    if sweeps:
        core.broker.tick(core.now)
        assert core.broker.stale.size == 1
    assert late(core, "a").bodies() == ["young"]
    assert late(core, "b").bodies() == []
    assert core.broker.stale.statistics.expired == 2
    assert core.memory.used_bytes == 0


def test_message_that_expires_during_catch_up_is_not_delivered(core: Core):
    publisher = core.peer()
    for number in range(3):
        publisher.sends("a", f"p{number}")
    reader = late(core, "a", room=1)
    core.now += 1
    publisher.sends("a", "waits")
    core.now += TTL - 0.5
    publisher.sends("a", "alive")
    reader.outbox.written.append(b"")
    core.now += 1
    reader.outbox.write(core.now)
    core.broker.writable(reader.client, core.now)
    core.broker.end_turn(core.now)
    assert reader.bodies() == ["alive"]
    assert core.broker.stale.statistics.expired == 2
    assert core.broker.fan_out.drops.expired == 1
    destination = core.broker.destinations.open("a")
    assert (destination.expired, destination.delivered) == (
        3,
        2,
    )  # p0 was handed over before it expired
    assert core.memory.used_bytes == 0


def test_a_destination_that_expires_under_a_revival_is_skipped(core: Core):
    publisher = core.peer()
    publisher.sends("a.x", "x0")
    publisher.sends("a.y", "y0")
    core.now += 5
    publisher.sends("a.z", "z0")
    publisher.sends("a.z", "z1")
    reader = late(core, "a.*", room=1)
    core.passes(5)  # y0 is swept while it is promised
    reader.drains()
    assert reader.bodies() == ["z0", "z1"]
    assert core.memory.used_bytes == 0


# --- leaving in the middle ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["unsubscribe", "disconnect", "lost", "error"])
def test_leaving_during_catch_up_leaves_the_rest_to_the_next(core: Core, how: str):
    publisher = core.peer()
    for number in range(4):
        publisher.sends(f"a{number % 2}", f"p{number}")
    reader = late(core, "a*", room=1)
    publisher.sends("a0", "waiting", "waiting too")
    if how == "unsubscribe":
        reader.unsubscribes()
    elif how == "disconnect":
        reader.leaves()
    elif how == "lost":
        reader.is_gone()
    else:
        reader.sends("no*")
    assert reader.client.catching_up == 0
    assert reader.bodies() == ["p0"]
    # The messages that waited for the reader are counted as its own drops.
    assert core.broker.fan_out.drops.backlog_abandoned == 2
    assert core.broker.destinations.open("a0").dropped == 2
    assert core.broker.fan_out.delivered == 1
    assert core.memory.used_bytes == core.broker.stale.bytes
    publisher.sends("a0", "p4")
    assert late(core, "a*").bodies() == ["p1", "p2", "p3", "p4"]


def test_a_closed_outbox_keeps_its_claim_only_until_the_client_is_gone(core: Core):
    publisher = core.peer()
    publisher.sends("a", "p0")
    broken = core.peer()
    broken.outbox.close(CloseReason.CONNECTION_LOST)
    broken.subscribes("a")
    assert late(core, "a").bodies() == []
    broken.is_gone()
    assert late(core, "a").bodies() == ["p0"]


# --- bounds ---------------------------------------------------------------------------------------


def backlog_core(policy: str, **policies: int) -> tuple[Core, Peer, Peer]:
    """A publisher, and a reader that is being revived."""
    core = ttl_core(slow_consumer=policy, **policies)
    publisher = core.peer()
    publisher.sends("a", "p0")
    publisher.sends("a", "p1")
    return core, publisher, late(core, "a", room=1)


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_messages_that_wait_for_a_catch_up_are_bounded_and_the_newest_are_dropped(policy: str):
    core, publisher, reader = backlog_core(policy, max_backlog_bytes=1024)
    for number in range(10):
        publisher.sends("a", f"{number}" * 200)
    waiting = core.memory.used_bytes - core.broker.stale.bytes
    assert 800 < waiting <= 1024
    reader.drains()
    assert reader.bodies() == ["p0", "p1", *(f"{number}" * 200 for number in range(4))]
    assert (
        core.broker.fan_out.drops.slow_consumer == core.broker.destinations.open("a").dropped == 6
    )
    assert core.broker.fan_out.delivered == 6
    publisher.sends("a", "caught up")
    assert reader.bodies()[-1] == "caught up"
    core.ends()


def test_the_bound_is_exact():
    core, publisher, reader = backlog_core("drop-newest", max_backlog_bytes=1024)
    publisher.sends("a", "x")
    one = core.memory.used_bytes - core.broker.stale.bytes  # a tail and a body of one byte
    digits = len("content-length:1") - len("content-length:100")
    publisher.sends("a", "y" * (1024 - 2 * one + 1 + digits))
    assert core.memory.used_bytes - core.broker.stale.bytes == 1024
    publisher.sends("a", "z")
    assert core.broker.fan_out.drops.slow_consumer == 1
    reader.is_gone()
    assert core.memory.used_bytes == core.broker.stale.bytes


@pytest.mark.parametrize("limit", ["backlog", "budget"])
def test_a_subscriber_with_too_much_waiting_for_its_catch_up_is_disconnected(limit: str):
    core, publisher, reader = backlog_core("disconnect", max_backlog_bytes=2048)
    if limit == "budget":
        core.memory.limit_bytes = core.memory.used_bytes + 300
    for _ in range(3):
        publisher.sends("a", "x" * (800 if limit == "backlog" else 100))
    assert reader.error().get("code") == "slow-consumer"
    assert reader.client.catching_up == 0
    assert core.memory.used_bytes == core.broker.stale.bytes
    core.memory.limit_bytes = AMPLE
    assert late(core, "a").bodies()[0] == "p1"  # what was promised to it is free at once
    reader.is_gone()
    core.ends()


def test_an_outbox_that_refuses_a_revived_run_ends_its_revival(core: Core):
    publisher = core.peer()
    publisher.sends("a", "p0")
    publisher.sends("a", "p1")
    reader = core.peer()
    reader.outbox.is_jammed = True  # room, but the budget is spent
    reader.subscribes("a", receipt=b"r")
    assert reader.error().get("code") == "slow-consumer"
    assert reader.client.catching_up == 0
    assert [event.name for event in core.broker.events.take()] == []
    assert core.broker.fan_out.drops.slow_consumer == 1
    assert core.broker.fan_out.delivered == 0
    assert late(core, "a").bodies() == ["p1"]
    reader.is_gone()


def test_full_outbox_during_catch_up_is_reported_immediately():
    core, _, reader = backlog_core("drop-newest")
    watcher = late(core, "DIAG/event/*")
    core.events()
    reader.outbox.is_jammed = True
    reader.drains()
    assert [name for name, _, _ in core.events()] == ["slow", "drop"]
    assert watcher.bodies() == []
    assert core.broker.fan_out.slow == []
    reader.outbox.is_jammed = False
    assert reader.bodies() == ["p0"]


# --- a million ------------------------------------------------------------------------------------


def test_a_million_parked_messages_stay_in_bounds_and_come_back():
    limit = 512 * 1024 * 1024
    core = Core(BrokerPolicies(ttl_ms=10_000), MemoryBudget(limit))
    publisher = core.peer()
    bodies = [b"x"] * 100_000
    for _ in range(11):
        publisher.sends("big", *bodies)
    stale = core.broker.stale
    assert stale.size == 1_000_000
    assert stale.statistics.dropped == core.broker.destinations.open("big").dropped == 100_000
    assert stale.bytes == core.memory.used_bytes < 256 * 1024 * 1024
    unrelated = late(core, "other*")
    assert unrelated.client.catching_up == 0
    reader = late(core, "b*", room=1)
    assert core.broker.fan_out.delivered == 100_000  # no more than there was room for
    assert stale.size == 900_000
    reader.is_gone()
    core.ends()
