"""A broker in the loop of a test, and the links to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from trio_stomp._serve import serve
from trio_stomp.config import Settings
from trio_stomp.server import ServerHandle
from trio_stomp.testing._links import Faults, Link


class _Listener(trio.abc.Listener[trio.abc.Stream]):
    """Where the broker's ends of new links come from."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[trio.abc.Stream](10_000)

    def offer(self, stream: trio.abc.Stream) -> None:
        self._sender.send_nowait(stream)

    async def accept(self) -> trio.abc.Stream:
        try:
            return await self._receiver.receive()
        except trio.EndOfChannel as error:
            raise trio.ClosedResourceError from error

    async def aclose(self) -> None:
        self._sender.close()
        self._receiver.close()
        await trio.lowlevel.checkpoint()


@define(eq=False, repr=False)
class TestBroker:
    """A running broker and the links of its clients. To be made by ``open_test_broker``.

    Args:
      handle: To stop it, or to have it read its files again.
      links: All links so far, by name.
    """

    __test__ = False  # it is no test, whatever pytest thinks of its name

    handle: ServerHandle
    _listener: _Listener
    links: dict[str, Link] = field(factory=dict)

    async def connect(self, name: str = "", faults: Faults | None = None) -> trio.abc.Stream:
        """A new connection to the broker: bytes of STOMP, or of a WebSocket's handshake.

        Args:
          name: How ``links`` calls it; a name that is in use means the newest from now on.
          faults: What the link does to what goes over it.

        Checkpoint: always.
        """
        link = Link(name or f"link{len(self.links) + 1}")
        if faults is not None:
            link.faults = faults
        self.links[link.name] = link
        client_end, broker_end = link.ends()
        self._listener.offer(broker_end)
        await trio.lowlevel.checkpoint()
        return client_end

    def drop_link(self, name: str, after_bytes: int = 0) -> None:
        """Cut a link now, or once so many more bytes have passed in one direction."""
        link = self.links[name]
        if after_bytes:
            link.faults = Faults(drop_after_bytes=after_bytes)
        else:
            link.cut()

    async def stop(self) -> None:
        """Begin the ordered shutdown. Checkpoint: always."""
        self.handle.stop()
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_test_broker(
    settings: Settings | None = None, **options: object
) -> AsyncIterator[TestBroker]:
    """A broker for a test, in the current loop; stopped at the end.

    Args:
      settings: Everything that can be chosen; or single ``options``, as in ``Settings.of``.

    Raises:
      OptionError: an option is wrong: the test's fault.

    Checkpoint: always. Cancel: stops hard.
    """
    listener = _Listener()
    async with trio.open_nursery() as nursery:
        chosen = settings if settings is not None else Settings.of(**options)

        async def run(task_status: trio.TaskStatus[ServerHandle]) -> None:
            await serve(chosen, listeners=[listener], task_status=task_status)

        broker = TestBroker(await nursery.start(run), listener)
        try:
            yield broker
        finally:
            for link in broker.links.values():
                link.cut()
            broker.handle.stop()
