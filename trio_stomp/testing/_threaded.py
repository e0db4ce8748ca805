"""A broker in a separate thread, on a local port, for clients that do not use Trio."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import trio
from attrs import define, field

from trio_stomp.client import Client, open_client
from trio_stomp.config import Settings
from trio_stomp.server import ServerHandle
from trio_stomp.startup import serve

PATIENCE_S = 30.0


@define(eq=False, repr=False)
class ThreadedBroker:
    """A broker in another thread.

    Args:
      host: The address it listens on.
      port: The port it listens on.
    """

    host: str
    port: int
    _runner: "_Runner"

    @property
    def url(self) -> str:
        """Return the URL for a STOMP client.

        WebSocket clients use ``ws://`` and ``/ws`` instead.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"stomp://{host}:{self.port}"

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:  # noqa: ANN401
        """Connect a ``trio_stomp.client``, on asyncio or Trio.

        Args:
          options: As of ``trio_stomp.client.open_client``.

        Raises:
          OptionError: an option is wrong.
          ClientError: as ``open_client``.
        """
        async with open_client(self.url, **options) as client:
            yield client

    def stop(self) -> None:
        """Stop the broker in order, and wait for its end. May be called repeatedly. Blocks.

        Raises:
          TimeoutError: it does not end.
          Exception: an error ended it earlier.
        """
        self._runner.stop()


@define(eq=False, repr=False)
class _Runner:
    """The broker's thread."""

    settings: Settings
    patience_s: float = PATIENCE_S
    started: threading.Event = field(factory=threading.Event)
    handle: ServerHandle | None = None
    token: trio.lowlevel.TrioToken | None = None
    failure: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        # A daemon, so that it cannot keep the test run from ending.
        self._thread = threading.Thread(target=self._run, name="trio_stomp", daemon=True)

    def start(self) -> ServerHandle:
        """Wait until the broker listens. Blocks.

        Raises:
          TimeoutError: it does not start in time.
          Exception: the error that ended it.
        """
        self._thread.start()
        self.started.wait(self.patience_s)
        if self.handle is not None:
            return self.handle
        raise self.failure or TimeoutError(f"the broker did not start in {self.patience_s:g} s")

    def stop(self) -> None:
        """Stop the broker, and wait for its end. Blocks.

        Raises:
          TimeoutError: it does not stop in time.
          Exception: the error that ended it.
        """
        if self.token is not None and self.handle is not None:
            with suppress(trio.RunFinishedError):
                self.token.run_sync_soon(self.handle.stop)
        self._thread.join(self.patience_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop in {self.patience_s:g} s")
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            # This is our nursery, so raise a single exception without its group.
            alone = isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1
            self.failure = error.exceptions[0] if alone else error  # type: ignore[attr-defined]
        finally:
            self.started.set()

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            handle: ServerHandle = await nursery.start(serve, self.settings)
            self.token = trio.lowlevel.current_trio_token()
            self.handle = handle
            self.started.set()


@contextmanager
def threaded_broker(**options: object) -> Iterator[ThreadedBroker]:
    """Run a broker on a free loopback port for the block.

    Args:
      options: As in ``Settings.of``; without a port, a free one is chosen.

    Raises:
      OptionError: an option is wrong.
      OSError: listening on the address failed.
      TimeoutError: the broker does not start, or does not end.
      Exception: a bug ended the broker.

    Blocks while it starts and stops.
    """
    runner = _Runner(Settings.of(**{"port": 0, **options}))
    handle = runner.start()
    host, _, port = (handle.addresses or handle.tls_addresses)[0].rpartition(":")
    broker = ThreadedBroker(host.strip("[]"), int(port), runner)
    try:
        yield broker
    finally:
        broker.stop()
