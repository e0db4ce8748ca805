"""Duplicate detection: ids that senders give to messages are remembered, across restarts too."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker.delivery import UNWRITTEN, Destination, SeenId
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.headers import DUPLICATE, SendOptions, SendOutcome
from trio_stomp.broker.routing import id_cost, no_table_memory
from trio_stomp.frames import V1_2, encode_header
from trio_stomp.store import Put

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log
    from trio_stomp.store import Stored

SEEN = "seen:"
"""The store's place for ids, which are stored like messages, oldest first. Earlier versions had one
for each destination, of which it is the prefix."""
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
    line = options.dedup_line or (_USER, user)
    return encode_header(*line, V1_2).decode() + options.dedup_id


def read_ids(place: str, run: "Stored") -> Iterator[tuple[str, str, int]]:
    """Yield the ids of a stored record: the destination, the id as of ``id_of``, its number."""
    for id, body in zip(run.ids, run.bodies, strict=True):
        if place == SEEN:
            count, _, text = body.decode().partition(" ")
            yield text[: int(count)], text[int(count) :], id
        else:
            yield place.removeprefix(SEEN), ((run.head or b"\n") + body).decode(), id


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
    found: int = 0
    """Number of duplicates found."""
    _windows: dict[int, SendOutcome] = field(factory=dict)
    """The outcome that reports a window: one for each number in the policies."""
    _unwritten: "dict[bool, _Unwritten]" = field(factory=dict)
    """The changes of this turn that ``write`` gives to the log. True = they must be retried."""

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
        if self.room_for(destination, name) > room:
            what = f"one more id of a message to {destination.name[:80]}"
            raise no_table_memory(self.memory, what, quota)

    def find(
        self, client: "Client | None", destination: Destination, name: str
    ) -> SendOutcome | None:
        """Return the outcome for a message whose id is known, or None if it is not.

        Ids that an earlier version stored have no user, and count for all.
        """
        seen_id = destination.seen.get(name) or destination.seen.get(name[name.index("\n") :])
        if seen_id is None or not self.window_of(destination.name):
            return None  # a policy may have ended the detection since the id was remembered
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
        effect = None
        if log is not None and client is not None and log.is_awaited_by(client):
            effect = _IdEffect(client, self.memory, destination, name, log)
            log.when_safe(effect)
        seen_id = self._enter(destination, name, quota)
        oldest = self._forget_oldest(destination) if len(destination.seen) > window else None
        if effect is not None:
            seen_id.commit, effect.oldest = effect.client.awaited, oldest
        if log is None:
            return
        log.turns.at_end(self.write)
        unwritten = self._unwritten.setdefault(client is None, _Unwritten())
        if is_stored:
            seen_id.stored = UNWRITTEN
            unwritten.new.append((destination, name, seen_id))
        if oldest is not None and oldest[1].stored:
            unwritten.forgotten.append((destination, *oldest))

    def write(self) -> None:
        """Write the ids of a turn to the log, at its end.

        They share a record, which costs a fraction of one for each, now and when it is read at the
        start. The store gets it with their messages, and so has both or neither.
        """
        log = self.log
        assert log is not None
        for must_retry, ids in [*self._unwritten.items()]:
            old = ids.forget_ended()
            first = 0
            with log.atomically(must_retry=must_retry):
                if ids.new:
                    first = log.take_numbers(len(ids.new))
                    bodies = [f"{len(to.name)} {to.name}{name}".encode() for to, name, _ in ids.new]
                    log.put(Put(SEEN, first, b"", bodies, level=0), must_retry=must_retry)
                if old:
                    log.finish_all(old)
            # Only now: after a bug, the next turn writes them.
            del self._unwritten[must_retry]
            for id, (_, _, seen_id) in enumerate(ids.new, first):
                seen_id.stored = id

    def restore(self, destination: Destination, ids: Iterable[tuple[str, int]]) -> None:
        """Restore ids of a destination, as ``read_ids`` returns them, oldest first."""
        assert self.log is not None
        seen, cost = destination.seen, 0
        for name, id in ids:
            before = seen.pop(name, None)
            if before is not None:
                _charge(self.memory, destination, -id_cost(name), before.quota)
                self.log.finish(before.stored)
            seen[name] = SeenId(stored=id)
            cost += id_cost(name)
        _charge(self.memory, destination, cost, None)
        for _ in range(len(seen) - self.window_of(destination.name)):
            self.log.finish(self._forget_oldest(destination)[1].stored)

    def forget(self, destination: Destination) -> None:
        """Forget all ids of a destination."""
        seen = destination.seen
        stored = [seen_id.stored for seen_id in seen.values() if seen_id.stored > 0]
        if self.log is not None and stored:
            # In a group of its own: it must not depend on the group being written.
            with self.log.atomically():
                self.log.finish_all(stored)
        for name, seen_id in seen.items():
            _charge(self.memory, destination, -id_cost(name), seen_id.quota)
        seen.clear()

    def _enter(self, destination: Destination, name: str, quota: "Quota | None" = None) -> SeenId:
        seen_id = destination.seen[name] = SeenId(quota=quota)
        _charge(self.memory, destination, id_cost(name), quota)
        return seen_id

    def _forget_oldest(self, destination: Destination) -> tuple[str, SeenId]:
        name, seen_id = destination.seen.popitem(last=False)
        _charge(self.memory, destination, -id_cost(name), seen_id.quota)
        return name, seen_id


@define(eq=False, repr=False)
class _Unwritten:
    """Ids that were remembered, and forgotten for these, since the log was written."""

    new: list[tuple[Destination, str, SeenId]] = field(factory=list)
    forgotten: list[tuple[Destination, str, SeenId]] = field(factory=list)

    def forget_ended(self) -> list[int]:
        """Forget new ids that have ended since, and return the stored ids of those to end."""
        self.new = [each for each in self.new if each[0].seen.get(each[1]) is each[2]]
        self.forgotten = [
            (destination, name, seen_id)
            for destination, name, seen_id in self.forgotten
            if seen_id.stored > 0 and destination.seen.get(name) is not seen_id
        ]
        return [seen_id.stored for _, _, seen_id in self.forgotten]


@define(eq=False, repr=False)
class _IdEffect:
    """An effect that forgets an id, and restores the oldest one, if the message is withdrawn."""

    client: "Client"
    memory: MemoryBudget
    destination: Destination
    name: str
    log: "Log"
    oldest: tuple[str, SeenId] | None = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        seen = self.destination.seen
        seen_id = seen.pop(self.name, None)
        if seen_id is not None:
            _charge(self.memory, self.destination, -id_cost(self.name), seen_id.quota)
            if seen_id.stored > 0:
                self.log.finish(seen_id.stored)  # only its message is not stored
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
