"""``trio-stomp ls``: list what a broker has."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, make_tool_parser, show_json, show_table
from trio_stomp.cli.commands._subs import all_records

NAME = "ls"


@frozen
class Listing:
    """How things of a kind are listed.

    Args:
      path: The page of the list.
      key: The field with the records.
      columns: The titles of the table, with the field of each.
    """

    path: str
    key: str
    columns: Mapping[str, str]


LISTINGS: Mapping[str, Listing] = MappingProxyType(
    {
        "queues": Listing(
            "/queuez",
            "queues",
            {
                "queue": "destination",
                "messages": "input_depth",
                "unacked": "ack_depth",
                "bytes": "input_bytes",
                "redelivered": "redelivered_total",
                "oldest-s": "oldest_input_age_s",
            },
        ),
        "connections": Listing(
            "/connz",
            "connections",
            {
                "session": "session_id",
                "user": "user",
                "remote": "remote",
                "transport": "transport",
                "subscriptions": "subscriptions",
                "bytes-in": "bytes_in_total",
                "bytes-out": "bytes_out_total",
            },
        ),
        "subscriptions": Listing(
            "/subsz",
            "subscriptions",
            {
                "destination": "destination",
                "session": "session_id",
                "id": "subscription_id",
                "name": "name",
                "waiting": "waiting",
                "unacked": "unacked",
            },
        ),
    }
)


def main(argv: Sequence[str]) -> int:
    """Run ``ls``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    listing = LISTINGS[given.what]
    found = all_records(open_site(given), listing.path, listing.key)
    if given.json:
        show_json(found)
        return WELL
    rows = [[_cell(each, name) for name in listing.columns.values()] for each in found]
    show_table(rows, *listing.columns)
    return WELL


def _cell(record: Mapping[str, Any], name: str) -> object:
    value = record.get(name)
    return "" if value is None else value


def make_parser() -> Parser:
    """Return the parser of the arguments after ``ls``."""
    parser = make_tool_parser(NAME, "List queues, connections or subscriptions.")
    parser.add_argument("what", choices=list(LISTINGS), metavar="WHAT", help=", ".join(LISTINGS))
    add_json(parser)
    add_access(parser)
    return parser
