"""Carries what the core says to the store, in other threads, and the store's answers back.

The dispatcher never waits for it: turns are handed over, and what came in during the last wait for
the disk is the next append (group commit, without a timer). What nobody waits for goes along with
what somebody does, or after a while.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import define, field

from trio_stomp.broker import PageWanted
from trio_stomp.server._appender import Appender
from trio_stomp.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker import Client, Log, Retention, StreamWanted
    from trio_stomp.store import Page, Store, Streamed, StreamState, Turn

logger = logging.getLogger("trio_stomp")

NOT_STORED = (
    "the store cannot be written to, so nothing of this was stored; send it again later"
    " (the broker's log has the cause)"
)
"""What clients are told: paths and causes are the operator's."""
RETRY_S = 1.0
"""How long a store that failed is left alone before what must hold is tried again."""
RETAIN_S = 10.0
"""How often streams are looked at for what they need not keep any more."""
MAX_GROUP_TURNS = 4096
"""Turns of one append."""
PAGE_BYTES = 256 * 1024
STRETCH_BYTES = 1024 * 1024
"""What is read at once of a queue, and of a stream."""

Answer = Callable[[float], None]


class StreamsHost(Protocol):
    """The part of the server that keeps streams within their bounds."""

    def retentions(self, now: float) -> "list[Retention]":
        """Of each stream that the store holds."""

    def retain(self, name: str, state: "StreamState", before: int) -> None:
        """Take the state of a stream. What is before an offset may go."""


class CommitterHost(Protocol):
    """The part of the core that the committer tells, in a turn of the dispatcher."""

    @property
    def log(self) -> "Log | None":
        """Return the log that the core writes to."""

    @property
    def streams(self) -> StreamsHost:
        """The core's streams."""

    def committed(self, number: int, now: float) -> None:
        """Publish everything up to a commit number, now that it is stored."""

    def uncommitted(self, error: str, now: float) -> None:
        """Withdraw everything handed to the store since the last commit."""

    def loaded(self, wanted: "PageWanted", page: "Page | None", now: float) -> None:
        """Take a page that was read, or the failure to read it."""

    def loaded_stream(
        self, wanted: "StreamWanted", found: "Sequence[Streamed] | int | None", now: float
    ) -> None:
        """Take messages of a stream, or an offset in it, or that it could not be read."""


@define(eq=False, repr=False)
class _Probe:
    """An effect without a record: something to append, so that it is seen when the store works."""

    client: "Client | None" = None

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""


@define(eq=False, repr=False)
class StoreCommitter:
    """The store's task.

    Args:
      store: Recovered; nobody else appends to it.
      commit: Its last commit number.
      host: Told of answers.
      call_soon: Has an answer dealt with in the dispatcher's next turn.
    """

    store: "Store"
    commit: int
    host: CommitterHost
    call_soon: Callable[[Answer], None]
    error: str = ""
    """Why the store cannot be written to now; "" = it can."""
    _turns: "deque[Turn]" = field(factory=deque)
    _now: trio.Event = field(factory=trio.Event)
    """Set as soon as something that waits is to be appended at once."""
    _due: float = math.inf
    """When what waits is to be appended, in company or not."""
    _waiting: trio.CancelScope | None = None
    _answered: trio.Event = field(factory=trio.Event)
    _busy: bool = False
    _nursery: trio.Nursery | None = None
    _appender: Appender = field(init=False)
    _readers: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(2))

    def __attrs_post_init__(self) -> None:
        self._appender = Appender(self.store)

    def submit(self, turn: "Turn") -> None:
        """Have a turn appended, behind those before it."""
        self._turns.append(turn)

    def hurry(self, patience_s: float = 0.0) -> None:
        """Append what waits, however little, at most so much later."""
        if not self._turns:
            return
        if not patience_s:
            self._now.set()
            return
        due = trio.current_time() + patience_s
        if due < self._due:
            self._due = due
            if self._waiting is not None:
                # So the task need not run for what is only to wait.
                self._waiting.deadline = due

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits to be appended or answered."""
        return not (self._turns or self._busy)

    async def wait_answer(self) -> None:
        """Wait until something was answered. Checkpoint: always."""
        self._answered = trio.Event()
        await self._answered.wait()

    async def run(self) -> None:
        """Append what is submitted, and read what is asked for, until cancelled.

        Checkpoint: always. Cancel: not in the middle of an append.
        """
        with self._appender:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._retain_for_ever)
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
            number = await self._appender.append(group, self.commit)
        except Exception as error:
            await self._failed(error)
        else:
            self.commit = number
            if self.error:
                logger.warning("the store works again")
                self.error = ""
            self._answer(partial(self.host.committed, number))
        self._busy = False

    async def _failed(self, error: Exception) -> None:
        """Withdraw everything unanswered, and try again after a while what must hold."""
        if not isinstance(error, StoreError):
            logger.error("a bug in the store", exc_info=error)
        if not self.error:
            logger.error("the store cannot be written to: %s", error)
        was_well, self.error = not self.error, NOT_STORED
        withdrawn = trio.Event()

        def withdraw(now: float) -> None:
            # What was submitted since then goes the same way: its numbers will be given anew.
            self._turns.clear()
            self._now, self._due = trio.Event(), math.inf
            withdrawn.set()
            self.host.uncommitted(NOT_STORED, now)
            if was_well and self.host.log is not None:
                # Perhaps nothing is to be tried again, and who asks /readyz sends nobody.
                self.host.log.when_safe(_Probe())

        self._answer(withdraw)
        await withdrawn.wait()
        await trio.sleep(RETRY_S)

    def _answer(self, answer: Answer) -> None:
        self.call_soon(answer)
        self._answered.set()

    def ask(self, wanted: "PageWanted | StreamWanted") -> None:
        """Have something read, and given to the core."""
        assert self._nursery is not None
        self._nursery.start_soon(self._read, wanted)

    async def _retain_for_ever(self) -> None:
        """Look now and then what of the streams has become too old or too much."""
        while True:
            await trio.sleep(RETAIN_S)
            wanted = self.host.streams.retentions(trio.current_time())
            if not wanted:
                continue
            try:
                found = await trio.to_thread.run_sync(self._look_at, wanted, limiter=self._readers)
            except Exception as error:
                _tell_unreadable(error)
                continue
            self.call_soon(partial(self._retain, found))

    def _retain(self, found: "list[tuple[str, StreamState, int]]", now: float) -> None:
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
                # Whole files go, so about is good enough.
                before = max(
                    before, state.first + (state.next - state.first) * surplus // state.bytes
                )
            found.append((each.stream, state, before))
        return found

    async def _read(self, wanted: "PageWanted | StreamWanted") -> None:
        try:
            call = await trio.to_thread.run_sync(self._look_up, wanted, limiter=self._readers)
        except Exception as error:
            _tell_unreadable(error)
            await trio.sleep(RETRY_S)
            if isinstance(wanted, PageWanted):
                call = partial(self.host.loaded, wanted, None)
            else:
                call = partial(self.host.loaded_stream, wanted, None)
        self.call_soon(call)

    def _look_up(self, wanted: "PageWanted | StreamWanted") -> Answer:
        """Read: part of a queue, part of a stream, or where a time stands in it."""
        store = self.store
        if isinstance(wanted, PageWanted):
            page = store.read(wanted.queue.place, wanted.level, wanted.after, PAGE_BYTES)
            return partial(self.host.loaded, wanted, page)
        found: Sequence[Streamed] | int
        if wanted.found is not None:
            found = store.find_offset(wanted.stream, wanted.written_ms)
        else:
            found = store.read_stream(wanted.stream, wanted.first, STRETCH_BYTES)
        return partial(self.host.loaded_stream, wanted, found)


def _tell_unreadable(error: Exception) -> None:
    if isinstance(error, StoreError):
        logger.error("the store cannot be read: %s", error)
    else:
        logger.error("a bug in the store", exc_info=error)
