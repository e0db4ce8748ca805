"""A read-only view of a store at one moment, beside a running broker."""

import errno
import os
from collections.abc import Sequence
from typing import Protocol

from trio_stomp.store._port import Page, Progress, Recovered, StoreError, Streamed
from trio_stomp.store.disk import OsFiles
from trio_stomp.store.journal import Shared, list_segments, replay, summarize
from trio_stomp.store.streams import Streams

TRIES = 100
DATA = (".log", ".packed")


class View(Protocol):
    """The read-only part of ``Store``, for tools."""

    name: str

    def fix(self) -> None:
        """Show the store as it is now, even if it is appended to. Nobody may append meanwhile.

        Without this, streams may show more than the places.

        Raises:
          StoreError: the store cannot be read.
        """

    def recover(self, progress: Progress) -> Recovered:
        """Return the content. Call this once, before all other methods.

        Raises:
          StoreError: the store cannot be read.
        """

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Read messages as ``Store.read`` does, without transient ones."""

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``."""

    def take_damage(self) -> list[str]:
        """Return a line for each damaged part found since the last call."""

    def files(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the store's files, or [] if unknown."""

    def close(self) -> None:
        """Close everything."""


def open_view(target: str) -> View:
    """Return a view of a directory, or of the database of a URL.

    Raises:
      StoreError: there is no such store, or its driver is not installed.
    """
    if "://" not in target:
        return JournalView(target)
    try:
        from trio_stomp.store.tools._view_sql import SqlView
    except ModuleNotFoundError as error:
        raise StoreError(f"{error}: pip install 'trio-stomp[sql]'") from error
    return SqlView(target)


class PinnedFiles(OsFiles):
    """Read-only files, each open from the moment its directory is listed.

    So files that a broker deletes meanwhile can still be read. Nothing is written: repairs and
    deletions have no effect, and damaged bytes are not copied.
    """

    def __init__(self) -> None:
        self._pinned: dict[str, int] = {}
        self._fixed: dict[str, list[str]] = {}
        """The names in directories that ``fix`` has listed."""
        self._sizes: dict[str, int] = {}
        self._opened: dict[int, int] = {}
        """The sizes that handles of fixed files show."""

    def fix(self, path: str) -> list[str]:
        """Show a directory's files as they are now, whatever is appended to them."""
        names = self._fixed[path] = self.names(path)
        for name in names:
            handle = self._pinned.get(f"{path}/{name}")
            if handle is not None:
                self._sizes[f"{path}/{name}"] = os.fstat(handle).st_size
        return names

    def size(self, handle: int) -> int:
        """Implement ``Files.size``."""
        fixed = self._opened.get(handle)
        return super().size(handle) if fixed is None else fixed

    def close(self, handle: int) -> None:
        """Implement ``Files.close``."""
        self._opened.pop(handle, None)
        super().close(handle)

    def names(self, path: str) -> list[str]:
        """Implement ``Files.names``. A missing directory has no names."""
        if path in self._fixed:
            return self._fixed[path]
        for _ in range(TRIES):
            try:
                return self._pin(path)
            except FileNotFoundError:
                # A file was deleted after the listing. Its replacement exists by now.
                self.close_all(path)
                if not os.path.isdir(path):
                    return []
        raise OSError(errno.EBUSY, "its files change too fast", path)

    def _pin(self, path: str) -> list[str]:
        names = os.listdir(path)
        for name in names:
            file = f"{path}/{name}"
            if name.endswith(DATA) and file not in self._pinned:
                self._pinned[file] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        return names

    def close_all(self, directory: str = "") -> None:
        """Close the files of a directory, or all files without one."""
        for path in [path for path in self._pinned if path.startswith(directory)]:
            os.close(self._pinned.pop(path))

    def sizes(self) -> list[tuple[str, int]]:
        """Return the sizes of all files, by path."""
        return sorted((path, os.fstat(handle).st_size) for path, handle in self._pinned.items())

    def open(self, path: str) -> int:
        """Implement ``Files.open``, for reading."""
        pinned = self._pinned.get(path)
        if pinned is None:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        handle = os.dup(pinned)
        if path in self._sizes:
            self._opened[handle] = self._sizes[path]
        return handle

    def create(self, path: str) -> int:
        """Raise OSError: the store is read-only."""
        raise OSError(errno.EROFS, "the store is open for reading only", path)

    def write(self, _handle: int, _offset: int, _buffers: Sequence[bytes]) -> None:
        """Raise OSError: the store is read-only."""
        raise OSError(errno.EROFS, "the store is open for reading only")

    def make_directory(self, path: str) -> None:
        """Do nothing."""

    def truncate(self, handle: int, size: int) -> None:
        """Do nothing."""

    def remove(self, path: str) -> None:
        """Do nothing."""

    def rename(self, old: str, new: str) -> None:
        """Do nothing."""

    def sync(self, handle: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


class JournalView:
    """The view of a journal's directory."""

    name = "journal"

    def __init__(self, directory: str) -> None:
        self._directory = directory.rstrip("/") or "/"
        if not os.path.isdir(f"{self._directory}/journal"):
            raise StoreError(f"{directory} holds no journal: name the --data-dir of a broker")
        self._files = PinnedFiles()
        self._shared = Shared(self._directory, self._files)
        self._streams = Streams(f"{self._directory}/streams", self._files)
        self._damage: list[str] = []
        self._reported = 0

    def fix(self) -> None:
        """Implement ``View.fix``."""
        try:
            self._files.fix(self._shared.journal)
            streams = f"{self._directory}/streams"
            for name in self._files.fix(streams):
                if os.path.isdir(f"{streams}/{name}"):
                    self._files.fix(f"{streams}/{name}")
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be read: {error}") from error

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``View.recover``."""
        shared = self._shared
        try:
            segments = list_segments(self._files, shared.journal)
            found = replay(self._files, segments, shared.quarantine, progress)
            shared.index = index = found.index
            shared.segments = {segment.number: segment for segment in segments}
            places = summarize(index, shared.read_extent)
            damage, _ = self._streams.open(found.journal_state(segments))
            self._damage = found.damage + damage
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be read: {error}") from error
        self._reported = shared.quarantine.found + self._streams.damaged
        return Recovered(
            commit=found.commit,
            next_id=index.next_id,
            places=places,
            settings={key: text for key, (text, _) in index.settings.items()},
            deliveries=dict(index.deliveries),
            streams=self._streams.states(),
            damage=list(self._damage),
        )

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``View.read``."""
        return self._shared.read((place, level), after, limit_bytes)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``View.read_stream``."""
        log = self._streams.get(stream)
        try:
            return [] if log is None else log.read(first, limit_bytes)
        except OSError as error:
            raise StoreError(f"{self._directory}/streams cannot be read: {error}") from error

    def take_damage(self) -> list[str]:
        """Implement ``View.take_damage``: damage found by opening, then by reading streams."""
        lines, self._damage = self._damage, []
        for name in self._streams.states():
            log = self._streams.get(name)
            lines += log.take_damage() if log is not None else []
        return [line.partition("; they cannot be copied")[0] for line in lines]

    def files(self) -> list[tuple[str, int]]:
        """Implement ``View.files``."""
        start = len(self._directory) + 1
        return [(path[start:], size) for path, size in self._files.sizes()]

    def close(self) -> None:
        """Implement ``View.close``."""
        self._streams.close()
        self._files.close_all()
