"""Composition of the core from its parts."""

from collections.abc import Sequence
from functools import partial
from itertools import count

from attrs import define, evolve, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker._configuration import configure
from trio_stomp.broker._deferred import DeferredEvents
from trio_stomp.broker._diag_answers import DiagRequests
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.browsing import Browses
from trio_stomp.broker.delivery import (
    SEED,
    STEPS,
    BrokerPolicies,
    Client,
    Destination,
    EventHistory,
    MessageNames,
    TakesCensus,
    Timers,
    Turns,
    WallTime,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.forwarding import Forwards
from trio_stomp.broker.headers import Dialect, dialect, make_plan
from trio_stomp.broker.managing import LeftManager, Manager, StreamManager
from trio_stomp.broker.names import DIAG_STREAM, MONITOR, Kind
from trio_stomp.broker.queues import (
    AckCounters,
    Acknowledger,
    Overflow,
    Queue,
    QueueBook,
    Readers,
    Storage,
)
from trio_stomp.broker.routing import (
    BrokerEvent,
    BrokerEvents,
    Destinations,
    FanOut,
    PolicyBook,
    Quotas,
)
from trio_stomp.broker.rules import AccessRules
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.broker.sending import (
    DueSender,
    Duplicates,
    LeftoverRequests,
    Publisher,
    QueueSender,
    Scheduler,
    SendLater,
    Temporary,
    TopicSender,
    TransactionCommitter,
    send_dead,
)
from trio_stomp.broker.streams import Stream, Streams
from trio_stomp.broker.subscribing import Leaving, Subscriptions, Unsubscriber
from trio_stomp.broker.topics import Bindings, InitialDelivery, LastValues, StaleQueue
from trio_stomp.frames import Head


def _native() -> Dialect:
    return dialect("native")  # the compiler would take a name of the class for it


@define(eq=False, repr=False)
class BrokerAssembly:
    """The parts of a core.

    Args:
      policies: Limits and policies of the whole broker.
      memory: The memory budget of the process.
      server: Supplies figures of the server.
      boot: A short word, unique for each start of this broker; part of most message ids.
      server_name: The ``server`` header of CONNECTED; "" = none.
      book: Policies of destinations.
      dialect: The dialect for conflicting behaviours of brokers.
      wall: The time of day.
      log: The log; None = no store.
      rules: The access rules; None = everything is allowed.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    server: TakesCensus
    boot: str
    server_name: str = ""
    book: PolicyBook = field(factory=PolicyBook)
    dialect: Dialect = field(factory=_native)
    wall: WallTime = field(factory=WallTime)
    log: Log | None = None
    rules: AccessRules | None = None
    timers: Timers = field(init=False)
    turns: Turns = field(init=False)
    clients: dict[Client, None] = field(factory=dict)
    deferred: DeferredEvents = field(init=False)
    acks: AckCounters = field(factory=AckCounters)
    duplicates: Duplicates = field(init=False)
    destinations: Destinations = field(init=False)
    stale: StaleQueue = field(init=False)
    fan_out: FanOut = field(init=False)
    event_history: EventHistory = field(init=False)
    events: BrokerEvents = field(init=False)
    quotas: Quotas = field(init=False)
    authorizer: Authorizer = field(init=False)
    queues: QueueBook = field(init=False)
    acknowledger: Acknowledger = field(init=False)
    overflow: Overflow = field(init=False)
    forwards: Forwards = field(init=False)
    storage: Storage | None = None
    streams: Streams = field(init=False)
    last_values: LastValues = field(init=False)
    bindings: Bindings = field(init=False)
    subscriptions: Subscriptions = field(init=False)
    unsubscriber: Unsubscriber = field(init=False)
    leaving: Leaving = field(init=False)
    answers: DiagRequests = field(init=False)
    publisher: Publisher = field(init=False)
    committer: TransactionCommitter = field(init=False)
    scheduler: Scheduler = field(init=False)
    leftovers: LeftoverRequests = field(init=False)
    manager: Manager = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.turns = Turns() if self.log is None else self.log.turns
        if self.policies.wildcards == SEED:
            self.dialect = evolve(self.dialect, wildcards=SEED)
        self._make_places()
        if self.log is not None:
            self._make_storage(self.log)
        self._make_streams()
        temporary = Temporary(
            lambda client, private, public: self.subscriptions.expect_replies(
                client, private, public
            ),
            self.authorizer,
            names_remotely=self.dialect.names_remotely,
        )
        self._make_subscriber(temporary)
        self._make_publisher(temporary)
        self.manager = Manager(
            queues=self.queues,
            publisher=self.publisher,
            selectors=self.subscriptions.selectors,
            authorizer=self.authorizer,
            acknowledger=self.acknowledger,
            left=LeftManager(
                self.leftovers, self.bindings, self.authorizer, turns=self.turns, log=self.log
            ),
            streams=StreamManager(self.streams, self.destinations.open, self.turns),
        )

    def lacks(self, destination: str) -> bool:
        """Return whether another broker of the cluster has a destination."""
        return self.forwards.lacks(destination)

    def counts(self, destinations: Sequence[str]) -> bool:
        """Return whether a subscription to destinations is this broker's, of all that have it."""
        is_copy = self.subscriptions.is_copy
        return is_copy is None or not is_copy(destinations, ())

    def use_wall(self, offset_s: float, now: float) -> None:
        """Apply a step of the wall clock to everything that begins or ends at a time of day.

        Args:
          offset_s: Wall clock minus broker's clock, in seconds.
          now: Seconds of the broker's clock.
        """
        if self.log is None:
            self.wall.offset_s = offset_s
        else:
            self.wall.set(offset_s, self.log.next_id)
            self.log.keep(STEPS, self.wall.as_setting())
        self.stale.follow_wall_clock()
        self.scheduler.follow_wall_clock(now)

    @property
    def is_monitored(self) -> bool:
        """Return whether ``/queue/monitor`` has subscribers."""
        destination = self.destinations.find_current(MONITOR)
        return destination is not None and bool(destination.subscribers)

    def note_operation(self, event: str, queue: str, user: str, detail: str) -> None:
        """Publish the event of an operator's operation, with its user."""
        self.manager.record(event, queue, user, detail)

    def keep(
        self, stream: Stream, name: str, body: bytes, headers: Sequence[tuple[str, str]], now: float
    ) -> None:
        """Append a message of the broker to a stream, unless the store is far behind."""
        if self.log is None or not self.log.is_full:
            head = Head("SEND", (("destination", name), *headers), len(body), name)
            self.streams.append(stream, head, [body], now, is_urgent=False)

    def keep_events(self, max_bytes: int, max_age_s: float, window_bytes: int) -> Stream:
        """Keep events, even without subscribers, and return the stream of DIAG messages.

        Args:
          max_bytes: The limit on disk; 0 = none.
          max_age_s: The limit of age, in seconds; 0 = none.
          window_bytes: The limit in memory; 0 = the default.
        """
        self.events.are_stored = True
        return self.streams.open(DIAG_STREAM, max_bytes, round(max_age_s * 1000), window_bytes)

    def take_events(self) -> list[BrokerEvent]:
        """Return the events since the last call."""
        return self.events.take()

    def record_drop(self, reason: str, count: int, destination: str = "") -> None:
        """Record an event for messages that were dropped."""
        self.events.record("drop", destination=destination, reason=reason, detail=f"{count}")

    def losing(self, since: float) -> dict[str, str]:
        """Return the destination that lost most messages since a time, by reason, if known."""
        return self.event_history.losing(since)

    def has_subscribers(self, name: str) -> bool:
        """Return whether the broker's own topic ``name`` has subscribers."""
        return bool(self.destinations.own(name).subscribers)

    def note_capacity(self, limit_bytes: int) -> None:
        """Set the maximum bytes of messages in the store, or 0 if unknown."""
        self.memory.stored_limit = limit_bytes

    def _make_places(self) -> None:
        """Create the parts that route and keep messages."""
        policies, memory = self.policies, self.memory
        memory.quota_percent = policies.max_share_per_user
        self.timers = Timers(self.wall)
        self.deferred = DeferredEvents(memory)
        self.event_history = EventHistory(policies.explain_events)
        noted = self.event_history if self.event_history.is_recording else None
        self.duplicates = Duplicates(
            lambda name: self.book.policy_for(name).dedup_window, memory, self.log
        )
        self.destinations = Destinations(
            policies,
            lambda destination: configure(destination, self),
            self._forget_route,
            memory,
            turns=self.turns,
        )
        self.stale = StaleQueue(policies, memory)
        extra_lines = b"\nredelivered:false" if self.dialect.redelivered_always else b""
        names = MessageNames(self.boot, "" if self.log is None else self.log.named(self.boot))
        self.fan_out = FanOut(policies, names=names, event_history=noted, extra_lines=extra_lines)
        self.events = BrokerEvents(self.destinations)
        self.quotas = Quotas(lambda: self.clients)
        self.authorizer = Authorizer(
            self.events,
            dialect=self.dialect,
            is_there=self._is_there,
            quotas=self.quotas,
            turns=self.turns,
            rules=self.rules,
        )
        self.queues = QueueBook(self.destinations, self.book, memory, self.timers)
        self.queues.turns = self.queues.wildcard_queues.turns = self.turns
        self.events.event_history = self.queues.event_history = noted
        ignores = policies.unknown_ack == "ignore"
        self.acknowledger = Acknowledger(self.queues, ignores, self.acks, names)
        self.queues.acknowledger = self.acknowledger
        self.overflow = Overflow(memory, self.queues)
        self.forwards = Forwards(
            self.dialect,
            policies.max_destination_bytes,
            memory=memory,
            overflow=self.overflow,
            wall=self.wall,
            log=self.log,
            turns=self.turns,
            timers=self.timers,
        )

    def _forget_route(self, destination: Destination) -> None:
        """Remove the state of a forgotten destination from other parts."""
        self.duplicates.forget(destination)
        self.queues.forget(destination)

    def _is_there(self, name: str) -> bool:
        """Return whether a queue exists, perhaps in another broker, or a policy names it."""
        if self.forwards.lacks(name):
            return True  # that broker knows, and is asked before
        destination = self.destinations.find(name)
        return self.book.names(name) or (destination is not None and destination.queue is not None)

    def _make_storage(self, log: Log) -> None:
        self.storage = self.queues.storage = Storage(
            log,
            self.memory,
            lambda head: make_plan(head, self.dialect).options,
            self.queues.stored_messages,
            self.queues.insert,
            wall=self.wall,
            payer_of=self.quotas.charged,
            readers=Readers(self.memory),
            make_room=self._make_room,
        )

    def _make_room(self, queue: Queue, count: int, size: int, now: float) -> None:
        """Drop old messages of a queue for those that enter, by its policy or its subscriber's."""
        owner = self.overflow if queue.destination.kind is Kind.QUEUE else self.bindings
        owner.make_room(queue, count, size, now)

    def _make_streams(self) -> None:
        epochs = count(1)
        self.streams = Streams(
            self.memory,
            timers=self.timers,
            log=self.log,
            mark=self.queues.mark,
            new_epoch=lambda: f"{self.boot}.{next(epochs)}",
            wall=self.wall,
        )
        self.last_values = LastValues(self.memory, self.destinations, self.authorizer, self.storage)

    def _make_subscriber(self, temporary: Temporary) -> None:
        self.bindings = Bindings(
            self.policies,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            stale=self.stale,
            fan_out=self.fan_out,
            acknowledger=self.acknowledger,
            authorizer=self.authorizer,
            log=self.log,
            shares_durables=self.dialect.shares_durables,
        )
        initial_delivery = InitialDelivery(
            self.policies,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            stale=self.stale,
            fan_out=self.fan_out,
            bindings=self.bindings,
            browses=Browses(self.timers),
            last_values=self.last_values,
        )
        self.subscriptions = Subscriptions(
            self.policies,
            dialect=self.dialect,
            fan_out=self.fan_out,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            events=self.events,
            acknowledger=self.acknowledger,
            temporary=temporary,
            authorizer=self.authorizer,
            bindings=self.bindings,
            initial_delivery=initial_delivery,
            selectors=SelectorCompiler(),
            boot=self.boot,
            streams=self.streams,
            log=self.log,
        )
        self.unsubscriber = Unsubscriber(
            dialect=self.dialect,
            subscriptions=self.subscriptions,
            bindings=self.bindings,
            authorizer=self.authorizer,
            log=self.log,
        )
        self.leaving = Leaving(
            self.subscriptions, self.destinations, self.queues, self.acknowledger, self.timers
        )
        self.leaving.turns = self.turns

    def _make_publisher(self, temporary: Temporary) -> None:
        self.answers = DiagRequests(
            self.server,
            self.fan_out,
            self.subscriptions,
            self.stale,
            clients=self.clients,
            destinations=self.destinations,
        )
        to_topics = TopicSender(
            self.destinations,
            fan_out=self.fan_out,
            last_values=self.last_values,
            streams=self.streams,
            stale=self.stale,
            turns=self.turns,
            answer=self.answers.to_topic,
            check=self.answers.check,
            log=self.log,
            events=self.events,
        )
        self.publisher = Publisher(
            self.dialect,
            destinations=self.destinations,
            queues=self.queues,
            fan_out=self.fan_out,
            to_topics=to_topics,
            to_queues=QueueSender(self.queues, self.overflow),
            temporary=temporary,
            authorizer=self.authorizer,
            duplicates=self.duplicates,
            forwards=self.forwards,
            turns=self.turns,
            log=self.log,
            wall=self.wall,
        )
        self.queues.send_dead = partial(send_dead, self.publisher)
        self.committer = TransactionCommitter(
            self.publisher, self.acknowledger, self.queues, self.overflow
        )
        self._make_scheduler()

    def _make_scheduler(self) -> None:
        self.scheduler = Scheduler(
            self.memory,
            timers=self.timers,
            overflow=self.overflow,
            sender=DueSender(self.publisher),
            authorizer=self.authorizer,
            dialect=self.dialect,
            policies=self.policies,
            wall=self.wall,
            storage=self.storage,
        )
        self.scheduler.turns = self.turns
        self.publisher.later = SendLater(
            self.forwards,
            destinations=self.destinations,
            duplicates=self.duplicates,
            scheduler=self.scheduler,
            log=self.log,
        )
        self.leftovers = LeftoverRequests(
            self.scheduler, self.destinations, self.last_values, self.quotas
        )
        self.answers.left = self.leftovers.answering
