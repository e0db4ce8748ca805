"""Composition of the core from its parts."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker._broker import Broker
from trio_stomp.broker._configuration import Configurator
from trio_stomp.broker._deferred import DeferredEvents
from trio_stomp.broker._diag_answers import DiagRequests
from trio_stomp.broker._sessions import Sessions
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.browsing import Browses
from trio_stomp.broker.delivery import (
    SEED,
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
from trio_stomp.broker.explain import Explainer, Tracer
from trio_stomp.broker.headers import Dialect, dialect, make_plan
from trio_stomp.broker.managing import LeftManager, Manager, StreamManager
from trio_stomp.broker.queues import (
    Acknowledger,
    Overflow,
    QueueBook,
    Readers,
    Storage,
)
from trio_stomp.broker.routing import BrokerEvents, Destinations, FanOut, PolicyBook, Quotas
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.broker.sending import (
    DueSender,
    Duplicates,
    Later,
    LeftoverRequests,
    Publisher,
    QueueSender,
    Scheduler,
    SendLater,
    Temporary,
    TopicSender,
    TransactionCommitter,
    send_dead,
    unguessable,
)
from trio_stomp.broker.streams import Streams
from trio_stomp.broker.subscribing import Leaving, Subscriptions, Unsubscriber
from trio_stomp.broker.topics import Bindings, InitialDelivery, LastValues, StaleQueue
from trio_stomp.frames import Headers

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker.rules import AccessRules


def _always(*_: object) -> bool:
    return True


def _alone(own: SendLater) -> Later:
    return own


@frozen(kw_only=True)
class Setup:
    """What a core is made of: its options, and what it uses of the process.

    Args:
      policies: Limits and policies of the whole broker.
      memory: The memory budget of the process.
      server: Supplies figures of the server.
      turns: Measures time shares. That of ``log`` is the same.
      boot: A short word, unique for each start of this broker; part of most message ids.
      server_name: The ``server`` header of CONNECTED; "" = none.
      book: Policies of destinations.
      dialect: The dialect for conflicting behaviours of brokers.
      wall: The time of day.
      log: The log; None = no store.
      rules: The access rules; None = everything is allowed.
      exists: Returns whether a user still exists, as far as is known.
      is_known: Returns whether the credentials that proved an identity are still valid.
      warn: Logs a warning to the operator.
      trace: Writes a traced frame to the operator's log.
      mark: Begins the ids and names that it makes, so that they are not those of other cores.
      later: Returns the ``Later`` of the core, given that of a core that has all destinations.
      counts: Returns whether figures of this core count a subscription, given its destinations and
        the headers of the SUBSCRIBE.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    server: TakesCensus
    turns: Turns
    boot: str
    server_name: str = ""
    book: PolicyBook = field(factory=PolicyBook)
    dialect: Dialect = field(factory=lambda: dialect("native"))
    wall: WallTime = field(factory=WallTime)
    log: Log | None = None
    rules: "AccessRules | None" = None
    exists: "Callable[[Identity], bool]" = _always
    is_known: "Callable[[Identity], bool]" = _always
    warn: Callable[[str], None] = noop
    trace: Callable[[str], None] = noop
    mark: str = ""
    later: Callable[[SendLater], Later] = _alone
    counts: Callable[[Sequence[str], Headers], bool] = _always


def assemble(setup: Setup) -> Broker:
    """Return a core, made of complete parts."""
    # ``Broker.use_policies`` keeps it up to date.
    setup.memory.quota_percent = setup.policies.max_share_per_user
    return _Assembly(setup).broker


class _Assembly:
    """Makes each part when another one first needs it.

    Where two parts need each other, the one that needs it less often gets a function that looks the
    other one up.
    """

    def __init__(self, setup: Setup) -> None:
        policies = setup.policies
        self.setup = setup
        self.policies, self.memory, self.log, self.wall = (
            policies,
            setup.memory,
            setup.log,
            setup.wall,
        )
        self.turns = setup.turns if setup.log is None else setup.log.turns
        self.dialect = setup.dialect
        if policies.wildcards == SEED:
            self.dialect = evolve(self.dialect, wildcards=SEED)
        self.boot = setup.mark + setup.boot
        self.clients: dict[Client, None] = {}
        self.timers = Timers(self.wall)
        self.deferred = DeferredEvents(self.memory)
        self.event_history = EventHistory(policies.explain_events)
        self.noted = self.event_history if self.event_history.is_recording else None
        self.stale = StaleQueue(policies, self.memory)
        self.names = MessageNames(self.boot, "" if self.log is None else self.log.named(self.boot))
        self.quotas = Quotas(lambda: self.clients)
        self.selectors = SelectorCompiler(at_end=self.turns.at_end)

    # Destinations.

    @cached_property
    def destinations(self) -> Destinations:
        return Destinations(
            self.policies,
            self.turns,
            lambda destination: self.configuration.configure(destination),
            self._forget,
            self.memory,
        )

    def _forget(self, destination: Destination) -> None:
        """Remove the state of a forgotten destination from other parts."""
        self.duplicates.forget(destination)
        self.queues.forget(destination)

    @cached_property
    def configuration(self) -> Configurator:
        return Configurator(self.policies, self.queues, self.streams)

    @cached_property
    def duplicates(self) -> Duplicates:
        return Duplicates(
            lambda name: self.queues.policies.policy_for(name).dedup_window, self.memory, self.log
        )

    @cached_property
    def fan_out(self) -> FanOut:
        return FanOut(
            self.policies,
            names=self.names,
            event_history=self.noted,
            extra_lines=b"\nredelivered:false" if self.dialect.redelivered_always else b"",
        )

    @cached_property
    def events(self) -> BrokerEvents:
        return BrokerEvents(self.destinations, event_history=self.noted)

    @cached_property
    def authorizer(self) -> Authorizer:
        return Authorizer(
            self.events,
            dialect=self.dialect,
            is_there=self._is_there,
            quotas=self.quotas,
            turns=self.turns,
            rules=self.setup.rules,
            exists=self.setup.exists,
            is_known=self.setup.is_known,
        )

    def _is_there(self, name: str) -> bool:
        """Return whether a queue exists, perhaps in another core, or a policy names it."""
        if self.later.lacks(name):
            return True  # that core knows, and is asked before
        destination = self.destinations.find(name)
        has_queue = destination is not None and destination.queue is not None
        return has_queue or self.queues.policies.names(name)

    # Queues.

    @cached_property
    def queues(self) -> QueueBook:
        return QueueBook(
            self.destinations,
            self.setup.book,
            self.memory,
            self.timers,
            turns=self.turns,
            event_history=self.noted,
            admit_dead=lambda *dead: self.overflow.admit_dead(*dead),
            shorten=lambda queue, now, kept=0: self.overflow.shorten(queue, now, kept),
            storage=self.storage,
            taking_back=lambda: self.acknowledger,
            send_dead=lambda to, head, message, now: send_dead(
                self.publisher, to, head, message, now
            ),
        )

    @cached_property
    def storage(self) -> Storage | None:
        if self.log is None:
            return None
        return Storage(
            self.log,
            self.memory,
            lambda head: make_plan(head, self.dialect).options,
            lambda *stored: self.queues.stored_messages(*stored),
            lambda *messages, size, first: self.queues.insert(*messages, size=size, first=first),
            wall=self.wall,
            payer_of=self.quotas.charged,
            readers=Readers(self.memory),
        )

    @cached_property
    def acknowledger(self) -> Acknowledger:
        return Acknowledger(self.queues, self.policies.unknown_ack == "ignore", self.names)

    @cached_property
    def overflow(self) -> Overflow:
        return Overflow(self.memory, self.queues)

    # Topics and subscriptions.

    @cached_property
    def streams(self) -> Streams:
        epochs = count(1)
        return Streams(
            self.memory,
            timers=self.timers,
            log=self.log,
            mark=self.queues.mark,
            new_epoch=lambda: f"{self.boot}.{next(epochs)}",
            wall=self.wall,
            warn=self.setup.warn,
        )

    @cached_property
    def last_values(self) -> LastValues:
        return LastValues(
            self.memory, self.destinations, self.authorizer, self.timers, self.storage
        )

    @cached_property
    def bindings(self) -> Bindings:
        return Bindings(
            self.policies,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            overflow=self.overflow,
            stale=self.stale,
            fan_out=self.fan_out,
            acknowledger=self.acknowledger,
            authorizer=self.authorizer,
            end_client=lambda client, now: self.leaving.leave(client, now),
            log=self.log,
            shares_durables=self.dialect.shares_durables,
        )

    @cached_property
    def temporary(self) -> Temporary:
        mark = self.setup.mark
        return Temporary(
            lambda client, private, public: self.subscriptions.expect_replies(
                client, private, public
            ),
            self.authorizer,
            begin_name=lambda client: mark + unguessable(client),
            names_remotely=self.dialect.names_remotely,
        )

    @cached_property
    def subscriptions(self) -> Subscriptions:
        initial_delivery = InitialDelivery(
            self.policies,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            stale=self.stale,
            fan_out=self.fan_out,
            bindings=self.bindings,
            browses=Browses(self.timers, self.turns),
            last_values=self.last_values,
        )
        return Subscriptions(
            self.policies,
            dialect=self.dialect,
            fan_out=self.fan_out,
            memory=self.memory,
            destinations=self.destinations,
            queues=self.queues,
            events=self.events,
            acknowledger=self.acknowledger,
            temporary=self.temporary,
            authorizer=self.authorizer,
            bindings=self.bindings,
            initial_delivery=initial_delivery,
            selectors=self.selectors,
            boot=self.boot,
            streams=self.streams,
            log=self.log,
            counts=self.setup.counts,
        )

    @cached_property
    def unsubscriber(self) -> Unsubscriber:
        return Unsubscriber(
            dialect=self.dialect,
            subscriptions=self.subscriptions,
            bindings=self.bindings,
            authorizer=self.authorizer,
            log=self.log,
        )

    @cached_property
    def leaving(self) -> Leaving:
        return Leaving(
            self.subscriptions,
            self.destinations,
            self.queues,
            self.acknowledger,
            self.timers,
            turns=self.turns,
        )

    # SEND.

    @cached_property
    def later(self) -> Later:
        own = SendLater(
            self.dialect,
            destinations=self.destinations,
            duplicates=self.duplicates,
            scheduler=self.scheduler,
            log=self.log,
        )
        return self.setup.later(own)

    @cached_property
    def to_topics(self) -> TopicSender:
        return TopicSender(
            self.destinations,
            fan_out=self.fan_out,
            last_values=self.last_values,
            streams=self.streams,
            stale=self.stale,
            turns=self.turns,
            answer=lambda publication: self.answers.to_topic(publication),
            check=lambda name, bodies, is_now: self.answers.check(name, bodies, is_now),
            log=self.log,
            events=self.events,
        )

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(
            self.dialect,
            destinations=self.destinations,
            queues=self.queues,
            fan_out=self.fan_out,
            to_topics=self.to_topics,
            to_queues=QueueSender(self.queues, self.overflow),
            temporary=self.temporary,
            authorizer=self.authorizer,
            duplicates=self.duplicates,
            turns=self.turns,
            later=self.later,
            log=self.log,
            wall=self.wall,
            warn=self.setup.warn,
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler(
            self.memory,
            timers=self.timers,
            overflow=self.overflow,
            sender=DueSender(lambda: self.publisher),
            authorizer=self.authorizer,
            dialect=self.dialect,
            policies=self.policies,
            wall=self.wall,
            storage=self.storage,
        )

    @cached_property
    def committer(self) -> TransactionCommitter:
        return TransactionCommitter(self.publisher, self.acknowledger, self.queues, self.overflow)

    # Requests and operations.

    @cached_property
    def explainer(self) -> Explainer:
        return Explainer(
            self.event_history,
            boot=self.boot,
            dialect=self.dialect,
            destinations=self.destinations,
            clients=self.clients,
            authorizer=self.authorizer,
            queues=self.queues,
            fan_out=self.fan_out,
            log=self.log,
        )

    @cached_property
    def tracer(self) -> Tracer:
        trace = self.setup.trace
        return Tracer(self.events, self.clients, self.timers, self.dialect, log=trace)

    @cached_property
    def leftovers(self) -> LeftoverRequests:
        return LeftoverRequests(self.scheduler, self.destinations, self.last_values, self.quotas)

    @cached_property
    def answers(self) -> DiagRequests:
        return DiagRequests(
            self.setup.server,
            self.publisher,
            self.subscriptions,
            self.stale,
            clients=self.clients,
            event_history=self.event_history,
            explainer=self.explainer,
            leftovers=self.leftovers,
            tracer=self.tracer,
        )

    @cached_property
    def manager(self) -> Manager:
        return Manager(
            queues=self.queues,
            publisher=self.publisher,
            selectors=self.selectors,
            authorizer=self.authorizer,
            acknowledger=self.acknowledger,
            left=LeftManager(
                self.leftovers, self.bindings, self.authorizer, turns=self.turns, log=self.log
            ),
            streams=StreamManager(self.streams, self.destinations.open, self.turns),
        )

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(
            self.setup.server_name,
            dialect=self.dialect,
            clients=self.clients,
            leaving=self.leaving,
            answers=self.answers,
            events=self.events,
            authorizer=self.authorizer,
        )

    @cached_property
    def broker(self) -> Broker:
        return Broker(
            policies=self.policies,
            memory=self.memory,
            dialect=self.dialect,
            wall=self.wall,
            log=self.log,
            timers=self.timers,
            turns=self.turns,
            clients=self.clients,
            deferred=self.deferred,
            duplicates=self.duplicates,
            destinations=self.destinations,
            configuration=self.configuration,
            stale=self.stale,
            fan_out=self.fan_out,
            event_history=self.event_history,
            events=self.events,
            quotas=self.quotas,
            authorizer=self.authorizer,
            queues=self.queues,
            acknowledger=self.acknowledger,
            overflow=self.overflow,
            storage=self.storage,
            streams=self.streams,
            last_values=self.last_values,
            bindings=self.bindings,
            subscriptions=self.subscriptions,
            unsubscriber=self.unsubscriber,
            leaving=self.leaving,
            publisher=self.publisher,
            committer=self.committer,
            scheduler=self.scheduler,
            leftovers=self.leftovers,
            manager=self.manager,
            sessions=self.sessions,
            explainer=self.explainer,
            tracer=self.tracer,
        )
