"""A broker in the loop of a test, and the links to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
import trio.testing
from attrs import define, evolve, field

from trio_stomp.base import OptionError
from trio_stomp.client import Client, open_client
from trio_stomp.config import Settings
from trio_stomp.server import ServerHandle
from trio_stomp.startup import serve
from trio_stomp.testing._links import Faults, Link

MAX_WAITING_LINKS = 10_000
FIRST_MOMENT_S = 0.001


class _Listener(trio.abc.Listener[trio.abc.Stream]):
    """The listener that accepts the broker's ends of new links."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[trio.abc.Stream](MAX_WAITING_LINKS)

    def offer(self, stream: trio.abc.Stream) -> None:
        """Offer a stream to the broker.

        Raises:
          ConnectionRefusedError: nobody accepts it.
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
    """A running broker and the links of its clients. To be made by ``open_test_broker``.

    Args:
      handle: To stop it, or to have it read its files again.
      links: The newest link of each name.
    """

    __test__ = False  # it is no test, whatever pytest thinks of its name

    handle: ServerHandle
    _listener: _Listener
    links: dict[str, Link] = field(factory=dict)
    _older: list[Link] = field(factory=list)

    async def connect(self, name: str = "", faults: Faults | None = None) -> trio.abc.Stream:
        """Return a new connection to the broker: bytes of STOMP, or of a WebSocket's handshake.

        Args:
          name: The link's name in ``links``. A name in use refers to the newest link from now on.
            The default is ``link1``, ``link2``, …
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
        """Connect the project's own client over a link. Each reconnection opens a new link.

        Args:
          name: Of its links, in ``links``; the default is a new one.
          faults: Of each of its links, from its beginning.
          options: As of ``trio_stomp.client.open_client``.

        Raises:
          OptionError: an option is wrong: the test's fault.
          ClientError: as ``open_client``.
        """
        opener = partial(self.connect, name or self._new_name(), faults)
        async with open_client(opener, **options) as client:
            yield client

    def drop_link(self, name: str, after_bytes: int = 0) -> None:
        """Cut a link now, or once so many more bytes have passed in one direction.

        Raises:
          OptionError: there is no link of that name, or a number below 0: the test's fault.
        """
        if name not in self.links:
            known = ", ".join(self.links) or "none"
            raise OptionError(f"no link is called {name!r}; there are: {known}")
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
        """Stop at once, as all clients are gone."""
        for link in (*self.links.values(), *self._older):
            link.cut()
        self.handle.stop()


@asynccontextmanager
async def open_test_broker(
    settings: Settings | None = None, **options: object
) -> AsyncIterator[TestBroker]:
    """Run a broker in the current loop until the block ends, and then close all its links.

    What the block raises comes out as it is, in no group. A mock clock that stands at 0 is
    turned on by a millisecond.

    Args:
      settings: Everything that can be chosen; or single ``options``, as in ``Settings.of``.
      **options: Options of ``Settings``, by name.

    Raises:
      OptionError: an option is wrong, or both were told: the test's fault.

    Checkpoint: always. Cancel: stops hard.
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
        raised = group.exceptions[0] if len(group.exceptions) == 1 else group
    if raised is not None:
        raise raised


def _leave_time_zero() -> None:
    """No clock of the real world begins at 0, where the broker says: that has not happened."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, trio.testing.MockClock) and clock.current_time() == 0:
        clock.jump(FIRST_MOMENT_S)
