"""``explain``: the fate of a message, or why a subscriber got none.

A question is a message id, or JSON: ``{"message-id": "…"}`` or ``{"destination": "/topic/x",
"session": "…"}`` (or ``user`` instead of ``session``). The answer comes from the event history and
the present state of the broker. So it covers the last seconds of a busy broker and the last days of
a quiet one, and states this horizon.
"""

import heapq
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    Browsed,
    Delivered,
    EventHistory,
    Given,
    Happened,
    HistoryEvent,
    Lost,
    Numbered,
    Queued,
    Sent,
    Shown,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.explain._description import describe, some
from trio_stomp.broker.explain._outcome import (
    MAX_DIGITS,
    accepted_by,
    events_of,
    first_of,
    held_group,
    includes,
    is_of,
    moment_of,
    number_in,
    of_late,
    of_queue,
    of_topic,
    steps_of,
    tag_of,
)
from trio_stomp.broker.explain._pieces import LOOKS, Pieces, chosen, last
from trio_stomp.broker.headers import END_MARK, ID_MARK, Dialect, resolve
from trio_stomp.broker.names import MONITOR, RESERVED, Kind, check_public, classify, matches
from trio_stomp.broker.queues import LEVELS, Consumer, QueueBook, queue_of, searches
from trio_stomp.broker.routing import Destinations, FanOut
from trio_stomp.broker.rules import Action, needs
from trio_stomp.broker.streams import StreamReader

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Subscription

FORGETFUL = "events are not recorded (option explain_events)"
KEYS = ("message-id", "destination", "session", "user")
MAX_EVENTS = 200
"""Limit of events in an answer, the newest ones."""
MAX_FACTS = 200
"""Limit of facts in an answer. A composite destination and a user with many sessions have many."""
LOOKED_AT = 16
"""The first messages of each priority that are looked at for their groups."""
MAX_LISTED = 400
"""Limit of characters of a list of destinations in a fact."""
MAX_QUESTION_CHARS = 4096
OWN = "one of the broker's own messages (DIAG, /queue/monitor)"

Answer = tuple[list[str], list[HistoryEvent]]


@define(eq=False, repr=False)
class Explainer:
    """Answers questions about messages. It changes nothing."""

    event_history: EventHistory
    boot: str
    dialect: Dialect
    destinations: Destinations
    clients: "dict[Client, None]"
    authorizer: Authorizer
    queues: QueueBook
    """Has the policies of destinations, and the turns."""
    fan_out: FanOut
    log: Log | None

    def explain(self, question: str) -> Pieces[dict[str, object]]:
        """Return the answer to a question, as an object for JSON.

        It is found in pieces, so its parts may be from different moments. ``facts`` are sentences,
        ``summary`` joins them, ``events`` are their sources. All events of the last ``horizon_s``
        seconds are known.

        Raises:
          ProtocolError: The question is invalid.
        """
        fields = self.read(question)
        if "message-id" in fields:
            facts, events = yield from self._message(fields["message-id"])
        else:
            facts, events = yield from self._subscriber(fields)
        now = self.event_history.now
        shown = [describe(event, now, self._policy_of) for event in events[-MAX_EVENTS:]]
        return {
            "question": fields,
            "summary": "; ".join(facts),
            "facts": facts,
            "events": shown,
            "horizon_s": round(now - self._began(now), 3),
        }

    def read(self, question: str) -> dict[str, str]:
        """Parse a question.

        Raises:
          ProtocolError: The question is invalid.
        """
        fields = _read(question)
        if "message-id" in fields:
            self._split(fields["message-id"])
        else:
            for name in resolve(fields["destination"], self.dialect):
                check_public(name)
        return fields

    def _split(self, name: str) -> tuple[str, str]:
        """Return the tag and the digits of a message id."""
        tag, _, digits = name.rpartition("-")
        if not (tag and digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS + 1):
            raise ProtocolError(
                "invalid-question",
                f"{name[:80]!r} is not a message-id, which looks like {self.boot}.1-42",
            )
        return tag, digits

    def _began(self, now: float) -> float:
        """Return the time since which all events are known."""
        rings = [ring for ring in (self.event_history.routine, self.event_history.trouble) if ring]
        forgetful = [ring[0].at for ring in rings if len(ring) == ring.maxlen]
        # If no ring is full, this is the time of the first event.
        return max(forgetful) if forgetful else min((r[0].at for r in rings), default=now)

    def _policy_of(self, name: str, rule: str) -> str:
        """Return the policy that sets a rule now, or "" if an option did, or it has changed."""
        field, _, value = rule.partition(" = ")
        book = self.queues.policies
        policy = book.policy_for(name)
        is_there = policy is not book.default and repr(getattr(policy, field, None)) == value
        return book.where(name) if is_there else ""

    # The present state.

    def _subscription_of(self, tag: str) -> "Pieces[Subscription | None]":
        """Return the subscription with this tag in its message ids, or None."""
        name = tag.encode()
        client = yield from last(list(self.clients), lambda each: name in each.tags)
        return client.tags[name] if client is not None else None

    def _knows_all_of(self, at: float) -> bool:
        """Return whether all events at a time are known."""
        rings = (self.event_history.routine, self.event_history.trouble)
        return all(len(ring) < self.event_history.capacity or ring[0].at < at for ring in rings)

    # By message id.

    def _message(self, name: str) -> Pieces[Answer]:
        tag, digits = self._split(name)
        names = self.fan_out.names
        if tag in (names.boot, names.store):
            return (yield from self._of_queue(int(digits)))
        if not tag.startswith(f"{self.boot}."):
            return ["the id is of an earlier start of this broker, or of another one"], []
        subscription = yield from self._subscription_of(tag)
        if tag.endswith(ID_MARK):
            return [_of_stream(subscription, digits)], []
        number = int(digits)
        events = yield from self._all()
        # The last event with this number: a binding in a work queue numbers its messages again.
        claim = yield from last(events, lambda event: includes(event, number))
        if not isinstance(claim, Numbered) or not _is_whole(claim, subscription):
            return (yield from self._unknown(events, subscription, number)), []
        if tag_of(claim) not in ("", tag):
            other = f"{tag_of(claim)}-{number}"
            return [f"no message had that id: the delivery of that number was {other}"], []
        return (yield from self._outcome(events, claim, tag, number))

    def _outcome(
        self, events: Sequence[HistoryEvent], claim: Numbered, tag: str, number: int
    ) -> Pieces[Answer]:
        """Return the answer for a message, by the event that has its delivery."""
        found = yield from events_of(events, claim, tag, number)
        if isinstance(claim, Sent):
            moment = yield from moment_of(events, claim)
            return of_topic(found, claim, moment, self._knows_all_of(claim.at)), found
        if isinstance(claim, Given):
            moment = yield from moment_of(events, claim)
            return of_late(found, claim, moment, self._knows_all_of(claim.at)), found
        if not isinstance(claim, Delivered | Shown):
            return ["it is the end marker of a queue browser, not a message of the queue"], found
        facts = yield from self._queued(found, accepted_by(claim, number))
        if isinstance(claim, Shown):
            facts.append(f"it was shown to a browser, session {claim.session}")
        return facts, found

    def _queued(self, found: Sequence[HistoryEvent], accepted: int) -> Pieces[list[str]]:
        """Return the facts of a queue's message, by its number. ``found`` are its events."""
        latest = steps_of(found)[-1:]
        tag = next((each.tag for each in latest if isinstance(each, Delivered)), "")
        subscription = yield from self._subscription_of(tag)
        first = found[0]
        # Queues of bindings have no name.
        name = first.destination if isinstance(first, Queued | Shown) else ""
        return of_queue(found, accepted, subscription, queue_of(self.destinations.find(name)))

    def _of_queue(self, accepted: int) -> Pieces[Answer]:
        """Return the answer for a message of a queue, by its number."""
        events = yield from self._all()
        claim = yield from last(
            events, lambda event: isinstance(event, Delivered | Shown) and accepted in event.numbers
        )
        if not isinstance(claim, Delivered | Shown):
            found = yield from chosen(events, lambda event: is_of(event, accepted))
            if found:
                return (yield from self._queued(found, accepted)), found
            if not self.event_history.is_recording:
                return [FORGETFUL], []
            return ["there is no record of a message with that id, or none any more"], []
        number = number_in(claim, accepted)
        return (yield from self._outcome(events, claim, tag_of(claim), number))

    def _unknown(
        self, events: Sequence[HistoryEvent], subscription: "Subscription | None", number: int
    ) -> Pieces[list[str]]:
        """Return the facts for a message id that occurs in no event."""
        newest = self.fan_out.messages
        if not 0 < number <= newest:
            return [
                f"no message has had that id: {newest} is the last number that was given to one"
            ]
        owner = f"session {subscription.client.session_id}" if subscription is not None else ""
        if subscription is not None and _hears(subscription):
            return [
                f"the broker's own messages are not recorded, so this may be one of {owner},"
                f" subscribed to {subscription.destination}",
                "/stream/DIAG can be read again",
            ]
        if not self.event_history.is_recording:
            return [FORGETFUL]
        if number < (yield from self._first_known(events, newest)):
            return [
                "nothing is known of it any more: it is older than what is remembered"
                " (option explain_events)"
            ]
        if subscription is not None:
            return [
                f"no message had that id: {owner} was not given that number"
                f" by its subscription to {subscription.destination}"
            ]
        return [f"no message had that id, or it was {OWN}, whose deliveries are not recorded"]

    def _first_known(self, events: Sequence[HistoryEvent], newest: int) -> Pieces[int]:
        """Return the first delivery number from which on all recorded deliveries are known."""
        if len(self.event_history.routine) < self.event_history.capacity:
            return 0
        numbered = yield from chosen(events, lambda event: first_of(event) > 0)
        return next(map(first_of, numbered), newest + 1)

    # By subscriber.

    def _subscriber(self, fields: dict[str, str]) -> Pieces[Answer]:
        names = resolve(fields["destination"], self.dialect)
        session, user = fields.get("session"), fields.get("user")
        events = yield from self._all()
        wanted = frozenset(names)
        if session is None and user is None:
            facts = [line for name in names for line in self._destination(name, len(names) > 1)]
            found = yield from chosen(events, lambda event: _concerns(event, wanted, None))
            return facts, found
        clients = yield from chosen(
            list(self.clients),
            lambda each: session in (None, each.session_id) and user in (None, each.user),
        )
        sessions = {client.session_id for client in clients}
        if session is not None:
            sessions.add(session)
        else:
            happened = yield from chosen(
                events, lambda event: isinstance(event, Happened) and event.user == user
            )
            sessions.update(event.session for event in happened if isinstance(event, Happened))
        found = yield from chosen(events, lambda event: _concerns(event, wanted, sessions))
        if not clients:
            absent = " of ".join(
                f"{word} {name}"
                for word, name in (("session", session), ("user", user))
                if name is not None
            )
            return [f"{absent} is not connected"], found
        facts = []
        for client in clients:
            facts += yield from self._client(client, names)
            if len(facts) > MAX_FACTS:
                facts[MAX_FACTS:] = ["and more"]
                break
        return facts, found

    def _destination(self, name: str, is_one_of_many: bool) -> Iterator[str]:
        destination = self.destinations.find(name)
        if destination is None:
            yield f"there were no messages to {name} and no subscriptions to it lately"
            return
        queue = queue_of(destination)
        if queue is None:
            recipients = some(self.destinations.recipients_count(destination), "subscriber")
        else:
            recipients = some(len(queue.consumers), "consumer")
        yield (
            f"{name}: {recipients}, {destination.enqueued} sent, {destination.delivered} delivered,"
            f" {destination.dropped} dropped, {destination.expired} expired"
        )
        prefix = f"{name}: " if is_one_of_many else ""
        if queue is not None:
            verb = "waits" if queue.depth == 1 else "wait"
            yield f"{prefix}{queue.depth} {verb}, {queue.unacked} unacknowledged"
            foremost = (queue.waiting.behind(level, 0, LOOKED_AT) for level in range(LEVELS))
            held = (held_group(queue, message) for each in foremost for message in each)
            if found := next(filter(None, held), ""):
                yield f"{prefix}of one of the first messages: {found}"
        yield f"{prefix}policy: {self.queues.policies.where(name)}"

    def _client(self, client: "Client", names: Sequence[str]) -> Pieces[list[str]]:
        facts = [f"session {client.session_id} ({client.user or 'nobody'}) from {client.remote}"]
        subscriptions = list(client.subscriptions.values())
        reached: dict[Subscription, None] = {}
        for name in names:
            if client.rights is not None:
                decisions = [client.rights.decide(*need) for need in needs(Action.RECEIVE, name)]
                facts += [each.explanation for each in decisions if not each.allowed]
            matching = yield from chosen(subscriptions, partial(_reaches, name=name))
            reached |= dict.fromkeys(matching)
            if not matching:
                listed = _listed(subscriptions) or "none at all"
                facts.append(f"has no subscription that reaches {name}; it has {listed}")
        for subscription in islice(reached, MAX_FACTS):
            facts += _state(subscription)
        if client.is_blocked:
            facts.append(f"is not read from: {self._why_held(client)}")
        return facts

    def _why_held(self, client: "Client") -> str:
        log = self.log
        if client in self.queues.turns:
            return "its last request is large, and is carried out in time shares"
        if log is not None and client in log.waiting:
            return "its earlier messages are not stored yet"
        return "it waits for room in a full queue (overflow = block)"

    def _all(self) -> Pieces[list[HistoryEvent]]:
        """Return all events of both rings, in order of time."""
        routine: list[HistoryEvent] = []
        trouble: list[HistoryEvent] = []
        events: list[HistoryEvent] = []
        self.queues.turns.collect_young()  # while these lists are short
        routine += self.event_history.routine
        trouble += self.event_history.trouble
        merged = heapq.merge(routine, trouble, key=attrgetter("at"))
        while piece := list(islice(merged, LOOKS)):
            events += piece
            yield
        return events


def _read(question: str) -> dict[str, str]:
    text = question.strip()
    if len(text) > MAX_QUESTION_CHARS or not text:
        raise _invalid("it is empty or too long")
    if not text.startswith("{"):
        return {"message-id": text}
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # there may be lone surrogates
    except (ValueError, RecursionError):
        raise _invalid("it is not valid JSON") from None
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


def _listed(subscriptions: "Iterable[Subscription]") -> str:
    """Return the destinations of subscriptions as text, up to MAX_LISTED characters."""
    text = ""
    for each in subscriptions:
        text = f"{text}, {each.destination}" if text else each.destination
        if len(text) >= MAX_LISTED:
            break
    return text[:MAX_LISTED]


def _is_whole(claim: Numbered, subscription: "Subscription | None") -> bool:
    """Return whether a subscription, if it still exists, can have got the messages of an event."""
    if not isinstance(claim, Sent) or subscription is None:
        return True
    return _reaches(subscription, claim.destination)


def _of_stream(subscription: "Subscription | None", digits: str) -> str:
    consumer = subscription.consumer if subscription is not None else None
    readers = consumer.queues if isinstance(consumer, Consumer) else ()
    reader = next((each for each in readers if isinstance(each, StreamReader)), None)
    name = reader.stream.name if reader is not None else "a stream"
    mark = END_MARK.decode()
    if digits.startswith(mark) and digits != mark:
        offset = int(digits.removeprefix(mark))
        return f"it is no message, but the end marker of a range of {name}, before offset {offset}"
    offset = int(digits)
    if reader is not None and offset >= reader.at:
        return f"no message had that id so far: the next one read from {name} is at {reader.at}"
    return f"it was read from {name}, at offset {offset}; the stream has its whole history"


def _hears(subscription: "Subscription") -> bool:
    """Return whether a subscription gets messages of the broker's own topics."""
    if any(name.startswith("DIAG") for name, _ in subscription.targets):
        return True
    return any(_reaches(subscription, name) for name in (*RESERVED, MONITOR))


def _reaches(subscription: "Subscription", name: str) -> bool:
    return any(
        target == name if pattern is None else matches(pattern, name)
        for target, pattern in subscription.targets
    )


def _state(subscription: "Subscription") -> Iterator[str]:
    """Yield facts about a subscription that may delay or prevent its next message."""
    yield f"subscribed as {subscription.destination} (id {subscription.id})"
    if subscription.selector is not None:
        yield "gets only messages that match its selector"
    if subscription.no_local and classify(subscription.targets[0][0]) is not Kind.QUEUE:
        yield "does not get messages of its own connection (no-local)"
    if subscription.catch_up is not None:
        yield "still gets earlier messages"
    consumer = subscription.consumer
    if isinstance(consumer, Consumer) and consumer.tracks:
        yield (
            f"has {len(consumer.unacked)} unacknowledged of"
            f" {consumer.options.prefetch_count} (prefetch)"
        )
        if not consumer.is_ready:
            yield "gets no further messages until it acknowledges some"
    if isinstance(consumer, Consumer):
        for name, number in searches(consumer):
            yield f"looks through {name}, and has examined all up to message {number} so far"
    if not subscription.outbox.has_room():
        yield "does not read its messages: its outbox is full"


def _concerns(
    event: HistoryEvent, names: Collection[str], sessions: Collection[str] | None
) -> bool:
    """Return whether an event concerns destinations and sessions, given by name and id.

    None stands for all sessions.
    """
    match event:
        case Sent() | Queued():
            return event.destination in names
        case Delivered() | Shown() | Given() | Browsed():
            return event.destination in names and (sessions is None or event.session in sessions)
        case Happened():
            return sessions is not None and event.session in sessions
        case Lost():
            is_theirs = sessions is None or event.session == "" or event.session in sessions
            return event.destination in names and is_theirs
    return False
