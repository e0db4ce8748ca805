"""Opening the configured store, and recovering its content before the first client connects."""

import logging

import trio

from trio_stomp.base import WRITE, exposed
from trio_stomp.config import Settings
from trio_stomp.startup._starting import Starting, check_cancelled
from trio_stomp.store import JournalStore, Recovered, Store
from trio_stomp.store._options import JOURNAL, MEMORY

logger = logging.getLogger("trio_stomp")


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
