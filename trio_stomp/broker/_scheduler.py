"""Messages that are sent later, once or again and again."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp._memory import MemoryBudget
from trio_stomp._value import value
from trio_stomp.broker._delivery import NEVER, Publication
from trio_stomp.broker._message import cost_alone
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._route import Route
from trio_stomp.broker._schedule import Schedule, parse_schedule
from trio_stomp.broker._send_options import DEDUP_HEADERS
from trio_stomp.broker._storage import Storage
from trio_stomp.broker._subscription import Client
from trio_stomp.broker._timers import Timers
from trio_stomp.broker._wall_time import clock_s, wall_ms
from trio_stomp.frames import FrameRun, Head

if TYPE_CHECKING:
    from trio_stomp.store import Stored

PLACE = "scheduled:"
"""Where the store keeps them."""
_SPENT = ("AMQ_SCHEDULED", *DEDUP_HEADERS)
"""How headers begin that have done their part before a scheduled message is sent."""


@define(eq=False, repr=False)
class Scheduled:
    """Messages of one SEND that wait for their time.

    Args:
      head: Of the messages as they are sent.
      cost: Bytes that they are charged for.
      due_ms: When they are sent next, in ms since 1970.
      ids: What the store calls them; () = they are in memory alone.
      sent: How often they have been sent.
    """

    head: Head
    bodies: list[bytes]
    schedule: Schedule
    cost: int
    due_ms: int
    ids: Sequence[int] = ()
    sent: int = 0


@define(eq=False, repr=False)
class Scheduler:
    """Keeps messages until their time; each repeats by itself.

    Args:
      send: Sends a run that has no sender, and whether it must survive; how many of its messages
        were taken.
      wall_offset_s: Wall time less the broker's clock, in seconds.
    """

    memory: MemoryBudget
    timers: Timers
    overflow: Overflow
    send: Callable[[FrameRun, float, bool], int]
    wall_offset_s: float
    storage: Storage | None = None
    waiting: int = 0
    """Messages that wait for their time."""
    lost: int = field(default=0)
    """Messages that found no room when it came."""

    def keep(
        self,
        client: Client | None,
        route: Route,
        head: Head,
        schedule: Schedule,
        bodies: list[bytes],
        now: float,
        *,
        survives: bool,
    ) -> None:
        """Keep messages until their time.

        Raises:
          ProtocolError: there is no memory for them, or the time is too far away.
        """
        due_ms = schedule.first_due(wall_ms(now, self.wall_offset_s))
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        if not self.memory.take_kept(cost):
            raise self.overflow.no_memory(route.name)
        item = Scheduled(_unscheduled(head), bodies, schedule, cost, due_ms)
        self.waiting += len(bodies)
        if survives and self.storage is not None:
            origin = Publication(route, head, [], now, NEVER, client)
            first = self.storage.put_aside(PLACE, origin, bodies)
            item.ids = range(first, first + len(bodies))
            self.storage.log.when_safe(_Arming(self, item, client))
        else:
            self._arm(item)

    def restore(self, run: "Stored", head: Head, progress: "Progress | None") -> None:
        """Go on with what the store kept."""
        schedule = parse_schedule(head)
        if schedule is None:
            return
        due_ms = progress.due_ms if progress else schedule.first_due(run.received_ms)
        cost = cost_alone(head, len(run.bodies), sum(map(len, run.bodies)))
        self.memory.force_kept(cost)
        self.waiting += len(run.bodies)
        item = Scheduled(_unscheduled(head), run.bodies, schedule, cost, due_ms, run.ids)
        item.sent = progress.sent if progress else 0
        self._arm(item)

    def drop(self, item: Scheduled) -> None:
        """It is sent no more."""
        self.waiting -= len(item.bodies)
        self.memory.give_kept(item.cost)

    def _arm(self, item: Scheduled) -> None:
        due_s = clock_s(item.due_ms, self.wall_offset_s)
        self.timers.call_at(due_s, lambda now: self._due(item, now))

    def _due(self, item: Scheduled, now: float) -> None:
        item.sent += 1
        following = item.schedule.next_due(item.due_ms, item.sent)
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
        item.due_ms = following
        self._arm(item)

    def _send(self, item: Scheduled, now: float) -> None:
        run = FrameRun(item.head, list(item.bodies), [])
        taken = self.overflow.send_quietly(lambda: self.send(run, now, bool(item.ids)))
        self.lost += len(item.bodies) - taken

    def _note(self, storage: Storage, item: Scheduled, following: int | None) -> None:
        key = f"{PLACE}{item.ids[0]}"
        if following is not None:
            told = {"due_ms": following, "sent": item.sent, "last": item.ids[-1]}
            storage.log.keep(key, json.dumps(told))
            return
        for id in item.ids:
            storage.log.finish(id)
        if item.sent > 1:
            storage.log.forget(key)


@define(eq=False, repr=False)
class _Arming:
    """A schedule that begins as soon as the store has it."""

    scheduler: Scheduler
    item: Scheduled
    client: Client | None

    def commit(self, now: float) -> None:
        """As ``Effect``."""
        self.scheduler._arm(self.item)

    def withdraw(self, now: float) -> None:
        """As ``Effect``."""
        self.scheduler.drop(self.item)


@value
class Progress:
    """How far messages of one SEND have come that are sent repeatedly; a setting.

    Args:
      first: Id of the first of them.
      last: Of the last one.
    """

    first: int
    due_ms: int
    sent: int
    last: int


def read_progress(settings: "Mapping[str, str]") -> list[Progress]:
    """What a store's settings tell, in the order of ids; what cannot be read is left out."""
    found: list[Progress] = []
    for key, text in settings.items():
        if key.startswith(PLACE):
            with suppress(ValueError, TypeError):
                found.append(Progress(int(key.removeprefix(PLACE)), **json.loads(text)))
    return sorted(found, key=lambda each: each.first)


def _unscheduled(head: Head) -> Head:
    kept = tuple(pair for pair in head.headers if not pair[0].startswith(_SPENT))
    return Head(head.command, kept, head.content_length, head.destination)
