"""Dead letters to destinations other than queues."""

from typing import TYPE_CHECKING

from trio_stomp.broker.headers import SendOptions
from trio_stomp.broker.names import Kind

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.frames import Head


def send_dead(
    publisher: "Publisher", destination: "Destination", head: "Head", message: "Message", now: float
) -> bool:
    """Send a dead letter to a topic or work queue. Return whether it was delivered or kept."""
    if destination.kind not in (Kind.TOPIC, Kind.WORK):
        return False
    options = SendOptions(message.level, persistent=bool(message.stored))
    before, publisher.behalf = publisher.behalf, message.publication.payer
    try:
        outcome = publisher.send_to(
            None,
            destination=destination,
            head=head,
            options=options,
            bodies=[message.body],
            received_at=now,
            now=now,
        )[1]
    finally:
        publisher.behalf = before
    return not outcome.is_lost
