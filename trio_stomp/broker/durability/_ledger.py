"""What one turn tells the store, and what is done when the store has it."""

from array import array
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.store import Atomic, Delivered, Done, Record, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Client

LAZY_S = 1.0
"""How long what nobody waits for is kept back in the hope of company: deliveries, statistics."""
MANY_REPLIES = 32
"""Frames to clients that are staged in some 50 µs."""
ID_BYTES = 8


class Effect(Protocol):
    """Something that is done as soon as the records before it are safe."""

    @property
    def client(self) -> "Client | None":
        """The client to inform if the records cannot be stored. None: they are retried."""

    def commit(self, now: float) -> None:
        """Carry out the effect: its records are stored."""

    def withdraw(self, now: float) -> None:
        """Undo the effect unseen: its records could not be stored."""


@define(eq=False, repr=False)
class Callback:
    """A call that waits for the store, and is forgotten if that fails."""

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
    """Base of effects whose owner writes their records again, elsewhere, after a failure."""


@define(eq=False, repr=False)
class FrameReply:
    """A frame to a client that waits for the store. It is a RECEIPT if there is an id."""

    client: "Client"
    frame: bytes
    receipt_id: bytes | None = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        self.client.outbox.stage_frame(self.frame)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""


@define(eq=False, repr=False)
class Entry:
    """A record of a turn.

    Args:
      is_kept: It must come to hold even after a failure.
      size: Bytes of its bodies, and what it costs beside them.
    """

    record: Record
    is_kept: bool
    size: int


def _ids() -> "array[int]":
    """Ids of messages: while the store fails, millions may come together."""
    return array("Q")


@define(eq=False, repr=False)
class Ledger:
    """The records and effects of one turn.

    Args:
      number: Of its commit.
    """

    number: int
    entries: list[Entry] = field(factory=list)
    effects: list[Effect] = field(factory=list)
    done: "array[int]" = field(factory=_ids)
    delivered: "array[int]" = field(factory=_ids)
    size: int = 0
    """Bytes of what is under way."""
    patience_s: float = LAZY_S
    """How long it may wait for company."""
    old_entries: int = 0
    """So many of the entries are tried again: a failure has been through them before."""
    old_effects: int = 0
    """The same of the effects."""
    old_size: int = 0
    """Bytes of those entries."""
    seen: int = 0
    """So many of the effects are done."""
    wholes: dict[int, int] = field(factory=dict)
    """Of effects that are done in one step: the place of the first, and behind the last."""

    @property
    def is_empty(self) -> bool:
        """Return whether the store has nothing to do."""
        return not (self.entries or self.done or self.delivered)

    def turn(self) -> Turn:
        """For the store."""
        records = [entry.record for entry in self.entries]
        if self.delivered:
            records.append(Delivered(self.delivered))
        if self.done:
            records.append(Done(self.done))
        return Turn(records, self.patience_s < LAZY_S)

    def do(self, now: float, is_over: "Callable[[], bool]") -> bool:
        """Do the effects of safe records while there is time, and return whether all are done.

        Many replies are done between two looks at the clock: a look takes as long as one of them.
        """
        effects, wholes, behind, replies = self.effects, self.wholes, 0, 0
        for place in range(self.seen, len(effects)):
            if wholes and place >= behind:
                behind = wholes.get(place, 0)
            # Freed one by one: to free very many takes as long as to do them.
            effect, effects[place] = effects[place], _DONE
            self.seen = place + 1
            effect.commit(now)
            if place + 1 < behind:
                continue
            if type(effect) is FrameReply and replies < MANY_REPLIES:
                replies += 1
            elif is_over():
                break
            else:
                replies = 0
        return self.seen == len(effects)

    def take_new(self) -> tuple[list[Entry], list[Effect]]:
        """Take out what no failure has been through before."""
        entries, effects = self.entries[self.old_entries :], self.effects[self.old_effects :]
        del self.entries[self.old_entries :]
        del self.effects[self.old_effects :]
        return entries, effects

    def retry(self, most_delivered: int) -> None:
        """Try all that it holds again, as soon as may be.

        Args:
          most_delivered: Deliveries that are worth keeping, the newest.
        """
        del self.delivered[:-most_delivered]
        self.old_entries, self.old_effects = len(self.entries), len(self.effects)
        self.size = self.old_size + ID_BYTES * (len(self.done) + len(self.delivered))
        self.patience_s = 0.0
        self.wholes.clear()


@define(eq=False, repr=False)
class AtomicGroup:
    """Records that are to hold as a whole."""

    is_kept: bool
    records: list[Record] = field(factory=list)
    done: list[int] = field(factory=list)
    size: int = 0
    place: Entry | None = None
    """Where it stands among the others, if it is written over several turns."""

    def entry(self) -> Entry | None:
        """All of them as one record, if there are any."""
        records = [*self.records, Done(self.done)] if self.done else self.records
        if not records:
            return None
        record = Atomic(records) if len(records) > 1 else records[0]  # type: ignore[arg-type]
        return Entry(record, self.is_kept, self.size)
