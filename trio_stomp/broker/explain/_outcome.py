"""The outcome of one message: its events, and sentences about them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import (
    DISCONNECT,
    DROP_NEWEST,
    Delivered,
    DeliveryReason,
    Given,
    HistoryEvent,
    LossReason,
    Lost,
    Numbered,
    Queued,
    Sent,
    Settled,
    Shown,
)
from trio_stomp.broker.explain._description import some, why
from trio_stomp.broker.explain._pieces import Pieces, chosen
from trio_stomp.broker.names import Kind, classify
from trio_stomp.broker.queues import LEVELS, Consumer

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Subscription
    from trio_stomp.broker.queues import Message, Queue

MAX_LOSERS = 5
"""Limit of losses listed one by one."""
AFTER_DELIVERY = ("rejected", "delivery-limit", "max-exceptions")
"""Dead-letter reasons that imply a delivery, even if its event was forgotten."""
MAX_DIGITS = 19
"""Limit of digits of a delivery number."""
_GIVEN = {
    DeliveryReason.PARKED: "it was parked, as there were no subscribers, and later delivered to",
    DeliveryReason.LAST_VALUE: "it was the last value at a later SUBSCRIBE, and delivered to",
    DeliveryReason.PASSED_ON: "another member of the work queue left it, and it was delivered to",
}


def first_of(event: HistoryEvent) -> int:
    """Return the first delivery number of an event, or 0 if it has none."""
    return event.first if isinstance(event, Numbered) else 0


def includes(event: HistoryEvent, number: int) -> bool:
    """Return whether an event includes the delivery ``number``."""
    return isinstance(event, Numbered) and event.first <= number < event.first + event.count


def tag_of(event: Numbered) -> str:
    """Return the subscription tag of an event, or "" if it is of several subscribers."""
    return "" if isinstance(event, Sent) else event.tag


# The events of a message.


def events_of(
    events: Sequence[HistoryEvent], claim: Numbered, tag: str, number: int
) -> Pieces[list[HistoryEvent]]:
    """Return all events of a message, in order.

    Args:
      events: All known events.
      claim: The event with the delivery.
      tag: The subscription tag in the message id.
      number: The delivery number.
    """
    if isinstance(claim, Sent | Given):
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
    numbers: dict[str, list[int]] = {}
    delivered = yield from chosen(
        events, lambda event: isinstance(event, Delivered) and accepted in event.numbers
    )
    for event in [each for each in delivered if isinstance(each, Delivered)]:
        numbers.setdefault(event.tag, []).append(number_in(event, accepted))
    return (
        yield from chosen(events, lambda event: is_of(event, accepted) or _covers(event, numbers))
    )


def accepted_by(claim: Numbered, number: int) -> int:
    """Return the number of the queue's message with the delivery ``number``, or 0."""
    return claim.numbers[number - claim.first] if isinstance(claim, Delivered | Shown) else 0


def number_in(event: Delivered | Shown, accepted: int) -> int:
    """Return the delivery number of a queue's message in an event."""
    return event.first + list(event.numbers).index(accepted)


def _is_loss(event: HistoryEvent, claim: Sent | Given, number: int) -> bool:
    """Return whether an event is, or may be, a loss of the delivery for a subscription."""
    if not isinstance(event, Lost) or event.destination != claim.destination:
        return False
    if isinstance(claim, Given) and event.session != claim.session:
        return False
    first, count = event.deliveries
    if count:
        return first <= number < first + count
    # Without numbers: losses at the same time may include it.
    return event.reason == LossReason.SLOW_CONSUMER and event.at == claim.at


def is_of(event: HistoryEvent, accepted: int) -> bool:
    """Return whether an event includes the queue's message with number ``accepted``."""
    match event:
        case Queued():
            return event.first <= accepted < event.first + event.count
        case Delivered() | Shown():
            return accepted in event.numbers
        case Lost():
            first, count = event.numbers
            return first <= accepted < first + count
    return False


def _covers(event: HistoryEvent, numbers: Mapping[str, list[int]]) -> bool:
    """Return whether an event is an ACK or NACK of one of some deliveries.

    Args:
      event: Any event.
      numbers: The delivery numbers in order, by subscription tag.
    """
    if not isinstance(event, Settled):
        return False
    tag = event.first.rpartition(b"-")[0].decode(errors="replace")
    begin, end, recorded = number_of(event.first, tag), number_of(event.last, tag), numbers.get(tag)
    if begin is None or end is None or recorded is None:
        return False
    if event.is_cumulative:
        return recorded[0] <= end
    index = bisect_left(recorded, min(begin, end))
    return index < len(recorded) and recorded[index] <= max(begin, end)


def number_of(name: bytes, tag: str) -> int | None:
    """Return the number in a message id, or None if it does not have this tag."""
    own, _, digits = name.rpartition(b"-")
    # bytes.isdigit accepts only ASCII digits.
    is_number = digits.isdigit() and len(digits) <= MAX_DIGITS
    return int(digits) if is_number and own.decode(errors="replace") == tag else None


# The sentences.


@define(eq=False, repr=False)
class Moment:
    """The deliveries from a destination at one time.

    Args:
      sent: Events of messages to all subscribers, with their index among all events.
      given: Events of messages to one session, by session, with their index.
    """

    sent: list[tuple[int, Sent]] = field(factory=list)
    given: dict[str, list[tuple[int, Given]]] = field(factory=dict)

    def of(self, session: str) -> tuple[Sent | Given, bool]:
        """Return the first event that a session may have got, and whether it is the only one."""
        given = self.given.get(session, [])
        entries: list[tuple[int, Sent | Given]] = [*self.sent[:1], *given[:1]]
        _, first = min(entries, key=lambda entry: entry[0])
        return first, len(self.sent) + len(given) == 1


def moment_of(events: Sequence[HistoryEvent], claim: Sent | Given) -> Pieces[Moment]:
    """Return the deliveries from the destination at the time of ``claim``."""
    found = yield from chosen(
        events,
        lambda event: (
            event.at == claim.at
            and isinstance(event, Sent | Given)
            and event.destination == claim.destination
        ),
    )
    moment = Moment([(at, each) for at, each in enumerate(found) if isinstance(each, Sent)])
    for index, event in enumerate(found):
        if isinstance(event, Given):
            moment.given.setdefault(event.session, []).append((index, event))
    return moment


def of_topic(
    found: Sequence[HistoryEvent], sent: Sent, moment: Moment, is_known: bool
) -> list[str]:
    """Return what happened to a message of a topic, with the losses of each subscriber.

    The first sentence has the result.

    Args:
      found: The events of the message, from ``events_of``.
      sent: The event with the delivery.
      moment: The deliveries from the destination at that time.
      is_known: All events of that time are known.
    """
    copies = reached = sent.copies
    certain: list[str] = []
    unsure: list[str] = []
    losses: Counter[tuple[str, str, bool]] = Counter()
    for event in _lost(found):
        losses[event.session, why(event), event.deliveries[1] > 0] += event.count
    for (session, reason, is_numbered), count in losses.items():
        lost = 1 if is_numbered else _lost_copies(reason, count, *moment.of(session)) * is_known
        reached -= lost
        if lost:
            certain.append(f"lost for session {session}: {reason}")
        else:
            unsure.append(
                f"{count} lost at that moment, possibly including this one, for session {session}:"
                f" {reason}"
            )
    if not certain:
        head = f"it was sent to {some(copies, 'subscriber')}"
    elif reached > 0:
        head = f"it reached {reached} of {some(copies, 'subscriber')}"
    else:
        head = "it did not arrive" if copies == 1 else f"it reached none of {copies} subscribers"
    lines = [*certain, *unsure]
    more = len(lines) - MAX_LOSERS
    return [head, *lines[:MAX_LOSERS], *([f"and {more} more likewise"] if more > 0 else [])]


def _lost_copies(reason: str, count: int, first: Sent | Given, is_all: bool) -> int:
    """Return how many copies of one message were certainly lost, of ``count`` lost at one time.

    It is not recorded which ones were lost, so this is only certain for a single run.

    Args:
      reason: The reason of the loss.
      count: The number of messages lost.
      first: The first event of this time.
      is_all: Whether it is the only one.
    """
    is_work = classify(first.destination) is Kind.WORK
    if reason.endswith(f"slow_consumer = {DISCONNECT!r}"):
        # A disconnect loses waiting and later messages. Work may have gone to another member.
        return 0 if is_work and not is_all else 1
    is_newest = reason.endswith(f"slow_consumer = {DROP_NEWEST!r}")
    return count // first.count if is_newest and is_all else 0


def of_late(
    found: Sequence[HistoryEvent], given: Given, moment: Moment, is_known: bool
) -> list[str]:
    """Return what happened to a message that one subscriber got later. Arguments as above."""
    head = f"{_GIVEN[given.cause]} session {given.session}"
    lost = _lost(found)
    if not lost:
        return [head]
    count, reason = sum(event.count for event in lost), why(lost[0])
    lost_copies = _lost_copies(reason, count, *moment.of(given.session))
    if not (lost_copies and is_known):
        return [head, f"{count} lost at that moment, possibly including this one: {reason}"]
    return [f"{head}, but it did not arrive: {reason}"]


def _lost(found: Sequence[HistoryEvent]) -> list[Lost]:
    return [event for event in found if isinstance(event, Lost)]


def steps_of(found: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events of a queue's message that changed where it is."""
    return [event for event in found if not isinstance(event, Queued | Shown)]


def of_queue(
    found: Sequence[HistoryEvent],
    accepted: int,
    subscription: "Subscription | None",
    queue: "Queue | None",
) -> list[str]:
    """Return what happened to a queue's message, or where it is. The first has the result.

    Args:
      found: The events of the message.
      accepted: Its number.
      subscription: The one to which it was delivered last, if there is one.
      queue: The queue, if it has a name.
    """
    steps = steps_of(found)
    times = sum(isinstance(event, Delivered) for event in steps)
    delivered = "it was delivered" if times < 2 else f"it was delivered {times} times"
    if not steps:
        return _waiting(queue, accepted)
    last = steps[-1]
    match last:
        case Settled(is_rejected=False):
            return [f"{delivered} and acknowledged"]
        case Settled():
            return [f"{delivered} and rejected (NACK)", "no delivery of it since then is known"]
        case Lost() if times or last.reason in AFTER_DELIVERY:
            return [f"{delivered}, and died: {why(last)}"]
        case Lost():
            return [f"it did not arrive: {why(last)}"]
    assert isinstance(last, Delivered)
    consumer = subscription.consumer if subscription is not None else None
    if not isinstance(consumer, Consumer):
        end = "that subscription has ended: unless it was ack:auto, the message went back"
        return [f"{delivered}, and no ACK of it is known", end]
    if not consumer.tracks:
        return [f"{delivered}, and needs no ACK (ack:auto)"]
    if number_in(last, accepted) in consumer.unacked:
        return [f"{delivered}, and has not been acknowledged so far"]
    # ACKs in transactions are not recorded.
    end = "no ACK is awaited any more: it came in a transaction, or the message went back"
    return [f"{delivered}, and no ACK of it is known", end]


def held_group(queue: "Queue", message: "Message") -> str:
    """Return the sentence for a message that its group's consumer does not select, or ""."""
    owner = queue.groups.owners.get(message.group)
    if owner is None or owner.wants(message):
        return ""
    session = owner.subscription.client.session_id
    return (
        f"its group {message.group[:80]!r} belongs to session {session}, whose selector excludes"
        " it: it waits until that subscription ends"
    )


def _waiting(queue: "Queue | None", accepted: int) -> list[str]:
    """Return the sentences for a message without known deliveries."""
    if queue is None:
        return ["it waits in its queue, as far as known"]
    for level in range(LEVELS):
        for message in queue.waiting.behind(level, accepted - 1, 1):
            if message.number == accepted and (why_held := held_group(queue, message)):
                return ["it waits in its queue", why_held]
    if queue.message_count:
        return ["it waits in its queue"]
    dropped = some(queue.destination.dropped, "message")
    gone = "it has left its queue, and no delivery of it is known"
    return [gone, f"the queue has dropped {dropped} so far"]
