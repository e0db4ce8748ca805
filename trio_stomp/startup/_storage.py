"""Opening the configured store, and recovering its content before the first client connects."""

import logging
import time
from collections.abc import Callable

import trio

from trio_stomp.base import WRITE, exposed
from trio_stomp.config import Settings
from trio_stomp.store import JournalStore, Recovered, Store
from trio_stomp.store._options import JOURNAL, MEMORY

logger = logging.getLogger("trio_stomp")

PROGRESS_S = 2.0
"""The interval of progress reports when recovery takes long."""


async def open_store(
    settings: Settings, given: Store | None = None
) -> tuple[Store, Recovered] | None:
    """Return the store and its recovered state, or None if messages are not stored.

    Args:
      settings: The settings.
      given: A store, not recovered, instead of the one named by the settings.

    Raises:
      StoreError: the store is not available.

    Checkpoint: always. Cancel: after the recovery.
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
    recovered = await trio.to_thread.run_sync(store.recover, progress_reporter(kind))
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


def progress_reporter(kind: str) -> Callable[[int, int], None]:
    """Return a function that logs progress if the recovery takes long."""
    reported_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal reported_at
        now = time.monotonic()
        if now - reported_at >= PROGRESS_S and total:
            reported_at = now
            logger.info("reading the %s: %d of %d MB", kind, done >> 20, total >> 20)

    return report
