"""From the bytes of a connection to a batch of what they mean; and what is kept between reads."""

import logging
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Event, Subscribed, Unsubscribed
from trio_stomp.server.io import Batch
from trio_stomp.transport import WebSocketCodec

if TYPE_CHECKING:
    from trio_stomp.server.connection._connection import Connection

logger = logging.getLogger("trio_stomp")

FIRST_BYTES = 8 * 1024
"""What is read at once of who is new, or subscribes: a SUBSCRIBE takes as long as thirty messages
of a run, so that 64 KiB of them held everybody else up for 50 ms."""
MANY_SUBSCRIPTIONS = 16
"""Begun or ended in one read."""
RECEIVE_BYTES = 64 * 1024
BULK_BYTES = 256 * 1024
"""What is read at once of a peer whose frames are large: it makes bodies of 100 KB a tenth to a
third cheaper. Small frames, so many, would not stay in the cache until they are out again."""
BULK_FRAME_BYTES = 8 * 1024
BULK_SHARE = 16
"""No more than this part of the memory may be incomplete frames, or all are read bit by bit."""
HELD_SHARE = 4
"""Frames that are not complete yet may hold this part of the memory, all together: 1/4."""
_SUBSCRIBING = frozenset({Subscribed, Unsubscribed})


@define(eq=False, repr=False)
class WebSocketReads:
    """Reads of WebSockets, as the seed counts them: ``hits`` continued a frame, ``misses`` not.

    ``underruns_fixed``: reads that completed a frame which an earlier read began.
    """

    hits: int = 0
    misses: int = 0
    underruns_fixed: int = 0


def decode(connection: "Connection", data: bytes, now: float) -> list[Event]:
    """What ``data`` means; how much of it must be kept is accounted for.

    Sets the connection's verdict if that is too much, and its reason if it breaks WebSocket.
    """
    connection.last_received = now
    size = len(data)
    if connection.websocket is not None:
        data = _unwrap(connection, connection.websocket, data, now)
    events = connection.session.receive_data(data)
    held = connection.session.decoder.buffered_bytes
    if connection.websocket is not None and connection.websocket.is_in_frame:
        held += connection.websocket.statistics().buffered_bytes
    if held != connection.held:
        hold(connection, held)
    if size >= FIRST_BYTES:
        has_frames = bool(events) or held > 0  # and is no flood of heart-beats
        connection.read_bytes = _next_room(connection.read_bytes, events, size, has_frames)
    return events


def _next_room(room: int, events: list[Event], size: int, has_frames: bool) -> int:
    """How much to read at once, after a read of ``size`` bytes for which there was ``room``."""
    if sum([type(event) in _SUBSCRIBING for event in events]) >= MANY_SUBSCRIPTIONS:
        return FIRST_BYTES
    if size < min(room, RECEIVE_BYTES):
        return room  # that was all
    is_bulk = has_frames and _count(events) * BULK_FRAME_BYTES <= size
    return BULK_BYTES if is_bulk and size >= RECEIVE_BYTES else RECEIVE_BYTES


def room_of(connection: "Connection") -> int:
    """How much to read at once, in bytes."""
    room, shared = connection.read_bytes, connection.shared
    if room > RECEIVE_BYTES and shared.held_bytes * BULK_SHARE > shared.memory.limit_bytes:
        return RECEIVE_BYTES
    return room


def hold(connection: "Connection", held: int) -> None:
    """Account for what is kept of a frame that is not complete yet."""
    shared = connection.shared
    grown = held - connection.held
    connection.held = held
    if held:
        shared.holding.add(connection)
    else:
        shared.holding.discard(connection)
    shared.held_bytes += grown
    shared.memory.used_bytes += grown
    limit = shared.memory.limit_bytes // HELD_SHARE
    if shared.held_bytes > limit and held > RECEIVE_BYTES and grown > 0:
        connection.verdict = ProtocolError(
            "memory-limit",
            f"incomplete frames hold more than {limit} bytes, a quarter of what the broker"
            " may use (option max_memory_bytes); try again later",
            reason=CloseReason.MEMORY_LIMIT,
        )


def batch_of(connection: "Connection", events: list[Event], size: int, now: float) -> Batch:
    """The batch of what ``size`` bytes meant that were read at ``now``."""
    frames = _count(events)
    connection.frames_in += frames
    return Batch(connection, events, frames, size, now)


def _unwrap(connection: "Connection", websocket: WebSocketCodec, data: bytes, now: float) -> bytes:
    reads = connection.shared.websocket_reads
    if websocket.is_in_frame:
        reads.hits += 1
        began = websocket.frame_number
        payload = websocket.receive_data(data)
        if websocket.frame_number > began:
            reads.underruns_fixed += 1
    else:
        reads.misses += 1
        payload = websocket.receive_data(data)
    replies = websocket.take_replies()
    closed = websocket.closed
    if closed is not None:
        connection.close_reply = replies
    elif replies:
        connection.send_now(replies, now, beat=True)
    if closed is not None and not closed.by_peer:
        connection.reason = CloseReason.WEBSOCKET_ERROR
        logger.info("%s broke WebSocket: %d %s", connection.wire.remote, closed.code, closed.reason)
    return payload


def _count(events: list[Event]) -> int:
    """How many frames these are."""
    frames = 0
    for event in events:
        frames += len(event.bodies) if type(event) is FrameRun else 1
    return frames
