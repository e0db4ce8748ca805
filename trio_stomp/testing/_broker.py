"""A broker in the event loop of a test, and the links to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
import trio.testing
from attrs import define, evolve, field

from trio_stomp.base import OptionError, sole
from trio_stomp.client import Client, open_client
from trio_stomp.config import Settings
from trio_stomp.server import ServerHandle
from trio_stomp.startup import serve
from trio_stomp.testing._links import Faults, Link

MAX_WAITING_LINKS = 10_000
FIRST_MOMENT_S = 0.001


class _Listener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts the broker's ends of new links."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[trio.abc.Stream](MAX_WAITING_LINKS)

    def offer(self, stream: trio.abc.Stream) -> None:
        """Offer a stream to the broker.

        Raises:
          ConnectionRefusedError: the broker has stopped accepting.
        """
        try:
            self._sender.send_nowait(stream)
        except (trio.ClosedResourceError, trio.BrokenResourceError, trio.WouldBlock):
            raise ConnectionRefusedError("the broker is not accepting connections") from None

    async def accept(self) -> trio.abc.Stream:
        return await self._receiver.receive()

    async def aclose(self) -> None:
        self._sender.close()
        self._receiver.close()
        await trio.lowlevel.checkpoint()


@define(eq=False, repr=False)
class TestBroker:
    """A running broker and the links of its clients, made by ``open_test_broker``.

    Args:
      handle: Stops the broker, or reloads its files.
      links: The newest link of each name.
    """

    __test__ = False  # keeps pytest from collecting the class as a test

    handle: ServerHandle
    _listener: _Listener
    links: dict[str, Link] = field(factory=dict)
    _older: list[Link] = field(factory=list)

    async def connect(self, name: str = "", faults: Faults | None = None) -> trio.abc.Stream:
        """Open a connection to the broker, for the bytes of STOMP or a WebSocket handshake.

        Args:
          name: The link's name in ``links``; a name in use then refers to this link. The default
            is ``link1``, ``link2``, …
          faults: The faults of the link.

        Raises:
          ConnectionRefusedError: the broker has been stopped.

        Checkpoint: always.
        """
        await trio.lowlevel.checkpoint()
        link = Link(name or self._new_name(), faults or Faults())
        client_end, broker_end = link.ends()
        self._listener.offer(broker_end)
        if link.name in self.links:
            self._older.append(self.links[link.name])
        self.links[link.name] = link
        return client_end

    def _new_name(self) -> str:
        return next(name for each in count(1) if (name := f"link{each}") not in self.links)

    @asynccontextmanager
    async def client(
        self,
        name: str = "",
        faults: Faults | None = None,
        **options: Any,  # noqa: ANN401
    ) -> AsyncIterator[Client]:
        """Connect a ``trio_stomp.client`` over a link. Each reconnection opens a new link.

        Args:
          name: The name of its links in ``links``; the default is a new one.
          faults: The initial faults of each of its links.
          options: As of ``trio_stomp.client.open_client``.

        Raises:
          OptionError: an option is wrong.
          ClientError: as ``open_client``.
        """
        opener = partial(self.connect, name or self._new_name(), faults)
        async with open_client(opener, **options) as client:
            yield client

    def drop_link(self, name: str, after_bytes: int = 0) -> None:
        """Cut a link, now or after a number of bytes in one direction.

        Raises:
          OptionError: there is no link of that name, or the number is below 0.
        """
        if name not in self.links:
            names = ", ".join(self.links) or "none"
            raise OptionError(f"no link is called {name!r}; there are: {names}")
        link = self.links[name]
        if after_bytes:
            link.faults = evolve(link.faults, drop_after_bytes=after_bytes)
        else:
            link.cut()

    async def stop(self) -> None:
        """Begin the ordered shutdown. Checkpoint: always."""
        self.handle.stop()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        """Stop at once, since all clients are gone."""
        for link in (*self.links.values(), *self._older):
            link.cut()
        self.handle.stop()


@asynccontextmanager
async def open_test_broker(
    settings: Settings | None = None, **options: object
) -> AsyncIterator[TestBroker]:
    """Run a broker in the current event loop for the block, and then close all its links.

    Exceptions of the block are not wrapped in a group. A mock clock at 0 is advanced by a
    millisecond.

    Args:
      settings: The settings of the broker; instead, give single ``options``.
      **options: Options of ``Settings``, by name.

    Raises:
      OptionError: an option is wrong, or both settings and options were given.

    Checkpoint: always. Cancel: stops immediately.
    """
    if settings is not None and options:
        raise OptionError(f"settings, or single options ({', '.join(options)}): not both")
    chosen = settings if settings is not None else Settings.of(**options)
    _leave_time_zero()
    listener = _Listener()
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(partial(serve, chosen, listeners=[listener]))
            broker = TestBroker(handle, listener)
            try:
                yield broker
            finally:
                broker._end()
    except BaseExceptionGroup as group:
        # The nursery must not be visible outside.
        raised = sole(group)
    if raised is not None:
        raise raised


def _leave_time_zero() -> None:
    """Advance a mock clock from 0, a time at which the broker means ``never``."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, trio.testing.MockClock) and clock.current_time() == 0:
        clock.jump(FIRST_MOMENT_S)
