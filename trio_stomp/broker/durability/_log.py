"""What the core tells the store, turn by turn, and what waits for the store's answer.

Nothing that is to survive is seen by anybody before the store has it: the core writes *records*
and beside them *effects*, which are done when the records are safe. A turn of the dispatcher has
one ledger, one append and one commit number. Without a store there is no log, and nothing waits.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from trio_stomp.broker.durability._failed import Failed
from trio_stomp.broker.durability._ledger import (
    LAZY_S,
    AtomicGroup,
    Effect,
    Entry,
    FrameReply,
    Ledger,
    WrittenAgain,
)
from trio_stomp.store import Append, Atomic, Begin, Forget, Keep, Put, Record, Turn

if TYPE_CHECKING:
    from trio_stomp.base import CloseReason
    from trio_stomp.broker.delivery import Client
    from trio_stomp.store import Recovered, Store

MAX_PENDING_BYTES = 32 * 1024 * 1024
"""Of records that the store has not answered yet; beyond it, whoever sends more must wait."""
SOON_S = 0.005
"""How long the end of a message is kept back, in the hope of company: the next message, mostly."""
RECORD_BYTES = 128
"""What a record costs beside its bodies, about."""
MAX_DELIVERED = 1_000_000
"""Deliveries that are remembered while the store fails: they are told after a crash, no more."""
IDENTITY = "identity"
"""The setting that says how the names of a store's messages begin."""


def _never() -> bool:
    return False


@define(eq=False, repr=False)
class StoreRead:
    """Something to read that is only in the store, and is about to be needed.

    Args:
      read: Reads it, in a thread: at most so many bytes.
      max_bytes: Those bytes.
      take: Takes what was read, in a turn. None: it could not be read, and may be asked for again.
    """

    read: Callable[["Store", int], Any]
    max_bytes: int
    take: Callable[[Any, float], None]


@define(eq=False, repr=False)
class Log:
    """The core's side of the store.

    Args:
      name: What RECEIPTs call the store.
      committed: Number of the last commit that the store has answered.
      next_id: Of the next message.
      deliveries: How often messages that are not loaded yet had been handed out.
    """

    name: str
    committed: int = 0
    next_id: int = 1
    deliveries: dict[int, int] = field(factory=dict)
    done_patience_s: float = SOON_S
    """How long it may take until the store knows that messages are finished with."""
    patience_s: float = LAZY_S
    """How long what was taken last may wait for company."""
    waiting: "dict[Client, None]" = field(factory=dict)
    """Whose next frames wait until what they sent before is safe."""
    leaving: "deque[tuple[Client, CloseReason, Callable[[], None]]]" = field(factory=deque)
    """Who is gone, but has something under way."""
    reads: list[StoreRead] = field(factory=list)
    """What is to be read from the store."""
    pending_bytes: int = 0
    failures: int = 0
    failed: Failed = field(init=False, factory=Failed)
    """How many deliveries of messages failed."""
    identity: str = field(init=False, default="")
    """The prefix of this store's ``message-id`` values."""
    stored: bytes = field(init=False)
    _is_identified: bool = False
    """The store knows that."""
    _open: Ledger = field(init=False)
    _sent: deque[Ledger] = field(factory=deque)
    _bound: AtomicGroup | None = None
    """What is being written as a whole."""
    _whole: AtomicGroup | None = None
    """What is written as a whole over several turns."""
    _has_ended: bool = False
    """That was done in this turn: what comes next is for another one."""
    _answered: int = 0
    """Number of the last commit that the store has; what is to be done then may not be done yet."""
    _unshown: list[WrittenAgain] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.stored = b"stored:%b\n" % self.name.removeprefix("stored:").encode()
        self._open = Ledger(self.committed + 1)

    @classmethod
    def of(cls, name: str, recovered: "Recovered", done_patience_s: float = SOON_S) -> "Log":
        """Return a log that goes on where a store stands."""
        deliveries = dict(recovered.deliveries)
        log = cls(name, recovered.commit, recovered.next_id, deliveries, done_patience_s)
        log.identity = recovered.settings.get(IDENTITY, "")
        log._is_identified = bool(log.identity)
        return log

    def named(self, boot: str) -> str:
        """Return the prefix of this store's message ids, for as long as there is the store."""
        # Not as those of this start in memory alone: the next start goes on with other numbers.
        self.identity = self.identity or f"{boot}s"
        return self.identity

    def identify(self) -> None:
        """Have the store remember that."""
        if self.identity and not self._is_identified:
            self._is_identified = True
            self.write(Keep(IDENTITY, self.identity), size=len(self.identity), is_free=True)

    def take_numbers(self, count: int) -> int:
        """Reserve ids for messages that the store does not hold, and return the first."""
        first = self.next_id
        self.next_id += count
        return first

    @property
    def is_atomic(self) -> bool:
        """Return whether what is written now holds with other things, or not at all."""
        return self._bound is not None

    @property
    def is_full(self) -> bool:
        """Return whether so much is under way that senders must wait."""
        return self.pending_bytes > MAX_PENDING_BYTES

    @property
    def turn(self) -> int:
        """The commit number that what was written last has, or will have."""
        ledger = self._open
        return ledger.number if ledger.entries or ledger.done else ledger.number - 1

    # What the core writes.

    def put(
        self,
        place: str,
        head: bytes,
        bodies: Sequence[bytes],
        level: int,
        received_ms: int,
        expires_ms: int,
        *,
        transient: bool = False,
        is_kept: bool = False,
    ) -> int:
        """Write messages that come to a place, and return the id of the first.

        Args:
          place: The key in the store.
          head: The header block.
          bodies: The bodies of the messages.
          level: The priority.
          received_ms: When they were received, in ms since 1970.
          expires_ms: When they expire, in ms since 1970; 0 = never.
          transient: Whether they need not survive a restart.
          is_kept: It must come to hold, since the core cannot take it back.
        """
        if not self._is_identified:
            self.identify()
        first = self.take_numbers(len(bodies))
        record = Put(
            place,
            first=first,
            head=head,
            bodies=bodies,
            level=level,
            received_ms=received_ms,
            expires_ms=expires_ms,
            transient=transient,
        )
        self.write(record, is_kept=is_kept, size=sum(map(len, bodies)))
        return first

    def write(
        self,
        record: Record,
        *,
        is_kept: bool = True,
        size: int = 0,
        is_urgent: bool = True,
        is_free: bool = False,
    ) -> None:
        """Write one record, with ``size`` bytes of bodies.

        Args:
          record: The record.
          is_kept: Whether it is retried if the store fails.
          size: The size of its bodies, in bytes.
          is_urgent: Whether somebody waits for it.
          is_free: It holds whatever becomes of ``together``.
        """
        ledger = self._open
        size += RECORD_BYTES
        ledger.size += size
        self.pending_bytes += size
        if is_urgent:
            ledger.patience_s = 0.0
        is_free |= self._bound is None or isinstance(record, (Append, Begin))
        if self._bound is not None and not is_free:
            self._bound.records.append(record)
            self._bound.size += size
        else:
            ledger.entries.append(Entry(record, is_kept, size))

    def keep(self, key: str, text: str) -> None:
        """Remember a setting."""
        self.write(Keep(key, text), size=len(text))

    def forget(self, key: str) -> None:
        """Remember a setting no more."""
        self.write(Forget(key))

    def finish(self, id: int) -> None:
        """Note that a message is finished."""
        if self._open.patience_s > self.done_patience_s:
            self._open.patience_s = self.done_patience_s
        done = self._open.done if self._bound is None else self._bound.done
        done.append(id)
        if self.failed.counts:
            self._forget_failed([id])

    def finish_all(self, ids: list[int]) -> None:
        """Write that messages, at least one, are done with."""
        self.finish(ids[0])
        done = self._open.done if self._bound is None else self._bound.done
        done.extend(ids[1:])
        if self.failed.counts:
            self._forget_failed(ids)

    def note_failed(self, id: int, count: int) -> None:
        """Write how many deliveries of a message have failed. Nothing waits for that."""
        for record in self.failed.note(id, count):
            self.write(record, is_urgent=False, is_free=True)

    def _forget_failed(self, ids: list[int]) -> None:
        for record in self.failed.forget(ids):
            self.write(record, is_urgent=False, is_free=True)

    def hand_out(self, ids: list[int]) -> None:
        """Messages are handed to a consumer: nobody waits for that."""
        self._open.delivered.extend(ids)

    @contextmanager
    def together(self, *, is_kept: bool = True) -> Iterator[None]:
        """Make what is written inside hold as a whole, or not at all.

        Inside another it is part of that; unless this must come to hold, and that need not.
        """
        outer = self._bound
        if outer is not None and (outer.is_kept or not is_kept):
            yield
            return
        bound = self._bound = AtomicGroup(is_kept)
        first = len(self._open.effects)
        try:
            yield
        finally:
            self._bound = outer
            if len(self._open.effects) > first:
                self._open.wholes[first] = len(self._open.effects)
            if is_kept and not bound.records:
                self._open.done.extend(bound.done)  # bound to nothing
            elif (entry := bound.entry()) is not None:
                self._open.entries.append(entry)

    @property
    def is_writing(self) -> bool:
        """Return whether something is written as a whole over several turns."""
        return self._whole is not None

    @property
    def may_begin(self) -> bool:
        """Return whether ``begin_whole`` may be called: the store gets each before the next."""
        return not (self._whole is not None or self._has_ended)

    def begin_turn(self) -> None:
        """Start a turn. The records of earlier turns have been handed to the store."""
        self._has_ended = False

    def begin_whole(self) -> AtomicGroup:
        """Begin what holds as a whole, or not at all, and is written over several turns.

        The store is given it when it has ended, and what others write meanwhile behind it: so ids
        and offsets come to the store in order. There is one at a time.
        """
        assert self._whole is None
        whole = self._whole = AtomicGroup(is_kept=False, place=Entry(Atomic(()), False, 0))
        self._open.entries.append(whole.place)  # type: ignore[arg-type]
        return whole

    def does_part(self, whole: AtomicGroup, work: Iterator[None]) -> bool:
        """Do a piece of ``work`` as part of ``whole``, and return whether it was not over."""
        self._bound = whole
        try:
            return next(work, whole) is not whole
        finally:
            self._bound = None

    def holds(self, whole: AtomicGroup) -> bool:
        """Return whether ``whole`` can still come to hold: the store has not failed meanwhile."""
        return self._whole is whole

    def end_whole(self, whole: AtomicGroup) -> None:
        """No more comes to ``whole``."""
        if not self.holds(whole):
            return
        self._whole, self._has_ended = None, True
        place, entry = whole.place, whole.entry()
        assert place is not None
        if entry is None:
            self._open.entries.remove(place)
        else:
            place.record, place.size = entry.record, entry.size

    def when_safe(self, effect: Effect) -> None:
        """Do ``effect`` when all that has been written so far is safe."""
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
        """Tell a client something, as soon as all that it has sent and acknowledged is safe."""
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
        """Return whether something that ``client`` sent is not safe yet."""
        return client.awaited > self.committed

    # What the dispatcher takes and answers.

    def take(self) -> Turn | None:
        """Return this turn's records to append, or None if there are none or a whole goes on."""
        ledger = self._open
        if self._whole is not None:
            return None
        if ledger.is_empty and not ledger.effects:
            return None
        self.patience_s = min(self.patience_s, ledger.patience_s)
        self._sent.append(ledger)
        self._open = Ledger(ledger.number + 1)
        return ledger.turn()

    def take_patience(self) -> float:
        """Return how long all that was taken so far may still wait for company, in seconds."""
        patience_s, self.patience_s = self.patience_s, LAZY_S
        return patience_s

    def take_reads(self) -> list[StoreRead]:
        """Return what is to be read from the store, once."""
        reads, self.reads = self.reads, []
        return reads

    def commit(self, number: int, now: float, is_over: Callable[[], bool] = _never) -> None:
        """Carry out the effects up to a stored commit number, as ``go_on`` does."""
        self._answered = number
        self.go_on(now, is_over)

    @property
    def has_more(self) -> bool:
        """Return whether there was no time yet for all that waited for what the store has."""
        return bool(self._sent) and self._sent[0].number <= self._answered

    def go_on(self, now: float, is_over: Callable[[], bool] = _never) -> None:
        """Do what waited for what the store has, in order, while there is time."""
        while self.has_more:
            ledger = self._sent[0]
            if not ledger.do(now, is_over):
                return
            self._sent.popleft()
            self.committed = ledger.number
            self.pending_bytes -= ledger.size
            if is_over():
                return

    def take_unshown(self) -> list[WrittenAgain]:
        """Return what of streams was under way when the store failed, in order."""
        unshown, self._unshown = self._unshown, []
        return unshown

    def fail(self, now: float) -> "list[Effect]":
        """Withdraw what the store refused, retry the rest, and return the withdrawn.

        What is tried again stays where it is, however often that comes to nothing.
        """
        self.go_on(now)  # what is safe is not withdrawn
        self.failures += 1
        self._whole = None
        again, *others = *self._sent, self._open
        self._sent.clear()
        self._open = again
        entries, effects = again.take_new()
        for ledger in others:
            entries += ledger.entries
            effects += ledger.effects
            again.done += ledger.done
            again.delivered += ledger.delivered
        for entry in entries:
            if entry.is_kept and not isinstance(entry.record, Append):
                again.entries.append(entry)
                again.old_size += entry.size
        withdrawn = self._part(again, effects)
        again.retry(MAX_DELIVERED)
        self.pending_bytes = again.size
        # The last first, as one takes steps back.
        for effect in reversed(withdrawn):
            effect.withdraw(now)
        return withdrawn

    def _part(self, again: Ledger, effects: list[Effect]) -> list[Effect]:
        """Part what is withdrawn, in order, from what still waits with ``again``."""
        # Whoever only waits to be told that its ACKs are safe has lost nothing.
        losers = {effect.client for effect in effects if not isinstance(effect, FrameReply)} - {
            None
        }
        withdrawn: list[Effect] = []
        if losers:
            withdrawn = [effect for effect in again.effects if effect.client in losers]
            again.effects = [effect for effect in again.effects if effect.client not in losers]
        for effect in effects:
            if isinstance(effect, WrittenAgain):
                self._unshown.append(effect)
            if effect.client in losers:
                withdrawn.append(effect)
            elif not isinstance(effect, WrittenAgain):
                again.effects.append(effect)
        return withdrawn
