"""The interface between the core and the store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import Factory, frozen

from trio_stomp.base import value
from trio_stomp.store._records import Turn


class StoreError(Exception):
    """A store operation failed. The text names the file or database, the cause and the remedy."""


class StoreUnavailable(StoreError):
    """The disk or database failed, and nothing of the append was stored. A retry may succeed."""


class StoreBroken(StoreError):
    """The state on the disk is unknown. The store must be reopened."""


class StoreLocked(StoreError):
    """Another broker uses the store."""


class StaleSequence(StoreError):
    """Another writer has appended: the expected commit number is stale."""


Charged = Mapping[bytes, int]
"""The cost of messages in bytes, by the header line that names the charged user."""


@frozen
class PlaceState:
    """The messages in one level of a place, after recovery.

    Args:
      count: Number of messages.
      bytes: Total size of their bodies.
      first: Id of the first message.
      charged: Their cost (``stored_cost``) by the line that names the charged user. Messages
        without a quota are left out.
      expires_ms: When the first of them expires, or earlier, in ms since 1970; 0 = none expires.
    """

    count: int
    bytes: int
    first: int
    charged: Charged = Factory(dict)
    expires_ms: int = 0


@frozen
class StreamState:
    """A stream, after recovery.

    Args:
      first: Offset of the oldest message; equals ``next`` if there is none.
      next: Offset of the next message to be appended.
      bytes: Size on disk.
    """

    epoch: str
    first: int
    next: int
    bytes: int


@frozen
class Recovered:
    """The content of a store after recovery.

    Args:
      commit: Number of the last commit; 0 = none.
      next_id: Greater than every message id ever used.
      places: Places with messages, by name and level.
      settings: Settings stored by ``Keep`` and not removed by ``Forget``.
      deliveries: Delivery counts by message id, without messages that were never delivered.
      streams: Streams by name.
      damage: One line for each damaged item that was set aside.
      notes: One line for each oddity that an operator might want to inspect.
      is_doubtful: Another broker may have delivered any of the messages without recording it.
    """

    commit: int
    next_id: int
    places: Mapping[tuple[str, int], PlaceState] = Factory(dict)
    settings: Mapping[str, str] = Factory(dict)
    deliveries: Mapping[int, int] = Factory(dict)
    streams: Mapping[str, StreamState] = Factory(dict)
    damage: Sequence[str] = ()
    notes: Sequence[str] = ()
    is_doubtful: bool = False


@value
class Stored:
    """Live messages of one ``Put`` that were read back.

    Args:
      ids: Ids in ascending order.
      bodies: The body for each id.
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
      next: The id to continue after. All live messages up to it are in this page.
      is_last: No messages follow this page.
      lost: Number of damaged messages that were set aside.
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
      files: Number of segments.
      commits: Turns appended since the start.
      syncs: Number of syncs.
      sync_s: Total time of the syncs.
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
"""Called from time to time with the bytes done and the total."""


class Store(Protocol):
    """The interface of a store. Its methods may block, and are called in worker threads.

    One thread appends while others read. A replicated log can implement it: each append returns a
    commit number, and is refused if the expected one is stale.
    """

    name: str
    """The name in RECEIPTs, such as ``stored:journal``."""

    def recover(self, progress: Progress) -> Recovered:
        """Open the store and return its content. Call this once, before all other methods.

        Raises:
          StoreLocked: another broker uses the store.
          StoreError: the store cannot be read; nothing was changed.
        """

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Make turns durable, in order, with one sync.

        Args:
          turns: The turns to append.
          expected: The last commit number that the caller knows.

        Returns:
          The commit number of the last turn: ``expected + len(turns)``.

        Raises:
          StaleSequence: the store's last commit is not ``expected``; nothing was stored.
          StoreUnavailable: nothing of the turns was stored; a retry may succeed.
          StoreBroken: it is unknown what was stored; the store must not be used again.
        """

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Return the messages of a place's level with ids above ``after``, oldest first.

        Args:
          place: The place.
          level: The priority.
          after: Only messages with greater ids are returned.
          limit_bytes: Approximate size of the page, which has at least one message if any is left.

        Raises:
          StoreError: the disk failed. Damaged messages are set aside and counted instead.
        """

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Return the messages of a stream from offset ``first`` on.

        Returns:
          Runs in order of offset; [] at the end, or if there is no such stream. Trimmed and damaged
          messages are omitted, so offsets may begin later or have gaps.
        """

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Return the offset of the first message written at a time (ms since 1970) or later.

        Returns:
          The offset, or the stream's next offset if there is no such message.
        """

    def stream_state(self, stream: str) -> StreamState | None:
        """Return the current state of a stream, or None if there is no such stream."""

    def capacity(self) -> int:
        """Return the maximum bytes of messages in places, or 0 if unknown. May block."""

    def statistics(self) -> StoreStatistics:
        """Return the current figures. Does not block."""

    def close(self) -> None:
        """Write deferred records, sync, and release the lock."""
