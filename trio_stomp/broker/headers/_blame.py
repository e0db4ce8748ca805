"""What an ERROR says of the frame that is at fault."""

from trio_stomp.broker.headers._error_frame import quote
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Committed, Event, Left, Subscribed, Unsubscribed


def quoted(event: Event) -> bytes:
    """Return the frame, fit to be shown."""
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


def asked_receipt(event: Event) -> bytes | None:
    """Return the receipt that it asked for."""
    if isinstance(event, FrameRun):
        # The first frame of a run is at fault; who asked may be a later one.
        return next((receipt for asker, receipt in event.receipts if asker == 1), None)
    if isinstance(event, Acked):
        return event.receipts[0][1] if event.receipts else None
    if isinstance(event, Subscribed | Unsubscribed | Left | Committed):
        return event.receipt
    return None
