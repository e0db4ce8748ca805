"""Which queues wildcards reach: joined, left and looked through piece by piece."""

from collections.abc import Iterator

from attrs import define, field

from trio_stomp._memory import MemoryBudget
from trio_stomp.broker._consumer import Consumer
from trio_stomp.broker._queue import Queue
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._sorted_names import SortedNames
from trio_stomp.broker._table_costs import JOIN_BYTES, no_table_memory
from trio_stomp.broker._trie import WildcardTrie, matches
from trio_stomp.broker._turns import Work
from trio_stomp.broker._wildcards import ONE_WORD, Pattern

DEAD_PREFIX = "/queue/DLQ."
STEP = 16
"""Names that are looked at, and queues that are joined, in one piece of work."""
FEW_QUEUES = 64
"""A consumer of no more queues is served, and ends, at once."""


@define(eq=False, repr=False)
class Reach:
    """The wildcards of consumers, and the names of all queues in order.

    Args:
      routes: Where a queue is found by its name.
      memory: Charged for each queue that a wildcard joins.
    """

    routes: RouteTable
    memory: MemoryBudget
    names: SortedNames = field(factory=SortedNames)
    _trie: WildcardTrie[Consumer] = field(factory=WildcardTrie)
    _patterns: dict[Consumer, list[tuple[str, Pattern]]] = field(factory=dict)
    _rounds: dict[Consumer, Iterator[Queue | None]] = field(factory=dict)
    """Where the search for something to hand out goes on, for consumers of many queues."""
    _searching: dict[Consumer, int] = field(factory=dict)
    """Consumers that take something again, and how much of their round is left."""

    @property
    def is_searching(self) -> bool:
        """Whether somebody may want what waits somewhere."""
        return bool(self._searching)

    def add(self, consumer: Consumer, said: str, pattern: Pattern) -> None:
        """Have new queues join ``consumer`` that a wildcard reaches; those that are there do in
        ``join``.
        """
        self._trie.add(pattern, consumer)
        self._patterns.setdefault(consumer, []).append((said, pattern))

    def enter(self, queue: Queue) -> None:
        """Note a new queue, and have those served whose wildcards reach it."""
        self.names.add(queue.name)
        for consumer in self._trie.match(queue.name):
            if any(reaches(*each, queue.name) for each in self._patterns[consumer]):
                self.memory.force_table(JOIN_BYTES, consumer.subscription.quota)
                self._attach(queue, consumer)

    def join(self, consumer: Consumer) -> Work:
        """Let ``consumer`` take from all queues that its wildcards reach, as long as it is there.

        Raises:
          ProtocolError: there is no memory for so many.
        """
        quota = consumer.subscription.quota
        for said, pattern in self._patterns.get(consumer, ()):
            for place, queue in enumerate(self.walk(said, pattern)):
                if consumer not in self._patterns or consumer.subscription.client.is_leaving:
                    return
                if queue is not None and queue not in consumer.queues:
                    if not self.memory.take_table(JOIN_BYTES, quota):
                        raise no_table_memory(self.memory, f"what {said[:80]} reaches", quota)
                    self._attach(queue, consumer)
                if place % STEP == STEP - 1:
                    yield

    def _attach(self, queue: Queue, consumer: Consumer) -> None:
        consumer.joined += 1
        queue.attach(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Let ``consumer`` join no more queues."""
        for _, pattern in self._patterns.pop(consumer, ()):
            self._trie.remove(pattern, consumer)
        self._rounds.pop(consumer, None)
        self._searching.pop(consumer, None)

    def detach(self, consumer: Consumer, count: int) -> None:
        """Let ``consumer`` take from ``count`` of its queues no more, or from all if these are
        fewer.
        """
        for _ in range(min(count, len(consumer.queues))):
            queue, _ = consumer.queues.popitem()
            queue.detach(consumer)
        returned = max(0, consumer.joined - len(consumer.queues))
        consumer.joined -= returned
        self.memory.give_table(JOIN_BYTES * returned, consumer.subscription.quota)

    def walk(self, said: str, pattern: Pattern) -> Iterator[Queue | None]:
        """The queues that a wildcard reaches, in order of name; None at a name that it does not.

        Others may come and go between two steps.
        """
        beginning = since = _beginning(pattern)
        while names := self.names.since(since):
            for name in names:
                if not name.startswith(beginning):
                    return
                queue = self.routes.queue_of(name)
                yield queue if queue is not None and reaches(said, pattern, name) else None
            since = names[-1] + "\0"

    # What consumers of many queues take.

    def search(self, consumer: Consumer) -> None:
        """Look through all queues of ``consumer``, which takes something again."""
        patterns = self._patterns.get(consumer, ())
        if patterns:
            self._searching[consumer] = len(patterns) * (len(self.names) + 1)

    def look_on(self) -> Queue | None:
        """Go on looking for what waits and may be handed out; the first queue that has any."""
        consumer, left = self._searching.popitem()
        around = self._rounds.get(consumer)
        if around is None:
            around = self._rounds[consumer] = self._around(consumer)
        found: Queue | None = None
        for _ in range(min(STEP, left)):
            left -= 1
            queue = next(around)
            if queue is not None and (queue.waiting.count or queue.waiting.paged):
                found = queue
                break
        if left and consumer.is_ready:
            self._searching[consumer] = left
        return found

    def _around(self, consumer: Consumer) -> Iterator[Queue | None]:
        """All queues that the wildcards of ``consumer`` reach, again and again."""
        while True:
            for said, pattern in self._patterns[consumer]:
                yield from self.walk(said, pattern)
            yield None


def reaches(said: str, pattern: Pattern, name: str) -> bool:
    """Whether a wildcard matches; dead letters only where it spells them out."""
    if name.startswith(DEAD_PREFIX) and not said.startswith(DEAD_PREFIX):
        return False
    return matches(pattern, name)


def _beginning(pattern: Pattern) -> str:
    """What each name begins with that ``pattern`` matches."""
    text = ""
    for token in pattern.tokens:
        if token is ONE_WORD:
            return text
        text += token
    return text + (pattern.glued or "")
