"""``trio-stomp subscribe``: prints new messages of destinations, or those of a stream."""

import argparse
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument, Command, count, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._lines import headers_of, read_headers
from trio_stomp.cli._session import RECONNECT, run_session
from trio_stomp.cli._times import time_of
from trio_stomp.cli._tool import CANNOT, WELL
from trio_stomp.cli.commands._messages._printer import PRINTING, Printer, printer_of
from trio_stomp.cli.commands._messages._signals import end_at_signal
from trio_stomp.cli.commands._messages._template import HELP
from trio_stomp.client import Client, Subscription

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


def _run(given: argparse.Namespace) -> int:
    """Run ``subscribe``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
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


COMMAND = Command(
    _run,
    (
        Argument("DESTINATION...", "a destination, or a wildcard", dest="destinations"),
        Argument(
            "--ack",
            "acknowledgement mode (default: client-individual, after printing)",
            default=ACKS[0],
            choices=ACKS,
        ),
        Argument("--count N", "end after this many messages", count),
        Argument("--for SECONDS", "end after this time", seconds, dest="seconds"),
        Argument("--from START", "start position in a stream", dest="start"),
        Argument("--selector S", "only matching messages, as in type = 'car'"),
        Argument(
            "--durable NAME",
            "make a durable subscription: the broker keeps messages while this is away",
        ),
        Argument("--browse", "list a queue's messages without consuming them, and end"),
        *PRINTING,
        RECONNECT,
        headers_of("SUBSCRIBE"),
        Argument("--json", "print a JSON message on each line"),
        *ACCESS,
    ),
    epilog=EPILOG,
)
