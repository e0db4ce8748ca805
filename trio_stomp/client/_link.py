"""One connection: a reader, a writer that batches, and a watch on the peer's heart-beats."""

from collections.abc import Callable
from contextlib import suppress

from attrs import define, field

from trio_stomp.client._errors import BrokerError, ClientError, LinkLost, refusal
from trio_stomp.client._pipe import Pipe
from trio_stomp.client.loops import Event, Loop, Scope
from trio_stomp.protocol import ClientFrames, ClientSession, Failed, SessionEvent, SessionOpened

LINGER_S = 1.0
"""Time to wait for an ERROR that explains a failed write."""


@define(eq=False, repr=False)
class Link:
    """An open session over one pipe.

    Args:
      number: The number of the link in its client, from 1.
      receive: Takes batches of the broker's events, in order; never waits.
      wait_until_wanted: Waits while reading is paused.
      max_outgoing_bytes: The number of unsent bytes from which the link ``is_full``.
    """

    pipe: Pipe
    loop: Loop
    session: ClientSession
    number: int
    receive: Callable[[list[SessionEvent]], None]
    wait_until_wanted: Callable[[], Event | None]
    max_outgoing_bytes: int
    is_full: bool = False
    reason: ClientError | None = None
    _outgoing: list[bytes] = field(factory=list)
    _outgoing_bytes: int = 0
    _wake: Event = field(init=False)
    _room: Event = field(init=False)
    _received_at: float = 0.0
    _is_paused: bool = False
    _scope: Scope = field(init=False)

    def __attrs_post_init__(self) -> None:
        loop = self.loop
        self._wake, self._room, self._scope = loop.event(), loop.event(), loop.scope()
        self.pipe.on_reply = lambda: self.write(b"\n")

    @property
    def frames(self) -> ClientFrames:
        """The encoder of this session's version."""
        return self.session.frames

    async def open(self, connect: bytes) -> SessionOpened:
        """Send CONNECT, and wait for the answer.

        Raises:
          ClientError: refused, or the connection ended.
        """
        session = self.session
        # If the write fails, an ERROR may say why.
        with suppress(*self.loop.broken):
            await self.pipe.send(connect)
        events: list[SessionEvent] = []
        while not events:
            try:
                data = await self.pipe.receive()
            except self.loop.broken as error:
                raise LinkLost("the connection broke before CONNECTED arrived") from error
            if not data:
                raise LinkLost("the broker closed the connection before CONNECTED arrived")
            events = session.receive_data(data)
            if not events and session.error is not None:
                raise self._broken_rule()
        first, *others = events
        if isinstance(first, Failed):
            raise refusal(first, opening=True)
        assert isinstance(first, SessionOpened)
        self._received_at = self.loop.current_time()
        for each in others:  # before any request only an ERROR can arrive
            if isinstance(each, Failed):
                raise refusal(each, opening=True)
        return first

    def write(self, data: bytes) -> None:
        """Queue the bytes of whole frames for writing, in order.

        They are lost if the link is about to end.
        """
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes >= self.max_outgoing_bytes:
            self.is_full = True
        if len(self._outgoing) == 1:
            self._wake.set()

    async def wait_for_room(self) -> None:
        """Wait until the link is no longer full, or has ended."""
        while self.is_full and self.reason is None:
            await self._room.wait()

    def end(self, reason: ClientError) -> None:
        """End the link. Only the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self._room.set()
            self._scope.cancel()

    async def run(self) -> ClientError:
        """Read and write until the link ends, and return the reason."""
        with self._scope:
            async with self.loop.open_nursery() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                await self._read()
        assert self.reason is not None
        return self.reason

    async def _read(self) -> None:
        receive_data = self.session.receive_data
        while True:
            try:
                data = await self.pipe.receive()
            except self.loop.broken:
                return self.end(LinkLost("the connection broke"))
            if not data:
                return self.end(LinkLost("the broker closed the connection"))
            self._received_at = self.loop.current_time()
            events = receive_data(data)
            if events:
                self.receive(events)
            if self.session.error is not None:
                self.end(self._broken_rule())
            while (event := self.wait_until_wanted()) is not None:
                self._is_paused = True
                await event.wait()
            if self._is_paused:
                self._is_paused = False
                self._received_at = self.loop.current_time()

    def _broken_rule(self) -> BrokerError:
        error = self.session.error
        assert error is not None
        return BrokerError(error.code, f"the broker broke a rule of STOMP: {error.message}", {})

    async def _write(self) -> None:
        beat_s = self.session.heartbeats.send_after_s or float("inf")
        while True:
            if not self._outgoing:
                self._wake = self.loop.event()
                with self.loop.move_on_after(beat_s):
                    await self._wake.wait()
            data = b"".join(self._outgoing) or b"\n"
            self._outgoing.clear()
            self._outgoing_bytes = 0
            try:
                await self.pipe.send(data)
            except self.loop.broken:
                # Release tasks that wait for room; the broker may have sent a reason.
                await self.loop.sleep(LINGER_S)
                return self.end(LinkLost("the connection broke"))
            if self.is_full and self._outgoing_bytes < self.max_outgoing_bytes:
                self.is_full = False
                self._room.set()
                self._room = self.loop.event()

    async def _watch(self) -> None:
        dead_after_s = self.session.heartbeats.dead_after_s
        if not dead_after_s:
            return None
        while True:
            await self.loop.sleep_until(self._received_at + dead_after_s)
            if self._is_paused:  # reading is paused, so its heart-beats are not seen
                self._received_at = self.loop.current_time()
                continue
            # If this client was late, bytes that have arrived meanwhile are read first.
            for _ in range(2):
                await self.loop.checkpoint()
            if self.loop.current_time() >= self._received_at + dead_after_s:
                return self.end(
                    LinkLost(f"the broker was silent for {dead_after_s:g} s, longer than its")
                )
