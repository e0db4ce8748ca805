"""``trio-stomp subscribe``: prints new messages of destinations, or those of a stream."""

import argparse
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._lines import add_headers, read_headers
from trio_stomp.cli._session import add_reconnect, run_session
from trio_stomp.cli._times import time_of
from trio_stomp.cli._tool import CANNOT, WELL, Parser, add_json, count, make_tool_parser, seconds
from trio_stomp.cli.commands._messages._printer import Printer, add_printing, printer_of
from trio_stomp.cli.commands._messages._signals import end_at_signal
from trio_stomp.cli.commands._messages._template import HELP
from trio_stomp.client import Client, Subscription

NAME = "subscribe"
ACKS = ("client-individual", "auto", "client")
STARTS = ("first", "last", "next")
PREFETCH = 100
MAX_DESTINATIONS = 100
OFFSET = re.compile(r"\d{1,19}")

EPILOG = f"""\
Bodies are printed, a line for each; with --json whole messages, a line for each, which
`send --json` takes; with -v, -vv or --format as wanted. A message is acknowledged when it has been
printed; with --ack auto the broker considers it done once it is sent. Messages that were not
printed return to the broker.

--from reads a stream (docs/use/streams.md): first, last or next message, a number = that offset,
@SECONDS since 1970, a time like 2026-11-21T12:00:00Z, or a span before now like 10m. --browse
lists a queue's messages without consuming them.

With --reconnect it goes on after a restart of the broker: queues and durable subscriptions deliver
again what was not acknowledged, streams continue after the last message, topics miss what was sent
meanwhile.

{HELP}
Ctrl-C ends it in order. The exit code is 0, or 1 if fewer messages than --count arrived.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``subscribe``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    headers = read_headers(given.headers)
    if given.start is not None:
        headers["x-stream-offset"] = start_of(given.start)
    if given.browse:
        headers["browser"] = "true"
    if len(given.destinations) > MAX_DESTINATIONS:
        raise OptionError(f"subscribe: more than {MAX_DESTINATIONS} destinations; use a wildcard")
    if given.browse and given.reconnect:
        raise OptionError("subscribe: --browse and --reconnect exclude each other; give one")
    printer = printer_of(given, given.count)
    run_session(given, partial(_read, given, headers, printer))
    return WELL if given.count is None or printer.count >= given.count else CANNOT


def start_of(text: str) -> str:
    """Return the SUBSCRIBE header value for ``--from``.

    Raises:
      OptionError: the value is not a valid start.
    """
    if text in STARTS:
        return text
    if OFFSET.fullmatch(text):
        return f"offset={text}"
    try:
        return f"timestamp={time_of(text):.6f}"
    except ValueError:
        raise OptionError(
            f"--from is {text[:80]!r}, but must be {', '.join(STARTS)}, an offset, @SECONDS, a "
            "span such as 10m, or a time like 2026-11-21T12:00:00Z"
        ) from None


async def _read(
    given: argparse.Namespace, headers: dict[str, str], printer: Printer, client: Client
) -> None:
    """Print messages until the wanted number has arrived."""
    wanted = PREFETCH if given.count is None else min(given.count, PREFETCH)
    async with AsyncExitStack() as stack:
        with trio.CancelScope() as scope:
            subscriptions = [
                await stack.enter_async_context(
                    client.subscribe(
                        name,
                        ack="auto" if given.browse else given.ack,
                        prefetch=wanted,
                        headers=headers,
                        selector=given.selector,
                        durable=given.durable,
                        on_stale="ignore",
                    )
                )
                for name in given.destinations
            ]
            if given.seconds is not None:
                scope.deadline = trio.current_time() + given.seconds
            async with trio.open_nursery() as watchers:
                # First, because a reader of the output may stop this program at the first line.
                await watchers.start(end_at_signal, scope.cancel)
                async with trio.open_nursery() as printers:
                    for subscription in subscriptions:
                        printers.start_soon(_print, subscription, printer, scope.cancel)
                scope.cancel()


async def _print(subscription: Subscription, printer: Printer, end: Callable[[], None]) -> None:
    async for message in subscription:
        if printer.is_done or message.headers.get("browser") == "end":
            return
        printer.show(message)
        message.ack_nowait()
        if printer.is_done:
            end()


def make_parser() -> Parser:
    """Return the parser of the arguments after ``subscribe``."""
    parser = make_tool_parser(NAME, "Print messages as they arrive.", EPILOG)
    parser.add_argument(
        "destinations", nargs="+", metavar="DESTINATION", help="a destination, or a wildcard"
    )
    parser.add_argument(
        "--ack",
        choices=ACKS,
        default=ACKS[0],
        help="acknowledgement mode (default: client-individual, after printing)",
    )
    parser.add_argument("--count", type=count, metavar="N", help="end after this many messages")
    parser.add_argument(
        "--for", type=seconds, dest="seconds", metavar="SECONDS", help="end after this time"
    )
    parser.add_argument("--from", dest="start", metavar="START", help="start position in a stream")
    parser.add_argument(
        "--selector", metavar="S", help="only matching messages, as in type = 'car'"
    )
    parser.add_argument(
        "--durable",
        metavar="NAME",
        help="make a durable subscription: the broker keeps messages while this is away",
    )
    parser.add_argument(
        "--browse",
        action="store_true",
        help="list a queue's messages without consuming them, and end",
    )
    add_printing(parser)
    add_reconnect(parser)
    add_headers(parser, "SUBSCRIBE")
    add_json(parser, "print a JSON message on each line")
    add_access(parser)
    return parser
