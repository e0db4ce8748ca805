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


def test_a_send_does_not_wait_where_a_queue_blocks_producers() -> None:
    core = Bench(book={Q: DestinationPolicy(max_messages=1, overflow="block")})
    core.actor().sends(Q, "first")
    sending = send(core)
    assert sending.step(core.now) is Step.DONE
    sending.end(core.now)
    assert sending.problem is not None
    assert (sending.problem.code, core.queue(Q).depth) == ("queue-full", 1)


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
