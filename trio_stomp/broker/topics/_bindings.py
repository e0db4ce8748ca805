"""Bindings: acknowledging subscriptions to topics and work queues, and durable ones."""

from collections.abc import Callable
from functools import partial

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    BINDING_S,
    DISCONNECT,
    LIGHT_S,
    BrokerPolicies,
    Client,
    Destination,
    Member,
    Publication,
    Subscription,
    Work,
    turn_away,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import DSUB, PRIORITY_DEFAULT, SubscribeOptions
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    AGAIN_S,
    Acknowledger,
    Admission,
    Consumer,
    Message,
    Overflow,
    Queue,
    QueueBook,
)
from trio_stomp.broker.routing import (
    BINDING_BYTES,
    Destinations,
    FanOut,
    beyond_quota,
    force_selector,
    id_cost,
    no_table_memory,
    release_selector,
    targets_cost,
)
from trio_stomp.broker.topics._binding import Binding, SharedKey
from trio_stomp.broker.topics._durables import (
    Durables,
    durable_name,
    forget,
    is_shared,
    key_of,
    remember,
)
from trio_stomp.broker.topics._stale import StaleQueue
from trio_stomp.frames import redelivered_head


@define(eq=False, repr=False)
class Bindings:
    """Creates bindings, attaches consumers, and reassigns work that ended bindings leave.

    Args:
      shares_durables: Connections with the same client id share a durable subscription instead of
        taking it over.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    destinations: Destinations
    queues: QueueBook
    overflow: Overflow
    stale: StaleQueue
    fan_out: FanOut
    acknowledger: Acknowledger
    authorizer: Authorizer
    end_client: Callable[[Client, float], None]
    """Ends the subscriptions of a client that was turned away, in later turns if it has many."""
    log: Log | None = None
    shares_durables: bool = False
    durables: Durables = field(factory=Durables)
    shared: dict[SharedKey, Binding] = field(factory=dict)

    def join(
        self, subscription: Subscription, consumer: Consumer, options: SubscribeOptions, now: float
    ) -> Binding:
        """Attach a consumer to a new binding, or the one that its client names, and return it.

        Raises:
          ProtocolError: there are too many durable subscriptions, memory is short, or the durable
            subscription belongs to another user.
        """
        if options.durable:
            binding = self._durable(subscription, options, now)
        else:
            binding = self._shared(subscription, options)
        binding.queue.attach(consumer)
        return binding

    def _durable(
        self, subscription: Subscription, options: SubscribeOptions, now: float
    ) -> Binding:
        name = durable_name(options.durable, subscription.destination)
        binding = self._find(subscription.client, name)
        if binding is not None:
            self._check_stored(subscription.client, binding)
        if subscription.destination.startswith(DSUB):
            binding = self._existing(binding, options.durable)
        elif binding is not None:
            binding = self._reuse(binding, subscription, options, now)
        return binding or self._make(subscription, options, name)

    def _shared(self, subscription: Subscription, options: SubscribeOptions) -> Binding:
        """Return a new binding, or that of RabbitMQ's consumers of one queue, which share it."""
        user, selector = subscription.client.identity.name, options.selector
        key = (options.shared, subscription.destination, user, selector)
        binding = self.shared.get(key) or self._make(subscription, options, "")
        if options.shared:
            self.shared[key], binding.shared = binding, key
        binding.client = subscription.client
        return binding

    def _find(self, client: Client, name: str) -> Binding | None:
        """Return the durable subscription of a returning client: its user's, or one without owner.

        Without access rules, that of another user will do.
        """
        return self.durables.find(name, client.identity.name, is_anybodys=client.rights is None)

    def _existing(self, binding: Binding | None, name: str) -> Binding:
        """Return the durable subscription that ``/dsub/<id>`` names, to any topic (Apollo)."""
        if binding is None:
            raise ProtocolError(
                "unknown-subscription",
                f"{DSUB}{name[1:61]} does not exist; create it with a SUBSCRIBE to its topic with "
                "durable:true",
            )
        return binding

    def _check_stored(self, client: Client, binding: Binding) -> None:
        """Check that a returning client may still consume, whatever its SUBSCRIBE names.

        A durable subscription without owner becomes the user's.
        """
        self.authorizer.check_durable(client, binding)
        kind = binding.queue.destination.kind
        self.authorizer.check_subscribe(client, binding.targets, kind, browses=False, lasts=True)
        if not binding.owner and client.identity.name:
            self.durables.give(binding, client.identity.name)
            self.memory.give_table(binding.cost, binding.quota)
            binding.quota = client.quota
            self.memory.force_table(binding.cost, binding.quota)
            if self.log is not None:
                remember(self.log, binding)

    def leave(self, consumer: Consumer, binding: Binding, now: float) -> None:
        """Remove a consumer.

        Durable queues stay, others end, and work goes to the other members.
        """
        try:
            binding.queue.detach(consumer)
        finally:
            self.acknowledger.return_all(consumer, now)
            if not binding.durable and not binding.queue.consumers:
                self._end(binding, now)

    def end_durable(self, binding: Binding, now: float) -> None:
        """Delete a durable subscription and its messages."""
        self.durables.remove(binding)
        if self.log is not None:
            forget(self.log, binding)
        binding.durable = binding.queue.place = ""
        if not binding.queue.consumers:
            self._end(binding, now)

    def enqueue(
        self, binding: Binding, publication: Publication, bodies: list[bytes], first: int = 0
    ) -> int:
        """Queue messages as far as the policy allows, and return the number queued.

        A slow subscriber must not block a topic's publisher: a full queue drops messages, or its
        client is disconnected, by the policy for slow consumers.

        Args:
          binding: The binding.
          publication: The messages.
          bodies: Their bodies.
          first: The number reserved for the first of them, which determines its position; 0 =
            append.
        """
        origin, queue = publication.without_bodies(), binding.queue
        origin.quota = binding.quota  # safe: nothing else refers to the copy yet
        level = origin.options.priority if origin.options else PRIORITY_DEFAULT
        now = self.queues.turns.now
        answers = self.overflow.admit(queue, origin, bodies, level=level, now=now, first=first)
        count = answers.count(Admission.TAKEN)
        if count < len(bodies) and queue.consumers and queue.overflow == DISCONNECT:
            self._disconnect(queue.consumers[0].subscription, queue)
        return count

    def _disconnect(self, subscription: Subscription, queue: Queue) -> None:
        client = subscription.client
        if client.is_refused:
            return
        # Not ended here: this may be the middle of a fan-out.
        self.fan_out.slow.append((subscription, 1))
        error = ProtocolError(
            "slow-consumer",
            f"the subscription to {queue.destination.name[:80]} acknowledges too slowly, and its"
            " backlog is full (policy max_messages, max_bytes; options max_backlog_bytes,"
            " max_memory_bytes)",
            reason=CloseReason.SLOW_CONSUMER,
        )
        turn_away(client, error)

    def _make(self, subscription: Subscription, options: SubscribeOptions, name: str) -> Binding:
        selector = subscription.selector
        cost_s = BINDING_S if selector is None else BINDING_S + selector.cost_s
        for target, pattern in subscription.targets:
            if pattern is None:
                destination = self.destinations.ensure(target)
                self.destinations.check_cost(destination, cost_s, subscription.quota)
        first = subscription.targets[0][0]
        label = f"{first} of {options.durable or subscription.tag}".replace("\0", "/")
        quota = subscription.quota
        destination = self.destinations.detached(*subscription.targets[0], quota)
        if name:
            self._check_share(quota)
        owner = subscription.client.identity.name
        queue = self.queues.private(destination, label, key_of(name, owner) if name else "")
        binding = Binding(
            subscription.number,
            targets=list(subscription.targets),
            queue=queue,
            host=self,
            client=subscription.client,
            durable=name,
            selector=selector,
            selector_text=options.selector,
            no_local=subscription.no_local,
            is_counted=subscription.is_counted,
        )
        binding.quota = quota
        if name:
            binding.owner = owner
            self._charge(binding)
            try:
                self.durables.add(binding)
            except ProtocolError:
                self._refund(binding)
                raise
            if self.log is not None:
                remember(self.log, binding)
        if destination.kind is Kind.WORK:
            queue.reassign = partial(self._reassigning, binding)
        for target, pattern in binding.targets:
            self.destinations.add(binding, target, pattern, quota)
        return binding

    def _check_share(self, quota: Quota | None) -> None:
        """Check a user's limit of durable subscriptions.

        Raises:
          ProtocolError: it is reached.
        """
        most = self.policies.max_durables_per_user
        if quota is not None and self.durables.count(quota) >= most:
            raise beyond_quota(
                "too-many-durable-subscriptions",
                f"{quota.owner[:60]} has {most} durable subscriptions, the limit for"
                " one user (option max_durables_per_user); end some with UNSUBSCRIBE",
            )

    def restore(self, binding: Binding) -> None:
        """Restore a durable subscription found in the store."""
        self.durables.add(binding)
        if binding.owner:
            binding.quota = self.authorizer.quotas.of_user(binding.owner)
        binding.cost = _cost(binding)
        self.memory.force_table(binding.cost, binding.quota)
        if binding.selector is not None:
            force_selector(self.memory, binding.selector, binding.quota)
        for name, pattern in binding.targets:
            self.destinations.add(binding, name, pattern)

    def _reuse(
        self, binding: Binding, subscription: Subscription, options: SubscribeOptions, now: float
    ) -> Binding | None:
        """Return the durable binding for a SUBSCRIBE, or end it and return None if it differs.

        It differs if the destinations or the selector do. A name with a client id belongs to one
        connection: a new one takes it over, unless the dialect shares it and nothing differs.

        Raises:
          ProtocolError: others consume a shared one that would end.
        """
        fits = (
            binding.targets == list(subscription.targets)
            and binding.selector_text == options.selector
        )
        if not is_shared(options.durable) and not (self.shares_durables and fits):
            for consumer in list(binding.queue.consumers):
                self._take_over(binding, consumer.subscription.client, now)
        clients = [consumer.subscription.client for consumer in binding.queue.consumers]
        if not fits and not all(client.is_leaving for client in clients):
            raise ProtocolError(
                "subscription-in-use",
                f"others consume the durable subscription {options.durable[:80]!r} with another"
                " selector; send theirs, or end them first",
            )
        if not fits:
            self.end_durable(binding, now)
            return None
        binding.client = subscription.client
        return binding

    def _take_over(self, binding: Binding, client: Client, now: float) -> None:
        """End a client, which returns its deliveries before the queue hands out others."""
        if client.is_leaving:
            return
        name = binding.durable.replace("\0", "/")
        error = ProtocolError(
            "taken-over",
            f"another connection took over the durable subscription {name!r}",
            reason=CloseReason.UNSUPPORTED,
        )
        turn_away(client, error)
        self.end_client(client, now)

    def _charge(self, binding: Binding) -> None:
        """Charge a durable subscription's tables until it ends.

        Raises:
          ProtocolError: there is no memory for it.
        """
        cost, memory = _cost(binding), self.memory
        if not memory.take_table(cost, binding.quota):
            what = f"a durable subscription to {binding.targets[0][0][:80]}"
            raise no_table_memory(memory, what, binding.quota)
        binding.cost = cost
        if binding.selector is not None:
            force_selector(memory, binding.selector)  # shared with its subscription

    def _refund(self, binding: Binding) -> None:
        if binding.cost:
            self.memory.give_table(binding.cost, binding.quota)
            if binding.selector is not None:
                release_selector(self.memory, binding.selector)

    def _end(self, binding: Binding, now: float) -> None:
        binding.is_ended = True
        self._refund(binding)
        self.shared.pop(binding.shared, None)
        for name, pattern in binding.targets:
            self.destinations.remove(binding, name, pattern)
        self.queues.end_messages(binding.queue, self._reassign_orphan, now)
        binding.queue.reassign = binding.queue.feed = None  # breaks reference cycles

    def _reassign_orphan(self, message: Message, now: float) -> None:
        """Reassign an ended member's message: to another member, else parked, else dropped."""
        if message.publication.destination.kind is Kind.WORK:
            self.queues.carry_out(self._handing_on(message, now))

    def _handing_on(self, message: Message, now: float) -> Work:
        origin = message.publication
        try:
            destination = self.destinations.open(origin.destination.name)
            if destination.cost_s > LIGHT_S:
                yield
            recipients = destination.recipients(origin)
            if recipients:
                self._give(destination, recipients[destination.rotation % len(recipients)], message)
            elif destination.ttl_s:
                self.stale.park(origin.with_bodies(destination, [message.body]), now)
            else:
                self._drop(destination)
        except Exception as bug:
            self.queues.turns.bug = bug
            self.queues.timers.call_at(now + AGAIN_S, partial(self._reassign_orphan, message))

    def _reassigning(self, binding: Binding, message: Message, delay_s: float, now: float) -> Work:
        """Pass a message that a member refused to another one, or give it back.

        With many selectors, this is done in a later turn.
        """
        queue, is_passed = binding.queue, False
        try:
            destination = self.destinations.open(message.publication.destination.name)
            if destination.cost_s > LIGHT_S:
                yield
            recipients = destination.recipients(message.publication)
            if others := [each for each in recipients if each is not binding]:
                member = others[destination.rotation % len(others)]
                is_passed = queue.part_with(message, self._give, destination, member, message)
        except Exception as bug:
            self.queues.turns.bug = bug
        if not is_passed:
            queue.give_back(message, delay_s, now)

    def _drop(self, destination: Destination) -> None:
        self.overflow.backlog_dropped += 1
        destination.dropped += 1

    def _give(self, destination: Destination, member: Member, message: Message) -> None:
        """Give another member's message to ``member``, and advance the rotation."""
        destination.rotation += 1
        if not isinstance(member, Subscription):
            assert isinstance(member, Binding)
            # It is not stored: the record of the other member's ends.
            origin, body = message.publication.of(member.quota), message.body
            own = Message(message.number, origin, body, message.level)
            own.deliveries, own.failures = message.deliveries, message.failures
            if not self.overflow.hand_on(member.queue, own):
                self._drop(destination)
            return
        origin = message.publication.with_bodies(destination, [message.body])
        if message.deliveries:
            origin = origin.with_head(redelivered_head(origin.head, message.deliveries + 1))
        self.fan_out.give(member, self.fan_out.encode_for(member, origin, origin.bodies))


def _cost(binding: Binding) -> int:
    """Return the bytes of a durable subscription's tables, without its selector."""
    return BINDING_BYTES + id_cost(binding.durable) + targets_cost(binding.targets)
