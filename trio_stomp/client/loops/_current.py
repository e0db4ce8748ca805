"""Detection of the async library that runs the caller. No other is imported."""

import sys

from trio_stomp.client.loops._loop import Loop


def current_loop() -> Loop:
    """Return the functions of the async library that runs the caller.

    Raises:
      RuntimeError: neither Trio nor asyncio runs it; the caller's fault.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        from trio_stomp.client.loops._trio import TrioLoop

        return TrioLoop()
    from trio_stomp.client.loops._asyncio import AsyncioLoop

    return AsyncioLoop()
