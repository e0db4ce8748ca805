"""Passes the core's records to the store in other threads, and returns its answers.

The dispatcher never waits for the store. Turns are handed over, and all that arrive during a sync
form the next append (group commit without a timer). Records that nobody waits for join the next
urgent append, or are written after a delay.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

import outcome
import trio
from attrs import define, field

from trio_stomp.server.io import STORE, Bugs
from trio_stomp.store import StoreBroken, StoreError, append_sound, shape_of

if TYPE_CHECKING:
    from trio_stomp.broker import Broker, Client, Retention, StoreRead
    from trio_stomp.store import LeftOut, Store, StreamState, Turn

    Job = tuple[trio.lowlevel.Task, Sequence[Turn], int]

logger = logging.getLogger("trio_stomp")

NOT_STORED = (
    "the store cannot be written to, so nothing of this was stored; send it again later"
    " (the broker's log has the cause)"
)
IN_DOUBT = (
    "the store has failed, so it is not known whether this was stored; send it again later, and"
    " perhaps it comes twice (the broker's log has the cause)"
)
"""Clients see these texts only: paths and causes are for the operator."""
RETRY_S = 1.0
"""The delay after a failure of the store before records that must be stored are retried."""
RETAIN_S = 10.0
"""The interval at which retention is applied to streams."""
MEASURE_S = 10.0
"""The interval at which the store's capacity is read."""
SILENCE_S = 0.25
"""The interval at which a store that does not answer is noticed."""
MAX_GROUP_TURNS = 4096
"""Maximum number of turns in one append."""

Answer = Callable[[float], None]


@define(eq=False, repr=False)
class _Probe:
    """An effect without a record: appended to detect that the store works again."""

    client: "Client | None" = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""


@define(eq=False, repr=False)
class Appender:
    """Appends in a thread that exists for the duration of the ``with`` block. For one task.

    A thread from Trio's pool would add half of the cost to each append: it is fetched, named,
    limited and returned.
    """

    store: "Store"
    _jobs: "SimpleQueue[Job | None]" = field(factory=SimpleQueue)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        token = trio.lowlevel.current_trio_token()
        # A daemon, as Trio's threads are: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._append_for_ever, args=(token,), name="appender", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The thread is idle, as callers wait for each ``append``.
        self._jobs.put(None)
        self._thread.join()

    async def append(
        self, turns: "Sequence[Turn]", expected: int
    ) -> "tuple[int, Sequence[LeftOut]]":
        """Append as ``append_sound``. Checkpoint: always. Cancel: it waits for the append."""
        self._jobs.put((trio.lowlevel.current_task(), turns, expected))
        found: tuple[int, Sequence[LeftOut]]
        found = await trio.lowlevel.wait_task_rescheduled(_go_on_waiting)
        return found

    def _append_for_ever(self, token: trio.lowlevel.TrioToken) -> None:
        while (job := self._jobs.get()) is not None:
            task, turns, expected = job
            found = outcome.capture(append_sound, self.store, turns, expected)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.reschedule, task, found)
            # Release this job now: the next one may come much later.
            del job, task, turns, found


def _go_on_waiting(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


@define(eq=False, repr=False)
class StoreCommitter:
    """The store's task.

    Args:
      store: The recovered store. Nobody else appends to it.
      commit: Its last commit number.
      host: The core, which receives the answers in turns of the dispatcher.
      call_soon: Schedules an answer for the dispatcher's next turn.
    """

    store: "Store"
    commit: int
    host: "Broker"
    call_soon: Callable[[Answer], None]
    bugs: Bugs = field(factory=Bugs, kw_only=True)
    is_silent: Callable[[], bool] | None = None
    """Returns whether the store has not answered for so long that durable messages are refused
    until it does; None = they wait."""
    error: str = ""
    """The error of the last write; "" = the store works."""
    _turns: "deque[Turn]" = field(factory=deque)
    _now: trio.Event = field(factory=trio.Event)
    """Set when a waiting record must be appended at once."""
    _due: float = math.inf
    """The time by which waiting records must be appended."""
    _waiting: trio.CancelScope | None = None
    _answered: trio.Event = field(factory=trio.Event)
    _busy: bool = False
    _capacity: int = 0
    _nursery: trio.Nursery | None = None
    _appender: Appender = field(init=False)
    _readers: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(2))

    def __attrs_post_init__(self) -> None:
        self._appender = Appender(self.store)

    def submit(self, turn: "Turn") -> None:
        """Queue a turn to be appended after the earlier ones."""
        self._turns.append(turn)

    def hurry(self, patience_s: float = 0.0) -> None:
        """Append waiting records after at most this delay, however few they are."""
        if not self._turns:
            return
        if not patience_s:
            self._now.set()
            return
        due = trio.current_time() + patience_s
        if due < self._due:
            self._due = due
            if self._waiting is not None:
                # So the task does not have to run for records that may wait.
                self._waiting.deadline = due

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits to be appended or answered."""
        return not (self._turns or self._busy)

    async def wait_answer(self) -> None:
        """Wait until the store has answered. Checkpoint: always."""
        self._answered = trio.Event()
        await self._answered.wait()

    async def run(self) -> None:
        """Append submitted turns and carry out reads until cancelled.

        Checkpoint: always. Cancel: not in the middle of an append.
        """
        with self._appender:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._retain_for_ever)
                self._nursery.start_soon(self._measure_for_ever)
                if self.is_silent is not None:
                    self._nursery.start_soon(self._refuse_for_ever, self.is_silent)
                await self._append_for_ever()

    async def _append_for_ever(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._due) as self._waiting:
                await self._now.wait()
            self._waiting = None
            group = [self._turns.popleft() for _ in range(min(len(self._turns), MAX_GROUP_TURNS))]
            if not self._turns:
                self._now, self._due = trio.Event(), math.inf
            if group:
                await self._append(group)

    async def _append(self, group: "list[Turn]") -> None:
        self._busy = True
        try:
            number, left_out = await self._appender.append(group, self.commit)
        except Exception as error:
            await self._failed(error)
        else:
            self.commit = number
            if self.error:
                logger.warning("the store works again")
                self.error = ""
            for record, flaw in left_out:
                told = "the store cannot hold %s, left out: %s"
                self.bugs.tell(STORE, told, shape_of(record), flaw)
            self._answer(partial(self.host.committed, number, left_out=left_out))
        self._busy = False

    async def _failed(self, error: Exception) -> None:
        """Withdraw everything unanswered, and retry later what must be stored."""
        if not isinstance(error, StoreError):
            self.bugs.note(STORE, "a bug in the store")
        if not self.error:
            logger.error("the store cannot be written to: %s", error)
        text = IN_DOUBT if isinstance(error, StoreBroken) else NOT_STORED
        was_well, self.error = not self.error, text
        withdrawn = trio.Event()

        def withdraw(now: float) -> None:
            # Turns submitted since then fail as well: their numbers will be reused.
            self._turns.clear()
            self._now, self._due = trio.Event(), math.inf
            withdrawn.set()
            self.host.uncommitted(text, now)
            if was_well and self.host.log is not None:
                # There may be nothing to retry, and no traffic while /readyz reports the failure.
                self.host.log.when_safe(_Probe())

        self._answer(withdraw)
        await withdrawn.wait()
        await trio.sleep(RETRY_S)

    def _answer(self, answer: Answer) -> None:
        self.call_soon(answer)
        self._answered.set()

    def ask(self, wanted: "StoreRead") -> None:
        """Read from the store in a thread, and pass the result to the core."""
        assert self._nursery is not None
        self._nursery.start_soon(self._read, wanted)

    async def _retain_for_ever(self) -> None:
        """Apply retention to the streams at intervals."""
        while True:
            await trio.sleep(RETAIN_S)
            wanted = self.host.streams.retentions(trio.current_time())
            if not wanted:
                continue
            try:
                found = await trio.to_thread.run_sync(self._look_at, wanted, limiter=self._readers)
            except Exception as error:
                self._log_unreadable(error)
                continue
            self.call_soon(partial(self._retain, found))

    async def _refuse_for_ever(self, is_silent: Callable[[], bool]) -> None:
        """Have durable messages refused while the store does not answer."""

        def refuse(now: float) -> None:
            if is_silent():
                self.host.refuse_durable(NOT_STORED, IN_DOUBT, now)

        while True:
            await trio.sleep(SILENCE_S)
            if is_silent():
                self.call_soon(refuse)

    async def _measure_for_ever(self) -> None:
        """Report the store's capacity to the core when it changes."""
        while True:
            try:
                found = await trio.to_thread.run_sync(self.store.capacity, limiter=self._readers)
            except Exception as error:
                self._log_unreadable(error)
            else:
                if found != self._capacity:
                    self._capacity = found
                    self.call_soon(partial(self._note, found))
            await trio.sleep(MEASURE_S)

    def _note(self, capacity: int, _now: float) -> None:
        self.host.note_capacity(capacity)

    def _retain(self, found: "list[tuple[str, StreamState, int]]", _now: float) -> None:
        for name, state, before in found:
            self.host.streams.retain(name, state, before)

    def _look_at(self, wanted: "list[Retention]") -> "list[tuple[str, StreamState, int]]":
        found = []
        for each in wanted:
            state = self.store.stream_state(each.stream)
            if state is None:
                continue
            before = state.first
            if each.oldest_ms:
                before = max(before, self.store.find_offset(each.stream, each.oldest_ms))
            surplus = state.bytes - each.max_bytes
            if each.max_bytes and surplus > 0:
                # Retention removes whole files, so an approximate time is enough.
                before = max(
                    before, state.first + (state.next - state.first) * surplus // state.bytes
                )
            found.append((each.stream, state, before))
        return found

    async def _read(self, wanted: "StoreRead") -> None:
        found = None
        try:
            found = await trio.to_thread.run_sync(
                wanted.read, self.store, wanted.max_bytes, limiter=self._readers
            )
        except Exception as error:
            self._log_unreadable(error)
            await trio.sleep(RETRY_S)
        self.call_soon(partial(wanted.take, found))

    def _log_unreadable(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            logger.error("the store cannot be read: %s", error)
        else:
            self.bugs.note(STORE, "a bug in the store")
