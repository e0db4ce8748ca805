"""Dead letters to what is no queue."""

from typing import TYPE_CHECKING

from trio_stomp.broker._destination import Kind
from trio_stomp.broker._evidence import unmatched
from trio_stomp.broker._send_options import SendOptions

if TYPE_CHECKING:
    from trio_stomp.broker._message import Message
    from trio_stomp.broker._publisher import Publisher
    from trio_stomp.broker._route import Route
    from trio_stomp.frames import Head


def send_dead(
    publisher: "Publisher", route: "Route", head: "Head", message: "Message", now: float
) -> bool:
    """Send a dead letter to a topic or work queue; whether anybody gets it, now or later."""
    if route.kind not in (Kind.TOPIC, Kind.WORK):
        return False
    options = SendOptions(message.level, persistent=bool(message.stored))
    before, publisher.behalf = publisher.behalf, message.publication.quota
    try:
        told = publisher.send_to(None, route, head, options, [message.body], now, now)[1]
    finally:
        publisher.behalf = before
    return told != unmatched(route.name)
