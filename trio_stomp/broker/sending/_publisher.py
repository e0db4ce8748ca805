"""SEND: runs of messages to topics, work queues, queues, the stale queue or the scheduler."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from attrs import define, field

from trio_stomp.base import ProtocolError, Quota, noop
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    ASK,
    Client,
    DayEnd,
    Destination,
    NotYet,
    Publication,
    WallTime,
    Work,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.forwarding import Forwards
from trio_stomp.broker.headers import (
    ELSEWHERE,
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
from trio_stomp.broker.routing import (
    FEW_SELECTORS,
    Begun,
    Destinations,
    FanOut,
    FanOutInPieces,
    Lines,
    MustCommit,
    SelectorEvaluator,
)
from trio_stomp.broker.sending._duplicates import Duplicates, id_of
from trio_stomp.broker.sending._postponed import Postponed
from trio_stomp.broker.sending._room import Needs, may_push_out
from trio_stomp.broker.sending._send_later import SendLater
from trio_stomp.broker.sending._temporary import Temporary, is_orphan
from trio_stomp.broker.sending._to_queue import QueueSender
from trio_stomp.broker.sending._to_topic import TopicSender
from trio_stomp.broker.streams import StreamQueries
from trio_stomp.broker.topics import NOBODY
from trio_stomp.frames import FrameRun, Head

MANY_DURABLES = 512
"""With more durable subscriptions than this, a stored SEND is done as a COMMIT."""


@define(eq=False, repr=False)
class Publisher:
    """Carries out SENDs. A method that raises has changed nothing."""

    dialect: Dialect
    destinations: Destinations
    queues: QueueBook
    fan_out: FanOut
    to_topics: TopicSender
    to_queues: QueueSender
    postponed: Postponed
    temporary: Temporary
    authorizer: Authorizer
    duplicates: Duplicates
    forwards: Forwards
    selector_evaluator: SelectorEvaluator
    """Evaluates many selectors in pieces before anything is sent."""
    lines: Lines
    """The lines in front of topics."""
    in_pieces: FanOutInPieces
    """Delivers to very many subscribers in pieces."""
    log: Log | None = None
    """The log for persistent messages; None = there is no store."""
    wall: WallTime = field(factory=WallTime)
    later: SendLater = field(init=False)
    """Has messages sent when they are due. Set by the broker."""
    questions: StreamQueries = field(init=False)
    behalf: Quota | None = None
    """The quota charged for messages that the broker sends on a user's behalf."""
    received: int = 0
    volatile: int = 0
    """Runs of persistent messages that are only in memory, as there is no store."""
    warn: Callable[[str], None] = noop
    """Logs a warning to the operator."""

    def __attrs_post_init__(self) -> None:
        self.questions = StreamQueries(
            self.dialect, self.destinations, self.to_topics.streams, self.send_for
        )

    def plan(self, client: Client | None, head: Head) -> tuple[Head, SendPlan]:
        """Return the plan of a header block, and the block, rewritten for temporary names.

        Reserved headers are removed from it.

        Raises:
          ProtocolError: as for ``Forwards.plan``, or the client may not send there.
        """
        plan = self.forwards.plan(head)
        if plan.honest is not None and client is not None:
            head, plan = self.forwards.honest(client, head, plan.honest)
        if plan.is_personal and client is not None:
            self.authorizer.check_send(client, plan.without_temporary())
            head = self.temporary.localised(client, head, plan.names)
            plan = self.forwards.plan(head)
        if client is not None and client.rights is not None:
            self.authorizer.check_send(client, plan)
            if plan.claims and (false := self.authorizer.false_claims(client, plan)):
                head = without_claims(head, false)
                plan = self.forwards.plan(head)
        if plan.schedule is ELSEWHERE:
            return head, plan
        quota = self.quota_of(client)
        for name in plan.names:
            if self.destinations.ensure(name, quota).kind is Kind.STREAM:
                self.questions.check(name, plan.options)
        return head, plan

    def quota_of(self, client: Client | None) -> Quota | None:
        """Return the quota charged for the current SEND."""
        return self.behalf if client is None else client.quota

    def send(
        self, client: Client | None, run: FrameRun, received_at: float, now: float
    ) -> tuple[int, SendOutcome]:
        """Send a run. Return how many of its messages were taken or dropped, and the outcome.

        The others wait: only a queue that blocks its producers leaves any.

        Raises:
          NotYet: too many selectors or new members must be evaluated first, or earlier messages are
            still being sent to the topic in pieces.
          Begun: the run is accepted, and is delivered to very many subscribers in later turns.
          MustCommit: it needs very many stored copies, or goes to several brokers of a cluster.
          ProtocolError: the destination cannot be sent to, or a full queue refuses. In the second
            case ``done`` on the error is the number taken before.
        """
        head, plan = self.plan(client, run.head)
        if client is not None and (plan.schedule is not None or len(plan.names) > 1):
            self.check_questions(plan, run.bodies)
        if plan.schedule is not None:
            if plan.is_apart:
                raise MustCommit(is_long=False)
            taken, outcome = self.later.schedule(
                client,
                quota=self.quota_of(client),
                head=head,
                plan=plan,
                bodies=run.bodies,
                now=now,
                is_atomic=self.to_topics.is_atomic,
            )
            return taken, outcome | plan.told
        options, bodies = plan.options, run.bodies
        if len(plan.names) == 1:
            send = self._send_once if options and options.dedup_id else self.send_to
            destination = self.destinations.ensure(plan.names[0], self.quota_of(client))
            if not self.destinations.is_current(destination):
                self._look_up(client, run.head, destination)
            if plan.renamed is not None:
                (head,) = plan.renamed
            if client is not None:
                if destination.durables:
                    self.check_copies((destination,), options, bodies)
                if destination.line is not None:
                    raise NotYet(self.lines.until_free(plan.names))
                # In a crowd, selectors are evaluated at delivery. The store needs results before.
                asks = self.log is not None or not destination.is_crowded
                if asks and len(destination.filtered) > FEW_SELECTORS:
                    self.selector_evaluator.ask(head, ((destination, head),))
                if destination.queue is None:
                    self._make_queues(client, (destination,))
                if may_push_out(destination):
                    self._make_room(client, [(destination, head)], bodies, now)
            taken, outcome = send(
                client, destination, head, options, bodies, received_at=received_at, now=now
            )
            if self.in_pieces.begun:
                raise Begun(self.in_pieces.giving([outcome | plan.told]))
            return taken, outcome | plan.told
        return self._send_composite(client, run, head, plan, received_at, now=now)

    def _look_up(self, client: Client | None, head: Head, destination: Destination) -> None:
        """Look up the subscribers of a destination, in pieces if they are very many.

        The broker's own messages do not wait for that here, but in ``Postponed.see``.
        """
        if client is None:
            self.destinations.refresh_few(destination)
        else:
            may_wait = not self.selector_evaluator.must_not_wait
            self.in_pieces.look_up(head, (destination,), may_wait=may_wait)

    def _send_composite(
        self,
        client: Client | None,
        run: FrameRun,
        head: Head,
        plan: SendPlan,
        received_at: float,
        now: float,
    ) -> tuple[int, SendOutcome]:
        """Send a run to several destinations or to none, and return as ``send`` does."""
        assert plan.renamed is not None
        bodies = run.bodies
        quota = self.quota_of(client)
        destinations = [self.destinations.ensure(name, quota) for name in plan.names]
        may_wait = client is not None and not self.selector_evaluator.must_not_wait
        self.in_pieces.look_up(run.head, destinations, may_wait=may_wait)
        parts = list(zip(destinations, plan.renamed, strict=True))
        if client is not None:
            self.check_copies(destinations, plan.options, bodies)
            if any(destination.line is not None for destination in destinations):
                raise NotYet(self.lines.until_free(plan.names))
            self.selector_evaluator.ask(head, parts)
            self._make_queues(client, destinations)
        survives = any(destination.stores(plan.options) for destination in destinations)
        each = self.to_queues.stored_each(quota, (head,)) if survives else 0
        self.to_queues.check_room(client, destinations, head, bodies, quota=quota, each=each)
        if client is not None:
            self._make_room(client, parts, bodies, now)
        outcomes = self._send_to_all(
            client,
            parts=parts,
            options=plan.options,
            bodies=bodies,
            received_at=received_at,
            now=now,
        )
        if self.in_pieces.begun:
            raise Begun(self.in_pieces.giving([*outcomes[:-1], outcomes[-1] | plan.told]))
        return len(bodies), combined(outcomes) | plan.told

    def check_copies(
        self, destinations: Iterable[Destination], options: SendOptions | None, bodies: list[bytes]
    ) -> None:
        """Raise ``MustCommit`` if a SEND outside of a COMMIT needs very many stored copies.

        Also if durable subscriptions may have to drop very many messages for it.
        """
        if self.log is None or self.to_topics.is_atomic:
            return
        stored = [each for each in destinations if each.durables and each.stores(options)]
        is_long = any(self.fan_out.drops_many(each, bodies) for each in stored)
        if is_long or sum(len(each.durables) for each in stored) > MANY_DURABLES:
            raise MustCommit(is_long=True)

    def _make_queues(self, client: Client, destinations: Iterable[Destination]) -> None:
        if not self.selector_evaluator.must_not_wait:
            self.queues.make(client, [r for r in destinations if not is_orphan(client, r)])

    def _make_room(
        self, client: Client, parts: list[tuple[Destination, Head]], bodies: list[bytes], now: float
    ) -> None:
        """Raise ``NotYet`` if very many messages must leave, by policy, for those that are sent."""
        if not self.selector_evaluator.must_not_wait:
            needs = Needs(client, client.quota, now)
            for destination, head in parts:
                needs.add(destination, head, bodies)
            if (work := self.making_room(needs)) is not None:
                raise NotYet(work)

    def making_room(self, needs: Needs) -> Work | None:
        """Return the work that makes room for messages, or None if few must leave for them."""
        return needs.making_room(self.to_queues.overflow, self.to_topics.stale)

    def _send_to_all(
        self,
        client: Client | None,
        parts: list[tuple[Destination, Head]],
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> list[SendOutcome]:
        """Send bodies to several destinations as far as there is room.

        Returns:
          The outcome for each destination.
        """
        log = self.log
        # All parts become visible together.
        is_atomic = log is not None and any(destination.stores(options) for destination, _ in parts)
        try:
            with self.atomic(must_retry=client is None) if is_atomic else nullcontext():
                return [
                    self.send_on(
                        client,
                        destination=destination,
                        head=each,
                        options=options,
                        bodies=bodies,
                        received_at=received_at,
                        now=now,
                    )
                    for destination, each in parts
                ]
        except BaseException:
            self.in_pieces.begun.clear()
            raise

    def send_on(
        self,
        client: Client | None,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> SendOutcome:
        """Send bodies to one destination as far as there is room, and return the outcome."""
        send = self._send_once if options and options.dedup_id else self.send_to
        return send(client, destination, head, options, bodies, received_at=received_at, now=now)[1]

    def send_for(self, run: FrameRun, quota: Quota | None, now: float) -> int:
        """Send on behalf of a quota's owner, and return the number of messages taken or dropped."""
        before, self.behalf = self.behalf, quota
        try:
            return self.send(None, run, now, now)[0]
        finally:
            self.behalf = before

    @contextmanager
    def atomic(self, *, must_retry: bool = False) -> Iterator[None]:
        """Group everything sent inside into one atomic unit, which becomes visible when stored."""
        assert self.log is not None
        before, self.to_topics.is_atomic = self.to_topics.is_atomic, True
        try:
            with self.log.atomically(must_retry=must_retry):
                yield
        finally:
            self.to_topics.is_atomic = before

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
        """Return for each destination whether its messages are stored; none for a client's own."""
        plan = self.forwards.plan(head)
        if plan.schedule is ELSEWHERE:
            return [True]
        names = () if plan.is_personal else plan.names
        ensure, options = self.destinations.ensure, plan.options
        return [ensure(name, quota).stores(options) for name in names]

    def _send_once(
        self,
        client: Client | None,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, SendOutcome]:
        """Send a message with an id, unless the id is a duplicate."""
        assert options is not None
        assert len(bodies) == 1  # the decoder makes no longer run of them
        name = id_of(client, options)
        window = self.duplicates.window_outcome(destination)
        outcome = self.duplicates.find(client, destination, name)
        if outcome is not None:
            return 1, outcome | window
        quota = self.quota_of(client)
        self.duplicates.check_room(quota, destination, name)
        log = self.log
        survives = (
            self.to_topics.is_atomic or destination.stores(options)
        ) and not destination.private
        taken, outcome = self.send_to(
            client,
            destination=destination,
            head=head,
            options=options,
            bodies=bodies,
            received_at=received_at,
            now=now,
        )
        if taken and not outcome.dropped:  # the id belongs to a message that was taken
            is_stored = log is not None and survives and outcome.stored == log.stored.stored
            # The outcome of what is stored in pieces is not known yet.
            is_stored |= bool(self.in_pieces.begun) and survives
            self.duplicates.remember(client, quota, destination, name, is_stored=is_stored)
        return taken, outcome | window

    def send_to(
        self,
        client: Client | None,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, SendOutcome]:
        """Send bodies to one destination. Return as ``send`` does."""
        expires_at = destination.ends_at(options, received_at)
        publication = Publication(
            destination,
            head=head,
            bodies=bodies,
            received_at=received_at,
            expires_at=expires_at,
            sender=client,
            options=options,
        )
        publication.quota = self.behalf if client is None else client.quota
        if options is not None and options.expires_ms:
            publication.end = DayEnd(options.expires_ms, expires_at, self.wall)
            publication.expires_at = ASK
        if destination.stores(options):
            publication.is_stored = self.log is not None
            if self.log is None:
                self._note_volatile(destination)
        if destination.kind is Kind.QUEUE:
            if is_orphan(client, destination):
                self._count(destination, bodies, received_at, now)
                return len(bodies), self.to_topics.drop(publication)
            publication.is_stored |= self.to_topics.is_atomic
            is_kept = publication.is_stored and not destination.private
            taken = self.log.stored if self.log and is_kept else IN_MEMORY
            done, outcome = self.to_queues.enqueue(publication, taken, now)
            self._count(
                destination, bodies[:done] if done < len(bodies) else bodies, received_at, now
            )
            return done, outcome
        self._count(destination, bodies, received_at, now)
        if publication.is_over(now):
            self.fan_out.expire(publication, len(publication.bodies))
            return len(bodies), matched(0)
        return len(bodies), self._send_to_topic(publication, now)

    def check_questions(self, plan: SendPlan, bodies: list[bytes]) -> None:
        """Raise ``ProtocolError`` if a body is an invalid request to the broker, at any time."""
        for name in plan.names:
            self.to_topics.check(name, bodies, False)

    def _send_to_topic(self, publication: Publication, now: float) -> SendOutcome:
        """Send to a topic, now or once stored, and return the outcome."""
        if publication.destination.kind is Kind.DIAG and publication.sender is not None:
            is_now = not self.selector_evaluator.must_not_wait
            self.to_topics.check(publication.destination.name, publication.bodies, is_now)
        to_topics, change = self.to_topics, ""
        if publication.options is not None or publication.destination.retain != "header":
            change = to_topics.last_values.change_of(publication)
        if publication.destination.kind is Kind.STREAM:
            self.questions.answer(publication, now)
            return NOTHING
        if self.log is not None and (publication.is_stored or change or to_topics.is_atomic):
            return self.postponed.store(self.log, publication, change, now)
        keeper = to_topics.last_values.keeper(publication) if change else NOBODY
        if publication.sender is None:
            return self.postponed.see(publication, change, keeper, now)
        return to_topics.show(publication, change, keeper, now)

    def _note_volatile(self, destination: Destination) -> None:
        if not self.volatile:
            self.warn(volatile_warning(destination.name))
        self.volatile += 1

    def _count(
        self, destination: Destination, bodies: list[bytes], received_at: float, now: float
    ) -> None:
        count = len(bodies)
        self.received += count
        destination.enqueued += count
        destination.bytes_in += sum(map(len, bodies))
        destination.observe_ingress(now - received_at, count)
