"""The port between the core and the store that keeps its messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import Factory, frozen

from trio_stomp.base import value
from trio_stomp.store._records import Turn


class StoreError(Exception):
    """A store operation failed. The text names the file or database, the cause and the remedy."""


class StoreUnavailable(StoreError):
    """The disk or database failed, and nothing of the append was stored. Try again."""


class StoreBroken(StoreError):
    """The store no longer knows the state on the disk, and must be reopened."""


class StoreLocked(StoreError):
    """Another broker uses the store."""


class StaleSequence(StoreError):
    """Another writer has appended: the expected commit number is not the store's."""


Charged = Mapping[bytes, int]
"""The cost of messages, by the line that names who is charged."""


@frozen
class PlaceState:
    """The messages in one level of a place, after recovery.

    Args:
      count: Messages.
      bytes: Of their bodies.
      first: Id of the first one.
      charged: What they cost (``stored_cost``), by the line that tells who is charged for them; of
        nobody's it does not tell.
    """

    count: int
    bytes: int
    first: int
    charged: Charged = Factory(dict)


@frozen
class StreamState:
    """A stream, after recovery.

    Args:
      first: Offset of the oldest message; equals ``next`` if there is none.
      next: Offset of the message to come.
      bytes: On disk.
    """

    epoch: str
    first: int
    next: int
    bytes: int


@frozen
class Recovered:
    """The state that a store holds.

    Args:
      commit: Number of the last commit; 0 = none.
      next_id: Greater than every message id ever used.
      places: By key and level; only those with messages.
      settings: Those set by ``Keep`` and not removed by ``Forget``.
      deliveries: Messages that were delivered before, and how often.
      streams: By name.
      damage: One line for each damaged item that was set aside.
      notes: One line for each oddity that an operator might want to look at.
    """

    commit: int
    next_id: int
    places: Mapping[tuple[str, int], PlaceState] = Factory(dict)
    settings: Mapping[str, str] = Factory(dict)
    deliveries: Mapping[int, int] = Factory(dict)
    streams: Mapping[str, StreamState] = Factory(dict)
    damage: Sequence[str] = ()
    notes: Sequence[str] = ()


@value
class Stored:
    """Messages read back from one ``Put``: those that were requested and are still live.

    Args:
      ids: Of the messages, growing.
      bodies: Beside the ids.
    """

    ids: list[int]
    bodies: list[bytes]
    head: bytes
    received_ms: int
    expires_ms: int
    deliveries: int


@value
class Page:
    """Some messages of a place's level, oldest first.

    Args:
      next: Read on behind this id: up to it, everything is in this page or gone.
      is_last: Nothing is left behind it.
      lost: Messages that were damaged, and set aside.
    """

    runs: list[Stored]
    next: int
    is_last: bool
    lost: int = 0


@value
class Streamed:
    """Messages of a stream read back, with contiguous offsets."""

    first: int
    head: bytes
    bodies: list[bytes]
    written_ms: int


@frozen
class StoreStatistics:
    """The figures of a store.

    Args:
      bytes: The total size on disk.
      limit_bytes: The maximum size; 0 = unlimited.
      live_messages: Messages that are not finished.
      files: Segments.
      commits: Turns appended since the start.
      syncs: The number of syncs.
      sync_s: Their total time.
      damaged: Damaged records found since the start.
    """

    bytes: int = 0
    limit_bytes: int = 0
    live_messages: int = 0
    files: int = 0
    commits: int = 0
    syncs: int = 0
    sync_s: float = 0.0
    damaged: int = 0


Progress = Callable[[int, int], None]
"""Called now and then with the bytes done and the total."""


class Store(Protocol):
    """The interface of a store. Every method may block: it is called in worker threads.

    One thread appends; others read at the same time. A replicated log can implement it: each append
    returns a commit number, and is refused if the expected one is stale.
    """

    name: str
    """Its name in RECEIPTs: ``stored:journal``."""

    def recover(self, progress: Progress) -> Recovered:
        """Open the store and return its content. Call it once, before all else.

        Raises:
          StoreLocked: another broker uses it.
          StoreError: it cannot be read; nothing was changed.
        """

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Make turns durable, in order, with one sync.

        Args:
          turns: The turns, in order.
          expected: The last commit number that the caller knows.

        Returns:
          The commit number of the last turn: ``expected + len(turns)``.

        Raises:
          StaleSequence: the store's last commit is another; nothing was done.
          StoreUnavailable: nothing of the turns is stored; a retry may succeed.
          StoreBroken: it is unknown what is stored; the store must not be used again.
        """

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Return the messages of a key's level with ids above ``after``, oldest first.

        Args:
          place: The key.
          level: The priority.
          after: The id before the first message.
          limit_bytes: The approximate size; at least one message is returned.

        Raises:
          StoreError: the disk failed. Damaged messages are set aside and counted, not raised.
        """

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Return the messages of a stream from offset ``first`` on.

        Returns:
          Runs in order of offset; [] at the end, or if there is no such stream. Trimmed and damaged
          messages are left out, so offsets may begin later or have gaps.
        """

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Return the offset of the first message written at that time or later.

        Returns:
          The offset; the stream's next offset if there is no such message.
        """

    def stream_state(self, stream: str) -> StreamState | None:
        """Return the present state of a stream, or None if there is none."""

    def capacity(self) -> int:
        """Return the most bytes that messages in places may take; 0 = unknown. It may block."""

    def statistics(self) -> StoreStatistics:
        """Return the current figures. Does not block."""

    def close(self) -> None:
        """Write deferred records, sync, and release the lock."""
