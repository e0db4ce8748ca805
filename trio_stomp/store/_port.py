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
"""What messages cost, by the line that tells who is charged."""


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
      places: By place and level; only those with messages.
      settings: What ``Keep`` said, and no ``Forget`` took back.
      deliveries: Messages that were handed out before, and how often.
      streams: By name.
      damage: One line for each thing that was found damaged and set aside.
      notes: One line for each thing that is no damage, but an operator might want to look at.
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
      bytes: On disk, all told.
      limit_bytes: The most that it may become; 0 = as much as there is.
      live_messages: In places.
      files: Segments.
      commits: Turns that were appended since the start.
      syncs: How often the disk was waited for.
      sync_s: How long, all told.
      damaged: Records found damaged, since the start.
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
"""Told bytes done and bytes in all, now and then."""


class Store(Protocol):
    """The port of a store. Every method may block: it is called in worker threads.

    One thread appends; others read at the same time. A replicated log can stand behind it: one
    append answers with a commit number, and is refused if the expected one is stale.
    """

    name: str
    """What a RECEIPT calls it: ``stored:journal``."""

    def recover(self, progress: Progress) -> Recovered:
        """Open the store and return its content. Call it once, before all else.

        Raises:
          StoreLocked: another broker uses it.
          StoreError: it cannot be read; nothing was changed.
        """

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Make turns durable, in order, with one wait for the disk.

        Args:
          turns: The turns, in order.
          expected: The last commit number that the caller knows.

        Returns:
          The commit number of the last turn: ``expected + len(turns)``.

        Raises:
          StaleSequence: the store's last commit is another; nothing was done.
          StoreUnavailable: nothing of the turns holds; it may work later.
          StoreBroken: what holds of them is not known; the store must not be used again.
        """

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Return the messages of a place's level with ids above ``after``, oldest first.

        Args:
          place: The key.
          level: The priority.
          after: The id before the first message.
          limit_bytes: About how much; at least one message.

        Raises:
          StoreError: the disk failed. What is damaged is set aside and counted, not raised.
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
        """Write what was deferred, wait for the disk, and release the lock."""
