"""The arguments of the management commands, most of which are parameters of their requests."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from trio_stomp.cli._tool import count, size_in_bytes, time_ms


@frozen(init=False)
class Argument:
    """An argument of a command.

    Args:
      flags: Its name or its options.
      is_local: Whether it is for the command only, and not a parameter of the request.
      options: Keyword arguments of ``ArgumentParser.add_argument``.
    """

    flags: tuple[str, ...]
    options: Mapping[str, Any]
    is_local: bool

    def __init__(self, *flags: str, is_local: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.__attrs_init__(flags, options, is_local)

    @property
    def name(self) -> str:
        """The name of the parameter, and of the attribute of the parsed command line."""
        return str(self.options.get("dest") or self.flags[0].lstrip("-").replace("-", "_"))


def add_arguments(parser: argparse.ArgumentParser, arguments: tuple[Argument, ...]) -> None:
    """Add arguments to a parser."""
    for each in arguments:
        parser.add_argument(*each.flags, **each.options)


def parameters(
    given: argparse.Namespace, arguments: tuple[Argument, ...]
) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of the request."""
    for each in arguments:
        if not each.is_local:
            yield each.name, getattr(given, each.name)


QUEUE = Argument("queue", metavar="QUEUE", help="name of the queue, such as /queue/orders")
DEAD = Argument("queue", metavar="QUEUE", help="where the dead letters come from: see dlq --help")
EXACT = Argument(
    "--exact", action="store_true", is_local=True, help="QUEUE is the dead-letter queue itself"
)
TO = Argument("to", metavar="TO", help="the destination to move them to")
OTHER = Argument("--to", metavar="TO", help="send to TO, not to the original destinations")
SELECTOR = Argument(
    "--selector", metavar="S", help="only messages whose headers match, as in kind = 'apple'"
)
BODY = Argument("--body", metavar="TEXT", help="only messages whose body contains this")
SINCE = Argument(
    "--since",
    type=time_ms,
    metavar="TIME",
    help="only messages that arrived then or later: a time, or a span before now, such as 10m",
)
UNTIL = Argument("--until", type=time_ms, metavar="TIME", help="only messages that arrived earlier")
ID = Argument("--id", action="append", metavar="ID", help="only this message; repeatable")
COUNT = Argument("--count", type=count, metavar="N", help="at most N messages, oldest first")
CHOICE = (SELECTOR, BODY, SINCE, UNTIL, ID)
"""The options that choose messages of a queue."""
SESSION = Argument("session", metavar="SESSION", help="its id, from: trio-stomp ls connections")
OF_SESSION = Argument("--session", metavar="SESSION", help="only those of this session")
ORIGIN = Argument(
    "--origin", action="append", metavar="D", help="only those that were sent to D; repeatable"
)
STREAM = Argument("stream", metavar="STREAM", help="its name, from: trio-stomp ls streams")
FIRST = Argument("--offset", type=size_in_bytes, metavar="N", help="keep from this record on")
FIRST_TIME = Argument(
    "--time", type=time_ms, metavar="TIME", help="keep from this time on, instead of --offset"
)
TOPIC = Argument("destination", metavar="TOPIC", help="its name, such as /topic/rates")
BACK_TO = Argument(
    "--since",
    type=time_ms,
    metavar="TIME",
    help="the begin: a time, or a span such as 6h (default: as far as the broker remembers)",
)
POINTS = Argument("--points", type=count, default=24, metavar="N", help="lines (default: 24)")
USER = Argument("--user", metavar="USER", help="only those of this user")
DURABLE = Argument("name", metavar="NAME", help="from: trio-stomp ls durables")
CLIENT_ID = Argument("--client-id", metavar="ID", help="the client id of its subscriber")
OWNER = Argument("--owner", metavar="USER", help="the user who created it")
DESTINATION = Argument("--destination", metavar="D", help="its destination")
YES = Argument("--yes", action="store_true", is_local=True, help="do not ask for confirmation")
