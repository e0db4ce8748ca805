"""``trio-stomp dlq``: inspect, resend and drop dead letters over STOMP."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._lines import line_of, own_headers
from trio_stomp.cli._progress import Tell, progress
from trio_stomp.cli._session import run_session
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
from trio_stomp.cli.commands._subs import all_records
from trio_stomp.client import Client, Message

NAME = "dlq"
PREFIX, LAST_RESORT = "/queue/DLQ.", "/queue/deadletter"
ORIGIN = "original-destination"
OF_ITS_DEATH = frozenset(
    {
        ORIGIN,
        "x-death-reason",
        "x-death-count",
        "x-death-hops",
        "x-first-death-queue",
        "x-first-death-reason",
    }
)
OF_ITS_SENDING = ("x-dedup-id", "_AMQ_DUPL_ID", "AMQ_SCHEDUL")
"""Prefixes of headers that belong to the first SEND. With the same x-dedup-id, for example, the
broker would drop the message as a duplicate."""
OF_ITS_SENDER = frozenset({"user-id", "jmsxuserid"})
"""Headers that name the original sender, in all spellings; the broker refuses them in a SEND."""

Handle = Callable[[Message, Client], Awaitable[None]]

PREFETCH = 1
"""Small, because unused deliveries return marked as redelivered; and if this program is killed,
the first of them counts as a failed delivery."""
SHOWN_CHARS = 200
SILENCE_S = 2.0
"""Silence after which the queue counts as empty, since others may consume it, too."""

EPILOG = """\
QUEUE is the original destination: orders and /queue/orders mean the dead letters in
/queue/DLQ.orders, /topic/prices those in /queue/DLQ.topic/prices; /queue/DLQ.orders works, too.
With --exact QUEUE is the dead-letter queue itself, for policies that name another.

retry sends each message to its original destination, or to --to, and removes it from the
dead-letter queue in the same transaction, so no message is lost or duplicated. Without --to, the
origin that a message claims is used only if QUEUE stands for it, or if --from names it; other
messages stay. Headers are kept, except those about the dead letter, the sender, x-dedup-id and
schedules. It resends at most as many messages as were there at the start, so messages that fail
again stay. The message behind the last one is delivered and returned, marked as redelivered.
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
    queue = _queue(given)
    shown = run_session(given, partial(_browse, queue, given.count, partial(_print, given.json)))
    if not shown and not given.json:
        print(f"{queue} is empty")
    return WELL


async def _browse(
    queue: str, wanted: int | None, take: Callable[[Message], None], client: Client
) -> int:
    """Show the messages without consuming them, and return their number."""
    found = 0
    async with client.subscribe(queue, headers={"browser": "true"}) as messages:
        async for message in messages:
            if message.headers.get("browser") == "end" or found == wanted:
                break
            found += 1
            take(message)
    return found


def _print(as_json: bool, message: Message) -> None:
    headers = message.headers
    if as_json:
        print(line_of(message.destination, headers, message.body))
        return
    reason, deaths = headers.get("x-death-reason", "?"), headers.get("x-death-count", "?")
    where = headers.get(ORIGIN, "?")
    print(printable(f"{message.message_id}  {reason} after {deliveries(deaths)}, sent to {where}"))
    text = message.body[: 4 * SHOWN_CHARS].decode(errors="backslashreplace")
    more = " ..." if len(text) > SHOWN_CHARS else ""
    print(f"    {len(message.body)} bytes: {printable(text[:SHOWN_CHARS])}{more}")


def deliveries(count: str) -> str:
    """Return a readable delivery count, given the value of its header."""
    return f"{count} {'delivery' if count == '1' else 'deliveries'}"


# retry and drop


def _retry(given: argparse.Namespace) -> int:
    queue = _queue(given)
    sent = 0
    left: dict[str, int] = {}

    async def again(message: Message, client: Client) -> None:
        nonlocal sent
        origin = message.headers.get(ORIGIN, "")
        if not (given.to or origin in given.origins or _is_meant(given, origin)):
            # Unacknowledged, the message returns to the queue.
            left[origin] = left.get(origin, 0) + 1
            return
        async with client.transaction() as transaction:
            await transaction.send(
                given.to or origin, message.body, headers=_headers_to_resend(message)
            )
            await transaction.ack(message)
        sent += 1

    with progress("retry", wanted=given.progress) as tell:
        run_session(
            given,
            partial(_consume, queue, given.count, again, tell),
            lambda: f" ({sent} messages were sent again before)",
        )
    if given.json:
        show_json({"queue": queue, "sent": sent, "left": sum(left.values())})
    else:
        print(f"{queue}: {sent} sent again")
        for origin, number in left.items():
            print(printable(f"{queue}: {_why_left(origin, number)}"))
    return CANNOT if left else WELL


def _is_meant(given: argparse.Namespace, origin: str) -> bool:
    """Return whether the message claims an origin that belongs to QUEUE.

    Otherwise its sender could use the operator's rights to send to any destination.
    """
    if given.exact or not origin or origin == LAST_RESORT or origin.startswith(PREFIX):
        return False
    return dead_letters_of(origin) == dead_letters_of(given.queue)


def _headers_to_resend(message: Message) -> dict[str, str]:
    """Return the headers with which to resend a message."""
    return {
        name: text
        for name, text in own_headers(message.headers).items()
        if name not in OF_ITS_DEATH
        and not name.startswith(OF_ITS_SENDING)
        and name.strip().lower() not in OF_ITS_SENDER
    }


def _why_left(origin: str, number: int) -> str:
    if not origin:
        return f"{number} do not name their original destination; give it with --to"
    return (
        f"{number} claim to have been sent to {origin[:80]}; if that is right, give it with --from"
    )


def _drop(given: argparse.Namespace) -> int:
    queue = _queue(given)
    many = "all messages" if given.count is None else f"up to {given.count} messages"
    if not given.yes and not ask_yes(f"Drop {many} of {queue} for good?"):
        print("nothing was dropped")
        return WELL
    dropped = 0

    async def drop(message: Message, _client: Client) -> None:
        nonlocal dropped
        await message.ack()
        dropped += 1

    with progress("drop", wanted=given.progress) as tell:
        run_session(given, partial(_consume, queue, given.count, drop, tell))
    if given.json:
        show_json({"queue": queue, "dropped": dropped})
    else:
        print(f"{queue}: {dropped} dropped")
    return WELL


async def _consume(
    queue: str, wanted: int | None, handle: Handle, tell: Tell, client: Client
) -> None:
    """Handle the messages present at the start, at most ``wanted``."""
    total = await _browse(queue, wanted, lambda _message: None, client)
    if not total:
        return
    async with client.subscribe(queue, ack="client-individual", prefetch=PREFETCH) as messages:
        for done in range(total):
            with trio.move_on_after(SILENCE_S) as scope:
                message = await messages.receive()
            if scope.cancelled_caught:
                return
            await handle(message, client)
            tell(done + 1, total)


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
            command.add_argument(
                "--from",
                action="append",
                default=[],
                dest="origins",
                metavar="DESTINATION",
                help="also resend messages whose original destination is this; may be repeated",
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
