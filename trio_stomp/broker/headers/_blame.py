"""The excerpt and receipt of the frame that caused an ERROR."""

from trio_stomp.base import RemoteError
from trio_stomp.broker.headers._error_frame import quote
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Committed, Disconnected, Event, Subscribed, Unsubscribed


def add_origin(error: RemoteError, event: Event) -> None:
    """Add the receipt and the excerpt of the event's frame to an error, unless it has them."""
    if error.receipt_id is None:
        error.receipt_id = receipt_of(event)
    if not error.excerpt:
        error.excerpt = excerpt_of(event)


def excerpt_of(event: Event) -> bytes:
    """Return the start of the event's frame without secrets, or b"" if it is not known."""
    match event:
        case FrameRun(head=head):
            return quote("SEND", head.headers)
        case Subscribed(headers=headers):
            return quote("SUBSCRIBE", headers)
        case Unsubscribed(headers=headers):
            return quote("UNSUBSCRIBE", headers)
        case Acked(ids, header):
            return quote("NACK" if event.negative else "ACK", ((header, ids[0].decode()),))
    return b""


def receipt_of(event: Event) -> bytes | None:
    """Return the ``receipt`` header of the event's frame, or None."""
    if isinstance(event, FrameRun):
        # The first frame of a run is at fault. A later one may have requested the receipt.
        return next((receipt for index, receipt in event.receipts if index == 1), None)
    if isinstance(event, Acked):
        return event.receipts[0][1] if event.receipts else None
    if isinstance(event, Subscribed | Unsubscribed | Disconnected | Committed):
        return event.receipt
    return None
