"""Descriptions of recorded events in answers of ``explain``: fields and a sentence."""

from collections.abc import Callable

from trio_stomp.broker.delivery import (
    Browsed,
    Delivered,
    DeliveryReason,
    Given,
    Happened,
    HistoryEvent,
    LossReason,
    Lost,
    Queued,
    Sent,
    Settled,
    Shown,
)
from trio_stomp.broker.names import PRIVATE, Kind, classify

_CAUSES = {
    DeliveryReason.PARKED: "parked for a late subscriber",
    DeliveryReason.LAST_VALUE: "the last value",
    DeliveryReason.PASSED_ON: "passed on by another member",
}


def some(count: int, word: str) -> str:
    """Return a count with its noun: ``1 ACK``, ``2 ACKs``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def rule_of(event: Lost) -> str:
    """Return the option, policy or header that caused a loss, or ""."""
    destination = event.destination
    if event.reason != LossReason.NO_SUBSCRIBER:
        return event.rule
    # With a TTL, messages without subscribers are parked, not lost.
    parks = classify(destination) in (Kind.TOPIC, Kind.WORK)
    return "ttl_ms = 0" if parks and not destination.startswith(PRIVATE) else ""


def why(event: Lost) -> str:
    """Return the reason of a loss, with the rule that caused it."""
    rule = rule_of(event)
    return f"{event.reason} by {rule}" if rule else event.reason


def describe(
    event: HistoryEvent, now: float, policy_of: Callable[[str, str], str]
) -> dict[str, object]:
    """Return an event as an object for JSON, with a sentence in ``text``.

    Args:
      event: An event of the history.
      now: Seconds of the broker's clock.
      policy_of: Returns where a rule of a destination is configured, or "".
    """
    common: dict[str, object] = {"what": "", "ms_ago": round((now - event.at) * 1000)}
    match event:
        case Sent():
            text = f", to {some(event.copies, 'subscriber')}"
            return common | _sent(event) | {"what": "sent", "text": _origin(event) + text}
        case Queued():
            return common | _sent(event) | {"what": "queued", "text": _origin(event)}
        case Delivered():
            return common | _delivered(event) | {"what": "delivered"}
        case Shown():
            text = f"{_to(event)}, to look at"
            return common | _delivered(event) | {"what": "shown", "text": text}
        case Given():
            text = f"{_to(event)}: {_CAUSES[event.cause]}"
            cause = {"cause": str(event.cause), "text": text}
            return common | _delivered(event) | {"what": "given"} | cause
        case Browsed():
            name = f"{event.tag}-{event.first}"
            text = f"session {event.session} was told that there is no more, by {name}"
            found = {"destination": event.destination, "session": event.session, "text": text}
            return common | {"what": "browsed"} | found
        case Settled():
            return common | _settled(event)
        case Happened():
            found = {"session": event.session, "user": event.user}
            text = f"{event.name} {event.reason}".strip()
            found |= {"destination": event.destination, "text": text}
            return common | {"what": "event"} | found
    return common | _lost(event, policy_of)


def _origin(event: Sent | Queued) -> str:
    return f"{event.count} from " + (f"session {event.session}" if event.session else "the broker")


def _sent(event: Sent | Queued) -> dict[str, object]:
    origin = {"destination": event.destination, "session": event.session}
    return origin | {"first": event.first, "count": event.count}


def _to(event: Delivered | Shown | Given) -> str:
    tag, first, count = event.tag, event.first, event.count
    names = _span(f"{tag}-{first}", f"{tag}-{first + count - 1}", count)
    return f"{count} to session {event.session} as {names}"


def _delivered(event: Delivered | Shown | Given) -> dict[str, object]:
    fields = {"destination": event.destination, "session": event.session}
    return fields | {"first": event.first, "count": event.count, "text": _to(event)}


def _settled(event: Settled) -> dict[str, object]:
    first, last = event.first.decode(errors="replace"), event.last.decode(errors="replace")
    noun = "NACK" if event.is_rejected else "ACK"
    text = f"{some(event.count, noun)}: {_span(first, last, event.count)}"
    text += ", and all before" if event.is_cumulative else ""
    what = "rejected" if event.is_rejected else "acknowledged"
    return {"what": what, "session": event.session, "count": event.count, "text": text}


def _lost(event: Lost, policy_of: Callable[[str, str], str]) -> dict[str, object]:
    rule = rule_of(event)
    found: dict[str, object] = {"what": "lost", "destination": event.destination}
    found |= {"session": event.session, "count": event.count, "fate": event.reason}
    found |= {"rule": rule, "policy": policy_of(event.destination, rule)}
    return found | {"text": f"{event.count} {why(event)}"}


def _span(first: str, last: str, count: int) -> str:
    return first if count == 1 else f"{first} … {last}"
