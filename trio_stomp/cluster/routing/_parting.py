"""The content of one store as that of several partitions: each thing goes where clients find it.

Handles: a view of the part for each partition, or of the stores that a node with partitions has.
Does not handle: reading a store, writing a partition; see ``store.tools`` and ``move_in``.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field

from trio_stomp.base import OptionError
from trio_stomp.broker import FORWARDS
from trio_stomp.broker.durability import IDENTITY
from trio_stomp.broker.headers import Dialect, decode_head, resolve, routing_of
from trio_stomp.broker.managing import DECLARED
from trio_stomp.broker.names import DIAG_STREAM
from trio_stomp.broker.queues import PLACE as QUEUE
from trio_stomp.broker.sending import SCHEDULED, SEEN
from trio_stomp.broker.streams import FIRST
from trio_stomp.broker.topics import PLACE as RETAINED
from trio_stomp.broker.topics import PREFIX as DURABLE
from trio_stomp.cluster.routing._placement import Placement, mark
from trio_stomp.store import Page, PlaceState, Progress, Recovered, Stored, Streamed
from trio_stomp.store.tools import View

PAGE_BYTES = 1024 * 1024
_NAMED = (QUEUE, RETAINED, SEEN, DECLARED, FIRST)
"""Prefixes of places and settings that end with the name of a destination or stream."""
_WILD = re.compile(r"[*>#]")
_MARK = re.compile(r"\d{1,3}_")

Key = tuple[str, int]
"""A place and a level."""


def _ignore(_done: int, _total: int) -> None:
    """Ignore progress."""


@define(eq=False, repr=False)
class Parting:
    """Assigns the content of a store to partitions. ``part`` returns what one of them gets.

    Args:
      view: A view of the store, not recovered yet.
      placement: Which partition has a destination.
      dialect: The dialect in which clients named the destinations of scheduled messages.

    Raises:
      StoreError: The store cannot be read.
      OptionError: A scheduled message is for several partitions.
    """

    view: View
    placement: Placement
    dialect: Dialect
    _recovered: Recovered = field(init=False)
    _durables: dict[str, tuple[int, ...]] = field(factory=dict)
    """The partitions of each durable subscription, by its place."""
    _mixed: dict[Key, dict[int, PlaceState]] = field(factory=dict)
    """The parts of places whose messages are for several partitions."""
    _scheduled: list[tuple[int, int]] = field(factory=list)
    """Id and partition of scheduled messages."""

    def __attrs_post_init__(self) -> None:
        self._recovered = self.view.recover(_ignore)
        for key, text in self._recovered.settings.items():
            if key.startswith(DURABLE):
                self._durables[key] = self._of_durable(json.loads(text)["destinations"])
        for place, level in self._recovered.places:
            if self._is_mixed(place):
                self._count(place, level)

    def part(self, partition: int) -> "PartView":
        """Return a view of what a partition gets."""
        return PartView(self, partition)

    def recovered(self, partition: int) -> Recovered:
        """Return the content of a partition."""
        all_ = self._recovered
        places: dict[Key, PlaceState] = {}
        for key, state in all_.places.items():
            if self._is_mixed(key[0]):
                part = self._mixed[key].get(partition)
            else:
                part = state if self._has(partition, key[0]) else None
            if part is not None:
                places[key] = part
        return evolve(
            all_,
            places=places,
            settings=dict(self._settings(partition)),
            streams={
                name: state
                for name, state in all_.streams.items()
                if self.placement.of(name) == partition
            },
        )

    def owner(self) -> int | None:
        """Return the partition whose store this is, or None if it is of a broker without any."""
        identity = self._recovered.settings.get(IDENTITY, "")
        return self.placement.marked(identity) if self.placement.is_marked(identity) else None

    def misplaced(self, partition: int) -> str:
        """Return something that the store of a partition cannot have, or "".

        A queue may be in any, since dead letters stay in the partition of their origin.
        """
        all_ = self._recovered
        names = [each for each in all_.streams if each != DIAG_STREAM]
        for prefix in (RETAINED, DECLARED):
            for key in (*(place for place, _ in all_.places), *all_.settings):
                names += [key.removeprefix(prefix)] if key.startswith(prefix) else []
        return next((each for each in names if self.placement.of(each) != partition), "")

    def whole(self) -> Recovered:
        """Return the content of the store."""
        return self._recovered

    def keeps(self, partition: int, place: str, run: Stored) -> bool:
        """Return whether messages of a place are for a partition."""
        return not self._is_mixed(place) or self._of_message(place, run) == partition

    def _settings(self, partition: int) -> Iterator[tuple[str, str]]:
        for key, text in self._recovered.settings.items():
            if key == IDENTITY:
                # Clients' ACKs name messages by ids that begin with the partition.
                yield key, mark(partition) + _MARK.sub("", text, count=1)
            elif key.startswith(SCHEDULED):
                last = int(json.loads(text)["last"])
                first = int(key.removeprefix(SCHEDULED))
                if any(first <= id <= last and of == partition for id, of in self._scheduled):
                    yield key, text
            elif not key.startswith((*_NAMED, DURABLE)) or self._has(partition, key):
                yield key, text

    def _has(self, partition: int, key: str) -> bool:
        """Return whether a partition gets a place or setting as a whole."""
        if key.startswith(DURABLE):
            return partition in self._durables.get(key, (0,))
        if key == FORWARDS:
            # Others may know its messages by ids with the partition that had them.
            return self.placement.marked(self._recovered.settings.get(IDENTITY, "")) == partition
        for prefix in _NAMED:
            if key.startswith(prefix):
                return self.placement.of(key.removeprefix(prefix)) == partition
        return partition == 0

    def _of_durable(self, names: Sequence[str]) -> tuple[int, ...]:
        if any(map(_WILD.search, names)):
            return self.placement.all
        return tuple(sorted({self.placement.of(name) for name in names}))

    def _is_mixed(self, place: str) -> bool:
        return place == SCHEDULED or len(self._durables.get(place, ())) > 1

    def _count(self, place: str, level: int) -> None:
        """Count the messages of a place for each partition."""
        found: dict[int, PlaceState] = {}
        after, is_last = 0, False
        while not is_last:
            page = self.view.read(place, level, after, PAGE_BYTES)
            for run in page.runs:
                partition = self._of_message(place, run)
                state = found.get(partition, PlaceState(0, 0, run.ids[0]))
                found[partition] = evolve(
                    state,
                    count=state.count + len(run.ids),
                    bytes=state.bytes + sum(map(len, run.bodies)),
                )
                if place == SCHEDULED:
                    self._scheduled += [(id, partition) for id in run.ids]
            after, is_last = page.next, page.is_last
        self._mixed[place, level] = found

    def _of_message(self, place: str, run: Stored) -> int:
        """Return the partition of messages of a mixed place.

        Raises:
          OptionError: They are scheduled for several.
        """
        head = decode_head(run.head)
        names = resolve(head.destination or "", self.dialect, routing_of(head.headers))
        partitions: dict[int, None] = dict.fromkeys(map(self.placement.of, names))
        if place == SCHEDULED and len(partitions) > 1:
            raise OptionError(
                f"the scheduled message {run.ids[0]} is for {(head.destination or '')[:80]}, which"
                f" lies in the partitions {', '.join(map(str, partitions))}: name its destinations"
                " in one group of --cluster-colocate, or cancel it at the broker (trio-stomp"
                " cancel)"
            )
        return next(iter(partitions))


@define(eq=False, repr=False)
class PartView:
    """A view of what one partition gets. Implements ``View``.

    Args:
      whole: The whole store.
      partition: The partition.
      is_all: It gets all, since the store is its own.
    """

    whole: Parting
    partition: int
    is_all: bool = False
    name: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.name = self.whole.view.name

    def fix(self) -> None:
        """Implement ``View.fix``: nobody uses the store."""

    def recover(self, _progress: Progress) -> Recovered:
        """Implement ``View.recover``."""
        return self.whole.whole() if self.is_all else self.whole.recovered(self.partition)

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``View.read``."""
        page = self.whole.view.read(place, level, after, limit_bytes)
        if self.is_all:
            return page
        keeps = self.whole.keeps
        return evolve(page, runs=[run for run in page.runs if keeps(self.partition, place, run)])

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``View.read_stream``."""
        return self.whole.view.read_stream(stream, first, limit_bytes)

    def take_damage(self) -> list[str]:
        """Implement ``View.take_damage``."""
        return self.whole.view.take_damage()

    def files(self) -> list[tuple[str, int]]:
        """Implement ``View.files``."""
        return self.whole.view.files()

    def close(self) -> None:
        """Implement ``View.close``: the whole store is closed elsewhere."""


def parts_of(wholes: Mapping[str, Parting], placement: Placement) -> list[PartView]:
    """Return the stores of all partitions, in their order, each with all that it has.

    Args:
      wholes: The stores, by the names that the operator gave.
      placement: Which partition has a destination.

    Raises:
      OptionError: They are not the stores of all partitions.
    """
    names: dict[int, str] = {}
    for name, whole in wholes.items():
        number = whole.owner()
        if number is None:
            raise OptionError(
                f"{name} is not the store of one of {placement.partitions} partitions: only the"
                " stores of all partitions of one node can be imported together, since the ids of"
                " others collide"
            )
        if number in names:
            raise OptionError(f"{names[number]} and {name} are both of partition {number}")
        if wrong := whole.misplaced(number):
            raise OptionError(
                f"{name} is of partition {number}, but has {wrong[:80]}, which is placed in"
                f" {placement.of(wrong)}: give --cluster-partitions and --cluster-colocate as for"
                " the nodes from which it comes"
            )
        names[number] = name
    if lacking := [f"{each}" for each in placement.all if each not in names]:
        raise OptionError(f"the store of partition {', '.join(lacking)} is missing: give it, too")
    return [PartView(wholes[names[each]], each, is_all=True) for each in placement.all]
