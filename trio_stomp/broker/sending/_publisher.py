"""SEND: runs of messages to topics, work queues, queues, the stale queue or the scheduler."""

from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from trio_stomp.base import ProtocolError, Quota, noop
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    ASK,
    LIGHT_S,
    LIMIT_S,
    Client,
    DayEnd,
    Destination,
    NotYet,
    Publication,
    Turns,
    WallTime,
    Work,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import (
    IN_MEMORY,
    NOTHING,
    Dialect,
    SendOptions,
    SendOutcome,
    SendPlan,
    combined,
    matched,
    volatile_warning,
    without_claims,
)
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import QueueBook
from trio_stomp.broker.routing import Destinations, FanOut, too_many_subscribers
from trio_stomp.broker.sending._context import SendContext
from trio_stomp.broker.sending._duplicates import Duplicates, id_of
from trio_stomp.broker.sending._room import Needs, may_push_out
from trio_stomp.broker.sending._send_later import Later
from trio_stomp.broker.sending._temporary import Temporary, is_orphan
from trio_stomp.broker.sending._to_queue import QueueSender
from trio_stomp.broker.sending._to_topic import TopicSender
from trio_stomp.broker.streams import StreamQueries
from trio_stomp.frames import FrameRun, Head

Part = tuple[Destination, Head]
"""A destination of a SEND, with the header block for it."""


@define(eq=False, repr=False)
class Publisher:
    """Carries out SENDs. A method that raises has changed nothing, but for ``QueueFull.done``."""

    dialect: Dialect
    destinations: Destinations
    queues: QueueBook
    fan_out: FanOut
    to_topics: TopicSender
    to_queues: QueueSender
    temporary: Temporary
    authorizer: Authorizer
    duplicates: Duplicates
    turns: Turns
    later: Later
    log: Log | None = None
    """The log for persistent messages; None = there is no store."""
    wall: WallTime = field(factory=WallTime)
    questions: StreamQueries = field(init=False)
    received: int = 0
    volatile: int = 0
    """Runs of persistent messages that are only in memory, as there is no store."""
    warn: Callable[[str], None] = noop
    """Logs a warning to the operator."""

    def __attrs_post_init__(self) -> None:
        self.questions = StreamQueries(
            self.dialect, self.destinations, self.to_topics.streams, self.send_for
        )

    def plan(self, client: Client | None, head: Head, quota: Quota | None) -> tuple[Head, SendPlan]:
        """Return the plan of a header block, and the block, rewritten for temporary names.

        Reserved headers are removed from it.

        Args:
          client: The sender; None = the broker.
          head: The header block.
          quota: Charged for new destinations.

        Raises:
          ProtocolError: as for ``Later.plan``, or the client may not send there.
        """
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = self.later.plan(head)
        if plan.honest is not None and client is not None:
            head, plan = self.later.honest(client, head, plan.honest)
        if plan.is_personal and client is not None:
            self.authorizer.check_send(client, plan.without_temporary())
            head = self.temporary.localised(client, head, plan.names)
            plan = self.later.plan(head)
        if client is not None and client.rights is not None:
            self.authorizer.check_send(client, plan)
            if plan.claims and (false := self.authorizer.false_claims(client, plan)):
                head = without_claims(head, false)
                plan = self.later.plan(head)
        for name in plan.here:
            if self.destinations.ensure(name, quota).kind is Kind.STREAM:
                self.questions.check(name, plan.options)
        return head, plan

    def send(self, context: SendContext, run: FrameRun) -> tuple[int, SendOutcome]:
        """Send a run. Return how many of its messages were taken or dropped, and the outcome.

        The others wait: for room in a queue that blocks its producers, or, where each message is
        dear, for another turn.

        Raises:
          NotYet: very many consumers must join a new queue first, or messages leave a full one.
          ProtocolError: the destination cannot be sent to, or a full queue refuses. In the second
            case ``done`` on the error is the number taken before.
        """
        client, bodies = context.client, run.bodies
        head, plan = self.plan(client, run.head, context.quota)
        if plan.later is not None:
            self.check_questions(plan, bodies)
            return len(bodies), self.later.take(context, head, plan, bodies) | plan.told
        if len(plan.names) != 1:
            return self._send_composite(context, head, plan, bodies)
        destination = self.destinations.open(plan.names[0], context.quota)
        if plan.renamed is not None:
            (head,) = plan.renamed
        if client is not None:
            if destination.cost_s * len(bodies) >= LIGHT_S and not context.in_commit:
                bodies = self._affordable([destination], bodies)
                if not bodies:
                    return 0, NOTHING
            if destination.kind is Kind.QUEUE and destination.queue is None:
                self._make_queues(context, (destination,))
            if may_push_out(destination):
                self._make_room(context, [(destination, head)], bodies)
        send = self._send_once if plan.options and plan.options.dedup_id else self.send_to
        taken, outcome = send(context, destination, head, plan.options, bodies)
        if plan.told is not NOTHING:
            outcome |= plan.told
        return taken, outcome

    def _send_composite(
        self, context: SendContext, head: Head, plan: SendPlan, bodies: list[bytes]
    ) -> tuple[int, SendOutcome]:
        """Send a run to several destinations or to none, and return as ``send`` does."""
        assert plan.renamed is not None
        client, quota, options = context.client, context.quota, plan.options
        if client is not None:
            self.check_questions(plan, bodies)
        destinations = [self.destinations.open(name, quota) for name in plan.names]
        parts = list(zip(destinations, plan.renamed, strict=True))
        if client is not None:
            if not context.in_commit:
                bodies = self._affordable(destinations, bodies)
                if not bodies:
                    return 0, NOTHING
            self._make_queues(context, destinations)
        survives = any(destination.stores(options) for destination in destinations)
        each = self.to_queues.stored_each(quota, (head,)) if survives else 0
        self.to_queues.check_room(client, destinations, head, bodies, quota=quota, each=each)
        if client is not None:
            self._make_room(context, parts, bodies)
        send = self._send_once if options and options.dedup_id else self.send_to
        if self.log is None or not survives:
            outcomes = [send(context, *part, options, bodies)[1] for part in parts]
        else:
            context = context.as_atomic()  # all parts become visible together
            with self.log.atomically(must_retry=client is None):
                outcomes = [send(context, *part, options, bodies)[1] for part in parts]
        return len(bodies), combined(outcomes) | plan.told

    def _affordable(self, destinations: Sequence[Destination], bodies: list[bytes]) -> list[bytes]:
        """Return the first of the messages, as many as this turn has time for.

        Raises:
          ProtocolError: Each reaches more subscribers than one event may.
        """
        cost_s = sum(each.cost_s for each in destinations)
        if cost_s > LIMIT_S:
            for each in destinations:
                self.destinations.note_excess(each)
            names = ",".join(each.name for each in destinations)
            raise too_many_subscribers(names, cost_s, LIMIT_S)
        most = self.turns.afford(cost_s, len(bodies), sum(each.more_s for each in destinations))
        return bodies if most == len(bodies) else bodies[:most]

    def cost_of(self, client: Client, head: Head) -> float:
        """Return the cost of a message at its subscribers, in seconds; 0 = it is refused.

        Their lists are up to date afterwards.
        """
        name, quota = head.destination or "", client.quota
        destination = self.destinations.find_current(name)
        if destination is not None:
            return destination.cost_s
        if "," not in name and not self.destinations.wildcards:
            return 0.0  # nobody is subscribed to it, or only its client
        try:
            _, plan = self.plan(client, head, quota)
            if plan.later is not None:
                return 0.0
            return sum(self.destinations.open(name, quota).cost_s for name in plan.names)
        except ProtocolError:
            return 0.0

    def _make_queues(self, context: SendContext, destinations: Iterable[Destination]) -> None:
        client = context.client
        assert client is not None
        if not context.in_commit:
            self.queues.make(client, [r for r in destinations if not is_orphan(client, r)])

    def _make_room(self, context: SendContext, parts: list[Part], bodies: list[bytes]) -> None:
        """Raise ``NotYet`` if very many messages must leave, by policy, for those that are sent."""
        if not context.in_commit:
            needs = Needs(context.client, context.quota, context.now)
            for destination, head in parts:
                needs.add(destination, head, bodies)
            if (work := self.making_room(needs)) is not None:
                raise NotYet(work)

    def making_room(self, needs: Needs) -> Work | None:
        """Return the work that makes room for messages, or None if few must leave for them."""
        return needs.making_room(self.to_queues.overflow, self.to_topics.stale)

    def send_for(self, run: FrameRun, quota: Quota | None, now: float) -> int:
        """Send on behalf of a quota's owner, and return the number of messages taken or dropped."""
        return self.send(SendContext.of_broker(quota, now), run)[0]

    def stores(self, head: Head, quota: Quota | None = None) -> bool:
        """Return whether all messages with a header block are written to the log first.

        If not, they must wait for earlier messages of their sender that are. A new destination is
        charged to ``quota``.
        """
        try:
            stores = self.storing(head, quota)
        except ProtocolError:
            return False
        return bool(stores) and all(stores)

    def storing(self, head: Head, quota: Quota | None) -> list[bool]:
        """Return for each destination whether its messages are stored.

        Those for a client's own are not, and those for destinations of other cores are.
        """
        plan = self.later.plan(head)
        ensure, options, may = self.destinations.ensure, plan.options, not plan.is_personal
        here = [may and ensure(name, quota).stores(options) for name in plan.here]
        return here + [True] * (len(plan.names) - len(here))

    def _send_once(
        self,
        context: SendContext,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
    ) -> tuple[int, SendOutcome]:
        """Send a message with an id, unless the id is a duplicate."""
        assert options is not None
        assert len(bodies) == 1  # the decoder makes no longer run of them
        client, quota = context.client, context.quota
        name = id_of(client, options)
        window = self.duplicates.window_outcome(destination)
        outcome = self.duplicates.find(client, destination, name)
        if outcome is not None:
            return 1, outcome | window
        self.duplicates.check_room(quota, destination, name)
        log = self.log
        survives = (context.is_atomic or destination.stores(options)) and not destination.private
        taken, outcome = self.send_to(context, destination, head, options, bodies)
        if taken and not outcome.dropped:  # the id belongs to a message that was taken
            is_stored = log is not None and survives and outcome.stored == log.stored.stored
            self.duplicates.remember(client, quota, destination, name, is_stored=is_stored)
        return taken, outcome | window

    def send_to(
        self,
        context: SendContext,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
    ) -> tuple[int, SendOutcome]:
        """Send bodies to one destination, whose subscribers are up to date. Return as ``send``."""
        client, now = context.client, context.now
        expires_at = destination.ends_at(options, context.received_at)
        publication = Publication(
            destination,
            head=head,
            bodies=bodies,
            received_at=context.received_at,
            expires_at=expires_at,
            sender=client,
            options=options,
        )
        publication.quota = context.quota
        if options is not None and options.expires_ms:
            publication.end = DayEnd(options.expires_ms, expires_at, self.wall)
            publication.expires_at = ASK
        if destination.stores(options):
            publication.is_stored = self.log is not None
            if self.log is None:
                self._note_volatile(destination)
        if destination.kind is Kind.QUEUE:
            if is_orphan(client, destination):
                self._count(context, destination, bodies)
                return len(bodies), self.to_topics.drop(publication)
            publication.is_stored |= context.is_atomic
            is_kept = publication.is_stored and not destination.private
            taken = self.log.stored if self.log and is_kept else IN_MEMORY
            done, outcome = self.to_queues.enqueue(publication, taken, now)
            self._count(context, destination, bodies[:done] if done < len(bodies) else bodies)
            return done, outcome
        self._count(context, destination, bodies)
        if publication.is_over(now):
            self.fan_out.expire(publication, len(publication.bodies))
            return len(bodies), matched(0)
        return len(bodies), self._send_to_topic(context, publication)

    def check_questions(self, plan: SendPlan, bodies: list[bytes]) -> None:
        """Raise ``ProtocolError`` if a body is an invalid request to the broker, at any time."""
        for name in plan.here:
            self.to_topics.check(name, bodies, False)

    def _send_to_topic(self, context: SendContext, publication: Publication) -> SendOutcome:
        """Send to a topic, now or once stored, and return the outcome."""
        destination, to_topics, change = publication.destination, self.to_topics, ""
        if destination.kind is Kind.DIAG and context.client is not None:
            to_topics.check(destination.name, publication.bodies, not context.in_commit)
        if publication.options is not None or destination.retain != "header":
            change = to_topics.last_values.change_of(publication)
        if destination.kind is Kind.STREAM:
            self.questions.answer(publication, context.now)
            return NOTHING
        if self.log is not None and (publication.is_stored or change or context.is_atomic):
            return to_topics.store(context, self.log, publication, change)
        return to_topics.show(context, publication, change)

    def _note_volatile(self, destination: Destination) -> None:
        if not self.volatile:
            self.warn(volatile_warning(destination.name))
        self.volatile += 1

    def _count(self, context: SendContext, destination: Destination, bodies: list[bytes]) -> None:
        count = len(bodies)
        self.received += count
        destination.enqueued += count
        destination.bytes_in += sum(map(len, bodies))
        destination.observe_ingress(context.now - context.received_at, count)
