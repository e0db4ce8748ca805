"""The log: records for the store, and effects that wait for its answer.

Durable messages are invisible until they are stored: the core writes *records*, and *effects* that
run when these records are stored. A turn of the dispatcher has one ledger, one append and one
commit number. Without a store there is no log, and nothing waits.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from trio_stomp.broker.delivery import Turns
from trio_stomp.broker.durability._ledger import (
    LAZY_S,
    AtomicGroup,
    Effect,
    Entry,
    FrameReply,
    Ledger,
    OnLost,
    WrittenAgain,
    storage_error,
)
from trio_stomp.broker.headers import SendOutcome
from trio_stomp.store import Append, Begin, Forget, Keep, Put, Record, Turn

if TYPE_CHECKING:
    from trio_stomp.base import CloseReason
    from trio_stomp.broker.delivery import Client
    from trio_stomp.store import Recovered, Store

PREFIX = "failed:"
"""Prefix of these settings."""
MAX_FAILED = 10_000
"""Limit of counts. Above it, the oldest is forgotten and its message counts from 0 again."""


@define(eq=False, repr=False)
class Failed:
    """The counts of failed deliveries, by message id."""

    counts: dict[int, int] = field(factory=dict)

    def restore(self, settings: Mapping[str, str]) -> None:
        """Restore the counts from the store's settings."""
        for key, text in settings.items():
            digits = key.removeprefix(PREFIX)
            if digits != key and digits.isdecimal() and text.isdecimal():
                self.counts[int(digits)] = int(text)

    def note(self, id: int, count: int) -> Iterator[Keep | Forget]:
        """Set a count, and yield the records for the store."""
        counts = self.counts
        if id not in counts and len(counts) >= MAX_FAILED:
            oldest = next(iter(counts))
            del counts[oldest]
            yield Forget(f"{PREFIX}{oldest}")
        counts[id] = count
        yield Keep(f"{PREFIX}{id}", f"{count}")

    def forget(self, ids: Sequence[int]) -> Iterator[Forget]:
        """Forget the counts of finished messages, and yield the records for the store."""
        for id in ids:
            if self.counts.pop(id, None) is not None:
                yield Forget(f"{PREFIX}{id}")


@define(eq=False, repr=False)
class StoreRead:
    """A request to read from the store.

    Args:
      read: Reads up to ``max_bytes``, in a thread.
      max_bytes: The limit of the read.
      take: Called with the result and the time, in a turn. None = the read failed and may be
        repeated.
    """

    read: Callable[["Store", int], Any]
    max_bytes: int
    take: Callable[[Any, float], None]


MAX_PENDING_BYTES = 32 * 1024 * 1024
"""Limit of records on their way to the store. Above it, senders of durable messages wait."""
SOON_S = 0.005
"""Delay of ends of messages alone, so that they share an append with the next message."""
RECORD_BYTES = 128
"""Approximate overhead of a record in addition to its bodies."""
MAX_DELIVERED = 1_000_000
"""Limit of deliveries kept while the store fails. They only matter for counts after a crash."""
IDENTITY = "identity"
"""The setting in the store with the prefix of its message ids."""


@define(eq=False, repr=False)
class Log:
    """The core's interface to the store.

    Args:
      name: The name of the store in RECEIPTs.
      turns: The turns of the core that writes here.
      committed: The last commit number whose effects were carried out.
      next_id: The id of the next message.
      deliveries: Counts of earlier deliveries of messages that are not loaded yet, by id.
      doubtful_below: Messages with lower ids may have been delivered by another broker without a
        record. They are marked as redelivered.
    """

    name: str
    turns: Turns
    committed: int = 0
    next_id: int = 1
    deliveries: dict[int, int] = field(factory=dict)
    doubtful_below: int = 0
    done_patience_s: float = SOON_S
    """Delay of ends of messages alone, to share an append."""
    patience_s: float = LAZY_S
    """How long the ledgers taken last may be delayed to share an append."""
    waiting: "dict[Client, None]" = field(factory=dict)
    """Clients whose next frames wait until the earlier ones are stored."""
    leaving: "deque[tuple[Client, CloseReason, Callable[[], None]]]" = field(factory=deque)
    """Clients that are gone, with records on their way to the store."""
    reads: list[StoreRead] = field(factory=list)
    """Requested reads."""
    pending_bytes: int = 0
    refusal: str = ""
    """Why durable messages are refused until the store answers again; "" = they are not."""
    failed: Failed = field(init=False, factory=Failed)
    """Counts of failed deliveries."""
    identity: str = field(init=False, default="")
    """The prefix of this store's message ids."""
    stored: SendOutcome = field(init=False)
    """The outcome of SENDs of stored messages."""
    _is_identified: bool = False
    """``identity`` is written to the store."""
    _open: Ledger = field(init=False)
    """The ledger of the current turn."""
    _sent: deque[Ledger] = field(factory=deque)
    """Ledgers whose effects are not all carried out, in order."""
    _bound: AtomicGroup | None = None
    """The atomic group to which records are written now."""
    _answered: int = 0
    """The last stored commit number. Its effects may not be carried out yet."""

    def __attrs_post_init__(self) -> None:
        self.stored = SendOutcome(stored=self.name.removeprefix("stored:"))
        self._open = Ledger(self.committed + 1)

    @classmethod
    def of(
        cls,
        name: str,
        recovered: "Recovered",
        turns: Turns,
        done_patience_s: float = SOON_S,
    ) -> "Log":
        """Return a log that continues from the state of a store."""
        log = cls(
            name,
            turns,
            recovered.commit,
            recovered.next_id,
            dict(recovered.deliveries),
            done_patience_s=done_patience_s,
        )
        log.identity = recovered.settings.get(IDENTITY, "")
        log._is_identified = bool(log.identity)
        log.doubtful_below = recovered.next_id if recovered.is_doubtful else 0
        return log

    def named(self, boot: str) -> str:
        """Return the prefix of this store's message ids, which restarts do not change.

        Args:
          boot: The prefix of messages in memory, from which a new store derives its own.
        """
        # Another prefix than ``boot``, because numbers in memory begin anew after a restart.
        self.identity = self.identity or f"{boot}s"
        return self.identity

    def identify(self) -> None:
        """Write ``identity`` to the store, once."""
        if self.identity and not self._is_identified:
            self._is_identified = True
            self.write(Keep(IDENTITY, self.identity), size=len(self.identity), is_free=True)

    def take_numbers(self, count: int) -> int:
        """Reserve ids for messages, and return the first."""
        first = self.next_id
        self.next_id += count
        return first

    @property
    def is_atomic(self) -> bool:
        """Return whether records are written to an atomic group now."""
        return self._bound is not None

    @property
    def is_full(self) -> bool:
        """Return whether senders of durable messages must wait."""
        return self.pending_bytes > MAX_PENDING_BYTES

    @property
    def turn(self) -> int:
        """Return the commit number of the last record written."""
        ledger = self._open
        return ledger.number if ledger.entries or ledger.done else ledger.number - 1

    # Writing.

    def put(self, record: Put, *, must_retry: bool = False) -> int:
        """Write messages, and return the id of the first.

        Args:
          record: The messages, numbered by ``take_numbers``.
          must_retry: Retry if the store fails, because no sender can be refused.
        """
        if not self._is_identified:
            self.identify()
        self.write(record, must_retry=must_retry, size=sum(map(len, record.bodies)))
        return record.first

    def write(
        self,
        record: Record,
        *,
        must_retry: bool = True,
        size: int = 0,
        is_urgent: bool = True,
        is_free: bool = False,
    ) -> None:
        """Write one record.

        Args:
          record: The record.
          must_retry: Retry if the store fails.
          size: The bytes of its bodies.
          is_urgent: Do not delay the append.
          is_free: Do not make it part of the atomic group.
        """
        ledger = self._open
        size += RECORD_BYTES
        ledger.size += size
        self.pending_bytes += size
        if is_urgent:
            ledger.patience_s = 0.0
        group = None if is_free or isinstance(record, Begin) else self._bound
        if isinstance(record, Append):
            # The order of offsets is that of groups, which the store gets from the inside out.
            while group is not None and group.outer is not None:
                group = group.outer
        if group is not None:
            group.records.append(record)
            group.size += size
        else:
            ledger.entries.append(Entry(record, must_retry, size, len(ledger.effects)))

    def keep(self, key: str, text: str) -> None:
        """Write a setting."""
        self.write(Keep(key, text), size=len(text))

    def forget(self, key: str) -> None:
        """Remove a setting."""
        self.write(Forget(key))

    def finish(self, id: int) -> None:
        """Write the end of a message."""
        if self._open.patience_s > self.done_patience_s:
            self._open.patience_s = self.done_patience_s
        done = self._open.done if self._bound is None else self._bound.done
        done.append(id)
        if self.failed.counts:
            self._forget_failed([id])

    def finish_all(self, ids: list[int]) -> None:
        """Write the end of one or more messages."""
        self.finish(ids[0])
        done = self._open.done if self._bound is None else self._bound.done
        done.extend(ids[1:])
        if self.failed.counts:
            self._forget_failed(ids)

    def note_failed(self, id: int, count: int) -> None:
        """Write the number of failed deliveries of a message. It is not urgent."""
        for record in self.failed.note(id, count):
            self.write(record, is_urgent=False, is_free=True)

    def _forget_failed(self, ids: list[int]) -> None:
        for record in self.failed.forget(ids):
            self.write(record, is_urgent=False, is_free=True)

    def hand_out(self, ids: list[int]) -> None:
        """Write deliveries of messages. They are not urgent."""
        self._open.delivered.extend(ids)

    @contextmanager
    def atomically(self, *, must_retry: bool = True) -> Iterator[None]:
        """Make the records written inside the context one atomic group: stored all or none.

        A nested group is part of the outer one, unless only the inner one must be retried. After an
        exception nothing of the group is stored, and its effects are withdrawn.

        Args:
          must_retry: Retry if the store fails.
        """
        outer = self._bound
        if outer is not None and (outer.must_retry or not must_retry):
            yield
            return
        group = self._bound = AtomicGroup(must_retry, outer=outer)
        first = len(self._open.effects)
        try:
            yield
        except BaseException:
            self._bound = outer
            self._roll_back(group, first, lambda client: (client is None) == must_retry)
            raise
        self._bound = outer
        if len(self._open.effects) > first:
            self._open.wholes[first] = len(self._open.effects)
        if must_retry and not group.records:
            self._open.done.extend(group.done)  # ends of messages need no group
        elif (entry := group.entry()) is not None:
            entry.first = first
            self._open.entries.append(entry)

    def _roll_back(
        self, group: AtomicGroup, first: int, is_lost: "Callable[[Client | None], bool]"
    ) -> None:
        """Withdraw the effects, from index ``first``, of a group that is not stored."""
        lost, moved = self._open.take_back(first, group.records, is_lost)
        _withdraw(lost, moved, self.turns.now)

    def when_safe(self, effect: Effect) -> None:
        """Carry out ``effect`` when all records written so far are stored."""
        ledger = self._open
        if ledger.is_empty and self._bound is None and self._sent:
            ledger = self._sent[-1]
        ledger.effects.append(effect)
        if effect.client is not None:
            effect.client.awaited = ledger.number
            ledger.patience_s = self.patience_s = 0.0

    def stage_when_safe(
        self, client: "Client", frame: bytes, receipt_id: bytes | None = None
    ) -> None:
        """Send a frame to a client as soon as all its records are stored."""
        number = max(client.awaited, client.acked)
        ahead = number - self.committed - 1
        if ahead < 0:
            client.outbox.stage_frame(frame)
            return
        ledger = self._sent[ahead] if ahead < len(self._sent) else self._open
        ledger.effects.append(FrameReply(client, frame, receipt_id))
        ledger.patience_s = self.patience_s = 0.0
        client.awaited = number

    def is_awaited_by(self, client: "Client") -> bool:
        """Return whether any record of ``client`` is not stored yet."""
        return client.awaited > self.committed

    # For the dispatcher.

    def take(self) -> Turn | None:
        """Return the records of this turn to append, or None."""
        ledger = self._open
        if ledger.is_empty and not ledger.effects:
            return None
        self.patience_s = min(self.patience_s, ledger.patience_s)
        self._sent.append(ledger)
        self._open = Ledger(ledger.number + 1)
        return ledger.turn()

    def take_patience(self) -> float:
        """Return how many seconds the records taken so far may be delayed, and reset this."""
        patience_s, self.patience_s = self.patience_s, LAZY_S
        return patience_s

    def take_reads(self) -> list[StoreRead]:
        """Return the requested reads and forget them."""
        reads, self.reads = self.reads, []
        return reads

    def commit(self, number: int, now: float, is_over: Callable[[], bool] = bool) -> None:
        """Record a stored commit number, and carry out effects as ``go_on``."""
        self._answered, self.refusal = number, ""
        self.go_on(now, is_over)

    @property
    def has_more(self) -> bool:
        """Return whether effects of stored records are left to carry out."""
        return bool(self._sent) and self._sent[0].number <= self._answered

    def go_on(self, now: float, is_over: Callable[[], bool] = bool) -> None:
        """Carry out effects of stored records, in order, while there is time."""
        while self.has_more:
            ledger = self._sent[0]
            if not ledger.do(now, is_over):
                return
            self.committed = self._sent.popleft().number_after(self.committed)
            self.pending_bytes -= ledger.size
            if is_over():
                return

    def refuse(self, record: Record, now: float, end: OnLost) -> None:
        """Withdraw the effects of a record that the store left out, as ``Ledger.refuse``."""
        for ledger in self._sent:
            ledger.refuse(record, now, end)

    def check_accepts(self) -> None:
        """Raise ``ProtocolError`` if durable messages are refused."""
        if self.refusal:
            raise storage_error(self.refusal)

    def unanswered(self) -> "Iterator[Effect]":
        """Yield the effects that wait for the store, in order."""
        for ledger in (*self._sent, self._open):
            yield from ledger.effects[ledger.seen :]

    def fail(self, now: float) -> "list[Effect]":
        """Withdraw the records that need not be kept, and prepare the others for a retry.

        Returns:
          The withdrawn effects, in order.
        """
        self.go_on(now)  # stored records are not withdrawn
        again, *others = *self._sent, self._open
        self._sent.clear()
        self._open = again
        withdrawn, moved = again.retry(others, MAX_DELIVERED)
        self.pending_bytes = again.size
        _withdraw(withdrawn, moved, now)
        return withdrawn


def _withdraw(lost: Sequence[Effect], moved: Sequence[WrittenAgain], now: float) -> None:
    """Withdraw effects in reverse order, to undo them step by step, and write streams again."""
    for effect in reversed(lost):
        effect.withdraw(now)
    for each in reversed(moved):
        each.take_back()
    for each in moved:
        each.write_again()
