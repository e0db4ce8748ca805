"""Ending in order at Ctrl-C."""

import signal
from collections.abc import Callable

import trio


async def end_at_signal(
    end: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Wait for SIGINT or SIGTERM, and call ``end``."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        await anext(signals)
        end()
