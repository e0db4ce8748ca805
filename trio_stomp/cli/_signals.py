"""Ending in order at SIGTERM, as process 1 of a container, too."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived, which ends a command as Ctrl-C does."""


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, which Python does not.

    The kernel drops a signal that process 1 does not handle. Commands that end otherwise, such as
    ``serve``, handle it themselves meanwhile.

    Raises:
      Terminated: SIGTERM arrived.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ended = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal is_ended
        is_ended = True
        # That of Trio or asyncio if one runs, which ends its tasks in order.
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if is_ended:
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
