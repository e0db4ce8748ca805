"""``trio-stomp subs``: list and end durable subscriptions."""

import argparse
from collections.abc import Callable, Sequence

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_commands,
    add_json,
    ask_yes,
    make_tool_parser,
    show_json,
    show_table,
)

NAME = "subs"

EPILOG = """\
A durable subscription stores a topic's messages while its subscriber is away
(docs/use/queues.md). NAME is the name from SUBSCRIBE; one that belongs to a client id needs
--client-id. Without a client id one name may be kept for several destinations: then --destination
selects one. rm ends it permanently and drops its stored messages; a connected subscriber
continues until it leaves.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``subs``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    return COMMANDS[given.command](given)


def _ls(given: argparse.Namespace) -> int:
    found = open_site(given).records("durables", {})
    if given.json:
        show_json(found)
        return WELL
    rows = [
        (
            str(each.get("name", "")),
            str(each.get("client_id", "")),
            str(each.get("destination", "")),
            str(each.get("owner", "")),
            str(each.get("state", "")),
            each.get("waiting", 0),
            each.get("unacked", 0),
        )
        for each in found
    ]
    heads = ("name", "client-id", "destination", "owner", "state", "waiting", "unacked")
    show_table(rows, *heads)
    return WELL


def _rm(given: argparse.Namespace) -> int:
    whose = f" to {given.destination}" if given.destination is not None else ""
    whose += f" of client id {given.client_id!r}" if given.client_id else ""
    question = f"End the durable subscription {given.name!r}{whose}, and drop its messages?"
    if not given.yes and not ask_yes(question):
        print("nothing was changed")
        return WELL
    # Imported late, because the client imports Trio.
    from trio_stomp.cli._session import run_session

    run_session(
        given,
        lambda client: client.end_durable(given.name, given.destination),
        client_id=given.client_id,
    )
    if given.json:
        fields = {
            "name": given.name,
            "client_id": given.client_id,
            "destination": given.destination,
        }
        show_json(fields | {"ended": True})
    else:
        print(f"ended {given.name!r}{whose}")
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``subs``."""
    parser = make_tool_parser(NAME, "Durable subscriptions.", EPILOG)
    texts = {
        "ls": "list all, connected or not",
        "rm": "end one permanently",
    }
    for name, command in add_commands(parser, texts).items():
        if name == "rm":
            command.add_argument("name", metavar="NAME")
            command.add_argument("--client-id", metavar="ID", help="client id of the subscription")
            command.add_argument(
                "--destination", metavar="NAME", help="its destination, if several have that name"
            )
            command.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        add_json(command)
        add_access(command)
    return parser


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"ls": _ls, "rm": _rm}
