"""The journal's index: live messages, their positions, settings and delivery counts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field

from trio_stomp.store._port import Page, Stored
from trio_stomp.store._records import SMALL, Delivered, Done, DropPlace, Keep, Put
from trio_stomp.store._runs import Row, page_of
from trio_stomp.store.journal._extents import Extent, Extents, share_for
from trio_stomp.store.journal._id_set import IdSet
from trio_stomp.store.journal.format import Run, Small

Key = tuple[str, int]
"""A place and a level."""
LEVELS = range(10)
FEW_MESSAGES = 1024
"""Up to this number, finished messages of a small place may stay in memory."""


@define(eq=False)
class SmallPlaces:
    """The live messages of small places that nobody has read yet.

    All ids for duplicate detection are read at the start. There are few for each destination,
    spread over all segments among other records, so that reading place by place would decode the
    segments many times. Replay meets them anyway.

    Args:
      live: The ids of live messages. Others are dropped now and then.
    """

    live: IdSet
    _runs: dict[Key, list[Stored]] = field(factory=dict)
    _counts: Counter[Key] = field(factory=Counter)
    """The number of ids in the runs of a place."""
    _prune_at: dict[Key, int] = field(factory=dict)

    def begin(self, key: Key) -> None:
        """Begin to keep the messages of a small place, which has none yet."""
        self._runs.setdefault(key, [])

    def holds(self, key: Key) -> bool:
        """Return whether all live messages of a place are here."""
        return key in self._runs

    def add(self, key: Key, run: Stored) -> None:
        """Add new messages of a place that is kept. They need not count as live yet."""
        if self._counts[key] >= self._prune_at.get(key, FEW_MESSAGES):
            self._prune(key)
        self._runs[key].append(run)
        self._counts[key] += len(run.ids)

    def forget(self, key: Key) -> None:
        """Keep the messages of a place no longer."""
        for kept in (self._runs, self._counts, self._prune_at):
            kept.pop(key, None)

    def runs(self, key: Key) -> list[Stored]:
        """Return the live messages of a place, in the order of their ids."""
        self._prune(key)
        return sorted(self._runs[key], key=lambda run: run.ids[0])

    def ids(self) -> IdSet:
        """Return the ids of all live messages that are kept."""
        found = IdSet()
        for key in self._runs:
            self._prune(key)
            for run in self._runs[key]:
                found.add(run.ids)
        return found

    def take(self, key: Key, deliveries: Mapping[int, int]) -> Page:
        """Return all messages of a place, and keep them no longer."""
        runs = self.runs(key)
        self.forget(key)
        if deliveries:
            return page_of(_rows(runs, deliveries), 0, True)
        return Page(runs, runs[-1].ids[-1] if runs else 0, True)

    def clear(self) -> None:
        """Keep no messages any longer."""
        for key in list(self._runs):
            self.forget(key)

    def _prune(self, key: Key) -> None:
        held = [left for run in self._runs[key] if (left := self._living(run)) is not None]
        count = sum(len(run.ids) for run in held)
        self._runs[key], self._counts[key] = held, count
        self._prune_at[key] = max(FEW_MESSAGES, 2 * count)

    def _living(self, run: Stored) -> Stored | None:
        """Return the live messages of a run, or None without any."""
        span = range(run.ids[0], run.ids[-1] + 1)
        if len(span) == len(run.ids) == self.live.count_of(span):
            return run
        left = [pair for pair in zip(run.ids, run.bodies, strict=True) if pair[0] in self.live]
        if not left:
            return None
        return evolve(run, ids=[id for id, _ in left], bodies=[body for _, body in left])


def _rows(runs: Iterable[Stored], deliveries: Mapping[int, int]) -> Iterator[Row]:
    """Yield the messages of runs, with their delivery counts."""
    for run in runs:
        shared = run.head, run.received_ms, run.expires_ms
        for id, body in zip(run.ids, run.bodies, strict=True):
            yield Row(id, body, *shared, deliveries.get(id, 0))


@define(eq=False)
class Index:
    """The index of the journal, updated with records in the order of appending or recovery.

    Args:
      live: Ids of the messages that are not finished.
      places: Extents of each place and level, which may have finished messages too.
      deliveries: Delivery counts of live messages, if not 0.
      settings: The text of each setting, and the segment of its latest record.
      dropped: Extents of dropped places whose messages still count as live, because the extents
        must be read to learn which ids belong to the place.
      expires: When the first message of each place and level expires, or earlier, in ms since 1970,
        if any expires: it is not raised when messages end.
      lost: Numbers of damaged messages that no page has reported yet.
      small: Messages of small places that were not read yet.
      next_id: Greater than every id ever used.
      extents: Number of all extents.
    """

    live: IdSet = field(factory=IdSet)
    places: dict[Key, Extents] = field(factory=dict)
    deliveries: dict[int, int] = field(factory=dict)
    settings: dict[str, tuple[str, int]] = field(factory=dict)
    dropped: list[tuple[Key, Extent]] = field(factory=list)
    expires: dict[Key, int] = field(factory=dict)
    lost: Counter[Key] = field(factory=Counter)
    next_id: int = 1
    extents: int = 0
    small: SmallPlaces = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.small = SmallPlaces(self.live)

    def put(
        self, place: str, level: int, ids: Sequence[int], extent: Extent, *, expires_ms: int
    ) -> None:
        """Add new messages of a place, which expire then; 0 = never."""
        self.live.add(ids)
        if expires_ms:
            key = place, level
            self.expires[key] = min(expires_ms, self.expires.get(key, expires_ms))
        self.add(place, level, extent)

    def keep_small(self, run: Put | Run, ids: Iterable[int], bodies: Iterable[bytes]) -> None:
        """Keep new messages if their place is small. Call this before ``put``."""
        if not run.place.startswith(SMALL):
            return
        key = run.place, run.level
        if key not in self.places:
            self.small.begin(key)
        if self.small.holds(key):
            times = run.received_ms, run.expires_ms
            self.small.add(key, Stored(list(ids), list(bodies), run.head, *times, 0))

    def add(self, place: str, level: int, extent: Extent) -> None:
        """Add an extent of live messages."""
        if extent.last >= self.next_id:
            self.next_id = extent.last + 1
        extents = self.places.get((place, level))
        if extents is None:
            extents = self.places[place, level] = Extents()
        self.extents += extents.add(extent, share_for(self.extents))

    def set_deliveries(self, ids: Sequence[int], deliveries: Sequence[int]) -> None:
        """Set the delivery counts of messages. ``()`` leaves them at 0."""
        for id, count in zip(ids, deliveries, strict=False):
            if count and id in self.live:
                self.deliveries[id] = count

    def apply(self, record: Small, segment: int) -> None:
        """Apply a record without bodies, read from the given segment."""
        match record:
            case Done(ids):
                self.finish(ids)
            case Delivered(ids):
                for id in ids:
                    if id in self.live:
                        self.deliveries[id] = self.deliveries.get(id, 0) + 1
            case DropPlace(place):
                self._drop(place)
            case Keep(key, text):
                self.settings[key] = text, segment
            case _:
                self.settings.pop(record.key, None)

    def finish(self, ids: Iterable[int]) -> None:
        """Remove finished messages."""
        sequence = ids if isinstance(ids, Sequence) else tuple(ids)
        self.live.remove(sequence)
        if self.deliveries:
            for id in sequence:
                self.deliveries.pop(id, None)

    def find(self, key: Key, after: int) -> Extent | None:
        """Return the first extent of a key that may have a live message above ``after``."""
        extents = self.places.get(key)
        if extents is None:
            return None
        self._trim(key, extents)
        for position in range(extents.position_after(after), len(extents)):
            extent = extents[position]
            if self.live.first_of(range(max(extent.first, after + 1), extent.last + 1)) is not None:
                return extent
        return None

    def get(self, key: Key, first: int) -> Extent | None:
        """Return the extent that begins with this id, or None."""
        extents = self.places.get(key)
        position = extents.find(first) if extents else -1
        return extents[position] if extents and position >= 0 else None

    def remove(self, key: Key, first: int) -> None:
        """Remove the extent that begins with this id, if it still exists."""
        extents = self.places.get(key)
        if extents is not None and (position := extents.find(first)) >= 0:
            extents.remove(position)
            self._count_down(key, extents)

    def coalesce(self) -> None:
        """Merge neighbouring extents when no others can come between them any more."""
        for extents in self.places.values():
            before = len(extents)
            extents.coalesce(share_for(self.extents))
            self.extents -= before - len(extents)

    def overlaps(self, key: Key, ids: Sequence[int]) -> bool:
        """Return whether ids overlap with those of an extent."""
        extents = self.places.get(key)
        if extents is None:
            return False
        position = extents.position_after(ids[0] - 1)
        return position < len(extents) and extents[position].first <= ids[-1]

    def in_segment(self, segment: int) -> list[tuple[Key, int]]:
        """Return the extents in a segment, by key and first id."""
        return [
            (key, first)
            for key, extents in self.places.items()
            for first in extents.firsts_in(segment)
        ]

    def settings_in(self, segment: int) -> list[Keep]:
        """Return the settings whose latest record is in a segment."""
        return [Keep(key, text) for key, (text, at) in self.settings.items() if at == segment]

    def _trim(self, key: Key, extents: Extents) -> None:
        """Remove extents without live messages from the front."""
        while len(extents) and self.live.first_of(extents[0].ids) is None:
            extents.remove(0)
            self._count_down(key, extents)

    def _count_down(self, key: Key, extents: Extents) -> None:
        self.extents -= 1
        if not len(extents):
            self.places.pop(key, None)
            self.expires.pop(key, None)

    def _drop(self, place: str) -> None:
        for level in LEVELS:
            self.small.forget((place, level))
            extents = self.places.pop((place, level), None)
            if extents is None:
                continue
            self.expires.pop((place, level), None)
            self.extents -= len(extents)
            for extent in extents:
                if extent.is_pure:
                    self.finish(extent.ids)
                elif self.live.first_of(extent.ids) is not None:
                    self.dropped.append(((place, level), extent))
