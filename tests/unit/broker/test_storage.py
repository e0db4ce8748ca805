"""Queues and the store: stored messages, the order of visibility, and dead letters."""

from collections.abc import Iterator, Sequence

import pytest

from tests.support.core import Actor, numbered, run_of, texts
from tests.support.durable_fakes import DurableBench, answered
from trio_stomp.broker import DestinationPolicy
from trio_stomp.store import Atomic, Done, Keep, MemoryStore, Put, Record

Q, DLQ = "/queue/q", "/queue/DLQ.q"


def made(*, is_prompt: bool = True, **fields: object) -> DurableBench:
    book = {Q: DestinationPolicy(**fields)} if fields else {}  # type: ignore[arg-type]
    return DurableBench(book=book, is_prompt=is_prompt)


def stores(actor: Actor, *bodies: str, to: str = Q, **headers: str) -> None:
    actor.sends(to, *bodies, persistent="true", **headers)  # type: ignore[arg-type]


def left(core: DurableBench, name: str = Q) -> list[str]:
    """Return the messages of a queue after a restart."""
    again = core.restarts()
    reader = again.reader(name, ack="client")
    return reader.bodies()


def flat(records: Sequence[Record]) -> list[type]:
    return [type(record) for record in records]


@pytest.fixture
def core() -> Iterator[DurableBench]:
    """Yield a core that must be empty at the end of the test."""
    core = made(is_prompt=False)
    yield core
    core.ends()


def test_only_durable_messages_are_written() -> None:
    core = made(is_prompt=False)
    core.actor().sends(Q, "a")
    core.turn()
    assert core.turns == []
    stores(core.actor(), "b")
    core.turn()
    (turn,) = core.turns
    named, put = turn.records
    assert isinstance(named, Keep)  # by what the store's messages are named: once for a store
    assert isinstance(put, Put)
    assert (put.place, put.bodies, put.transient) == (f"queue:{Q}", [b"b"], False)
    stores(core.actor(), "c")
    core.turn()
    assert flat(core.turns[-1].records) == [Put]


@pytest.mark.parametrize(("persistent", "survives"), [("always", True), ("never", False)])
def test_the_policy_decides_which_messages_survive(persistent: str, survives: bool) -> None:
    core = made(persistent=persistent)
    core.actor().sends(Q, "plain")
    stores(core.actor(), "asked")
    core.turn()
    assert left(core) == (["plain", "asked"] if survives else [])


def test_temporary_destinations_are_never_stored() -> None:
    core = DurableBench(book={">": DestinationPolicy(persistent="always")}, is_prompt=False)
    actor = core.reader("/temp-queue/a")
    stores(actor, "a", to="/temp-queue/a")
    stores(actor, "b", to="/temp-topic/b")
    assert texts(actor.frames()) == ["a"]
    assert core.turns == []
    core.ends()


def test_acknowledged_message_is_gone_after_a_restart() -> None:
    core = made()
    actor = core.reader(Q, ack="client-individual")
    stores(actor, "a", "b", "c")
    first, _, third = actor.reads()
    actor.acks(first, third)
    core.turn()
    assert left(core) == ["b"]


def test_deliveries_are_remembered() -> None:
    core = made()
    actor = core.reader(Q, ack="client")
    stores(actor, "a")
    for _ in range(2):
        (got,) = actor.reads()
        actor.nacks(got)
    core.turn()
    actor.reads()
    again = core.restarts()
    reader = again.reader(Q, ack="client")
    (got,) = reader.reads()
    assert (got.get("redelivered"), got.get("delivery-count")) == ("true", "3")
    assert not again.log.deliveries


def test_a_poisoned_message_dies_over_restarts() -> None:
    core = made(max_redeliveries=2, backoff_s=())
    stores(core.actor(), "a")
    for _ in range(3):
        reader = core.reader(Q, ack="client")
        (got,) = reader.reads()
        reader.nacks(got)
        reader.unsubscribes()
        core.turn()
        core = core.restarts()
    assert left(core, DLQ) == ["a"]
    assert left(core) == []


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_dead_letter_is_moved_as_a_whole(is_crash: bool) -> None:
    core = made(is_prompt=False)
    reader, (got,) = core.unacknowledged(Q, "a")
    reader.nacks(got, requeue=False)
    core.turn()
    (turn,) = core.turns
    (record,) = turn.records
    assert isinstance(record, Atomic)
    assert flat(list(record.records)) == [Put, Done]
    if is_crash:
        assert (left(core), left(core, DLQ)) == (["a"], [])
        return
    core.fails()
    answered(core)
    assert (left(core), left(core, DLQ)) == ([], ["a"])
    core.ends()


def test_a_dead_letter_is_not_seen_before_it_is_safe(core: DurableBench) -> None:
    undertaker = core.reader(DLQ)
    reader, (got,) = core.unacknowledged(Q, "a")
    reader.nacks(got, requeue=False)
    assert undertaker.frames() == []
    answered(core)
    assert texts(undertaker.frames()) == ["a"]
    answered(core)


def test_dead_letters_keep_their_place_among_messages_sent_there() -> None:
    core = made(is_prompt=False, dead_letter="/queue/other")
    reader, (got,) = core.unacknowledged(Q, "dead")
    stores(core.actor(), "sent", to="/queue/other")
    reader.nacks(got, requeue=False)
    answered(core)
    assert core.waiting("/queue/other") == ["sent", "dead"]
    core.ends()


def test_expired_message_is_removed_from_the_store() -> None:
    core = made(dead_letter_expired=True)
    stores(core.actor(), "a", ttl="1000")
    core.turn()
    assert core.waiting(Q) == ["a"]
    core.passes(2)
    assert (left(core), left(core, DLQ)) == ([], ["a"])
    core.ends()


def test_message_that_expired_meanwhile_is_not_delivered_after_a_restart() -> None:
    core = made()
    stores(core.actor(), "short", "gone", ttl="1000")
    stores(core.actor(), "long", ttl="100000")
    core.turn()
    core.now += 2
    assert left(core) == ["long"]


@pytest.mark.parametrize(
    ("overflow", "there", "dead"),
    [
        ("reject", ["0", "1"], []),
        ("drop-newest", ["0", "1"], []),
        ("drop-oldest", ["2", "3"], []),
        ("dead-letter", ["2", "3"], ["0", "1"]),
    ],
)
@pytest.mark.parametrize("is_restarted", [True, False])
def test_overflow_holds_for_stored_messages(
    overflow: str, there: list[str], dead: list[str], is_restarted: bool
) -> None:
    core = made(overflow=overflow, max_messages=2)
    stores(core.actor(), "0", "1")
    core.turn()
    if is_restarted:
        core = core.restarts()
        core.turn()
    for body in ("2", "3"):
        stores(core.actor(), body)
        core.turn()
    assert (left(core), left(core, DLQ)) == (there, dead)
    core.ends()


def test_messages_on_their_way_are_counted() -> None:
    core = made(is_prompt=False, max_messages=2)
    stores(core.actor(), "0", "1")
    late = core.actor()
    stores(late, "2")
    assert late.error().get("code") == "queue-full"
    assert core.queue(Q).message_count == core.queue(Q).arriving == 2
    core.fails()
    assert core.queue(Q).message_count == core.queue(Q).size == 0
    core.ends()


def commit(core: DurableBench) -> Actor:
    """A transaction that moves a message, adds one, and publishes one."""
    worker, (got,) = core.unacknowledged(Q, "a")
    watcher = core.reader("/topic/t")
    worker.commits(
        run_of("/queue/b", ["b"], (("persistent", "true"),)),
        worker.acked(got),
        run_of("/queue/c", ["c"]),
        run_of("/topic/t", ["t"]),
    )
    assert worker.frames() == watcher.frames() == []
    return watcher


def test_a_transaction_is_seen_as_a_whole_when_it_is_safe(core: DurableBench) -> None:
    watcher = commit(core)
    worker = core.peers[0]
    assert core.waiting("/queue/b") == core.waiting("/queue/c") == []
    (turn,) = core.turns
    assert flat(list(turn.records)) == [Atomic]
    core.answers()
    (receipt,) = worker.frames()
    assert (receipt.get("receipt-id"), receipt.get("stored")) == ("done", "memory")
    assert texts(watcher.frames()) == ["t"]
    assert core.waiting("/queue/b") == ["b"]
    assert core.waiting("/queue/c") == ["c"]
    assert core.turns == []
    assert [left(core, name) for name in (Q, "/queue/b", "/queue/c")] == [[], ["b"], ["c"]]


@pytest.mark.parametrize("is_crash", [True, False])
def test_nothing_of_a_transaction_holds_if_not_all_of_it_does(is_crash: bool) -> None:
    core = made(is_prompt=False)
    watcher = commit(core)
    worker = core.peers[0]
    if not is_crash:
        core.fails()
        assert worker.error().get("code") == "storage"
        answered(core)
        assert watcher.frames() == []
        assert core.waiting(Q) == ["a"]
        assert core.waiting("/queue/b") == core.waiting("/queue/c") == []
        core.ends()
    assert [left(core, name) for name in (Q, "/queue/b", "/queue/c")] == [["a"], [], []]


def test_a_nack_in_a_transaction_is_done_when_that_is_safe(core: DurableBench) -> None:
    worker, (first, _) = core.unacknowledged(Q, "a", "b", ack="client-individual")
    worker.commits(
        worker.acked(first, negative=True, requeue=False),
        run_of(Q, ["c"], (("persistent", "true"),)),
    )
    core.turn()
    assert core.queue(Q).unacked == 2
    answered(core)
    assert left(core) == ["b", "c"]
    assert left(core, DLQ) == ["a"]


@pytest.mark.parametrize("overflow", ["dead-letter", "drop-oldest"])
def test_a_withdrawn_transaction_pushes_out_nothing(overflow: str) -> None:
    core = made(is_prompt=False, max_messages=1, overflow=overflow)
    stores(core.actor(), "old")
    answered(core)
    worker = core.actor()
    worker.commits(run_of(Q, ["new"], (("persistent", "true"),)))
    core.turn()
    core.fails()
    answered(core)
    assert (left(core), left(core, DLQ)) == (["old"], [])
    core.ends()


def test_messages_to_a_queue_that_has_ended_meanwhile_are_given_up(core: DurableBench) -> None:
    sender, reader = core.actor(), core.actor()
    durable = {"durable_subscription_name": "d"}
    reader.subscribes("/topic/t", ack="client", **durable)
    answered(core)
    stores(sender, "a", to="/topic/t")
    core.turn()
    core.broker.bindings.end_durable(next(iter(core.broker.bindings.durables)), core.now)
    reader.is_gone()
    answered(core)
    assert core.memory.kept_bytes == 0
    assert core.store.statistics().live_messages == 0


def test_a_shared_subscription_that_was_ended_stores_nothing_more() -> None:
    core = made()
    one, other, sender = core.actor(), core.actor(), core.actor()
    durable = {"durable_subscription_name": "d"}
    one.subscribes("/topic/t", ack="client", **durable)
    other.subscribes("/topic/t", ack="client", **durable)
    core.turn()
    other.unsubscribes(headers=(("durable-subscription-name", "d"),))
    core.turn()
    other.subscribes("/topic/t", ack="client", selector="color = 'red'", **durable)
    core.turn()
    stores(sender, "a", to="/topic/t", color="red")
    assert one.bodies() == other.bodies() == ["a"]
    again = core.restarts()
    assert again.failures == []
    (binding,) = again.broker.bindings.durables
    assert binding.queue.message_count == 1


def test_a_message_of_another_dialect_is_delivered_without_its_options() -> None:
    core = made()
    stores(core.actor(), "a", "b", priority="7")
    core.turn()
    again = core.restarts()

    def refuse(head: object) -> None:
        from trio_stomp.base import ProtocolError

        raise ProtocolError("wildcard-in-send", "no")

    assert again.broker.storage is not None
    again.broker.storage.options_of = refuse  # type: ignore[assignment]
    reader = again.reader(Q)
    assert reader.bodies() == ["a", "b"]


def test_a_message_whose_headers_cannot_be_read_hides_no_other() -> None:
    store = MemoryStore()
    core = DurableBench(book={}, store=store)
    stores(core.actor(), "a")
    core.turn()
    lane = store._lanes[f"queue:{Q}", 4]
    held = next(iter(lane.values()))
    object.__setattr__(held.put, "head", b"no colon\n")
    stores(core.actor(), "b")
    core.turn()
    again = core.restarts()
    reader = again.reader(Q)
    assert reader.bodies() == ["b"]
    assert again.broker.storage is not None
    assert again.broker.storage.lost == 1
    assert again.queue(Q).message_count == again.queue(Q).size == 0


def test_header_blocks_are_remembered_within_bounds() -> None:
    core = made()
    sender = core.actor()
    for number in range(600):
        stores(sender, f"{number}", number=f"{number}")
    core.turn()
    again = core.restarts()
    reader = again.reader(Q)
    assert reader.bodies() == numbered("", 600)
    assert again.broker.storage is not None
    assert 0 < len(again.broker.storage._heads) <= 256


def test_an_ack_that_none_waits_for_may_be_in_a_transaction() -> None:
    core = made()
    worker = core.reader(Q)
    stores(worker, "a")
    (got,) = worker.reads()
    worker.commits(worker.acked(got.get("message-id") or ""), run_of("/queue/b", ["b"]))
    (receipt,) = worker.frames()
    assert receipt.get("receipt-id") == "done"
    assert core.waiting("/queue/b") == ["b"]
    core.ends()


@pytest.mark.parametrize(("size", "is_kept"), [(100, True), (2000, False)])
def test_long_header_blocks_are_not_kept_a_second_time(size: int, is_kept: bool) -> None:
    """Neither as stored, nor for other runs, because they would be charged to nobody."""
    core = DurableBench(book={})
    run = run_of("/queue/a", ["m"], (("persistent", "true"), ("x", "h" * size)))
    core.actor().does(run)
    core.turn()
    assert (run.head.stored is not None) is is_kept
    core = core.restarts()
    reader = core.reader("/queue/a")
    (frame,) = reader.reads()
    assert frame.get("x") == "h" * size
    assert core.broker.storage is not None
    assert len(core.broker.storage._heads) == is_kept
    assert core.memory.used_bytes == 0
