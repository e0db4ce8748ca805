"""SUBSCRIBE and UNSUBSCRIBE: who receives what."""

from collections.abc import Callable

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, RemoteError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import BrokerPolicies, Client, Place, Subscription, Work
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
    wants_durable_end,
)
from trio_stomp.broker.names import Kind, classify, compile_pattern
from trio_stomp.broker.queues import AUTO, STEP, Acknowledger, Consumer, QueueBook
from trio_stomp.broker.routing import (
    Binding,
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
from trio_stomp.broker.topics import Bindings, InitialDelivery, ambiguous, unknown
from trio_stomp.frames import encode_receipt, subscription_prefix
from trio_stomp.protocol import Subscribed, Unsubscribed

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@define(eq=False, repr=False)
class Subscriber:
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
    log: Log | None = None
    _all: dict[Subscription, None] = field(factory=dict)
    _number: int = 0

    def __len__(self) -> int:
        return len(self._all)

    def destination_names(self) -> list[str]:
        """What is subscribed to, in order of SUBSCRIBE."""
        return [subscription.destination for subscription in self._all]

    def add(self, client: Client, event: Subscribed, now: float) -> Work | None:
        """Subscribe; the RECEIPT is staged before the first MESSAGE.

        Returns:
          What is left to do: to join the queues that its wildcards reach.

        Raises:
          ProtocolError: a second use of the id (S07), too many subscriptions, a destination or a
            header that cannot be served, or no memory for it.
        """
        number = self.next_number()
        key = event.id if event.id is not None else f"\0{number}"
        self._end_automatic(client, key)
        key = self._check(client, event, key)
        places = self.places(client, event)
        kind = self._kind(places)
        options = parse_subscribe_options(
            event.headers, event.destination, kind, self.dialect, client.client_id
        )
        told = parse_stream_options(event.headers)
        if kind is Kind.STREAM or told.is_asked:
            kind = self._as_stream(client, event, places, options)
        # /dsub/x is judged as what it stands for.
        if not (options.durable and event.destination.startswith(DSUB)):
            lasts = bool(options.durable)
            self.authorizer.check_subscribe(
                client, places, kind, browses=options.browser, lasts=lasts
            )
        for name, pattern in places:
            self.destinations.check(name, pattern, client.quota)
        # Whoever only looks has nothing to acknowledge, whatever it says.
        ack = AUTO if options.browser and kind is Kind.QUEUE else event.ack
        tag = f"{self.boot}.{base36(number)}{ID_MARK if kind is Kind.STREAM else ''}"
        subscription = self._make(
            client,
            event=event,
            key=key,
            places=places,
            number=number,
            tag=tag,
            ack=ack,
            kind=kind,
            options=options,
        )
        self._charge(subscription, kind, ack, options)
        try:
            self._take_over_reply_queue(client, places)
            if kind is Kind.STREAM:
                self._read(subscription, ack, options, told, now)
            else:
                self._join(subscription, kind, ack, options, now)
        except RemoteError:
            self._refund(subscription)
            raise
        client.subscriptions[key] = subscription
        client.tags[tag.encode()] = subscription
        self._all[subscription] = None
        self.events.tell("subscribe", client, destination=event.destination)

        def begin(at: float) -> None:
            if event.receipt is not None:
                client.outbox.stage_frame(encode_receipt(event.receipt))
            self.initial_delivery.give(subscription, kind, options, at)

        if options.durable and self.log is not None:
            self._begin_when_safe(self.log, subscription, begin, event.receipt)
        else:
            begin(now)
        consumer = subscription.consumer
        if kind is Kind.QUEUE and consumer is not None and not options.browser:
            return self.queues.reach.join(consumer)
        return None

    def _make(
        self,
        client: Client,
        event: Subscribed,
        key: str,
        places: list[Place],
        number: int,
        tag: str,
        ack: str,
        kind: Kind,
        options: SubscribeOptions,
    ) -> Subscription:
        selector = self.selectors.compile(options.selector) if options.selector else None
        says_ack = ack != AUTO and client.version.acks_by_header
        lead = b"ack" if says_ack else b"message-id"
        says_tag = says_ack or kind is Kind.STREAM or not consumes(kind, ack, options)
        shown = event.destination if event.id is None and client.version.needs_id else event.id
        prefix = subscription_prefix(shown, tag if says_tag else "", client.rules, lead=lead)
        return Subscription(
            client,
            key=key,
            id=event.id,
            destination=event.destination,
            places=places,
            number=number,
            tag=tag,
            prefix=prefix,
            selector=selector,
            no_local=options.no_local,
        )

    def _charge(
        self, subscription: Subscription, kind: Kind, ack: str, options: SubscribeOptions
    ) -> None:
        """Charge what a subscription takes until it ends.

        Raises:
          ProtocolError: there is no memory for it.
        """
        cost = subscription_cost(subscription, kind, ack, is_durable=bool(options.durable))
        selector, quota = subscription.selector, subscription.quota
        if self.memory.take_table(cost, quota):
            if selector is None or hold_selector(self.memory, selector, quota):
                subscription.cost = cost
                return
            self.memory.give_table(cost, quota)
        raise no_memory_for(self.memory, subscription)

    def _refund(self, subscription: Subscription) -> None:
        self.memory.give_table(subscription.cost, subscription.quota)
        if subscription.selector is not None:
            release_selector(self.memory, subscription.selector)

    def _begin_when_safe(
        self,
        log: Log,
        subscription: Subscription,
        begin: Callable[[float], None],
        receipt_id: bytes | None,
    ) -> None:
        """Let a durable subscription begin once nothing can make it forgotten."""
        consumer = subscription.consumer
        assert consumer is not None
        consumer.is_early = True

        def safe(now: float) -> None:
            consumer.is_early = False
            if subscription in self._all and not subscription.client.is_leaving:
                begin(now)
                self.queues.want(consumer)

        log.when_safe(Callback(subscription.client, safe, receipt_id))

    def next_number(self) -> int:
        """A place among all subscribers, behind those given before."""
        self._number += 1
        return self._number

    def _end_automatic(self, client: Client, key: str) -> None:
        """An explicit SUBSCRIBE may use the id that ``expect_replies`` gave."""
        made = client.subscriptions.get(key)
        if made is not None and key in client.temporary and made.destination == key:
            self.end(made, 0.0)

    def _check(self, client: Client, event: Subscribed, key: str) -> str:
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

    def places(self, client: Client, event: Subscribed) -> list[Place]:
        """What a SUBSCRIBE names; raises what ``add`` would."""
        places: list[Place] = []
        for said in resolve(event.destination, self.dialect, routing_of(event.headers)):
            pattern = compile_pattern(said, self.dialect.wildcards)
            places.append((self.temporary.consumed_name(client, said, pattern), pattern))
        return places

    def _kind(self, places: list[Place]) -> Kind:
        kinds = {classify(name) for name, _ in places}
        if Kind.QUEUE in kinds and len(kinds) > 1:
            raise ProtocolError(
                "mixed-destinations",
                "a composite SUBSCRIBE names queues and topics together; use two subscriptions",
            )
        for kind in (Kind.QUEUE, Kind.STREAM):
            if kind in kinds:
                return kind
        return classify(places[0][0])

    def _as_stream(
        self, client: Client, event: Subscribed, places: list[Place], options: SubscribeOptions
    ) -> Kind:
        """Turn the place of a SUBSCRIBE that wants a replay into a stream.

        Raises:
          ProtocolError: there is none, several are asked for at once, or a stream cannot do what
            else is asked.
        """
        durable = options.durable or wants_durable_end(event.headers)
        if options.selector or options.no_local or options.browser or durable:
            raise ProtocolError(
                "unsupported",
                f"destination:{event.destination[:80]} is read as a stream, whose offsets tell"
                " what was read: without selector, no-local, browser or a durable subscription",
                reason=CloseReason.UNSUPPORTED,
            )
        name, pattern = places[0]
        if len(places) > 1 or pattern is not None:
            raise ProtocolError(
                "invalid-destination",
                f"destination:{event.destination[:80]} names several streams; a subscription"
                " reads one",
            )
        stream = name if classify(name) is Kind.STREAM else stream_name(name)
        places[0] = (stream, None)
        # Before it is told whether there is one.
        self.authorizer.check_subscribe(client, places, Kind.STREAM, browses=False, lasts=False)
        self.streams.find(stream, self.destinations.open)
        return Kind.STREAM

    def _read(
        self,
        subscription: Subscription,
        ack: str,
        options: SubscribeOptions,
        told: StreamOptions,
        now: float,
    ) -> None:
        """Let a subscription read a stream."""
        consumer = Consumer(subscription, ack, options, self.fan_out)
        stream = self.streams.find(subscription.places[0][0], self.destinations.open)
        self.streams.join(consumer, stream, told, now)
        subscription.consumer = consumer

    def _join(
        self,
        subscription: Subscription,
        kind: Kind,
        ack: str,
        options: SubscribeOptions,
        now: float,
    ) -> None:
        """Connect a subscription to where its messages come from."""
        if consumes(kind, ack, options):
            consumer = Consumer(subscription, ack, options, self.fan_out, subscription.selector)
            consumer.lent = subscription.client.lent
            subscription.client.takes_unasked |= ack == AUTO
            consumer.always_tell_redelivered = self.dialect.redelivered_always
            subscription.consumer = consumer
            if kind is Kind.QUEUE:
                if options.browser:
                    return
                for name, pattern in subscription.places:
                    self.queues.join(consumer, name, pattern)
            else:
                subscription.binding = self.bindings.join(subscription, consumer, options, now)
            return
        for name, pattern in subscription.places:
            self.destinations.add(subscription, name, pattern, subscription.quota)

    def expect_replies(self, client: Client, private: str, public: str) -> None:
        """Have a client get what comes to a temporary queue, under the queue's name as id."""
        self.queues.open(public, client.quota)
        named = (name for each in client.subscriptions.values() for name, _ in each.places)
        if public not in named and private not in client.subscriptions:
            event = Subscribed(private, private, AUTO, (("destination", private),), None)
            self.add(client, event, 0.0)

    def _take_over_reply_queue(self, client: Client, places: list[Place]) -> None:
        """An explicit SUBSCRIBE replaces the one made by ``expect_replies``."""
        for private, public in client.temporary.items():
            made = client.subscriptions.get(private)
            if (
                made is not None
                and made.id == private
                and any(name == public for name, _ in places)
            ):
                self.end(made, 0.0)

    def remove(self, client: Client, event: Unsubscribed, now: float) -> Work:
        """Unsubscribe by id, or in STOMP 1.0 by destination: the oldest without an id (S13).

        Raises:
          ProtocolError: there is no such subscription (S14), or a durable one is somebody else's,
            or several of its name are kept and the client does not tell which it means.
        """
        found = self._find(client, event)
        name = wants_durable_end(event.headers, client.client_id)
        if found is None:
            binding = self._meant(client, name, event) if name else None
            if binding is not None:
                self._end_durable(client, binding, now)
                for each in [
                    one for one in client.subscriptions.values() if one.binding is binding
                ]:
                    self.end(each, now)
                self._receipt(client, event)
                return
            said = event.destination or "what it names"
            what = said if event.id is None else f"id:{event.id[:60]}"
            besides = f", and {unknown(name, event.destination)}" if name else ""
            raise ProtocolError(
                "unknown-subscription", f"{what} is no subscription of this connection{besides}"
            )
        binding = found.binding
        yield from self.ending(found, now)
        if binding is not None and binding.durable and name:
            self._end_durable(client, binding, now)
        self._receipt(client, event)

    def _meant(self, client: Client, name: str, event: Unsubscribed) -> Binding | None:
        """The durable subscription that an UNSUBSCRIBE names, if there is one.

        Raises:
          ProtocolError: there are several, or they are somebody else's.
        """
        aliases = self.dialect.destination_aliases
        said = event.destination
        if said is None or (aliases and said.startswith(DSUB)):
            meant = self.bindings.durables.meant(name)
        else:
            places = resolve(said, self.dialect, routing_of(event.headers))
            meant = self.bindings.durables.meant(name, said, places)
        if len(meant) > 1:
            # Other users' of the same name are none of this one's business.
            own = [binding for binding in meant if binding.owner == client.identity.name]
            meant = own or meant
        if len(meant) > 1:
            for binding in meant:
                self.authorizer.check_durable(client, binding)  # before they are told of
            raise ambiguous(name, meant)
        return meant[0] if meant else None

    def _end_durable(self, client: Client, binding: Binding, now: float) -> None:
        """End a durable subscription, and have its client wait until that is safe.

        Raises:
          ProtocolError: it is somebody else's.
        """
        self.authorizer.check_durable(client, binding)
        self.bindings.end_durable(binding, now)
        if self.log is not None:
            client.awaited = self.log.turn

    def _receipt(self, client: Client, event: Unsubscribed) -> None:
        if event.receipt is None:
            return
        frame = encode_receipt(event.receipt)
        if self.log is not None:
            self.log.stage_when_safe(client, frame, event.receipt)
        else:
            client.outbox.stage_frame(frame)

    def _find(self, client: Client, event: Unsubscribed) -> Subscription | None:
        if event.id is None:
            nameless = (each for each in client.subscriptions.values() if each.id is None)
            return next((each for each in nameless if each.destination == event.destination), None)
        found = client.subscriptions.get(event.id)
        if self.dialect.allows_repeated_subscription_id:
            found = self._find_repeated(client, event) or found
        if found is not None and event.destination not in (None, found.destination):
            raise ProtocolError(
                "destination-mismatch",
                f"id:{event.id[:60]} is subscribed to {found.destination[:80]}, not to"
                f" {(event.destination or '')[:80]}; leave the destination out",
            )
        return found

    def _find_repeated(self, client: Client, event: Unsubscribed) -> Subscription | None:
        """The oldest subscription of an id that several may have, to the destination if told."""
        for each in client.subscriptions.values():
            if each.id == event.id and event.destination in (None, each.destination):
                return each
        return None

    def go_on(self, client: Client, now: float) -> None:
        """A client takes more: what was parked for it, what it browses, and from its queues."""
        for subscription in list(client.subscriptions.values()):
            if subscription.consumer is not None:
                self.queues.want(subscription.consumer)
            if self.initial_delivery.is_unfinished(subscription):
                self.initial_delivery.go_on(subscription, now)
        self.initial_delivery.go_on_browsing(client, now)

    def ending(self, subscription: Subscription, now: float) -> Work:
        """End a subscription bit by bit, if it is of many queues, or has much unacknowledged."""
        client, consumer = subscription.client, subscription.consumer
        is_stream = subscription.tag.endswith(ID_MARK)
        while consumer is not None and not is_stream and not self.queues.is_small(consumer):
            self.queues.part(consumer, STEP, now)
            yield
        if client.subscriptions.get(subscription.key) is subscription:  # and it did not leave
            self.end(subscription, now)

    def end(self, subscription: Subscription, now: float) -> None:
        """End a subscription; what it has not acknowledged goes back, in order."""
        client = subscription.client
        del client.subscriptions[subscription.key]
        del client.tags[subscription.tag.encode()]
        del self._all[subscription]
        consumer = subscription.consumer
        if consumer is None:
            for name, pattern in subscription.places:
                self.destinations.remove(subscription, name, pattern)
        elif subscription.tag.endswith(ID_MARK):
            consumer.take_all()
            self.queues.leave(consumer)
        elif subscription.binding is not None:
            self.bindings.leave(subscription, consumer, subscription.binding, now)
        else:
            self.queues.leave(consumer)
            self.acknowledger.return_all(consumer, now)
        # They know each other, and the collector of cycles comes rarely.
        subscription.consumer = subscription.binding = None
        self.initial_delivery.end(subscription)
        self._refund(subscription)
        self.events.tell("unsubscribe", client, destination=subscription.destination)


def base36(number: int) -> str:
    """``number``, 0 or more, in digits and small letters."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
