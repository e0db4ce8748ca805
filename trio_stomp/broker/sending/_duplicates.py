"""Messages that are sent twice: told apart by an id of their sender's, over restarts too."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker.delivery import Destination, Known
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.headers import DUPLICATE, SendOutcome
from trio_stomp.broker.routing import id_cost, no_table_memory
from trio_stomp.store import DropPlace

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log

SEEN = "seen:"
"""How the store's places for ids begin; they stand there as messages do, oldest first."""


@define(eq=False, repr=False)
class Duplicates:
    """Knows ids again, as long as the policy's window tells.

    Args:
      window_of: How many ids of a destination are to be known.
      memory: Charged for them.
    """

    window_of: Callable[[str], int]
    memory: MemoryBudget
    log: "Log | None" = None
    is_promised: bool = False
    """There was room for what comes now, when all of it was checked."""
    found: int = 0
    """Messages that were there before."""

    def room_for(self, destination: Destination, name: str) -> int:
        """Bytes that an id takes, if it is to be known."""
        return id_cost(name) if self.window_of(destination.name) else 0

    def check_room(self, quota: "Quota | None", destination: Destination, name: str) -> None:
        """Refuse an id that there is no memory for: to forget another sooner would break a promise.

        Raises:
          ProtocolError: there is none.
        """
        room = self.memory.tables_room_for(quota)
        if not self.is_promised and self.room_for(destination, name) > room:
            what = f"one more id of a message to {destination.name[:80]}"
            raise no_table_memory(self.memory, what, quota)

    def find(
        self, client: "Client | None", destination: Destination, name: str
    ) -> SendOutcome | None:
        """Return the outcome for messages whose id is known, or None if it is not."""
        known = destination.seen.get(name)
        if known is None or self.log is None:
            return None if known is None else DUPLICATE
        if client is not None and known.commit > self.log.committed:
            # Of what another sent, or it did itself: told when that is safe.
            self.log.when_safe(Callback(client, noop))
        return DUPLICATE | self.log.stored if known.stored else DUPLICATE

    def remember(
        self,
        client: "Client | None",
        quota: "Quota | None",
        destination: Destination,
        name: str,
        *,
        is_stored: bool,
    ) -> None:
        """Know an id again, unless its message is withdrawn.

        Args:
          client: The client.
          quota: Who is charged for it.
          destination: The destination.
          name: The id from the header.
          is_stored: The message survives, and so must the id.
        """
        window, log = self.window_of(destination.name), self.log
        if not window:
            return
        known = self._enter(destination, name, 0, quota)
        if log is not None and is_stored:
            place, is_kept = SEEN + destination.name, client is None
            known.stored = log.put(
                place,
                head=b"",
                bodies=[name.encode()],
                level=0,
                received_ms=0,
                expires_ms=0,
                is_kept=is_kept,
            )
        oldest = self._forget_oldest(destination) if len(destination.seen) > window else None
        if log is not None and client is not None and log.is_awaited_by(client):
            known.commit = client.awaited
            log.when_safe(_Remembering(client, self.memory, destination, name, oldest))

    def restore(self, destination: Destination, name: str, id: int) -> None:
        """Restore an id found in the store. It is newer than those restored before it."""
        assert self.log is not None
        before = destination.seen.pop(name, None)
        if before is not None:
            _charge(self.memory, destination, -id_cost(name), before.quota)
            self.log.finish(before.stored)
        self._enter(destination, name, id)
        if len(destination.seen) > self.window_of(destination.name):
            self._forget_oldest(destination)

    def forget(self, destination: Destination) -> None:
        """Forget a destination with its ids."""
        if self.log is not None and any(known.stored for known in destination.seen.values()):
            # Whatever becomes of what is being bound together now.
            with self.log.together():
                self.log.write(DropPlace(SEEN + destination.name), is_urgent=False)
        for name, known in destination.seen.items():
            _charge(self.memory, destination, -id_cost(name), known.quota)
        destination.seen.clear()

    def _enter(
        self, destination: Destination, name: str, stored: int, quota: "Quota | None" = None
    ) -> Known:
        known = destination.seen[name] = Known(0, stored, quota)
        _charge(self.memory, destination, id_cost(name), quota)
        return known

    def _forget_oldest(self, destination: Destination) -> tuple[str, Known]:
        name, known = destination.seen.popitem(last=False)
        _charge(self.memory, destination, -id_cost(name), known.quota)
        if known.stored and self.log is not None:
            self.log.finish(known.stored)
        return name, known


@define(eq=False, repr=False)
class _Remembering:
    """Forgets an id again, and restores the oldest, if the id's message is withdrawn."""

    client: "Client"
    memory: MemoryBudget
    destination: Destination
    name: str
    oldest: tuple[str, Known] | None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        seen = self.destination.seen
        known = seen.pop(self.name, None)
        if known is not None:
            _charge(self.memory, self.destination, -id_cost(self.name), known.quota)
        if self.oldest is not None:
            name, seen[name] = self.oldest
            seen.move_to_end(name, last=False)
            _charge(self.memory, self.destination, id_cost(name), seen[name].quota)


def _charge(
    memory: MemoryBudget, destination: Destination, size: int, quota: "Quota | None"
) -> None:
    """Charge bytes of ids, or give them back if negative, unless the destination was forgotten."""
    if destination.cost:
        memory.force_table(size, quota)
