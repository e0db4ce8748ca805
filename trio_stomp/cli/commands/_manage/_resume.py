"""``trio-stomp resume``: continue the hand-out of a queue."""

from collections.abc import Sequence
from functools import partial

from trio_stomp.cli.commands._manage import _pause

NAME = _pause.RESUME

make_parser = partial(_pause.make_parser, NAME)


def main(argv: Sequence[str]) -> int:
    """Run ``resume``, and return the exit code. Errors are those of ``pause``."""
    return _pause.main(argv, NAME)
