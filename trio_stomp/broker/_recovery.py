"""Recovery: restoring the state of the core from the store, before clients connect."""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import Identity, RemoteError
from trio_stomp.broker.delivery import STEPS
from trio_stomp.broker.headers import decode_head, split_owner
from trio_stomp.broker.managing import DECLARED
from trio_stomp.broker.managing import restore as restore_declared
from trio_stomp.broker.queues import PLACE as QUEUE
from trio_stomp.broker.sending import SCHEDULED, SEEN, Progress, read_ids, read_progress
from trio_stomp.broker.topics import PLACE as RETAINED
from trio_stomp.broker.topics import PREFIX as DURABLE
from trio_stomp.broker.topics import read_back
from trio_stomp.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trio_stomp.broker._broker import Broker
    from trio_stomp.broker.queues import Queue
    from trio_stomp.store import Page, PlaceState, Recovered, Stored

PAGE_BYTES = 1024 * 1024
FORWARDS = "forwards:"
"""The place in the store of messages for other partitions of a cluster."""


def check_none(places: "Mapping[tuple[str, int], PlaceState]") -> None:
    """Check that a store has no messages for other brokers, before a broker without others uses it.

    Args:
      places: The store's, by name and level.

    Raises:
      StoreError: It has: nobody would send them on.
    """
    count = sum(state.count for (place, _), state in places.items() if place == FORWARDS)
    if count:
        raise StoreError(
            f"the store has {count} messages of transactions for other partitions of a cluster,"
            " which a broker without partitions cannot send on: move the store into a new cluster"
            " with partitions (trio-stomp cluster import --cluster-partitions N)"
        )


@define(eq=False, repr=False)
class Recovery:
    """Restores the state of the last broker.

    Args:
      broker: The new broker.
      recovered: The summary of the store.
      read: Reads stored messages (``Store.read``).
    """

    broker: "Broker"
    recovered: "Recovered"
    read: "Callable[[str, int, int, int], Page]"
    failures: list[str] = field(factory=list)
    """A line for each thing that could not be restored. It stays in the store."""
    _owners: dict[Identity, Identity] = field(factory=dict)

    def run(self) -> None:
        """Restore everything. Messages of queues stay in the store until they are consumed."""
        self.broker.wall.restore(self.recovered.settings.get(STEPS, ""))
        self.broker.streams.restore(self.recovered.streams, self.recovered.settings)
        self.broker.destinations.is_restoring = self.broker.memory.is_promised = True
        if self.broker.log is not None:  # pragma: no branch (set if there is a store)
            self.broker.log.failed.restore(self.recovered.settings)
            if self.recovered.places:
                self.broker.log.identify()  # an older broker wrote them without an identity
        for key, text in self.recovered.settings.items():
            if key.startswith(DURABLE):
                self._guarded(key, lambda k=key, text=text: self._restore_durable(k, text))  # type: ignore[misc]
            elif key.startswith(DECLARED):
                self._guarded(key, lambda k=key: restore_declared(self.broker.queues, k))  # type: ignore[misc]
        queues = {queue.place: queue for queue in self._durable_queues()}
        for (place, level), state in self.recovered.places.items():
            self._guarded(place, lambda p=place, lv=level, s=state: self._restore(queues, p, lv, s))  # type: ignore[misc]
        self.broker.destinations.is_restoring = self.broker.memory.is_promised = False

    def _guarded(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (RemoteError, ValueError, KeyError, TypeError) as error:
            self.failures.append(f"{what[:200]!r} cannot be restored: {error}")

    def _durable_queues(self) -> "list[Queue]":
        return [binding.queue for binding in self.broker.bindings.durables]

    def _restore_durable(self, place: str, text: str) -> None:
        broker = self.broker
        binding = read_back(
            place,
            text=text,
            number=broker.subscriptions.next_number(),
            bindings=broker.bindings,
            compile_selector=broker.subscriptions.selectors.compile,
            wildcards=broker.dialect.wildcards,
        )
        binding.is_counted = broker.counts([name for name, _ in binding.targets])
        broker.bindings.restore(binding)

    def _restore(
        self, queues: "dict[str, Queue]", place: str, level: int, state: "PlaceState"
    ) -> None:
        if place.startswith(RETAINED):
            self._restore_last_value(place.removeprefix(RETAINED), place, level)
        elif place == SCHEDULED:
            progresses = read_progress(self.recovered.settings)
            for run in self._runs(place, level):
                self._guarded(
                    f"{place}{run.ids[0]}",
                    lambda run=run: self._restore_schedule(run, progresses),  # type: ignore[misc]
                )
        elif place.startswith(SEEN):
            self._restore_seen(place, level)
        elif place not in queues and not place.startswith(QUEUE):
            self.broker.publisher.later.restore(place, partial(self._runs, place, level))
        else:
            queue = queues.get(place) or self.broker.queues.open(place.removeprefix(QUEUE))
            assert self.broker.storage is not None
            self.broker.storage.restore(queue, level, state, self.recovered.next_id - 1)
            queue.host.mark(queue)

    def _restore_schedule(self, run: "Stored", progresses: list[Progress]) -> None:
        # A run may be part of a longer one: find the last progress that began at or before it.
        first = run.ids[0]
        index = bisect_right(progresses, first, key=lambda each: each.first) - 1
        progress = progresses[index] if index >= 0 and first <= progresses[index].last else None
        head, owner = split_owner(decode_head(run.head))
        self.broker.scheduler.restore(run, head, progress, self._same(owner))

    def _same(self, owner: Identity | None) -> Identity | None:
        """Return one shared object for equal owners, to save memory."""
        return None if owner is None else self._owners.setdefault(owner, owner)

    def _restore_seen(self, place: str, level: int) -> None:
        ids: dict[str, list[tuple[str, int]]] = {}
        for run in self._runs(place, level):
            for to, name, id in read_ids(place, run):
                ids.setdefault(to, []).append((name, id))
        restore, open = self.broker.duplicates.restore, self.broker.destinations.open
        for to, found in ids.items():
            self._guarded(place + to, lambda to=to, found=found: restore(open(to), found))  # type: ignore[misc]

    def _restore_last_value(self, name: str, place: str, level: int) -> None:
        broker = self.broker
        assert broker.storage is not None
        destination = broker.destinations.open(name)
        for run in self._runs(place, level):
            head, owner = split_owner(decode_head(run.head))
            origin = broker.storage.origin_of(destination, run, head)
            for id, body in zip(run.ids, run.bodies, strict=True):
                value = origin.with_bodies(destination, [body])
                broker.last_values.restore(value, id, self._same(owner))

    def _runs(self, place: str, level: int) -> "list[Stored]":
        runs: list[Stored] = []
        after, is_last = 0, False
        while not is_last:
            page = self.read(place, level, after, PAGE_BYTES)
            runs += page.runs
            after, is_last = page.next, page.is_last
        return runs
