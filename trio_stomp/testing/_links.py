"""The link between a client and a broker in a test, and what can go wrong with it."""

import math

import trio
import trio.testing
from attrs import define, evolve, field, frozen


@frozen
class Faults:
    """What a link does to what goes over it, in each direction alike.

    Args:
      drop_after_bytes: The connection is reset once so many bytes have passed.
      delay_s: Bytes arrive so much later, in order.
      split_bytes: At most so many arrive at once.
      is_half_open: What is sent goes nowhere and nothing arrives, as when a cable is cut: neither
        side is told.
    """

    drop_after_bytes: float = math.inf
    delay_s: float = 0.0
    split_bytes: int = 65536
    is_half_open: bool = False


@define(eq=False, repr=False)
class _Direction:
    """Bytes from one end to the other, on their way."""

    faults: Faults
    passed: int = 0
    _bytes: bytearray = field(factory=bytearray)
    _due: list[tuple[float, int]] = field(factory=list)
    """When bytes arrive: time, and how many."""
    _changed: trio.Event = field(factory=trio.Event)
    is_ended: bool = False
    is_broken: bool = False

    def send(self, data: bytes) -> bool:
        """Put bytes on their way; False if that was more than the link carries."""
        room = self.faults.drop_after_bytes - self.passed
        taken = data if len(data) <= room else data[: int(room)]
        self.passed += len(taken)
        if not self.faults.is_half_open:
            self._bytes += taken
            self._due.append((trio.current_time() + self.faults.delay_s, len(taken)))
        self.note()
        return len(taken) == len(data)

    def note(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._changed.set()
        self._changed = trio.Event()

    async def receive(self, max_bytes: int | None) -> bytes:
        """What arrives next; empty at the end. Checkpoint: always."""
        while True:
            await trio.lowlevel.checkpoint()
            if self.is_broken:
                raise trio.BrokenResourceError("the link was cut")
            if self._due and not self.faults.is_half_open:
                due, count = self._due[0]
                left_s = due - trio.current_time()
                if left_s <= 0:
                    return self._take(min(count, self.faults.split_bytes, max_bytes or count))
                with trio.move_on_after(left_s):
                    await self._changed.wait()
                continue
            if self.is_ended and not self.faults.is_half_open:
                return b""
            await self._changed.wait()

    def _take(self, count: int) -> bytes:
        taken = bytes(self._bytes[:count])
        del self._bytes[:count]
        due, left = self._due[0]
        self._due[0] = (due, left - count)
        if left == count:
            del self._due[0]
        return taken


@define(eq=False, repr=False)
class Link:
    """One connection between a client and the broker.

    ``faults`` may be changed at any time, and hold for what is sent from then on.
    """

    name: str
    _to_broker: _Direction = field(init=False)
    _to_client: _Direction = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._to_broker, self._to_client = _Direction(Faults()), _Direction(Faults())

    @property
    def bytes_passed(self) -> int:
        """In both directions, so far."""
        return self._to_broker.passed + self._to_client.passed

    @property
    def faults(self) -> Faults:
        """What the link does now."""
        return self._to_broker.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        for direction in (self._to_broker, self._to_client):
            # So many bytes more from now on.
            limit = faults.drop_after_bytes + direction.passed
            direction.faults = evolve(faults, drop_after_bytes=limit)
            direction.note()

    def cut(self) -> None:
        """Reset the connection: both ends are told at once."""
        for direction in (self._to_broker, self._to_client):
            direction.is_broken = True
            direction.note()

    def ends(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        """The client's end and the broker's."""
        return (
            _End(self, self._to_client, self._to_broker),
            _End(self, self._to_broker, self._to_client),
        )


@define(eq=False, repr=False)
class _End(trio.abc.HalfCloseableStream):
    """One end of a link. Sending never waits: what is on its way takes no room of anybody's."""

    _link: Link
    _incoming: _Direction
    _outgoing: _Direction
    _is_closed: bool = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_closed:
            raise trio.ClosedResourceError
        if self._outgoing.is_broken or self._outgoing.is_ended:
            raise trio.BrokenResourceError("the link was cut")
        if not self._outgoing.send(bytes(data)):
            self._link.cut()
            raise trio.BrokenResourceError("the link was cut")

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self._outgoing.is_ended = True
        self._outgoing.note()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            raise trio.ClosedResourceError
        return await self._incoming.receive(max_bytes)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._outgoing.is_ended = True
            self._outgoing.note()
        await trio.lowlevel.checkpoint()
