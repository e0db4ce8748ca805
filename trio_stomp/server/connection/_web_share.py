"""The share that requests by HTTP have of the memory and of the operations, user by user."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.transport import HttpError

if TYPE_CHECKING:
    from trio_stomp.broker import MemoryBudget

OPERATIONS_AT_ONCE = 8
"""Maximum number of operations at the same time. The last one is kept for ``admin``."""
OPERATIONS_OF_ONE = 2
"""Maximum number of operations of one user at the same time."""
SLOT_S = 5.0
"""Longest wait of a request for an earlier one of its user."""
SHARE = 8
"""Requests and answers may take 1/8 of the memory."""
MIN_SHARE_BYTES = 1024 * 1024


@define(eq=False, repr=False)
class WebShare:
    """Counts the bytes of requests that came, and of answers that were not sent, and operations.

    Args:
      memory: The budget, to which all bytes are charged as well.
    """

    memory: "MemoryBudget"
    held_bytes: int = 0
    running: int = 0
    """Operations that run."""
    one_page: trio.Lock = field(factory=trio.Lock)
    """Held while a large page is built."""
    _held: dict[str, int] = field(factory=dict)
    """Bytes by user."""
    _turns: dict[str, trio.Semaphore] = field(factory=dict)
    """The slots of users of whom an operation runs."""

    @property
    def limit_bytes(self) -> int:
        """Return the most bytes of all users."""
        return max(self.memory.limit_bytes // SHARE, MIN_SHARE_BYTES)

    def check(self, user: str, size: int) -> None:
        """Check that a user has room for more bytes: each may have half of what others leave.

        Raises:
          HttpError: There is no room.
        """
        own = self._held.get(user, 0)
        if size and own + size > (self.limit_bytes - self.held_bytes + own) // 2:
            raise HttpError(
                503,
                "there is no room for the request or its answer: read earlier answers, or ask for"
                " less",
                code="busy",
            )

    def charge(self, user: str, size: int) -> None:
        """Charge bytes without a check, or give them back if ``size`` is negative."""
        self.memory.used_bytes += size
        self.held_bytes += size
        self._held[user] = self._held.get(user, 0) + size
        if not self._held[user]:
            del self._held[user]

    @contextmanager
    def holding(self, user: str, size: int) -> Iterator[None]:
        """Charge bytes for a while, without a check."""
        self.charge(user, size)
        try:
            yield
        finally:
            self.charge(user, -size)

    @asynccontextmanager
    async def operating(self, user: str, *, is_admin: bool) -> AsyncGenerator[None]:
        """Hold a slot for an operation of a user.

        Raises:
          HttpError: Too many operations run.

        Checkpoint: always.
        """
        mine = self._turns.setdefault(user, trio.Semaphore(OPERATIONS_OF_ONE))
        try:
            with trio.move_on_after(SLOT_S) as waiting:
                await mine.acquire()
            if waiting.cancelled_caught:
                raise _busy(f"{OPERATIONS_OF_ONE} operations of this user")
            try:
                if self.running >= OPERATIONS_AT_ONCE - (not is_admin):
                    raise _busy("too many operations")
                self.running += 1
                try:
                    yield
                finally:
                    self.running -= 1
            finally:
                mine.release()
        finally:
            if mine.value == OPERATIONS_OF_ONE and not mine.statistics().tasks_waiting:
                self._turns.pop(user, None)


def _busy(what: str) -> HttpError:
    return HttpError(503, f"{what} are running; try again later", code="busy")
