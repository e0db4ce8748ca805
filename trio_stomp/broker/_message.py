"""A message that waits for one consumer, and the store in which messages wait."""

import heapq
from collections import deque

from attrs import define, field

from trio_stomp.broker._delivery import NEVER, Publication

MESSAGE_OVERHEAD_BYTES = 256
"""What a waiting message costs beside its body, rounded up; charged to the memory budget."""

LEVELS = 10


@define(eq=False)
class Message:
    """One message of a queue, from its SEND to its ACK.

    Args:
      number: Place in the order of acceptance over all destinations.
      publication: Where it came from; its ``bodies`` are empty, so that one slow message does not
        keep the bodies of its whole run.
      body: The bytes.
      level: Priority, 0 to 9.
      deliveries: How often it has been handed to a consumer.
    """

    number: int
    publication: Publication
    body: bytes
    level: int
    deliveries: int = 0

    @property
    def group(self) -> str:
        """The message group that its sender put it into, or ""."""
        options = self.publication.options
        return options.group if options is not None else ""

    @property
    def cost(self) -> int:
        """Bytes that it is charged for."""
        return len(self.body) + MESSAGE_OVERHEAD_BYTES


@define(eq=False)
class _Level:
    returned: list[tuple[int, Message]] = field(factory=list)
    fresh: deque[Message] = field(factory=deque)


@define(eq=False)
class Waiting:
    """Messages in order: by priority, then by acceptance.

    What was handed out and came back was accepted before whatever is still fresh, so a heap for
    the returned and a deque for the fresh keep the order at the cost of a deque.
    """

    count: int = 0
    _levels: list[_Level | None] = field(factory=lambda: [None] * LEVELS)
    _occupied: int = 0
    """Bit n is set if level n may hold messages."""

    def append(self, message: Message) -> None:
        """Put a message behind all of its level."""
        self._level(message.level).fresh.append(message)
        self.count += 1

    def extend(self, level: int, messages: list[Message]) -> None:
        """Put fresh messages of one level behind all of it."""
        self._level(level).fresh.extend(messages)
        self.count += len(messages)

    def give_back(self, message: Message) -> None:
        """Put a message where it stood before it was taken."""
        heapq.heappush(self._level(message.level).returned, (message.number, message))
        self.count += 1

    def pop(self) -> Message | None:
        """Take the message that is due first."""
        while self._occupied:
            place = self._occupied.bit_length() - 1
            level = self._levels[place]
            if level is not None:  # pragma: no branch (a level that is occupied is there)
                if level.returned:
                    self.count -= 1
                    return heapq.heappop(level.returned)[1]
                if level.fresh:
                    self.count -= 1
                    return level.fresh.popleft()
            self._occupied &= ~(1 << place)
        return None

    def take_expired(self, now: float) -> list[Message]:
        """Take out what stands first on its level and has expired."""
        found: list[Message] = []
        for level in self._levels:
            if level is None:
                continue
            while level.returned and level.returned[0][1].publication.expires_at <= now:
                found.append(heapq.heappop(level.returned)[1])
            while level.fresh and level.fresh[0].publication.expires_at <= now:
                found.append(level.fresh.popleft())
        self.count -= len(found)
        return found

    @property
    def next_expiry(self) -> float:
        """When what stands first on some level expires; NEVER if none of it does."""
        earliest = NEVER
        for level in self._levels:
            if level is not None and level.returned:
                earliest = min(earliest, level.returned[0][1].publication.expires_at)
            if level is not None and level.fresh:
                earliest = min(earliest, level.fresh[0].publication.expires_at)
        return earliest

    def in_order(self) -> list[Message]:
        """All messages, first the one that is due first; nothing is taken."""
        found: list[Message] = []
        for level in reversed(self._levels):
            if level is not None:
                found += [message for _, message in sorted(level.returned)]
                found += level.fresh
        return found

    def _level(self, place: int) -> _Level:
        self._occupied |= 1 << place
        level = self._levels[place]
        if level is None:
            level = self._levels[place] = _Level()
        return level
