"""Exceptions that signal that a SEND continues in pieces."""

from trio_stomp.broker.routing._fanout_pieces import Giving


class Begun(Exception):
    """Raised when a request is accepted and its fan-out is left to ``giving``."""

    def __init__(self, giving: Giving) -> None:
        super().__init__()
        self.giving = giving


class MustCommit(Exception):
    """Raised when a SEND must be done as a COMMIT. Nothing has been changed.

    Args:
      is_long: It needs very many stored copies, so it is written in pieces.
    """

    def __init__(self, *, is_long: bool) -> None:
        super().__init__()
        self.is_long = is_long
