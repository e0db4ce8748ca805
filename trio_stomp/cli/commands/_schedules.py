"""``trio-stomp schedules``: list and cancel scheduled messages over STOMP."""

import argparse
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._session import run_session
from trio_stomp.cli._tool import (
    CANNOT,
    WELL,
    CannotDo,
    Parser,
    add_commands,
    add_json,
    ask_yes,
    make_tool_parser,
    show_json,
    show_table,
)
from trio_stomp.client import Client

NAME = "schedules"
LEFT = "DIAG/left"
MANAGEMENT = "/topic/ActiveMQ.Scheduler.Management"
PATIENCE_S = 10.0
"""Time limit for an answer, which the broker gives in the turn of the request."""
UNKNOWN = "?"
"""The owner shown for a schedule that an older broker stored."""

EPILOG = """\
Messages sent with AMQ_SCHEDULED_DELAY and similar headers wait in the broker, even when their
sender has left (docs/use/queues.md). ls needs the right to monitor; cancel applies to messages that
the user of --login sent or may administer. An ID is shown by ls and by the RECEIPT of the SEND
(scheduledJobId): 17, or 17-20. With --last-values ls shows the last values of topics instead; a
SEND with retain:remove removes one.
"""

Row = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Run ``schedules``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    return COMMANDS[given.command](given)


async def _list(what: str, user: str | None, client: Client) -> list[Row]:
    """Return the scheduled messages of all users, or of one user."""
    rows: list[Row] = []
    asked: Row = {"what": what} if user is None else {"what": what, "user": user}
    async with client.subscribe(LEFT) as answers:
        while True:
            mine = secrets.token_hex(8)
            await client.send(LEFT, json.dumps(asked), headers={"correlation-id": mine})
            page: Row = {}
            with trio.move_on_after(PATIENCE_S):
                while "left" not in page:
                    answer = await answers.receive()
                    # Others may ask, too; an older broker forwards the question.
                    page = answer.json() if answer.headers.get("correlation-id") == mine else {}
            if "left" not in page:
                raise CannotDo(f"the broker does not answer at {LEFT}; is it an older version?")
            rows += page["left"]
            if "next" not in page:
                return rows
            asked["after"] = page["next"]


def _ls(given: argparse.Namespace) -> int:
    what = "last-values" if given.last_values else "schedules"
    rows = run_session(given, partial(_list, what, given.user))
    if given.json:
        show_json(rows)
    elif given.last_values:
        values = [(_user(row), row["destination"], row["bytes"], _storage(row)) for row in rows]
        show_table(values, "user", "destination", "bytes", "kept")
    else:
        cells = [
            (
                row["id"],
                _user(row),
                row["destination"],
                row["messages"],
                row["bytes"],
                _moment(row["due_ms"]),
                "yes" if row["repeats"] else "no",
                row["sent"],
                _storage(row),
            )
            for row in rows
        ]
        heads = "id", "user", "destination", "messages", "bytes", "due", "repeats", "sent", "kept"
        show_table(cells, *heads)
    return WELL


def _user(row: Row) -> str:
    return UNKNOWN if row["user"] is None else str(row["user"])


def _storage(row: Row) -> str:
    return "stored" if row["stored"] else "memory"


def _moment(due_ms: int) -> str:
    return f"{datetime.fromtimestamp(due_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cancel(given: argparse.Namespace) -> int:
    if bool(given.ids) + (given.user is not None) + given.all != 1:
        raise OptionError("schedules cancel: name IDs, or --user, or --all")
    meant = "all schedules that you may cancel" if given.all else f"the schedules {given.ids}"
    if given.user is not None:
        meant = f"all schedules of {given.user!r}"
    if not given.yes and not ask_yes(f"Cancel {meant}?"):
        print("nothing was changed")
        return WELL
    cancelled, left = run_session(given, partial(_end, given))
    if given.json:
        show_json({"cancelled": cancelled, "left": left})
    else:
        print(f"{cancelled} messages will not be sent")
        if left:
            print(f"missing, or not yours to cancel: {', '.join(left)}")
    return CANNOT if left else WELL


async def _end(given: argparse.Namespace, client: Client) -> tuple[int, list[str]]:
    """Cancel messages. Return the number of cancelled ones and the ids of the others."""
    if given.all:
        return await _ask(client, {"AMQ_SCHEDULER_ACTION": "REMOVEALL"}), []
    ids = given.ids
    if given.user is not None:
        ids = [row["id"] for row in await _list("schedules", given.user, client)]
    cancelled = 0
    left: list[str] = []
    for each in ids:
        headers = {"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": each}
        ended = await _ask(client, headers)
        cancelled += ended
        if not ended:
            left.append(each)
    return cancelled, left


async def _ask(client: Client, headers: dict[str, str]) -> int:
    receipt = await client.send(MANAGEMENT, headers=headers)
    removed = receipt.headers.get("removed", "")
    if not removed.isdecimal():
        raise CannotDo("the broker does not cancel schedules; is it an older version?")
    return int(removed)


def make_parser() -> Parser:
    """Return the parser of the arguments after ``schedules``."""
    parser = make_tool_parser(NAME, "List and cancel scheduled messages.", EPILOG)
    texts = {"ls": "list scheduled messages with their users", "cancel": "cancel some or all"}
    for name, command in add_commands(parser, texts).items():
        if name == "ls":
            command.add_argument("--user", metavar="USER", help="only messages of this user")
            command.add_argument(
                "--last-values", action="store_true", help="list the last values of topics instead"
            )
        else:
            command.add_argument("ids", metavar="ID", nargs="*")
            command.add_argument("--user", metavar="USER", help="all messages of this user")
            command.add_argument("--all", action="store_true", help="all that you may cancel")
            command.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        add_json(command)
        add_access(command)
    return parser


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"ls": _ls, "cancel": _cancel}
