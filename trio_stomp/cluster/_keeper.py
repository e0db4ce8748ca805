"""Keeps the leases of a node's partitions, on a stream with one message for each."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.cluster._lease import Lease
from trio_stomp.nats import (
    Entry,
    JetStream,
    NatsError,
    expecting,
    follow,
)

RETRY_S = 0.1
"""Pause after a request that failed."""


@define(eq=False, repr=False)
class LeaseKeeper:
    """Takes, renews and hands over leases. ``keep_leases`` makes it.

    Args:
      stream: The stream of leases: one message is kept for each subject.
      leases: By subject.
      on_change: Called when a lease was taken, lost or changed. It must not wait or raise.
    """

    jetstream: JetStream
    stream: str
    leases: Mapping[bytes, Lease]
    on_change: Callable[[], None] = noop
    _changed: trio.Event = field(factory=trio.Event)
    _leaving: dict[bytes, str] = field(factory=dict)
    """The heirs of leases that this node hands over, by subject; "" = whoever comes first."""

    def hand_over(self, subject: bytes, heir: str) -> None:
        """Give up a lease that this node holds, for another node, or with ``heir`` "" for any.

        The caller has ended what it did as the holder. Afterwards this node takes this lease only
        if no other does, and not at all if ``is_candidate`` was set to False.
        """
        self._leaving[subject] = heir
        self._wake()

    async def watch(self) -> None:
        """Read what all nodes write. Ends by cancellation only."""
        async with follow(self.jetstream, self.stream, after=0) as follower:
            while True:
                self._read(await follower.receive(), trio.current_time())

    def _read(self, entries: list[Entry], now: float) -> None:
        for entry in entries:
            lease = self.leases.get(entry.message.subject)
            if lease is not None:
                holder, heir = _parse(entry.message.payload)
                lease.note(entry.sequence, holder, heir, now)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self.on_change()

    async def act(self) -> None:
        """Do what is due, lease after lease. Ends by cancellation only."""
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            for subject, lease in self.leases.items():
                if subject in self._leaving and lease.is_held(now):
                    await self._write(subject, lease, self._leaving.pop(subject))
                elif lease.due() <= now:
                    await self._write(subject, lease, None)
            due = min(lease.due() for lease in self.leases.values())
            with trio.move_on_at(due):
                await self._changed.wait()

    async def _write(self, subject: bytes, lease: Lease, heir: str | None) -> None:
        """Write a lease as held by this node, or, with an heir, as given up by it."""
        fields = {"holder": lease.node} if heir is None else {"holder": "", "heir": heir}
        headers = expecting(lease.sequence, of_subject=True)
        sent_at = trio.current_time()
        try:
            published = await self.jetstream.publish(
                subject, json.dumps(fields).encode(), headers=headers
            )
        except NatsError:
            await trio.sleep(RETRY_S)  # perhaps another was first, and will be read
            return
        if heir is None:
            lease.confirm(published.sequence, sent_at)
        else:
            lease.note(published.sequence, "", heir, sent_at)
        self.on_change()


def _parse(payload: bytes) -> tuple[str, str]:
    """Return holder and heir of a message; of one that is no lease, none."""
    try:
        fields = json.loads(payload)
        return str(fields.get("holder", "")), str(fields.get("heir", ""))
    except (ValueError, AttributeError, RecursionError):
        return "", ""


@asynccontextmanager
async def keep_leases(
    jetstream: JetStream,
    stream: str,
    leases: Mapping[bytes, Lease],
    on_change: Callable[[], None] = noop,
) -> AsyncGenerator[LeaseKeeper, None]:
    """Keep leases while the block runs. At its end they expire, unless they were handed over."""
    keeper = LeaseKeeper(jetstream, stream, leases, on_change)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(keeper.watch)
        tasks.start_soon(keeper.act)
        yield keeper
        tasks.cancel_scope.cancel()
