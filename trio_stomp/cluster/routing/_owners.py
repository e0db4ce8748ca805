"""The connections of clients to the owners of partitions: frames sent, confirmations expected."""

from collections.abc import Awaitable, Callable, Sequence

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.cluster._gate import Gate
from trio_stomp.cluster.routing._frames import closed
from trio_stomp.cluster.routing._route import Awaited, Route
from trio_stomp.cluster.routing._upstream import Host, Turns, Upstream
from trio_stomp.frames import CONNECT, OPENING, SECRET_HEADERS, encode_frame
from trio_stomp.protocol import Opened

Start = Callable[[Callable[[], Awaitable[None]]], None]
"""Starts a task."""
INTERNAL = b"-"
"""The id of RECEIPTs that only the router needs."""
_OURS = frozenset({"accept-version", "heart-beat", "receipt", "request-id", *SECRET_HEADERS})
"""Headers of CONNECT that concern only the client's connection to this node."""


@define(eq=False, repr=False)
class Owners:
    """The connections of clients to the owners of partitions.

    Args:
      gates: The gate of each partition, which connects to its owner.
      host: Receives the frames of owners.
      memory: Charged for output to owners.
      dispatcher: Calls the host in its turns.
      start: Starts a task of a connection to an owner.
    """

    gates: Sequence[Gate]
    host: Host
    memory: MemoryBudget
    dispatcher: Turns = field(init=False)
    start: Start = field(init=False)
    _dirty: dict[Upstream, None] = field(factory=dict)

    def join(self, dispatcher: Turns, start: Start) -> None:
        """Take the dispatcher, and the function that starts tasks."""
        self.dispatcher, self.start = dispatcher, start

    def flush(self) -> None:
        """Send, at the end of a turn, the frames written in it."""
        for upstream in self._dirty:
            upstream.flush()
        self._dirty.clear()

    def write(self, route: Route, partition: int, data: bytes) -> None:
        """Write frames for an owner."""
        upstream = self.upstream(route, partition)
        upstream.write(data)
        self._dirty[upstream] = None

    def give(
        self, route: Route, partition: int, data: bytes, receipts: Sequence[tuple[int, bytes]]
    ) -> None:
        """Write frames for an owner that ask for RECEIPTs for the client."""
        for _, name in receipts:
            self.expect(route, (partition,), Awaited(name, 1, is_asked=True))
        self.write(route, partition, data)

    def ask(
        self,
        route: Route,
        partitions: Sequence[int],
        lead: bytes,
        receipt: bytes | None,
        *,
        subscribes: bool = False,
    ) -> None:
        """Write a frame without a body for owners.

        Args:
          route: The client's session.
          partitions: The partitions of the owners.
          lead: Command and headers.
          receipt: The receipt that the client requests, or None.
          subscribes: The frame is a SUBSCRIBE, for which the router always requests a RECEIPT.
        """
        name = INTERNAL if subscribes and receipt is None else receipt
        if name is not None:
            awaited = Awaited(name, len(partitions), receipt is not None, subscribes)
            self.expect(route, partitions, awaited)
        frame = closed(lead, name)
        for partition in partitions:
            self.write(route, partition, frame)

    def expect(self, route: Route, partitions: Sequence[int], awaited: Awaited) -> None:
        """Expect confirmations of frames that are about to be written."""
        for partition in partitions:
            upstream = self.upstream(route, partition)
            upstream.expected.append(awaited)
            upstream.unconfirmed += awaited.subscribes
        if awaited.is_asked:
            route.receipts.append(awaited)

    def upstream(self, route: Route, partition: int) -> Upstream:
        """Return the connection to the owner of a partition, which is opened if there is none."""
        upstream = route.upstreams.get(partition)
        if upstream is None:
            upstream = route.upstreams[partition] = Upstream(
                partition,
                gate=self.gates[partition],
                host=self.host,
                turns=self.dispatcher,
                client=route.client,
                memory=self.memory,
            )
            upstream.write(_connect(route.opened))
            self.start(upstream.run)
        return upstream


def _connect(opened: Opened) -> bytes:
    """Return the CONNECT for an owner, which trusts this node on the client's identity."""
    headers = [each for each in opened.headers if each[0] not in _OURS]
    ours = [("accept-version", opened.version.name), ("heart-beat", "0,0")]
    return encode_frame(CONNECT, [*ours, *headers], OPENING)
