"""SENDs to DIAG destinations: the figures that a body asks for go with its MESSAGE (SEEDS A8)."""

from collections.abc import Sized

from attrs import define

from trio_stomp.broker._delivery import Publication
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._ports import TakesCensus
from trio_stomp.broker._queries import Queries
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscriber import Subscriber
from trio_stomp.frames import Head

_ASKED_BYTES = 64
"""No question is longer."""


@define(eq=False, repr=False)
class Answers:
    """Answers the seed's questions from the figures of the moment."""

    server: TakesCensus
    fan_out: FanOut
    subscriber: Subscriber
    stale: StaleQueue
    clients: Sized

    def queries(self) -> Queries:
        """Answers to the seed's questions about this moment."""
        return Queries(
            self.server.census(),
            len(self.clients),
            len(self.subscriber),
            self.stale.size,
            self.subscriber.destinations,
        )

    def to_topic(self, publication: Publication) -> None:
        """Send a publication on, each of its messages with what its body asks for."""
        queries = self.queries()
        head = publication.head
        for body in publication.bodies:
            figures = queries.headers(body[:_ASKED_BYTES].decode(errors="replace"))
            kept = {name: text for name, text in head.headers if name not in figures}
            told = (*kept.items(), *figures.items())
            answer = Head(head.command, told, len(body), head.destination)
            self.fan_out.to_all(
                Publication(
                    publication.route,
                    answer,
                    [body],
                    publication.received_at,
                    publication.expires_at,
                    publication.sender,
                )
            )
