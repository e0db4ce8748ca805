"""``open_peer``: sends and receives frames over a stream through memory channels."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio
from attrs import define, field

from trio_stomp.base import FrameError, OptionError, StompError, sole
from trio_stomp.frames import Frame, FrameDecoder, FrameLimits, FrameRun, HeadCache, Side
from trio_stomp.peer.frames import encode, rules_of
from trio_stomp.transport import memory_stream_pair

MAX_FRAMES = 128
"""Default limit of waiting frames in each direction."""
READ_BYTES = 64 * 1024
WRITE_BYTES = 64 * 1024
"""Waiting frames are joined into one write, up to about this size."""
LINGER_S = 1.0

# Errors of an ended channel or stream, which give no reason.
_ENDED = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)


class IncompleteFrame(FrameError):
    """The other side closed or lost the connection within a frame.

    Args:
      held_bytes: The number of bytes of the frame that had arrived.
    """

    def __init__(self, held_bytes: int) -> None:
        text = f"the connection ended within a frame, of which {held_bytes} bytes had come"
        super().__init__("incomplete-frame", text)
        self.held_bytes = held_bytes


@define(eq=False, repr=False)
class Peer:
    """One side of a STOMP connection, frame by frame, made by ``open_peer``.

    Args:
      send: Frames for the other side, in order. When the channel is full, ``send.send`` waits.
        After the connection has ended, it raises ``trio.BrokenResourceError``.
      receive: Frames from the other side: first all that arrived before the end or an error, then
        ``trio.EndOfChannel``.
      error: The first error, as raised by ``shutdown``; None = no error. An end between frames is
        not an error.
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
    _is_raised: bool = False
    _is_closing: bool = False
    _has_eof: bool = False
    _reading: trio.CancelScope = field(factory=trio.CancelScope)
    _has_read: trio.Event = field(factory=trio.Event)
    _has_written: trio.Event = field(factory=trio.Event)
    _has_closed: trio.Event = field(factory=trio.Event)
    """Set by ``close``, after which errors of the tasks do not count."""

    async def shutdown(self) -> None:
        """End in order: send all frames in ``send``, stop reading, close the stream.

        Frames received before remain available in ``receive``. The other side sees the end of the
        stream and has ``linger_s`` to end as well, so that it can read everything that was sent.
        May be called again.

        Raises:
          FrameError: invalid bytes arrived; ``IncompleteFrame`` if the stream ended within a frame.
          trio.BrokenResourceError, trio.ClosedResourceError: the connection was lost, or the
            stream was closed elsewhere; frames may be lost.
          OptionError: a frame in ``send`` cannot be encoded, by the caller's fault; neither it nor
            later frames were sent.

        Only the first error is raised, and only once: here, or at the end of the block of
        ``open_peer``.

        Checkpoint: always. Cancel: the stream is closed at once; frames may be lost. Limits: this
        may wait forever if the other side does not read, or while clones of ``send`` are open; so
        call it with a deadline.
        """
        await self.close()
        self.check()

    async def send_and_shutdown(self, frame: Frame) -> None:
        """Send a last frame, and shut down.

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
        """Shut down without raising. The end of the block raises ``error``, if there is one."""
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
        if self.error is not None and not self._is_raised:
            self._is_raised = True
            raise self.error

    async def _linger(self) -> None:
        """Let the other side read to the end: closing with unread bytes would reset TCP."""
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
        """Pass on the frames that ``data`` completes, and return whether to read on.

        Raises:
          FrameError: invalid bytes follow them.
        """
        for run in self._decoder.receive_data(data):
            assert isinstance(run, FrameRun)  # AckRuns come only from a decoder of Side.CLIENT
            for frame in run.frames():
                try:
                    await self._incoming.send(frame)
                except trio.BrokenResourceError:
                    return False
        if self._decoder.error is not None:
            raise self._decoder.error
        return True

    async def write(self) -> None:
        """Write until ``send`` is closed. Checkpoint: always. Cancel: may leave half a frame."""
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
    """Send and receive STOMP frames over a stream, as a client or a server.

    At the end of the block the peer shuts down, as by ``shutdown``; if an exception leaves the
    block, the stream is closed at once. Exceptions of the block are never wrapped in a group. If
    one is ``trio.EndOfChannel`` or ``trio.BrokenResourceError`` of a channel, and the peer has an
    error that gives the reason, that error is raised instead.

    Args:
      stream: Any stream; the peer closes it. No other task may use it.
      version: The version whose escaping rules apply to frames other than CONNECT and CONNECTED.
        The caller negotiates the version by sending and receiving those frames.
      max_frames: The limit of waiting frames in each direction, 0 or more.
      linger_s: Seconds that ``shutdown`` gives the other side to end as well.
      limits: The limits of a received frame.

    Raises:
      OptionError: ``version`` is unknown. And the errors of ``Peer.shutdown``.

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
                # Outside the scope, whose Cancelled would replace the block's exception.
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)
    except BaseExceptionGroup as group:
        # The nursery must not be visible outside.
        raised = sole(group)
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
    """Connect two peers with each other over a bounded stream in memory.

    At the end of the block both shut down together.

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
