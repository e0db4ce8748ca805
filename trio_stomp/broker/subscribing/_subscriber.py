"""SUBSCRIBE: the subscriptions of all clients, from beginning to end."""

from collections.abc import Callable, Sequence
from functools import partial

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
    base36,
)
from trio_stomp.broker.durability import Callback, Log
from trio_stomp.broker.headers import (
    DSUB,
    ID_MARK,
    Dialect,
    StreamOptions,
    SubscribeOptions,
    parse_stream_options,
    parse_subscribe_options,
    resolve,
    routing_of,
)
from trio_stomp.broker.names import Kind, classify, compile_pattern
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


def stream_of(event: Subscribed, targets: Sequence[Target], options: SubscribeOptions) -> str:
    """Return the name of the stream that a SUBSCRIBE reads.

    Raises:
      ProtocolError: it names several streams, or has options that streams do not support.
    """
    # RabbitMQ requires durable:true of a stream's readers, which means nothing else here.
    is_durable = any(name in DURABLE_NAMES for name, _ in event.headers)
    if options.selector or options.no_local or options.browser or is_durable:
        raise ProtocolError(
            "unsupported",
            f"destination:{event.destination[:80]} is read as a stream, by offset: leave out "
            "selector, no-local, browser and the name of a durable subscription",
            reason=CloseReason.UNSUPPORTED,
        )
    name, pattern = targets[0]
    if len(targets) > 1 or pattern is not None:
        raise ProtocolError(
            "invalid-destination",
            f"destination:{event.destination[:80]} names several streams; a subscription reads one",
        )
    return name if classify(name) is Kind.STREAM else stream_name(name)


def refund(memory: MemoryBudget, subscription: Subscription) -> None:
    """Refund the memory of a subscription that ends."""
    memory.give_table(subscription.cost, subscription.quota)
    if subscription.selector is not None:
        release_selector(memory, subscription.selector)


@define(eq=False, repr=False)
class Request:
    """A SUBSCRIBE, parsed.

    Args:
      client: The subscriber.
      event: The frame.
      key: The id, or a generated one.
      number: The position in the order of subscribers.
      targets: The destinations that it names.
      kind: Their kind.
      ack: The ack mode.
      options: The options in its headers.
      stream_options: The part of a stream that it reads.
      has_consumer: It needs a consumer, as all do except plain ones to topics.
      is_counted: As ``Subscription.is_counted``.
    """

    client: Client
    event: Subscribed
    key: str
    number: int
    targets: list[Target]
    kind: Kind
    ack: str
    options: SubscribeOptions
    stream_options: StreamOptions
    has_consumer: bool
    is_counted: bool


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
        request = self._parse(client, event)
        self._check(request)
        if request.options.durable and (former := self._former(request)) is not None:
            raise NotYet(self.ending(former, now))  # this one replaces it
        subscription = self._make(request)
        self._charge(subscription, request)
        try:
            if client.temporary:
                for made in replaced(client, request.targets):
                    self.end(made, 0.0)
            self._join(subscription, request, now)
        except (RemoteError, NotYet):
            refund(self.memory, subscription)
            raise
        client.subscriptions[request.key] = subscription
        client.tags[subscription.tag.encode()] = subscription
        self._all[subscription] = None
        self.counted += subscription.is_counted
        self.events.record("subscribe", client, destination=event.destination)
        return self._begin(subscription, request, now)

    def _parse(self, client: Client, event: Subscribed) -> Request:
        """Parse a SUBSCRIBE: its id, destinations and options.

        Raises:
          ProtocolError: the id is in use, there are too many subscriptions, a destination is
            private to another connection, or a header is invalid.
        """
        number = self.next_number()
        key = self._key(client, event.id)
        names = resolve(event.destination, self.dialect, routing_of(event.headers))
        targets: list[Target] = []
        for name in names:
            pattern = compile_pattern(name, self.dialect.wildcards)
            targets.append((self.temporary.consumed_name(client, name, pattern), pattern))
        kind = kind_of(targets)
        options = parse_subscribe_options(
            event.headers, event.destination, kind, self.dialect, client.client_id
        )
        stream_options = parse_stream_options(event.headers)
        if kind is Kind.STREAM or stream_options.is_given:
            targets, kind = [(stream_of(event, targets, options), None)], Kind.STREAM
        # A browser has nothing to acknowledge, whatever its ack header says.
        ack = AUTO if options.browser and kind is Kind.QUEUE else event.ack
        has_queue = kind is Kind.QUEUE or bool(options.durable or options.shared)
        return Request(
            client,
            event,
            key=key,
            number=number,
            targets=targets,
            kind=kind,
            ack=ack,
            options=options,
            stream_options=stream_options,
            has_consumer=has_queue or ack != AUTO,
            is_counted=self.counts(names, event.headers),
        )

    def next_number(self) -> int:
        """Return the next position in the order of subscribers."""
        self._number += 1
        return self._number

    def _key(self, client: Client, id: str | None) -> str:
        """Return the key of a new subscription: its id, unless it has none or repeats one."""
        key = id if id is not None else f"\0{self._number}"
        if (same := client.subscriptions.get(key)) is not None:
            if key in client.temporary and same.destination == key:
                self.end(same, 0.0)  # an automatic one, whose id a SUBSCRIBE may use
            elif self.dialect.allows_repeated_subscription_id:
                key = f"{key}\0{self._number}"
            else:
                raise ProtocolError(
                    "duplicate-subscription",
                    f"id:{key[:60]} is in use by a subscription of this connection to"
                    f" {same.destination[:80]}; UNSUBSCRIBE it or use another",
                )
        limit = self.policies.max_subscriptions_per_connection
        if len(client.subscriptions) >= limit:
            raise ProtocolError(
                "too-many-subscriptions",
                f"this connection has {limit} subscriptions, which is the limit"
                " (option max_subscriptions_per_connection)",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        return key

    def _check(self, request: Request) -> None:
        """Check the rights of a client, and that the destinations may be in use.

        Raises:
          NotYet: very many rules must be checked in pieces first.
          ProtocolError: it may not subscribe, a stream is unknown, or a name is too long.
        """
        client, targets, options = request.client, request.targets, request.options
        is_stream, lasts = request.kind is Kind.STREAM, bool(options.durable)
        is_backlog = lasts and request.event.destination.startswith(DSUB)
        if is_stream or not is_backlog:  # which is checked as that of a durable subscription
            lasts = lasts and not is_backlog
            self.authorizer.check_subscribe(
                client, targets, request.kind, browses=options.browser, lasts=lasts
            )
        if is_stream:  # only now, as this reveals whether it exists
            self.streams.find(targets[0][0], self.destinations.open)
        for name, pattern in targets:
            self.destinations.check(name, pattern, client.quota)

    def _former(self, request: Request) -> Subscription | None:
        """Return the client's own subscription that has a durable subscription alone, or None."""
        options = request.options
        if is_shared(options.durable):
            return None
        for each in request.client.subscriptions.values():
            binding = each.binding
            if isinstance(binding, Binding) and binding.durable == options.durable:
                is_same = binding.targets == request.targets
                fits = is_same and binding.selector_text == options.selector
                return None if fits and self.dialect.shares_durables else each
        return None

    def _make(self, request: Request) -> Subscription:
        """Return the subscription, with the constant first half of its MESSAGEs."""
        client, event, options = request.client, request.event, request.options
        is_stream = request.kind is Kind.STREAM
        tag = f"{self.boot}.{base36(request.number)}{ID_MARK if is_stream else ''}"
        has_ack = request.ack != AUTO and client.version.acks_by_header
        id_header = b"ack" if has_ack else b"message-id"
        has_tag = has_ack or is_stream or not request.has_consumer
        shown = event.destination if event.id is None and client.version.needs_id else event.id
        return Subscription(
            client,
            key=request.key,
            id=event.id,
            destination=event.destination,
            targets=request.targets,
            number=request.number,
            tag=tag,
            prefix=subscription_prefix(
                shown, tag if has_tag else "", client.rules, id_header=id_header
            ),
            selector=self.selectors.compile(options.selector) if options.selector else None,
            no_local=options.no_local,
            is_counted=request.is_counted,
        )

    def _charge(self, subscription: Subscription, request: Request) -> None:
        """Charge a subscription's memory until it ends.

        Raises:
          ProtocolError: there is not enough memory.
        """
        options, memory = request.options, self.memory
        ack = options.shared or request.ack  # its messages wait in a queue, too
        is_durable = bool(options.durable)
        cost = subscription_cost(subscription, request.kind, ack, is_durable=is_durable)
        selector, quota = subscription.selector, subscription.quota
        self.destinations.make_room(cost + (selector.cost if selector is not None else 0), quota)
        if memory.take_table(cost, quota):
            if selector is None or hold_selector(memory, selector, quota):
                subscription.cost = cost
                return
            memory.give_table(cost, quota)
        raise no_memory_for(memory, subscription)

    def _join(self, subscription: Subscription, request: Request, now: float) -> None:
        """Attach a subscription to its destinations, through a consumer if it needs one."""
        kind, ack, options = request.kind, request.ack, request.options
        if kind is Kind.STREAM:
            consumer = Consumer(subscription, ack, options, self.fan_out)
            stream = self.streams.find(subscription.targets[0][0], self.destinations.open)
            self.streams.join(consumer, stream, request.stream_options, now)
            subscription.consumer = consumer
        elif request.has_consumer:
            consumer = Consumer(subscription, ack, options, self.fan_out, subscription.selector)
            consumer.lent = subscription.client.lent
            subscription.client.takes_unasked |= ack == AUTO
            consumer.always_sends_redelivered = self.dialect.redelivered_always
            subscription.consumer = consumer
            if kind is not Kind.QUEUE:
                subscription.binding = self.bindings.join(subscription, consumer, options, now)
            elif not options.browser:
                for name, pattern in subscription.targets:
                    self.queues.join(consumer, name, pattern)
        else:
            for name, pattern in subscription.targets:
                self.destinations.add(subscription, name, pattern, subscription.quota)

    def _begin(self, subscription: Subscription, request: Request, now: float) -> Work | None:
        """Send the RECEIPT, of a durable subscription once it is stored. Return what is left."""
        consumer, receipt_id = subscription.consumer, request.event.receipt
        is_of_topics = request.kind not in (Kind.QUEUE, Kind.STREAM)
        earlier = self.initial_delivery.earlier(subscription) if is_of_topics else None
        if request.options.durable and self.log is not None:
            assert isinstance(consumer, Consumer)
            consumer.is_early = True
            begin = partial(self._begin_stored, subscription, consumer, earlier, receipt_id)
            self.log.when_safe(Callback(request.client, begin, receipt_id))
            return None
        if receipt_id is not None:
            request.client.outbox.stage_frame(encode_receipt(receipt_id))
        if request.kind is Kind.QUEUE and isinstance(consumer, Consumer):
            if not request.options.browser:
                return self.queues.wildcard_queues.join(consumer)
            self.initial_delivery.browse(consumer, request.options, now)
        return earlier

    def _begin_stored(
        self,
        subscription: Subscription,
        consumer: Consumer,
        earlier: Work | None,
        receipt_id: bytes | None,
        _now: float,
    ) -> None:
        """Begin a durable subscription, which is stored now."""
        consumer.is_early = False
        if subscription in self._all and not subscription.client.is_leaving:
            if receipt_id is not None:
                subscription.client.outbox.stage_frame(encode_receipt(receipt_id))
            if earlier is not None:
                self.queues.carry_out(earlier)
            self.queues.want(consumer)

    def expect_replies(self, client: Client, private: str, public: str) -> None:
        """Subscribe a client to its temporary queue, unless it has subscribed.

        Args:
          client: The client.
          private: The queue's name for the client, and the subscription's id.
          public: The queue's name for other clients.
        """
        self.queues.open(public, client.quota)
        named = (name for each in client.subscriptions.values() for name, _ in each.targets)
        if public not in named and private not in client.subscriptions:
            headers = (("destination", private),)
            self.add(client, Subscribed(private, private, AUTO, headers, None), 0.0)

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
                message.source.settle([message])
            self.queues.leave(consumer)
        elif isinstance(binding, Binding):
            self.bindings.leave(consumer, binding, now)
        else:
            try:
                self.queues.leave(consumer)
            finally:
                self.acknowledger.return_all(consumer, now)
