"""Whether what was read came alone, told from the passes of Trio's loop."""

import trio

ALONE = 8
"""After so many passes in each of which one connection had something, the next is likely such."""


class Passes(trio.abc.Instrument):
    """Counts reads within one pass: after each wait Trio runs all whose sockets had something.

    How many these will be nobody can tell while the first of them runs.
    """

    def __init__(self) -> None:
        self._reads = 0
        self._alone = 0

    def before_io_wait(self, timeout: float) -> None:
        """Trio's: a pass has ended."""
        if self._reads:
            self._alone = self._alone + 1 if self._reads == 1 else 0
            self._reads = 0

    def is_alone(self) -> bool:
        """Count a read; whether it is its pass's first, and likely its only one."""
        self._reads += 1
        return self._reads == 1 and self._alone >= ALONE
