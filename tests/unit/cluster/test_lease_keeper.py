"""The keeper of leases: what it tells others, and when."""

from collections.abc import Mapping
from typing import Any

from attrs import define, field
from trio.testing import MockClock

from trio_stomp.cluster.leases import Claim, Lease, LeaseKeeper, LeaseOptions, lease_time
from trio_stomp.nats import Published, WrongLastSequence, expecting

SUBJECT = b"lease"


@define
class Stream:
    """A stream of leases that takes every message, after some time."""

    delay_s: float = 0.0
    lease: Lease = field(init=False)
    last: tuple[int, bytes] = (0, b"")
    _sequence: int = 0

    async def message(self, stream: str, *, last_by_subj: str) -> tuple[int, bytes]:
        """Return the last message, which no watcher has got."""
        assert (stream, last_by_subj) == ("L", "lease")
        return self.last

    async def publish(
        self, subject: bytes, payload: bytes, *, headers: Mapping[bytes, bytes]
    ) -> Published:
        if headers != expecting(self._sequence, of_subject=True):
            raise WrongLastSequence(400, 10071, "wrong last sequence")
        # As if that time had passed: the lease is held for shorter.
        self.lease._held_at -= self.delay_s
        self._sequence += 1
        return Published(self._sequence, False)


async def test_others_are_told_of_a_renewal_only_if_the_lease_had_expired() -> None:
    stream, told = Stream(), list[Claim]()
    lease = stream.lease = Lease("a", 0, LeaseOptions(ttl_s=99), lease_time())
    jetstream: Any = stream
    keeper = LeaseKeeper(
        jetstream, "L", {SUBJECT: lease}, on_change=lambda: told.append(lease.claim)
    )
    await keeper._write(SUBJECT, lease, None)
    assert told.pop() == Claim("a")
    told.clear()
    for _ in range(3):
        await keeper._write(SUBJECT, lease, None)
    assert told == []
    stream.delay_s = 100
    await keeper._write(SUBJECT, lease, None)
    assert lease.is_held(lease_time())
    assert told == [Claim("a")] * 2  # lost, and taken again
    stream.delay_s = 0
    await keeper._write(SUBJECT, lease, "b")
    assert told[2:] == [Claim("", "b")]


async def test_a_message_that_was_lost_on_its_way_to_the_watcher_is_read(
    autojump_clock: MockClock,
) -> None:
    """Without that, no node could write the lease any more, and the partition had no owner."""
    stream = Stream()
    lease = stream.lease = Lease("a", 0, LeaseOptions(ttl_s=99), lease_time())
    jetstream: Any = stream
    keeper = LeaseKeeper(jetstream, "L", {SUBJECT: lease})
    stream._sequence, stream.last = 7, (7, b'{"holder": "b"}')
    await keeper._write(SUBJECT, lease, None)
    assert lease.claim == Claim("b")
    await keeper._write(SUBJECT, lease, None)
    assert lease.is_held(lease_time())
