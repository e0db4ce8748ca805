"""Ids of senders: recognized after restarts, within the window and no longer."""

import pytest

from tests.support.core import Actor, Received, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import Identity
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, PolicyBook
from trio_stomp.store import Atomic, Done, Keep, MemoryStore, Put, Turn

Q, T = "/queue/q", "/topic/t"
WINDOW = 3
DELAY = {"AMQ_SCHEDULED_DELAY": "1000"}


def made(*, is_prompt: bool = True, window: int = WINDOW) -> DurableBench:
    policy = DestinationPolicy(dedup_window=window)
    store = MemoryStore(name="stored:journal")
    return DurableBench(book={Q: policy, T: policy}, store=store, is_prompt=is_prompt)


def sends(actor: Actor, id: str, to: str = Q, **headers: str) -> None:
    pairs = {"persistent": "true", "x_dedup_id": id, **headers}
    actor.sends(to, f"m{id}", receipts=[(1, b"r")], **pairs)  # type: ignore[arg-type]


def sent(core: DurableBench, id: str, **headers: str) -> Received:
    """The RECEIPT of a SEND."""
    actor = core.actor()
    sends(actor, id, **headers)
    (receipt,) = actor.frames()
    return receipt


def is_known(core: DurableBench, id: str, **headers: str) -> bool:
    """Return whether a SEND was a duplicate. The RECEIPT of a duplicate says so."""
    receipt = sent(core, id, **headers)
    assert receipt.get("stored") == "journal"
    return receipt.get("duplicate") == "true"


def own(body: bytes) -> str:
    """Return the id in a stored body, without its destination and user."""
    return body.decode().partition("\n")[2]


def kept(core: DurableBench) -> list[str]:
    """Return the ids in the store."""
    runs = core.store.read("seen:", 0, 0, 10_000).runs
    return [own(body) for run in runs for body in run.bodies]


def consumed(core: DurableBench, name: str = Q) -> list[str]:
    reader = core.actor()
    reader.subscribes(name)
    bodies = reader.bodies()
    reader.unsubscribes()
    core.turn()
    return bodies


@pytest.mark.parametrize("header", ["x_dedup_id", "_AMQ_DUPL_ID"])
def test_an_id_is_known_after_a_restart_though_its_message_was_consumed(header: str) -> None:
    core = made()
    actor = core.actor()
    headers = ((header.replace("x_dedup_id", "x-dedup-id"), "1"), ("persistent", "true"))
    actor.does(run_of(Q, ["m1"], headers))
    core.turn()
    assert consumed(core) == ["m1"]
    core = core.restarts()
    assert is_known(core, "1")
    assert consumed(core) == []
    assert not is_known(core, "2")


def test_each_user_has_ids_of_its_own() -> None:
    core = made()
    alice, bob = core.actor(), core.actor()
    for actor, name in ((alice, "alice"), (bob, "bob:\n")):
        actor.client.identity = Identity(name)
        sends(actor, "1")
        assert actor.frames()[-1].get("duplicate") is None
    assert not is_known(core, "1")  # nor those without a login
    core = core.restarts()
    again = core.actor()
    for name in ("alice", "bob:\n", ""):
        again.client.identity = Identity(name)
        sends(again, "1")
        assert again.frames()[-1].get("duplicate") == "true"
    again.client.identity = Identity("bob")
    sends(again, "1")
    assert again.frames()[-1].get("duplicate") is None


def test_an_id_that_an_earlier_version_stored_counts_for_all_users() -> None:
    core = made()
    turn = Turn([Put(f"seen:{Q}", 1, b"", [b"1"], level=0)])
    core.store.append([turn], core.commit)
    core = core.restarts()
    actor = core.actor()
    for name in ("", "alice"):
        actor.client.identity = Identity(name)
        sends(actor, "1")
        assert actor.frames()[-1].get("duplicate") == "true"


def test_a_resend_after_a_lost_receipt_is_confirmed_as_stored() -> None:
    core = made(is_prompt=False)
    sends(core.actor(), "1")
    core.turn()
    core.store.append(core.turns, core.commit)  # and here the broker dies
    core = core.restarts()
    receipt = sent(core, "1")
    assert (receipt.get("duplicate"), receipt.get("stored")) == ("true", "journal")
    assert consumed(core) == ["m1"]


def test_unstored_message_is_no_duplicate() -> None:
    core = made(is_prompt=False)
    sends(core.actor(), "1")
    core.turn()
    core = core.restarts()
    core.is_prompt = True
    assert not is_known(core, "1")
    assert consumed(core) == ["m1"]


def ids_in(turn: Turn) -> list[Put]:
    """Return the records of ids of a turn."""
    groups = [each.records if isinstance(each, Atomic) else (each,) for each in turn.records]
    puts = [each for group in groups for each in group if isinstance(each, Put)]
    return [put for put in puts if put.place == "seen:"]


def test_ids_of_a_turn_share_a_record_and_a_message_without_one_has_none() -> None:
    core = made(is_prompt=False, window=8)
    actor = core.actor()
    actor.sends(Q, "plain", persistent="true")
    for number in range(3):
        sends(actor, f"{number}")
    core.turn()
    (turn,) = core.turns
    assert isinstance(turn.records[0], Keep)  # what the store's messages are named by: once
    assert [type(each) for each in turn.records[1:]] == [Put] * 5
    (put,) = ids_in(turn)
    assert [own(body) for body in put.bodies] == ["0", "1", "2"]
    core.answers()
    assert kept(core) == ["0", "1", "2"]


def test_ids_keep_their_order_among_users() -> None:
    core = made(is_prompt=False)
    for id, user in zip("123", ("a", "b", "a"), strict=True):
        actor = core.actor()
        actor.client.identity = Identity(user)
        sends(actor, id)
    core.turn()
    assert len(ids_in(core.turns[0])) == 1
    core.answers()
    core.is_prompt = True
    sent(core, "4")
    core = core.restarts()
    actor = core.actor()
    for id, user, known in (("2", "b", "true"), ("3", "a", "true"), ("1", "a", None)):
        actor.client.identity = Identity(user)
        sends(actor, id)
        assert actor.frames()[-1].get("duplicate") == known


def test_an_id_that_is_forgotten_in_its_own_turn_is_not_written() -> None:
    core = made(is_prompt=False)
    for number in range(WINDOW + 2):
        sends(core.actor(), f"{number}")
    core.turn()
    core.answers()
    assert kept(core) == ["2", "3", "4"]


def test_the_window_drops_the_oldest_ids_first() -> None:
    core = made()
    for number in range(5):
        assert not is_known(core, f"{number}")
    assert kept(core) == ["2", "3", "4"]
    for _ in range(2):
        core = core.restarts()
        assert [is_known(core, each) for each in "234"] == [True] * 3
        assert kept(core) == ["2", "3", "4"]
    assert not is_known(core, "1")
    assert kept(core) == ["3", "4", "1"]


def test_a_smaller_window_forgets_the_excess() -> None:
    core = made()
    for number in range(3):
        sent(core, f"{number}")
    core.book[Q] = DestinationPolicy(dedup_window=1)
    core = core.restarts()
    core.turn()
    assert kept(core) == ["2"]
    assert is_known(core, "2")
    core.book[Q] = DestinationPolicy(dedup_window=0)
    core = core.restarts()
    core.turn()
    assert kept(core) == []
    assert not is_known(core, "2")
    assert kept(core) == []


def test_a_policy_without_a_window_ends_the_detection_at_once() -> None:
    core = made()
    sent(core, "1")
    assert is_known(core, "1")
    core.broker.use_policies(PolicyBook([(Q, DestinationPolicy(dedup_window=0))]))
    assert not is_known(core, "1")


def test_withdrawn_message_is_forgotten_and_evicts_no_ids() -> None:
    core = made(is_prompt=False)
    for id in "123":
        sends(core.actor(), id)
        core.turn()
        core.answers()
    for id in "45":
        sends(core.actor(), id)
        core.turn()
    core.fails()
    core.turn()
    core.is_prompt = True
    assert kept(core) == ["1", "2", "3"]
    assert [is_known(core, each) for each in "123"] == [True] * 3
    assert not is_known(core, "4")
    assert kept(core) == ["2", "3", "4"]


def test_a_transaction_holds_with_its_ids_or_without_them() -> None:
    core = made(is_prompt=False)
    headers = (("x-dedup-id", "1"),)
    for is_stored in (False, True):
        core.actor().commits(
            run_of(Q, ["m1"], headers), run_of(Q, ["other"], (("persistent", "true"),))
        )
        core.turn()
        core.answers() if is_stored else core.fails()
        assert core.waiting(Q) == (["m1", "other"] if is_stored else [])
    core = core.restarts()
    core.is_prompt = True
    assert is_known(core, "1")


def test_transient_duplicates_are_detected_until_the_broker_ends() -> None:
    core = made()
    assert sent(core, "1", persistent="false").get("duplicate") is None
    receipt = sent(core, "1", persistent="false")
    assert (receipt.get("duplicate"), receipt.get("stored")) == ("true", None)
    assert core.commit == 0
    assert not is_known(core.restarts(), "1")


def test_a_topic_knows_ids_of_messages_that_survive_for_a_subscriber() -> None:
    core = made()
    sends(core.actor(), "nobody", to=T)
    core.turn()
    reader = core.actor()
    reader.subscribes(T, ack="client", durable_subscription_name="d")
    core.turn()
    sends(core.actor(), "1", to=T)
    assert [frame.text for frame in reader.frames()] == ["m1"]
    core = core.restarts()
    actor = core.actor()
    for id, known in (("1", "true"), ("nobody", None)):
        sends(actor, id, to=T)
        (receipt,) = actor.frames()
        assert receipt.get("duplicate") == known


def test_a_scheduled_message_is_known_before_and_after_it_is_sent() -> None:
    core = made()
    assert not is_known(core, "1", **DELAY)
    core = core.restarts()
    assert is_known(core, "1", **DELAY)
    core.passes(1)
    assert consumed(core) == ["m1"]
    core = core.restarts()
    assert is_known(core, "1", **DELAY)
    core.passes(1)
    assert consumed(core) == []


def test_a_composite_is_a_duplicate_if_all_of_it_is() -> None:
    core = made()
    both = f"{Q},/queue/other"
    assert not is_known(core, "1")
    assert sent(core, "1", to=both).get("duplicate") is None
    assert sent(core, "1", to=both).get("duplicate") == "true"
    assert consumed(core, "/queue/other") == ["m1"]


def test_last_of_two_equal_ids_counts() -> None:
    core = made()
    sent(core, "1")
    core.broker.destinations.open(Q).seen.clear()
    sent(core, "1")
    sent(core, "2")
    assert kept(core) == ["1", "1", "2"]
    core = core.restarts()
    core.turn()
    assert kept(core) == ["1", "2"]


def test_a_destination_that_is_forgotten_is_forgotten_with_its_ids() -> None:
    store = MemoryStore(name="stored:journal")
    core = DurableBench(policies=BrokerPolicies(max_destinations=16), store=store, is_prompt=False)
    sends(core.actor(), "1")
    core.turn()
    core.answers()
    reader = core.actor()
    reader.subscribes(Q)
    assert reader.bodies() == ["m1"]
    reader.unsubscribes()
    core.turn()
    core.answers()
    sends(core.actor(), "2", to="/queue/transient", persistent="false")
    core.turn()
    for number in range(17):
        core.actor().sends(f"/topic/{number}", "x")
        core.turn()
    core.answers()
    assert kept(core) == []


def test_the_oldest_is_forgotten_with_its_successor() -> None:
    core = made(is_prompt=False, window=1)
    for id in "12":
        sends(core.actor(), id)
        core.turn()
        (turn,) = core.turns
        core.answers()
    message, ids = turn.records
    assert isinstance(message, Put)
    assert isinstance(ids, Atomic)
    assert [type(each) for each in ids.records] == [Put, Done]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_id_is_not_remembered_for_a_message_that_was_dropped(in_transaction: bool) -> None:
    core = made()
    core.book[Q] = DestinationPolicy(dedup_window=WINDOW, max_messages=1, overflow="drop-newest")
    core = core.restarts()
    actor = core.actor()
    actor.sends(Q, "first", persistent="true")
    pairs = (("x-dedup-id", "1"), ("persistent", "true"))
    if in_transaction:
        actor.commits(run_of(Q, ["m1"], pairs))
    else:
        actor.does(run_of(Q, ["m1"], pairs, [(1, b"r")]))
    (receipt,) = actor.frames()
    assert (receipt.get("dropped"), receipt.get("stored")) == ("queue-full", None)
    assert kept(core) == []
    assert consumed(core) == ["first"]
    core = core.restarts()
    assert not is_known(core, "1")
    assert consumed(core) == ["m1"]
