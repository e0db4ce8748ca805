"""A SEND that an operator requests is that of a client: checks, RECEIPT and ERROR."""

import pytest

from tests.support.core import Bench, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive
from trio_stomp.base import Identity
from trio_stomp.broker import AccessRules, Action, DestinationPolicy, Rule
from trio_stomp.broker.managing import Sending, Step

Q = "/queue/q"
ANN = Identity("ann")


def send(core: Bench, destination: str = Q, **headers: str) -> Sending:
    pairs = tuple(headers.items())
    run = run_of(destination, ["hello"], pairs, [(1, b"r")])
    return core.broker.manager.send(run, ANN)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_message_is_sent_and_its_receipt_returned(is_stored: bool) -> None:
    core = DurableBench() if is_stored else Bench()
    sending = send(core, persistent="true", colour="red")
    assert drive(core, sending) == (2 if is_stored else 1)
    sending.end(core.now)
    core.turn()
    assert (sending.problem, sending.seen) == (None, 1)
    assert sending.receipt == {"stored": "memory"}  # the name of this store, too
    (message,) = core.reader(Q).reads()
    assert (message.text, message.get("colour")) == ("hello", "red")


def test_a_send_without_the_right_is_refused(bench: Bench) -> None:
    bench.broker.authorizer.rules = AccessRules(())
    sending = send(bench)
    drive(bench, sending)
    sending.end(bench.now)
    assert sending.problem is not None
    assert (sending.problem.code, sending.done) == ("not-authorized", 0)


def test_a_send_that_waits_for_room_is_refused_when_its_client_leaves() -> None:
    core = Bench(book={Q: DestinationPolicy(max_messages=1, overflow="block")})
    core.actor().sends(Q, "first")
    kept, left = send(core), send(core)
    assert kept.step(core.now) is left.step(core.now) is Step.WAIT
    left.end(core.now)
    reader = core.reader(Q, ack="client-individual", prefetch_count="9")
    for _ in range(3):
        reader.acks(*reader.reads())
        core.turn()
    assert kept.step(core.now) is Step.DONE
    kept.end(core.now)
    assert (kept.done, left.done, core.queue(Q).depth) == (1, 0, 0)


def rules_of(*users: str) -> AccessRules:
    return AccessRules((Rule(True, frozenset(Action), ("**",), users),))


def test_the_rules_count_that_hold_when_it_is_sent(bench: Bench) -> None:
    bench.broker.use_rules(rules_of("ann"), lambda _: True, bench.now)
    sending = send(bench)
    bench.broker.use_rules(rules_of("bob"), lambda _: True, bench.now)
    drive(bench, sending)
    sending.end(bench.now)
    assert sending.problem is not None
    assert (sending.problem.code, sending.done) == ("not-authorized", 0)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_send_that_waits_for_room_is_judged_again(is_known: bool) -> None:
    core = Bench(book={Q: DestinationPolicy(max_messages=1, overflow="block")})
    core.broker.use_rules(rules_of("ann", "anonymous"), lambda _: True, core.now)
    core.actor().sends(Q, "first")
    sending = send(core)
    assert sending.step(core.now) is Step.WAIT
    users = rules_of("anonymous", *["ann"] * (not is_known))
    core.broker.use_rules(users, lambda identity: is_known or identity != ANN, core.now)
    reader = core.reader(Q, ack="client-individual", prefetch_count="9")
    for _ in range(3):
        reader.acks(*reader.reads())
        core.turn()
    assert sending.step(core.now) is Step.DONE
    sending.end(core.now)
    assert sending.problem is not None
    code = "not-authorized" if is_known else "authentication-failed"
    assert (sending.problem.code, sending.done, core.queue(Q).depth) == (code, 0, 0)
