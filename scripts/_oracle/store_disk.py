"""A disk that records what was synced, fails on request, and can lose its power."""

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence

from attrs import define, field

from trio_stomp.store import (
    Atomic,
    Delivered,
    Done,
    DropPlace,
    Forget,
    JournalOptions,
    JournalStore,
    Keep,
    Put,
    Record,
    Recovered,
    Turn,
)

SECTOR = 512
EVERYTHING = 1 << 40


@define(eq=False)
class File:
    """A file: its content for readers, its content on the disk, and the changes in between."""

    data: bytearray = field(factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(factory=list)
    """Offset and bytes; None instead of bytes for a truncation."""
    is_dropped: bool = False
    """A sync failed: pending changes are never written, though they can be read."""


@define(eq=False, slots=False)
class Disk:
    """Files in memory.

    ``faults`` has, by method, the exceptions to raise; None lets one call succeed.
    """

    files: dict[str, File] = field(factory=dict)
    durable_names: dict[str, File] = field(factory=dict)
    directories: set[str] = field(factory=set)
    faults: dict[str, list[OSError | None]] = field(factory=dict)
    calls: list[str] = field(factory=list)
    watcher: Callable[[], None] = lambda: None
    """Called before each change."""
    _handles: dict[int, tuple[str, File]] = field(factory=dict)
    _next_handle: int = 1000

    def fail(self, method: str, *errors: int) -> None:
        """Make the next calls of a method fail with these errors. 0 lets one call pass."""
        self.faults[method] = [OSError(e, os.strerror(e)) if e else None for e in errors]

    def _enter(self, method: str, _path: str) -> None:
        self.calls.append(method)
        if method in ("create", "write", "truncate", "sync", "sync_directory", "remove"):
            self.watcher()
        faults = self.faults.get(method)
        if faults and (fault := faults.pop(0)) is not None:
            raise fault

    def _open(self, path: str, file: File) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = path, file
        return self._next_handle

    @property
    def open_files(self) -> list[str]:
        return [path for path, _ in self._handles.values()]

    def create(self, path: str) -> int:
        self._enter("create", path)
        if path in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        file = self.files[path] = File()
        return self._open(path, file)

    def open(self, path: str) -> int:
        self._enter("open", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._open(path, self.files[path])

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        path, file = self._handles[handle]
        data = b"".join(buffers)
        try:
            self._enter("write", path)
        except BaseException:
            # The disk was full in the middle of it.
            self._change(file, offset, data[: len(data) // 2])
            raise
        self._change(file, offset, data)

    def _change(self, file: File, offset: int, data: bytes) -> None:
        apply(file.data, offset, data)
        file.changes.append((offset, data))

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path, file = self._handles[handle]
        self._enter("read", path)
        return bytes(file.data[offset : offset + size])

    def sync(self, handle: int) -> None:
        path, file = self._handles[handle]
        try:
            self._enter("sync", path)
        except BaseException:
            file.is_dropped = True
            raise
        if not file.is_dropped:
            file.durable = bytes(file.data)
            file.changes.clear()

    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory", path)
        below = f"{path}/"
        kept = {n: f for n, f in self.durable_names.items() if not n.startswith(below)}
        now = {name: file for name, file in self.files.items() if name.startswith(below)}
        self.durable_names = kept | now

    def truncate(self, handle: int, size: int) -> None:
        path, file = self._handles[handle]
        self._enter("truncate", path)
        apply(file.data, size, None)
        file.changes.append((size, None))

    def size(self, handle: int) -> int:
        path, file = self._handles[handle]
        self._enter("size", path)
        return len(file.data)

    def forget_cached(self, handle: int) -> None:
        path, file = self._handles[handle]
        self._enter("forget_cached", path)
        if file.is_dropped:
            file.data[:] = file.durable
            file.changes.clear()
            file.is_dropped = False

    def close(self, handle: int) -> None:
        del self._handles[handle]

    def remove(self, path: str) -> None:
        self._enter("remove", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self.files[path]

    def rename(self, old: str, new: str) -> None:
        self._enter("rename", old)
        self.files[new] = self.files.pop(old)

    def names(self, path: str) -> list[str]:
        self._enter("names", path)
        below = f"{path}/"
        found = (name for name in (*self.files, *self.directories) if name.startswith(below))
        return list({name.removeprefix(below).split("/")[0] for name in found})

    def make_directory(self, path: str) -> None:
        self._enter("make_directory", path)
        self.directories.add(path)

    def cut_power(self, chance: random.Random, written: float) -> "Disk":
        """Return the disk as it may be after a power cut.

        Args:
          written: The probability that an unsynced sector, size or name is on the disk.
        """

        def is_written() -> bool:
            return chance.random() < written

        after = Disk()
        for name in sorted(self.files.keys() | self.durable_names.keys()):
            file = self.files.get(name)
            durable = self.durable_names.get(name)
            if file is not durable:
                file = file if is_written() else durable
            if file is not None:
                after.files[name] = filled(cut_file(file, is_written))
        after.durable_names = dict(after.files)
        return after


def cut_file(file: File, is_written: Callable[[], bool]) -> bytes:
    data = bytearray(file.durable)
    for offset, change in file.changes:
        if change is None:
            if is_written():
                apply(data, offset, None)
            continue
        end = offset + len(change)
        if is_written() and len(data) < end:
            data.extend(bytes(end - len(data)))
        at = offset
        while at < end:
            stop = min((at // SECTOR + 1) * SECTOR, end)
            if is_written():
                apply(data, at, change[at - offset : stop - offset])
            at = stop
    return bytes(data)


def apply(data: bytearray, offset: int, change: bytes | None) -> None:
    if change is None:
        del data[offset:]
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(change)] = change


def filled(data: bytes) -> File:
    return File(bytearray(data), data)


def open_store(
    directory: str, disk: Disk | None = None, segment_bytes: int = 4096, max_store_bytes: int = 0
) -> tuple[JournalStore, Recovered]:
    options = JournalOptions(segment_bytes, max_store_bytes)
    store = JournalStore(directory, disk, options)
    return store, store.recover(lambda _done, _size: None)


Messages = dict[tuple[str, int], dict[int, tuple[bytes, int]]]


def read_all(store: JournalStore, recovered: Recovered, limit_bytes: int = EVERYTHING) -> Messages:
    """Return all messages with their deliveries, by key and id, and check the counts."""
    found = {}
    for key, state in recovered.places.items():
        messages = read_place(store, *key, limit_bytes=limit_bytes)
        assert state.count == len(messages)
        assert state.bytes == sum(len(body) for body, _ in messages.values())
        assert state.first == next(iter(messages))
        found[key] = messages
    return found


def read_place(
    store: JournalStore, place: str, level: int = 4, after: int = 0, limit_bytes: int = EVERYTHING
) -> dict[int, tuple[bytes, int]]:
    found: dict[int, tuple[bytes, int]] = {}
    while True:
        page = store.read(place, level, after, limit_bytes)
        for run in page.runs:
            assert len(run.ids) == len(run.bodies) > 0
            for id, body in zip(run.ids, run.bodies, strict=True):
                assert id > after
                after = id
                found[id] = body, run.deliveries
        assert page.next >= after
        after = page.next
        if page.is_last:
            return found


@define(eq=False)
class Model:
    """The expected content of a store."""

    places: Messages = field(factory=dict)
    settings: dict[str, str] = field(factory=dict)
    transient: set[int] = field(factory=set)

    def copy(self) -> "Model":
        places = {key: dict(messages) for key, messages in self.places.items()}
        return Model(places, dict(self.settings), set(self.transient))

    def apply(self, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case Atomic(parts):
                    self.apply(parts)
                case Put():
                    self._put(record)
                case Done(ids):
                    self._remove(ids)
                case Delivered(ids):
                    self._deliver(ids)
                case DropPlace(place):
                    for key in [key for key in self.places if key[0] == place]:
                        del self.places[key]
                case Keep(key, text):
                    self.settings[key] = text
                case Forget(key):
                    self.settings.pop(key, None)

    def _put(self, put: Put) -> None:
        messages = self.places.setdefault((put.place, put.level), {})
        for id, body in enumerate(put.bodies, put.first):
            messages[id] = body, put.deliveries
            if put.transient:
                self.transient.add(id)

    def _remove(self, ids: Sequence[int]) -> None:
        for messages in self.places.values():
            for id in ids:
                messages.pop(id, None)
        self.places = {key: messages for key, messages in self.places.items() if messages}

    def _deliver(self, ids: Sequence[int]) -> None:
        for messages in self.places.values():
            for id in ids:
                if id in messages:
                    body, deliveries = messages[id]
                    messages[id] = body, deliveries + 1

    def restart(self) -> None:
        self._remove(sorted(self.transient))
        self.transient = set()

    @property
    def ids(self) -> list[int]:
        return [id for messages in self.places.values() for id in messages]


def some_turns(chance: random.Random, count: int) -> Iterator[Turn]:
    """Yield turns of a small broker, each with its records."""
    model, id = Model(), 1
    for number in range(count):
        records: list[Record] = []
        for _ in range(chance.randint(1, 3)):
            size = chance.choice((1, 1, 2, 5))
            bodies = [b"%d" % (id + n) * chance.randint(1, 30) for n in range(size)]
            put = Put(chance.choice("ab"), id, b"head", bodies, level=chance.choice((4, 4, 5)))
            id += size
            waiting = model.ids
            done = Done(sorted(chance.sample(waiting, min(len(waiting), 2))))
            kept = Keep(chance.choice("kl"), str(number))
            kinds: dict[str, Record] = {
                "p": put,
                "d": done,
                "a": Atomic([put, done]),
                "k": kept,
                "f": Forget(kept.key),
            }
            record = kinds[chance.choice("ppddakf")]
            records.append(record)
            model.apply([record])
        yield Turn(records, chance.random() < 0.7)
