"""What became of one message: what ``explain`` finds of it, and says of it in a few sentences."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.broker.delivery import DISCONNECT, DROP_NEWEST, DeliveryReason, LossReason
from trio_stomp.broker.explain._description import Event, some, why
from trio_stomp.broker.explain._pieces import LOOKS, Pieces, chosen
from trio_stomp.broker.names import Kind, classify
from trio_stomp.broker.queues import Consumer

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Subscription
    from trio_stomp.broker.queues import Queue

MAX_LOSERS = 5
"""Subscribers that are named each by itself."""
AFTER_DELIVERY = ("rejected", "delivery-limit", "max-exceptions")
"""Reasons of a death that only what was delivered dies of, if no event tells of that any more."""
MAX_DIGITS = 19
"""Digits of a delivery's number; more of them are nobody's."""
_GIVEN = {
    DeliveryReason.PARKED: "it was parked, for nobody was subscribed, and given to",
    DeliveryReason.LAST_VALUE: "it was the last value when somebody subscribed, and given to",
    DeliveryReason.PASSED_ON: "another member of the work queue left it, and it was given to",
}


class Present(Protocol):
    """The broker's present state, as an answer needs it."""

    def subscription_of(self, tag: str) -> "Pieces[Subscription | None]":
        """Return the subscription whose message-ids begin so, if it is still there."""

    def queue_of(self, name: str) -> "Queue | None":
        """Return the queue that is found by a name."""

    def knows_all_of(self, at: float) -> bool:
        """Return whether nothing that happened at a time has been forgotten."""


def first_of(event: Event) -> int:
    """Return the number that an event's deliveries begin with, or 0 if it has none."""
    match event[0]:
        case "sent":
            return int(event[4])
        case "delivered" | "shown" | "given" | "browsed":
            return int(event[5])
    return 0


def claims(event: Event, number: int) -> bool:
    """Return whether an event tells of a MESSAGE by the number that it was given."""
    first = first_of(event)
    if not first:
        return False
    count = event[5] if event[0] == "sent" else 1 if event[0] == "browsed" else event[6]
    return bool(first <= number < first + count)


def tag_of(event: Event) -> str:
    """Return the subscription tag of an event's numbers, or "" if they are of all who got it."""
    return "" if event[0] == "sent" else str(event[4])


# What belongs to a message.


def story(events: Sequence[Event], claim: Event, tag: str, number: int) -> Pieces[list[Event]]:
    """All events, in order, of the message that ``claim`` tells of as ``tag``-``number``."""
    if claim[0] in ("sent", "given"):
        own = {tag: [number]}
        return (
            yield from chosen(
                events,
                lambda event: (
                    event is claim or _is_loss(event, claim, number) or _covers(event, own)
                ),
            )
        )
    accepted = accepted_by(claim, number)
    if not accepted:
        return [claim]
    given = yield from chosen(
        events, lambda event: event[0] == "delivered" and accepted in event[7]
    )
    numbers: dict[str, list[int]] = {}
    for place, event in enumerate(given, 1):
        numbers.setdefault(tag_of(event), []).append(number_in(event, accepted))
        if place % LOOKS == 0:
            yield
    return (
        yield from chosen(events, lambda event: is_of(event, accepted) or _covers(event, numbers))
    )


def accepted_by(claim: Event, number: int) -> int:
    """Return the place in order of acceptance of what was delivered as ``number``, or 0."""
    numbers = claim[7] if claim[0] in ("delivered", "shown") else ()
    return int(numbers[number - claim[5]]) if numbers else 0


def number_in(event: Event, accepted: int) -> int:
    """Return the number that a message of a queue had in a delivery."""
    return int(event[5] + list(event[7]).index(accepted))


def _is_loss(event: Event, claim: Event, number: int) -> bool:
    """Return whether a subscription did not get what others did, or may not have."""
    if event[0] != "lost" or event[3] != claim[2]:
        return False
    if claim[0] == "given" and event[4] != claim[3]:
        return False
    first, count = event[6]
    if count:
        return bool(first <= number < first + count)
    # Nobody numbered these: what was staged in the same moment.
    return bool(event[2] == LossReason.SLOW_CONSUMER and event[1] == claim[1])


def is_of(event: Event, accepted: int) -> bool:
    """Return whether an event tells of a queue's message by its place in order of acceptance."""
    match event[0]:
        case "queued":
            return bool(event[4] <= accepted < event[4] + event[5])
        case "delivered" | "shown":
            return accepted in event[7]
        case "lost":
            first, count = event[7]
            return bool(first <= accepted < first + count)
    return False


def _covers(event: Event, numbers: Mapping[str, list[int]]) -> bool:
    """Return whether an event tells of an ACK or NACK of one of some deliveries.

    Args:
      event: Of any kind.
      numbers: Of them, by the subscription's tag, in order.
    """
    if event[0] not in ("acknowledged", "rejected"):
        return False
    first, last, _, cumulative = event[3:7]
    tag = first.rpartition(b"-")[0].decode(errors="replace")
    begin, end, known = number_of(first, tag), number_of(last, tag), numbers.get(tag)
    if begin is None or end is None or known is None:
        return False
    if cumulative:
        return bool(known[0] <= end)
    place = bisect_left(known, min(begin, end))
    return place < len(known) and known[place] <= max(begin, end)


def number_of(name: bytes, tag: str) -> int | None:
    """Return the number in a message-id of the subscription ``tag``, or None if it is not its."""
    own, _, digits = name.rpartition(b"-")
    # Of bytes isdigit is about ASCII alone.
    is_number = digits.isdigit() and len(digits) <= MAX_DIGITS
    return int(digits) if is_number and own.decode(errors="replace") == tag else None


# What is said of it.


def verdict(
    found: Sequence[Event],
    claim: Event,
    number: int,
    events: Sequence[Event],
    present: Present,
) -> Pieces[list[str]]:
    """Return how it ended, or where it is: the first sentence says it, the others say more.

    Args:
      found: Its ``story``.
      claim: What gave it its number.
      number: The number in the message-id.
      events: All that is remembered.
      present: What the broker is like now.
    """
    match claim[0]:
        case "sent":
            return (yield from _of_topic(found, claim, events, present))
        case "given":
            return (yield from _of_late(found, claim, events, present))
        case "browsed":
            return ["it is no message of a queue: it told a browser that there is no more"]
    accepted = accepted_by(claim, number)
    if claim[0] == "delivered":
        return (yield from of_queue(found, accepted, present))
    seen = f"it was shown to a browser, session {claim[3]}"
    return [*(yield from of_queue(found, accepted, present)), seen]


def _of_topic(
    found: Sequence[Event], sent: Event, events: Sequence[Event], present: Present
) -> Pieces[list[str]]:
    """Of several subscribers each has its own end."""
    copies, reached = sent[6], sent[6]
    certain: list[str] = []
    unsure: list[str] = []
    losses: dict[tuple[str, str, bool], int] = {}
    for place, event in enumerate((yield from _lost(found)), 1):
        key = (event[4], why(event), event[6][1] > 0)
        losses[key] = losses.get(key, 0) + event[5]
        if place % LOOKS == 0:
            yield
    moment = yield from _moment(events, sent)
    for place, ((session, reason, is_numbered), count) in enumerate(losses.items(), 1):
        if place % LOOKS == 0:
            yield
        is_known = present.knows_all_of(sent[1])
        lost = 1 if is_numbered else _lost_copies(reason, count, *moment.of(session)) * is_known
        reached -= lost
        if lost:
            certain.append(f"lost for session {session}: {reason}")
        else:
            unsure.append(
                f"{count} lost just then, perhaps this one too, for session {session}: {reason}"
            )
    if not certain:
        head = f"it was sent to {some(copies, 'subscriber')}"
    elif reached > 0:
        head = f"it reached {reached} of {some(copies, 'subscriber')}"
    else:
        head = "it did not arrive" if copies == 1 else f"it reached none of {copies} subscribers"
    said = [*certain, *unsure]
    more = len(said) - MAX_LOSERS
    return [head, *said[:MAX_LOSERS], *([f"and {more} more likewise"] if more > 0 else [])]


@define(eq=False, repr=False)
class _Moment:
    """What sessions may have been given of a destination in one moment.

    Args:
      sent: To all who were subscribed, each with its place among all events.
      given: To one session alone, likewise.
    """

    sent: list[tuple[int, Event]] = field(factory=list)
    given: dict[str, list[tuple[int, Event]]] = field(factory=dict)

    def of(self, session: str) -> tuple[Event, bool]:
        """Return the first that a session may have been given, and whether that is all."""
        given = self.given.get(session, [])
        _, first = min((*self.sent[:1], *given[:1]), key=itemgetter(0))
        return first, len(self.sent) + len(given) == 1


def _moment(events: Sequence[Event], claim: Event) -> Pieces[_Moment]:
    """Return all that was given of a destination when this was."""
    moment = _Moment()
    for place, event in enumerate(events):
        if event[1:3] == claim[1:3] and event[0] in ("sent", "given"):
            is_sent = event[0] == "sent"
            some = moment.sent if is_sent else moment.given.setdefault(event[3], [])
            some.append((place, event))
        if place % LOOKS == 0:
            yield
    return moment


def _lost_copies(reason: str, count: int, first: Event, is_all: bool) -> int:
    """Return how many copies of one message were lost for certain, of ``count`` in a moment.

    Nobody noted which they were: it is certain if there is but one run that they can be of.
    """
    is_work = classify(first[2]) is Kind.WORK
    if reason.endswith(f"slow_consumer = {DISCONNECT!r}"):
        # What waited is gone, and what came behind went nowhere; but work may be another's.
        return 0 if is_work and not is_all else 1
    messages = int(first[5] if first[0] == "sent" else first[6])
    is_newest = reason.endswith(f"slow_consumer = {DROP_NEWEST!r}")
    return count // messages if is_newest and is_all else 0


def _of_late(
    found: Sequence[Event], given: Event, events: Sequence[Event], present: Present
) -> Pieces[list[str]]:
    head = f"{_GIVEN[given[7]]} session {given[3]}"
    lost = yield from _lost(found)
    if not lost:
        return [head]
    count, reason = sum(event[5] for event in lost), why(lost[0])
    moment = yield from _moment(events, given)
    lost_copies = _lost_copies(reason, count, *moment.of(given[3]))
    if not (lost_copies and present.knows_all_of(given[1])):
        return [head, f"{count} lost just then, perhaps this one too: {reason}"]
    return [f"{head}, but it did not arrive: {reason}"]


def _lost(found: Sequence[Event]) -> Pieces[list[Event]]:
    return chosen(found, lambda event: event[0] == "lost")


def of_queue(found: Sequence[Event], accepted: int, present: Present) -> Pieces[list[str]]:
    steps = yield from chosen(found, lambda event: event[0] not in ("queued", "shown"))
    times = len((yield from chosen(steps, lambda event: event[0] == "delivered")))
    delivered = "it was delivered" if times < 2 else f"it was delivered {times} times"
    if not steps:
        return _waiting(present.queue_of(found[0][2]))
    last = steps[-1]
    match last[0]:
        case "acknowledged":
            return [f"{delivered} and acknowledged"]
        case "rejected":
            return [f"{delivered} and rejected (NACK)", "no delivery of it since then is known"]
        case "lost" if times or last[2] in AFTER_DELIVERY:
            return [f"{delivered}, and died: {why(last)}"]
        case "lost":
            return [f"it did not arrive: {why(last)}"]
    subscription = yield from present.subscription_of(tag_of(last))
    consumer = subscription.consumer if subscription is not None else None
    if not isinstance(consumer, Consumer):
        end = "that subscription has ended: unless it was ack:auto, the message went back"
        return [f"{delivered}, and no ACK of it is known", end]
    if not consumer.tracks:
        return [f"{delivered}, and needs no ACK (ack:auto)"]
    if number_in(last, accepted) in consumer.unacked:
        return [f"{delivered}, and has not been acknowledged so far"]
    # An ACK of a transaction is noted nowhere.
    end = "no ACK is awaited any more: it came in a transaction, or the message went back"
    return [f"{delivered}, and no ACK of it is known", end]


def _waiting(queue: "Queue | None") -> list[str]:
    """Return what was accepted and never delivered, as far as is known."""
    if queue is None:
        return ["it waits in its queue, as far as is known"]
    if queue.held:
        return ["it waits in its queue"]
    dropped = some(queue.destination.dropped, "message")
    gone = "it is in its queue no more, and no delivery of it is known"
    return [gone, f"the queue has dropped {dropped} so far"]
