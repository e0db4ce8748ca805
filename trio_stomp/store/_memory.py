"""The reference store: dicts in memory, for tests and for programs that embed a broker."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from threading import Lock
from typing import assert_never

from attrs import define, field
from sortedcontainers import SortedDict

from trio_stomp.store._port import (
    Page,
    PlaceState,
    Progress,
    Recovered,
    StaleSequence,
    StoreStatistics,
    Streamed,
    StreamState,
)
from trio_stomp.store._records import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    Keep,
    Put,
    Record,
    Simple,
    Trim,
    Turn,
    charged_to,
    stored_cost,
)
from trio_stomp.store._runs import MAX_ROWS, Row, StreamRow, count_within, page_of, streamed_of


@define(eq=False)
class _StoredMessage:
    """A stored message: its body, and the Put that it came with."""

    put: Put
    body: bytes
    deliveries: int

    def as_row(self, id: int) -> Row:
        put = self.put
        return Row(
            id,
            body=self.body,
            head=put.head,
            received_ms=put.received_ms,
            expires_ms=put.expires_ms,
            deliveries=self.deliveries,
        )


@define(eq=False)
class _Log:
    """A stream: its Appends in order, and the first offset that has not been trimmed."""

    epoch: str
    first: int = 0
    next: int = 0
    bytes: int = 0
    appends: list[Append] = field(factory=list)

    def append(self, record: Append) -> None:
        self.appends.append(record)
        self.next = record.first + len(record.bodies)
        self.bytes += sum(map(len, record.bodies))

    def trim(self, before: int) -> None:
        before = min(before, self.next)
        trimmed = takewhile(lambda row: row.offset < before, self.read(self.first))
        self.bytes -= sum(len(row.body) for row in trimmed)
        self.first = max(self.first, before)
        count = bisect_right(self.appends, self.first, key=lambda a: a.first + len(a.bodies))
        del self.appends[:count]

    def read(self, first: int) -> Iterator[StreamRow]:
        """Yield the messages from an offset on."""
        first = max(first, self.first)
        start = bisect_right(self.appends, first, key=lambda append: append.first) - 1
        for index in range(max(start, 0), len(self.appends)):
            append = self.appends[index]
            for offset in range(max(first, append.first), append.first + len(append.bodies)):
                body = append.bodies[offset - append.first]
                yield StreamRow(offset, body, append.head, append.written_ms)

    def find(self, written_ms: int) -> int:
        index = bisect_left(self.appends, written_ms, key=lambda append: append.written_ms)
        if index == len(self.appends):
            return self.next
        return max(self.first, self.appends[index].first)


@define(eq=False)
class MemoryStore:
    """A store that keeps everything in this object, as if it were the disk.

    ``close`` and another ``recover`` simulate a restart, which drops transient messages. The
    content does not survive the process.
    """

    name: str = "stored:memory"
    _commit: int = 0
    _next_id: int = 1
    _commits: int = 0
    _bytes: int = 0
    _lanes: dict[tuple[str, int], SortedDict[int, _StoredMessage]] = field(factory=dict)
    _lane_of: dict[int, tuple[str, int]] = field(factory=dict)
    _settings: dict[str, str] = field(factory=dict)
    _logs: dict[str, _Log] = field(factory=dict)
    # Readers iterate over containers that the appending thread changes.
    _lock: Lock = field(factory=Lock)

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``Store.recover``."""
        with self._lock:
            self._remove([id for id, stored in self._messages() if stored.put.transient])
            progress(self._bytes, self._bytes)
        return self.state()

    def state(self) -> Recovered:
        """Return the present content."""
        with self._lock:
            return Recovered(
                self._commit,
                next_id=self._next_id,
                places={key: _state_of(lane) for key, lane in self._lanes.items()},
                settings=dict(self._settings),
                deliveries={
                    id: stored.deliveries for id, stored in self._messages() if stored.deliveries
                },
                streams={stream: _stream_state_of(log) for stream, log in self._logs.items()},
            )

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Implement ``Store.append``."""
        with self._lock:
            if expected != self._commit:
                raise StaleSequence(f"the last commit is {self._commit}, not {expected}")
            for turn in turns:
                for record in turn.records:
                    self._apply(record)
            self._commit += len(turns)
            self._commits += len(turns)
            return self._commit

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read``."""
        with self._lock:
            lane = self._lanes.get((place, level), SortedDict())
            ids = list(islice(lane.irange(after, inclusive=(False, False)), MAX_ROWS))
            taken = count_within((len(lane[id].body) for id in ids), limit_bytes)
            rows = [lane[id].as_row(id) for id in ids[:taken]]
        return page_of(rows, after, taken == len(ids) < MAX_ROWS)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``."""
        with self._lock:
            if (log := self._logs.get(stream)) is None:
                return []
            rows = list(islice(log.read(first), MAX_ROWS))
        taken = count_within((len(row.body) for row in rows), limit_bytes)
        return list(streamed_of(rows[:taken]))

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Implement ``Store.find_offset``, and return 0 if there is no such stream."""
        with self._lock:
            return self._logs[stream].find(written_ms) if stream in self._logs else 0

    def stream_state(self, stream: str) -> StreamState | None:
        """Implement ``Store.stream_state``."""
        with self._lock:
            return _stream_state_of(self._logs[stream]) if stream in self._logs else None

    def capacity(self) -> int:
        """Implement ``Store.capacity``. It is unknown."""
        return 0

    def statistics(self) -> StoreStatistics:
        """Implement ``Store.statistics``, counting memory as disk."""
        return StoreStatistics(
            bytes=self._bytes, live_messages=len(self._lane_of), commits=self._commits
        )

    def close(self) -> None:
        """Implement ``Store.close`` by doing nothing."""

    def _messages(self) -> Iterator[tuple[int, _StoredMessage]]:
        for lane in self._lanes.values():
            yield from lane.items()

    def _apply(self, record: Record) -> None:
        if isinstance(record, Atomic):
            for part in record.records:
                self._apply_simple(part)
        else:
            self._apply_simple(record)

    def _apply_simple(self, record: Simple) -> None:
        match record:
            case Put():
                self._put(record)
            case Done(ids):
                self._remove(ids)
            case Delivered(ids):
                for id, count in Counter(ids).items():
                    if (lane := self._lane_of.get(id)) is not None:
                        self._lanes[lane][id].deliveries += count
            case DropPlace(place):
                self._remove([id for id, lane in self._lane_of.items() if lane[0] == place])
            case Keep(key, text):
                self._settings[key] = text
            case Forget(key):
                self._settings.pop(key, None)
            case _:
                self._apply_to_stream(record)

    def _apply_to_stream(self, record: Begin | Append | Trim | DropStream) -> None:
        match record:
            case Begin(stream, epoch, first):
                self._logs[stream] = _Log(epoch, first, first)
            case Append(stream):
                self._logs[stream].append(record)
            case Trim(stream, before):
                self._logs[stream].trim(before)
            case DropStream(stream):
                self._logs.pop(stream, None)
            case _:
                assert_never(record)

    def _put(self, put: Put) -> None:
        if not put.bodies:
            return
        key = put.place, put.level
        lane = self._lanes.setdefault(key, SortedDict())
        for id, body in enumerate(put.bodies, put.first):
            lane[id] = _StoredMessage(put, body, put.deliveries)
            self._lane_of[id] = key
            self._bytes += len(body)
            self._next_id = max(self._next_id, id + 1)

    def _remove(self, ids: Iterable[int]) -> None:
        for id in ids:
            if (key := self._lane_of.pop(id, None)) is None:
                continue
            lane = self._lanes[key]
            self._bytes -= len(lane.pop(id).body)
            if not lane:
                del self._lanes[key]


def _state_of(lane: SortedDict[int, _StoredMessage]) -> PlaceState:
    size = sum(len(stored.body) for stored in lane.values())
    charged: Counter[bytes] = Counter()
    for stored in lane.values():
        if line := charged_to(stored.put.head):
            charged[line] += stored_cost(len(stored.put.head), 1, len(stored.body))
    expires_ms = min((m.put.expires_ms for m in lane.values() if m.put.expires_ms), default=0)
    return PlaceState(len(lane), size, lane.peekitem(0)[0], dict(charged), expires_ms)


def _stream_state_of(log: _Log) -> StreamState:
    return StreamState(log.epoch, log.first, log.next, log.bytes)
