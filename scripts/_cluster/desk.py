"""The owner in the simulation: a small broker over the replicated store.

It stands for the dispatcher and the committer: it appends one batch at a time, answers after the
append, delivers messages only while it has the lease, and marks deliveries before an orderly end.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from _cluster.ledger import Ledger, State
from trio_stomp.cluster import ReplicatedStore
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    Keep,
    Put,
    Record,
    Recovered,
    StoreBroken,
    StoreError,
    Trim,
    Turn,
)

if TYPE_CHECKING:
    from _cluster.nodes import Life

PLACES = "queue:/queue/a", "queue:/queue/b"
STREAM, EPOCH = "s", "e"
HEAD = b"h:1\n"
KEY = "number"
GROUP = 8
"""Requests of one append."""
RETRY_S = 1.0
MARK_S = 0.5
PAGE = 1 << 20
STORED, REFUSED, DOUBTFUL, LOST = "stored", "refused", "doubtful", "lost"


@define(eq=False)
class Request:
    """A client's request to the owner.

    Args:
      bodies: Messages for a queue.
      ends: The ids of messages to acknowledge.
      streamed: The messages for the stream.
      keeps: Whether to increase the number in the setting.
      takes: The number of messages to receive.
      is_whole: Whether it must be stored as a whole or not at all.
      answer: ``STORED``, or the reason for a failure; "" = none yet.
      taken: The received messages, by id.
    """

    bodies: Sequence[bytes] = ()
    place: str = PLACES[0]
    ends: Sequence[int] = ()
    streamed: Sequence[bytes] = ()
    keeps: bool = False
    takes: int = 0
    is_whole: bool = False
    answer: str = ""
    taken: dict[int, bytes] = field(factory=dict)
    answered: trio.Event = field(factory=trio.Event)

    def reply(self, answer: str) -> None:
        """Answer it, unless its connection was lost before."""
        if not self.answer:
            self.answer = answer
            self.answered.set()


@define(eq=False)
class Term:
    """A node's time as the owner.

    Args:
      may_hand_out: Whether the node has the lease, by its own clock.
    """

    life: "Life"
    store: ReplicatedStore
    ledger: Ledger
    may_hand_out: Callable[[], bool]
    requests: list[Request] = field(factory=list)
    """Requests without an answer."""
    is_open: bool = False
    opened_at: float = 0.0
    _commit: int = 0
    _next: int = 1
    _offset: int = 0
    _kept: int = 0
    _live: dict[int, tuple[bytes, str]] = field(factory=dict)
    _out: set[int] = field(factory=set)
    """Ids of messages that a client has got."""
    _marks: list[int] = field(factory=list)
    """Deliveries that are not stored yet."""
    _marked: set[int] = field(factory=set)
    """Ids of messages that were delivered before this term, so far as is known."""
    _is_doubtful: bool = False
    _is_stopping: bool = False
    _news: trio.Event = field(factory=trio.Event)

    def submit(self, request: Request) -> None:
        """Give it a request of a client."""
        self.requests.append(request)
        self._news.set()

    def stop(self) -> None:
        """Have ``run`` end in order."""
        self._is_stopping = True
        self._news.set()

    def give_back(self, ids: Sequence[int]) -> None:
        """Take back messages of a client that went away."""
        self._out.difference_update(ids)

    async def run(self) -> None:
        """Serve clients until it is stopped, or cancelled.

        Raises:
          StoreUnavailable: The log does not answer.
        """
        try:
            found = await trio.to_thread.run_sync(self.store.recover, lambda _done, _all: None)
            state = await trio.to_thread.run_sync(self._read, found)
            self._begin(found, state)
            while not self._is_stopping:
                with trio.move_on_after(MARK_S):
                    await self._news.wait()
                self._news = trio.Event()
                await self._serve()
            self.is_open = False
            if await self._serve():
                await trio.to_thread.run_sync(self.store.close)
        finally:
            self.is_open = False
            for request in self.requests:
                request.reply(LOST)
            self.requests.clear()

    def _begin(self, found: Recovered, state: State) -> None:
        self._commit, self._next, self._is_doubtful = found.commit, found.next_id, found.is_doubtful
        self._marked = set(found.deliveries)
        self._kept = state.kept
        if not self.life.is_dead:
            self.life.log(f"serves: {len(state.live)} messages, commit {found.commit}")
            if self.ledger.is_last(self.store._writer):
                self.ledger.take_over(self.life.name, state)
            self.is_open, self.opened_at = True, trio.current_time()

    def _read(self, found: Recovered) -> State:
        """Return everything that the store has. In a thread."""
        for place, level in found.places:
            page = self.store.read(place, level, 0, PAGE)
            for run in page.runs:
                for number, body in zip(run.ids, run.bodies, strict=True):
                    self._live[number] = body, place
        stream: dict[int, bytes] = {}
        begun = found.streams.get(STREAM)
        self._offset = -1 if begun is None else begun.next
        if begun is not None:
            for each in self.store.read_stream(STREAM, begun.first, PAGE):
                stream.update(enumerate(each.bodies, each.first))
        live = {number: body for number, (body, _) in self._live.items()}
        return State(live, stream, int(found.settings.get(KEY, "0")))

    # --- requests ---------------------------------------------------------------------------------

    async def _serve(self) -> bool:
        """Process the waiting requests. Return whether their records were stored."""
        while True:
            for request in [each for each in self.requests if each.takes]:
                self.requests.remove(request)
                self._hand_out(request)
            group = self.requests[:GROUP]
            if not group and not self._marks:
                return True
            if not await self._append(group):
                return False

    def _hand_out(self, request: Request) -> None:
        if self.is_open and self.may_hand_out() and not request.answer:
            waiting = [number for number in sorted(self._live) if number not in self._out]
            for number in waiting[: request.takes]:
                body, _ = self._live[number]
                request.taken[number] = body
                self._out.add(number)
                self._marks.append(number)
                if not self.life.is_dead:
                    self.ledger.hand_out(
                        self.life.name,
                        self,
                        number,
                        speed=self.life.machine.speed,
                        is_marked=self._is_doubtful or number in self._marked,
                    )
        request.reply(STORED)

    async def _append(self, group: Sequence[Request]) -> bool:
        """Store the records of requests, and answer them. Return whether they were stored."""
        marks, self._marks = self._marks, []
        first, offset = self._next, self._offset
        turns = [self._turn(request) for request in group]
        if marks:
            turns.append(Turn([Delivered(marks)], is_urgent=False))
        store, sequence = self.store, 0
        try:
            commit = await trio.to_thread.run_sync(store.append, turns, self._commit)
            sequence = store._sequence
        except StoreError as error:
            self._next, self._offset = first, offset
            self.life.log(f"append after {self._commit} failed: {error}")
            self._fail(group, DOUBTFUL if isinstance(error, StoreBroken) else REFUSED)
            self._marks = marks + self._marks
            if not self._is_stopping:
                await trio.sleep(RETRY_S)
            return False
        if self.life.is_dead:
            return False
        self._commit = commit
        self._marked.update(marks)
        self.ledger.confirm(self.life.name, self, store._writer, sequence)
        for request, turn in zip(group, turns, strict=False):
            self._confirm(request, turn.records, sequence)
        del self.requests[: len(group)]
        return True

    def _fail(self, group: Sequence[Request], answer: str) -> None:
        del self.requests[: len(group)]
        if self.life.is_dead:
            return
        if answer == REFUSED:
            self.ledger.refuse(self.life.name, self.store._writer, self._commit + 1)
        for request in group:
            request.reply(answer)

    def _turn(self, request: Request) -> Turn:
        """Return the records of a request."""
        records: list[Record] = []
        if request.bodies:
            records.append(Put(request.place, self._next, HEAD, request.bodies))
            self._next += len(request.bodies)
        if request.ends:
            records.append(Done(request.ends))
        if request.keeps:
            records.append(Keep(KEY, f"{self._kept + 1}"))
        if request.streamed:
            if self._offset < 0:
                records.append(Begin(STREAM, EPOCH))
                self._offset = 0
            now_ms = int(trio.current_time() * 1000)
            records.append(Append(STREAM, self._offset, HEAD, request.streamed, now_ms))
            self._offset += len(request.streamed)
            if self._offset % 7 == 0:
                records.append(Trim(STREAM, self._offset - 5))
                self.ledger.trimmed = max(self.ledger.trimmed, self._offset - 5)
        if request.is_whole and records:
            return Turn([Atomic(records)])  # type: ignore[arg-type]
        return Turn(records)

    def _confirm(self, request: Request, records: Sequence[Record], sequence: int) -> None:
        """Apply the stored records, and answer."""
        ledger, name = self.ledger, self.life.name
        for record in records:
            if isinstance(record, Atomic):
                self._confirm(request, record.records, sequence)
            elif isinstance(record, Put):
                for number, body in enumerate(record.bodies, record.first):
                    self._live[number] = body, record.place
                    ledger.confirm_message(name, sequence, number, body)
            elif isinstance(record, Done):
                for number in record.ids:
                    self._live.pop(number, None)
                    ledger.ended.add(number)
            elif isinstance(record, Keep):
                ledger.kept = self._kept = int(record.text)
            elif isinstance(record, Append):
                ledger.streamed.update(enumerate(record.bodies, record.first))
        request.reply(STORED)
