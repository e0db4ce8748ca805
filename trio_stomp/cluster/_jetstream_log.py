"""A commit log on a JetStream stream, for worker threads."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import trio
from attrs import define, field

from trio_stomp.cluster._commit_log import InDoubt, LogEntry
from trio_stomp.nats import (
    Disconnected,
    Follower,
    JetStream,
    JetStreamError,
    NatsError,
    NoResponders,
    NotFound,
    WrongLastSequence,
    expecting,
)
from trio_stomp.store import StaleSequence, StoreUnavailable

MARGIN_BYTES = 1024
"""Bytes of the server's largest message that are reserved for headers and the stream's data."""

LOOK_S = 5.0
"""Time without an entry after which a read begins again."""
FEW = 8
"""Up to this number, entries are read one by one."""
PAUSE_S = 0.1
"""Minimum time of a request that fails, so retrying it in a loop does not load the servers."""

T = TypeVar("T")


@define(eq=False)
class JetStreamLog:
    """Implements ``CommitLog``. Its methods are called in threads, never in Trio's own.

    Args:
      jetstream: JetStream over a connected client.
      stream: The stream, with one subject.
      subject: The subject.
      token: The token of the Trio loop in which the client runs.
    """

    jetstream: JetStream
    stream: str
    subject: bytes
    max_bytes: int
    token: trio.lowlevel.TrioToken = field(factory=trio.lowlevel.current_trio_token)
    _follower: Follower | None = None
    _has_more: bool = False

    def publish(self, payload: bytes, expected: int) -> int:
        """Implement ``CommitLog.publish``."""

        async def publish() -> int:
            headers = expecting(expected)
            published = await self.jetstream.publish(self.subject, payload, headers=headers)
            return published.sequence

        return self._run(publish)

    def last(self) -> int:
        """Implement ``CommitLog.last``."""

        async def last() -> int:
            return (await self.jetstream.stream(self.stream)).last

        return self._run(last)

    def entry(self, sequence: int) -> LogEntry | None:
        """Implement ``CommitLog.entry``. A new leader may need a moment to know the log's end."""

        async def entry() -> LogEntry | None:
            with trio.move_on_after(LOOK_S):
                while True:
                    if (await self.jetstream.stream(self.stream)).last >= sequence:
                        break
                    await trio.sleep(PAUSE_S)
            return next(iter(await self._entries([sequence])), None)

        return self._run(entry)

    def read(self, after: int) -> Sequence[LogEntry]:
        """Implement ``CommitLog.read``."""

        async def read() -> Sequence[LogEntry]:
            while True:
                if self._follower is None or self._follower.last != after or not self._has_more:
                    self.close()
                    found = await self.jetstream.stream(self.stream)
                    sequences = range(max(found.first, after + 1), found.last + 1)
                    if len(sequences) <= FEW:
                        return await self._entries(sequences)
                    self._follower = Follower(self.jetstream, self.stream, after)
                with trio.move_on_after(LOOK_S):
                    entries = await self._follower.receive()
                    self._has_more = entries[-1].pending > 0
                    return [LogEntry(each.sequence, each.message.payload) for each in entries]
                self.close()  # entries were purged meanwhile, or lost on their way

        return self._run(read)

    async def _entries(self, sequences: Iterable[int]) -> Sequence[LogEntry]:
        """Return a few entries, each read with a request of its own.

        Such requests need only the stream's leader. A consumer costs less for many entries, but
        also needs the leader of all servers, which may be missing for seconds.
        """
        found: list[LogEntry] = []
        for each in sequences:
            with suppress(NotFound):  # it was purged meanwhile, and its reader sees the gap
                found.append(LogEntry(*await self.jetstream.message(self.stream, seq=each)))
        return found

    def close(self) -> None:
        """End the subscription that reads the stream. Call it in Trio's thread."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            try:
                return await call()
            except (Disconnected, NoResponders):
                # There is no server or no leader. The caller must not retry immediately.
                await trio.sleep(PAUSE_S)
                raise

        try:
            return trio.from_thread.run(run, trio_token=self.token)
        except WrongLastSequence as error:
            raise StaleSequence(str(error)) from error
        except JetStreamError as error:
            raise StoreUnavailable(f"{self.stream}: {error}") from error
        except (NatsError, trio.RunFinishedError, trio.Cancelled) as error:
            raise InDoubt(f"{self.stream}: {error}") from error
