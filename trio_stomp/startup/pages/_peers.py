"""The routers of all nodes of a cluster, which have the clients' connections."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import trio
from attrs import define, field, frozen

from trio_stomp.cluster import ClusterNames, Contact, ask_nodes
from trio_stomp.nats import JetStream, NatsError
from trio_stomp.startup.pages._exchange import Speak

LOOK_S = 3.0
"""The interval at which nodes are asked where their routers are."""
ANSWERS_S = 0.5
NODE = "node"
"""The parameter that chooses a node."""

Dial = Callable[[Contact], Awaitable[trio.abc.HalfCloseableStream | None]]


@frozen
class Peer:
    """The router of a node. Implements ``Place``.

    Args:
      contact: Where it accepts requests of other nodes.
      dial: Returns a connection to it, or None.
    """

    contact: Contact
    dial: Dial

    @property
    def name(self) -> str:
        """Implement ``Place.name``."""
        return f"node {self.contact.node}"

    @property
    def choice(self) -> Sequence[tuple[str, str]]:
        """Implement ``Place.choice``: the node answers for itself alone."""
        return ((NODE, self.contact.node),)

    async def reach(self, speak: Speak) -> None:
        """Implement ``Place.reach``."""
        stream = await self.dial(self.contact)
        if stream is not None:
            async with stream:
                await speak(stream, self.contact)


@define(eq=False, repr=False)
class Peers:
    """The routers of all nodes, as these report them.

    Args:
      own: The router of this node.
      dial: Returns a connection to a node, or None.
    """

    own: Contact
    dial: Dial
    _found: dict[str, Contact] = field(factory=dict)

    def all(self) -> list[Peer]:
        """Return all routers, this node's first."""
        others = [each for name, each in sorted(self._found.items()) if name != self.own.node]
        return [Peer(each, self.dial) for each in (self.own, *others)]

    async def watch(self, jetstream: JetStream, names: ClusterNames) -> None:
        """Ask the nodes where their routers are, until cancelled."""
        while True:
            with suppress(NatsError):
                reports = await ask_nodes(jetstream.client, names, {}, ANSWERS_S)
                found = (
                    Contact.parse(str(each.get("node")), str(each.get("router")))
                    for each in reports
                )
                self._found = {each.node: each for each in found if each is not None}
            await trio.sleep(LOOK_S)
