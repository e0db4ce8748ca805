"""Dead letters to destinations other than queues."""

from typing import TYPE_CHECKING

from trio_stomp.broker.headers import SendOptions
from trio_stomp.broker.sending._context import SendContext

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.frames import Head


def send_dead(
    publisher: "Publisher", destination: "Destination", head: "Head", message: "Message", now: float
) -> bool:
    """Send a dead letter to a topic or work queue. Return whether it was delivered or kept."""
    options = SendOptions(message.level, persistent=bool(message.stored))
    publisher.destinations.refresh(destination)
    context = SendContext.of_broker(message.publication.payer, now)
    outcome = publisher.send_to(context, destination, head, options, [message.body])[1]
    return not outcome.is_lost
