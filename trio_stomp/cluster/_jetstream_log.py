"""A commit log on a stream of JetStream, for worker threads."""

from collections.abc import Awaitable, Callable, Sequence
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
    WrongLastSequence,
    expecting,
)
from trio_stomp.store import StaleSequence, StoreUnavailable

MARGIN_BYTES = 1024
"""Bytes of the server's largest message that are left for headers and the stream's own data."""

PAUSE_S = 0.1
"""Shortest time for a request that fails, so that trying again is no load."""

T = TypeVar("T")


@define(eq=False)
class JetStreamLog:
    """Implements ``CommitLog``. Its methods are called in threads, never in Trio's own.

    Args:
      jetstream: Of a connected client.
      stream: The stream, with one subject.
      subject: The subject.
      token: Of the Trio loop in which the client runs.
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

    def read(self, after: int) -> Sequence[LogEntry]:
        """Implement ``CommitLog.read``."""

        async def read() -> Sequence[LogEntry]:
            follower = self._follower
            if follower is None or follower.last != after:
                self.close()
                follower = self._follower = Follower(self.jetstream, self.stream, after)
                self._has_more = False
            if not self._has_more and (await self.jetstream.stream(self.stream)).last <= after:
                return []
            entries = await follower.receive()
            self._has_more = entries[-1].pending > 0
            return [LogEntry(entry.sequence, entry.message.payload) for entry in entries]

        return self._run(read)

    def close(self) -> None:
        """End the subscription with which it reads. Call it in Trio's thread."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            try:
                return await call()
            except (Disconnected, NoResponders):
                # There is no server or no leader. Whoever tries again must not do so at once.
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
