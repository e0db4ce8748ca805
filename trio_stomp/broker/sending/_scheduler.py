"""Scheduled messages: sent later, once or repeatedly."""

import json
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import Identity, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    NEVER,
    BrokerPolicies,
    Client,
    Destination,
    Publication,
    Timers,
    WallTime,
)
from trio_stomp.broker.durability import Callback, Log
from trio_stomp.broker.headers import (
    Dialect,
    Removal,
    Schedule,
    SendOutcome,
    SendPlan,
    make_plan,
    parse_schedule,
)
from trio_stomp.broker.queues import MESSAGE_OVERHEAD_BYTES, Overflow, Storage, cost_alone
from trio_stomp.broker.routing import beyond_quota
from trio_stomp.broker.sending._scheduled import (
    IN_LINE,
    SCHEDULED,
    Jobs,
    Progress,
    Scheduled,
    SendsDue,
    unscheduled,
)
from trio_stomp.frames import FrameRun, Head

if TYPE_CHECKING:
    from trio_stomp.broker.sending._context import SendContext
    from trio_stomp.store import Stored

SLIP_MS = 60_000
"""After the wall clock is set back, no CRON schedule fires for this time, its minimum step."""
FIRST_RETRY_S, RETRY_S = 0.1, 1.0
"""The first and the longest time after which messages that found no room are tried again."""
DROPPED_AT_ONCE = 256
"""Maximum number of messages dropped for a scheduled one before other timers run."""


@define(eq=False, repr=False)
class Scheduler:
    """Keeps scheduled messages, and sends each when it is due, once or repeatedly."""

    memory: MemoryBudget
    timers: Timers
    overflow: Overflow
    sender: SendsDue
    authorizer: Authorizer
    dialect: Dialect
    policies: BrokerPolicies
    wall: WallTime
    storage: Storage | None = None
    waiting: int = 0
    """Number of scheduled messages."""
    jobs: Jobs = field(factory=Jobs)
    _by_cron: dict[Scheduled, None] = field(factory=dict)
    """Messages that are due when their CRON schedule fires next."""
    _lines: dict[tuple[str, ...], deque[Scheduled]] = field(factory=dict)
    """Messages that are due, in order, by destinations. Only the first ones are tried."""

    @property
    def lost(self) -> int:
        """Return the number of messages that could not be sent, however long they waited."""
        return self.sender.lost

    def keep(
        self,
        context: "SendContext",
        destination: Destination,
        head: Head,
        schedule: Schedule,
        *,
        bodies: list[bytes],
        survives: bool,
    ) -> int:
        """Schedule messages, and return the number of the first one. The others follow.

        Args:
          context: The context of their SEND.
          destination: The destination.
          head: The header block.
          schedule: When to send them.
          bodies: The bodies of the messages.
          survives: Whether they must be stored.

        Raises:
          ProtocolError: there is no memory for them, the user has too many, or the time is too far
            away.
        """
        client, quota, now = context.client, context.quota, context.now
        due_ms = schedule.first_due(self.wall.ms(now))
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        self.check_count(quota, destination.name, len(bodies))
        if cost > self.memory.kept_room_for(quota):
            raise self.overflow.no_memory(destination.name, cost, quota)
        item = Scheduled(
            unscheduled(head),
            bodies=bodies,
            schedule=schedule,
            cost=cost,
            due_ms=due_ms,
            due_s=self.wall.clock_s(due_ms),
        )
        item.owner = client.identity if client is not None else None
        item.quota = quota
        if survives and self.storage is not None:
            origin = Publication(
                destination, head=head, bodies=[], received_at=now, expires_at=NEVER, sender=client
            )
            first = self.storage.put_aside(SCHEDULED, origin, bodies, item.owner)
            effect = Callback(client, partial(self._arm, item), undo=partial(self.drop, item))
            self.storage.log.when_safe(effect)
            item.ids = range(first, first + len(bodies))
        else:
            first = self.overflow.queues.reserve(len(bodies))
            self._arm(item)
        self._enter(item, item.ids or range(first, first + len(bodies)))
        self.memory.force_kept(cost, quota)
        self.waiting += len(bodies)
        if quota is not None:
            quota.scheduled += len(bodies)
        return item.first

    def restore(
        self, run: "Stored", head: Head, progress: Progress | None, owner: Identity | None
    ) -> None:
        """Restore scheduled messages from the store.

        Args:
          run: The stored messages.
          head: Their header block.
          progress: How far they have come; None = not sent yet.
          owner: The sender; None = unknown.
        """
        schedule = parse_schedule(head)
        if schedule is None:
            return
        if progress is None:
            stored_due_ms = schedule.first_due(run.received_ms)
            due_s = self.wall.stored_s(stored_due_ms, run.ids[0])
        else:
            stored_due_ms = progress.due_ms
            due_s = self.wall.clock_s(stored_due_ms + self.wall.set_ms - progress.set_ms)
        cost = cost_alone(head, len(run.bodies), sum(map(len, run.bodies)))
        self.waiting += len(run.bodies)
        item = Scheduled(
            unscheduled(head),
            bodies=run.bodies,
            schedule=schedule,
            cost=cost,
            due_ms=stored_due_ms,
            due_s=due_s,
            ids=run.ids,
        )
        item.sent = progress.sent if progress else 0
        item.done = bisect_right(run.ids, progress.until) if progress else 0
        item.owner = owner
        self._enter(item, run.ids)
        item.quota = self.authorizer.quotas.left_by(owner)
        self.memory.force_kept(cost, item.quota)
        if item.quota is not None:
            item.quota.scheduled += len(run.bodies)
        self._arm(item)
        if item in self._by_cron:
            self.timers.call_at(0.0, partial(self._fit, item))

    def ending(self, client: Client, removal: Removal) -> Generator[None, None, SendOutcome]:
        """Cancel the messages that a client names and may cancel. Return the number as outcome."""

        def may_end(item: Scheduled) -> bool:
            return self.authorizer.may_end(client, item.owner, self.names(item))

        count = 0
        for done in self.cancelling(removal, may_end):
            count = done
            yield
        if self.storage is not None and count:
            # The RECEIPT waits for the store: a restart must not bring the messages back.
            client.awaited = client.acked = self.storage.log.turn
        return SendOutcome(removed=count)

    def due_ms(self, item: Scheduled) -> int:
        """Return when a message is sent next, in ms since 1970 by the present wall clock."""
        return item.due_ms if item.is_by_day else self.wall.ms(item.due_s)

    def follow_wall_clock(self, now: float) -> None:
        """Re-evaluate all CRON schedules, a few in each turn, after the wall clock was set."""
        for item in self._by_cron:
            self.timers.call_at(now, partial(self._fit, item))

    def drop(self, item: Scheduled, _now: float = 0.0) -> None:
        """Remove a scheduled message without sending it."""
        if item.timer == IN_LINE:
            self._lines[self.names(item)].remove(item)
        elif item.timer:
            self.timers.cancel(item.timer)
        self._by_cron.pop(item, None)
        self.jobs.discard(item)
        self._release(item, len(item.bodies), item.cost)

    def _release(self, item: Scheduled, count: int, cost: int) -> None:
        self.waiting -= count
        self.memory.give_kept(cost, item.quota)
        if item.quota is not None:
            item.quota.scheduled -= count

    def check_count(self, quota: Quota | None, name: str, count: int) -> None:
        """Check a user's limit of scheduled messages: each one causes work when it is due.

        Raises:
          ProtocolError: it would be exceeded.
        """
        limit = self.policies.max_schedules_per_user
        if quota is not None and quota.scheduled + count > limit:
            raise beyond_quota(
                "too-many-schedules",
                f"{quota.owner[:60]} has {quota.scheduled} messages scheduled, and"
                f" {limit} is the limit for one user (option max_schedules_per_user); send to"
                f" {name[:80]} when some of them have been sent",
            )

    def _enter(self, item: Scheduled, numbers: Sequence[int]) -> None:
        item.first, item.numbers = numbers[0], numbers
        self.jobs.add(item)

    def cancelling(self, removal: Removal, may_end: Callable[[Scheduled], bool]) -> Iterator[int]:
        """Cancel messages, and yield how many so far after each step.

        Args:
          removal: The messages.
          may_end: Returns whether those of one SEND may be cancelled.
        """
        count = 0
        for item in self.jobs.beginning_at(removal.first):
            if item.first > removal.last:
                break
            numbers, when = item.numbers, self.due_ms(item)
            begin, end = bisect_left(numbers, removal.first), bisect_right(numbers, removal.last)
            is_meant = begin < end and item.timer and removal.begin_ms <= when <= removal.end_ms
            if is_meant and may_end(item):
                count += end - begin
                if end - begin == len(numbers):
                    self._end(item)
                else:
                    self._end_some(item, begin, end)
            yield count

    def names(self, item: Scheduled) -> tuple[str, ...]:
        """Return the destinations of scheduled messages."""
        try:
            return self._plan(item).names
        except ProtocolError:
            return (item.destination,)

    def _end_some(self, item: Scheduled, begin: int, end: int) -> None:
        """Cancel the messages from index ``begin`` to ``end`` of an item."""
        freed = sum(map(len, item.bodies[begin:end])) + MESSAGE_OVERHEAD_BYTES * (end - begin)
        numbers = [*item.numbers[:begin], *item.numbers[end:]]
        ids = numbers if item.ids else ()
        done = item.done - max(0, min(end, item.done) - begin)
        if self.storage is not None and item.ids:
            log = self.storage.log
            with log.atomically():
                log.finish_all(list(item.ids[begin:end]))
                if item.sent or item.done:  # its setting's name may have changed with its first id
                    log.forget(f"{SCHEDULED}{item.ids[0]}")
                    self._write(log, item, ids, done, self.due_ms(item))
        item.bodies = item.bodies[:begin] + item.bodies[end:]
        item.numbers, item.ids, item.done = numbers, ids, done
        item.cost -= freed
        self._release(item, end - begin, freed)

    def _arm(self, item: Scheduled, _now: float = 0.0) -> None:
        if not item.is_by_day:
            item.timer = self.timers.call_at(item.due_s, partial(self._due, item))
            return
        if item.schedule.cron:
            self._by_cron[item] = None
        item.due_s = self.wall.clock_s(item.due_ms)
        item.timer = self.timers.call_by_day(item.due_ms / 1000, partial(self._due, item))

    def _fit(self, item: Scheduled, now: float) -> None:
        """Set a CRON schedule's timer to an earlier time if the wall clock was set back."""
        if item not in self._by_cron:
            return  # it has fired, or ended
        due_ms = item.schedule.first_due(self.wall.ms(now) + SLIP_MS)
        if due_ms < item.due_ms:
            self.timers.cancel(item.timer)
            item.due_ms = due_ms
            self._arm(item)

    def _due(self, item: Scheduled, now: float) -> None:
        """Send what is due, behind what waits for the same destinations."""
        try:
            item.timer, names = IN_LINE, self.names(item)
        except Exception:
            item.timer = self.timers.call_at(now + RETRY_S, partial(self._due, item))
            raise
        self._by_cron.pop(item, None)
        if names in self._lines:
            self._lines[names].append(item)
        else:
            self._lines[names] = deque([item])
            self._serve(names, now)

    def _serve(self, names: tuple[str, ...], now: float) -> None:
        """Try the first messages of a line. The others follow in later calls."""
        line, wait_s = self._lines[names], RETRY_S
        try:
            if line:
                with self._as_before(line):
                    wait_s = self._attempt(line[0], now)
        finally:
            self._follow(names, now + wait_s)

    @contextmanager
    def _as_before(self, line: deque[Scheduled]) -> Iterator[None]:
        """After an exception inside, let the head of a line be as before, and go behind others."""
        item = line[0]
        before = item.done, item.sent, item.retry_s
        try:
            yield
        except Exception:
            item.timer, (item.done, item.sent, item.retry_s) = IN_LINE, before
            line.rotate(-1)
            raise

    def _follow(self, names: tuple[str, ...], at: float) -> None:
        """Serve the rest of a line at a time, in seconds of the broker's clock."""
        if self._lines[names]:
            self.timers.call_at(at, partial(self._serve, names))
        else:
            del self._lines[names]

    def _attempt(self, item: Scheduled, now: float) -> float:
        """Send messages as far as there is room. Return the seconds until the next attempt.

        Until they are settled, they head their line.
        """
        if not self._may_send(item):
            self._end(item)
            return 0.0
        bodies = item.bodies[item.done : item.done + 1 if item.retry_s else None]
        following = self._following(item, now)  # now: nothing may fail when they have been sent
        if not bodies:
            return self._settle(item, 0, following)  # the rest was cancelled, or is another item's
        run = FrameRun(item.head, bodies, [])
        if (making_room := self.sender.making_room(item.quota, run, now)) is not None:
            deque(islice(making_room, DROPPED_AT_ONCE), maxlen=0)
            return 0.0
        item.timer = 0  # it cannot be ended any more
        storage = self.storage if item.ids else None
        # One record, so that it is sent exactly once across a restart.
        with nullcontext() if storage is None else storage.log.atomically():
            return self._settle(item, self.sender.send(item, run, now), following)

    def _settle(self, item: Scheduled, done: int, following: int | None) -> float:
        """Note that ``done`` more messages were sent. Return the seconds until the next attempt.

        If a whole run finds no room, its first message is tried alone: there may be room for it.
        """
        item.timer, item.done, wait_s = IN_LINE, item.done + done, item.retry_s
        is_whole = item.done == len(item.bodies)
        if not is_whole and not done:
            item.retry_s = min(2 * wait_s, RETRY_S) or FIRST_RETRY_S
            return wait_s
        item.retry_s = 0.0
        if is_whole:
            item.sent, item.done = item.sent + 1, 0
            self._note(item, following)
            if following is None:
                self.drop(item)
            else:
                self._lines[self.names(item)].popleft()
                item.due_ms, item.due_s = following, self.wall.clock_s(following)
                self._arm(item)
        elif following is None:
            self._end_some(item, 0, item.done)
        else:
            self._note(item, self.due_ms(item))
        return 0.0

    def _following(self, item: Scheduled, now: float) -> int | None:
        """Return when messages are sent again after this time, in ms since 1970; None = never."""
        due_s = item.due_s
        if item.is_by_day:
            # Setting the wall clock is no passage of time: no repetition was missed by it.
            due_s = min(now, max(due_s, self.wall.clock_s(item.due_ms)))
        return item.schedule.next_due(self.wall.ms(due_s), item.sent + 1)

    def _may_send(self, item: Scheduled) -> bool:
        try:
            plan = self._plan(item)
        except ProtocolError:
            return True  # the attempt to send it fails, and counts it as lost
        return self.authorizer.lets_send(item.owner, plan, len(item.bodies))

    def _plan(self, item: Scheduled) -> SendPlan:
        plan = item.head.plan
        if not isinstance(plan, SendPlan):
            plan = item.head.plan = make_plan(item.head, self.dialect)
        return plan

    def _end(self, item: Scheduled) -> None:
        """Remove messages, also from the store, without sending them."""
        if self.storage is not None and item.ids:
            with self.storage.log.atomically():
                self._finish(self.storage, item, item.sent or item.done)
        self.drop(item)

    def _note(self, item: Scheduled, following: int | None) -> None:
        """Write to the store how far an item has come."""
        if self.storage is None or not item.ids:
            return
        if following is None:
            self._finish(self.storage, item, item.sent - 1)
        else:
            self._write(self.storage.log, item, item.ids, item.done, following)

    def _write(
        self, log: Log, item: Scheduled, ids: Sequence[int], done: int, following: int
    ) -> None:
        progress = {"due_ms": following, "sent": item.sent, "last": ids[-1]}
        if self.wall.set_ms:
            progress["set_ms"] = self.wall.set_ms
        if done:
            progress["until"] = ids[done - 1]
        log.keep(f"{SCHEDULED}{ids[0]}", json.dumps(progress))

    def _finish(self, storage: Storage, item: Scheduled, noted: int) -> None:
        """Remove messages from the store, and their progress if any was ``noted``."""
        storage.log.finish_all(list(item.ids))
        if noted:
            storage.log.forget(f"{SCHEDULED}{item.ids[0]}")
