"""``trio-stomp request``: send a request and print its answer."""

from collections.abc import Sequence
from functools import partial

from trio_stomp.cli.commands._messages import _send

make_parser = partial(_send.make_parser, _send.REQUEST)


def main(argv: Sequence[str]) -> int:
    """Run ``request``, and return the exit code. Errors are those of ``send``."""
    return _send.main(argv, _send.REQUEST)
