"""The live trace of a connection or a destination: bounded, without secrets, ending on its own."""

import json
from typing import Any

import pytest

from tests.support.core import Core, Peer
from trio_stomp.base import Identity
from trio_stomp.broker import AccessRules, Action, BrokerPolicies, Rule

MAX_TRACES = 8


def traced(core: Core) -> list[str]:
    """Return the trace in the log since the last call."""
    lines = list(core.log)  # type: ignore[attr-defined]
    core.log.clear()  # type: ignore[attr-defined]
    return lines


@pytest.fixture
def core() -> Core:
    made = LoggedCore()
    made.log = []
    made.broker.tracer.log = made.log.append
    return made


class LoggedCore(Core):
    """A core whose log is recorded."""

    log: list[str]


def asks(peer: Peer, **reported: object) -> None:
    peer.sends("DIAG/trace", json.dumps(reported))


def test_connection_is_traced_both_ways_without_bodies(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asks(operator, session="s2")
    client.sends("/topic/t", "secret", headers=(("authorization", "Bearer x"),))
    client.unsubscribes()
    operator.sends("/topic/other", "y")
    lines = traced(core)
    assert len(lines) == 3
    sent, got, left = lines
    assert sent.startswith("trace s2 >>> SEND | destination:/topic/t")
    assert sent.endswith("| 6 bytes")
    assert got.startswith("trace s2 <<< MESSAGE | subscription:0")
    assert left.startswith("trace s2 >>> UNSUBSCRIBE")
    assert "secret" not in "".join(lines)
    assert "Bearer" not in "".join(lines)
    assert client.bodies() == ["secret"], "it is sent all the same"


def test_bodies_are_traced_on_request_and_truncated(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    asks(operator, session="s2", bodies=True)
    client.sends("/topic/t", "x" * 1000)
    (line,) = traced(core)
    assert "1000 bytes b'xxx" in line
    assert len(line) < 400


def test_bodies_are_in_the_log_and_in_no_event(core: Core) -> None:
    """Users with the right monitor receive events, and history and tables keep them."""
    operator, client = core.peer(), core.peer()
    core.broker.events.are_stored = True
    asks(operator, session="s2", bodies=True)
    client.sends("/topic/t", "confidential")
    assert "confidential" in traced(core)[0]
    details = [each.detail for each in core.broker.events.take() if each.name == "trace"]
    assert len(details) == 1
    assert details[0].endswith("| 12 bytes")


def test_destination_is_traced_for_all_senders(core: Core) -> None:
    operator, one, other = core.peer(), core.peer(), core.peer()
    asks(operator, destination="/topic/t")
    one.sends("/topic/t", "a", "b")
    other.sends("/topic/t", "c")
    other.sends("/topic/u", "d")
    assert [line.split()[1] for line in traced(core)] == ["s2", "s2", "s3"]


def test_it_ends_by_time_by_word_and_with_its_connection(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asks(operator, session="s2", seconds=5)
    assert client.client.outbox is not client.outbox
    core.passes(6)
    assert not core.broker.tracer.traces
    assert client.client.outbox is client.outbox
    client.sends("/topic/t", "x")
    assert traced(core) == []
    assert client.bodies() == ["x"]
    asks(operator, session="s2")
    asks(operator, session="s2", stop=True)
    asks(operator, destination="/a")
    asks(operator, destination="/b")
    asks(operator, stop=True)
    assert not core.broker.tracer.traces
    asks(operator, session="s2")
    client.is_gone()
    core.passes(100)
    assert not core.broker.tracer.traces
    core.ends()


def test_the_tracing_outbox_passes_other_calls_to_the_outbox(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asks(operator, session="s2")
    outbox = client.client.outbox
    assert outbox is not client.outbox
    assert outbox.has_room()
    outbox.stage_frame(b"\n")  # a heart-beat is no frame
    outbox.pause_reading(paused=True)
    assert client.outbox.is_paused
    assert traced(core) == []
    operator.sends("/topic/t", "a")
    assert outbox.discard() == 1
    assert client.outbox.discarded == 1
    assert client.outbox.waiting == 0


def test_a_traced_connection_drops_its_oldest_as_any_other() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-oldest"))
    operator, slow = core.peer(), core.peer(capacity=1)
    slow.subscribes("/topic/t")
    asks(operator, session="s2")
    for body in "abc":
        operator.sends("/topic/t", body)
    assert slow.bodies() == ["c"]
    assert core.broker.fan_out.drops.slow_consumer == 2
    assert slow.outbox.closed is None
    core.ends()


def test_a_trace_ends_after_its_number_of_frames(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    asks(operator, session="s2")
    core.broker.tracer.traces[0].left = 3
    client.sends("/topic/t", *"abcdef")
    assert len(traced(core)) == 3
    assert not core.broker.tracer.traces


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_traces_of_one_connection_end_each_by_itself(core: Core, ended: int) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asked = [{"session": "s2"}, *({"session": "s2", "destination": each} for each in ("/x", "/y"))]
    core.broker.events.are_stored = True
    for each in asked:
        asks(operator, **each)
    asks(operator, **asked[ended], stop=True)
    core.broker.events.take()
    traced(core)
    operator.sends("/topic/t", "x")
    found = [event.destination for event in core.broker.events.take() if event.name == "trace"]
    names = ["", "/x", "/y"]
    assert sorted(found) == sorted({*names} - {names[ended]})
    for each in asked:
        asks(operator, **each, stop=True)
    assert client.client.outbox is client.outbox
    assert [each.outbox for each in client.client.subscriptions.values()] == [client.outbox]
    traced(core)
    operator.sends("/topic/t", "y")
    assert traced(core) == []
    assert client.bodies() == ["x", "y"]
    core.ends()


def test_one_of_two_traces_stops_at_its_limit(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asks(operator, session="s2")
    asks(operator, session="s2", destination="/x")
    core.broker.tracer.traces[0].left = 1
    operator.sends("/topic/t", "a", "b", "c")
    assert len(traced(core)) == 1 + 3
    (left,) = core.broker.tracer.traces
    outer: Any = client.client.outbox
    assert (left.destination, outer.inner) == ("/x", client.outbox)
    core.passes(100)
    assert client.client.outbox is client.outbox


def test_message_with_a_known_prefix_is_traced_and_a_heart_beat_is_not(core: Core) -> None:
    operator, client = core.peer(), core.peer()
    client.subscribes("/topic/t")
    asks(operator, session="s2")
    client.client.outbox.stage_frame(b"MESSAGE\nbrowser:end\n\n\0\n")
    client.client.outbox.stage_frame(b"\n")
    (mark,) = traced(core)
    assert mark == "trace s2 <<< MESSAGE | browser:end"


def test_messages_that_do_not_fit_are_traced_as_not_sent(core: Core) -> None:
    operator, slow = core.peer(), core.peer(capacity=1)
    slow.subscribes("/topic/t")
    asks(operator, session="s2")
    operator.sends("/topic/t", "a")
    operator.sends("/topic/t", "b")
    lines = traced(core)
    assert "<<< MESSAGE" in lines[0]
    assert "<<< NOT SENT: MESSAGE" in lines[1]


def test_it_is_an_event_too(core: Core) -> None:
    core.broker.events.are_stored = True
    operator, client = core.peer(), core.peer()
    asks(operator, session="s2")
    core.events()
    client.sends("/topic/t", "x")
    assert ("trace", "s2", "") in core.events()


@pytest.mark.parametrize(
    "expected",
    [
        "nonsense",
        "[]",
        "{}",
        '{"sesion": "s1"}',
        '{"session": "s99"}',
        '{"session": 5}',
        '{"session": "\\ud800"}',
        '{"destination": "/a", "seconds": 0}',
        '{"destination": "/a", "seconds": "x"}',
        '{"destination": "/a", "seconds": 1e9}',
    ],
)
def test_invalid_trace_requests(core: Core, expected: str) -> None:
    peer = core.peer()
    peer.sends("DIAG/trace", expected)
    assert peer.error().get("code") == "invalid-question"
    assert not core.broker.tracer.traces


def test_a_private_destination_is_not_traced_whatever_it_is_called() -> None:
    core = Core(dialect="activemq")
    for name in ("/reply-queue/1-secret.a", "/remote-temp-queue/1-secret.a"):
        peer = core.peer()
        asks(peer, destination=name)
        assert peer.error().get("code") == "not-allowed"
    assert not core.broker.tracer.traces


def test_a_request_that_nobody_waits_for_fails_without_harm(core: Core) -> None:
    peer = core.peer()
    later = (("AMQ_SCHEDULED_DELAY", "1000"),)
    peer.sends("DIAG/trace", '{"session": "s99"}', headers=later)
    core.passes(2)
    assert peer.frames("ERROR") == []
    assert not core.broker.tracer.traces


def test_the_number_of_traces_is_bounded(core: Core) -> None:
    operator = core.peer()
    for number in range(MAX_TRACES):
        asks(operator, destination=f"/{number}")
    asks(operator, destination="/1")  # instead of the one that is there
    assert operator.frames("ERROR") == []
    asks(operator, destination="/more")
    assert operator.error().get("code") == "invalid-question"


def test_it_is_for_administrators() -> None:
    alice = Identity("alice", method="passcode")
    for actions, is_allowed in (({Action.MONITOR}, False), ({Action.MONITOR, Action.ADMIN}, True)):
        core = Core(rules=AccessRules((Rule(True, frozenset(actions), ("**",)),)))
        peer = core.peer(identity=alice)
        asks(peer, destination="/topic/t")
        assert bool(peer.frames("ERROR")) != is_allowed
