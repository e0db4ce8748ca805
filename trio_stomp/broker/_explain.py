"""``explain``: what happened to a message, or why a subscriber did not get any.

A question is a message id, or words as JSON: ``{"message-id": "…"}``,
``{"destination": "/topic/x", "session": "…"}`` (``user`` instead of ``session`` does as well). The
answer is found in the rings of the chronicle and in what the broker is like now, so it knows the
last few seconds of a busy broker and the last days of a quiet one, and says how far back it goes.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define

from trio_stomp._errors import ProtocolError
from trio_stomp.broker._chronicle import Chronicle
from trio_stomp.broker._destination_policy import PolicyBook
from trio_stomp.broker._dialect import Dialect, resolve
from trio_stomp.broker._guard import Guard
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._rules import Action, needs
from trio_stomp.broker._stream_options import ID_MARK
from trio_stomp.broker._trie import matches

if TYPE_CHECKING:
    from trio_stomp.broker._subscription import Client, Subscription

KEYS = ("message-id", "destination", "session", "user")
MAX_EVENTS = 200
"""Events in one answer; the newest ones."""
MAX_QUESTION_CHARS = 4096

Event = tuple[Any, ...]


class PolicyHost(Protocol):
    """Where the policies of now stand."""

    book: PolicyBook


@define(eq=False, repr=False)
class Explainer:
    """Answers questions about messages. It changes nothing."""

    chronicle: Chronicle
    boot: str
    dialect: Dialect
    routes: RouteTable
    clients: "dict[Client, None]"
    guard: Guard
    host: "PolicyHost"

    def explain(self, question: str) -> dict[str, object]:
        """The answer to a question, ready to be JSON: ``summary``, ``events``, ``horizon_s``.

        Raises:
          ProtocolError: it is no question; the asker's fault.
        """
        asked = _read(question)
        if "message-id" in asked:
            summary, events = self._message(asked["message-id"])
        else:
            summary, events = self._subscriber(asked)
        now = self.chronicle.now
        return {
            "question": asked,
            "summary": summary,
            "events": [_told(event, now) for event in events[-MAX_EVENTS:]],
            "horizon_s": round(now - self._began(now), 3),
        }

    def _began(self, now: float) -> float:
        """Since when everything that happened is still known."""
        rings = [ring for ring in (self.chronicle.routine, self.chronicle.trouble) if ring]
        forgetful = [ring[0][1] for ring in rings if len(ring) == ring.maxlen]
        # Where nothing was forgotten yet, the first event is as far as anybody can look.
        return float(max(forgetful) if forgetful else min((r[0][1] for r in rings), default=now))

    # By message-id.

    def _message(self, name: str) -> tuple[str, list[Event]]:
        tag, _, digits = name.rpartition("-")
        if not (digits.isdigit() and tag):
            raise ProtocolError(
                "invalid-question",
                f"{name[:80]!r} is no message-id; they look like {self.boot}.1-42",
            )
        if not tag.startswith(f"{self.boot}."):
            return "the id is of an earlier start of this broker, or of another one", []
        if tag.endswith(ID_MARK):
            return f"it was read from a stream, at offset {digits}; its log tells all of it", []
        number = int(digits)
        events = [event for event in self._all() if _is_about(event, tag, number)]
        events += [each for event in events for each in self._lost_of(event)]
        accepted = _accepted_of(events, number)
        if accepted:
            events = [
                event
                for event in self._all()
                if _is_about(event, tag, number) or _is_of(event, accepted)
            ]
        if not events:
            return (
                "nothing is known of it any more: it is older than what is remembered"
                " (option explain_events)",
                [],
            )
        return _verdict(events), events

    def _lost_of(self, sent: Event) -> Iterator[Event]:
        """What somebody did not get of a run that others did."""
        if sent[0] == "sent":
            for event in self.chronicle.trouble:
                if event[3] == sent[2] and event[1] == sent[1]:
                    yield event

    # By subscriber.

    def _subscriber(self, asked: dict[str, str]) -> tuple[str, list[Event]]:
        names = resolve(asked.get("destination", ""), self.dialect)
        session, user = asked.get("session"), asked.get("user")
        events = [event for event in self._all() if _concerns(event, names, session)]
        if session is None and user is None:
            return self._place(names[0]), events
        found = [
            client for client in self.clients if user == client.user or session == client.session_id
        ]
        who = f"session {session}" if session is not None else f"user {user}"
        if not found:
            return f"{who} is not connected", events
        told = [line for client in found for line in self._client(client, names[0])]
        return "; ".join(told), events

    def _place(self, name: str) -> str:
        route = self.routes.known(name)
        if route is None:
            return f"nothing has been sent to {name} or subscribed there lately"
        lines = [
            f"{name}: {len(route.subscribers)} subscribers, {route.enqueued} sent,"
            f" {route.delivered} delivered, {route.dropped} dropped, {route.expired} expired"
        ]
        if route.queue is not None:
            queue = route.queue
            lines.append(
                f"{queue.depth} wait, {queue.unacked} unacknowledged, {len(queue.consumers)}"
                " consumers"
            )
        lines.append(f"policy: {self.host.book.where(name)}")
        return "; ".join(lines)

    def _client(self, client: "Client", name: str) -> Iterator[str]:
        yield f"session {client.session_id} ({client.user or 'nobody'}) from {client.remote}"
        if client.rights is not None:
            for action, place, pattern in needs(Action.RECEIVE, name):
                verdict = client.rights.verdict(action, place, pattern)
                if not verdict.allowed:
                    yield verdict.explanation
        reached = [each for each in client.subscriptions.values() if _reaches(each, name)]
        if not reached:
            others = ", ".join(each.destination for each in client.subscriptions.values())
            yield f"has no subscription that reaches {name}; it has {others[:400] or 'none at all'}"
        for subscription in reached:
            yield from _state(subscription)
        if client.is_blocked:
            yield "is not read from: a full queue makes it wait (overflow = block)"

    def _all(self) -> list[Event]:
        chronicle = self.chronicle
        return sorted((*chronicle.routine, *chronicle.trouble), key=lambda event: event[1])


def _read(question: str) -> dict[str, str]:
    text = question.strip()
    if len(text) > MAX_QUESTION_CHARS or not text:
        raise _invalid("it is empty or too long")
    if not text.startswith("{"):
        return {"message-id": text}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _invalid("it is no JSON") from None
    unknown = [key for key in found if key not in KEYS]
    if unknown or not all(isinstance(value, str) for value in found.values()):
        raise _invalid(f"its keys are {', '.join(KEYS)}, with text as values")
    if "message-id" not in found and "destination" not in found:
        raise _invalid("it names neither a message-id nor a destination")
    return dict(found)


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(
        "invalid-question", f"the question is a message-id, or JSON with a destination: {why}"
    )


def _reaches(subscription: "Subscription", name: str) -> bool:
    return any(
        place == name if pattern is None else matches(pattern, name)
        for place, pattern in subscription.places
    )


def _state(subscription: "Subscription") -> Iterator[str]:
    """What stands between a subscription and its next message."""
    yield f"subscribed as {subscription.destination} (id {subscription.id})"
    if subscription.selector is not None:
        yield "gets only what its selector wants"
    if subscription.no_local:
        yield "does not want what its own connection sends (no-local)"
    if subscription.revival is not None:
        yield "still gets what was parked before it"
    consumer = subscription.consumer
    if consumer is not None and consumer.tracks:
        yield (
            f"has {len(consumer.unacked)} unacknowledged of"
            f" {consumer.options.prefetch_count} (prefetch)"
        )
        if not consumer.is_ready:
            yield "takes no more before it acknowledges"
    if not subscription.outbox.has_room():
        yield "does not read what is sent to it: its outbox is full"


def _is_about(event: Event, tag: str, number: int) -> bool:
    """Whether an event tells of the delivery ``number`` by its own number."""
    match event[0]:
        case "sent":
            return bool(event[4] <= number < event[4] + event[5])
        case "delivered":
            return bool(event[4] == tag and event[5] <= number < event[5] + event[6])
        case "acknowledged" | "rejected":
            return _covers(event, tag, number)
        case "lost":
            first, count = event[6]
            return bool(first <= number < first + count)
    return False


def _covers(event: Event, tag: str, number: int) -> bool:
    first, last, _, cumulative = event[3:7]
    begin, end = _number(first, tag), _number(last, tag)
    if begin is None or end is None:
        return False
    return number <= end if cumulative else min(begin, end) <= number <= max(begin, end)


def _number(name: bytes, tag: str) -> int | None:
    own, _, digits = name.decode(errors="replace").rpartition("-")
    return int(digits) if own == tag and digits.isdigit() and len(digits) < 20 else None


def _accepted_of(events: Sequence[Event], number: int) -> int:
    """The place in order of acceptance of what was delivered as ``number``; 0 = unknown."""
    for event in events:
        if event[0] == "delivered":
            return int(event[7][number - event[5]])
    return 0


def _is_of(event: Event, accepted: int) -> bool:
    """Whether an event tells of a queue's message by its place in order of acceptance."""
    match event[0]:
        case "queued":
            return bool(event[4] <= accepted < event[4] + event[5])
        case "delivered":
            return accepted in event[7]
        case "lost":
            first, count = event[7]
            return bool(first <= accepted < first + count)
    return False


def _concerns(event: Event, names: Sequence[str], session: str | None) -> bool:
    match event[0]:
        case "sent" | "queued":
            return event[2] in names
        case "delivered":
            return event[2] in names and session in (None, event[3])
        case "event":
            return session is not None and event[3] == session
        case "lost":
            return event[3] in names and (session is None or event[4] in ("", session))
    return False


def _verdict(events: Sequence[Event]) -> str:
    """One sentence: how it ended, or where it stands."""
    last = events[-1]
    match last[0]:
        case "acknowledged":
            return "it was delivered and acknowledged"
        case "rejected":
            return "it was delivered and rejected (NACK)"
        case "lost":
            rule = f" by {last[8]}" if last[8] else ""
            return f"it did not arrive: {last[2]}{rule}"
        case "delivered":
            return "it was delivered, and has not been acknowledged (auto needs no ACK)"
        case "sent":
            return f"it was sent to {last[6]} subscribers"
    return "it waits in its queue"


def _told(event: Event, now: float) -> dict[str, object]:
    """An event as JSON, with a sentence for people."""
    what, at, *rest = event
    told: dict[str, object] = {"what": what, "ms_ago": round((now - at) * 1000)}
    match what:
        case "sent":
            destination, session, first, count, copies = rest
            text = f"{count} from session {session or 'of the broker'}, to {copies} subscribers"
            told |= {"destination": destination, "session": session, "first": first, "text": text}
        case "queued":
            destination, session, first, count = rest
            text = f"{count} from session {session or 'of the broker'}"
            told |= {"destination": destination, "session": session, "first": first, "text": text}
        case "delivered":
            destination, session, tag, first, count, _ = rest
            text = f"{count} to session {session} as {tag}-{first} and on"
            told |= {"destination": destination, "session": session, "text": text}
        case "acknowledged" | "rejected":
            session, first, last, count, cumulative = rest
            span = first.decode(errors="replace")
            if count > 1:
                span += f" … {last.decode(errors='replace')}"
            text = f"{count} {'ACKs' if what == 'acknowledged' else 'NACKs'}: {span}"
            text += ", and all before" if cumulative else ""
            told |= {"session": session, "text": text}
        case "event":
            name, session, destination, reason = rest
            told |= {"session": session, "destination": destination}
            told["text"] = f"{name} {reason}".strip()
        case "lost":
            fate, destination, session, count, _, _, rule = rest
            text = f"{count} {fate}" + (f" by {rule}" if rule else "")
            told |= {"destination": destination, "session": session, "text": text}
    return told
