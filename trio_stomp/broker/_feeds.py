"""Feeds: topic and work-queue subscriptions with acknowledgements, and durable ones."""

from functools import partial

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp._memory import MemoryBudget, Quota
from trio_stomp.broker._acknowledger import Acknowledger
from trio_stomp.broker._consumer import Consumer
from trio_stomp.broker._delivery import Publication
from trio_stomp.broker._destination import Kind
from trio_stomp.broker._dialect import DSUB
from trio_stomp.broker._durable_record import forget, place_of, remember
from trio_stomp.broker._durables import Durables, durable_name, is_shared
from trio_stomp.broker._error_frame import turn_away
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._feed import Feed
from trio_stomp.broker._guard import Guard
from trio_stomp.broker._log import Log
from trio_stomp.broker._message import Message, charge
from trio_stomp.broker._policies import DISCONNECT, DROP_OLDEST, BrokerPolicies
from trio_stomp.broker._queue import Queue
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._revival import Revival
from trio_stomp.broker._route import Route, RouteTable
from trio_stomp.broker._send_options import PRIORITY_DEFAULT
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscribe_options import SubscribeOptions
from trio_stomp.broker._subscription import Client, Subscription
from trio_stomp.broker._table_costs import (
    FEED_BYTES,
    force_selector,
    id_cost,
    no_table_memory,
    places_cost,
    release_selector,
)
from trio_stomp.broker._takers import Member
from trio_stomp.frames import redelivered_head


@define(eq=False, repr=False)
class Feeds:
    """Makes feeds, joins consumers to them, and hands on what they leave behind.

    Args:
      shares_durables: As of a dialect.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    routes: RouteTable
    queues: QueueBook
    stale: StaleQueue
    fan_out: FanOut
    acknowledger: Acknowledger
    guard: Guard
    log: Log | None = None
    shares_durables: bool = False
    durables: Durables = field(factory=Durables)
    dropped: int = 0

    def join(
        self, subscription: Subscription, consumer: Consumer, options: SubscribeOptions, now: float
    ) -> Feed:
        """A feed for ``subscription``: a new one, or the durable one that it names.

        Raises:
          ProtocolError: there are too many durable subscriptions, or it is somebody else's.
        """
        name = durable_name(options.durable, subscription.destination)
        feed = self._known(subscription.client, name) if name else None
        if feed is not None:
            self._check_stored(subscription.client, feed)
        if subscription.destination.startswith(DSUB):
            feed = self._existing(feed, options.durable)
        elif feed is not None:
            feed = self._reuse(feed, subscription, options, now)
        if feed is None:
            feed = self._make(subscription, options, name)
        feed.queue.attach(consumer)
        return feed

    def _known(self, client: Client, name: str) -> Feed | None:
        """What a client means that comes back: its user's own, or what nobody had to log in for."""
        return self.durables.find(name, client.identity.name, is_anybodys=client.rights is None)

    def _existing(self, feed: Feed | None, name: str) -> Feed:
        """What ``/dsub/<id>`` names, whatever topic it is of (Apollo)."""
        if feed is None:
            raise ProtocolError(
                "unknown-subscription",
                f"{DSUB}{name[1:61]} names no durable subscription; make it first by SUBSCRIBE to"
                " its topic with durable:true",
            )
        return feed

    def _check_stored(self, client: Client, feed: Feed) -> None:
        """Whoever comes back must still be let in, wherever the SUBSCRIBE says that it goes."""
        self.guard.check_durable(client, feed)
        kind = feed.queue.route.kind
        self.guard.check_subscribe(client, feed.places, kind, browses=False, lasts=True)
        if not feed.owner and client.identity.name:
            self.durables.give(feed, client.identity.name)
            self.memory.give_table(feed.cost, feed.quota)
            feed.quota = client.quota
            self.memory.force_table(feed.cost, feed.quota)
            if self.log is not None:
                remember(self.log, feed)

    def leave(self, subscription: Subscription, consumer: Consumer, feed: Feed, now: float) -> None:
        """A consumer goes: durable feeds stay, others end, and work goes to the other members."""
        if feed.queue not in consumer.queues:
            return  # it was taken over
        feed.queue.detach(consumer)
        self.acknowledger.return_all(consumer, now)
        if not feed.durable and not feed.queue.consumers:
            self._end(feed, now)

    def end_durable(self, feed: Feed, now: float) -> None:
        """Forget a durable subscription and what waits in it."""
        self.durables.remove(feed)
        if self.log is not None:
            forget(self.log, feed)
        feed.durable = feed.queue.place = ""
        if not feed.queue.consumers:
            self._end(feed, now)

    def revive(self, feed: Feed, revival: Revival, now: float) -> None:
        """Put all that was parked into a feed's queue."""
        while (found := revival.next_parked(now)) is not None:
            if feed.wants(found.publication):
                feed.take(found.publication, found.publication.bodies)
            else:
                self.fan_out.refuse(found.publication)

    def enqueue(self, feed: Feed, publication: Publication, bodies: list[bytes]) -> int:
        """Put messages into a feed's queue, as far as policy lets them in; how many it did.

        A publisher to a topic does not suffer for one subscriber: a full feed loses messages of
        its own, or its client, by the policy for slow consumers.
        """
        origin = publication.without_bodies()
        origin.quota = feed.quota  # it is nobody else's yet
        if self._put(feed, origin, bodies):
            return len(bodies)
        return sum(self._put_or_drop(feed, origin, body) for body in bodies)

    def _put(self, feed: Feed, origin: Publication, bodies: list[bytes]) -> bool:
        """Put messages into a feed's queue, if there is room for all of them."""
        queue, size = feed.queue, sum(map(len, bodies))
        bound = 0 if feed.durable else self.policies.max_backlog_bytes
        if not queue.fits(len(bodies), size) or (bound and queue.size + size > bound):
            return False
        if not charge(self.memory, origin.head, len(bodies), size, feed.quota):
            return False
        level = origin.options.priority if origin.options else PRIORITY_DEFAULT
        self.queues.accept(queue, origin, bodies, level, size)
        return True

    def _put_or_drop(self, feed: Feed, origin: Publication, body: bytes) -> bool:
        """Put one message; False if it does not fit, and policy was applied."""
        queue = feed.queue
        policy = queue.route.slow_consumer or self.policies.slow_consumer
        while True:
            if self._put(feed, origin, [body]):
                return True
            self._count_drop(queue.route)
            if policy == DROP_OLDEST and queue.drop_oldest() is not None:
                continue
            if policy == DISCONNECT and queue.consumers:
                self._disconnect(queue.consumers[0].subscription, queue)
            return False

    def _count_drop(self, route: Route) -> None:
        self.dropped += 1
        route.dropped += 1

    def _disconnect(self, subscription: Subscription, queue: Queue) -> None:
        client = subscription.client
        if client.is_refused:
            return
        # Settled soon, so that others have what it leaves; but not in the middle of a fan-out.
        self.fan_out.slow.append((subscription, 1))
        error = ProtocolError(
            "slow-consumer",
            f"the subscription to {queue.route.name[:80]} acknowledges too slowly: more waits than"
            " max_backlog_bytes allows",
            reason=CloseReason.SLOW_CONSUMER,
        )
        turn_away(client, error)

    def _make(self, subscription: Subscription, options: SubscribeOptions, name: str) -> Feed:
        first = subscription.places[0][0]
        label = f"{first} of {options.durable or subscription.tag}".replace("\0", "/")
        quota = subscription.quota
        route = self.routes.detached(*subscription.places[0], quota)
        if name:
            self._check_share(quota)
        owner = subscription.client.identity.name
        queue = self.queues.private(route, label, place_of(name, owner) if name else "")
        feed = Feed(
            subscription.number,
            list(subscription.places),
            queue,
            self,
            subscription.client,
            name,
            subscription.selector,
            options.selector,
            subscription.no_local,
        )
        feed.quota = quota
        if name:
            feed.owner = owner
            self._charge(feed)
            try:
                self.durables.add(feed)
            except ProtocolError:
                self._refund(feed)
                raise
            if self.log is not None:
                remember(self.log, feed)
        if route.kind is Kind.WORK:
            queue.pass_on = partial(self._pass_on, feed)
        for place, pattern in feed.places:
            self.routes.add(feed, place, pattern, quota)
        return feed

    def _check_share(self, quota: Quota | None) -> None:
        """Leave room for others.

        Raises:
          ProtocolError: the user has made as many as one may.
        """
        most = self.policies.max_durables_per_user
        if quota is not None and self.durables.count(quota) >= most:
            raise ProtocolError(
                "too-many-durable-subscriptions",
                f"{quota.owner[:60]} has {most} durable subscriptions, the limit for"
                " one user (option max_durables_per_user); end some with UNSUBSCRIBE",
                reason=CloseReason.LIMIT_EXCEEDED,
            )

    def restore(self, feed: Feed) -> None:
        """A durable subscription was found in the store."""
        self.durables.add(feed)
        if feed.owner:
            feed.quota = self.guard.quotas.of_user(feed.owner)
        feed.cost = _cost(feed)
        self.memory.force_table(feed.cost, feed.quota)
        if feed.selector is not None:
            force_selector(self.memory, feed.selector, feed.quota)
        for place, pattern in feed.places:
            self.routes.add(feed, place, pattern)

    def _reuse(
        self, feed: Feed, subscription: Subscription, options: SubscribeOptions, now: float
    ) -> Feed | None:
        """The durable feed of a name; None if it was for something else, and has been ended.

        A name with a client id belongs to one connection: a newcomer takes it over, unless the
        dialect has those of one client id share it and this one asks for the same.
        """
        fits = feed.places == list(subscription.places) and feed.selector_text == options.selector
        if not is_shared(options.durable) and not (self.shares_durables and fits):
            for consumer in list(feed.queue.consumers):
                self._take_over(feed, consumer, now)
        if not fits:
            self.end_durable(feed, now)
            return None
        feed.client = subscription.client
        return feed

    def _take_over(self, feed: Feed, consumer: Consumer, now: float) -> None:
        """End a consumer and its connection; what it had comes first for the newcomer."""
        feed.queue.detach(consumer)
        self.acknowledger.return_all(consumer, now)
        name = feed.durable.replace("\0", "/")
        error = ProtocolError(
            "taken-over",
            f"another connection took over the durable subscription {name!r}",
            reason=CloseReason.UNSUPPORTED,
        )
        turn_away(consumer.subscription.client, error)

    def _charge(self, feed: Feed) -> None:
        """Charge a durable subscription until it ends, whoever consumes it.

        Raises:
          ProtocolError: there is no memory for it.
        """
        cost, memory = _cost(feed), self.memory
        if not memory.take_table(cost, feed.quota):
            what = f"a durable subscription to {feed.places[0][0][:80]}"
            raise no_table_memory(memory, what, feed.quota)
        feed.cost = cost
        if feed.selector is not None:
            force_selector(memory, feed.selector)  # its subscription has it, too

    def _refund(self, feed: Feed) -> None:
        if feed.cost:
            self.memory.give_table(feed.cost, feed.quota)
            if feed.selector is not None:
                release_selector(self.memory, feed.selector)

    def _end(self, feed: Feed, now: float) -> None:
        feed.is_ended = True
        self._refund(feed)
        for name, pattern in feed.places:
            self.routes.remove(feed, name, pattern)
        feed.queue.end(self._hand_on, now)
        feed.queue.pass_on = None  # it knows the feed, which knows its queue

    def _hand_on(self, message: Message, now: float) -> None:
        """What a member of a work queue left: to the others, else parked, else lost (A7)."""
        origin = message.publication
        route = self.routes.open(origin.route.name)
        if route.kind is not Kind.WORK:
            return
        takers = route.takers(origin)
        if takers:
            self._give(route, takers[route.rotation % len(takers)], message)
        elif route.ttl_s:
            self.stale.park(origin.with_bodies(route, [message.body]), now)
        else:
            self._count_drop(route)

    def _pass_on(self, feed: Feed, message: Message, now: float) -> bool:
        """Work that a member refused: to another, if there is one; whether there was."""
        route = self.routes.open(message.publication.route.name)
        others = [each for each in route.takers(message.publication) if each is not feed]
        if not others:
            return False
        feed.queue.let_go(message)
        self._give(route, others[route.rotation % len(others)], message)
        return True

    def _give(self, route: Route, member: Member, message: Message) -> None:
        """Work that another member had, to the member whose turn it is."""
        route.rotation += 1
        if isinstance(member, Feed):
            message.publication = message.publication.of(member.quota)
            head, size = message.publication.head, len(message.body)
            if charge(self.memory, head, 1, size, member.quota):
                member.queue.put(message)
            else:
                self._count_drop(route)
            return
        origin = message.publication.with_bodies(route, [message.body])
        if message.deliveries:
            origin = origin.with_head(redelivered_head(origin.head, message.deliveries + 1))
        self.fan_out.give(member, self.fan_out.encode_for(member, origin, origin.bodies))


def _cost(feed: Feed) -> int:
    """Bytes of a durable subscription without its selector."""
    return FEED_BYTES + id_cost(feed.durable) + places_cost(feed.places)
