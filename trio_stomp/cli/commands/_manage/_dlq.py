"""``trio-stomp dlq``: inspect, resend and drop dead letters."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import Refused, open_site
from trio_stomp.cli._tool import (
    CANNOT,
    WELL,
    Parser,
    add_commands,
    add_json,
    add_progress,
    ask_yes,
    count,
    make_tool_parser,
    printable,
    show_json,
    show_table,
)
from trio_stomp.cli.commands._manage._choice import telling, waiting
from trio_stomp.cli.commands._subs import all_records

NAME = "dlq"
PREFIX, LAST_RESORT = "/queue/DLQ.", "/queue/deadletter"
SHOWN_BYTES = 200

EPILOG = """\
QUEUE is the original destination: orders and /queue/orders mean the dead letters in
/queue/DLQ.orders, /topic/prices those in /queue/DLQ.topic/prices; /queue/DLQ.orders works, too.
With --exact QUEUE is the dead-letter queue itself, for policies that name another.

retry sends each message to its original destination, or to --to, and removes it from the
dead-letter queue at the same moment, so no message is lost or duplicated. Headers are kept, except
those about the dead letter. Messages that fail again while it runs stay, and so do those that have
no original destination, no room there, or no right to be sent there by you.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``dlq``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    return COMMANDS[given.command](given)


def dead_letters_of(name: str) -> str:
    """Return the default dead-letter queue of a destination."""
    if name.startswith(PREFIX) or name == LAST_RESORT:
        return name
    return PREFIX + name.removeprefix("/queue/").removeprefix("/").removeprefix("#")


def _queue(given: argparse.Namespace) -> str:
    if not given.queue:
        raise OptionError("dlq: QUEUE is empty")
    queue: str = given.queue
    return queue if given.exact else dead_letters_of(queue)


# ls


def _ls(given: argparse.Namespace) -> int:
    found = [
        {
            "queue": each["destination"],
            "messages": each.get("input_depth", 0),
            "unacked": each.get("ack_depth", 0),
            "bytes": each.get("input_bytes", 0),
            "oldest_s": each.get("oldest_input_age_s"),
        }
        for each in all_records(open_site(given), "/queuez", "queues")
        if str(each.get("destination", "")).startswith(PREFIX)
        or each.get("destination") == LAST_RESORT
    ]
    if given.json:
        show_json(found)
    else:
        rows = [(each["queue"], each["messages"], each["unacked"], each["bytes"]) for each in found]
        show_table(rows, "queue", "messages", "unacked", "bytes")
    return WELL


# show


def _show(given: argparse.Namespace) -> int:
    queue, shown = _queue(given), 0
    parameters = {"queue": queue, "bytes": None if given.json else SHOWN_BYTES}
    for message in waiting(open_site(given), parameters, given.count):
        shown += 1
        if given.json:
            show_json(message)
        else:
            _print(message)
    if not shown and not given.json:
        print(f"{queue} is empty")
    return WELL


def _print(message: dict[str, Any]) -> None:
    headers = message["headers"]
    reason, deaths = headers.get("x-death-reason", "?"), headers.get("x-death-count", "?")
    where = headers.get("original-destination", "?")
    name = message["message_id"]
    print(printable(f"{name}  {reason} after {deliveries(deaths)}, sent to {where}"))
    text = message.get("body", message.get("body_base64", ""))
    more = " ..." if message["size"] > SHOWN_BYTES else ""
    print(f"    {message['size']} bytes: {printable(text)}{more}")


def deliveries(count: str) -> str:
    """Return a readable delivery count, given the value of its header."""
    return f"{count} {'delivery' if count == '1' else 'deliveries'}"


# retry and drop


def _retry(given: argparse.Namespace) -> int:
    queue = _queue(given)
    parameters = {"queue": queue, "to": given.to, "count": given.count}
    result = _operate(given, "retry", parameters)
    sent, left = result.get("sent", 0), result.get("left", {})
    if given.json:
        show_json({"queue": queue, "sent": sent, "left": sum(left.values()), "reasons": left})
    else:
        print(f"{queue}: {sent} sent again")
        for reason, number in left.items():
            print(printable(f"{queue}: {number} stay: {reason}"))
    return CANNOT if left else WELL


def _drop(given: argparse.Namespace) -> int:
    queue = _queue(given)
    many = "all messages" if given.count is None else f"up to {given.count} messages"
    if not given.yes and not ask_yes(f"Drop {many} of {queue} for good?"):
        print("nothing was dropped")
        return WELL
    dropped = _operate(given, "purge", {"queue": queue, "count": given.count}).get("purged", 0)
    if given.json:
        show_json({"queue": queue, "dropped": dropped})
    else:
        print(f"{queue}: {dropped} dropped")
    return WELL


def _operate(given: argparse.Namespace, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the result of an operation, {} if there is no such queue: it has no dead letters."""
    with telling(given.command, given) as tell:
        try:
            return open_site(given).operate("POST", name, parameters, tell)
        except Refused as error:
            if error.code != "no-such-queue":
                raise
            return {}


def make_parser() -> Parser:
    """Return the parser of the arguments after ``dlq``."""
    parser = make_tool_parser(NAME, "List, resend or drop dead letters.", EPILOG)
    texts = {
        "ls": "list the dead-letter queues",
        "show": "print dead letters, without removing them",
        "retry": "resend dead letters, and remove them",
        "drop": "delete dead letters",
    }
    for name, command in add_commands(parser, texts).items():
        if name != "ls":
            command.add_argument("queue", metavar="QUEUE")
            command.add_argument(
                "--count",
                type=count,
                metavar="N",
                help="the maximum number of messages (default: all)",
            )
            command.add_argument(
                "--exact", action="store_true", help="QUEUE is the dead-letter queue itself"
            )
        if name == "retry":
            command.add_argument(
                "--to",
                metavar="DESTINATION",
                help="destination, instead of each message's original one",
            )
        if name == "drop":
            command.add_argument("--yes", action="store_true", help="do not ask")
        if name in ("retry", "drop"):
            add_progress(command)
        add_json(command)
        add_access(command)
    return parser


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "ls": _ls,
    "show": _show,
    "retry": _retry,
    "drop": _drop,
}
