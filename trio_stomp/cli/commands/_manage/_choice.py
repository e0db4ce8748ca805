"""Options that choose messages of a queue, shared by the commands."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trio_stomp.cli._http_get import Refused, Site
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import add_progress, count

LISTED = 1_000
"""Messages in one answer."""
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


def waiting(
    site: Site, parameters: dict[str, Any], most: int | None, offset: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the records of waiting messages; none if there is no such queue.

    Args:
      site: The broker.
      parameters: The queue, and the selector or limit of bytes if wanted.
      most: The most messages; None = all.
      offset: How many to skip first.

    Raises:
      CannotDo: no answer arrived, or the broker refused.
    """
    behind = None if most is None else offset + most
    while behind is None or offset < behind:
        limit = LISTED if behind is None else min(LISTED, behind - offset)
        query = {**parameters, "offset": offset, "limit": limit}
        try:
            found = site.operate("GET", "messages", query)["messages"]
        except Refused as error:
            if error.code != "no-such-queue":
                raise
            return
        yield from found
        offset += len(found)
        if len(found) < limit:
            return
