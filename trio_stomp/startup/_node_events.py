"""Events that only the nodes of a cluster with partitions see, such as failed logins.

A node's router has no subscribers: theirs are at the owners of partitions. So it sends its events
to the owner of the first partition, which publishes and stores them with its own.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio
from attrs import asdict, define, evolve, fields

from trio_stomp.base import slices
from trio_stomp.broker import BrokerEvent
from trio_stomp.nats import Message, NatsClient, NatsError, parse_object
from trio_stomp.server import Server

MAX_EVENTS = 50
"""Maximum number of events in a message, so that it is never too large for NATS."""
OF_SESSIONS = frozenset({"connect", "disconnect"})
"""The owners report these of the sessions that clients have with them."""
_FIELDS = [each.name for each in fields(BrokerEvent)]


@define(eq=False, repr=False)
class NodeEvents:
    """Sends the events of this node to the owner of the first partition, and receives others'.

    Args:
      client: A running client of the cluster's servers.
      subject: The subject of the cluster's events.
      node: The id of this node.
      owner: Returns the server of the first partition if this node owns it.
    """

    client: NatsClient
    subject: bytes
    node: str
    owner: Callable[[], Server | None]

    def tell(self, events: Sequence[BrokerEvent]) -> None:
        """Send events. Without a server of NATS they are lost, except in this node's log."""
        ours = [self._named(each) for each in events if each.name not in OF_SESSIONS]
        for part in slices(ours, MAX_EVENTS):
            try:
                self.client.publish(self.subject, json.dumps({"events": part}).encode())
            except NatsError:
                return

    def _named(self, event: BrokerEvent) -> dict[str, Any]:
        detail = f"{event.detail}; node {self.node}" if event.detail else f"node {self.node}"
        return asdict(evolve(event, detail=detail))

    async def receive(self) -> None:
        """Receive events of all nodes until cancelled."""
        subscription = self.client.subscribe(self.subject, self._take)
        try:
            await trio.sleep_forever()
        finally:
            self.client.unsubscribe(subscription)

    def _take(self, messages: list[Message]) -> None:
        server = self.owner()
        if server is not None:
            events = [event for each in messages for event in parse_events(each.payload)]
            server.dispatcher.call_soon(partial(_add, server, events))


def parse_events(payload: bytes) -> list[BrokerEvent]:
    """Return the events in a message of a node of any version, or none if it is not valid."""
    try:
        found = parse_object(payload).get("events")
    except NatsError:
        return []
    each = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [BrokerEvent(*[str(one.get(name, "")) for name in _FIELDS]) for one in each]


def _add(server: Server, events: Sequence[BrokerEvent], _now: float) -> None:
    for each in events:
        server.broker.events.add(each)
