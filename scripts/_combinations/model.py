"""The model of a scenario: the messages that each queue and consumer must have.

Time makes some things uncertain: a message near its expiry or its redelivery may be there or not.
Then the model allows both, expects nothing, and follows what it sees (``Copy.may_be_over``,
``Copy.may_be_due``).
"""

import time
from dataclasses import dataclass, field
from typing import Any

from _combinations.policy import DEAD, DROPS_OLD, Policy

WAITING, DELAYED, HELD, SCHEDULED = "waiting", "in back-off", "held", "scheduled"
ORIGIN = "original-destination"
NEVER = float("inf")
SLACK_S = 1.6
"""The broker may see an expiry or the end of a delay this late: it sweeps once a second."""
LATE_S = 1.0
"""A delivery may be read this long after the broker sent it."""


@dataclass(eq=False)
class Copy:
    """A message in a queue.

    Args:
      headers: The headers that a MESSAGE must have.
      at: When it was accepted, from and to: two whose times overlap may have either order.
      ends, due: When it expires, and when its delay is over, from and to.
      deliveries: At least and at most.
    """

    body: str
    headers: dict[str, str]
    level: int
    at: tuple[float, float]
    is_durable: bool
    ends: tuple[float, float] = (NEVER, NEVER)
    ends_alone: tuple[float, float] = (NEVER, NEVER)
    """When it expires by its headers, without the policy of its queue."""
    due: tuple[float, float] = (0.0, 0.0)
    state: str = WAITING
    deliveries: tuple[int, int] = (0, 0)
    failures: int = 0
    may_survive: bool = False
    """It is not durable, but what it was moved from may have been stored to keep its order."""
    is_ghost: bool = False
    """It may have survived a restart: it may come."""
    flow: tuple[int, int] = (-1, 0)
    """Its connection, and its place among what that sent at the same time."""
    since: tuple[float, float] = (0.0, 0.0)
    """When it began to wait, from and to."""

    @property
    def group(self) -> str:
        """Return its group, or ""."""
        return self.headers.get("JMSXGroupID", "")

    def precedes(self, other: "Copy") -> bool:
        """Return whether it must be handed out before another."""
        if self.level != other.level:
            return self.level > other.level
        if self.flow[0] == other.flow[0] >= 0:
            return self.flow < other.flow
        return self.at[1] < other.at[0]

    def may_be_over(self, now: float) -> bool:
        """Return whether it may have expired."""
        return self.ends[0] <= now

    def may_be_due(self, now: float) -> bool:
        """Return whether its delay may be over."""
        return self.due[0] <= now

    def surely_waits(self, now: float) -> bool:
        """Return whether it can be handed out, without a doubt."""
        return self.state == WAITING and not self.may_be_over(now) and not self.is_ghost

    def is_unsure(self, now: float) -> bool:
        """Return whether time may change it, or has changed it."""
        waits = self.state in (WAITING, DELAYED)
        return (waits and self.may_be_over(now)) or (self.state == DELAYED and self.may_be_due(now))


@dataclass(eq=False)
class Sub:
    """A subscription, with its deliveries by the id of their ACK, in order."""

    id: str
    link: int
    pattern: str
    ack: str
    prefetch: int
    sort: str = ""
    priority: int = 0
    exclusive: bool = False
    extra: int = 0
    """Credit that an open transaction lends it."""
    held: "dict[str, tuple[Queue, Copy]]" = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Return whether it has credit."""
        return self.ack == "auto" or len(self.held) < self.prefetch

    def wants(self, copy: Copy) -> bool:
        """Return whether its selector matches."""
        return not self.sort or copy.headers.get("sort") == self.sort


@dataclass(eq=False)
class Queue:
    """A queue, or that of a durable subscription, with its messages and its consumers in order."""

    name: str
    policy: Policy
    dead: "Queue | None" = None
    is_binding: bool = False
    copies: list[Copy] = field(default_factory=list)
    subs: list[Sub] = field(default_factory=list)
    owners: dict[str, Sub] = field(default_factory=dict)
    alone: Sub | None = None
    is_paused: bool = False
    ids: dict[str, bool] = field(default_factory=dict)
    """The ids for duplicate detection, and whether they are stored."""
    fates: dict[str, str] = field(default_factory=dict)
    """How messages left it, by body."""

    @property
    def address(self) -> str:
        """Return the destination of what is sent to it."""
        return self.name.rpartition("|")[2]

    @property
    def held(self) -> list[Copy]:
        """Return the messages that consumers have."""
        return [copy for copy in self.copies if copy.state == HELD]

    @property
    def count(self) -> int:
        """Return the number of messages that count for its limits."""
        return sum(copy.state != SCHEDULED for copy in self.copies)

    def is_full(self, more: int = 1) -> bool:
        """Return whether ``more`` messages are too many."""
        return 0 < self.policy.max_messages < self.count + more

    def waiting(self) -> list[Copy]:
        """Return what waits, the first one first."""
        found = [copy for copy in self.copies if copy.state == WAITING]
        return sorted(found, key=lambda copy: (-copy.level, copy.at))

    def appoint(self, candidates: list[Sub]) -> None:
        """Choose the exclusive consumer, if there must be one and is none."""
        for sub in candidates if self.alone is None else ():
            if sub.exclusive or self.policy.exclusive:
                self.alone = sub
                self.owners = {name: own for name, own in self.owners.items() if own is sub}
                return

    def attach(self, sub: Sub) -> None:
        """Serve a consumer too, behind the others of its priority."""
        before = [each for each in self.subs if each.priority >= sub.priority]
        self.subs.insert(len(before), sub)
        self.appoint([sub])

    def detach(self, sub: Sub) -> None:
        """Serve a consumer no longer."""
        self.subs.remove(sub)
        self.owners = {name: own for name, own in self.owners.items() if own is not sub}
        if self.alone is sub:
            self.alone = None
            self.appoint(self.subs)

    def gone(self, copy: Copy, fate: str) -> None:
        """Remove a message."""
        self.copies.remove(copy)
        self.fates[copy.body] = fate

    def refuses(self, sub: Sub, copy: Copy) -> str:
        """Return why a consumer must not get a message now, or ""."""
        if self.is_paused:
            return "the queue is paused"
        if sub not in self.subs:
            return "it does not consume from the queue"
        if not sub.is_ready and not sub.extra:
            return f"it has no credit: it holds {len(sub.held)} of {sub.prefetch}"
        if not sub.wants(copy):
            return f"its selector is sort = '{sub.sort}'"
        if self.alone is not None and self.alone is not sub:
            return f"{self.alone.id} is the exclusive consumer"
        own = sum(queue is self for queue, _ in sub.held.values())
        if self.alone is sub and len(self.held) > own:
            return "it is exclusive, and others hold messages from before"
        owner = self.owners.get(copy.group)
        if copy.group and owner not in (None, sub):
            return f"the group {copy.group} belongs to {owner.id if owner else ''}"
        return ""

    def holds_group(self, copy: Copy, now: float, *, surely: bool) -> bool:
        """Return whether a refused message of its group is in back-off."""
        return bool(copy.group) and any(
            each.state == DELAYED and not (surely and each.may_be_due(now))
            for each in self.copies
            if each.group == copy.group
        )

    def out_of_turn(self, sub: Sub, copy: Copy, now: float, quiet: float) -> str:
        """Return which message or consumer must come before, or "".

        Args:
          quiet: When nothing was due: since then the delivery was made.
        """
        if self.holds_group(copy, now, surely=True):
            return f"a message of the group {copy.group} is in back-off"
        for other in self.copies:
            if other.level < copy.level or other.state != WAITING or other is copy:
                continue
            if not other.precedes(copy) or not other.surely_waits(now):
                continue
            if other.since[1] > max(quiet, copy.since[0]):
                continue
            if not self.refuses(sub, other) and not self.holds_group(other, now, surely=False):
                return f"{other.body} comes before"
        for each in self.subs:
            if each.priority > sub.priority and each.is_ready and not self.refuses(each, copy):
                return f"{each.id} has a higher priority"
        return ""

    def owed(self, now: float) -> str:
        """Return a message that a ready consumer must get, or ""."""
        ready = [sub for sub in self.subs if sub.is_ready]
        for copy in self.copies if ready and not self.is_paused else ():
            if copy.surely_waits(now) and not self.holds_group(copy, now, surely=False):
                for sub in ready:
                    if not self.refuses(sub, copy):
                        return f"{copy.body} of {self.name} is due to {sub.id}"
        return ""


class Model:
    """The queues of a scenario."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.now = self.began = time.monotonic()
        """Now, and when the step began."""
        self.quiet = self.now
        """When nothing was due, and all that had come was judged."""
        self._last = 0.0

    def tick(self) -> float:
        """Return a time behind all before."""
        self._last = max(self._last + 1e-6, self.now)
        return self._last

    def queue(self, name: str) -> Queue:
        """Return a queue of this name, a dead-letter queue unless it is known."""
        if name not in self.queues:
            self.queues[name] = Queue(name, DEAD)
        return self.queues[name]

    def dead_of(self, queue: Queue) -> Queue | None:
        """Return the queue of its dead letters."""
        if queue.policy.dead_letter:
            return self.queue(queue.policy.dead_letter)
        if queue.name.startswith("/queue/DLQ."):
            return None
        topic = queue.name.partition("|")[2]
        return self.queue("/queue/DLQ." + (topic or queue.name.removeprefix("/queue/")).lstrip("/"))

    # Messages in.

    def admit(self, queue: Queue, copy: Copy, *, is_dead: bool = False) -> str:
        """Put a message into a queue by its policy. Return why it is not taken, or ""."""
        if not queue.policy.priority:
            copy.level = 4
        self.shorten(queue, 1)
        if queue.is_full() and (is_dead or queue.policy.overflow not in DROPS_OLD):
            queue.fates[copy.body] = "not taken: the queue was full"
            return queue.policy.overflow
        copy.since = copy.at
        queue.copies.append(copy)
        return ""

    def shorten(self, queue: Queue, more: int = 0) -> None:
        """Make room for ``more`` messages, if the policy drops old ones."""
        while queue.is_full(more) and queue.policy.overflow in DROPS_OLD and queue.waiting():
            first = queue.waiting()[0]
            if queue.policy.overflow == "dead-letter":
                self.bury(queue, first, "overflow")
            else:
                queue.gone(first, "dropped by drop-oldest")

    def bury(self, queue: Queue, copy: Copy, reason: str, since: float = NEVER) -> None:
        """Make a message a dead letter. ``since``: the earliest time of that."""
        queue.gone(copy, f"dead: {reason}")
        target = self.dead_of(queue)
        if target is None or (reason == "expired" and not queue.policy.dead_letter_expired):
            return
        at = self.tick()
        headers = dict(copy.headers) | {"x-death-reason": reason}
        headers.setdefault(ORIGIN, queue.address)
        ttl = target.policy.ttl_ms / 1000 or NEVER
        is_durable = copy.is_durable or target.policy.persistent == "always"
        dead = Copy(copy.body, headers, copy.level, (min(since, self.began), at), is_durable)
        dead.may_survive = not is_durable
        dead.ends = min(since, self.began) + ttl, self.now + ttl
        self.admit(target, dead, is_dead=True)

    # Messages back.

    def back(self, queue: Queue, copy: Copy, delay_s: float = 0.0) -> None:
        """Return a message to its place, at once or after a delay. A full queue may drop one."""
        copy.state = DELAYED if delay_s else WAITING
        copy.due = self.began + delay_s, self.now + delay_s
        copy.due = min(copy.due[0], copy.ends[0]), min(copy.due[1], copy.ends[1])
        copy.since = copy.due[0], copy.due[1] + (SLACK_S if delay_s else 0)
        if not delay_s:
            self.shorten(queue)

    def fail(self, queue: Queue, copy: Copy, *, is_refused: bool = True) -> None:
        """Count a failed delivery, which ends in a delay or with a dead letter."""
        copy.failures += 1
        if copy.failures > queue.policy.max_redeliveries and self.dead_of(queue) is not None:
            self.bury(queue, copy, "delivery-limit")
        else:
            self.back(queue, copy, queue.policy.delay_s(copy.failures) if is_refused else 0.0)

    def settle(self, sub: Sub, name: str, how: str) -> None:
        """ACK, NACK or reject a delivery, and all before it with ``client``."""
        names = list(sub.held)
        names = names[: names.index(name) + 1] if sub.ack == "client" else [name]
        for each in names:
            queue, copy = sub.held.pop(each)
            if how == "ack":
                queue.gone(copy, "acknowledged")
            elif how == "reject":
                self.bury(queue, copy, "rejected")
            else:
                self.fail(queue, copy)

    def leave(self, sub: Sub, *, is_lost: bool = False) -> None:
        """End a subscription."""
        for queue in self.queues.values():
            if sub in queue.subs:
                queue.detach(sub)
        for place, (queue, copy) in enumerate(sub.held.values()):
            if is_lost and place == 0:
                self.fail(queue, copy, is_refused=False)
            else:
                self.back(queue, copy)
        sub.held.clear()

    def restart(self, *, has_store: bool) -> None:
        """The broker has ended and started again."""
        self.quiet = self.now = time.monotonic()
        if not has_store:
            self.queues = {name: each for name, each in self.queues.items() if not each.is_binding}
        for queue in self.queues.values():
            for copy in list(queue.copies):
                copy.is_ghost |= copy.may_survive
                if not ((copy.is_durable or copy.may_survive) and has_store):
                    queue.gone(copy, "not durable, before a restart")
                elif copy.state != SCHEDULED:
                    copy.ends = copy.ends[0], max(copy.ends[1], self.now)
                    copy.state, copy.since = WAITING, (self.now, self.now)
                    copy.deliveries = copy.deliveries[0], max(copy.deliveries[1], 1)
            self.shorten(queue)
            queue.subs.clear()
            queue.owners.clear()
            queue.alone, queue.is_paused = None, False
            queue.ids = {each: True for each, kept in queue.ids.items() if kept and has_store}

    # Time.

    def pass_time(self) -> None:
        """Do what time has surely done."""
        self.now = now = time.monotonic()
        for queue in list(self.queues.values()):
            for copy in sorted(queue.copies, key=lambda each: each.due):
                if copy.state in (DELAYED, SCHEDULED) and copy.due[1] + SLACK_S < now:
                    copy.state = WAITING
                    self.shorten(queue)
                if copy not in queue.copies:
                    continue
                if copy.state in (WAITING, DELAYED) and copy.ends[1] + SLACK_S < now:
                    self.bury(queue, copy, "expired", copy.ends[0])

    def has_timed(self) -> bool:
        """Return whether time has done something since nothing was due."""
        return any(
            self.quiet - SLACK_S <= at <= self.now
            for queue in self.queues.values()
            for copy in queue.copies
            for at in (*copy.due, *copy.ends)
        )

    def unsure(self) -> bool:
        """Return whether time makes it uncertain what a limited queue has."""
        return any(
            copy.is_unsure(self.now)
            for queue in self.queues.values()
            if queue.policy.max_messages
            for copy in queue.copies
        )

    def straddles(self) -> bool:
        """Return whether time may have changed a limited queue during this step."""
        return any(
            self.began <= at <= time.monotonic()
            for queue in self.queues.values()
            if queue.policy.max_messages
            for copy in queue.copies
            for at in (copy.ends[0], copy.due[0])
            if copy.state in (WAITING, DELAYED)
        )

    def must_wait(self) -> bool:
        """Return whether it is uncertain what is stored: an expiry may be about to decide that."""
        self.pass_time()
        for queue in list(self.queues.values()):
            for copy in queue.copies if queue.policy.dead_letter_expired else ():
                is_near = copy.state in (WAITING, DELAYED) and copy.may_be_over(self.now + 0.5)
                if is_near and not copy.is_durable:
                    return True
        return False

    # Deliveries.

    def deliver(self, sub: Sub, queue: Queue, body: str, headers: dict[str, str]) -> str:
        """Give a message to a consumer. Return why that is wrong, or ""."""
        copy, why = self._candidate(queue, body, headers)
        if copy is None:
            return why
        why = queue.refuses(sub, copy) or queue.out_of_turn(sub, copy, self.now, self.quiet)
        if why:
            return why
        if self.quiet > copy.ends[1] + LATE_S:
            return f"it expired {self.quiet - copy.ends[1]:.1f} s before"
        why = wrong_header(copy, headers)
        if why:
            return why
        count = int(headers.get("delivery-count", "1"))
        copy.deliveries = count, count
        copy.is_ghost = False
        if copy.group:
            queue.owners[copy.group] = sub
        if sub.ack == "auto":
            queue.gone(copy, "delivered with ack:auto")
        else:
            copy.state = HELD
            sub.held[headers["ack"]] = queue, copy
            sub.extra -= len(sub.held) > sub.prefetch
        return ""

    def _candidate(
        self, queue: Queue, body: str, headers: dict[str, str]
    ) -> tuple[Copy | None, str]:
        """Return the message that may be delivered, or why there is none."""
        why = f"it was never there; {queue.fates.get(body, '')}"
        origin = headers.get(ORIGIN, "")
        found: list[Copy] = []
        for copy in queue.copies:
            if copy.body == body and copy.headers.get(ORIGIN, origin) == origin:
                timed = copy.state in (DELAYED, SCHEDULED) and copy.may_be_due(self.now)
                found += [copy] if copy.state == WAITING or timed else []
                why = f"it is {copy.state}"
        if found:  # there may be two, of a composite destination
            return next((each for each in found if not wrong_header(each, headers)), found[0]), ""
        for other in list(self.queues.values()):  # it may have expired there just now
            for copy in list(other.copies):
                over = copy.state in (WAITING, DELAYED) and copy.may_be_over(self.now)
                before = copy.headers.get(ORIGIN, other.address)
                if copy.body == body and over and before == origin and self.dead_of(other) is queue:
                    self.bury(other, copy, "expired", copy.ends[0])
                    dead = [each for each in queue.copies if each.body == body]
                    return (dead[-1] if dead else None), why
        return None, why


def wrong_header(copy: Copy, headers: dict[str, Any]) -> str:
    """Return which header of a MESSAGE is wrong, or ""."""
    for name, value in copy.headers.items():
        if headers.get(name) != value:
            return f"its {name} is {headers.get(name)}, not {value}"
    count = int(headers.get("delivery-count", "1"))
    least, most = copy.deliveries
    if not least + 1 <= count <= most + 1:
        return f"its delivery-count is {count}, not {least + 1} to {most + 1}"
    if (headers.get("redelivered") == "true") != (count > 1):
        return f"redelivered:{headers.get('redelivered')} with delivery-count:{count}"
    return ""
