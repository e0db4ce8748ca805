"""The interface between a replicated store and the log that is its truth."""

from collections.abc import Sequence
from typing import Protocol

from trio_stomp.base import value
from trio_stomp.store import StoreError


class InDoubt(StoreError):
    """The log did not answer: whether the entry was stored is unknown, and may be decided later."""


@value
class LogEntry:
    """An entry of a log, with its sequence: a number that grows, from 1."""

    sequence: int
    payload: bytes


class CommitLog(Protocol):
    """A replicated log with one owner at a time. Its methods block, and run in worker threads.

    A request that fails takes a moment, so that trying again is no load.
    """

    max_bytes: int
    """The largest payload."""

    def publish(self, payload: bytes, expected: int) -> int:
        """Append an entry, and return its sequence once a majority has it on disk.

        Args:
          payload: At most ``max_bytes``.
          expected: The sequence of the log's last entry.

        Raises:
          StaleSequence: the last entry is another; nothing was stored.
          StoreUnavailable: the log refuses it, for instance because it is full; nothing was stored.
          InDoubt: no answer came.
        """

    def last(self) -> int:
        """Return the greatest sequence ever used; 0 = none.

        Raises:
          InDoubt: no answer came.
        """

    def read(self, after: int) -> Sequence[LogEntry]:
        """Return some entries after a sequence, oldest first; none at the end of the log.

        Entries that were purged are left out.

        Raises:
          InDoubt: no answer came.
        """
