"""Names that are nearly those of queues: the message has no recipients, and a hint says why."""

import pytest

from tests.support.core import Bench, run_of
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.headers import combined, hint_of, matched, unmatched
from trio_stomp.broker.names import nearly

QUEUE, TOPIC = (
    "the name of a queue begins with /queue/",
    ("this topic differs from the one whose name begins with /topic/"),
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("queue/x", "/queue/"),
        ("/Queue/x", "/queue/"),
        ("/queues/x", "/queue/"),
        ("QUEUES/x", "/queue/"),
        ("topic/x", "/topic/"),
        ("/topics/x", "/topic/"),
        ("/Topic/x", "/topic/"),
        ("/topic/x", ""),
        ("/queue/x", ""),
        ("/queuefoo/x", ""),
        ("prices", ""),
        ("queue", ""),
        ("/my/queue/x", ""),
        ("", ""),
    ],
)
def test_names_similar_to_a_prefix(name: str, meant: str) -> None:
    assert nearly(name) == meant
    assert bool(hint_of(name)) is bool(meant)
    assert unmatched(name).header_lines().startswith(b"matched:0\n")


@pytest.mark.parametrize(
    ("name", "hint"), [("queue/x", QUEUE), ("/topics/x", TOPIC), ("/topic/x", None)]
)
@pytest.mark.parametrize("ttl_ms", [0, 60_000])
def test_the_receipt_of_an_unmatched_message_has_a_hint(
    name: str, hint: str | None, ttl_ms: int
) -> None:
    bench = Bench(policies=BrokerPolicies(ttl_ms=ttl_ms))
    sender, reader = bench.actor(), bench.actor()
    sender.does(run_of(name, ("a", "b"), (), [(2, b"r")]))
    (receipt,) = sender.frames()
    assert (receipt.get("matched"), receipt.get("hint")) == ("0", hint)
    reader.subscribes(name)
    sender.does(run_of(name, ("c",), (), [(1, b"r")]))
    (receipt,) = sender.frames()
    assert (receipt.get("matched"), receipt.get("hint")) == ("1", None)


@pytest.mark.parametrize("ttl_ms", [0, 60_000])
def test_near_miss_is_reported_once(ttl_ms: int) -> None:
    bench = Bench(policies=BrokerPolicies(ttl_ms=ttl_ms))
    bench.broker.events.are_stored = True
    sender = bench.actor()
    for name in ("queue/x", "queue/x", "/topic/x", "/Queue/y"):
        sender.sends(name, "a", "b")
    found = [
        (each.destination, each.reason, each.detail, each.session_id)
        for each in bench.broker.events.take()
        if each.name == "hint"
    ]
    session = sender.client.session_id
    assert found == [
        ("queue/x", "no-subscriber", QUEUE, session),
        ("/Queue/y", "no-subscriber", QUEUE, session),
    ]


def test_composite_gets_a_hint_if_it_had_no_recipients() -> None:
    missed, taken = unmatched("queue/x"), matched(1)
    assert combined([missed, missed]) == unmatched("queue/x")
    assert combined([missed, taken]) == matched(1)
    assert combined([unmatched("/topic/a"), missed]) == unmatched("queue/x")
