"""JSON lines that transfer the content of a store to another (docs/operate/durability.md).

| ``type`` | fields |
|---|---|
| ``trio_stomp`` | the first line: ``version``, ``store``, ``commit``, ``next_id`` |
| ``setting`` | ``key``, ``text`` |
| ``message`` | ``place``, ``level``, ``id``, ``received_ms``, ``expires_ms``, ``deliveries`` |
| ``stream`` | ``name``, ``epoch``, ``first``, ``next`` |
| ``streamed`` | ``stream``, ``offset``, ``written_ms`` |
| ``end`` | the last line: the number of lines of each type |

``message`` and ``streamed`` also have ``headers`` and ``body``; or, if that is not UTF-8,
``headers_base64`` and ``body_base64``. Messages are in the order of their ids.
"""

import heapq
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import define, field

from trio_stomp.store._port import Progress, Recovered, Store, StoreError
from trio_stomp.store._records import Append, Begin, Done, Keep, Put, Record, Turn
from trio_stomp.store.tools._view import View

VERSION = 1
READ_BYTES = 32 * 1024 * 1024
"""Bytes read ahead of all places together. Pages of a place have sizes within the next bounds."""
MIN_PAGE_BYTES, MAX_PAGE_BYTES = 16 * 1024, 1024 * 1024
GROUP_BYTES = 1024 * 1024
GROUP_COUNT = 2000

Line = dict[str, Any]


class Malformed(StoreError):
    """A line is not part of an export."""


def to_text(name: str, data: bytes) -> Line:
    """Return a field of bytes, as text if it is UTF-8, else as base64."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def from_text(name: str, line: Line) -> bytes:
    """Undo ``to_text``."""
    if name in line:
        return str(line[name]).encode()
    return b64decode(line[f"{name}_base64"], validate=True)


def export_lines(view: View, recovered: Recovered, progress: Progress) -> Iterator[str]:
    """Yield the content of a store as lines of JSON, without line ends.

    Args:
      view: The view of the store.
      recovered: The result of ``view.recover``.
      progress: Called with the bytes of bodies.

    Raises:
      StoreError: the store cannot be read.
    """
    count: Counter[str] = Counter()
    for line in _lines(view, recovered, progress):
        count[line["type"]] += 1
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    del count["trio_stomp"]
    yield json.dumps({"type": "end", **dict(sorted(count.items()))}, separators=(",", ":"))


def _lines(view: View, recovered: Recovered, progress: Progress) -> Iterator[Line]:
    yield {
        "type": "trio_stomp",
        "version": VERSION,
        "store": view.name,
        "commit": recovered.commit,
        "next_id": recovered.next_id,
    }
    for key, text in sorted(recovered.settings.items()):
        yield {"type": "setting", "key": key, "text": text}
    total = sum(place.bytes for place in recovered.places.values())
    total += sum(stream.bytes for stream in recovered.streams.values())
    done = 0
    share = READ_BYTES // max(len(recovered.places), 1)
    page_bytes = min(max(share, MIN_PAGE_BYTES), MAX_PAGE_BYTES)
    levels = [_messages(view, *key, page_bytes) for key in sorted(recovered.places)]
    # Ids ascend in order of acceptance, across all places.
    for _, size, line in heapq.merge(*levels, key=lambda entry: entry[0]):
        done += size
        progress(done, total)
        yield line
    for name, state in sorted(recovered.streams.items()):
        yield {
            "type": "stream",
            "name": name,
            "epoch": state.epoch,
            "first": state.first,
            "next": state.next,
        }
        for line, size in _streamed(view, name, state.first, state.next):
            done += size
            progress(min(done, total), total)
            yield line
    progress(total, total)


def _messages(
    view: View, place: str, level: int, page_bytes: int
) -> Iterator[tuple[int, int, Line]]:
    """Yield the messages of a place's level: id, size of the body, line."""
    after, is_last = 0, False
    while not is_last:
        page = view.read(place, level, after, page_bytes)
        after, is_last = page.next, page.is_last
        for run in page.runs:
            for id, body in zip(run.ids, run.bodies, strict=True):
                line = {
                    "type": "message",
                    "place": place,
                    "level": level,
                    "id": id,
                    "received_ms": run.received_ms,
                    "expires_ms": run.expires_ms,
                    "deliveries": run.deliveries,
                    **to_text("headers", run.head),
                    **to_text("body", body),
                }
                yield id, len(body), line


def _streamed(view: View, stream: str, first: int, end: int) -> Iterator[tuple[Line, int]]:
    while first < end and (runs := view.read_stream(stream, first, MAX_PAGE_BYTES)):
        for run in runs:
            for offset, body in enumerate(run.bodies, run.first):
                line = {
                    "type": "streamed",
                    "stream": stream,
                    "offset": offset,
                    "written_ms": run.written_ms,
                    **to_text("headers", run.head),
                    **to_text("body", body),
                }
                yield line, len(body)
            first = run.first + len(run.bodies)


def import_lines(store: Store, lines: Iterable[str]) -> dict[str, int]:
    """Import an export into an empty store, which stays open.

    Returns:
      The number of lines of each type; and ``filled``, the number of missing offsets within
      streams, which became empty messages.

    Raises:
      StoreError: the store is not empty or cannot be written, or the export is malformed or
        incomplete. Earlier lines are in the store then.
    """
    recovered = store.recover(lambda _done, _total: None)
    if recovered.places or recovered.settings or recovered.streams:
        raise StoreError("this store is not empty: import into a new directory or database")
    importer = _Importer(store, recovered.commit)
    number = 0
    for number, text in enumerate(lines, 1):
        try:
            importer.take(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Malformed(f"line {number} is not part of an export: {error!r}") from error
    if not importer.is_ended:
        raise Malformed(f"the export is incomplete: its last line is missing after line {number}")
    importer.flush()
    return dict(importer.count)


@define(eq=False)
class _Importer:
    """Turns lines into records, and stores them in groups."""

    _store: Store
    _commit: int
    count: Counter[str] = field(factory=Counter)
    is_ended: bool = False
    _is_begun: bool = False
    _records: list[Record] = field(factory=list)
    _size: int = 0
    _last: dict[str, tuple[int, int]] = field(factory=dict)
    """The next offset of each stream, and the time when its last message was written."""
    _last_id: int = 0
    """The last id of the imported messages."""
    _used_id: int = 0
    """The last id that was ever used in the exported store."""

    def take(self, line: Line) -> None:
        """Add a line."""
        kind = line["type"]
        if self.is_ended or self._is_begun is (kind == "trio_stomp"):
            raise ValueError("it precedes the first line of the export, or follows the last")
        if kind == "trio_stomp":
            self._begin(line)
        elif kind == "end":
            self._end(line)
        else:
            self.count[kind] += 1
            self._add(kind, line)
            if self._size >= GROUP_BYTES or len(self._records) >= GROUP_COUNT:
                self.flush()

    def _begin(self, line: Line) -> None:
        self._is_begun = True
        if line["version"] != VERSION:
            raise ValueError(f"it is of version {line['version']}, this program knows {VERSION}")
        self._used_id = int(line.get("next_id", 1)) - 1

    def _end(self, line: Line) -> None:
        expected = {kind: number for kind, number in line.items() if kind != "type"}
        found = {kind: number for kind, number in self.count.items() if kind != "filled"}
        if expected != found:
            raise ValueError(f"it announces {expected}, but there were {found}")
        self.is_ended = True
        if self._used_id > self._last_id:
            # Message ids contain these ids, which must never be used again.
            used = Put("import:", self._used_id, b"", [b""])
            self._records += used, Done([self._used_id])

    def _add(self, kind: str, line: Line) -> None:
        if kind == "setting":
            self._records.append(Keep(line["key"], line["text"]))
        elif kind == "message":
            self._add_message(line)
        elif kind == "stream":
            self._records.append(Begin(line["name"], line["epoch"], line["first"]))
            self._last[line["name"]] = line["first"], 0
            # Later records must be in another append than the beginning of their stream.
            self.flush()
        elif kind == "streamed":
            self._add_streamed(line)
        else:
            raise ValueError(f"its type is {kind!r}")

    def _add_message(self, line: Line) -> None:
        head, body = from_text("headers", line), from_text("body", line)
        shared = (line["place"], head, line["level"], line["received_ms"], line["expires_ms"])
        self._size += len(body)
        self._last_id = line["id"]
        last = self._records[-1] if self._records else None
        if isinstance(last, Put) and isinstance(last.bodies, list):
            previous = (last.place, last.head, last.level, last.received_ms, last.expires_ms)
            follows = last.first + len(last.bodies) == line["id"]
            if previous == shared and follows and last.deliveries == line["deliveries"]:
                last.bodies.append(body)
                return
        place, head, level, received_ms, expires_ms = shared
        deliveries = line["deliveries"]
        self._records.append(
            Put(
                place,
                first=line["id"],
                head=head,
                bodies=[body],
                level=level,
                received_ms=received_ms,
                expires_ms=expires_ms,
                deliveries=deliveries,
            )
        )

    def _add_streamed(self, line: Line) -> None:
        stream, offset, written_ms = line["stream"], line["offset"], line["written_ms"]
        head, body = from_text("headers", line), from_text("body", line)
        expected, last_ms = self._last[stream]
        if offset < expected or written_ms < last_ms:
            raise ValueError(f"{stream}: offset {offset} or its time precedes the one before it")
        if missing := offset - expected:
            self.count["filled"] += missing
            self._records.append(Append(stream, expected, head, [b""] * missing, written_ms))
        self._last[stream] = offset + 1, written_ms
        self._size += len(body)
        last = self._records[-1] if self._records else None
        if not missing and isinstance(last, Append) and isinstance(last.bodies, list):
            is_like = (last.stream, last.head, last.written_ms) == (stream, head, written_ms)
            if is_like:
                last.bodies.append(body)
                return
        self._records.append(Append(stream, offset, head, [body], written_ms))

    def flush(self) -> None:
        """Store the gathered records."""
        if self._records:
            self._commit = self._store.append([Turn(self._records)], self._commit)
            self._records, self._size = [], 0
