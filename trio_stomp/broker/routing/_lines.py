"""Lines in front of topics: messages wait there for a fan-out or COMMIT in pieces."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, RemoteError
from trio_stomp.broker.delivery import NotYet, Stop, Turns, Work
from trio_stomp.broker.names import matches

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Destination, Target
    from trio_stomp.broker.routing._destinations import Destinations

MANY_NAMES = 1024
"""With more lines than this, a SUBSCRIBE to a wildcard waits for all of them."""


@define(eq=False, repr=False)
class Parcel:
    """A publication that waits in the line of a topic.

    Args:
      begin: Returns the work that sends it.
      cost: Bytes charged while it waits.
    """

    destination: "Destination"
    begin: Callable[[], Work]
    cost: int


@define(eq=False, repr=False)
class Lines:
    """The lines in front of topics, with their items in order.

    A COMMIT or fan-out in pieces is first in the lines of all its topics. Clients that SEND to
    such a topic, or SUBSCRIBE, wait until it has no line. Messages that no client can hold back
    wait in the line: stored messages, scheduled messages, answers of the broker.
    """

    turns: Turns
    memory: MemoryBudget
    destinations: "Destinations"
    busy: "dict[str, Destination]" = field(factory=dict)
    """The topics that have a line, by name."""
    _queued_parcels: "dict[Client | None, _ClientParcels]" = field(factory=dict)

    def until_free(self, names: Iterable[str]) -> Work:
        """Wait until none of these topics has a line."""
        while any(name in self.busy for name in names):
            self.turns.stop(Stop.BLOCKED)
            yield

    def subscribe(
        self,
        targets: "Sequence[Target]",
        subscribe: Callable[[], Work | None],
        receipt: bytes | None,
    ) -> Work:
        """Subscribe as soon as none of the topics has a line.

        So a subscriber gets all messages of a line, or none of them.

        Args:
          targets: Names and patterns of the SUBSCRIBE.
          subscribe: Subscribes, and returns further work or None.
          receipt: The id of the requested RECEIPT, for errors.
        """
        try:
            work = yield from self._subscribe_between(targets, subscribe)
            if work is not None:
                yield from work
        except RemoteError as error:
            error.receipt_id = error.receipt_id or receipt
            raise

    def _subscribe_between(
        self, targets: "Sequence[Target]", subscribe: Callable[[], Work | None]
    ) -> Generator[None, None, Work | None]:
        while True:
            while any(self._is_reached(target) for target in targets):
                self.turns.stop(Stop.BLOCKED)
                yield
            try:
                return subscribe()
            except NotYet as later:  # new lines may form meanwhile
                yield from later.work

    def _is_reached(self, target: "Target") -> bool:
        name, pattern = target
        if pattern is None:
            return name in self.busy
        return len(self.busy) > MANY_NAMES or any(matches(pattern, each) for each in self.busy)

    def open(self, destinations: "Iterable[Destination]") -> None:
        """Open a line in front of each topic, with the caller first. None has a line yet."""
        for destination in destinations:
            self._join(destination, self)

    def close(self, destinations: "Iterable[Destination]") -> bool:
        """Leave the lines, and return whether any work waited for them."""
        for destination in destinations:
            self._leave(destination)
        return self.turns.awaken()

    def put(
        self,
        client: "Client | None",
        destination: "Destination",
        begin: Callable[[], Work],
        cost: int,
    ) -> None:
        """Put a publication of ``client`` into the line of a topic.

        Args:
          client: The sender; None = the broker.
          destination: The topic.
          begin: Returns the work that sends it.
          cost: Bytes charged while it waits.
        """
        errands = self._queued_parcels.get(client)
        if errands is None:
            errands = self._queued_parcels[client] = _ClientParcels(self, client)
            self.turns.carry_out(errands)
        parcel = Parcel(destination, begin, cost)
        self.memory.force_kept(cost)
        errands.parcels.append(parcel)
        self._join(destination, parcel)

    def _join(self, destination: "Destination", item: object) -> None:
        if destination.line is None:
            destination.line = deque()
            self.busy[destination.name] = destination
        destination.line.append(item)

    def _leave(self, destination: "Destination") -> None:
        """Remove the first item of a line."""
        assert destination.line is not None
        destination.line.popleft()
        if not destination.line:
            destination.line = None
            del self.busy[destination.name]
            self.destinations.note_idle(destination)

    def finished(self, parcel: Parcel) -> None:
        """Remove a parcel that was sent or dropped."""
        self.memory.give_kept(parcel.cost)
        self._leave(parcel.destination)
        self.turns.awaken()

    def end(self, client: "Client | None") -> None:
        """Forget a client without waiting publications."""
        del self._queued_parcels[client]
        self.turns.awaken()

    def has(self, client: "Client | None") -> bool:
        """Return whether a publication of a client waits in a line."""
        return client in self._queued_parcels

    def until_sent(self, client: "Client") -> Work:
        """Wait until no publication of a client waits in a line."""
        while client in self._queued_parcels:
            self.turns.stop(Stop.BLOCKED)
            yield


@define(eq=False, repr=False)
class _ClientParcels:
    """The waiting publications of one client, in order. A ``Work``."""

    lines: Lines
    client: "Client | None"
    parcels: deque[Parcel] = field(factory=deque)
    _work: Work | None = None

    def __iter__(self) -> Work:
        return self

    def __next__(self) -> None:
        """Send a piece of the client's first parcel, if it is first in its line."""
        if not self.parcels:
            self.lines.end(self.client)
            raise StopIteration
        parcel = self.parcels[0]
        line = parcel.destination.line
        if line is None or line[0] is not parcel:
            self.lines.turns.stop(Stop.BEHIND)
            return
        is_done = True
        try:
            if self._work is None:
                self._work = parcel.begin()
            is_done = next(self._work, self) is self
        finally:
            if is_done:
                self._work = None
                self.parcels.popleft()
                self.lines.finished(parcel)
