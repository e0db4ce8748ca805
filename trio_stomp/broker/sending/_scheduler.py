"""Messages that are sent later, once or again and again."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
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
from trio_stomp.broker.sending._jobs import Jobs
from trio_stomp.frames import FrameRun, Head

if TYPE_CHECKING:
    from trio_stomp.store import Stored

SCHEDULED = "scheduled:"
"""Where the store keeps them."""
SLIP_MS = 60_000
"""A wall clock that is set back has no CRON fire again within so many ms: the least step of one."""
_SPENT = ("AMQ_SCHEDULED", *DEDUP_HEADERS)
"""How headers begin that have done their part before a scheduled message is sent."""


@define(eq=False, repr=False)
class Scheduled:
    """Messages of one SEND that wait for their time.

    Args:
      head: Of the messages as they are sent.
      cost: Bytes that they are charged for.
      due_ms: When they are sent next, in ms since 1970; by the clock of now if that is a time of
        day, else by that of when it was worked out, which ``due_s`` tells without.
      due_s: The same by the broker's clock; it counts if it is no time of day.
      ids: What the store calls them; () = they are in memory alone.
      sent: How often they have been sent.
      owner: Who sent them; None = nobody is known.
      first: The number of the first, when they came.
      numbers: Of each; its id, if the store has it.
    """

    head: Head
    bodies: list[bytes]
    schedule: Schedule
    cost: int
    due_ms: int
    due_s: float
    ids: Sequence[int] = ()
    sent: int = 0
    owner: Identity | None = None
    first: int = 0
    numbers: Sequence[int] = ()
    quota: Quota | None = None
    """Who is charged for it, and for what it sends."""
    timer: int = 0
    """The number of the call that sends them; 0 = the store does not have them yet."""

    @property
    def destination(self) -> str:
        """Return the destination that they go to, as their sender spelt it."""
        return self.head.destination or ""

    @property
    def is_by_day(self) -> bool:
        """Return whether they are due at a time of day."""
        return self.schedule.is_by_day(self.sent)


@define(eq=False, repr=False)
class Scheduler:
    """Keeps messages until their time. Each repeats by itself.

    Args:
      send: Sends a run for who scheduled it, whoever is charged, and whether it must survive; how
        many of its messages were taken.
    """

    memory: MemoryBudget
    timers: Timers
    overflow: Overflow
    send: Callable[[Identity | None, Quota | None, FrameRun, float, bool], int]
    authorizer: Authorizer
    dialect: Dialect
    policies: BrokerPolicies
    wall: WallTime
    storage: Storage | None = None
    waiting: int = 0
    """Messages that wait for their time."""
    lost: int = field(default=0)
    """Messages that found no room when it came."""
    jobs: Jobs = field(factory=Jobs)
    turns: Turns = field(factory=Turns)
    _made: int = 0
    """Numbers given to messages, where no store gives them."""
    _ended: tuple[Client, int] | None = None
    """Who had messages ended in this turn, and how many: he is to be told."""
    _by_cron: dict[Scheduled, None] = field(factory=dict)
    """Those that are due when their CRON fires next."""

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
        """Keep messages until their time, and return the number of the last.

        Args:
          client: The sender; None = the broker.
          quota: Who is charged for them.
          destination: The destination.
          head: The header block.
          schedule: When to send them.
          bodies: The bodies of the messages.
          now: The time, in seconds of the broker's clock.
          survives: Whether they must be stored.

        Raises:
          ProtocolError: there is no memory for them, or the time is too far away.
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
            self.storage.log.when_safe(_Arming(self, item, client))
        else:
            self._enter(item, self._numbers(len(bodies)))
            self._arm(item)
        return item.numbers[-1]

    def restore(
        self, run: "Stored", head: Head, progress: "Progress | None", owner: Identity | None
    ) -> None:
        """Go on with what the store kept."""
        schedule = parse_schedule(head)
        if schedule is None:
            return
        if progress is None:
            told_ms = schedule.first_due(run.received_ms)
            due_s = self.wall.stored_s(told_ms, run.ids[0])
        else:
            told_ms = progress.due_ms
            due_s = self.wall.clock_s(told_ms + self.wall.set_ms - progress.set_ms)
        cost = cost_alone(head, len(run.bodies), sum(map(len, run.bodies)))
        self.waiting += len(run.bodies)
        kept = _unscheduled(head)
        item = Scheduled(
            kept,
            bodies=run.bodies,
            schedule=schedule,
            cost=cost,
            due_ms=told_ms,
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

    def end(self, client: Client, asked: Removal) -> SendOutcome:
        """End what a client asks for and may end, and return how many there were.

        Raises:
          NotYet: it is so much that there is no time for it now.
        """
        if self._ended is None or self._ended[0] is not client:
            work = self._ending(client, asked)
            if not self.turns.finishes(work):
                raise NotYet(work)
        assert self._ended is not None
        (_, count), self._ended = self._ended, None
        if self.storage is not None and count:
            # It does not come back, whatever becomes of the broker, once he has been told.
            client.awaited = client.acked = self.storage.log.turn
        return SendOutcome(removed=count)

    def due_ms(self, item: Scheduled) -> int:
        """Return when it is sent next, by the wall clock as it stands."""
        return item.due_ms if item.is_by_day else self.wall.ms(item.due_s)

    def judge_anew(self, now: float) -> None:
        """Re-evaluate CRON schedules after the wall clock was set, some of them each turn."""
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
        """Refuse more than one user may schedule: each is work when it is due.

        Raises:
          ProtocolError: they are too many.
        """
        limit = self.policies.max_schedules_per_user
        if quota is not None and quota.scheduled + count > limit:
            raise beyond_quota(
                "too-many-schedules",
                f"{quota.owner[:60]} has {quota.scheduled} messages that wait for their time, and"
                f" {limit} is the limit for one user (option max_schedules_per_user); send to"
                f" {name[:80]} when some of them have been sent",
            )

    def _numbers(self, count: int) -> range:
        """Numbers of messages that are in memory alone."""
        if self.storage is not None:
            first = self.storage.log.take_numbers(count)
        else:
            first, self._made = self._made + 1, self._made + count
        return range(first, first + count)

    def _enter(self, item: Scheduled, numbers: Sequence[int]) -> None:
        item.first, item.numbers = numbers[0], numbers
        self.jobs.add(item)

    def _ending(self, client: Client, asked: Removal) -> Work:
        count = 0
        for item in self.jobs.beginning_at(asked.first):
            if item.first > asked.last:
                break
            numbers, when = item.numbers, self.due_ms(item)
            begin, end = bisect_left(numbers, asked.first), bisect_right(numbers, asked.last)
            is_meant = begin < end and item.timer and asked.begin_ms <= when <= asked.end_ms
            if is_meant and self.authorizer.may_end(client, item.owner, self._names(item)):
                count += end - begin
                if end - begin == len(numbers):
                    self.timers.cancel(item.timer)
                    self._by_cron.pop(item, None)
                    self._end(item)
                else:
                    self._end_some(item, begin, end)
            yield
        self._ended = client, count

    def _names(self, item: Scheduled) -> tuple[str, ...]:
        try:
            return self._plan(item).names
        except ProtocolError:
            return (item.destination,)

    def _end_some(self, item: Scheduled, begin: int, end: int) -> None:
        """Of several, those at some places are sent no more."""
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
        log, known = self.storage.log, f"{SCHEDULED}{item.ids[0]}"
        item.ids = item.numbers
        with log.together():
            log.finish_all(list(gone))
            if item.sent:  # it is known by its first message, which may be another now
                log.forget(known)
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
        """If the wall clock was set back, a CRON may fire earlier than was thought."""
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
            # By what the wall clock was set no time has passed, and nothing was missed.
            due_s = min(now, max(due_s, self.wall.clock_s(item.due_ms)))
            self._by_cron.pop(item, None)
        if not self._may_send(item):
            self._end(item)
            return
        item.sent += 1
        following = item.schedule.next_due(self.wall.ms(due_s), item.sent)
        if self.storage is None or not item.ids:
            self._send(item, now)
        else:
            # One record: neither is it sent twice, nor forgotten before it is.
            with self.storage.log.together():
                self._send(item, now)
                self._note(self.storage, item, following)
        if following is None:
            self.drop(item)
            return
        item.due_ms, item.due_s = following, self.wall.clock_s(following)
        self._arm(item)

    def _may_send(self, item: Scheduled) -> bool:
        """Return whether the owner may send it today."""
        try:
            plan = self._plan(item)
        except ProtocolError:
            return True  # it cannot be sent at all, and is lost as that
        return self.authorizer.lets_send(item.owner, plan, len(item.bodies))

    def _plan(self, item: Scheduled) -> SendPlan:
        plan = item.head.plan
        if not isinstance(plan, SendPlan):
            plan = item.head.plan = make_plan(item.head, self.dialect)
        return plan

    def _send(self, item: Scheduled, now: float) -> None:
        run = FrameRun(item.head, list(item.bodies), [])
        owner, quota, survives = item.owner, item.quota, bool(item.ids)
        taken = self.overflow.send_quietly(lambda: self.send(owner, quota, run, now, survives))
        self.lost += len(item.bodies) - taken

    def _end(self, item: Scheduled) -> None:
        """Remove a scheduled message without sending it, though it is due."""
        if self.storage is not None and item.ids:
            with self.storage.log.together():
                self._finish(self.storage, item, item.sent)
        self.drop(item)

    def _note(self, storage: Storage, item: Scheduled, following: int | None) -> None:
        key = f"{SCHEDULED}{item.ids[0]}"
        if following is not None:
            told = {"due_ms": following, "sent": item.sent, "last": item.ids[-1]}
            if self.wall.set_ms:
                told["set_ms"] = self.wall.set_ms
            storage.log.keep(key, json.dumps(told))
            return
        self._finish(storage, item, item.sent - 1)

    def _finish(self, storage: Storage, item: Scheduled, noted: int) -> None:
        """Have the store forget it, and how far it has come if that was ``noted``."""
        for id in item.ids:
            storage.log.finish(id)
        if noted:
            storage.log.forget(f"{SCHEDULED}{item.ids[0]}")


@define(eq=False, repr=False)
class _Arming:
    """A schedule that begins as soon as the store has it."""

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
      first: Id of the first of them.
      last: Of the last one.
      set_ms: By how much the wall clock had been set when this was told, all in all.
    """

    first: int
    due_ms: int
    sent: int
    last: int
    set_ms: int = 0


def read_progress(settings: "Mapping[str, str]") -> list[Progress]:
    """Return the progress that settings tell, in the order of ids, without what is unreadable."""
    found: list[Progress] = []
    for key, text in settings.items():
        if key.startswith(SCHEDULED):
            with suppress(ValueError, TypeError):
                found.append(Progress(int(key.removeprefix(SCHEDULED)), **json.loads(text)))
    return sorted(found, key=lambda each: each.first)


def _unscheduled(head: Head) -> Head:
    kept = tuple(pair for pair in head.headers if not pair[0].startswith(_SPENT))
    return Head(head.command, kept, head.content_length, head.destination)
