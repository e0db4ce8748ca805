"""A long start: the store is opened and read before the first client connects.

Probes, the supervisor and signals are answered meanwhile.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import trio
from attrs import define

from trio_stomp.base import WRITE, RemoteError, exposed
from trio_stomp.config import Settings
from trio_stomp.server import Door, Entrance, accept_from
from trio_stomp.startup._security import Security
from trio_stomp.store import JournalStore, Recovered, Store
from trio_stomp.store._options import JOURNAL, MEMORY
from trio_stomp.transport import Relayed, TlsWire, Wire, WireStream, encode_response

logger = logging.getLogger("trio_stomp")

PROGRESS_S = 2.0
"""The interval of progress reports when recovery takes long."""
PATIENCE_S = 1.0
"""The time of a start without probes: most starts are shorter."""
LOST = (trio.BrokenResourceError, OSError, RemoteError)
HANDSHAKE = b"\x16"
HEAD_BYTES = 4096


def check_cancelled() -> None:
    """Raise ``trio.Cancelled`` in a thread that reads the store if the start was cancelled.

    Simulations read it outside of Trio's threads: there, nothing can be cancelled.
    """
    with suppress(RuntimeError):
        trio.from_thread.check_cancelled()


@define(eq=False)
class Starting:
    """The progress of reading the store, which a thread reports.

    Args:
      kind: The kind of store.
      tell: Called with the share that is read, at each report.
    """

    kind: str
    tell: Callable[[float], None]
    share: float = 0.0
    _told_at: float = 0.0
    _logged_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._logged_at = time.monotonic()

    def report(self, done: int, total: int) -> None:
        """Take note that a part of the store's bytes is read."""
        if total:
            self.share = min(done / total, 1.0)
        self.go_on()
        if total and time.monotonic() - self._logged_at >= PROGRESS_S:
            self._logged_at = time.monotonic()
            logger.info("reading the %s: %d of %d MB", self.kind, done >> 20, total >> 20)

    def go_on(self) -> None:
        """Tell that the start goes on, at most once a second."""
        if (now := time.monotonic()) - self._told_at >= 1.0:
            self._told_at = now
            self.tell(self.share)

    def page(self, head: bytes) -> bytes:
        """Return the answer to a probe, or b"" for whatever else begins like this."""
        words = head.split(b" ", 2)
        if len(words) < 3 or words[0] not in (b"GET", b"HEAD"):
            return b""
        if words[1].partition(b"?")[0] == b"/livez":
            return encode_response(200, (), b"ok\n")
        text = f"starting, {self.share:.0%}\n"
        return encode_response(503, (("Retry-After", "1"),), text.encode())


async def open_store(
    settings: Settings, given: Store | None, starting: Starting
) -> tuple[Store, Recovered] | None:
    """Return the store and its recovered state, or None if messages are not stored.

    Args:
      settings: The settings.
      given: A store, not recovered, instead of the one named by the settings.
      starting: Gets the progress.

    Raises:
      StoreError: the store is not available.

    Checkpoint: always. Cancel: at the next report of the progress.
    """
    kind = settings.store.kind
    if given is None and kind == MEMORY:
        await trio.lowlevel.checkpoint()
        return None
    store = given
    if store is None:
        store = _journal(settings) if kind == JOURNAL else _sql(settings)
    if warning := exposed(settings.store.data_dir, WRITE):
        logger.warning("%s: %s", kind, warning)

    def report(done: int, total: int) -> None:
        check_cancelled()
        starting.report(done, total)

    starting.go_on()
    try:
        recovered = await trio.to_thread.run_sync(store.recover, report)
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(store.close)
        raise
    for line in recovered.damage:
        logger.error("%s: %s", kind, line)
    for line in recovered.notes:
        logger.warning("%s: %s", kind, line)
    return store, recovered


def _journal(settings: Settings) -> Store:
    return JournalStore(settings.store.data_dir, options=settings.journal)


def _sql(settings: Settings) -> Store:
    # Imported late, as only a database needs the library.
    from trio_stomp.store import SqlStore

    return SqlStore(settings.store.store_url)


async def answer_probes(
    starting: Starting,
    listen: Callable[[], Awaitable[Sequence[Entrance]]],
    security: Security,
    door: Door,
) -> None:
    """Answer probes once the start takes long, and close all other connections, until cancelled.

    Args:
      starting: The progress to tell.
      listen: Opens the entrances. Those with sockets are used, and stay open.
      security: The broker's TLS.
      door: Bounds the connections.

    Raises:
      OSError: listening failed.
    """

    async def serve(wire: Wire, refusal: RemoteError | None, introduced: Relayed) -> None:
        async with WireStream(wire) as stream:
            with trio.move_on_after(door.limits.connect_timeout_s), suppress(*LOST):
                head = introduced.early or await stream.receive_some(HEAD_BYTES)
                if head[:1] == HANDSHAKE and security.tls is not None and refusal is None:
                    secret = TlsWire(wire, security.tls.context, head)
                    await secret.handshake()
                    stream = WireStream(secret)
                    head = await stream.receive_some(HEAD_BYTES)
                await stream.send_all(starting.page(head))

    async with trio.open_nursery() as nursery:
        await trio.sleep(PATIENCE_S)
        for each in await listen():
            if isinstance(each.listener, trio.SocketListener):
                copy = trio.SocketListener(each.listener.socket.dup())
                let_in = partial(door.let_in, serve, each.tls, b"", None)
                nursery.start_soon(accept_from, copy, let_in, nursery)
