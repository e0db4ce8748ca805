"""Wildcard consumers and their queues: joining, leaving and searching in pieces."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Stop, Target, Turns, Work
from trio_stomp.broker.names import DEAD_LETTERS, Pattern, SortedNames, WildcardTrie, matches, walk
from trio_stomp.broker.queues._consumer import Consumer, Source
from trio_stomp.broker.queues._queue import Queue, queue_of
from trio_stomp.broker.routing import JOIN_BYTES, Destinations, no_table_memory

STEP = 16
"""Names checked, or queues joined, in one piece of work."""
FEW_QUEUES = 64
"""A consumer with at most this many queues is served, and ends, at once."""
MANY_QUEUES = 256
"""At this length, a consumer's list of queues is moved out of young garbage collections."""


@define(eq=False, repr=False)
class WildcardQueues:
    """The wildcards of consumers, and the sorted names of all queues.

    Args:
      destinations: Finds queues by name.
      memory: Charged for each queue joined through a wildcard.
    """

    destinations: Destinations
    memory: MemoryBudget
    turns: Turns
    """Limits the time of joining in a turn."""
    names: SortedNames = field(factory=SortedNames)
    entering: dict[Queue, None] = field(factory=dict)
    """New queues that many consumers are joining, one queue after the other. They hand out nothing
    before."""
    searching: dict[Consumer, Iterator[Source | None]] = field(factory=dict)
    """Consumers with new credit, in turn, and the queues left to search for each."""
    _trie: WildcardTrie[Consumer] = field(factory=WildcardTrie)
    _patterns: dict[Consumer, list[tuple[str, Pattern]]] = field(factory=dict)
    _rounds: dict[Consumer, Iterator[Source | None]] = field(factory=dict)
    """Where the search for messages goes on, for consumers of many queues."""
    _found: dict[Consumer, Source] = field(factory=dict)
    """The queue that the last search has found, for consumers of few."""
    _behind: dict[Consumer, dict[Queue, None]] = field(factory=dict)
    """Queues that serve no consumer of a lower priority while a search goes on, by its consumer."""

    def add(self, consumer: Consumer, text: str, pattern: Pattern) -> None:
        """Let ``consumer`` join new queues that a wildcard matches. ``join`` is for existing ones.

        The wildcard is given as written and compiled.
        """
        self._trie.add(pattern, consumer)
        self._patterns.setdefault(consumer, []).append((text, pattern))

    def enter(self, queue: Queue) -> None:
        """Add a new queue, and attach the consumers whose wildcards match.

        If there are many, this continues in later turns; the queue is ``entering`` until then.
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
        """Wait until all matching consumers have joined a new queue."""
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
        finally:  # after an error, queues must not stay blocked
            for queue in self.entering:
                queue.host.mark(queue)
            self.entering.clear()

    def _enter(self, queue: Queue) -> Work:
        """Attach the consumers whose wildcards match ``queue``, unless it or they have ended."""
        yield
        for index, consumer in enumerate(self._trie.match(queue.name)):
            if index % STEP == STEP - 1:
                yield
            if queue_of(self.destinations.find(queue.name)) is not queue:
                return
            if queue not in consumer.queues and not consumer.subscription.client.is_leaving:
                self._let_in(queue, consumer)

    def _let_in(self, queue: Queue, consumer: Consumer) -> None:
        patterns = self._patterns.get(consumer, ())
        if any(reaches(text, pattern, queue.name) for text, pattern in patterns):
            self.memory.force_table(JOIN_BYTES, consumer.subscription.quota)
            self._attach(queue, consumer)

    def join(self, consumer: Consumer) -> Work:
        """Attach ``consumer`` to all existing queues that its wildcards match, until it ends.

        First wait for queues that its SUBSCRIBE has created by name.

        Raises:
          ProtocolError: There is no memory for all queues.
        """
        if self.entering:
            for named in list(consumer.queues):
                yield from self.until_entered(named)
        quota = consumer.subscription.quota
        for text, pattern in self._patterns.get(consumer, ()):
            for index, queue in enumerate(self.walk(text, pattern)):
                if consumer not in self._patterns or consumer.subscription.client.is_leaving:
                    return
                if queue is not None and queue not in consumer.queues:
                    if not self.memory.take_table(JOIN_BYTES, quota):
                        raise no_table_memory(self.memory, f"what {text[:80]} reaches", quota)
                    self._attach(queue, consumer)
                if index % STEP == STEP - 1:
                    yield

    def _attach(self, queue: Queue, consumer: Consumer) -> None:
        consumer.joined += 1
        queue.attach(consumer)
        if consumer.joined == MANY_QUEUES:
            self.turns.collect_young()  # while it is small: it may grow to all queues

    def leave(self, consumer: Consumer) -> None:
        """Remove the wildcards of ``consumer``: it joins no more queues."""
        for _, pattern in self._patterns.pop(consumer, ()):
            self._trie.remove(pattern, consumer)
        self._rounds.pop(consumer, None)
        self._found.pop(consumer, None)
        self.searching.pop(consumer, None)
        self._behind.pop(consumer, None)  # ``detach`` schedules them

    def detach(self, consumer: Consumer, count: int) -> None:
        """Detach ``consumer`` from up to ``count`` of its queues."""
        left = [consumer.queues.popitem()[0] for _ in range(min(count, len(consumer.queues)))]
        returned = max(0, consumer.joined - len(consumer.queues))
        consumer.joined -= returned
        self.memory.give_table(JOIN_BYTES * returned, consumer.subscription.quota)
        with ExitStack() as stack:  # calls all of them, though one fails
            for queue in reversed(left):
                stack.callback(queue.detach, consumer)

    def walk(self, text: str, pattern: Pattern) -> Iterator[Queue | None]:
        """Yield the queues that a wildcard matches, in order of name, and None for other names.

        Queues may come and go between two steps.
        """
        for name in walk(pattern, self.names.since):
            queue = None
            if name is not None and not _is_hidden(text, name):
                queue = queue_of(self.destinations.find(name))
            yield queue

    def reached(self, targets: Sequence[Target]) -> Iterator[Queue | None]:
        """Yield the queues that the places of a SUBSCRIBE name or match, each once.

        None stands for a name that is skipped. Queues may come and go between two steps.
        """
        for number, (name, pattern) in enumerate(targets):
            if pattern is None:
                walk: Iterator[Queue | None] = iter((queue_of(self.destinations.find(name)),))
            else:
                walk = self.walk(name, pattern)
            for queue in walk:
                seen = queue is None or any(
                    text == queue.name if earlier is None else reaches(text, earlier, queue.name)
                    for text, earlier in targets[:number]
                )
                yield None if seen else queue

    # The search for messages.

    def search(self, consumer: Consumer, behind: Queue | None = None) -> None:
        """Start a search of all queues of ``consumer``, which gains credit.

        It begins where the last search ended, and meanwhile only the queue that it has found may
        serve the consumer. So a queue that always has messages leaves credit for the others.
        The hand-out of ``behind`` is scheduled when the consumer is no longer ready.
        """
        if consumer.queues and not consumer.is_early:
            self.searching[consumer] = self._all_of(consumer)
            consumer.turn = consumer.turn or consumer
            if behind is not None:
                self._behind.setdefault(consumer, {})[behind] = None

    def _all_of(self, consumer: Consumer) -> Iterator[Source | None]:
        """Return all queues of a consumer, from where the last search ended, and None between."""
        queues = list(islice(consumer.queues, FEW_QUEUES + 1))
        if len(queues) <= FEW_QUEUES:
            found = self._found.get(consumer)
            start = queues.index(found) + 1 if found in consumer.queues else 0
            return iter(queues[start:] + queues[:start])
        around = self._rounds.setdefault(consumer, self._around(consumer))
        return islice(around, len(consumer.subscription.targets) * (len(self.names) + 1) + 1)

    def look_on(self) -> Queue | None:
        """Search a few more queues, and return the first one with messages, or None."""
        consumer = next(iter(self.searching))
        left = self.searching.pop(consumer)
        consumer.turn = None
        is_over = not consumer.is_ready
        for _ in range(0 if is_over else STEP):
            queue = next(left, consumer)
            if is_over := queue is consumer:
                break
            if isinstance(queue, Queue) and (queue.waiting.count or queue.waiting.paged):
                self.searching[consumer], self._found[consumer] = left, queue
                consumer.turn = queue
                return queue
        if not is_over:
            self.searching[consumer] = left
            consumer.turn = consumer
            return None
        for behind in self._behind.pop(consumer, ()):
            behind.host.mark(behind)
        return None

    def _around(self, consumer: Consumer) -> Iterator[Source | None]:
        """Yield what the wildcards of a consumer reach, in endless rounds."""
        while True:
            yield from self.reached(consumer.subscription.targets)
            yield None


def reaches(text: str, pattern: Pattern, name: str) -> bool:
    """Return whether a wildcard matches a queue.

    It matches dead-letter queues only if it begins with their prefix.
    """
    return not _is_hidden(text, name) and matches(pattern, name)


def _is_hidden(text: str, name: str) -> bool:
    """Return whether a queue has dead letters and the wildcard does not begin with their prefix."""
    return name.startswith(DEAD_LETTERS) and not text.startswith(DEAD_LETTERS)
