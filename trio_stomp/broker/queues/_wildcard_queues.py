"""Which queues wildcards reach: joined, left and looked through piece by piece."""

from collections.abc import Iterator

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Stop, Turns, Work
from trio_stomp.broker.names import ONE_WORD, Pattern, SortedNames, WildcardTrie, matches
from trio_stomp.broker.queues._consumer import Consumer, Source
from trio_stomp.broker.queues._queue import Queue, queue_of
from trio_stomp.broker.routing import JOIN_BYTES, Destinations, no_table_memory

DEAD_PREFIX = "/queue/DLQ."
STEP = 16
"""Names that are looked at, and queues that are joined, in one piece of work."""
FEW_QUEUES = 64
"""A consumer of no more queues is served, and ends, at once."""
MANY_QUEUES = 256
"""Of a consumer's list of queues the garbage collector takes no notice any more once it is so
long."""


@define(eq=False, repr=False)
class WildcardQueues:
    """The wildcards of consumers, and the names of all queues in order.

    Args:
      destinations: Where a queue is found by its name.
      memory: Charged for each queue that a wildcard joins.
    """

    destinations: Destinations
    memory: MemoryBudget
    names: SortedNames = field(factory=SortedNames)
    turns: Turns = field(factory=Turns)
    """Say when the rest of what a new queue needs is for later turns."""
    entering: dict[Queue, None] = field(factory=dict)
    """New queues that many have yet to join: one after the other, and none hands out before."""
    _trie: WildcardTrie[Consumer] = field(factory=WildcardTrie)
    _patterns: dict[Consumer, list[tuple[str, Pattern]]] = field(factory=dict)
    _rounds: dict[Consumer, Iterator[Queue | None]] = field(factory=dict)
    """Where the search for something to hand out goes on, for consumers of many queues."""
    _searching: dict[Consumer, int] = field(factory=dict)
    """Consumers that take something again, and how much of their round is left."""

    @property
    def is_searching(self) -> bool:
        """Return whether a consumer may want what waits somewhere."""
        return bool(self._searching)

    def add(self, consumer: Consumer, said: str, pattern: Pattern) -> None:
        """Have new queues that a wildcard reaches join ``consumer``.

        Present ones do in ``join``.
        """
        self._trie.add(pattern, consumer)
        self._patterns.setdefault(consumer, []).append((said, pattern))

    def enter(self, queue: Queue) -> None:
        """Note a new queue, and have those served whose wildcards reach it.

        If they are many, some do so in later turns: the queue is ``entering`` until then.
        """
        self.names.add(queue.name)
        if len(self._patterns) <= FEW_QUEUES or not self.turns.is_over():
            consumers = self._trie.match(queue.name)
            if len(consumers) <= FEW_QUEUES:
                for consumer in consumers:
                    self._let_in(queue, consumer)
                return
        self.entering[queue] = None
        if len(self.entering) == 1:
            work = self._enter_all()
            if not self.turns.finishes(work):
                self.turns.carry_out(work)

    def until_entered(self, queue: Source) -> Work:
        """Wait until all take from a new queue who should."""
        while queue in self.entering:
            self.turns.stop(Stop.BEHIND)
            yield

    def _enter_all(self) -> Work:
        try:
            while self.entering:
                queue = next(iter(self.entering))
                yield from self._enter(queue)
                del self.entering[queue]
                queue.host.mark(queue)
        finally:  # a bug must not keep back what is there
            for queue in self.entering:
                queue.host.mark(queue)
            self.entering.clear()

    def _enter(self, queue: Queue) -> Work:
        """Have those join whose wildcards reach ``queue``, as long as it and they are there."""
        yield
        for place, consumer in enumerate(self._trie.match(queue.name)):
            if place % STEP == STEP - 1:
                yield
            if queue_of(self.destinations.find(queue.name)) is not queue:
                return
            if queue not in consumer.queues and not consumer.subscription.client.is_leaving:
                self._let_in(queue, consumer)

    def _let_in(self, queue: Queue, consumer: Consumer) -> None:
        patterns = self._patterns.get(consumer, ())
        if any(reaches(said, pattern, queue.name) for said, pattern in patterns):
            self.memory.force_table(JOIN_BYTES, consumer.subscription.quota)
            self._attach(queue, consumer)

    def join(self, consumer: Consumer) -> Work:
        """Let ``consumer`` take from all queues that its wildcards reach, as long as it is there.

        Those that it names, and has made, are entered first.

        Raises:
          ProtocolError: there is no memory for so many.
        """
        if self.entering:
            for named in list(consumer.queues):
                yield from self.until_entered(named)
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
        if consumer.joined == MANY_QUEUES:
            self.turns.collect_young()  # before it is large; it may grow to all queues there are

    def leave(self, consumer: Consumer) -> None:
        """Let ``consumer`` join no more queues."""
        for _, pattern in self._patterns.pop(consumer, ()):
            self._trie.remove(pattern, consumer)
        self._rounds.pop(consumer, None)
        self._searching.pop(consumer, None)

    def detach(self, consumer: Consumer, count: int) -> None:
        """Detach ``consumer`` from ``count`` of its queues, or from all of fewer."""
        for _ in range(min(count, len(consumer.queues))):
            queue, _ = consumer.queues.popitem()
            queue.detach(consumer)
        returned = max(0, consumer.joined - len(consumer.queues))
        consumer.joined -= returned
        self.memory.give_table(JOIN_BYTES * returned, consumer.subscription.quota)

    def walk(self, said: str, pattern: Pattern) -> Iterator[Queue | None]:
        """Yield the queues that a wildcard reaches, in order of name, and None at other names.

        Others may come and go between two steps.
        """
        beginning = since = _beginning(pattern)
        while names := self.names.since(since):
            for name in names:
                if not name.startswith(beginning):
                    return
                queue = queue_of(self.destinations.find(name))
                yield queue if queue is not None and reaches(said, pattern, name) else None
            since = names[-1] + "\0"

    # What consumers of many queues take.

    def search(self, consumer: Consumer) -> None:
        """Look through all queues of ``consumer``, which takes something again."""
        patterns = self._patterns.get(consumer, ())
        if patterns:
            self._searching[consumer] = len(patterns) * (len(self.names) + 1)

    def look_on(self) -> Queue | None:
        """Look on for what waits and may be handed out, and return the first queue that has any."""
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
    """Return whether a wildcard matches, dead letters only where it spells them out."""
    if name.startswith(DEAD_PREFIX) and not said.startswith(DEAD_PREFIX):
        return False
    return matches(pattern, name)


def _beginning(pattern: Pattern) -> str:
    """Return the beginning of each name that ``pattern`` matches."""
    text = ""
    for token in pattern.tokens:
        if token is ONE_WORD:
            return text
        text += token
    return text + (pattern.glued or "")
