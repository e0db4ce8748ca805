"""The waiting messages of a queue in order: returned, fresh and paged ones."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise
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
class Returned:
    """A sorted collection of messages by number.

    Unlike a heap, it can be iterated in order without sorting.
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

    def put(self, message: Message) -> None:
        """Insert a message."""
        pieces = self.pieces
        if not pieces:
            pieces.append([message])
            return
        index = len(pieces) - 1
        piece = pieces[index]
        if message.number > piece[-1].number:  # the usual case: they return in order
            piece.append(message)
        else:
            index = self._index_of(message.number)
            piece = pieces[index]
            insort(piece, message, key=_number)
        if len(piece) > 2 * PIECE:
            pieces[index : index + 1] = [piece[:PIECE], piece[PIECE:]]

    def extend(self, messages: list[Message]) -> None:
        """Insert messages that are in order."""
        if messages and self.pieces and self.pieces[-1][-1].number > messages[0].number:
            for message in messages:
                self.put(message)
        elif messages and self.pieces and len(self.pieces[-1]) < PIECE:
            self.pieces[-1] += messages
        elif messages:
            self.pieces.append(messages)

    def pop(self) -> Message:
        """Remove and return the first message. There must be one."""
        piece = self.pieces[0]
        message = piece.pop(0)
        if not piece:
            del self.pieces[0]
        return message

    def take(self, message: Message) -> None:
        """Remove a message.

        Raises:
          BrokenInvariant: It is not there.
        """
        index = self._index_of(message.number)
        piece = self.pieces[index] if self.pieces else []
        place = bisect_left(piece, message.number, key=_number)
        if place == len(piece) or piece[place] is not message:
            state = f"message {message.number} is not at its place among {len(self)} returned ones"
            raise BrokenInvariant("queue-order", state, message.publication.destination.name)
        del piece[place]
        if not piece:
            del self.pieces[index]

    def behind(self, number: int, most: int) -> list[Message]:
        """Return up to ``most`` messages after ``number``, in order."""
        found: list[Message] = []
        for piece in self.pieces[self._index_of(number) :]:
            start = bisect_right(piece, number, key=_number)
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


def _place_of(fresh: deque[Message], number: int) -> int:
    """Return how many messages have at most ``number``.

    Each index into a deque costs as much as its distance from the nearer end, so begin in front.
    """
    end = 1
    while end <= len(fresh) and fresh[end - 1].number <= number:
        end *= 2
    return bisect_right(fresh, number, end // 2, min(end, len(fresh)), key=_number)


def _cut(fresh: deque[Message], start: int, most: int) -> list[Message]:
    """Return up to ``most`` messages from index ``start`` on.

    Each index into a deque costs as much as its distance from the nearer end, so pay once.
    """
    fresh.rotate(-start)
    found = list(islice(fresh, min(most, len(fresh) - start)))
    fresh.rotate(start)
    return found


@define(eq=False)
class _Level:
    """Messages of one priority: returned, fresh and paged ones, in this order."""

    returned: Returned = field(factory=Returned)
    fresh: deque[Message] = field(factory=deque)
    paged: "Paged | None" = None


@define(eq=False)
class Waiting:
    """Waiting messages in order: by priority, then by acceptance.

    Returned messages are mostly older than fresh ones. So sorted lists for returned and a deque for
    fresh messages keep the order at the cost of a deque.
    """

    count: int = 0
    """Messages in memory."""
    paged: int = 0
    """Messages in the store only."""
    _levels: list[_Level | None] = field(factory=lambda: [None] * LEVELS)
    _occupied: int = 0
    """Bit n is set if level n may hold messages."""

    def extend(self, level: int, messages: list[Message]) -> None:
        """Append one or more fresh messages of one level, in order. Insert late ones in order.

        Messages that had to be stored first, or were left in the store, may arrive after later
        ones.
        """
        fresh = self._level(level).fresh
        if fresh and fresh[-1].number > messages[0].number:
            for message in messages:
                insort(fresh, message, key=_number)
        else:
            fresh.extend(messages)
        self.count += len(messages)

    def take(self, priority: int, message: Message) -> None:
        """Remove a message from any position of level ``priority``.

        Raises:
          BrokenInvariant: It is not there.
        """
        level = self._level(priority)
        fresh = level.fresh
        if fresh and fresh[0] is message:
            fresh.popleft()
        else:
            start = _place_of(fresh, message.number - 1)
            if start < len(fresh) and fresh[start] is message:
                del fresh[start]
            else:
                level.returned.take(message)
        self.count -= 1

    def give_back(self, message: Message) -> None:
        """Return a message to its position."""
        self._level(message.level).returned.put(message)
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
                if level.returned.pieces:
                    return self.behind(priority, 0, most)
                if level.fresh:
                    return list(islice(level.fresh, most))
                if level.paged is not None:
                    return []  # they come next, when loaded
                if priority != PRIORITY_DEFAULT:
                    self._levels[priority] = None  # ten empty levels take more memory than a queue
            self._occupied &= ~(1 << priority)
        return []

    def take_next(self, count: int) -> None:
        """Remove the first ``count`` messages of what ``next`` returned."""
        level = self._level(self._occupied.bit_length() - 1)
        fresh, returned = level.fresh, level.returned
        self.count -= count
        while count and returned.pieces:
            count -= 1
            if fresh and fresh[0].number < returned.first.number:
                fresh.popleft()
            else:
                returned.pop()
        if count == len(fresh):  # the usual case, at once
            fresh.clear()
        else:
            for _ in range(count):
                fresh.popleft()

    def take_expired(self, now: float, most: int) -> list[Message]:
        """Remove and return expired messages at the front of the levels, ``most`` if there are."""
        found: list[Message] = []
        for level in self._levels:
            if level is None:
                continue
            returned = level.returned
            while returned.pieces and returned.first.publication.is_over(now) and len(found) < most:
                found.append(returned.pop())
            while level.fresh and level.fresh[0].publication.is_over(now) and len(found) < most:
                found.append(level.fresh.popleft())
        self.count -= len(found)
        return found

    def foremost(self) -> list[Publication]:
        """Return the publications of the first returned and the first fresh messages."""
        found: list[Publication] = []
        for level in self._levels:
            if level is not None and level.returned.pieces:
                found.append(level.returned.first.publication)
            if level is not None and level.fresh:
                found.append(level.fresh[0].publication)
        return found

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
            if level.returned.pieces:
                oldest = min(oldest, level.returned.first.publication.received_at)
            if level.fresh:
                oldest = min(oldest, level.fresh[0].publication.received_at)
            elif level.paged is not None and not level.returned.pieces:
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
        if level is None:
            return []
        found = [*level.returned, *level.fresh]
        if level.returned.pieces:
            found.sort(key=_number)
        return found

    def level_beneath(self, priority: int) -> int:
        """Return the highest level below ``priority`` that may hold messages, or -1."""
        return (self._occupied & ((1 << priority) - 1)).bit_length() - 1

    def behind(self, priority: int, number: int, most: int) -> list[Message]:
        """Return up to ``most`` messages in memory after ``number`` of a level, in order."""
        level = self._levels[priority]
        if level is None:
            return []
        found = level.returned.behind(number, most)
        fresh = level.fresh
        start = _place_of(fresh, number)
        if found and start < len(fresh) and fresh[start].number < found[-1].number:
            found += _cut(fresh, start, most)
            found.sort(key=_number)
            return found[:most]
        return found + _cut(fresh, start, most - len(found))

    def set_aside(self, priority: int, number: int) -> None:
        """Move the messages up to ``number`` of a level to where all operations are cheap.

        A scan has passed them, so others behind them are taken first.
        """
        level = self._level(priority)
        fresh = level.fresh
        level.returned.extend([fresh.popleft() for _ in range(_place_of(fresh, number))])

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

    def unseen(self) -> list[tuple[int, Paged]]:
        """Return the paged parts of the levels that have no message in memory."""
        return [
            (priority, level.paged)
            for priority, level in enumerate(self._levels)
            if level is not None and level.paged is not None
            if not (level.fresh or level.returned.pieces)
        ]

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
            if level.fresh:
                return -1
        return -1

    def has_few(self, priority: int, beneath: int) -> bool:
        """Return whether fewer messages than ``beneath`` of a level are in memory."""
        level = self._level(priority)
        return len(level.fresh) + len(level.returned) < beneath

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
        return [
            self.forget_paged(priority) for priority in range(LEVELS) if self.is_paging(priority)
        ]

    def _level(self, priority: int) -> _Level:
        self._occupied |= 1 << priority
        level = self._levels[priority]
        if level is None:
            level = self._levels[priority] = _Level()
        return level
