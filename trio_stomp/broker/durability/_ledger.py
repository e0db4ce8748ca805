"""The records of one turn for the store, and the effects that wait for them."""

from array import array
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.store import Atomic, Delivered, Done, Record, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Client

LAZY_S = 1.0
"""Delay of records for which no client waits (deliveries, statistics), to share an append."""
MANY_REPLIES = 32
"""Replies staged between two looks at the clock, about 50 µs."""
ID_BYTES = 8


class Effect(Protocol):
    """An action that runs when the records before it are stored."""

    @property
    def client(self) -> "Client | None":
        """Return the client that gets an ERROR if the store fails, or None to retry the records."""

    def commit(self, now: float) -> None:
        """Carry out the effect: its records are stored."""

    def withdraw(self, now: float) -> None:
        """Undo the preparations: its records could not be stored."""


@define(eq=False, repr=False)
class Callback:
    """A call that waits for the store. It is dropped if the store fails."""

    client: "Client | None"
    call: "Callable[[float], None]"
    receipt_id: bytes | None = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        self.call(now)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""


_DONE = Callback(None, noop)


class WrittenAgain:
    """Base of effects whose owner writes their records again after a failure of the store."""


@define(eq=False, repr=False)
class FrameReply:
    """A frame to a client that waits for the store. With ``receipt_id`` it is a RECEIPT."""

    client: "Client"
    frame: bytes
    receipt_id: bytes | None = None

    def commit(self, _now: float) -> None:
        """Implement ``Effect.commit``."""
        self.client.outbox.stage_frame(self.frame)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""


@define(eq=False, repr=False)
class Entry:
    """A record of a turn.

    Args:
      must_retry: It must be retried if the store fails.
      size: Bytes of its bodies, plus overhead.
    """

    record: Record
    must_retry: bool
    size: int


def _ids() -> "array[int]":
    """Return an empty array of message ids, compact because a failing store may leave millions."""
    return array("Q")


@define(eq=False, repr=False)
class Ledger:
    """The records and effects of one turn.

    Args:
      number: The commit number.
      done: Ids of finished messages.
      delivered: Ids of delivered messages.
    """

    number: int
    entries: list[Entry] = field(factory=list)
    effects: list[Effect] = field(factory=list)
    done: "array[int]" = field(factory=_ids)
    delivered: "array[int]" = field(factory=_ids)
    size: int = 0
    """Bytes of all records."""
    patience_s: float = LAZY_S
    """How long the append may be delayed to share it."""
    old_entries: int = 0
    """The number of entries, at the beginning, that are retries after a failure."""
    old_effects: int = 0
    """The number of effects, at the beginning, that are retries after a failure."""
    old_size: int = 0
    """Bytes of the retried entries."""
    seen: int = 0
    """The number of effects already carried out."""
    wholes: dict[int, int] = field(factory=dict)
    """Effects to be carried out in one step: index of the first → index after the last."""

    @property
    def is_empty(self) -> bool:
        """Return whether there are no records."""
        return not (self.entries or self.done or self.delivered)

    def turn(self) -> Turn:
        """Return the records as one append."""
        records = [entry.record for entry in self.entries]
        if self.delivered:
            records.append(Delivered(self.delivered))
        if self.done:
            records.append(Done(self.done))
        return Turn(records, self.patience_s < LAZY_S)

    def do(self, now: float, is_over: "Callable[[], bool]") -> bool:
        """Carry out effects while there is time, and return whether all are done.

        Several replies are staged between two looks at the clock, which cost as much as a reply.
        """
        effects, wholes, stop, replies = self.effects, self.wholes, 0, 0
        for index in range(self.seen, len(effects)):
            if wholes and index >= stop:
                stop = wholes.get(index, 0)
            # Free each at once: freeing very many later would take long.
            effect, effects[index] = effects[index], _DONE
            self.seen = index + 1
            effect.commit(now)
            if index + 1 < stop:
                continue
            if type(effect) is FrameReply and replies < MANY_REPLIES:
                replies += 1
            elif is_over():
                break
            else:
                replies = 0
        return self.seen == len(effects)

    def take_new(self) -> tuple[list[Entry], list[Effect]]:
        """Remove and return the entries and effects that are no retries."""
        entries, effects = self.entries[self.old_entries :], self.effects[self.old_effects :]
        del self.entries[self.old_entries :]
        del self.effects[self.old_effects :]
        return entries, effects

    def retry(self, most_delivered: int) -> None:
        """Prepare all records for a retry without delay.

        Args:
          most_delivered: Limit of deliveries kept, the newest.
        """
        del self.delivered[:-most_delivered]
        self.old_entries, self.old_effects = len(self.entries), len(self.effects)
        self.size = self.old_size + ID_BYTES * (len(self.done) + len(self.delivered))
        self.patience_s = 0.0
        self.wholes.clear()


@define(eq=False, repr=False)
class AtomicGroup:
    """Records that are stored all or none.

    Args:
      must_retry: They must be retried if the store fails.
      done: Ids of finished messages.
      size: Bytes of all records.
    """

    must_retry: bool
    records: list[Record] = field(factory=list)
    done: list[int] = field(factory=list)
    size: int = 0
    place: Entry | None = None
    """The placeholder in the ledger for a group that is written over several turns."""

    def entry(self) -> Entry | None:
        """Return the group as one record, or None if it is empty."""
        records = [*self.records, Done(self.done)] if self.done else self.records
        if not records:
            return None
        record = Atomic(records) if len(records) > 1 else records[0]  # type: ignore[arg-type]
        return Entry(record, self.must_retry, self.size)
