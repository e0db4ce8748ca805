"""Durable messages are refused while the store does not answer; all others are accepted."""

from collections.abc import Iterator

import pytest

from tests.support.core import Actor, pairs, run_of
from tests.support.durable_fakes import DurableBench

Q = "/queue/q"
TOPIC = "/topic/t"
NEW, DOUBT = "it does not answer", "it may be stored"


@pytest.fixture
def core() -> Iterator[DurableBench]:
    """Yield a core whose store answers on request. It must be empty at the end."""
    core = DurableBench(book={}, is_prompt=False)
    yield core
    for end in (core.turn, core.ends):
        end()
        core.turn()
        while core.turns:
            core.answers()
    assert core.memory.kept_bytes == core.log.pending_bytes == 0


@pytest.fixture
def waiting(core: DurableBench) -> Actor:
    """A producer to which the store gave no answer."""
    actor = core.actor()
    stores(actor, "a", receipt=b"1")
    core.turn()
    core.broker.refuse_durable(NEW, DOUBT, core.now)
    return actor


def stores(actor: Actor, *bodies: str, to: str = Q, receipt: bytes | None = None) -> None:
    receipts = [] if receipt is None else [(len(bodies), receipt)]
    actor.sends(to, *bodies, persistent="true", receipts=receipts)


def test_waiting_sender_learns_that_its_message_may_be_stored(
    core: DurableBench, waiting: Actor
) -> None:
    error = waiting.error()
    found = [error.get(name) for name in ("code", "message", "receipt-id")]
    assert found == ["storage", DOUBT, "1"]
    core.answers()
    assert core.waiting(Q) == ["a"]


@pytest.mark.usefixtures("waiting")
def test_durable_messages_are_refused_until_the_store_answers(core: DurableBench) -> None:
    sender, composite, other = core.actor(), core.actor(), core.actor()
    stores(sender, "b", receipt=b"2")
    assert (sender.error().get("message"), sender.client.awaited) == (NEW, 0)
    stores(composite, "b", to=f"{TOPIC},{Q}")
    assert composite.error().get("code") == "storage"
    core.answers()
    stores(other, "c", receipt=b"3")
    core.appends()
    assert [frame.command for frame in other.frames()] == ["RECEIPT"]
    assert core.waiting(Q) == ["a", "c"]


@pytest.mark.usefixtures("waiting")
def test_a_transaction_with_a_stored_message_is_refused_as_a_whole(core: DurableBench) -> None:
    reader, sender, other = core.reader(TOPIC), core.actor(), core.actor()
    sender.commits(run_of(TOPIC, ["seen"]), run_of(Q, ["b"], pairs({"persistent": "true"})))
    assert sender.error().get("message") == NEW
    other.commits(run_of(TOPIC, ["passes"]))
    assert reader.bodies() == ["passes"]


@pytest.mark.usefixtures("waiting")
def test_topics_and_temporary_queues_still_get_messages(core: DurableBench) -> None:
    reader, sender = core.reader(TOPIC), core.actor()
    sender.sends(TOPIC, "news")
    sender.sends("/temp-queue/x", "answer", persistent="true")
    assert reader.bodies() == ["news"]
    assert "ERROR" not in [frame.command for frame in sender.frames()]


def test_client_waiting_for_the_receipt_of_an_ack_keeps_waiting(core: DurableBench) -> None:
    consumer, frames = core.unacknowledged(Q, "a")
    consumer.acks(*frames, receipt=b"acked")
    gone = core.actor()
    stores(gone, "b")
    core.turn()
    core.broker.refuse_durable(NEW, DOUBT, core.now)
    core.broker.refuse_durable(NEW, DOUBT, core.now)
    assert [frame.command for frame in gone.frames()] == ["ERROR"]
    assert consumer.frames() == []
    core.answers()
    assert [frame.get("receipt-id") for frame in consumer.frames("RECEIPT", "ERROR")] == ["acked"]
