"""Frames of programs for other brokers, in the core: docs/reference/programs.md."""

import pytest

from tests.support.core import Bench, Core, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker.headers import parse_stream_options
from trio_stomp.store import Put, Turn

Q, T = "/queue/q", "/topic/t"
ASKED = [(1, b"r")]


def test_an_invalid_value_is_named_in_the_receipt(core: Core) -> None:
    peer = core.peer()
    peer.does(run_of(Q, ["x"], (("ttl", "1h"), ("priority", "high")), ASKED))
    assert peer.frames()[0].get("ignored") == "ttl,priority"


def test_what_has_expired_when_it_comes_is_dropped(core: Core) -> None:
    peer = core.peer()
    peer.does(run_of(Q, ["x"], (("expires", "1"),), ASKED))
    (receipt,) = peer.frames()
    assert (receipt.get("dropped"), receipt.get("stored")) == ("expired", None)


@pytest.mark.parametrize(("kind", "is_given"), [("stream", True), ("quorum", False)])
def test_a_type_of_queue_may_mean_a_stream(kind: str, is_given: bool) -> None:
    assert parse_stream_options((("x-queue-type", kind),)).is_given is is_given


def test_activemq_has_no_durable_subscription_to_a_queue() -> None:
    peer = Bench(dialect="activemq").actor()
    peer.subscribes(Q, "1", durable_subscription_name="d")
    assert peer.error().get("code") == "unsupported"


def test_a_selector_that_would_never_match_is_refused(bench: Bench) -> None:
    peer = bench.actor()
    peer.subscribes(Q, "1", selector="JMSTimestamp > 0")
    assert peer.error().get("code") == "invalid-selector"


def test_a_reply_goes_where_activemq_says() -> None:
    core = Core(dialect="activemq")
    reader, peer = core.reader(Q), core.peer()
    peer.does(run_of(Q, ["x"], (("reply-to", "/temp-queue/a"),)))
    (message,) = reader.messages()
    assert (message.get("reply-to") or "").startswith("/remote-temp-queue/")


def test_consumers_of_one_queue_name_share_it_and_another_has_its_own(bench: Bench) -> None:
    readers = [bench.actor() for _ in range(3)]
    for reader, name in zip(readers, ("a", "a", "b"), strict=True):
        reader.subscribes(T, "1", x_queue_name=name)
    bench.actor().sends(T, "1", "2")
    first, second, third = (reader.bodies() for reader in readers)
    assert sorted(first + second) == third == ["1", "2"]
    for reader in readers:
        reader.is_gone()
    assert bench.broker.bindings.shared == {}


@pytest.mark.parametrize("dialect", ["native", "artemis"])
def test_a_connection_that_subscribes_again_to_a_durable_subscription(dialect: str) -> None:
    """It replaces the first; in artemis both share it."""
    bench = Bench(dialect=dialect)
    actor = bench.actor()
    actor.client.client_id = "c"
    for id in ("1", "2"):
        actor.subscribes(T, id, durable_subscription_name="d")
        bench.turn()
    assert actor.client.subscriptions.keys() == ({"2"} if dialect == "native" else {"1", "2"})
    actor.sends(T, "x")
    assert actor.bodies() == ["x"]


def test_a_scheduled_request_of_an_older_version_does_no_harm() -> None:
    core = DurableBench()
    lines = b"destination:DIAG/explain\nAMQ_SCHEDULED_DELAY:5000\n"
    put = Put("scheduled:", 1, lines, [b"nonsense"], received_ms=core.broker.wall.ms(core.now))
    core.store.append([Turn([put])], 0)
    core = core.restarts()
    actor = core.actor()
    actor.subscribes("DIAG/explain")
    core.passes(6)
    assert actor.frames() == []
    assert core.broker.scheduler.lost == 0
