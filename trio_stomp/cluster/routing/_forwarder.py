"""Sends messages of transactions on to the owners of other partitions, until these have them.

The owner of a partition runs it beside its broker, whose ``Forwards`` has the messages. Those
of one sender to one destination stay in order. Each has an id for duplicate detection, so it may
be sent again when the RECEIPT was lost, or this node and another one has the partition by now.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio
from attrs import define, field

from trio_stomp.base import ANONYMOUS, Identity, noop
from trio_stomp.cluster._dial import Contact
from trio_stomp.cluster._gate import Gate
from trio_stomp.cluster.routing import _link
from trio_stomp.cluster.routing._forwards import FORWARD, Forward, Forwards
from trio_stomp.cluster.routing._frames import FrameCutter, Piece, closed, encode_lead
from trio_stomp.cluster.routing._link import heart_beat
from trio_stomp.cluster.routing._placement import Placement
from trio_stomp.frames import CONNECT, DEDUP_HEADERS, DISCONNECT, OPENING, SEND, V1_2, encode_frame
from trio_stomp.transport import Voucher, relay_header

logger = logging.getLogger("trio_stomp")

MAX_CONNECTIONS = 16
"""Connections to the owner of one partition."""
BATCH_BYTES = 256 * 1024
"""About how much is sent before its RECEIPTs are awaited."""
LINGER_S = 1.0
"""How long a connection is kept without messages, if others do not need its place."""
RETRY_S = 0.5
READ_BYTES = 64 * 1024
_ID = FORWARD.encode()
_DISCONNECT = closed(encode_lead(DISCONNECT, (), V1_2))


class Refused(Exception):
    """The owner does not accept a message at the moment."""


def encode_forward(partition: int, item: Forward) -> bytes:
    """Return the frames of messages from a partition's log; the last one requests a RECEIPT."""
    headers = tuple(pair for pair in item.head.headers if pair[0] != "transaction")
    has_id = any(name in DEDUP_HEADERS for name, _ in headers)
    lead, last = encode_lead(SEND, headers, V1_2), item.ids[-1]
    frames: list[bytes] = []
    for number, body in zip(item.ids, item.bodies, strict=True):
        own = b"" if has_id else b"%b:forwarded-%d-%d\n" % (_ID, partition, number)
        receipt = b"receipt:%d\n" % number if number == last else b""
        frames.append(b"%b%b%b\n%b\0" % (lead, own, receipt, body))
    return b"".join(frames)


@define(eq=False, repr=False)
class Forwarder:
    """Sends on what a partition's broker has stored for others.

    Args:
      partition: The partition.
      placement: Which partition has a destination.
      gates: The way to the owner of each partition.
      forwards: The messages.
      call_soon: Calls a function in the next turn of the broker's dispatcher.
    """

    partition: int
    placement: Placement
    gates: Sequence[Gate]
    forwards: Forwards
    call_soon: Callable[[Callable[[float], None]], None]
    _lanes: "dict[tuple[str, Identity], Lane]" = field(factory=dict)
    _places: list[trio.CapacityLimiter] = field(init=False)
    """The connections to the owner of each partition."""
    _tasks: trio.Nursery = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = [trio.CapacityLimiter(MAX_CONNECTIONS) for _ in self.gates]

    async def run(self) -> None:
        """Send on what is stored, and what will be. Ends by cancellation only."""
        async with trio.open_nursery() as self._tasks:
            for item in self.forwards.waiting:
                self._take(item)
            self.forwards.on_new = self._take
            try:
                await trio.sleep_forever()
            finally:
                self.forwards.on_new = noop

    def _take(self, item: Forward) -> None:
        """Take stored messages, in a turn of the dispatcher or between two."""
        key = item.destination, item.owner or ANONYMOUS
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self.partition, *key, self._confirm)
            self._tasks.start_soon(self._serve, lane)
        lane.add(item)

    async def _serve(self, lane: "Lane") -> None:
        """Send on the messages of a lane until there are no more."""
        partition = self.placement.of(lane.destination)
        places = self._places[partition]
        while lane.waiting:
            async with places:
                try:
                    await self.gates[partition].relay(partial(lane.speak, places))
                except* (trio.BrokenResourceError, OSError, Refused) as group:
                    lane.note(group)
            if lane.waiting:
                await trio.sleep(RETRY_S)
        del self._lanes[lane.destination, lane.owner]

    def _confirm(self, item: Forward) -> None:
        """Forget messages that the owner of their destination has."""
        self.call_soon(lambda _: self.forwards.finish(item))


@define(eq=False, repr=False)
class Lane:
    """The messages of one sender to one destination, in order.

    Args:
      source: The partition in whose log they are.
      destination: The destination.
      owner: The sender, for whom this node vouches.
      confirm: Called when the owner of the destination has messages.
    """

    source: int
    destination: str
    owner: Identity
    confirm: Callable[[Forward], None]
    waiting: deque[Forward] = field(factory=deque)
    _news: trio.Event = field(factory=trio.Event)
    _problem: str = ""
    """The last reason of a refusal that was logged, so that it is logged once."""

    def add(self, item: Forward) -> None:
        """Add messages."""
        self.waiting.append(item)
        self._news.set()

    def note(self, group: BaseExceptionGroup) -> None:
        """Log that the owner refused a message."""
        for error in group.exceptions:
            if isinstance(error, Refused) and str(error) != self._problem:
                self._problem = str(error)
                logger.warning(
                    "messages of a transaction wait for %s, which does not accept them: %s; "
                    "trying again",
                    self.destination,
                    error,
                )

    async def speak(
        self, places: trio.CapacityLimiter, stream: trio.abc.HalfCloseableStream, contact: Contact
    ) -> None:
        """Send the messages to the owner until there are no more for a while.

        Raises:
          Refused: The owner does not accept one.
          trio.BrokenResourceError: The connection is lost, or the owner has been silent for too
            long.

        Checkpoint: always. Cancel: messages may be sent and unconfirmed.
        """
        secret, voucher = contact.secret.encode(), Voucher(self.owner, is_forwarder=True)
        headers = ("accept-version", "1.2"), ("heart-beat", heart_beat(sends=False))
        connect = encode_frame(CONNECT, headers, OPENING)
        await stream.send_all(relay_header("127.0.0.1", 0, "off", secret, voucher) + connect)
        cutter = FrameCutter(joins=False)
        while self.waiting:
            await self._send_some(stream, cutter)
            if not self.waiting and places.available_tokens:
                self._news = trio.Event()
                with trio.move_on_after(LINGER_S):
                    await self._news.wait()
        await stream.send_all(_DISCONNECT)

    async def _send_some(self, stream: trio.abc.HalfCloseableStream, cutter: FrameCutter) -> None:
        """Send some messages, and wait for their RECEIPTs."""
        frames: list[bytes] = []
        size = 0
        for item in self.waiting:
            if size > BATCH_BYTES:
                break
            frames.append(encode_forward(self.source, item))
            size += len(frames[-1])
        with trio.move_on_after(_link.SILENT_S) as patience:
            await stream.send_all(b"".join(frames))
            left = len(frames)
            while left:
                data = await stream.receive_some(READ_BYTES)
                patience.deadline = trio.current_time() + _link.SILENT_S
                if not data:
                    raise trio.BrokenResourceError("the owner ended the connection")
                left -= self._take(cutter.feed(bytes(data)))
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the owner has been silent for too long")

    def _take(self, frames: list[Piece]) -> int:
        """Take frames of the owner, and return the number of RECEIPTs.

        Raises:
          Refused: One is an ERROR.
        """
        count = 0
        for each in frames:
            if each.data.startswith(b"ERROR\n"):
                raise Refused(_reason(each.data))
            if each.data.startswith(b"RECEIPT\n"):
                count += 1
                self._problem = ""
                self.confirm(self.waiting.popleft())
        return count


def _reason(error: bytes) -> str:
    """Return the message of an ERROR."""
    lines = error.decode("utf-8", "replace").split("\n")
    found = (line.removeprefix("message:") for line in lines if line.startswith("message:"))
    return next(found, "no reason given")[:200]
