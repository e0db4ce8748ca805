"""Exceptions that signal that a SEND continues in pieces."""

from trio_stomp.broker.routing._fanout_pieces import Giving


class Begun(Exception):
    """Raised when a request is accepted and its fan-out is left to ``giving``."""

    def __init__(self, giving: Giving) -> None:
        super().__init__()
        self.giving = giving


class ManyCopies(Exception):
    """Raised when a SEND needs so many stored copies that it must be done as a COMMIT.

    Nothing has been changed.
    """
