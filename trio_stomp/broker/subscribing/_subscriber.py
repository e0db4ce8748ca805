"""SUBSCRIBE: the subscriptions of all clients, from beginning to end."""

from collections.abc import Callable, Sequence

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, RemoteError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    BrokerPolicies,
    Client,
    NotYet,
    Subscription,
    Target,
    Work,
)
from trio_stomp.broker.durability import Callback, Log
from trio_stomp.broker.headers import (
    DSUB,
    ID_MARK,
    Dialect,
    StreamOptions,
    SubscribeOptions,
    consumes,
    parse_stream_options,
    parse_subscribe_options,
    resolve,
    routing_of,
)
from trio_stomp.broker.names import Kind, base36, classify, compile_pattern
from trio_stomp.broker.queues import AUTO, STEP, Acknowledger, Consumer, QueueBook
from trio_stomp.broker.routing import (
    BrokerEvents,
    Destinations,
    FanOut,
    hold_selector,
    no_memory_for,
    release_selector,
    subscription_cost,
)
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.broker.sending import Temporary
from trio_stomp.broker.streams import Streams, stream_name
from trio_stomp.broker.topics import Binding, Bindings, InitialDelivery, is_shared
from trio_stomp.frames import Headers, encode_receipt, subscription_prefix
from trio_stomp.protocol import DURABLE_NAMES, Subscribed


def needed(client: Client, private: str, public: str) -> Subscribed | None:
    """Return the SUBSCRIBE that gives a client its reply queue, or None if it has one.

    Args:
      client: The subscriber.
      private: The queue's name for the client, and the subscription's id.
      public: The queue's name for other clients.
    """
    named = (name for each in client.subscriptions.values() for name, _ in each.targets)
    if public in named or private in client.subscriptions:
        return None
    return Subscribed(private, private, AUTO, (("destination", private),), None)


def with_id(client: Client, key: str) -> Subscription | None:
    """Return the automatic subscription with an id, or None. A SUBSCRIBE may reuse its id."""
    made = client.subscriptions.get(key)
    is_automatic = made is not None and key in client.temporary and made.destination == key
    return made if is_automatic else None


def replaced(client: Client, targets: Sequence[Target]) -> list[Subscription]:
    """Return the automatic subscriptions that an explicit SUBSCRIBE to ``targets`` replaces."""
    names = {name for name, _ in targets}
    made = (
        client.subscriptions.get(private)
        for private, public in client.temporary.items()
        if public in names
    )
    return [each for each in made if each is not None and each.id == each.key]


def kind_of(targets: Sequence[Target]) -> Kind:
    """Return the kind of destinations that a SUBSCRIBE names.

    Raises:
      ProtocolError: it names queues together with other kinds.
    """
    kinds = {classify(name) for name, _ in targets}
    if Kind.QUEUE in kinds and len(kinds) > 1:
        raise ProtocolError(
            "mixed-destinations",
            "a composite SUBSCRIBE names queues and topics together; use two subscriptions",
        )
    for kind in (Kind.QUEUE, Kind.STREAM):
        if kind in kinds:
            return kind
    return classify(targets[0][0])


def stream_of(
    destination: str, targets: Sequence[Target], options: SubscribeOptions, *, is_durable: bool
) -> str:
    """Return the name of the stream that a SUBSCRIBE reads.

    Args:
      destination: The destination header, for error texts.
      targets: The destinations it names.
      options: The options.
      is_durable: It names a durable subscription.

    Raises:
      ProtocolError: it names several streams, or has options that streams do not support.
    """
    if options.selector or options.no_local or options.browser or is_durable:
        raise ProtocolError(
            "unsupported",
            f"destination:{destination[:80]} is read as a stream, by offset: leave out "
            "selector, no-local, browser and the name of a durable subscription",
            reason=CloseReason.UNSUPPORTED,
        )
    name, pattern = targets[0]
    if len(targets) > 1 or pattern is not None:
        raise ProtocolError(
            "invalid-destination",
            f"destination:{destination[:80]} names several streams; a subscription reads one",
        )
    return name if classify(name) is Kind.STREAM else stream_name(name)


def charge(
    memory: MemoryBudget,
    subscription: Subscription,
    kind: Kind,
    ack: str,
    options: SubscribeOptions,
) -> None:
    """Charge a subscription's memory until it ends.

    Raises:
      ProtocolError: there is not enough memory.
    """
    ack = options.shared or ack  # its messages wait in a queue, too
    cost = subscription_cost(subscription, kind, ack, is_durable=bool(options.durable))
    selector, quota = subscription.selector, subscription.quota
    if memory.take_table(cost, quota):
        if selector is None or hold_selector(memory, selector, quota):
            subscription.cost = cost
            return
        memory.give_table(cost, quota)
    raise no_memory_for(memory, subscription)


def refund(memory: MemoryBudget, subscription: Subscription) -> None:
    """Refund the memory of a subscription that ends."""
    memory.give_table(subscription.cost, subscription.quota)
    if subscription.selector is not None:
        release_selector(memory, subscription.selector)


@define(eq=False, repr=False)
class Subscriptions:
    """Keeps the subscriptions of all clients in order of SUBSCRIBE."""

    policies: BrokerPolicies
    dialect: Dialect
    fan_out: FanOut
    memory: MemoryBudget
    destinations: Destinations
    queues: QueueBook
    events: BrokerEvents
    acknowledger: Acknowledger
    temporary: Temporary
    authorizer: Authorizer
    bindings: Bindings
    initial_delivery: InitialDelivery
    selectors: SelectorCompiler
    boot: str
    streams: Streams
    counts: Callable[[Sequence[str], Headers], bool]
    """As ``Setup.counts``."""
    log: Log | None = None
    counted: int = 0
    """The number of subscriptions that count."""
    _all: dict[Subscription, None] = field(factory=dict)
    _number: int = 0

    def __len__(self) -> int:
        return len(self._all)

    def destination_names(self) -> list[str]:
        """Return the destinations of all subscriptions, in order of SUBSCRIBE."""
        return [subscription.destination for subscription in self._all]

    def add(self, client: Client, event: Subscribed, now: float) -> Work | None:
        """Subscribe. The RECEIPT is staged before the first MESSAGE.

        Returns:
          The remaining work, if any: joining the queues that a wildcard matches, or the initial
          delivery.

        Raises:
          NotYet: work must be done in pieces first, such as checking very many rules.
          ProtocolError: the id is in use (S07), there are too many subscriptions, a destination or
            header is invalid or not allowed, or memory is short.
        """
        number = self.next_number()
        key = event.id if event.id is not None else f"\0{number}"
        if (made := with_id(client, key)) is not None:
            self.end(made, 0.0)
        key = self._check(client, key)
        names = resolve(event.destination, self.dialect, routing_of(event.headers))
        targets = self._targets(client, names)
        kind = kind_of(targets)
        options = parse_subscribe_options(
            event.headers, event.destination, kind, self.dialect, client.client_id
        )
        stream_options = parse_stream_options(event.headers)
        if kind is Kind.STREAM or stream_options.is_given:
            kind = self._as_stream(client, event, targets, options)
        self._check_targets(client, event, targets, kind, options)
        former = self._former(client, targets, options)
        if former is not None:
            raise NotYet(self.ending(former, now))  # this one replaces it
        # A browser has nothing to acknowledge, whatever its ack header says.
        ack = AUTO if options.browser and kind is Kind.QUEUE else event.ack
        subscription = self._make(
            client,
            event=event,
            key=key,
            targets=targets,
            number=number,
            ack=ack,
            kind=kind,
            options=options,
        )
        subscription.is_counted = self.counts(names, event.headers)
        charge(self.memory, subscription, kind, ack, options)
        try:
            for made in replaced(client, targets):
                self.end(made, 0.0)
            if kind is Kind.STREAM:
                self._read(subscription, ack, options, stream_options, now)
            else:
                self._join(subscription, kind, ack, options, now)
        except (RemoteError, NotYet):
            refund(self.memory, subscription)
            raise
        client.subscriptions[key] = subscription
        client.tags[subscription.tag.encode()] = subscription
        self._all[subscription] = None
        self.counted += subscription.is_counted
        self.events.record("subscribe", client, destination=event.destination)
        return self._begin(subscription, kind, options, event.receipt, now)

    def _check_targets(
        self,
        client: Client,
        event: Subscribed,
        targets: list[Target],
        kind: Kind,
        options: SubscribeOptions,
    ) -> None:
        """Raise ``ProtocolError`` if the client may not subscribe, or a destination is invalid."""
        # /dsub/x is checked as the destinations of the durable subscription.
        if not (options.durable and event.destination.startswith(DSUB)):
            lasts = bool(options.durable)
            self.authorizer.check_subscribe(
                client, targets, kind, browses=options.browser, lasts=lasts
            )
        for name, pattern in targets:
            self.destinations.check(name, pattern, client.quota)

    def _former(
        self, client: Client, targets: list[Target], options: SubscribeOptions
    ) -> Subscription | None:
        """Return the client's own subscription that has a durable subscription alone, or None."""
        if not options.durable or is_shared(options.durable):
            return None
        for each in client.subscriptions.values():
            binding = each.binding
            if isinstance(binding, Binding) and binding.durable == options.durable:
                fits = binding.targets == targets and binding.selector_text == options.selector
                return None if fits and self.dialect.shares_durables else each
        return None

    def _begin(
        self,
        subscription: Subscription,
        kind: Kind,
        options: SubscribeOptions,
        receipt_id: bytes | None,
        now: float,
    ) -> Work | None:
        """Start a subscription, a durable one once it is stored, and return the remaining work."""
        give = self.initial_delivery.prepare(subscription, kind, options)

        def begin(at: float) -> Work | None:
            if receipt_id is not None:
                subscription.client.outbox.stage_frame(encode_receipt(receipt_id))
            return give(at)

        if options.durable and self.log is not None:
            self._begin_when_safe(self.log, subscription, begin, receipt_id)
            return None
        work, consumer = begin(now), subscription.consumer
        if kind is Kind.QUEUE and isinstance(consumer, Consumer) and not options.browser:
            return self.queues.wildcard_queues.join(consumer)
        return work

    def _make(
        self,
        client: Client,
        event: Subscribed,
        key: str,
        targets: list[Target],
        *,
        number: int,
        ack: str,
        kind: Kind,
        options: SubscribeOptions,
    ) -> Subscription:
        tag = f"{self.boot}.{base36(number)}{ID_MARK if kind is Kind.STREAM else ''}"
        selector = self.selectors.compile(options.selector) if options.selector else None
        has_ack = ack != AUTO and client.version.acks_by_header
        id_header = b"ack" if has_ack else b"message-id"
        has_tag = has_ack or kind is Kind.STREAM or not consumes(kind, ack, options)
        shown = event.destination if event.id is None and client.version.needs_id else event.id
        prefix = subscription_prefix(
            shown, tag if has_tag else "", client.rules, id_header=id_header
        )
        return Subscription(
            client,
            key=key,
            id=event.id,
            destination=event.destination,
            targets=targets,
            number=number,
            tag=tag,
            prefix=prefix,
            selector=selector,
            no_local=options.no_local,
        )

    def _begin_when_safe(
        self,
        log: Log,
        subscription: Subscription,
        begin: Callable[[float], Work | None],
        receipt_id: bytes | None,
    ) -> None:
        """Start a durable subscription once the store has committed it."""
        consumer = subscription.consumer
        assert isinstance(consumer, Consumer)
        consumer.is_early = True

        def safe(now: float) -> None:
            consumer.is_early = False
            if subscription in self._all and not subscription.client.is_leaving:
                work = begin(now)
                if work is not None:
                    self.destinations.turns.carry_out(work)
                self.queues.want(consumer)

        log.when_safe(Callback(subscription.client, safe, receipt_id))

    def next_number(self) -> int:
        """Return the next position in the order of subscribers."""
        self._number += 1
        return self._number

    def _check(self, client: Client, key: str) -> str:
        if key in client.subscriptions:
            if not self.dialect.allows_repeated_subscription_id:
                raise ProtocolError(
                    "duplicate-subscription",
                    f"id:{key[:60]} is in use by a subscription of this connection to"
                    f" {client.subscriptions[key].destination[:80]}; UNSUBSCRIBE it or use another",
                )
            key = f"{key}\0{self._number}"
        limit = self.policies.max_subscriptions_per_connection
        if len(client.subscriptions) >= limit:
            raise ProtocolError(
                "too-many-subscriptions",
                f"this connection has {limit} subscriptions, which is the limit"
                " (option max_subscriptions_per_connection)",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        return key

    def _targets(self, client: Client, names: Sequence[str]) -> list[Target]:
        """Return the destinations that a SUBSCRIBE names, with their patterns.

        Raises:
          ProtocolError: one is invalid, or private to another connection.
        """
        targets: list[Target] = []
        for name in names:
            pattern = compile_pattern(name, self.dialect.wildcards)
            targets.append((self.temporary.consumed_name(client, name, pattern), pattern))
        return targets

    def _as_stream(
        self, client: Client, event: Subscribed, targets: list[Target], options: SubscribeOptions
    ) -> Kind:
        """Replace the destination of a SUBSCRIBE with replay options by its stream.

        Raises:
          ProtocolError: there is no stream, several are named, the client may not read it, or
            streams do not support an option.
        """
        # RabbitMQ requires durable:true of a stream's readers, which means nothing else here.
        is_durable = any(name in DURABLE_NAMES for name, _ in event.headers)
        stream = stream_of(event.destination, targets, options, is_durable=is_durable)
        targets[0] = (stream, None)
        # Check before ``find``, which reveals whether the stream exists.
        self.authorizer.check_subscribe(client, targets, Kind.STREAM, browses=False, lasts=False)
        self.streams.find(stream, self.destinations.open)
        return Kind.STREAM

    def _read(
        self,
        subscription: Subscription,
        ack: str,
        options: SubscribeOptions,
        stream_options: StreamOptions,
        now: float,
    ) -> None:
        """Create a stream's consumer for a subscription."""
        consumer = Consumer(subscription, ack, options, self.fan_out)
        stream = self.streams.find(subscription.targets[0][0], self.destinations.open)
        self.streams.join(consumer, stream, stream_options, now)
        subscription.consumer = consumer

    def _join(
        self,
        subscription: Subscription,
        kind: Kind,
        ack: str,
        options: SubscribeOptions,
        now: float,
    ) -> None:
        """Attach a subscription to its destinations, through a consumer if it needs one."""
        if consumes(kind, ack, options):
            consumer = Consumer(subscription, ack, options, self.fan_out, subscription.selector)
            consumer.lent = subscription.client.lent
            subscription.client.takes_unasked |= ack == AUTO
            consumer.always_sends_redelivered = self.dialect.redelivered_always
            subscription.consumer = consumer
            if kind is Kind.QUEUE:
                if options.browser:
                    return
                for name, pattern in subscription.targets:
                    self.queues.join(consumer, name, pattern)
            else:
                subscription.binding = self.bindings.join(subscription, consumer, options, now)
            return
        for name, pattern in subscription.targets:
            self.destinations.add(subscription, name, pattern, subscription.quota)

    def expect_replies(self, client: Client, private: str, public: str) -> None:
        """Subscribe a client to its temporary queue, with the queue's name as id."""
        self.queues.open(public, client.quota)
        event = needed(client, private, public)
        if event is not None:
            self.add(client, event, 0.0)

    def go_on(self, client: Client, now: float) -> None:
        """Resume delivery to a client: earlier messages, browsing, and its queues."""
        for subscription in list(client.subscriptions.values()):
            consumer = subscription.consumer
            if isinstance(consumer, Consumer):
                self.queues.want(consumer)
        self.initial_delivery.go_on(client)
        self.initial_delivery.go_on_browsing(client, now)

    def ending(self, subscription: Subscription, now: float) -> Work:
        """End a subscription, in pieces if it has many queues or unacknowledged messages."""
        client, consumer = subscription.client, subscription.consumer
        is_stream = subscription.tag.endswith(ID_MARK)
        while (
            isinstance(consumer, Consumer) and not is_stream and not self.queues.is_small(consumer)
        ):
            self.queues.part(consumer, STEP, now)
            yield
        if client.subscriptions.get(subscription.key) is subscription:  # and it did not leave
            self.end(subscription, now)

    def end(self, subscription: Subscription, now: float) -> None:
        """End a subscription. Unacknowledged messages return to their queues, in order.

        A bug in one step keeps no other from being done.
        """
        client = subscription.client
        del client.subscriptions[subscription.key]
        del client.tags[subscription.tag.encode()]
        del self._all[subscription]
        self.counted -= subscription.is_counted
        try:
            self._leave(subscription, now)
        finally:
            # Break the reference cycle: the garbage collector runs rarely.
            subscription.consumer = subscription.binding = None
            self.initial_delivery.end(subscription)
            refund(self.memory, subscription)
            self.events.record("unsubscribe", client, destination=subscription.destination)

    def _leave(self, subscription: Subscription, now: float) -> None:
        """Detach a subscription from its destinations."""
        consumer, binding = subscription.consumer, subscription.binding
        if not isinstance(consumer, Consumer):
            for name, pattern in subscription.targets:
                self.destinations.remove(subscription, name, pattern)
        elif subscription.tag.endswith(ID_MARK):
            for message in consumer.take_all():
                message.source.settle(message)
            self.queues.leave(consumer)
        elif isinstance(binding, Binding):
            self.bindings.leave(consumer, binding, now)
        else:
            try:
                self.queues.leave(consumer)
            finally:
                self.acknowledger.return_all(consumer, now)
