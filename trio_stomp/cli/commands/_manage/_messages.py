"""The commands that show waiting messages: ``peek`` and ``dlq show``."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from trio_stomp.cli._command import Argument, Command, size_in_bytes
from trio_stomp.cli._http_get import Refused, open_site
from trio_stomp.cli._tool import report, say
from trio_stomp.cli.commands._manage._arguments import argument_of, tool, values_of
from trio_stomp.cli.commands._manage._dead import queue_of
from trio_stomp.web.declared import CONDITIONS, COUNTED, QUEUE

Record = dict[str, Any]
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
        try:
            for page in open_site(given).pages("messages", query, most, given.offset):
                total = page["total"]
                shown += page["messages"]
                if not given.json:
                    for message in page["messages"]:
                        self._show(message, given.bytes)
        except Refused as error:
            # A queue exists while it has messages: there are no dead letters.
            if error.code != "no-such-queue" or "exact" not in given:
                raise
        found = {"queue": query["queue"], "total": total, "messages": shown}
        return report(given, found, f"{query['queue']}: {len(shown):,} shown, {total:,} waiting")

    def _show(self, message: Record, most: int) -> None:
        say(f"{message['message_id']}  {self.title(message)}".rstrip())
        body = str(message.get("body", message.get("body_base64", "")))
        say(f"    {body}{' ...' if message['size'] > most else ''}")


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
