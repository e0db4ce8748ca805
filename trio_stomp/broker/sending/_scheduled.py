"""Scheduled messages, by number, and the port that sends them when they are due."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from attrs import define, field
from sortedcontainers import SortedDict

from trio_stomp.base import Identity, ProtocolError, Quota, value
from trio_stomp.broker.delivery import Work
from trio_stomp.broker.headers import Schedule
from trio_stomp.frames import DEDUP_HEADERS, FrameRun, Head

_SPENT = ("AMQ_SCHEDULED", *DEDUP_HEADERS)
"""Prefixes of headers that are removed before a scheduled message is sent."""
IN_LINE = -1
"""Stands for the timer of what is due and waits for its turn, or for room."""
SCHEDULED = "scheduled:"
"""Their place in the store, and prefix of their settings."""


@define(eq=False, repr=False)
class Scheduled:
    """The scheduled messages of one SEND.

    Args:
      head: The header block with which they are sent.
      bodies: Their bodies.
      schedule: When to send them.
      cost: Bytes charged for them.
      due_ms: When they are sent next, in ms since 1970, by the wall clock as it was set when this
        was computed. Decides if ``is_by_day``.
      due_s: The next time in seconds of the broker's clock, which decides unless ``is_by_day``.
      ids: Their ids in the store; () = in memory only.
      sent: How often they have been sent.
      owner: The sender; None = unknown.
      first: The number that the first message had on arrival.
      numbers: The number of each message; its id if it is stored.
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
    """The quota charged for them, and for the messages sent."""
    timer: int = 0
    """The number of their timer; 0 = they are not stored yet, or are being sent;
    ``IN_LINE`` = they are due."""
    done: int = 0
    """How many of them have been sent once more than ``sent`` says: the others wait for room."""
    retry_s: float = 0.0
    """Seconds until the next attempt if this one finds no room; 0 = at once, with one of them."""

    @property
    def destination(self) -> str:
        """Return the destination header as the sender wrote it."""
        return self.head.destination or ""

    @property
    def is_by_day(self) -> bool:
        """Return whether they are due at a time of day."""
        return self.schedule.is_by_day(self.sent)


@define(eq=False, repr=False)
class Jobs:
    """All scheduled messages, in order of their numbers, which is the order of their SENDs."""

    _items: "SortedDict[int, Scheduled]" = field(factory=SortedDict)
    """By the number of the first message."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Scheduled) -> None:
        """Add an item."""
        self._items[item.first] = item

    def discard(self, item: Scheduled) -> None:
        """Remove an item."""
        del self._items[item.first]

    def beginning_at(self, number: int) -> Iterator[Scheduled]:
        """Yield the items from ``number`` on. Items may be added and removed meanwhile."""
        index = max(0, self._items.bisect_right(number) - 1)
        while index < len(self._items):
            first, item = self._items.peekitem(index)
            yield item
            index = self._items.bisect_right(first)


class SendsDue(Protocol):
    """Sends scheduled messages when they are due: ``DueSender``, as the scheduler sees it."""

    lost: int

    def send(self, item: Scheduled, run: FrameRun, now: float) -> int:
        """Send messages as far as there is room. Return how many need no other attempt."""

    def refused(self, item: Scheduled, run: FrameRun, error: ProtocolError, now: float) -> int:
        """Return how many messages of a refused run need no other attempt."""

    def making_room(self, quota: Quota | None, run: FrameRun, now: float) -> Work | None:
        """Return the work that makes room for messages, or None if few must leave for them."""


@value
class Progress:
    """The progress of one SEND's messages that are sent repeatedly, kept as a setting.

    Args:
      first: The id of the first message.
      due_ms: When they are sent next, in ms since 1970.
      sent: How often they have been sent.
      last: The id of the last message.
      set_ms: By how much the wall clock had been set in total when this was written.
      until: The id of the last one that has been sent once more; 0 = none.
    """

    first: int
    due_ms: int
    sent: int
    last: int
    set_ms: int = 0
    until: int = 0


def read_progress(settings: Mapping[str, str]) -> list[Progress]:
    """Return the progress stored in settings, in order of ids. Skip unreadable settings."""
    found: list[Progress] = []
    for key, text in settings.items():
        if key.startswith(SCHEDULED):
            with suppress(ValueError, TypeError):
                found.append(Progress(int(key.removeprefix(SCHEDULED)), **json.loads(text)))
    return sorted(found, key=lambda each: each.first)


def unscheduled(head: Head) -> Head:
    """Return a header block as it is sent when it is due."""
    headers = tuple(pair for pair in head.headers if not pair[0].startswith(_SPENT))
    return Head(head.command, headers, head.content_length, head.destination)
