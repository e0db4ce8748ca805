"""Keeps the leases of a node's partitions, on a stream with one message for each."""

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import trio
from attrs import asdict, define, field

from trio_stomp.base import noop
from trio_stomp.cluster.leases._lease import Claim, Lease
from trio_stomp.nats import (
    Entry,
    JetStream,
    NatsError,
    WrongLastSequence,
    expecting,
    follow,
    parse_object,
)

RETRY_S = 0.1
"""Pause after a request that failed."""


def lease_time() -> float:
    """Return the time in seconds of a clock that goes on while the machine sleeps, if it has one.

    After its machine slept, a node must not believe that it still holds an expired lease.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@define(eq=False, repr=False)
class LeaseKeeper:
    """Takes, renews and hands over leases. ``keep_leases`` makes it.

    Args:
      stream: The stream of leases, which keeps one message for each subject.
      leases: The leases by subject.
      contact: The address at which other nodes reach this one.
      on_change: Called when a lease was taken, lost or changed, or renewed after it had expired. It
        must not wait or raise.
    """

    jetstream: JetStream
    stream: str
    leases: Mapping[bytes, Lease]
    contact: str = ""
    on_change: Callable[[], None] = noop
    _changed: trio.Event = field(factory=trio.Event)
    _known: list[tuple[Claim, bool]] = field(factory=list)
    """The leases when ``on_change`` was last called, and whether each was held."""
    _leaving: dict[bytes, str] = field(factory=dict)
    """The heirs of leases that this node hands over, by subject; "" = the first node to take it."""

    def hand_over(self, subject: bytes, heir: str) -> None:
        """Give up a lease that this node holds, for another node, or with ``heir`` "" for any.

        The caller must have stopped acting as the holder. Afterwards this node takes the lease only
        if no other does, and not at all if ``is_candidate`` is False.
        """
        self._leaving[subject] = heir
        self.wake()

    async def watch(self) -> None:
        """Read the lease messages of all nodes until cancelled."""
        subject = next(iter(self.leases)) if len(self.leases) == 1 else b""
        async with follow(self.jetstream, self.stream, after=0, subject=subject) as follower:
            while True:
                self._read(await follower.receive(), lease_time())

    def _read(self, entries: list[Entry], now: float) -> None:
        for entry in entries:
            lease = self.leases.get(entry.message.subject)
            if lease is not None:
                lease.note(entry.sequence, parse_claim(entry.message.payload), now)
        self._look(now)

    def _look(self, now: float) -> None:
        """Wake ``act`` and others if something has changed. Most messages only renew a lease."""
        leases = [(lease.claim, lease.is_held(now)) for lease in self.leases.values()]
        if leases != self._known:
            self._known = leases
            self.wake()

    def wake(self) -> None:
        """Have ``act`` look at the leases again, since one has changed."""
        self._changed.set()
        self.on_change()

    async def act(self) -> None:
        """Take, renew and hand over leases as they become due, until cancelled."""
        while True:
            self._changed = trio.Event()
            now = lease_time()
            for subject, lease in self.leases.items():
                if subject in self._leaving and lease.is_held(now):
                    await self._write(subject, lease, self._leaving.pop(subject))
                elif lease.due() <= now:
                    await self._write(subject, lease, None)
            due = min(lease.due() for lease in self.leases.values())
            with trio.move_on_after(max(0.0, due - lease_time())):
                await self._changed.wait()

    async def _write(self, subject: bytes, lease: Lease, heir: str | None) -> None:
        """Write a lease as held by this node, or, with an heir, as given up by it."""
        claim = lease.taken(self.contact) if heir is None else lease.given_up(heir)
        headers = expecting(lease.sequence, of_subject=True)
        sent_at = lease_time()
        try:
            published = await self.jetstream.publish(
                subject, json.dumps(asdict(claim)).encode(), headers=headers
            )
        except NatsError as error:
            if isinstance(error, WrongLastSequence):
                await self._read_last(subject, lease)
            await trio.sleep(RETRY_S)
            return
        now = lease_time()
        self._look(now)  # it may have expired meanwhile
        if heir is None:
            lease.confirm(published.sequence, claim, sent_at)
        else:
            lease.note(published.sequence, claim, sent_at)
        self._look(now)

    async def _read_last(self, subject: bytes, lease: Lease) -> None:
        """Read the message of a lease that was first, as it may be lost on its way to ``watch``."""
        with suppress(NatsError):
            found = await self.jetstream.message(self.stream, last_by_subj=subject.decode())
            lease.note(found[0], parse_claim(found[1]), lease_time())
            self._look(lease_time())


def parse_claim(payload: bytes) -> Claim:
    """Return the claim in a message, or an empty claim if the message has none."""
    try:
        fields = parse_object(payload)
    except NatsError:
        return Claim()
    found = fields.get("followers")  # an older version writes none
    followers = tuple(map(str, found)) if isinstance(found, list) else None
    holder, heir, contact = (str(fields.get(name, "")) for name in ("holder", "heir", "contact"))
    return Claim(holder, heir, contact, followers)


@asynccontextmanager
async def keep_leases(
    jetstream: JetStream,
    stream: str,
    leases: Mapping[bytes, Lease],
    *,
    contact: str = "",
    on_change: Callable[[], None] = noop,
) -> AsyncGenerator[LeaseKeeper, None]:
    """Keep leases while the block runs. Afterwards they expire, unless they were handed over."""
    keeper = LeaseKeeper(jetstream, stream, leases, contact, on_change)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(keeper.watch)
        tasks.start_soon(keeper.act)
        yield keeper
        tasks.cancel_scope.cancel()
