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

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import define, field

from trio_stomp.store._port import Progress, Recovered, Store, StoreError
from trio_stomp.store._records import Append, Begin, Done, Keep, Put, Turn
from trio_stomp.store.tools._content import Content, content, grouped, used_id
from trio_stomp.store.tools._view import View

VERSION = 1

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
    for record in content(view, recovered, progress):
        if isinstance(record, Keep):
            yield {"type": "setting", "key": record.key, "text": record.text}
        elif isinstance(record, Put):
            yield from _message_lines(record)
        elif isinstance(record, Begin):
            state = recovered.streams[record.stream]
            yield {
                "type": "stream",
                "name": record.stream,
                "epoch": record.epoch,
                "first": record.first,
                "next": state.next,
            }
        else:
            yield from _streamed_lines(record)


def _message_lines(put: Put) -> Iterator[Line]:
    headers = to_text("headers", put.head)
    for id, body in enumerate(put.bodies, put.first):
        yield {
            "type": "message",
            "place": put.place,
            "level": put.level,
            "id": id,
            "received_ms": put.received_ms,
            "expires_ms": put.expires_ms,
            "deliveries": put.deliveries,
            **headers,
            **to_text("body", body),
        }


def _streamed_lines(record: Append) -> Iterator[Line]:
    headers = to_text("headers", record.head)
    for offset, body in enumerate(record.bodies, record.first):
        yield {
            "type": "streamed",
            "stream": record.stream,
            "offset": offset,
            "written_ms": record.written_ms,
            **headers,
            **to_text("body", body),
        }


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
    importer, commit = _Importer(), recovered.commit
    for group in grouped(importer.records(lines)):
        commit = store.append([Turn(group)], commit)
    return dict(importer.count)


@define(eq=False)
class _Importer:
    """Turns lines into records."""

    count: Counter[str] = field(factory=Counter)
    _is_begun: bool = False
    _is_ended: bool = False
    _last: dict[str, tuple[int, int]] = field(factory=dict)
    """The next offset of each stream, and the time when its last message was written."""
    _last_id: int = 0
    """The last id of the imported messages."""
    _next_id: int = 1
    """The next id of the exported store."""

    def records(self, lines: Iterable[str]) -> Iterator[Content | Done]:
        """Yield the records of lines.

        Raises:
          Malformed: A line is not part of an export, or the last is missing.
        """
        number = 0
        for number, text in enumerate(lines, 1):
            try:
                records = self._read(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Malformed(f"line {number} is not part of an export: {error!r}") from error
            yield from records
        if not self._is_ended:
            raise Malformed(
                f"the export is incomplete: its last line is missing after line {number}"
            )

    def _read(self, line: Line) -> Sequence[Content | Done]:
        kind = line["type"]
        if self._is_ended or self._is_begun is (kind == "trio_stomp"):
            raise ValueError("it precedes the first line of the export, or follows the last")
        if kind == "trio_stomp":
            return self._begin(line)
        if kind == "end":
            return self._end(line)
        self.count[kind] += 1
        if kind == "setting":
            return [Keep(line["key"], line["text"])]
        if kind == "message":
            return [self._message(line)]
        if kind == "stream":
            self._last[line["name"]] = line["first"], 0
            return [Begin(line["name"], line["epoch"], line["first"])]
        if kind == "streamed":
            return self._streamed(line)
        raise ValueError(f"its type is {kind!r}")

    def _begin(self, line: Line) -> Sequence[Content | Done]:
        self._is_begun = True
        if line["version"] != VERSION:
            raise ValueError(f"it is of version {line['version']}, this program knows {VERSION}")
        self._next_id = int(line.get("next_id", 1))
        return ()

    def _end(self, line: Line) -> Sequence[Content | Done]:
        expected = {kind: number for kind, number in line.items() if kind != "type"}
        found = {kind: number for kind, number in self.count.items() if kind != "filled"}
        if expected != found:
            raise ValueError(f"it announces {expected}, but there were {found}")
        self._is_ended = True
        return used_id(self._next_id, self._last_id)

    def _message(self, line: Line) -> Put:
        self._last_id = line["id"]
        return Put(
            line["place"],
            first=line["id"],
            head=from_text("headers", line),
            bodies=[from_text("body", line)],
            level=line["level"],
            received_ms=line["received_ms"],
            expires_ms=line["expires_ms"],
            deliveries=line["deliveries"],
        )

    def _streamed(self, line: Line) -> Sequence[Append]:
        stream, offset, written_ms = line["stream"], line["offset"], line["written_ms"]
        expected, last_ms = self._last[stream]
        if offset < expected or written_ms < last_ms:
            raise ValueError(f"{stream}: offset {offset} or its time precedes the one before it")
        self._last[stream] = offset + 1, written_ms
        head = from_text("headers", line)
        found = Append(stream, offset, head, [from_text("body", line)], written_ms)
        if not (missing := offset - expected):
            return [found]
        self.count["filled"] += missing
        return [Append(stream, expected, head, [b""] * missing, written_ms), found]
