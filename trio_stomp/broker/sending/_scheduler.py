"""Scheduled messages: sent later, once or repeatedly."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import Identity, MemoryBudget, ProtocolError, Quota, value
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    NEVER,
    BrokerPolicies,
    Client,
    Destination,
    NotYet,
    Publication,
    Timers,
    Turns,
    WallTime,
    Work,
)
from trio_stomp.broker.headers import (
    DEDUP_HEADERS,
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
from trio_stomp.broker.sending._scheduled import Jobs, Scheduled, SendsDue
from trio_stomp.frames import FrameRun, Head

if TYPE_CHECKING:
    from trio_stomp.store import Stored

SCHEDULED = "scheduled:"
"""Their place in the store, and prefix of their settings."""
SLIP_MS = 60_000
"""After the wall clock is set back, no CRON schedule fires for this time, its minimum step."""
DROPPED_AT_ONCE = 256
"""Maximum number of messages dropped for a scheduled one before other timers run."""
_SPENT = ("AMQ_SCHEDULED", *DEDUP_HEADERS)
"""Prefixes of headers that are removed before a scheduled message is sent."""


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
    lost: int = field(default=0)
    """Messages that were not accepted when they were due."""
    jobs: Jobs = field(factory=Jobs)
    turns: Turns = field(factory=Turns)
    _made: int = 0
    """The last number given to a message, without a store."""
    _ended: tuple[Client, int] | None = None
    """The result of a finished ``_ending``, for its client."""
    _by_cron: dict[Scheduled, None] = field(factory=dict)
    """Messages that are due when their CRON schedule fires next."""

    def keep(
        self,
        client: Client | None,
        quota: Quota | None,
        destination: Destination,
        head: Head,
        schedule: Schedule,
        *,
        bodies: list[bytes],
        now: float,
        survives: bool,
    ) -> int:
        """Schedule messages, and return the number of the last one.

        Args:
          client: The sender; None = the broker.
          quota: The quota charged for them.
          destination: The destination.
          head: The header block.
          schedule: When to send them.
          bodies: The bodies of the messages.
          now: The time, in seconds of the broker's clock.
          survives: Whether they must be stored.

        Raises:
          ProtocolError: there is no memory for them, the user has too many, or the time is too far
            away.
        """
        due_ms = schedule.first_due(self.wall.ms(now))
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        self.check_count(quota, destination.name, len(bodies))
        if not self.memory.take_kept(cost, quota):
            raise self.overflow.no_memory(destination.name, cost, quota)
        if quota is not None:
            quota.scheduled += len(bodies)
        due_s = self.wall.clock_s(due_ms)
        item = Scheduled(
            _unscheduled(head),
            bodies=bodies,
            schedule=schedule,
            cost=cost,
            due_ms=due_ms,
            due_s=due_s,
        )
        item.owner = client.identity if client is not None else None
        item.quota = quota
        self.waiting += len(bodies)
        if survives and self.storage is not None:
            origin = Publication(
                destination, head=head, bodies=[], received_at=now, expires_at=NEVER, sender=client
            )
            first = self.storage.put_aside(SCHEDULED, origin, bodies, item.owner)
            item.ids = range(first, first + len(bodies))
            self._enter(item, item.ids)
            self.storage.log.when_safe(_TimerEffect(self, item, client))
        else:
            self._enter(item, self._numbers(len(bodies)))
            self._arm(item)
        return item.numbers[-1]

    def restore(
        self, run: "Stored", head: Head, progress: "Progress | None", owner: Identity | None
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
        sent_head = _unscheduled(head)
        item = Scheduled(
            sent_head,
            bodies=run.bodies,
            schedule=schedule,
            cost=cost,
            due_ms=stored_due_ms,
            due_s=due_s,
            ids=run.ids,
        )
        item.sent = progress.sent if progress else 0
        item.owner = owner
        self._enter(item, run.ids)
        item.quota = self.authorizer.quotas.left_by(owner)
        self.memory.force_kept(cost, item.quota)
        if item.quota is not None:
            item.quota.scheduled += len(run.bodies)
        self._arm(item)
        if item in self._by_cron:
            self.timers.call_at(0.0, partial(self._fit, item))

    def end(self, client: Client, removal: Removal) -> SendOutcome:
        """Cancel the messages that a client names and may cancel. Return the number as outcome.

        Raises:
          NotYet: there are many. They are cancelled in pieces.
        """
        if self._ended is None or self._ended[0] is not client:
            work = self._ending(client, removal)
            if not self.turns.finishes(work):
                raise NotYet(work)
        assert self._ended is not None
        (_, count), self._ended = self._ended, None
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

    def drop(self, item: Scheduled) -> None:
        """Remove a scheduled message without sending it."""
        self.jobs.discard(item)
        self.waiting -= len(item.bodies)
        self.memory.give_kept(item.cost, item.quota)
        if item.quota is not None:
            item.quota.scheduled -= len(item.bodies)

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

    def _numbers(self, count: int) -> range:
        """Return new numbers for messages that are not stored."""
        if self.storage is not None:
            first = self.storage.log.take_numbers(count)
        else:
            first, self._made = self._made + 1, self._made + count
        return range(first, first + count)

    def _enter(self, item: Scheduled, numbers: Sequence[int]) -> None:
        item.first, item.numbers = numbers[0], numbers
        self.jobs.add(item)

    def _ending(self, client: Client, removal: Removal) -> Work:
        count = 0

        def may_end(item: Scheduled) -> bool:
            return self.authorizer.may_end(client, item.owner, self.names(item))

        for done in self.cancelling(removal, may_end):
            count = done
            yield
        self._ended = client, count

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
                    self.timers.cancel(item.timer)
                    self._by_cron.pop(item, None)
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
        gone, bodies = item.numbers[begin:end], item.bodies[begin:end]
        freed = sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)
        item.cost -= freed
        self.memory.give_kept(freed, item.quota)
        if item.quota is not None:
            item.quota.scheduled -= len(bodies)
        self.waiting -= len(bodies)
        item.bodies = item.bodies[:begin] + item.bodies[end:]
        item.numbers = [*item.numbers[:begin], *item.numbers[end:]]
        if self.storage is None or not item.ids:
            return
        log, key = self.storage.log, f"{SCHEDULED}{item.ids[0]}"
        item.ids = item.numbers
        with log.atomically():
            log.finish_all(list(gone))
            if item.sent:  # its setting is named after the first message, which may have changed
                log.forget(key)
                self._note(self.storage, item, self.due_ms(item))

    def _arm(self, item: Scheduled) -> None:
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
        due_s = item.due_s
        if item.is_by_day:
            # Setting the wall clock is no passage of time: no repetition was missed by it.
            due_s = min(now, max(due_s, self.wall.clock_s(item.due_ms)))
            self._by_cron.pop(item, None)
        if not self._may_send(item):
            self._end(item)
            return
        run = FrameRun(item.head, list(item.bodies), [])
        if (work := self.sender.making_room(item.quota, run, now)) is not None:
            for _ in islice(work, DROPPED_AT_ONCE):
                pass
            self.timers.call_again()
            return
        item.sent += 1
        following = item.schedule.next_due(self.wall.ms(due_s), item.sent)
        if self.storage is None or not item.ids:
            self._send(item, run, now)
        elif self.sender.is_long(item.quota, run):
            item.timer = 0  # it cannot be ended any more
            self.turns.start(self._sending(self.storage, item, run, following, now), now)
            return
        else:
            # One record, so that it is sent exactly once across a restart.
            with self.storage.log.atomically():
                self._send(item, run, now)
                self._note(self.storage, item, following)
        self._go_on(item, following)

    def _sending(
        self, storage: Storage, item: Scheduled, run: FrameRun, following: int | None, now: float
    ) -> Work:
        """Send an item in pieces, and write its progress to the same record."""
        note = partial(self._note, storage, item, following)
        try:
            yield from self.sender.sending(item.owner, item.quota, run, now, note=note)
        except ProtocolError:
            self.lost += len(item.bodies)
            with storage.log.atomically():
                note()
        self._go_on(item, following)

    def _go_on(self, item: Scheduled, following: int | None) -> None:
        """Set the timer for the next time, or drop the item after the last one."""
        if following is None:
            self.drop(item)
            return
        item.due_ms, item.due_s = following, self.wall.clock_s(following)
        self._arm(item)

    def _may_send(self, item: Scheduled) -> bool:
        """Return whether the owner may still send the messages."""
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

    def _send(self, item: Scheduled, run: FrameRun, now: float) -> None:
        owner, quota, survives = item.owner, item.quota, bool(item.ids)
        taken = self.overflow.send_quietly(
            lambda: self.sender.send(owner, quota, run, now, survives=survives)
        )
        self.lost += len(item.bodies) - taken

    def _end(self, item: Scheduled) -> None:
        """Remove messages, also from the store, without sending them."""
        if self.storage is not None and item.ids:
            with self.storage.log.atomically():
                self._finish(self.storage, item, item.sent)
        self.drop(item)

    def _note(self, storage: Storage, item: Scheduled, following: int | None) -> None:
        key = f"{SCHEDULED}{item.ids[0]}"
        if following is not None:
            progress = {"due_ms": following, "sent": item.sent, "last": item.ids[-1]}
            if self.wall.set_ms:
                progress["set_ms"] = self.wall.set_ms
            storage.log.keep(key, json.dumps(progress))
            return
        self._finish(storage, item, item.sent - 1)

    def _finish(self, storage: Storage, item: Scheduled, noted: int) -> None:
        """Remove messages from the store, and their progress if any was ``noted``."""
        for id in item.ids:
            storage.log.finish(id)
        if noted:
            storage.log.forget(f"{SCHEDULED}{item.ids[0]}")


@define(eq=False, repr=False)
class _TimerEffect:
    """An effect that starts a schedule's timer once it is stored."""

    scheduler: Scheduler
    item: Scheduled
    client: Client | None

    def commit(self, _now: float) -> None:
        """Implement ``Effect.commit``."""
        self.scheduler._arm(self.item)

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.scheduler.drop(self.item)


@value
class Progress:
    """The progress of one SEND's messages that are sent repeatedly, kept as a setting.

    Args:
      first: The id of the first message.
      due_ms: When they are sent next, in ms since 1970.
      sent: How often they have been sent.
      last: The id of the last message.
      set_ms: By how much the wall clock had been set in total when this was written.
    """

    first: int
    due_ms: int
    sent: int
    last: int
    set_ms: int = 0


def read_progress(settings: "Mapping[str, str]") -> list[Progress]:
    """Return the progress stored in settings, in order of ids. Skip unreadable settings."""
    found: list[Progress] = []
    for key, text in settings.items():
        if key.startswith(SCHEDULED):
            with suppress(ValueError, TypeError):
                found.append(Progress(int(key.removeprefix(SCHEDULED)), **json.loads(text)))
    return sorted(found, key=lambda each: each.first)


def _unscheduled(head: Head) -> Head:
    headers = tuple(pair for pair in head.headers if not pair[0].startswith(_SPENT))
    return Head(head.command, headers, head.content_length, head.destination)
