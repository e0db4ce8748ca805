"""A broker on a port of this machine, in a thread of its own: for clients that are not Trio's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from attrs import define, field

from trio_stomp._serve import serve
from trio_stomp.config import Settings
from trio_stomp.server import ServerHandle

PATIENCE_S = 30.0


@define(eq=False, repr=False)
class ThreadedBroker:
    """A broker that runs in another thread.

    Args:
      host: Where it listens.
      port: Likewise.
    """

    host: str
    port: int
    _handle: ServerHandle
    _token: trio.lowlevel.TrioToken
    _thread: threading.Thread

    @property
    def url(self) -> str:
        """For a STOMP client; a WebSocket's is the same with ``ws://`` and ``/ws``."""
        return f"stomp://{self.host}:{self.port}"

    def stop(self) -> None:
        """Stop it in the ordered way, and wait for that. Blocks."""
        if self._thread.is_alive():
            self._token.run_sync_soon(self._handle.stop)
            self._thread.join(PATIENCE_S)


@define(eq=False, repr=False)
class _Runner:
    settings: Settings
    started: threading.Event = field(factory=threading.Event)
    broker: tuple[ServerHandle, trio.lowlevel.TrioToken] | None = None
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self.failure = error
        finally:
            self.started.set()

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            handle: ServerHandle = await nursery.start(serve, self.settings)
            self.broker = (handle, trio.lowlevel.current_trio_token())
            self.started.set()


@contextmanager
def threaded_broker(**options: object) -> Iterator[ThreadedBroker]:
    """A broker on a free port of loopback; stopped at the end.

    Args:
      options: As in ``Settings.of``; the port is chosen, unless it is told.

    Raises:
      OptionError: an option is wrong: the test's fault.

    Blocks while it starts and stops.
    """
    runner = _Runner(Settings.of(**{"port": 0, **options}))
    thread = threading.Thread(target=runner.run, name="trio_stomp", daemon=True)
    thread.start()
    runner.started.wait(PATIENCE_S)
    if runner.broker is None:
        raise runner.failure or RuntimeError("the broker did not start")
    handle, token = runner.broker
    host, _, port = handle.addresses[0].rpartition(":")
    broker = ThreadedBroker(host, int(port), handle, token, thread)
    try:
        yield broker
    finally:
        broker.stop()
