"""Moving a store by export and import, and compacting it, keeps the names of messages."""

from pathlib import Path

import pytest

from tests.support.core import Actor
from tests.support.durable_fakes import DurableBench
from tests.support.stores import ignore
from trio_stomp.broker import DestinationPolicy
from trio_stomp.store import JournalStore, SqlStore, Store, compact, export_from, import_to

Q = "/queue/q"


def store_at(target: str) -> Store:
    return SqlStore(target) if "://" in target else JournalStore(target)


def bench_on(target: str) -> DurableBench:
    policy = DestinationPolicy(max_redeliveries=1, backoff_s=(0.0,))
    return DurableBench(book={Q: policy}, store=store_at(target))


def named(actor: Actor) -> dict[str, str | None]:
    """Return the bodies and message-ids of received messages."""
    return {each.text: each.get("message-id") for each in actor.reads()}


@pytest.mark.parametrize("way", ["journal", "sqlite", "compact"])
def test_moved_messages_keep_their_names_and_failures(tmp_path: Path, way: str) -> None:
    source = str(tmp_path / "source")
    desk = bench_on(source)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="9")
    actor.sends(Q, "once failed", "waits", "done with", persistent="true")
    desk.turn()
    frames = actor.reads()
    before = {each.text: each.get("message-id") for each in frames}
    actor.nacks(frames[0])
    actor.acks(frames[2])
    desk.turn()
    desk.store.close()
    target = str(tmp_path / "target")
    if way == "compact":
        target = source
        compact(target, ignore)
    else:
        if way == "sqlite":
            pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
            target = f"sqlite:///{target}.db"
        import_to(target, export_from(source, ignore))
    moved = bench_on(target)
    assert moved.failures == []
    actor = moved.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="9")
    moved.turn()
    frames = actor.reads()
    assert {each.text: each.get("message-id") for each in frames} == {
        body: before[body] for body in ("once failed", "waits")
    }
    actor.sends(Q, "new", persistent="true")
    moved.turn()
    assert set(named(actor).values()).isdisjoint(before.values()), "a name was used twice"
    failed, waits = sorted(frames, key=lambda each: each.text)
    actor.nacks(failed, waits)
    moved.turn()
    assert set(named(actor)) == {"waits"}  # the other message has failed twice
    assert moved.waiting("/queue/DLQ.q") == ["once failed"]
    moved.store.close()
