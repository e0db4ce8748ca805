"""The link of a client to the owner in this process: events into its inbox, without a socket."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve, field

from trio_stomp.base import CloseReason
from trio_stomp.cluster.routing._encoder import routed
from trio_stomp.cluster.routing._frames import Piece
from trio_stomp.cluster.routing._link import Sender
from trio_stomp.cluster.routing._remote import OURS
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import NO_HEARTBEATS, Acked, Committed, Event, Opened, Received

if TYPE_CHECKING:
    from trio_stomp.broker import Client, Outbox
    from trio_stomp.cluster._gate import Owner, Session


@define(eq=False, repr=False)
class LocalLink:
    """The link of a client to the owner in this process, and a ``Guest`` there.

    Args:
      upstream: Whose link it is.
      owner: The owner.
    """

    upstream: Sender
    owner: "Owner"
    session: "Session" = field(init=False)
    _held: deque[tuple[Sequence[Event], int]] = field(factory=deque)
    """Events, with their bytes, for which the inbox has no room."""
    _wake: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.session = self.owner.open(self)
        opened = self.upstream.opened
        headers = tuple(each for each in opened.headers if each[0] not in OURS)
        identity = self.client.identity
        self._put([Opened(opened.version, NO_HEARTBEATS, headers, identity)], 0)

    # In turns of the router.

    def send(self, events: Sequence[Event], size: int) -> None:
        """Implement ``Link.send``."""
        self._put([self._own(each) for each in events], size)

    def _put(self, events: Sequence[Event], size: int) -> None:
        try:
            is_put = not self._held and self.session.offer(events, size)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return  # it has stopped, and this will be noticed
        if is_put:
            self.upstream.release(size)
        else:
            self._held.append((events, size))
            self._wake.set()

    def _own(self, event: Event) -> Event:
        """Return an event with header blocks that are the owner's alone: it keeps plans there."""
        if type(event) is FrameRun:
            return self._own_run(event)
        if isinstance(event, Committed):
            return evolve(event, actions=[self._own_action(each) for each in event.actions])
        if isinstance(event, Received) and event.head is not None:
            return evolve(event, head=self._own_head(event.head))
        return event

    def _own_action(self, action: FrameRun | Acked) -> FrameRun | Acked:
        return self._own_run(action) if isinstance(action, FrameRun) else action

    def _own_run(self, run: FrameRun) -> FrameRun:
        return FrameRun(self._own_head(run.head), run.bodies, run.receipts)

    def _own_head(self, head: Head) -> Head:
        plan = routed(head)
        if plan.copy is None or plan.owner is not self.owner:
            plan.copy = Head(head.command, head.headers, head.content_length, head.destination)
            plan.owner = self.owner
        return plan.copy

    def finish(self) -> None:
        """Implement ``Link.finish``."""
        self._wake.set()

    def make_room(self) -> None:
        """Implement ``Link.make_room``."""
        self.session.resume()

    # In turns of the owner.

    @property
    def client(self) -> "Client":
        """Implement ``Guest.client``."""
        return self.upstream.client

    @property
    def outbox(self) -> "Outbox":
        """Implement ``Guest.outbox``."""
        return self.upstream.outbox

    @property
    def is_noted(self) -> bool:
        """Implement ``Guest.is_noted``."""
        return self.upstream.is_noted

    def take(self, frame: bytes) -> None:
        """Implement ``Guest.take``."""
        self.upstream.receive([Piece(frame, False)])

    def note(self, message: bytes) -> None:
        """Implement ``Guest.note``."""
        self.upstream.note(message)

    def pause(self, *, paused: bool) -> None:
        """Implement ``Guest.pause``."""
        self.upstream.hold(held=paused)

    def close(self) -> None:
        """Implement ``Guest.close``."""
        self.upstream.cancel()

    # Its task.

    async def run(self) -> None:
        """Put what the inbox had no room for, until the client or the owner has ended.

        Checkpoint: always. Cancel: the session at the owner ends.
        """
        upstream, reason = self.upstream, CloseReason.CONNECTION_LOST
        stopped = (trio.ClosedResourceError, trio.BrokenResourceError)
        try:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(self._end_with_owner, tasks.cancel_scope)
                with suppress(*stopped):
                    while True:
                        self._wake = trio.Event()
                        while self._held:
                            events, size = self._held[0]
                            await self.session.put(events, size)
                            self._held.popleft()
                            upstream.release(size)
                            upstream.tell_drained()
                        if upstream.is_finishing:
                            reason = CloseReason.CLIENT_CLOSED
                            break
                        await self._wake.wait()
                tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True), suppress(*stopped):
                await self.session.leave(reason)

    async def _end_with_owner(self, scope: trio.CancelScope) -> None:
        await self.owner.ended.wait()
        scope.cancel()
