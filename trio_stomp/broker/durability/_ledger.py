"""The records of one turn for the store, and the effects that wait for them."""

from array import array
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import BrokenInvariant, CloseReason, ProtocolError, noop
from trio_stomp.store import Append, Atomic, Delivered, Done, Record, Turn

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client

LAZY_S = 1.0
"""Delay of records for which no client waits (deliveries, statistics), to share an append."""
MANY_REPLIES = 32
"""Replies staged between two looks at the clock, about 50 µs."""
ID_BYTES = 8


def storage_error(text: str, code: str = "storage") -> ProtocolError:
    """Return the error for a client whose message is not stored, or perhaps not."""
    return ProtocolError(code, text, reason=CloseReason.STORAGE)


class Effect(Protocol):
    """An action that runs when the records before it are stored."""

    @property
    def client(self) -> "Client | None":
        """Return the client that gets an ERROR if the store fails, or None to retry the records."""

    def commit(self, now: float) -> None:
        """Carry out the effect: its records are stored."""

    def withdraw(self, now: float) -> None:
        """Undo the preparations: its records could not be stored."""


OnLost = Callable[[list[Effect], float], None]


@define(eq=False, repr=False)
class Callback:
    """A call that waits for the store. If the store fails, ``undo`` is called instead."""

    client: "Client | None"
    call: "Callable[[float], None]"
    receipt_id: bytes | None = None
    undo: "Callable[[float], None]" = noop

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        self.call(now)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.undo(now)


_DONE = Callback(None, noop)


class WrittenAgain:
    """Base of effects of streams, whose records are written again, at other offsets.

    Args:
      name: The name of the stream.
    """

    name: str

    def take_back(self) -> None:
        """Free its offsets and those that follow."""

    def write_again(self) -> None:
        """Write its messages at the next offsets, unless they have a sender: it got an ERROR."""


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
      first: The index of its first effect in the ledger.
    """

    record: Record
    must_retry: bool
    size: int
    first: int = 0

    def keeps(self, streams: Container[str]) -> bool:
        """Remove messages of streams from the record. Return whether anything is left."""
        all = self.record.records if isinstance(self.record, Atomic) else (self.record,)
        left = [each for each in all if not (isinstance(each, Append) and each.stream in streams)]
        self.record = _as_one(left) or self.record
        return bool(left)


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

    def number_after(self, number: int) -> int:
        """Return its number, which follows that of the ledger before.

        Raises:
          BrokenInvariant: It does not.
        """
        if self.number != number + 1:
            raise BrokenInvariant("commit-numbers", f"{self.number} comes after {number}")
        return self.number

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

    def refuse(self, record: Record, now: float, end: OnLost) -> None:
        """Withdraw the effects of a record: those of its sender, up to those of the next record.

        A retried record keeps its effects: no sender waits for them.

        Args:
          record: A record that the store left out.
          now: The time.
          end: Called in their place with the withdrawn effects and the time.
        """
        new = self.entries[self.old_entries :]
        ends = [*(entry.first for entry in new[1:]), len(self.effects)]
        for entry, last in zip(new, ends, strict=False):
            if entry.record is record and (own := self.effects[entry.first : last]):
                lost = [effect for effect in own if effect.client is own[0].client]
                self.effects = [_DONE if effect in lost else effect for effect in self.effects]
                self.effects[entry.first] = Callback(None, partial(end, lost))
                for effect in reversed(lost):
                    effect.withdraw(now)

    def take_back(
        self, first: int, records: Sequence[Record], is_lost: "Callable[[Client | None], bool]"
    ) -> tuple[list[Effect], list[WrittenAgain]]:
        """Remove the effects of records that are not stored after all.

        Messages that follow them in a stream are removed, too, for their offsets change.

        Args:
          first: The index of the first effect of the records.
          records: The records, which are not among the entries.
          is_lost: Returns whether the effects of a client, or of None, belong to the records.

        Returns:
          The effects to withdraw, and those of streams, in order.
        """
        streams = {record.stream for record in records if isinstance(record, Append)}
        lost: list[Effect] = []
        moved: list[WrittenAgain] = []
        for index, effect in enumerate(self.effects[first:], first):
            if isinstance(effect, WrittenAgain) and effect.name in streams:
                moved.append(effect)
            elif not isinstance(effect, WrittenAgain | FrameReply) and is_lost(effect.client):
                lost.append(effect)
            else:
                continue
            self.effects[index] = _DONE  # keeps the places of the others
        if moved:
            self.entries = [x for x in self.entries if x.first < first or x.keeps(streams)]
        return lost, moved

    def retry(
        self, others: "Sequence[Ledger]", most_delivered: int
    ) -> tuple[list[Effect], list[WrittenAgain]]:
        """Prepare all records that must be retried, also those of later ledgers, without delay.

        Args:
          others: The later ledgers.
          most_delivered: Limit of deliveries kept, the newest.

        Returns:
          The effects to withdraw, and those of streams, in order.
        """
        entries, effects = self.entries[self.old_entries :], self.effects[self.old_effects :]
        del self.entries[self.old_entries :]
        for ledger in others:
            entries += ledger.entries
            effects += ledger.effects
            self.effects += ledger.effects
            self.done += ledger.done
            self.delivered += ledger.delivered
        # Messages of streams are written again by their streams, at other offsets.
        moved: list[WrittenAgain] = [x for x in effects if isinstance(x, WrittenAgain)]
        streams = {effect.name for effect in moved}
        for entry in entries:
            if entry.must_retry and entry.keeps(streams):
                self.entries.append(entry)
                self.old_size += entry.size
        # A client that only waits for a reply, as to its ACKs, has lost nothing.
        losers = {each.client for each in effects if not isinstance(each, FrameReply)} - {None}
        withdrawn = [effect for effect in self.effects if effect.client in losers]
        kept = [each for each in self.effects if each.client not in losers]
        self.effects = [each for each in kept if not isinstance(each, WrittenAgain)]
        del self.delivered[:-most_delivered]
        self.old_entries, self.old_effects = len(self.entries), len(self.effects)
        self.size = self.old_size + ID_BYTES * (len(self.done) + len(self.delivered))
        self.patience_s = 0.0
        self.wholes.clear()
        return withdrawn, moved


@define(eq=False, repr=False)
class AtomicGroup:
    """Records that are stored all or none.

    Args:
      must_retry: They must be retried if the store fails.
      done: Ids of finished messages.
      size: Bytes of all records.
    """

    must_retry: bool
    outer: "AtomicGroup | None" = None
    """The group around it, which the store gets after it."""
    records: list[Record] = field(factory=list)
    done: list[int] = field(factory=list)
    size: int = 0

    def entry(self) -> Entry | None:
        """Return the group as one record, or None if it is empty."""
        records = [*self.records, Done(self.done)] if self.done else self.records
        record = _as_one(records)
        return None if record is None else Entry(record, self.must_retry, self.size)


def _as_one(records: Sequence[Record]) -> Record | None:
    """Return records as one that is stored as a whole, or None if there are none."""
    if len(records) > 1:
        return Atomic(records)  # type: ignore[arg-type]
    return records[0] if records else None
