"""The commands that show waiting messages: ``peek`` and ``dlq show``."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from trio_stomp.cli._command import Argument, Command, size_in_bytes
from trio_stomp.cli._http_get import Refused, open_site
from trio_stomp.cli._tool import report, say
from trio_stomp.cli.commands._manage._arguments import argument_of, tool, values_of
from trio_stomp.cli.commands._manage._dead import queue_of
from trio_stomp.web.declared import CONDITIONS, COUNTED, QUEUE

Record = dict[str, Any]
LISTED = 1_000
"""Messages in one answer."""
SHOWN_BYTES = 240
OFFSET = Argument("--offset N", "skip the first N messages", size_in_bytes, default=0)
BYTES = Argument(
    "--bytes N",
    f"show at most N bytes of a body (default: {SHOWN_BYTES})",
    size_in_bytes,
    default=SHOWN_BYTES,
)


@frozen
class Look:
    """A command that shows messages of a queue, without consuming or marking them.

    Args:
      arguments: The arguments that choose the queue.
      most: The number of messages without ``--count``; None = all.
      title: Returns the line about a message above its body.
      epilog: The end of the help.
    """

    arguments: tuple[Argument, ...]
    most: int | None
    title: Callable[[Record], str]
    epilog: str = ""

    def command(self, text: str = "") -> Command:
        """Return the command, with a line of help unless it is that of the list of commands."""
        return tool(
            self.run,
            (*self.arguments, *map(argument_of, (*CONDITIONS, COUNTED)), OFFSET, BYTES),
            text,
            self.epilog,
        )

    def run(self, given: argparse.Namespace) -> int:
        """Print messages.

        Raises:
          OptionError: an option is wrong.
          CannotDo: the broker cannot be reached, or refuses.
        """
        query = {**values_of(given, (QUEUE, *CONDITIONS)), "bytes": given.bytes, **queue_of(given)}
        most = self.most if given.count is None else given.count
        shown: list[Record] = []
        total = 0
        for page in _pages(given, query, most):
            total = page["total"]
            shown += page["messages"]
            if not given.json:
                for message in page["messages"]:
                    self._show(message, given.bytes)
        found = {"queue": query["queue"], "total": total, "messages": shown}
        return report(given, found, f"{query['queue']}: {len(shown):,} shown, {total:,} waiting")

    def _show(self, message: Record, most: int) -> None:
        say(f"{message['message_id']}  {self.title(message)}".rstrip())
        body = str(message.get("body", message.get("body_base64", "")))
        say(f"    {body}{' ...' if message['size'] > most else ''}")


def _pages(given: argparse.Namespace, query: Record, most: int | None) -> Iterator[Record]:
    """Yield the answers of the broker, each with up to a thousand messages."""
    site, offset = open_site(given), given.offset
    behind = None if most is None else offset + most
    while behind is None or offset < behind:
        limit = LISTED if behind is None else min(LISTED, behind - offset)
        try:
            page = site.operate("GET", "messages", {**query, "offset": offset, "limit": limit})
        except Refused as error:
            # A queue exists while it has messages: there are no dead letters.
            if error.code != "no-such-queue" or "exact" not in given:
                raise
            return
        yield page
        offset += len(page["messages"])
        if len(page["messages"]) < limit and not page.get("more"):
            return


def of_message(message: Record) -> str:
    """Return the size and the headers of a message."""
    headers: Mapping[str, str] = message["headers"]
    shown = (
        f"{name}:{text}"
        for name, text in headers.items()
        if name not in ("destination", "content-length")
    )
    return f"{message['size']:,} bytes  {' '.join(shown)}"


def of_dead_letter(message: Record) -> str:
    """Return why a dead letter is one, and where it was sent to."""
    headers = message["headers"]
    reason, deaths = headers.get("x-death-reason", "?"), headers.get("x-death-count", "?")
    deliveries = f"{deaths} {'delivery' if deaths == '1' else 'deliveries'}"
    where = headers.get("original-destination", "?")
    return f"{message['size']:,} bytes  {reason} after {deliveries}, sent to {where}"
