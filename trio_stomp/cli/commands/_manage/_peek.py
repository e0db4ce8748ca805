"""``trio-stomp peek``: show the waiting messages of a queue without consuming them."""

import argparse
from collections.abc import Sequence
from typing import Any

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_json,
    count,
    make_tool_parser,
    printable,
    show_json,
    size_in_bytes,
)

NAME = "peek"
SHOWN_BYTES = 240

EPILOG = """\
Nothing is consumed, and nothing is marked as redelivered. Unacknowledged messages are not shown.
It needs the right to browse the queue.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``peek``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    parameters = {
        "queue": given.queue,
        "selector": given.selector,
        "limit": given.count,
        "offset": given.offset,
        "bytes": given.bytes,
    }
    result = open_site(given).operate("GET", "messages", parameters)
    if given.json:
        show_json(result)
        return WELL
    for message in result["messages"]:
        _show(message, given)
    shown = len(result["messages"])
    print(f"{result['queue']}: {shown:,} shown, {result['total']:,} waiting")
    return WELL


def _show(message: dict[str, Any], given: argparse.Namespace) -> None:
    headers = " ".join(
        f"{name}:{text}"
        for name, text in message["headers"].items()
        if name not in ("destination", "content-length")
    )
    print(printable(f"{message['message_id']}  {message['size']:,} bytes  {headers}").rstrip())
    body = message.get("body", message.get("body_base64", ""))
    more = " ..." if message["size"] > given.bytes else ""
    print(f"    {printable(body)}{more}")


def make_parser() -> Parser:
    """Return the parser of the arguments after ``peek``."""
    parser = make_tool_parser(NAME, "Show waiting messages without consuming them.", EPILOG)
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue, such as /queue/orders")
    parser.add_argument(
        "--selector", metavar="TEXT", help="only messages whose headers match, as: kind = 'apple'"
    )
    parser.add_argument(
        "--count", type=count, default=10, metavar="N", help="at most N messages (default: 10)"
    )
    parser.add_argument(
        "--offset", type=size_in_bytes, default=0, metavar="N", help="skip the first N messages"
    )
    parser.add_argument(
        "--bytes",
        type=size_in_bytes,
        default=SHOWN_BYTES,
        metavar="N",
        help=f"show at most N bytes of a body (default: {SHOWN_BYTES})",
    )
    add_json(parser)
    add_access(parser)
    return parser
