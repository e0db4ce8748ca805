"""Duplicate detection: ids that senders give to messages are remembered, across restarts too."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker.delivery import Destination, SeenId
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.forwarding import FORWARD
from trio_stomp.broker.headers import DUPLICATE, SendOptions, SendOutcome
from trio_stomp.broker.routing import id_cost, no_table_memory
from trio_stomp.frames import V1_2, encode_header
from trio_stomp.store import DropPlace

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log

SEEN = "seen:"
"""Prefix of the store's places for ids, which are stored like messages, oldest first."""
_USER = "x-trio-stomp-user"
"""The header before the ids of a user."""


def id_of(client: "Client | None", options: SendOptions | None) -> str:
    """Return the id for duplicate detection of a SEND, as it is remembered; "" = it has none.

    Each user has ids of his own, so that nobody makes duplicates of another's messages: it begins
    with a header line that names the user. Without logins, all share the user "".
    """
    if options is None or not options.dedup_id:
        return ""
    user = client.identity.name if client is not None else ""
    line = (FORWARD, "") if options.is_forward else (_USER, user)
    return encode_header(*line, V1_2).decode() + options.dedup_id


@define(eq=False, repr=False)
class Duplicates:
    """Recognizes the newest ids of each destination.

    Args:
      window_of: Returns the number of ids to remember for a destination.
      memory: Charged for them.
    """

    window_of: Callable[[str], int]
    memory: MemoryBudget
    log: "Log | None" = None
    is_promised: bool = False
    """Room has been reserved for the current SEND, as part of a COMMIT."""
    found: int = 0
    """Number of duplicates found."""
    _windows: dict[int, SendOutcome] = field(factory=dict)
    """The outcome that reports a window: one for each number in the policies."""

    def room_for(self, destination: Destination, name: str) -> int:
        """Return the bytes needed to remember an id, or 0 if the destination remembers none."""
        return id_cost(name) if self.window_of(destination.name) else 0

    def window_outcome(self, destination: Destination) -> SendOutcome:
        """Return an outcome that reports the number of ids remembered for a destination."""
        window = self.window_of(destination.name)
        outcome = self._windows.get(window)
        if outcome is None:
            outcome = self._windows[window] = SendOutcome(dedup_window=window)
        return outcome

    def check_room(self, quota: "Quota | None", destination: Destination, name: str) -> None:
        """Check that there is memory for an id: forgetting another early would break a promise.

        Raises:
          ProtocolError: there is not enough.
        """
        room = self.memory.tables_room_for(quota)
        if not self.is_promised and self.room_for(destination, name) > room:
            what = f"one more id of a message to {destination.name[:80]}"
            raise no_table_memory(self.memory, what, quota)

    def find(
        self, client: "Client | None", destination: Destination, name: str
    ) -> SendOutcome | None:
        """Return the outcome for a message whose id is known, or None if it is not.

        Ids that an earlier version stored have no user, and count for all.
        """
        seen_id = destination.seen.get(name) or destination.seen.get(name[name.index("\n") :])
        if seen_id is None:
            return None
        self.found += 1
        if self.log is None:
            return DUPLICATE
        if client is not None and seen_id.commit > self.log.committed:
            # The original, by whoever sent it, is not stored yet: the RECEIPT must wait for it.
            self.log.when_safe(Callback(client, noop))
        return DUPLICATE | self.log.stored if seen_id.stored else DUPLICATE

    def remember(
        self,
        client: "Client | None",
        quota: "Quota | None",
        destination: Destination,
        name: str,
        *,
        is_stored: bool,
    ) -> None:
        """Remember an id, unless the store fails to commit its message.

        Args:
          client: The sender; None = the broker.
          quota: The quota charged for it.
          destination: The destination.
          name: The id, as ``id_of`` returns it.
          is_stored: The message is stored, so the id must be stored, too.
        """
        window, log = self.window_of(destination.name), self.log
        if not window:
            return
        effect, stored = None, 0
        if log is not None and client is not None and log.is_awaited_by(client):
            effect = _IdEffect(client, self.memory, destination, name)
            log.when_safe(effect)
        if log is not None and is_stored:
            place, must_retry = SEEN + destination.name, client is None
            line, own = name.encode().split(b"\n", 1)
            stored = log.put(
                place,
                head=line + b"\n",
                bodies=[own],
                level=0,
                received_ms=0,
                expires_ms=0,
                must_retry=must_retry,
            )
        seen_id = self._enter(destination, name, stored, quota)
        oldest = self._forget_one(destination) if len(destination.seen) > window else None
        if effect is not None:
            seen_id.commit, effect.oldest = effect.client.awaited, oldest

    def restore(self, destination: Destination, head: bytes, body: bytes, id: int) -> None:
        """Restore an id from the store. Ids must be restored oldest first."""
        assert self.log is not None
        name = ((head or b"\n") + body).decode()
        before = destination.seen.pop(name, None)
        if before is not None:
            _charge(self.memory, destination, -id_cost(name), before.quota)
            self.log.finish(before.stored)
        self._enter(destination, name, id)
        if len(destination.seen) > self.window_of(destination.name):
            self._forget_one(destination)

    def take_back(self, destination: Destination, last: str | None) -> None:
        """Forget the ids of a destination that came after ``last``: their COMMIT has failed."""
        while destination.seen and next(reversed(destination.seen)) != last:
            self._forget_one(destination, is_last=True)

    def forget(self, destination: Destination) -> None:
        """Forget all ids of a destination."""
        if self.log is not None and any(seen_id.stored for seen_id in destination.seen.values()):
            # In a group of its own: it must not depend on the group being written.
            with self.log.atomically():
                self.log.write(DropPlace(SEEN + destination.name), is_urgent=False)
        for name, seen_id in destination.seen.items():
            _charge(self.memory, destination, -id_cost(name), seen_id.quota)
        destination.seen.clear()

    def _enter(
        self, destination: Destination, name: str, stored: int, quota: "Quota | None" = None
    ) -> SeenId:
        seen_id = destination.seen[name] = SeenId(0, stored, quota)
        _charge(self.memory, destination, id_cost(name), quota)
        return seen_id

    def _forget_one(self, destination: Destination, *, is_last: bool = False) -> tuple[str, SeenId]:
        """Forget the oldest id of a destination, or the last one."""
        name, seen_id = destination.seen.popitem(last=is_last)
        _charge(self.memory, destination, -id_cost(name), seen_id.quota)
        if seen_id.stored and self.log is not None:
            self.log.finish(seen_id.stored)
        return name, seen_id


@define(eq=False, repr=False)
class _IdEffect:
    """An effect that forgets an id, and restores the oldest one, if the message is withdrawn."""

    client: "Client"
    memory: MemoryBudget
    destination: Destination
    name: str
    oldest: tuple[str, SeenId] | None = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        seen = self.destination.seen
        seen_id = seen.pop(self.name, None)
        if seen_id is not None:
            _charge(self.memory, self.destination, -id_cost(self.name), seen_id.quota)
        if self.oldest is not None:
            name, seen[name] = self.oldest
            seen.move_to_end(name, last=False)
            _charge(self.memory, self.destination, id_cost(name), seen[name].quota)


def _charge(
    memory: MemoryBudget, destination: Destination, size: int, quota: "Quota | None"
) -> None:
    """Charge bytes of ids (negative: refund), unless the destination has been removed."""
    if destination.cost:
        memory.force_table(size, quota)
