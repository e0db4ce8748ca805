"""SEND: from a run of frames to topics, work queues, queues, the stale queue or later."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from attrs import define, field

from trio_stomp.base import Identity, MemoryBudget, ProtocolError, Quota, noop
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    ASK,
    Begun,
    Client,
    DayEnd,
    LossReason,
    NotYet,
    Publication,
    WallTime,
)
from trio_stomp.broker.durability import Callback, Log
from trio_stomp.broker.headers import (
    PRIORITY_DEFAULT,
    STORED,
    Dialect,
    SendOptions,
    SendPlan,
    make_plan,
    together,
    unmatched,
    volatile_told,
)
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE, Kind
from trio_stomp.broker.queues import Overflow, QueueBook, charge
from trio_stomp.broker.routing import (
    FEW_SELECTORS,
    Asker,
    BrokerEvents,
    Destination,
    Destinations,
    FanOut,
    FanOutInPieces,
    LastValueOwner,
    Lines,
    hint_at,
)
from trio_stomp.broker.sending._duplicates import Duplicates
from trio_stomp.broker.sending._postponed import Postponed
from trio_stomp.broker.sending._scheduler import Scheduler
from trio_stomp.broker.sending._send_later import schedule
from trio_stomp.broker.sending._temporary import Temporary, is_orphan
from trio_stomp.broker.streams import StreamQueries, Streams
from trio_stomp.broker.topics import NOBODY, LastValues, StaleQueue
from trio_stomp.frames import FrameRun, Head, head_cost


@define(eq=False, repr=False)
class Publisher:
    """Sends runs on. Each method is atomic: it raises before it has changed anything, or not."""

    dialect: Dialect
    memory: MemoryBudget
    destinations: Destinations
    queues: QueueBook
    stale: StaleQueue
    fan_out: FanOut
    overflow: Overflow
    temporary: Temporary
    authorizer: Authorizer
    answer: Callable[[Publication], None]
    """Answers SENDs to DIAG destinations."""
    last_values: LastValues
    streams: Streams
    known: Duplicates
    scheduler: Scheduler = field(init=False)
    """Sends later; joined by the broker."""
    questions: StreamQueries = field(init=False)
    asker: Asker = field(init=False)
    """Asks selectors before anything is sent; joined by the broker, too."""
    lines: Lines = field(init=False)
    """In front of topics; joined by the broker, too."""
    in_pieces: FanOutInPieces = field(init=False)
    """Gives to very many; joined by the broker, too."""
    postponed: Postponed = field(init=False)
    log: Log | None = None
    """What is to survive is written here first; None = nothing survives."""
    wall: WallTime = field(factory=WallTime)
    binds: bool = False
    """A transaction that survives as a whole is being done."""
    behalf: Quota | None = None
    """The quota that is charged for what the broker sends on a user's behalf."""
    received: int = 0
    duplicates: int = 0
    volatile: int = 0
    """Runs of messages that were sent to survive, and are in memory all the same."""
    warn: Callable[[str], None] = noop
    """Tells the operator."""
    events: BrokerEvents | None = None

    def __attrs_post_init__(self) -> None:
        self.postponed = Postponed(self)
        self.questions = StreamQueries(
            self.dialect, self.destinations, self.streams, self.overflow, self.send_for
        )

    def plan(self, client: Client | None, head: Head) -> tuple[Head, SendPlan]:
        """The plan of a header block; and the block, rewritten if it names something of a client.

        What only the broker may say is left out of it.

        Raises:
          ProtocolError: as ``make_plan``, or the client may not send there.
        """
        plan = self._plan_of(head)
        if plan.honest is not None and client is not None:
            head = plan.honest
            plan = self._plan_of(head)
        if plan.is_personal and client is not None:
            self.authorizer.check_send(client, plan.without_temporary())
            head = self.temporary.localised(client, head)
            plan = head.plan = make_plan(head, self.dialect)
        if client is not None and client.rights is not None:
            self.authorizer.check_send(client, plan)
        quota = self.quota_of(client)
        for name in plan.names:
            if self.destinations.place(name, quota).kind is Kind.STREAM:
                self.questions.check(name, plan.options)
        return head, plan

    def quota_of(self, client: Client | None) -> Quota | None:
        """Return the quota that is charged for what is sent now."""
        return self.behalf if client is None else client.quota

    def _plan_of(self, head: Head) -> SendPlan:
        """The plan of a header block as it stands; made once, and kept on it."""
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = head.plan = make_plan(head, self.dialect)
        return plan

    def send(
        self, client: Client | None, run: FrameRun, received_at: float, now: float
    ) -> tuple[int, bytes]:
        """Send a run; how many of its messages were taken, and what their RECEIPTs tell.

        Fewer than all are taken only by a queue that makes its producers wait.

        Raises:
          NotYet: so many selectors are to be asked first, or so many are to join a new queue, that
            there is no time for it now; or something is being sent to its topic bit by bit.
          Begun: it is sent, and very many have still to be given it.
          ProtocolError: the destination is not to be sent to, or a full queue refuses. In the
            second case ``taken`` on the error tells how many had been accepted before.
        """
        head, plan = self.plan(client, run.head)
        if plan.schedule is not None:
            return schedule(self, client=client, head=head, plan=plan, bodies=run.bodies, now=now)
        options, bodies = plan.options, run.bodies
        if len(plan.names) == 1:
            send = self._send_once if options and options.dedup_id else self.send_to
            destination = self.destinations.open(plan.names[0], self.quota_of(client))
            if plan.renamed is not None:
                (head,) = plan.renamed
            if client is not None:
                if destination.line is not None:
                    raise NotYet(self.lines.until_free(plan.names))
                # In a crowd each is asked when it is given it; the store wants to know before.
                asks = self.log is not None or not destination.is_crowded
                if asks and len(destination.filtered) > FEW_SELECTORS:
                    self.asker.ask(head, ((destination, head),))
                if destination.queue is None:
                    self._make_queues(client, (destination,))
            taken, evidence = send(
                client, destination, head, options, bodies, received_at=received_at, now=now
            )
            if self.in_pieces.begun:
                raise Begun(self.in_pieces.giving([evidence]))
            return taken, evidence
        assert plan.renamed is not None
        quota = self.quota_of(client)
        destinations = [self.destinations.place(name, quota) for name in plan.names]
        may_wait = client is not None and not self.asker.must_not_wait
        self.in_pieces.look_up(run.head, destinations, may_wait=may_wait)
        parts = list(zip(destinations, plan.renamed, strict=True))
        if client is not None:
            if any(destination.line is not None for destination in destinations):
                raise NotYet(self.lines.until_free(plan.names))
            self.asker.ask(head, parts)
            self._make_queues(client, destinations)
        self._check_room(client, destinations, head, bodies)
        told = self._send_to_all(
            client, parts=parts, options=options, bodies=bodies, received_at=received_at, now=now
        )
        if self.in_pieces.begun:
            raise Begun(self.in_pieces.giving(told))
        return len(bodies), together(told)

    def _make_queues(self, client: Client, destinations: Iterable[Destination]) -> None:
        if not self.asker.must_not_wait:
            self.queues.make(client, [r for r in destinations if not is_orphan(client, r)])

    def _send_to_all(
        self,
        client: Client | None,
        parts: list[tuple[Destination, Head]],
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> list[bytes]:
        """Send bodies to several destinations, where there is room; what their RECEIPTs tell."""
        log = self.log
        # Nothing of it is seen before all of it may be.
        binds = log is not None and any(destination.stores(options) for destination, _ in parts)
        try:
            with self.bound(is_kept=client is None) if binds else nullcontext():
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
        except ProtocolError:
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
    ) -> bytes:
        """Send bodies to one destination, as far as there is room; what their RECEIPTs tell."""
        send = self._send_once if options and options.dedup_id else self.send_to
        return send(client, destination, head, options, bodies, received_at=received_at, now=now)[1]

    def send_due(
        self, owner: Identity | None, quota: Quota | None, run: FrameRun, now: float, survives: bool
    ) -> int:
        """Send what was scheduled; how many of its messages were taken.

        Args:
          owner: Who scheduled it.
          quota: Who is charged for it.
          survives: The store had it until now, and must have it from now on.
        """
        is_bound = survives and self.log is not None
        binding = self.bound(is_kept=True) if is_bound else nullcontext()
        with self.last_values.left_by(owner), binding:
            return self.send_for(run, quota, now)

    def send_for(self, run: FrameRun, quota: Quota | None, now: float) -> int:
        """Send what somebody had the broker send; how many of its messages were taken."""
        before, self.behalf = self.behalf, quota
        try:
            return self.send(None, run, now, now)[0]
        finally:
            self.behalf = before

    @contextmanager
    def bound(self, *, is_kept: bool = False) -> Iterator[None]:
        """What is sent inside survives as a whole or not at all, and is seen when it does."""
        assert self.log is not None
        before, self.binds = self.binds, True
        try:
            with self.log.together(is_kept=is_kept):
                yield
        finally:
            self.binds = before

    def stores(self, head: Head, quota: Quota | None = None) -> bool:
        """Whether all that is sent with a header block is written to the log first.

        What is not must wait for what its sender sent before. A name that is new is charged to
        ``quota``.
        """
        try:
            plan = self._plan_of(head)
            names = [] if plan.is_personal else plan.names
            destinations = [self.destinations.place(name, quota) for name in names]
        except ProtocolError:
            return False
        return bool(destinations) and all(
            destination.stores(plan.options) for destination in destinations
        )

    def stored(self, head: Head) -> bytes:
        """What a RECEIPT tells of messages that a queue has taken."""
        return self.log.stored if self.log is not None and self.stores(head) else STORED

    def _check_room(
        self,
        client: Client | None,
        destinations: list[Destination],
        head: Head,
        bodies: list[bytes],
    ) -> None:
        """Refuse a composite SEND that does not fit everywhere, before it is anywhere.

        Raises:
          QueueFull: it does not.
        """
        size, quota = sum(map(len, bodies)), self.quota_of(client)
        self.overflow.check(
            {
                self.queues.open(destination.name, quota): (
                    len(bodies),
                    size,
                    max(map(len, bodies)),
                )
                for destination in destinations
                if destination.kind is Kind.QUEUE and not is_orphan(client, destination)
            },
            head_cost(head),
            quota=quota,
        )

    def _send_once(
        self,
        client: Client | None,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, bytes]:
        """Of messages with one id take the first, if none was taken within the policy's window."""
        assert options is not None
        name = options.dedup_id
        evidence = self.known.find(client, destination, name)
        if evidence is not None:
            self.duplicates += len(bodies)
            return len(bodies), evidence
        quota = self.quota_of(client)
        self.known.check_room(quota, destination, name)
        log = self.log
        survives = (self.binds or destination.stores(options)) and not destination.private
        with log.together(is_kept=client is None) if log and survives else nullcontext():
            taken, evidence = self.send_to(
                client,
                destination=destination,
                head=head,
                options=options,
                bodies=bodies[:1],
                received_at=received_at,
                now=now,
            )
            if not taken:
                return 0, evidence
            is_stored = log is not None and survives and log.stored in evidence
            self.known.remember(client, quota, destination, name, is_stored=is_stored)
        self.duplicates += len(bodies) - 1
        return len(bodies), evidence

    def send_to(
        self,
        client: Client | None,
        destination: Destination,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, bytes]:
        """Send bodies to one destination; how many were taken, and what RECEIPTs tell of them."""
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
                return len(bodies), self._drop(publication)
            if self.binds and destination.private and self.log is not None:
                self._count(destination, bodies, received_at, now)
                return len(bodies), self._enqueue_later(self.log, publication)
            publication.is_stored |= self.binds
            taken = self._enqueue(publication, now)
            self._count(
                destination, bodies[:taken] if taken < len(bodies) else bodies, received_at, now
            )
            return taken, self.log.stored if self.log and publication.is_stored else STORED
        self._count(destination, bodies, received_at, now)
        if publication.is_over(now):
            self.fan_out.expire(publication, len(publication.bodies))
            return len(bodies), b"matched:0\n"
        asked = ""
        if options is not None or destination.retain != "header":
            asked = self.last_values.asked(publication)
        if destination.kind is Kind.STREAM:
            self.questions.answer(publication, now)
            return len(bodies), b""
        if self.log is not None and (publication.is_stored or asked or self.binds):
            return len(bodies), self.postponed.store(self.log, publication, asked, now)
        keeper = self.last_values.keeper(publication) if asked else NOBODY
        return len(bodies), self.see(publication, asked, keeper, now)

    def see(
        self, publication: Publication, asked: str, keeper: LastValueOwner, now: float
    ) -> bytes:
        """Have a topic's messages seen, now or behind others; what their RECEIPTs tell."""
        destination = publication.destination
        if publication.sender is None and (
            destination.line is not None or destination.is_large(len(publication.bodies))
        ):
            self.postponed.send_behind(publication, asked, keeper)
            return b""
        return self.show(publication, asked, keeper, now)

    def show(
        self, publication: Publication, asked: str, keeper: LastValueOwner, now: float
    ) -> bytes:
        """Have a topic's messages seen, now; what their RECEIPTs tell.

        Args:
          asked: What is to become of its last value, which ``keeper`` answers for.
        """
        if asked:
            self.last_values.keep(publication, asked, keeper)
        told = self.append(publication, now) if publication.destination.stream is not None else b""
        return self.distribute(publication, now) + told

    def append(self, publication: Publication, now: float) -> bytes:
        """Write a topic's messages to its stream; what the RECEIPT tells of it."""
        stream = publication.destination.stream
        assert stream is not None
        bodies = publication.bodies
        is_certain = publication.is_stored or self.binds
        sender = publication.sender if is_certain else None
        first = self.streams.append(stream, publication.head, bodies, now, sender=sender)
        if self.log is not None and not is_certain:
            return b""  # if the store fails it may come to stand elsewhere
        return b"x-stream-offset:%d\n" % (first + len(bodies) - 1)

    def _note_volatile(self, destination: Destination) -> None:
        if not self.volatile:
            self.warn(volatile_told(destination.name))
        self.volatile += 1

    def _count(
        self, destination: Destination, bodies: list[bytes], received_at: float, now: float
    ) -> None:
        count = len(bodies)
        self.received += count
        destination.enqueued += count
        destination.bytes_in += sum(map(len, bodies))
        destination.observe_ingress(now - received_at, count)

    def distribute(self, publication: Publication, now: float) -> bytes:
        """To the subscribers of a topic or work queue; or nobody is there."""
        destination = publication.destination
        if not destination.subscribers and destination.name not in (EXPLAIN, TRACE, LEFT):
            return self._keep(publication, now)
        if destination.kind is Kind.TOPIC:
            if destination.is_large(len(publication.bodies)):
                self.in_pieces.begin(publication)
                return b""
            return b"matched:%d\n" % self.fan_out.to_all(publication)
        if destination.kind is Kind.WORK:
            if not self.fan_out.in_turn(publication):
                return self._keep(publication, now)
            return b"matched:1\n"
        self.answer(publication)
        return b"matched:%d\n" % len(destination.subscribers)

    def _keep(self, publication: Publication, now: float) -> bytes:
        """Nobody is subscribed: park it, if the destination gives it a lifetime, or let it die."""
        destination = publication.destination
        if (
            destination.retained is not None
            and destination.retained.bodies[0] is publication.bodies[-1]
        ):
            return unmatched(destination.name) + STORED  # who comes is given it as the last value
        if destination.ttl_s and destination.kind is not Kind.DIAG and not destination.private:
            hint_at(self.events, publication)
            self.stale.park(publication, now)
            return unmatched(destination.name) + STORED
        return self._drop(publication)

    def _drop(self, publication: Publication) -> bytes:
        count = len(publication.bodies)
        destination = publication.destination
        hint_at(self.events, publication)
        destination.dropped += count
        self.fan_out.drops.no_subscriber += count
        self.fan_out.note(LossReason.NO_SUBSCRIBER, destination, count)
        return unmatched(destination.name)

    def _enqueue(self, publication: Publication, now: float) -> int:
        """Put a run into a queue: all at once if it fits, else one by one by its policy."""
        destination, bodies = publication.destination, publication.bodies
        queue = self.queues.open(destination.name, publication.quota)
        options = publication.options
        level = options.priority if options is not None else PRIORITY_DEFAULT
        origin = publication.without_bodies()
        size = sum(map(len, bodies))
        count = len(bodies)
        if queue.fits(count, size) and charge(self.memory, origin.head, count, size, origin.quota):
            self.queues.accept(queue, origin, bodies, level, size)
            return count
        for taken, body in enumerate(bodies):
            if not self.overflow.admit(
                queue, origin=origin, body=body, level=level, taken=taken, now=now
            ):
                return taken
        return count

    def _enqueue_later(self, log: Log, publication: Publication) -> bytes:
        """Put a run into a queue of one connection, when all that is bound to it is safe."""

        def enqueue(at: float) -> None:
            if is_orphan(publication.sender, publication.destination):
                self._drop(publication)
            else:
                self.overflow.send_quietly(lambda: self._enqueue(publication, at))

        log.when_safe(Callback(publication.sender, enqueue))
        return STORED
