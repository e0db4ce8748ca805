"""The keeper of leases: what it tells others, and when."""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from trio_stomp.cluster.leases import Claim, Lease, LeaseKeeper, LeaseOptions, lease_time
from trio_stomp.nats import Published

SUBJECT = b"lease"


@define
class Stream:
    """A stream of leases that takes every message, after some time."""

    delay_s: float = 0.0
    lease: Lease = field(init=False)
    _sequence: int = 0

    async def publish(
        self, subject: bytes, payload: bytes, *, headers: Mapping[bytes, bytes]
    ) -> Published:
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
