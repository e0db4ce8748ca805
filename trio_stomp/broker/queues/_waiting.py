"""The waiting messages of a queue in order, in memory and paged out."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from attrs import define, field

from trio_stomp.base import BrokenInvariant, MemoryBudget, Quota
from trio_stomp.broker.delivery import NEVER, Publication
from trio_stomp.broker.headers import PRIORITY_DEFAULT
from trio_stomp.broker.queues._message import Message

LEVELS = 10
PIECE = 512
"""Messages of one list, which is split at twice as many. Moving this many takes less than 1 us."""
_number = attrgetter("number")


@define(eq=False)
class SortedMessages:
    """Messages in the order of their numbers.

    Most enter at the end and leave at the beginning, many at a time. Others return to their place,
    expire or are chosen anywhere. Lists of about ``PIECE`` messages make all of this cheap.
    """

    pieces: list[list[Message]] = field(factory=list)
    """Consecutive sorted lists, none of them empty. Also the test whether there is any message."""

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[Message]:
        for piece in self.pieces:
            yield from piece

    @property
    def first(self) -> Message:
        """Return the message with the lowest number. There must be one."""
        return self.pieces[0][0]

    def extend(self, messages: list[Message]) -> None:
        """Insert one or more messages that are in order."""
        pieces = self.pieces
        if not pieces or pieces[-1][-1].number < messages[0].number:
            if pieces and len(pieces[-1]) < PIECE:
                pieces[-1] += messages
            else:
                pieces.append(messages[:])
        else:
            for message in messages:
                self.put(message)

    def put(self, message: Message) -> None:
        """Insert a message at its place."""
        pieces = self.pieces
        if not pieces:
            pieces.append([message])
            return
        index = self._index_of(message.number)
        piece = pieces[index]
        insort(piece, message, key=_number)
        if len(piece) > 2 * PIECE:
            pieces[index : index + 1] = [piece[:PIECE], piece[PIECE:]]

    def take(self, message: Message) -> None:
        """Remove a message.

        Raises:
          BrokenInvariant: It is not there.
        """
        index = self._index_of(message.number)
        piece = self.pieces[index] if self.pieces else []
        place = bisect_left(piece, message.number, key=_number)
        if place == len(piece) or piece[place] is not message:
            state = f"message {message.number} is not at its place among {len(self)} waiting ones"
            raise BrokenInvariant("queue-order", state, message.publication.destination.name)
        del piece[place]
        if not piece:
            del self.pieces[index]

    def take_first(self, count: int) -> None:
        """Remove the first ``count`` messages. There must be as many."""
        pieces = self.pieces
        while count:
            piece = pieces[0]
            if count < len(piece):
                del piece[:count]
                return
            count -= len(piece)
            del pieces[0]

    def behind(self, number: int, most: int) -> list[Message]:
        """Return up to ``most`` messages after ``number``, in order."""
        found: list[Message] = []
        for index in range(self._index_of(number + 1), len(self.pieces)):
            piece = self.pieces[index]
            start = 0 if found else bisect_right(piece, number, key=_number)
            found += piece[start : start + most - len(found)]
            if len(found) == most:
                break
        return found

    def _index_of(self, number: int) -> int:
        """Return the index of the list for a number: the first that ends at or after it."""
        ends = len(self.pieces) - 1
        return min(bisect_left(self.pieces, number, key=_last), max(ends, 0))


def _last(piece: list[Message]) -> int:
    return piece[-1].number


@define(eq=False)
class Paged:
    """The messages at the end of a level that are in the store only.

    Args:
      after: The id before the first one.
      last: The id of the last one.
      count: Their number.
      size: The bytes of their bodies.
      expires_at: When the first of them expires, or earlier, in seconds of the broker's clock.
      day_s: The same as a time of day, in seconds since 1970.
      charged: Their charge in the store, by quota.
    """

    after: int
    last: int = 0
    count: int = 0
    size: int = 0
    expires_at: float = NEVER
    day_s: float = NEVER
    is_loading: bool = False
    lost: int = 0
    """At most how many of them are damaged, as pages reported."""
    charged: dict[Quota | None, int] = field(factory=dict)

    def is_due(self, now: float, offset_s: float) -> bool:
        """Return whether any of them may have expired.

        Args:
          now: Seconds of the broker's clock.
          offset_s: What to add for seconds since 1970.
        """
        return min(self.expires_at, self.day_s - offset_s) <= now

    def charge(self, quota: Quota | None, cost: int) -> None:
        """Record the charge of some messages."""
        self.charged[quota] = self.charged.get(quota, 0) + cost

    def uncharge(self, memory: MemoryBudget, quota: Quota | None, cost: int) -> None:
        """Transfer the charge of some messages to themselves: they are now in memory.

        The charges found at a start are estimates. A message may cost more than is left of them.
        """
        recorded = self.charged.get(quota, 0)
        self.charged[quota] = max(0, recorded - cost)
        if cost > recorded:
            memory.force_stored(cost - recorded, quota)

    def give_back(self, memory: MemoryBudget) -> None:
        """Release all charges."""
        for quota, cost in self.charged.items():
            memory.give_stored(cost, quota)


@define(eq=False)
class _Level:
    """Messages of one priority: first those in memory, then paged ones."""

    messages: SortedMessages = field(factory=SortedMessages)
    paged: "Paged | None" = None


@define(eq=False)
class Waiting:
    """Waiting messages in order: by priority, then by acceptance."""

    count: int = 0
    """Messages in memory."""
    paged: int = 0
    """Messages in the store only."""
    _levels: list[_Level | None] = field(factory=lambda: [None] * LEVELS)
    _occupied: int = 0
    """Bit n is set if level n may hold messages."""

    def extend(self, level: int, messages: list[Message]) -> None:
        """Insert one or more messages of one level, which are in order.

        Those that had to be stored first, or were left in the store, may arrive after later ones.
        """
        self._level(level).messages.extend(messages)
        self.count += len(messages)

    def take(self, priority: int, message: Message) -> None:
        """Remove a message from any position of level ``priority``.

        Raises:
          BrokenInvariant: It is not there.
        """
        self._level(priority).messages.take(message)
        self.count -= 1

    def give_back(self, message: Message) -> None:
        """Return a message to its position."""
        self._level(message.level).messages.put(message)
        self.count += 1

    def pop(self) -> Message | None:
        """Remove and return the first message, or None if there is none in memory."""
        if not (first := self.next(1)):
            return None
        self.take_next(1)
        return first[0]

    def next(self, most: int) -> list[Message]:
        """Return up to ``most`` messages of one level that come next, in order.

        Returns:
          [] if there are none, or the next ones are in the store only.
        """
        while self._occupied:
            priority = self._occupied.bit_length() - 1
            level = self._levels[priority]
            if level is not None:  # pragma: no branch (an occupied level exists)
                if pieces := level.messages.pieces:
                    is_enough = len(pieces) == 1 or len(pieces[0]) >= most
                    return pieces[0][:most] if is_enough else level.messages.behind(0, most)
                if level.paged is not None:
                    return []  # they come next, when loaded
                if priority != PRIORITY_DEFAULT:
                    self._levels[priority] = None  # ten empty levels take more memory than a queue
            self._occupied &= ~(1 << priority)
        return []

    def take_next(self, count: int) -> None:
        """Remove the first ``count`` messages of what ``next`` returned."""
        self._level(self._occupied.bit_length() - 1).messages.take_first(count)
        self.count -= count

    def foremost(self) -> list[Publication]:
        """Return the publications of the first messages of the levels."""
        return [
            level.messages.first.publication
            for level in self._levels
            if level is not None and level.messages.pieces
        ]

    @property
    def oldest_at(self) -> float | None:
        """Return the time when the oldest message was received.

        Returns:
          NEVER without messages, None if the oldest is in the store only.
        """
        oldest = NEVER
        for level in self._levels:
            if level is None:
                continue
            if level.messages.pieces:
                oldest = min(oldest, level.messages.first.publication.received_at)
            elif level.paged is not None:
                return None
        return oldest

    def in_order(self) -> list[Message]:
        """Return all messages in memory, in order."""
        return [
            message for priority in reversed(range(LEVELS)) for message in self.on_level(priority)
        ]

    def on_level(self, priority: int) -> list[Message]:
        """Return the messages of level ``priority`` in memory, in order."""
        level = self._levels[priority]
        return [] if level is None else list(level.messages)

    def level_beneath(self, priority: int) -> int:
        """Return the highest level below ``priority`` that may hold messages, or -1."""
        return (self._occupied & ((1 << priority) - 1)).bit_length() - 1

    def behind(self, priority: int, number: int, most: int) -> list[Message]:
        """Return up to ``most`` messages in memory after ``number`` of a level, in order."""
        level = self._levels[priority]
        return [] if level is None else level.messages.behind(number, most)

    # Paged messages.

    def is_paging(self, level: int) -> bool:
        """Return whether new messages of a level must go to the store, to stay in order."""
        found = self._levels[level]
        return found is not None and found.paged is not None

    def page_out(self, level: int, first: int, count: int, size: int) -> Paged:
        """Append messages to a level, with ids from ``first`` on, that are in the store only.

        Return the paged part of the level.
        """
        found = self._level(level)
        if found.paged is None:
            found.paged = Paged(first - 1)
        paged = found.paged
        if first <= max(paged.after, paged.last):
            state = f"message {first} is to be paged out behind {max(paged.after, paged.last)}"
            raise BrokenInvariant("queue-order", state)
        paged.last = first + count - 1
        paged.count += count
        paged.size += size
        self.paged += count
        return paged

    def restore(self, level: int, count: int, size: int, last: int) -> Paged:
        """Add messages found in the store at the start, and return them."""
        paged = self._level(level).paged = Paged(0, last, count, size)
        self.paged += count
        return paged

    def paged_levels(self) -> list[tuple[int, Paged]]:
        """Return the paged parts of all levels that have one."""
        parts = ((priority, self.paging(priority)) for priority in range(LEVELS))
        return [(priority, paged) for priority, paged in parts if paged is not None]

    def wanted(self, beneath: int) -> int:
        """Return the level to load next, or -1.

        Args:
          beneath: Load only if fewer messages of the level are in memory.
        """
        for priority in range(self._occupied.bit_length() - 1, -1, -1):
            level = self._levels[priority]
            if level is None:
                continue
            if level.paged is not None:
                return priority if self.has_few(priority, beneath) else -1
            if level.messages.pieces:
                return -1
        return -1

    def has_few(self, priority: int, beneath: int) -> bool:
        """Return whether fewer messages than ``beneath`` of a level are in memory."""
        return len(self._level(priority).messages) < beneath

    def paging(self, level: int) -> Paged | None:
        """Return the paged part of a level, or None."""
        found = self._levels[level]
        return found.paged if found is not None else None

    def loaded(self, level: int, messages: list[Message], size: int) -> None:
        """Move messages that were loaded from the paged part of a level into memory."""
        found = self._level(level)
        assert found.paged is not None
        found.paged.count -= len(messages)
        found.paged.size -= size
        self.paged -= len(messages)
        for before, message in pairwise(messages):
            if message.number <= before.number:
                state = f"message {message.number} was read behind {before.number}"
                raise BrokenInvariant("queue-order", state, before.publication.destination.name)
        if messages:
            self.extend(level, messages)

    def remove_paged(self, level: int, count: int, size: int) -> None:
        """Subtract paged messages that have ended."""
        paged = self.paging(level)
        assert paged is not None
        paged.count -= count
        paged.size -= size
        self.paged -= count

    def forget_paged(self, level: int) -> Paged:
        """Remove and return the paged part of a level."""
        found = self._level(level)
        assert found.paged is not None
        paged, found.paged = found.paged, None
        self.paged -= paged.count
        return paged

    def forget_all_paged(self) -> list[Paged]:
        """Remove and return the paged parts of all levels."""
        return [self.forget_paged(priority) for priority, _ in self.paged_levels()]

    def _level(self, priority: int) -> _Level:
        self._occupied |= 1 << priority
        level = self._levels[priority]
        if level is None:
            level = self._levels[priority] = _Level()
        return level
