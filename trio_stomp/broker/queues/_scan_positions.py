"""Scan positions: how far the consumers of a queue have looked for messages that they may get.

The result of a selector for a message never changes. So it is evaluated once for a waiting message,
and a scan that ran out of time continues at its position. The messages of a level are on one line,
by number: first those in memory, then those in the store only. These are examined a page at a time
and stay there, unless a consumer gets them.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.queues._groups import Groups
from trio_stomp.broker.queues._message import Message
from trio_stomp.broker.routing import PASSED_BYTES

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.selectors import Selector

FEW_POSITIONS = 64
"""A message that returns is compared with up to this many selectors that have passed it."""


@define(eq=False, repr=False)
class ScanPositions:
    """Scan positions in one queue, by level. Earlier messages do not match.

    Consumers with the same selector share a position. While groups have owners, each consumer has
    one of its own, because it also passes messages of others' groups.

    Args:
      memory: Charged for each position.
      groups: The groups of the queue.
    """

    memory: MemoryBudget
    groups: Groups
    ends: dict[int, int] = field(factory=dict)
    """Where the last scan of each level ended."""
    _upto: "dict[int, dict[tuple[Consumer | None, Selector | None], int]]" = field(factory=dict)

    @property
    def is_empty(self) -> bool:
        """Return whether no position is kept."""
        return not any(self._upto.values())

    def of(self, level: int, consumer: "Consumer") -> int:
        """Return a consumer's position on a level: the number of the last message examined."""
        if not (positions := self._upto.get(level)):
            return 0
        selector = consumer.selector
        return max(positions.get((consumer, selector), 0), positions.get((None, selector), 0))

    def in_turn(self, level: int, positions: Iterable[int]) -> list[int]:
        """Return distinct positions on a level, beginning behind the end of the last scan.

        So scans that are behind, as that of a new selector, do not delay those that are ahead.
        """
        order = sorted(set(positions))
        start = bisect_right(order, self.ends.get(level, 0))
        return order[start:] + order[:start]

    def note(self, level: int, consumer: "Consumer", number: int) -> None:
        """Record that ``consumer`` matches nothing up to ``number``."""
        key = (consumer if self.groups.owners else None, consumer.selector)
        positions = self._upto.setdefault(level, {})
        if key not in positions:
            self.memory.force_table(PASSED_BYTES)
        positions[key] = max(number, positions.get(key, 0))

    def note_back(self, level: int, number: int, message: Message | None = None) -> None:
        """Move back positions behind which there is a new or returned message.

        Args:
          level: The level of the message.
          number: Its number.
          message: The message. Selectors that do not match it stay, unless it is of a group:
            others of the group may have been passed while it was delayed. None = all move.
        """
        head = None if message is None or message.group else message.publication.head
        positions = self._upto.get(level, {})
        few = len(positions) <= FEW_POSITIONS
        for key, position in positions.items():
            _, selector = key
            if position >= number and not (
                few and head is not None and selector is not None and not selector.matches(head)
            ):
                positions[key] = number - 1

    def leave(self, consumer: "Consumer", *, is_last: bool) -> None:
        """Forget the positions of a leaving consumer. ``is_last``: none has the same selector."""
        selector = consumer.selector
        for positions in self._upto.values():
            for key in ((consumer, selector), (None, selector)):
                if (key[0] or is_last) and positions.pop(key, None) is not None:
                    self.memory.give_table(PASSED_BYTES)

    def free(self, owner: "Consumer") -> None:
        """Let all consumers examine the messages of groups that ``owner`` has no longer.

        They lie behind its own position, unless its selector refused them.
        """
        for level, positions in self._upto.items():
            number = 0 if owner.selector is not None else self.of(level, owner)
            for key, position in positions.items():
                positions[key] = min(position, number)

    def forget(self) -> None:
        """Forget all positions, so that all consumers scan from the beginning."""
        count = sum(map(len, self._upto.values()))
        self.memory.give_table(PASSED_BYTES * count)
        self._upto.clear()


@define(eq=False, repr=False)
class Window:
    """A page of a level's stored messages that consumers examine. It is read in the background.

    Args:
      level: The level.
      after: The number after which it begins.
      known: The commit number known when it was requested.
    """

    level: int
    after: int
    known: int
    upto: int = 0
    """The last number that it covers; 0 = it is being read."""
    charged: int = 0
    """The memory charged for it."""
    runs: Iterator[list[Message]] = field(factory=lambda: iter(()))
    """Makes the messages, run by run."""
    _messages: deque[Message] = field(factory=deque)

    def remove(self, message: Message) -> bool:
        """Remove a message that is taken, and return whether it was here.

        Other scans may begin before it, and what is taken must not be offered to them.
        """
        if message not in self._messages:
            return False
        self._messages.remove(message)
        return True

    def covers(self, level: int, number: int) -> bool:
        """Return whether it has the messages after ``number`` of a level."""
        return self.level == level and self.after <= number < self.upto

    def behind(self, number: int, most: int) -> list[Message]:
        """Return up to ``most`` messages after ``number``, and forget those before."""
        self.after, messages = number, self._messages
        while messages and messages[0].number <= number:
            messages.popleft()
        while len(messages) < most and (run := next(self.runs, None)) is not None:
            messages.extend(each for each in run if each.number > number)
        return list(islice(messages, most))


@define(eq=False, repr=False)
class Taken:
    """The ids of stored messages that were taken from among those left in the store.

    Who reads the store skips them, until their end is stored.
    """

    ids: set[int] = field(factory=set)
    _ended: deque[tuple[int, int]] = field(factory=deque)
    """Commit numbers that store the ends of messages, in order, and their ids."""

    def end(self, id: int, commit: int) -> None:
        """Note that a message ended, which is stored with a commit."""
        if id in self.ids:
            self._ended.append((commit, id))

    def forget(self, committed: int) -> None:
        """Forget the messages whose end was stored before all pages in use were requested.

        Args:
          committed: The last commit number known when the first one was.
        """
        while self._ended and self._ended[0][0] <= committed:
            self.ids.discard(self._ended.popleft()[1])
