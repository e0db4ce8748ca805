"""Topics to which something is sent bit by bit: what others send there comes behind it."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, RemoteError
from trio_stomp.broker.delivery import NotYet, Stop, Turns, Work
from trio_stomp.broker.names import matches

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client, Destination, Place
    from trio_stomp.broker.routing._destinations import Destinations

MANY_NAMES = 1024
"""If there are lines in front of more topics, a wildcard waits for all of them."""


@define(eq=False, repr=False)
class Parcel:
    """A publication that stands in a topic's line until what is before it is there.

    Args:
      begin: Begins to send it.
      cost: Bytes that it is charged for while it waits.
    """

    destination: "Destination"
    begin: Callable[[], Work]
    cost: int


@define(eq=False, repr=False)
class Lines:
    """The lines in front of topics, and what stands in them in order.

    A COMMIT that is carried out bit by bit stands first in those of all topics that it sends to.
    Who sends to such a topic, or subscribes, waits until there is no line. What cannot wait stands
    in it: what the store has just answered, what was due, what the broker answers.
    """

    turns: Turns
    memory: MemoryBudget
    destinations: "Destinations"
    busy: "dict[str, Destination]" = field(factory=dict)
    """Those that have a line."""
    _errands: "dict[Client | None, _Errands]" = field(factory=dict)

    def until_free(self, names: Iterable[str]) -> Work:
        """Wait until there is a line in front of none of these."""
        while any(name in self.busy for name in names):
            self.turns.stop(Stop.BLOCKED)
            yield

    def subscribe(
        self,
        places: "Sequence[Place]",
        subscribe: Callable[[], Work | None],
        receipt: bytes | None,
    ) -> Work:
        """Subscribe once no line holds back a message that the SUBSCRIBE reaches.

        So a subscriber receives all messages of a line, or none of them.
        """
        try:
            work = yield from self._subscribe_between(places, subscribe)
            if work is not None:
                yield from work
        except RemoteError as error:
            error.receipt_id = error.receipt_id or receipt
            raise

    def _subscribe_between(
        self, places: "Sequence[Place]", subscribe: Callable[[], Work | None]
    ) -> Generator[None, None, Work | None]:
        while True:
            while any(self._is_reached(place) for place in places):
                self.turns.stop(Stop.BLOCKED)
                yield
            try:
                return subscribe()
            except NotYet as later:  # others may come to stand there meanwhile
                yield from later.work

    def _is_reached(self, place: "Place") -> bool:
        name, pattern = place
        if pattern is None:
            return name in self.busy
        return len(self.busy) > MANY_NAMES or any(matches(pattern, each) for each in self.busy)

    def open(self, destinations: "Iterable[Destination]") -> None:
        """Stand first in front of topics that have no line."""
        for destination in destinations:
            self._join(destination, self)

    def close(self, destinations: "Iterable[Destination]") -> bool:
        """Leave the lines, and return whether anything waited for that."""
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
        """Send something of ``client`` to a topic as soon as it is its turn there."""
        errands = self._errands.get(client)
        if errands is None:
            errands = self._errands[client] = _Errands(self, client)
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
        """Remove the first parcel of a line after it was sent."""
        assert destination.line is not None
        destination.line.popleft()
        if not destination.line:
            destination.line = None
            del self.busy[destination.name]
            self.destinations.note_quiet(destination)

    def finished(self, parcel: Parcel) -> None:
        """Note that a parcel was sent or dropped."""
        self.memory.give_kept(parcel.cost)
        self._leave(parcel.destination)
        self.turns.awaken()

    def end(self, client: "Client | None") -> None:
        """All that a client sent is there."""
        del self._errands[client]
        self.turns.awaken()

    def has(self, client: "Client | None") -> bool:
        """Return whether anything that a client sent waits in a line."""
        return client in self._errands

    def until_sent(self, client: "Client") -> Work:
        """Wait until nothing does that a client sent."""
        while client in self._errands:
            self.turns.stop(Stop.BLOCKED)
            yield


@define(eq=False, repr=False)
class _Errands:
    """SENDs of one client that wait in a topic's line, in order: a ``Work``."""

    lines: Lines
    client: "Client | None"
    parcels: deque[Parcel] = field(factory=deque)
    _work: Work | None = None

    def __iter__(self) -> Work:
        return self

    def __next__(self) -> None:
        """Do a piece of the first of them, if that is first in its line."""
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
