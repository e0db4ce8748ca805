"""The link of a client to an owner in another process: frames over a socket."""

import math
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.cluster.routing import _link
from trio_stomp.cluster.routing._encoder import Encoder
from trio_stomp.cluster.routing._frames import FrameCutter
from trio_stomp.cluster.routing._link import Sender, heart_beat
from trio_stomp.frames import CONNECT, OPENING, SECRET_HEADERS, encode_frame
from trio_stomp.protocol import Event, Opened
from trio_stomp.transport import Voucher, Wire, relay_header, wire_over

if TYPE_CHECKING:
    from trio_stomp.broker import Client
    from trio_stomp.cluster._dial import Contact

READ_BYTES = 64 * 1024
BULK_BYTES = 256 * 1024
"""The size of a read after a full one. For less data it costs three times as much."""
PART = 0.8
"""Heart-beats are sent at this part of their interval, so that no gap exceeds it."""
OURS = frozenset({"accept-version", "heart-beat", "receipt", "request-id", *SECRET_HEADERS})
"""Headers of CONNECT that concern only the client's connection to this node."""


@define(eq=False, repr=False)
class RemoteLink:
    """The link of a client to an owner in another process.

    Args:
      upstream: Whose link it is.
      wire: The connection to the owner.
    """

    upstream: Sender
    wire: Wire
    _encoder: Encoder = field(init=False)
    _is_writing: bool = False
    """The writer has output that the owner did not accept at once."""
    _output: list[bytes | memoryview] = field(factory=list)
    _wake: trio.Event = field(factory=trio.Event)
    _room: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._encoder = Encoder(self.upstream.client.rules)

    # In turns of the dispatcher.

    def send(self, events: Sequence[Event], size: int) -> None:
        """Implement ``Link.send``: send what the owner accepts at once."""
        upstream = self.upstream
        data = b"".join(map(self._encoder.encode, events))
        upstream.charge(len(data) - size)
        if self._is_writing:
            self._output.append(data)
            return
        try:
            sent = self.wire.send_nowait(data)
        except trio.BrokenResourceError:
            sent = len(data)  # the reader will notice the end of the connection
        upstream.release(sent)
        if sent < len(data):
            self._output.append(memoryview(data)[sent:])
            self._is_writing = True
            self._wake.set()

    def finish(self) -> None:
        """Implement ``Link.finish``."""
        self._wake.set()
        self.make_room()

    def make_room(self) -> None:
        """Implement ``Link.make_room``: resume reading from the owner."""
        self._room.set()

    # Its tasks.

    async def run(self) -> None:
        """Exchange frames with the owner until both sides have ended.

        Raises:
          trio.BrokenResourceError: The connection is lost, or the owner has been silent for too
            long.

        Checkpoint: always. Cancel: it ends at once.
        """
        try:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(self._write)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self.wire.aclose()

    async def _read(self) -> None:
        with trio.CancelScope() as patience:
            await self._read_until_silent(patience)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the owner has been silent for too long")

    async def _read_until_silent(self, patience: trio.CancelScope) -> None:
        """Read until the owner ends, or until the scope's deadline: it has been silent then."""
        upstream, cutter = self.upstream, FrameCutter()
        is_plain = upstream.client.transport in ("tcp", "tls")
        patience.deadline = trio.current_time() + _link.SILENT_S
        room = READ_BYTES
        while data := await self.wire.receive_some(room):
            room = BULK_BYTES if len(data) >= READ_BYTES else READ_BYTES
            until = trio.current_time() + _link.SILENT_S
            if until > patience.deadline + _link.BEAT_S:  # a change costs more than a look
                patience.deadline = until
            if upstream.is_finishing:
                continue
            cutter.joins = is_plain and not upstream.is_noted
            pieces = cutter.feed(data)
            if pieces and not upstream.turns.call_now(partial(upstream.receive, pieces)):
                self._room = trio.Event()
                patience.deadline = math.inf  # as long as nothing is read, silence means nothing
                await self._room.wait()
                patience.deadline = trio.current_time() + _link.SILENT_S

    async def _write(self) -> None:
        upstream = self.upstream
        while True:
            while self._output:
                self._is_writing = True
                data = self._output.pop(0)
                sent = await self.wire.wait_sent(data)
                if upstream.is_over:
                    return
                upstream.release(sent)
                if sent < len(data):
                    self._output.insert(0, memoryview(data)[sent:])
                upstream.tell_drained()
            self._is_writing = False
            if upstream.is_finishing:
                await self.wire.send_eof()
                return
            self._wake = trio.Event()
            with trio.move_on_after(PART * _link.BEAT_S) as idle:
                await self._wake.wait()
            if idle.cancelled_caught and not self._output:
                if upstream.is_over:
                    return
                # As any output: not every wire sends something without waiting.
                upstream.charge(1)
                self._output.append(b"\n")


async def open_remote(
    upstream: Sender, stream: trio.abc.HalfCloseableStream, contact: "Contact"
) -> RemoteLink:
    """Begin the client's session at the owner, and return the link.

    Raises:
      trio.BrokenResourceError: The connection is lost.

    Checkpoint: always. Cancel: the connection cannot be used.
    """
    client, secret = upstream.client, contact.secret.encode()
    voucher = Voucher(client.identity, client.transport, client.session_id)
    header = relay_header(*_address(client), "off", secret, voucher)
    await stream.send_all(header + _connect(upstream.opened))
    return RemoteLink(upstream, wire_over(stream))


def _connect(opened: Opened) -> bytes:
    """Return the CONNECT for an owner, which takes this node's word on who the client is."""
    headers = [each for each in opened.headers if each[0] not in OURS]
    ours = [("accept-version", opened.version.name), ("heart-beat", heart_beat(sends=True))]
    return encode_frame(CONNECT, [*ours, *headers], OPENING)


def _address(client: "Client") -> tuple[str, int]:
    """Return the address and port of a client, or of this machine if it has none."""
    host, _, port = client.remote.rpartition(":")
    try:
        return str(ip_address(host.strip("[]").partition("%")[0])), int(port)
    except ValueError:
        return ("127.0.0.1" if not client.network else "0.0.0.0"), 0
