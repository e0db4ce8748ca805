"""``open_peer``: frames in and out of a stream through memory channels, and an end in order."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio
from attrs import define, field

from trio_stomp.base import FrameError, OptionError, StompError
from trio_stomp.frames import Frame, FrameDecoder, FrameLimits, FrameRun, HeadCache, Side
from trio_stomp.peer.frames import encode, rules_of
from trio_stomp.transport import memory_stream_pair

MAX_FRAMES = 128
"""Frames that may wait in each direction."""
READ_BYTES = 64 * 1024
WRITE_BYTES = 64 * 1024
"""Frames that wait are joined for one write, up to about this."""
LINGER_S = 1.0

# The errors of an ended channel or stream, which do not give a reason.
_ENDED = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)


class IncompleteFrame(FrameError):
    """The other side closed or lost the connection within a frame.

    Args:
      held_bytes: The bytes of the frame that had arrived.
    """

    def __init__(self, held_bytes: int) -> None:
        text = f"the connection ended within a frame, of which {held_bytes} bytes had come"
        super().__init__("incomplete-frame", text)
        self.held_bytes = held_bytes


@define(eq=False, repr=False)
class Peer:
    """One side of a STOMP connection, frame by frame, made by ``open_peer``.

    Args:
      send: Frames for the other side, in order. When it is full, its ``send`` waits. Once the
        connection can carry no more, it raises ``trio.BrokenResourceError``.
      receive: Frames from the other side. All that came before the end, or before an error, come
        out of it first; then ``trio.EndOfChannel``.
      error: The first thing that went wrong, as ``shutdown`` raises it; None while all is well. An
        end between frames is no error.
    """

    send: trio.MemorySendChannel[Frame]
    receive: trio.MemoryReceiveChannel[Frame]
    _stream: trio.abc.Stream
    _version: str
    _decoder: FrameDecoder
    _linger_s: float
    _outgoing: trio.MemoryReceiveChannel[Frame]
    _incoming: trio.MemorySendChannel[Frame]
    error: Exception | None = None
    _is_told: bool = False
    _is_closing: bool = False
    _has_eof: bool = False
    _reading: trio.CancelScope = field(factory=trio.CancelScope)
    _has_read: trio.Event = field(factory=trio.Event)
    _has_written: trio.Event = field(factory=trio.Event)
    _has_closed: trio.Event = field(factory=trio.Event)
    """Set by ``close``, after which errors of the tasks do not count."""

    async def shutdown(self) -> None:
        """End in order: send all that was put into ``send``, stop reading, close the stream.

        What was received already can still be had from ``receive``. The other side is told that
        nothing more comes, and given ``linger_s`` to end as well, so that it reads to the end what
        was sent. May be called again.

        Raises:
          FrameError: what came is no STOMP; ``IncompleteFrame`` if it ended within a frame.
          trio.BrokenResourceError, trio.ClosedResourceError: the connection was lost, or the
            stream was closed from elsewhere; frames may be lost.
          OptionError: a frame that was put into ``send`` cannot be written: the caller's fault; it
            was not sent, nor what came behind it.

        The first of these alone is raised, and once, by whatever comes first: this, or the end of
        the block of ``open_peer``.

        Checkpoint: always. Cancel: the stream is closed at once; frames may be lost. Limits: none,
        if the other side does not read, or while there are clones of ``send``; so call it with a
        deadline.
        """
        await self.close()
        self.check()

    async def send_and_shutdown(self, frame: Frame) -> None:
        """Send a last frame, then ``shutdown``.

        Raises: as ``shutdown``; and ``trio.ClosedResourceError`` if ``send`` was closed before.

        Checkpoint, Cancel, Limits: as ``shutdown``.
        """
        try:
            await self.send.send(frame)
        except trio.BrokenResourceError:
            await self.shutdown()
            raise
        await self.shutdown()

    async def close(self) -> None:
        """Shut down without raising. ``error`` holds the error; the end of the block raises it."""
        if self._is_closing:
            await self._has_closed.wait()
            return
        self._is_closing = True
        self.send.close()
        try:
            await self._has_written.wait()
            self._reading.cancel()
            await self._has_read.wait()
            await self._linger()
        finally:
            self._has_closed.set()
            await trio.aclose_forcefully(self._stream)

    def check(self) -> None:
        """Raise the first error that has not been raised yet."""
        if self.error is not None and not self._is_told:
            self._is_told = True
            raise self.error

    async def _linger(self) -> None:
        """Have the other side read to the end: to close with bytes unread would reset TCP."""
        if not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_eof()
            with trio.move_on_after(self._linger_s):
                while not self._has_eof:
                    self._has_eof = not await self._stream.receive_some(READ_BYTES)

    def _fail(self, error: Exception) -> None:
        if self.error is None and not self._has_closed.is_set():
            self.error = error

    async def read(self) -> None:
        """Receive until the end. Checkpoint: always. Cancel: an incomplete frame is lost."""
        try:
            with self._reading, self._incoming:
                await self._read()
        except (FrameError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._fail(error)
        finally:
            self._has_read.set()

    async def _read(self) -> None:
        decoder = self._decoder
        lost: Exception | None = None
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                if not await self._take(bytes(data)):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            lost = error
        self._has_eof = True
        if decoder.buffered_bytes:
            raise IncompleteFrame(decoder.buffered_bytes)
        if lost is not None:
            raise lost

    async def _take(self, data: bytes) -> bool:
        """Pass on the frames that ``data`` completes, and return whether more are wanted.

        Raises:
          FrameError: invalid bytes follow them.
        """
        for run in self._decoder.receive_data(data):
            assert isinstance(run, FrameRun)  # AckRuns come from the decoder of a client alone
            for frame in run.frames():
                try:
                    await self._incoming.send(frame)
                except trio.BrokenResourceError:
                    return False
        if self._decoder.error is not None:
            raise self._decoder.error
        return True

    async def write(self) -> None:
        """Send until ``send`` is closed. Checkpoint: always. Cancel: half a frame may be out."""
        try:
            with self._outgoing:
                await self._write()
        except (StompError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._fail(error)
        finally:
            self._has_written.set()

    async def _write(self) -> None:
        async for frame in self._outgoing:
            data = bytearray(encode(frame, self._version))
            fault: OptionError | None = None
            while len(data) < WRITE_BYTES:
                try:
                    data += encode(self._outgoing.receive_nowait(), self._version)
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
                except OptionError as error:
                    # Frames before it must be sent nevertheless.
                    fault = error
                    break
            await self._stream.send_all(data)
            if fault is not None:
                raise fault


@asynccontextmanager
async def open_peer(
    stream: trio.abc.Stream,
    *,
    version: str = "1.2",
    max_frames: int = MAX_FRAMES,
    linger_s: float = LINGER_S,
    limits: FrameLimits | None = None,
) -> AsyncIterator[Peer]:
    """Speak STOMP over a stream, frame by frame: as a client, as a server, or as neither.

    At the end of the block the peer shuts down, as by ``shutdown``; if an exception leaves the
    block, the stream is closed at once. What the block raises comes out as it is, in no group;
    only if that is a channel's ``trio.EndOfChannel`` or ``trio.BrokenResourceError``, and the
    peer has an error that tells why, that error is raised in its place.

    Args:
      stream: Of any kind; the peer closes it. No other task may use it.
      version: By whose rules headers are escaped in frames other than CONNECT and CONNECTED. There
        is no negotiation: that is the caller's, who sends and receives those frames himself.
      max_frames: That may wait in each direction, 0 or more.
      linger_s: Seconds that ``shutdown`` gives the other side to end as well.
      limits: Bounds of one frame that is received.

    Raises:
      OptionError: ``version`` is none; the caller's fault. And what ``Peer.shutdown`` raises.

    Checkpoint: at the end. Cancel: the stream is closed at once.
    """
    peer = _make_peer(stream, version, max_frames, linger_s, limits or FrameLimits())
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read)
            nursery.start_soon(peer.write)
            try:
                yield peer
                await peer.shutdown()
            finally:
                peer.send.close()
                nursery.cancel_scope.cancel()
                # Outside that scope, whose Cancelled would replace the block's exception.
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)
    except BaseExceptionGroup as group:
        # The nursery must not be visible outside.
        raised = group.exceptions[0] if len(group.exceptions) == 1 else group
    if isinstance(raised, _ENDED) and raised is not peer.error:
        try:
            peer.check()
        except Exception as error:
            raise error from raised
    if raised is not None:
        raise raised


def _make_peer(
    stream: trio.abc.Stream, version: str, max_frames: int, linger_s: float, limits: FrameLimits
) -> Peer:
    if not 0 <= max_frames < math.inf:
        raise OptionError(f"max_frames={max_frames!r} must be a number, 0 or more")
    decoder = FrameDecoder(limits, HeadCache(), rules_of(version), side=Side.EITHER)
    send, outgoing = trio.open_memory_channel[Frame](max_frames)
    incoming, receive = trio.open_memory_channel[Frame](max_frames)
    return Peer(
        send,
        receive=receive,
        stream=stream,
        version=version,
        decoder=decoder,
        linger_s=linger_s,
        outgoing=outgoing,
        incoming=incoming,
    )


@asynccontextmanager
async def memory_pipe(
    *, version: str = "1.2", max_frames: int = MAX_FRAMES, linger_s: float = LINGER_S
) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two peers that are each other's far end, over a bounded stream in memory.

    At the end of the block both shut down, together.

    Args, Raises, Checkpoint, Cancel: as ``open_peer``.
    """
    one, other = memory_stream_pair()
    async with (
        open_peer(one, version=version, max_frames=max_frames, linger_s=linger_s) as first,
        open_peer(other, version=version, max_frames=max_frames, linger_s=linger_s) as second,
    ):
        yield first, second
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.close)
            nursery.start_soon(second.close)
