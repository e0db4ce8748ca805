"""Descriptions of recorded events in answers of ``explain``: fields and a sentence."""

from collections.abc import Callable
from typing import Any

from trio_stomp.broker.delivery import DeliveryReason, LossReason
from trio_stomp.broker.names import PRIVATE_QUEUE, PRIVATE_TOPIC, Kind, classify

Event = tuple[Any, ...]

_CAUSES = {
    DeliveryReason.PARKED: "parked for a late subscriber",
    DeliveryReason.LAST_VALUE: "the last value",
    DeliveryReason.PASSED_ON: "passed on by another member",
}


def some(count: int, word: str) -> str:
    """Return a count with its noun: ``1 ACK``, ``2 ACKs``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def rule_of(event: Event) -> str:
    """Return the option, policy or header that caused a loss, or ""."""
    fate, destination, rule = event[2], event[3], event[8]
    if fate != LossReason.NO_SUBSCRIBER:
        return str(rule)
    # With a TTL, messages without subscribers are parked, not lost.
    parks = classify(destination) in (Kind.TOPIC, Kind.WORK)
    is_private = destination.startswith((PRIVATE_TOPIC, PRIVATE_QUEUE))
    return "ttl_ms = 0" if parks and not is_private else ""


def why(event: Event) -> str:
    """Return the reason of a loss, with the rule that caused it."""
    rule = rule_of(event)
    return f"{event[2]} by {rule}" if rule else str(event[2])


def describe(event: Event, now: float, policy_of: Callable[[str, str], str]) -> dict[str, object]:
    """Return an event as an object for JSON, with a sentence in ``text``.

    Args:
      event: An entry of the event history.
      now: Seconds of the broker's clock.
      policy_of: Returns where a rule of a destination is configured, or "".
    """
    word, at, *rest = event
    found: dict[str, object] = {"what": word, "ms_ago": round((now - at) * 1000)}
    match word:
        case "sent" | "queued":
            found |= _sent(*rest)
        case "delivered" | "shown" | "given":
            found |= _delivered(event)
        case "browsed":
            destination, session, tag, number = rest
            text = f"session {session} was told that there is no more, by {tag}-{number}"
            found |= {"destination": destination, "session": session, "text": text}
        case "acknowledged" | "rejected":
            found |= _settled(event)
        case "event":
            name, session, destination, reason, user = rest
            found |= {"session": session, "user": user, "destination": destination}
            found["text"] = f"{name} {reason}".strip()
        case "lost":
            fate, destination, session, count, *_ = rest
            rule = rule_of(event)
            found |= {"destination": destination, "session": session, "count": count}
            found |= {"fate": fate, "rule": rule, "policy": policy_of(destination, rule)}
            found["text"] = f"{count} {why(event)}"
    return found


def _sent(
    destination: str, session: str, first: int, count: int, copies: int | None = None
) -> dict[str, object]:
    text = f"{count} from session {session}" if session else f"{count} from the broker"
    if copies is not None:
        text += f", to {some(copies, 'subscriber')}"
    origin = {"destination": destination, "session": session}
    return origin | {"first": first, "count": count, "text": text}


def _delivered(event: Event) -> dict[str, object]:
    word, _, destination, session, tag, first, count, detail = event
    names = _span(f"{tag}-{first}", f"{tag}-{first + count - 1}", count)
    text = f"{count} to session {session} as {names}"
    if word == "shown":
        text += ", to look at"
    found: dict[str, object] = {"destination": destination, "session": session, "first": first}
    found["count"] = count
    if isinstance(detail, DeliveryReason):
        found["cause"] = str(detail)
        text += f": {_CAUSES[detail]}"
    return found | {"text": text}


def _settled(event: Event) -> dict[str, object]:
    word, _, session, first, last, count, cumulative = event
    names = _span(first.decode(errors="replace"), last.decode(errors="replace"), count)
    text = f"{some(count, 'ACK' if word == 'acknowledged' else 'NACK')}: {names}"
    text += ", and all before" if cumulative else ""
    return {"session": session, "count": count, "text": text}


def _span(first: str, last: str, count: int) -> str:
    return first if count == 1 else f"{first} … {last}"
