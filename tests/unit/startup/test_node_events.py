"""Events of nodes on their way to the owner of the first partition."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import define, field

from trio_stomp.broker import BrokerEvent
from trio_stomp.nats import Disconnected
from trio_stomp.startup._partitions import NodeEvents, parse_events


@define
class Engine:
    """A client of NATS that keeps what is published, until it has no server."""

    payloads: list[bytes] = field(factory=list)
    is_lost: bool = False

    def publish(self, _subject: bytes, payload: bytes) -> None:
        if self.is_lost:
            raise Disconnected("no server")
        self.payloads.append(payload)


def told(engine: Engine, events: Sequence[BrokerEvent]) -> list[list[BrokerEvent]]:
    client: Any = engine
    NodeEvents(client, b"events", "n0", lambda: None).tell(events)
    return [parse_events(each) for each in engine.payloads]


def test_many_events_are_told_in_messages_of_a_bounded_size() -> None:
    events = [BrokerEvent("auth", reason=f"{number}") for number in range(120)]
    parts = told(Engine(), events)
    assert [len(part) for part in parts] == [50, 50, 20]
    assert [each.reason for part in parts for each in part] == [str(n) for n in range(120)]


def test_an_event_names_its_node_and_those_of_sessions_are_left_to_owners() -> None:
    events = [BrokerEvent("connect"), BrokerEvent("close", "7", detail="42"), BrokerEvent("auth")]
    assert told(Engine(), events) == [
        [BrokerEvent("close", "7", detail="42; node n0"), BrokerEvent("auth", detail="node n0")]
    ]


def test_without_the_engine_events_are_lost_and_the_node_goes_on() -> None:
    assert told(Engine(is_lost=True), [BrokerEvent("auth")]) == []


@pytest.mark.parametrize("found", ["", "[]", '{"events": 1}', '{"events": [1, null]}'])
def test_what_is_no_message_of_events_is_ignored(found: str) -> None:
    assert parse_events(found.encode()) == []


def test_events_of_another_version_may_lack_fields_or_have_more() -> None:
    sent = {"events": [{"name": "auth", "new": 1}]}
    assert parse_events(json.dumps(sent).encode()) == [BrokerEvent("auth")]
