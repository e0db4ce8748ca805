"""Links between clients and a broker in tests, with faults."""

import math
from collections import deque
from collections.abc import Callable

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.transport import MemoryStream

BUFFER_BYTES = 1024 * 1024
_LOWEST = (("drop_after_bytes", 0), ("delay_s", 0), ("split_bytes", 1), ("buffer_bytes", 1))


@frozen
class Faults:
    """The faults of a link, the same in both directions.

    Args:
      drop_after_bytes: The connection is reset once this many bytes have passed in one direction;
        they still arrive, so a frame may end there.
      delay_s: Bytes arrive this many seconds later, in order.
      split_bytes: At most this many bytes arrive at once.
      buffer_bytes: The bytes in transit in one direction, beyond which the sender waits.
      is_half_open: Sent bytes are lost and nothing arrives, as when a cable is cut; neither side is
        notified.

    Raises:
      OptionError: a value is not a number, or below its minimum.
    """

    drop_after_bytes: float = math.inf
    delay_s: float = 0.0
    split_bytes: int = 65536
    buffer_bytes: int = BUFFER_BYTES
    is_half_open: bool = False

    def __attrs_post_init__(self) -> None:
        for name, lowest in _LOWEST:
            value = getattr(self, name)
            if not value >= lowest:  # also refuses NaN
                raise OptionError(f"{name}={value:g} must be {lowest} or more")


@define(eq=False, repr=False)
class _Direction:
    """The bytes in transit from one end to the other."""

    faults: Faults
    use_up: Callable[[], None]
    """Resets the link once the limit is reached."""
    limit: float = math.inf
    """The number of passed bytes at which the link is reset."""
    passed: int = 0
    is_broken: bool = False
    """The link was reset: nothing more arrives."""
    is_doomed: bool = False
    """The reader will see a reset once the bytes in transit have arrived."""
    is_ended: bool = False
    """The sender sends no more."""
    is_unread: bool = False
    """The reader has closed its end."""
    _chunks: deque[tuple[float, memoryview]] = field(factory=deque)
    """Chunks with their times of arrival; an empty one is the end."""
    _held: int = 0
    _lost: int = 0
    _changed: trio.Event = field(factory=trio.Event)

    def use(self, faults: Faults) -> None:
        """Replace the faults from now on."""
        self.faults = faults
        self.limit = self.passed + faults.drop_after_bytes
        if not faults.is_half_open:
            self._lost = 0
        self.note()

    def room(self) -> int:
        """Return the number of bytes that may be sent now. 0 or less means none."""
        return self.faults.buffer_bytes - self._held - self._lost

    def put(self, data: memoryview) -> int:
        """Send as many bytes as the link takes, and return their number."""
        count = self._put(data)
        if self.passed >= self.limit:
            self.use_up()
        return count

    def _put(self, data: memoryview) -> int:
        if self.faults.is_half_open:
            self._lost += len(data)
            return len(data)
        taken = (
            data if len(data) <= self.limit - self.passed else data[: int(self.limit - self.passed)]
        )
        if taken:
            self.passed += len(taken)
            self._held += len(taken)
            self._chunks.append((self._due(), memoryview(bytes(taken))))
            self.note()
        return len(taken)

    def _due(self) -> float:
        return trio.current_time() + self.faults.delay_s

    def end(self) -> None:
        """Close the sender's end."""
        if not self.is_ended:
            self.is_ended = True
            self._chunks.append((self._due(), memoryview(b"")))
            self.note()

    def leave(self) -> None:
        """Close the reader's end."""
        self.is_unread = True
        self._chunks.clear()
        self._held = 0
        self.note()

    def note(self) -> None:
        """Wake waiting tasks after a change."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_change(self) -> None:
        """Wait for a change. Checkpoint: always."""
        await self._changed.wait()

    def check_sending(self) -> None:
        """Raise the error that a send would raise now, if any."""
        gone = self.is_unread and not self.faults.is_half_open
        if self.is_broken or self.is_doomed or gone:
            raise trio.BrokenResourceError("the link was cut")

    async def receive(self, max_bytes: int) -> bytes:
        """Wait for bytes and return them, or b"" at the end.

        Raises:
          trio.ClosedResourceError: the reader has closed its end.
          trio.BrokenResourceError: the link was reset.

        Checkpoint: if it has to wait.
        """
        while True:
            if self.is_unread:
                raise trio.ClosedResourceError
            if self.is_broken:
                raise trio.BrokenResourceError("the link was cut")
            wait_s = math.inf
            if not self.faults.is_half_open:
                if self._chunks:
                    wait_s = self._chunks[0][0] - trio.current_time()
                elif self.is_doomed:
                    raise trio.BrokenResourceError("the link was cut")
            if wait_s <= 0:
                return self._take(max_bytes)
            with trio.move_on_after(wait_s):
                await self.wait_change()

    def _take(self, max_bytes: int) -> bytes:
        due, chunk = self._chunks[0]
        if not chunk:
            return b""  # the end stays in place for later calls
        count = min(len(chunk), self.faults.split_bytes, max_bytes)
        if count == len(chunk):
            self._chunks.popleft()
        else:
            self._chunks[0] = (due, chunk[count:])
        self._held -= count
        self.note()
        return bytes(chunk[:count])


@define(eq=False, repr=False)
class Link:
    """One connection between a client and the broker.

    ``faults`` may be changed at any time, and then apply to bytes sent later. Bytes in transit keep
    their time of arrival.
    """

    name: str
    _faults: Faults = field(factory=Faults)
    _to_broker: _Direction = field(init=False)
    _to_client: _Direction = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._to_broker = _Direction(self._faults, self._use_up)
        self._to_client = _Direction(self._faults, self._use_up)
        self.faults = self._faults

    @property
    def bytes_passed(self) -> int:
        """Return the bytes carried so far in both directions, without those lost."""
        return self._to_broker.passed + self._to_client.passed

    @property
    def faults(self) -> Faults:
        """The current faults. ``drop_after_bytes`` counts from the moment they were set."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        for direction in (self._to_broker, self._to_client):
            direction.use(faults)

    def cut(self) -> None:
        """Reset the connection: both ends notice at once, and nothing more arrives."""
        for direction in (self._to_broker, self._to_client):
            direction.is_broken = True
            direction.note()

    def _use_up(self) -> None:
        """Reset the connection once the bytes in transit have arrived."""
        for direction in (self._to_broker, self._to_client):
            direction.is_doomed = True
            direction.note()

    def ends(self) -> tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]:
        """Return the client's end and the broker's."""
        return (
            MemoryStream(self._to_client, self._to_broker),
            MemoryStream(self._to_broker, self._to_client),
        )
