"""The interface between a replicated store and the log that is its authority."""

from collections.abc import Sequence
from typing import Protocol

from trio_stomp.base import value
from trio_stomp.store import StoreError


class InDoubt(StoreError):
    """The log did not answer, so the entry may have been stored, or may be stored later."""


@value
class LogEntry:
    """An entry of a log, with its sequence number. Sequences begin at 1 and increase."""

    sequence: int
    payload: bytes


class CommitLog(Protocol):
    """A replicated log with one owner at a time. Its methods block, and run in worker threads.

    A request that fails takes some time, so retrying it in a loop does not load the servers.
    """

    max_bytes: int
    """The largest payload."""

    def publish(self, payload: bytes, expected: int) -> int:
        """Append an entry, and return its sequence once a majority has it on disk.

        Args:
          payload: At most ``max_bytes``.
          expected: The sequence of the log's last entry.

        Raises:
          StaleSequence: The log has a later entry; nothing was stored.
          StoreUnavailable: The log refuses it, for instance because it is full; nothing was stored.
          InDoubt: No answer came.
        """

    def last(self) -> int:
        """Return the greatest sequence ever used; 0 = none.

        Raises:
          InDoubt: No answer came.
        """

    def entry(self, sequence: int) -> LogEntry | None:
        """Return an entry; None = it was purged, or the log ends before it.

        Raises:
          InDoubt: No answer came.
        """

    def read(self, after: int) -> Sequence[LogEntry]:
        """Return some entries after a sequence, oldest first; none at the end of the log.

        Entries that were purged are left out.

        Raises:
          InDoubt: No answer came.
        """
