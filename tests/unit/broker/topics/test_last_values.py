"""Last values: in memory, and in the store if they are durable."""

import pytest

from tests.support.core import Actor, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy, MemoryBudget

T = "/topic/t"


def made(*, is_prompt: bool = True, **fields: object) -> DurableBench:
    book = {T: DestinationPolicy(**fields)} if fields else {}  # type: ignore[arg-type]
    return DurableBench(book=book, is_prompt=is_prompt)


def retains(actor: Actor, body: str, *, said: str = "set", persistent: str = "true") -> None:
    actor.sends(T, body, retain=said, persistent=persistent)


def last(core: DurableBench) -> list[str]:
    """Return the messages that a new subscriber gets."""
    reader = core.reader("/topic/>")
    return reader.bodies()


def kept(core: DurableBench) -> int:
    """Messages in the store."""
    return core.store.statistics().live_messages


def answered(core: DurableBench) -> None:
    core.turn()
    while core.turns:
        core.answers()


def test_the_last_of_them_survives() -> None:
    core = made()
    for body in ("a", "b", "c"):
        retains(core.actor(), body)
        core.turn()
    assert kept(core) == 1
    again = core.restarts()
    assert last(again) == ["c"]
    retains(again.actor(), "d")
    again.turn()
    assert kept(again) == 1
    assert last(again.restarts()) == ["d"]


def test_only_the_last_message_of_a_run_is_kept() -> None:
    core = made(retain="always")
    core.actor().sends(T, "a", "b", persistent="true")
    core.turn()
    assert last(core.restarts()) == ["b"]


def test_a_removed_one_stays_away() -> None:
    core = made(is_prompt=False)
    actor = core.actor()
    retains(actor, "a")
    answered(core)
    actor.sends(T, "x", retain="remove", persistent="true", receipts=[(1, b"1")])
    assert actor.frames() == []
    assert last(core) == ["a"]
    answered(core)
    assert [frame.get("stored") for frame in actor.frames()] == ["memory"]
    assert last(core.restarts()) == []
    assert kept(core) == 0


@pytest.mark.parametrize("expected", ["set", "remove"])
def test_a_transient_message_replaces_it_at_once(expected: str) -> None:
    core = made(is_prompt=False)
    retains(core.actor(), "a")
    answered(core)
    retains(core.actor(), "b", said=expected, persistent="false")
    assert last(core) == (["b"] if expected == "set" else [])
    core.fails()
    answered(core)
    assert last(core.restarts()) == []
    assert kept(core) == 0


def test_withdrawn_message_replaces_no_last_value() -> None:
    core = made(is_prompt=False)
    retains(core.actor(), "a")
    answered(core)
    for body in ("b", "c"):
        retains(core.actor(), body)
        core.turn()
    retains(core.actor(), "", said="remove")
    core.turn()
    core.fails()
    answered(core)
    assert last(core) == last(core.restarts()) == ["a"]
    retains(core.actor(), "", said="remove")
    answered(core)
    assert last(core) == last(core.restarts()) == []
    assert kept(core) == 0


def test_in_a_transaction_it_is_replaced_with_the_rest_or_not_at_all() -> None:
    core = made(is_prompt=False)
    retains(core.actor(), "a")
    answered(core)
    for body, survives in (("b", False), ("c", True)):
        actor = core.actor()
        actor.commits(
            run_of("/queue/q", ["q"], (("persistent", "true"),)),
            run_of(T, [body], (("retain", "set"),)),
        )
        core.turn()
        answered(core) if survives else core.fails()
        answered(core)
        assert last(core) == (["c"] if survives else ["a"])
        # It was not persistent: it lasts as long as the process.
        assert last(core.restarts()) == ([] if survives else ["a"])


def test_it_survives_with_its_lifetime() -> None:
    core = made()
    core.actor().sends(T, "a", retain="set", persistent="true", ttl="5000")
    core.turn()
    again = core.restarts()
    assert last(again) == ["a"]
    again.now += 6
    assert last(again) == []


def test_last_of_several_recovered_last_values_counts() -> None:
    core = made()
    retains(core.actor(), "a")
    core.turn()
    destination = core.broker.destinations.find_current(T)
    assert destination is not None
    destination.retained_id = 0
    retains(core.actor(), "b")
    core.turn()
    assert kept(core) == 2
    again = core.restarts()
    again.turn()
    assert last(again) == ["b"]
    assert kept(again) == 1


def test_there_may_be_no_room_for_it() -> None:
    core = DurableBench(book={}, memory=MemoryBudget(100))
    retains(core.actor(), "a")
    core.turn()
    assert last(core) == []
    assert core.memory.kept_bytes == 0
    retains(core.actor(), "b")
    core.turn()
    assert kept(core) == 1


def test_a_destination_whose_last_value_is_only_in_the_store_is_kept() -> None:
    core = DurableBench(book={}, memory=MemoryBudget(100))
    retains(core.actor(), "a")
    core.turn()
    destination = core.broker.destinations.find_current(T)
    assert destination is not None
    assert not destination.is_idle


def test_without_a_store_it_is_kept_in_memory() -> None:
    from tests.support.core import bench

    core = bench()
    core.actor().sends(T, "a", retain="set", persistent="true")
    reader = core.reader(T)
    assert reader.bodies() == ["a"]


def test_a_transient_one_concerns_no_store() -> None:
    core = made()
    retains(core.actor(), "a", persistent="false")
    core.turn()
    assert last(core) == ["a"]
    assert core.commit == 0


def test_only_a_new_durable_subscription_is_given_it() -> None:
    core = made()
    retains(core.actor(), "a")
    core.turn()

    def joins() -> list[str]:
        reader = core.reader(T, ack="client-individual", durable_subscription_name="d")
        frames = reader.reads()
        reader.acks(*frames)
        reader.unsubscribes()
        core.turn()
        return [frame.text for frame in frames]

    assert joins() == ["a"]
    assert joins() == []
    retains(core.actor(), "b")
    core.turn()
    assert joins() == ["b"], "as it was sent"
    core = core.restarts()
    assert joins() == []
    plain, tracked = core.actor(), core.actor()
    plain.subscribes(T)
    tracked.subscribes(T, ack="client")
    assert plain.bodies() == tracked.bodies() == ["b"]


def test_subscriber_that_left_before_its_subscription_was_safe_gets_it_later() -> None:
    core = made(is_prompt=False)
    retains(core.actor(), "a")
    answered(core)
    for expected in ([], ["a"]):
        reader = core.reader(T, ack="client", durable_subscription_name="d")
        if not expected:
            reader.is_gone()
        answered(core)
        assert reader.bodies() == expected
