"""SEND: from a run of frames to topics, work queues, queues, the stale queue or later."""

from collections.abc import Callable

from attrs import define, field

from trio_stomp._memory import MemoryBudget
from trio_stomp.broker._delivery import NEVER, Publication
from trio_stomp.broker._destination import PRIVATE_QUEUE, Kind
from trio_stomp.broker._dialect import Dialect
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._message import MESSAGE_OVERHEAD_BYTES
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._plan import SendPlan, make_plan
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._route import Route, RouteTable
from trio_stomp.broker._schedule import Schedule
from trio_stomp.broker._send_options import (
    DEDUP_HEADERS,
    PRIORITY_DEFAULT,
    RETAIN_SET,
    SendOptions,
)
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscription import Client
from trio_stomp.broker._temporary import Temporary
from trio_stomp.broker._timers import Timers
from trio_stomp.frames import FrameRun, Head

STORED = b"stored:memory\n"
"""What a RECEIPT tells of a message that waits for its consumer."""
DUPLICATE = b"duplicate:true\n"
_SPENT = ("AMQ_SCHEDULED", *DEDUP_HEADERS)
"""How headers begin that have done their part before a scheduled message is sent."""


@define(eq=False, repr=False)
class Publisher:
    """Sends runs on. Each method is atomic: it raises before it has changed anything, or not."""

    dialect: Dialect
    memory: MemoryBudget
    routes: RouteTable
    queues: QueueBook
    stale: StaleQueue
    fan_out: FanOut
    timers: Timers
    overflow: Overflow
    temporary: Temporary
    answer: Callable[[Publication], None]
    """Answers SENDs to DIAG destinations."""
    received: int = 0
    duplicates: int = 0
    scheduled: int = 0
    """Messages that wait for their time."""
    wall_offset_s: float = 0.0
    """Wall time less the broker's clock, in seconds."""
    _lost: int = field(default=0, init=False)

    def plan(self, client: Client | None, head: Head) -> tuple[Head, SendPlan]:
        """The plan of a header block; and the block, rewritten if it names something of a client.

        Raises:
          ProtocolError: as ``make_plan``.
        """
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = head.plan = make_plan(head, self.dialect)
        if plan.is_personal and client is not None:
            head = self.temporary.localised(client, head)
            plan = head.plan = make_plan(head, self.dialect)
        for name in plan.names:
            self.routes.open(name)
        return head, plan

    def send(
        self, client: Client | None, run: FrameRun, received_at: float, now: float
    ) -> tuple[int, bytes]:
        """Send a run; how many of its messages were taken, and what their RECEIPTs tell.

        Fewer than all are taken only by a queue that makes its producers wait.

        Raises:
          ProtocolError: the destination is not to be sent to, or a full queue refuses. In the
            second case ``taken`` on the error tells how many had been accepted before.
        """
        head, plan = self.plan(client, run.head)
        if plan.schedule is not None:
            return self._schedule(head, plan, plan.schedule, run.bodies, now)
        if len(plan.names) > 1:
            self._check_room(client, plan, run.bodies)
        taken = len(run.bodies)
        told: list[bytes] = []
        for name in plan.names:
            route = self.routes.open(name)
            send = self._send_once if plan.options and plan.options.dedup_id else self._send_to
            taken, evidence = send(client, route, head, plan.options, run.bodies, received_at, now)
            told.append(evidence)
        return taken, told[0] if len(told) == 1 else _together(told)

    def is_orphan(self, client: Client | None, route: Route) -> bool:
        """Whether a reply comes for a client that has gone: nobody could ever consume it."""
        if route.queue is not None or not route.name.startswith(PRIVATE_QUEUE):
            return False
        return client is None or route.name not in client.temporary.values()

    def _check_room(self, client: Client | None, plan: SendPlan, bodies: list[bytes]) -> None:
        """Refuse a composite SEND that does not fit everywhere, before it is anywhere.

        Raises:
          QueueFull: it does not.
        """
        size = sum(map(len, bodies))
        routes = [self.routes.open(name) for name in plan.names]
        self.overflow.check(
            {
                self.queues.open(route.name): (len(bodies), size, max(map(len, bodies)))
                for route in routes
                if route.kind is Kind.QUEUE and not self.is_orphan(client, route)
            }
        )

    def _send_once(
        self,
        client: Client | None,
        route: Route,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, bytes]:
        """Of messages with one id take the first, if none was taken within the policy's window."""
        name = options.dedup_id if options is not None else ""
        repeated, evidence = len(bodies), DUPLICATE
        if name not in route.seen:
            taken, evidence = self._send_to(
                client, route, head, options, bodies[:1], received_at, now
            )
            if not taken:
                return 0, evidence
            self._remember(route, name)
            repeated -= 1
        self.duplicates += repeated
        return len(bodies), evidence

    def _send_to(
        self,
        client: Client | None,
        route: Route,
        head: Head,
        options: SendOptions | None,
        bodies: list[bytes],
        received_at: float,
        now: float,
    ) -> tuple[int, bytes]:
        expires_at = self._expiry(route, options, received_at)
        publication = Publication(route, head, bodies, received_at, expires_at, client, options)
        if route.kind is Kind.QUEUE:
            if self.is_orphan(client, route):
                self._count(route, bodies, received_at, now)
                return len(bodies), self._drop(publication)
            taken = self._enqueue(publication, now)
            self._count(route, bodies[:taken] if taken < len(bodies) else bodies, received_at, now)
            return taken, STORED
        self._count(route, bodies, received_at, now)
        if expires_at <= now:
            self.fan_out.expire(publication)
            return len(bodies), b"matched:0\n"
        asked = options.retain if options is not None else ""
        if route.retain != "header" or asked:
            self._retain(publication, _retention(route, asked))
        return len(bodies), self._distribute(publication, now)

    def _count(self, route: Route, bodies: list[bytes], received_at: float, now: float) -> None:
        count = len(bodies)
        self.received += count
        route.enqueued += count
        route.bytes_in += sum(map(len, bodies))
        route.observe_ingress(now - received_at, count)

    def _distribute(self, publication: Publication, now: float) -> bytes:
        """To the subscribers of a topic or work queue; or nobody is there."""
        route = publication.route
        if not route.subscribers:
            return self._keep(publication, now)
        if route.kind is Kind.TOPIC:
            return b"matched:%d\n" % self.fan_out.to_all(publication)
        if route.kind is Kind.WORK:
            if not self.fan_out.in_turn(publication):
                return self._keep(publication, now)
            return b"matched:1\n"
        self.answer(publication)
        return b"matched:%d\n" % len(route.subscribers)

    def _keep(self, publication: Publication, now: float) -> bytes:
        """Nobody is subscribed: park it, if the destination gives it a lifetime, or let it die."""
        route = publication.route
        if route.retained is not None and route.retained.bodies[0] is publication.bodies[-1]:
            return b"matched:0\n" + STORED  # who comes is given it as the last value
        if route.ttl_s and route.kind is not Kind.DIAG and not route.private:
            self.stale.park(publication, now)
            return b"matched:0\n" + STORED
        return self._drop(publication)

    def _drop(self, publication: Publication) -> bytes:
        count = len(publication.bodies)
        publication.route.dropped += count
        self.fan_out.drops.no_subscriber += count
        return b"matched:0\n"

    def _enqueue(self, publication: Publication, now: float) -> int:
        """Put a run into a queue: all at once if it fits, else one by one by its policy."""
        route, bodies = publication.route, publication.bodies
        queue = self.queues.open(route.name)
        options = publication.options
        level = options.priority if options is not None else PRIORITY_DEFAULT
        origin = publication.without_bodies()
        size = sum(map(len, bodies))
        if queue.fits(len(bodies), size) and self.memory.take_kept(
            size + MESSAGE_OVERHEAD_BYTES * len(bodies)
        ):
            queue.put_all(level, self.queues.messages(origin, bodies, level), size)
            return len(bodies)
        for taken, body in enumerate(bodies):
            if not self.overflow.admit(queue, origin, body, level, taken, now):
                return taken
        return len(bodies)

    def _expiry(self, route: Route, options: SendOptions | None, received_at: float) -> float:
        expires_at = received_at + route.ttl_s if route.ttl_s else NEVER
        if options is not None:
            if options.ttl_ms:
                expires_at = min(expires_at, received_at + options.ttl_ms / 1000)
            if options.expires_ms:
                expires_at = min(expires_at, options.expires_ms / 1000 - self.wall_offset_s)
        return expires_at

    def _remember(self, route: Route, name: str) -> None:
        """Know an id again, as long as the policy's window tells."""
        seen = route.seen
        seen[name] = None
        if len(seen) > self.queues.policies.policy_for(route.name).dedup_window:
            del seen[next(iter(seen))]

    def _retain(self, publication: Publication, retention: str) -> None:
        """Keep a topic's last message for later subscribers, or forget the one kept."""
        route = publication.route
        if not retention or route.kind is not Kind.TOPIC or route.private:
            return
        if route.retained is not None:
            self.memory.give_kept(_kept_cost(route.retained))
            route.retained = None
            del self.routes.retaining[route]
        if retention == RETAIN_SET:
            kept = Publication(
                route,
                publication.head,
                publication.bodies[-1:],
                publication.received_at,
                publication.expires_at,
            )
            if self.memory.take_kept(_kept_cost(kept)):
                route.retained = kept
                self.routes.retaining[route] = None

    def _schedule(
        self, head: Head, plan: SendPlan, schedule: Schedule, bodies: list[bytes], now: float
    ) -> tuple[int, bytes]:
        """Keep messages until their time; each repeats by itself."""
        count = len(bodies)
        name = plan.options.dedup_id if plan.options is not None else ""
        route = self.routes.open(plan.names[0])
        if name:
            # Told apart now: its repetitions are no duplicates.
            if name in route.seen:
                self.duplicates += count
                return count, DUPLICATE
            self.duplicates += count - 1
            bodies = bodies[:1]
        due_ms = schedule.first_due(self._wall_ms(now))
        cost = sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)
        if not self.memory.take_kept(cost):
            raise self.overflow.no_memory(plan.names[0])
        if name:
            self._remember(route, name)
        head = _unscheduled(head)
        self.scheduled += len(bodies)
        sent = 0

        def due(at: float) -> None:
            nonlocal due_ms, sent
            sent += 1
            self._send_scheduled(head, bodies, at)
            following = schedule.next_due(due_ms, sent)
            if following is None:
                self.scheduled -= len(bodies)
                self.memory.give_kept(cost)
                return
            due_ms = following
            self.timers.call_at(self._clock_s(due_ms), due)

        self.timers.call_at(self._clock_s(due_ms), due)
        return count, STORED

    def _send_scheduled(self, head: Head, bodies: list[bytes], now: float) -> None:
        taken = self.overflow.send_quietly(
            lambda: self.send(None, FrameRun(head, list(bodies), []), now, now)[0]
        )
        self._lost += len(bodies) - taken

    def _wall_ms(self, now: float) -> int:
        return round((now + self.wall_offset_s) * 1000)

    def _clock_s(self, wall_ms: int) -> float:
        return wall_ms / 1000 - self.wall_offset_s


def _retention(route: Route, asked: str) -> str:
    """What becomes of a topic's last value: as the policy says, or as the message asks."""
    if route.retain == "always":
        return asked or RETAIN_SET
    return asked if route.retain == "header" else ""


def _together(told: list[bytes]) -> bytes:
    """What a RECEIPT tells of a composite: how many took it, and whether any keeps it."""
    lines = b"".join(told).splitlines()
    matched = [int(line[8:]) for line in lines if line.startswith(b"matched:")]
    evidence = b"matched:%d\n" % sum(matched) if matched else b""
    return evidence + (STORED if STORED.strip() in lines else b"")


def _kept_cost(publication: Publication) -> int:
    return MESSAGE_OVERHEAD_BYTES + sum(map(len, publication.bodies))


def _unscheduled(head: Head) -> Head:
    kept = tuple(pair for pair in head.headers if not pair[0].startswith(_SPENT))
    return Head(head.command, kept, head.content_length, head.destination)
