"""Options that choose messages of a queue, shared by the commands."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import add_progress, count

Tell = Callable[[dict[str, Any]], None]


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add ``QUEUE``, ``--selector``, ``--count`` and ``--progress``."""
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue, such as /queue/orders")
    parser.add_argument(
        "--selector", metavar="TEXT", help="only messages whose headers match, as: kind = 'apple'"
    )
    parser.add_argument("--count", type=count, metavar="N", help="at most N messages, oldest first")
    add_progress(parser)


def described(given: argparse.Namespace) -> str:
    """Return the chosen messages in words."""
    if given.count is None:
        many = "all messages" if not given.selector else "the messages"
    else:
        many = f"up to {given.count} messages"
    which = f" with {given.selector}" if given.selector else ""
    return f"{many}{which} of {given.queue}"


@contextmanager
def telling(title: str, given: argparse.Namespace) -> Iterator[Tell]:
    """Provide a function that shows lines about the progress of an operation."""
    with progress(title, wanted=given.progress) as tell:
        yield lambda figures: tell(figures.get("seen", 0), figures.get("total", 0))
