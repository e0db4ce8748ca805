"""Admission of messages to queues, by their limits, memory, the store and the overflow policy."""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.delivery import (
    DROP_NEWEST,
    DROP_OLDEST,
    Client,
    LossReason,
    Publication,
    Work,
)
from trio_stomp.broker.headers import NOTHING, PRIORITY_DEFAULT, SendOutcome
from trio_stomp.broker.queues._message import (
    MESSAGE_OVERHEAD_BYTES,
    DeadLetterReason,
    Message,
    charge,
    cost_alone,
    force,
)
from trio_stomp.broker.queues._queue import Queue
from trio_stomp.broker.queues._queues import QueueBook
from trio_stomp.broker.routing import BLOCK, DEAD_LETTER, beyond_quota, kept_rule, stored_rule

FEW_DROPPED = 256
"""More messages that leave for a new one leave in pieces."""


class Admission(Enum):
    """The answer of a queue to a message."""

    TAKEN = auto()
    WAITS = auto()
    """There is no room yet, and the sender may wait for it. Nothing has changed."""
    DROPPED = auto()
    """There is no room, and the policy drops the newest message."""
    REFUSED = auto()
    """There is no room, and no policy makes any. ``Overflow.refusal`` says why."""


class QueueFull(ProtocolError):
    """A full queue refused a message, after it answered for ``done`` messages of the same run."""

    done: int = 0
    outcome: SendOutcome = NOTHING
    """The outcome of those messages."""
    queue: Queue
    lasts: bool = False
    """The message exceeds the share that a user may have in the store, however empty it is."""


@define(eq=False, repr=False)
class Need:
    """Messages that one queue is to accept."""

    origin: Publication
    """Their header block, sender and quota."""
    largest: bytes = b""
    """Their largest body."""
    count: int = 0
    size: int = 0
    """The bytes of all bodies."""

    def add(self, bodies: list[bytes]) -> None:
        """Add messages."""
        self.largest = max(self.largest, *bodies, key=len)
        self.count += len(bodies)
        self.size += sum(map(len, bodies))


@define(eq=False, repr=False)
class Overflow:
    """Admits messages to queues, and makes room in full ones by their policies."""

    memory: MemoryBudget
    queues: QueueBook
    dropped: int = 0
    backlog_dropped: int = 0
    """Messages that the queues of subscriptions to topics dropped."""
    blocked: dict[Client, tuple[Queue, int, int, int]] = field(factory=dict)
    """Waiting producers in order, with queue, and the bytes needed of body, memory and store."""
    full: Queue = field(init=False)
    """The queue that blocked the last producer."""
    wanted: int = field(init=False)
    """The memory that its message needs."""
    wanted_stored: int = field(init=False)
    """The bytes in the store that its message needs."""

    def admit(
        self,
        queue: Queue,
        origin: Publication,
        bodies: list[bytes],
        *,
        level: int,
        now: float,
        first: int = 0,
    ) -> list[Admission]:
        """Put messages into a queue: all at once if they fit, else one by one by its policy.

        Args:
          queue: A queue.
          origin: The publication of the messages, with the quota that pays for them.
          bodies: Their bodies.
          level: Their priority.
          now: Seconds of the broker's clock.
          first: The number reserved for the first of them, which determines its position. They are
            not stored. 0 = they come last.

        Returns:
          The answer to each message, up to the first that waits or is refused.
        """
        if self._take(queue, origin, bodies, level=level, first=first):
            return [Admission.TAKEN] * len(bodies)
        answers: list[Admission] = []
        for index, body in enumerate(bodies):
            number = first + index if first else 0
            take = partial(self._take, queue, origin, [body], level=level, first=number)
            cost = cost_alone(origin.head, 1, len(body))
            answers.append(self._by_policy(queue, origin, body, now, take=take, cost=cost))
            if answers[-1] in (Admission.WAITS, Admission.REFUSED):
                break
        return answers

    def _take(
        self,
        queue: Queue,
        origin: Publication,
        bodies: list[bytes],
        *,
        level: int,
        first: int,
        is_bare: bool = False,
    ) -> bool:
        """Charge messages and put them into a queue. Return whether all fit.

        ``is_bare``: beyond the queue's limits, too.
        """
        count, size = len(bodies), sum(map(len, bodies))
        level = queue.level_of(level)
        fits = is_bare or queue.takes(count, size)
        if not fits and (first or not self._leave_later(queue, origin, bodies, level)):
            return False
        if not first and self._lacks_store(queue, origin, count, size):
            return False
        if not charge(self.memory, origin.head, count, size, origin.quota):
            return False
        if first:
            self.queues.insert(queue, origin, bodies, level, size=size, first=first)
        else:
            self.queues.accept(queue, origin, bodies, level, size)
        return True

    def _leave_later(
        self, queue: Queue, origin: Publication, bodies: list[bytes], level: int
    ) -> bool:
        """Return whether old messages leave for new ones when these are stored, and not before."""
        if not queue.drops_old or 0 < queue.max_bytes < len(max(bodies, key=len)):
            return False
        storage = self.queues.storage
        return storage is not None and storage.gets(queue, origin, level)

    def admit_dead(
        self, queue: Queue, origin: Publication, body: bytes, level: int, now: float
    ) -> bool:
        """Put a dead letter into a queue by its policy. Return whether it was taken.

        It was charged before, so no quota refuses it now.
        """
        # If memory is short, a stored message moves from the store to the store.
        goes_to_store = origin.is_stored and queue.place
        cost = 0 if goes_to_store else cost_alone(origin.head, 1, len(body))
        take = partial(self._take_dead, queue, origin, body, level=level, cost=cost)
        return self._by_policy(queue, origin, body, now, take=take, cost=cost) is Admission.TAKEN

    def _take_dead(
        self,
        queue: Queue,
        origin: Publication,
        body: bytes,
        *,
        level: int,
        cost: int,
        is_bare: bool = False,
    ) -> bool:
        if not (is_bare or queue.takes(1, len(body))):
            return False
        if cost > max(self.memory.kept_room, 0):
            return False
        force(self.memory, origin.head, 1, len(body), origin.quota)
        queue.destination.enqueued += 1
        self.queues.accept(queue, origin, [body], level, len(body))
        return True

    def hand_on(self, queue: Queue, message: Message) -> bool:
        """Put a message that another queue had accepted into a queue, beyond its limits, too.

        Returns:
          False if there is no memory for it.
        """
        origin, size = message.publication, len(message.body)
        if not charge(self.memory, origin.head, 1, size, origin.quota):
            return False
        message.level = queue.level_of(message.level)
        queue.put_all(message.level, [message], size)
        return True

    def _by_policy(
        self,
        queue: Queue,
        origin: Publication,
        body: bytes,
        now: float,
        *,
        take: Callable[..., bool],
        cost: int,
    ) -> Admission:
        """Put a message into a queue that may be full, by its policy, and return the answer.

        Args:
          queue: The queue.
          origin: The publication.
          body: The body.
          now: Seconds of the broker's clock.
          take: Puts it into the queue if it fits, or, with ``is_bare``, whatever the limits.
          cost: The memory that it needs.
        """
        policy, size = queue.overflow, len(body)
        while not take():
            if policy == BLOCK and origin.sender is not None and origin.sender.may_wait:
                if self.never_fits(queue, size, cost):
                    return Admission.REFUSED
                self.full, self.wanted = queue, cost
                self.wanted_stored = self._stored_cost(queue, origin, size)
                return Admission.WAITS
            drops = queue.drops_old and not self.never_fits(queue, size, cost)
            drops = drops and self._may_drop(queue, origin, body, cost)
            if drops and self._drop_oldest(queue, now):
                continue
            # The oldest may be held, or in the store: they leave when they are back.
            if drops and not queue.waiting.next(1) and take(is_bare=True):
                break
            if queue.feed is None and (policy != DROP_NEWEST or origin.sender is None):
                return Admission.REFUSED
            self._count_drop(queue)
            queue.destination.dropped += 1
            self.queues.note_lost(queue, LossReason.QUEUE_FULL, None, queue.overflow_rule)
            return Admission.DROPPED
        return Admission.TAKEN

    def _lacks_store(self, queue: Queue, origin: Publication, count: int, size: int) -> bool:
        storage = self.queues.storage
        return storage is not None and storage.lacks_room(queue, origin, count, size)

    def refusal(self, queue: Queue, origin: Publication, body: bytes) -> QueueFull:
        """Return the error for a message that a queue has refused."""
        size, cost = len(body), cost_alone(origin.head, 1, len(body))
        if self.never_fits(queue, size, cost):
            return self._full(queue, cost)
        if self._lacks_store(queue, origin, 1, size) and queue.takes(1, size):
            return self._no_store(queue, origin.quota, self._stored_cost(queue, origin, size))
        return self._full(queue, cost, origin.quota)

    def making_room(self, needs: Mapping[Queue, Need], now: float) -> Work | None:
        """Return the work that makes room for messages, or None if few must leave for them.

        Args:
          needs: The messages, by the queue that is to accept them.
          now: Seconds of the broker's clock.
        """
        leaving = 0.0
        for queue, need in needs.items():
            if queue.drops_old and (missing := self._missing(queue, need)) > 0:
                leaving += missing * queue.waiting.count / max(queue.size, 1)
        return self._making_room(needs, now) if leaving > FEW_DROPPED else None

    def _making_room(self, needs: Mapping[Queue, Need], now: float) -> Work:
        for queue, need in needs.items():
            drops = queue.drops_old
            while drops and self._missing(queue, need) > 0 and self._drop_oldest(queue, now):
                yield

    def _missing(self, queue: Queue, need: Need) -> int:
        """Return the bytes to release, by dropping the oldest messages, before others fit.

        Returns:
          0 if they fit, or if dropping does not help.
        """
        size, largest = need.size, len(need.largest)
        alone = cost_alone(need.origin.head, 1, largest)
        if self.never_fits(queue, largest, alone):
            return 0
        if not queue.waiting.count or queue.waiting.oldest_at is None:
            return 0
        limit = queue.max_bytes
        excess = queue.size + min(size, limit) - limit if limit else 0
        if excess > 0:
            return excess
        cost = cost_alone(need.origin.head, need.count, size)
        missing = cost - self.memory.kept_room_for(need.origin.quota)
        if missing > 0 and self._may_drop(queue, need.origin, need.largest, alone):
            return missing
        return 0

    def _may_drop(self, queue: Queue, origin: Publication, body: bytes, cost: int) -> bool:
        """Return whether the oldest message may be dropped for a new one.

        If a quota is full, only its own messages may.
        """
        if not queue.takes(1, len(body)) or cost > self.memory.kept_room:
            return True
        foremost = queue.waiting.foremost()
        if self._lacks_store(queue, origin, 1, len(body)):
            is_own = all(each.payer is origin.quota for each in foremost)
        else:
            is_own = all(each.quota is origin.quota for each in foremost)
        return is_own and queue.overflow == DROP_OLDEST

    def shorten(self, queue: Queue, now: float, kept: int = 0) -> None:
        """Drop or dead-letter the oldest messages of a queue, by policy, beyond its limits.

        Args:
          queue: The queue.
          now: Seconds of the broker's clock.
          kept: How many stay in any case. If consumers have the others, a new one stays.
        """
        if queue.drops_old and not queue.fits_now(0, 0):
            self.queues.carry_out(self._shortening(queue, now, kept))

    def _shortening(self, queue: Queue, now: float, kept: int) -> Work:
        waiting = queue.waiting
        while queue.drops_old and not queue.fits_now(0, 0) and waiting.count + waiting.paged > kept:
            if not self._drop_oldest(queue, now):
                return
            yield

    def _drop_oldest(self, queue: Queue, now: float) -> bool:
        """Drop the oldest message, or dead-letter it. False = there is none, or after a bug."""
        is_gone = queue.drop_oldest(partial(self._drop, queue, now))
        if is_gone:
            self._count_drop(queue)
        return is_gone

    def _count_drop(self, queue: Queue) -> None:
        if queue.feed is None:
            self.dropped += 1
        else:
            self.backlog_dropped += 1

    def _drop(self, queue: Queue, now: float, message: Message) -> None:
        """Dead-letter a message by the policy, or record that it is dropped, for ``explain``."""
        if queue.policy.overflow == DEAD_LETTER:
            self.queues.dead_letter(queue, message, DeadLetterReason.OVERFLOW, now)
            return
        queue.destination.dropped += 1
        self.queues.note_lost(queue, LossReason.QUEUE_FULL, message, queue.overflow_rule)

    def check(
        self,
        wanted: dict[Queue, tuple[int, int, int]],
        cost: int,
        *,
        quota: Quota | None = None,
        each: int = 0,
        may_drop: bool = True,
    ) -> int:
        """Check that all messages of a transaction or composite SEND fit.

        Args:
          wanted: For each queue: messages, bytes of their bodies, bytes of the largest one.
          cost: The memory of scheduled messages, and the most of header blocks.
          quota: The quota of the sender.
          each: The bytes of one message in the store beside its body; 0 = not stored.
          may_drop: Messages fit where the policy drops them.

        Returns:
          The most bytes that the messages take in the store.

        Raises:
          QueueFull: They do not fit, and the policy cannot make room.
        """
        room = self.memory.kept_room_for(quota)
        for queue, (count, size, largest) in wanted.items():
            cost += size + MESSAGE_OVERHEAD_BYTES * count
            if cost > room:
                raise self._full(queue, cost, quota)
            fits = (may_drop and queue.overflow == DROP_NEWEST) or queue.takes(count, size)
            if not fits and not (queue.drops_old and not self.never_fits(queue, largest, 0)):
                raise self._full(queue, cost)
        return self._check_store(wanted, quota, each)

    def _check_store(
        self, wanted: dict[Queue, tuple[int, int, int]], quota: Quota | None, each: int
    ) -> int:
        stored = 0
        for queue, (count, size, _) in wanted.items():
            if each and queue.place:
                stored += size + each * count
                if stored > self.memory.stored_room_for(quota):
                    raise self._no_store(queue, quota, stored)
        return stored

    def no_memory(self, name: str, cost: int, quota: Quota | None = None) -> ProtocolError:
        """Return the error for a message if the memory budget or a quota is full."""
        if quota is not None and cost <= self.memory.kept_room:
            return beyond_quota(
                "quota-exceeded",
                f"there is no room for a message to {name[:80]}: {kept_rule(self.memory, quota)};"
                " consume some of them, or send fewer",
            )
        return ProtocolError(
            "memory-limit",
            f"there is no memory for a message to {name[:80]} (option max_memory_bytes)",
            reason=CloseReason.MEMORY_LIMIT,
        )

    def wait(self, client: Client, body: bytes) -> None:
        """Block a producer until the queue that was just full has room for ``body``."""
        self.blocked[client] = self.full, len(body), self.wanted, self.wanted_stored

    def ready(self) -> list[Client]:
        """Remove and return the waiting producers whose queue has room again."""
        found = [
            client
            for client, (queue, size, cost, stored) in self.blocked.items()
            if queue.overflow != BLOCK  # the policy has changed: it is tried by the new one
            or (
                queue.fits(1, size)
                and cost <= self.memory.kept_room_for(client.quota)
                and stored <= self.memory.stored_room_for(client.quota)
            )
        ]
        for client in found:
            del self.blocked[client]
        return found

    def give_up(self, client: Client) -> QueueFull | None:
        """Return the error for a producer that can wait no longer, or None if it does not wait."""
        if (waiting := self.blocked.pop(client, None)) is None:
            return None
        queue, _, cost, _ = waiting
        return self._full(queue, cost, client.quota)

    def never_fits(self, queue: Queue, size: int, cost: int) -> bool:
        """Return whether a message exceeds the limits of an empty queue or of empty memory."""
        if 0 < queue.max_bytes < size:
            return True
        return cost > self.memory.limit_bytes * self.memory.kept_share

    def _stored_cost(self, queue: Queue, origin: Publication, size: int) -> int:
        """Return the bytes of a message in the store, or 0 if it is not stored."""
        storage = self.queues.storage
        level = queue.level_of(origin.options.priority if origin.options else PRIORITY_DEFAULT)
        if storage is None or not storage.gets(queue, origin, level):
            return 0
        return storage.cost(origin, 1, size)

    def _no_store(self, queue: Queue, quota: Quota | None, size: int) -> QueueFull:
        """Return the error for a message if the user's share of the store is full.

        Args:
          queue: The queue.
          quota: The user's quota.
          size: The bytes that the message needs in the store.
        """
        assert quota is not None
        error = QueueFull(
            "quota-exceeded",
            f"there is no room in the store for a message to {queue.name[:80]}:"
            f" {stored_rule(self.memory, quota)}; consume some of them, or send fewer",
            reason=CloseReason.LIMIT_EXCEEDED,
        )
        error.queue, error.is_by_quota = queue, True
        error.lasts = self.memory.is_beyond_share(size)
        return error

    def _full(self, queue: Queue, cost: int, quota: Quota | None = None) -> QueueFull:
        """Return the error for a full queue or a full quota."""
        memory, limits = self.memory, "policy max_messages, max_bytes; option max_memory_bytes"
        held = f"has {queue.message_count} messages of {queue.size} bytes"
        slower = "consume some, or send more slowly"
        is_by_quota = quota is not None and memory.kept_room_for(quota) < cost <= memory.kept_room
        if quota is not None and is_by_quota:
            why = f"{held}, and no room for more: {kept_rule(memory, quota)}; {slower}"
        elif queue.message_count:
            why = f"{held} and is full ({limits}); {slower}"
        else:
            why = f"is empty, and takes less at once ({limits}); send smaller messages, or fewer"
        error = QueueFull(
            "queue-full",
            f"{queue.name[:80]} {why}",
            reason=CloseReason.LIMIT_EXCEEDED,
        )
        error.queue, error.is_by_quota = queue, is_by_quota
        return error
