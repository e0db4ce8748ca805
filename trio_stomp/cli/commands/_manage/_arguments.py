"""What the management commands share: their arguments, most of them parameters of requests."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from trio_stomp.cli._command import JSON, Argument, Command, Run, count, size_in_bytes, time_ms
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._http_get import understanding


def tool(run: Run, arguments: Sequence[Argument], text: str = "", epilog: str = "") -> Command:
    """Return a command that asks a broker."""

    def understood(given: argparse.Namespace) -> int:
        with understanding(given):
            return run(given)

    return Command(understood, (*arguments, JSON, *ACCESS), text, epilog)


def parameters(
    given: argparse.Namespace, arguments: tuple[Argument, ...]
) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of the request."""
    for each in arguments:
        if each.name not in OF_THE_COMMAND:
            yield each.name, getattr(given, each.name)


OF_THE_COMMAND = ("exact", "yes")
"""Arguments that are no parameters of the request."""
QUEUE = Argument("QUEUE", "name of the queue, such as /queue/orders")
DEAD = Argument("QUEUE", "where the dead letters come from: see dlq --help")
EXACT = Argument("--exact", "QUEUE is the dead-letter queue itself")
TO = Argument("TO", "the destination to move them to")
OTHER = Argument("--to TO", "send to TO, not to the original destinations")
SELECTOR = Argument("--selector S", "only messages whose headers match, as in kind = 'apple'")
BODY = Argument("--body TEXT", "only messages whose body contains this")
SINCE = Argument(
    "--since TIME",
    "only messages that arrived then or later: a time, or a span before now, such as 10m",
    time_ms,
)
UNTIL = Argument("--until TIME", "only messages that arrived earlier", time_ms)
ID = Argument("--id ID...", "only this message; repeatable")
COUNT = Argument("--count N", "at most N messages, oldest first", count)
CHOICE = (SELECTOR, BODY, SINCE, UNTIL, ID)
"""The options that choose messages of a queue."""
SESSION = Argument("SESSION", "its id, from: trio-stomp ls connections")
OF_SESSION = Argument("--session SESSION", "only those of this session")
ORIGIN = Argument("--origin D...", "only those that were sent to D; repeatable")
STREAM = Argument("STREAM", "its name, from: trio-stomp ls streams")
FIRST = Argument("--offset N", "keep from this record on", size_in_bytes)
FIRST_TIME = Argument("--time TIME", "keep from this time on, instead of --offset", time_ms)
TOPIC = Argument("TOPIC", "its name, such as /topic/rates", dest="destination")
BACK_TO = Argument(
    "--since TIME",
    "the begin: a time, or a span such as 6h (default: as far as the broker remembers)",
    time_ms,
)
POINTS = Argument("--points N", "lines (default: 24)", count, default=24)
USER = Argument("--user USER", "only those of this user")
DURABLE = Argument("NAME", "from: trio-stomp ls durables")
CLIENT_ID = Argument("--client-id ID", "the client id of its subscriber")
OWNER = Argument("--owner USER", "the user who created it")
DESTINATION = Argument("--destination D", "its destination")
YES = Argument("--yes", "do not ask for confirmation")
