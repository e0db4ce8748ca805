"""``trio-stomp show``: one queue with its consumers, or one connection with its subscriptions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_json,
    make_tool_parser,
    printable,
    show_json,
    show_table,
)

NAME = "show"
HEAD = ("broker_id", "boot", "ts", "total")
"""Fields that say nothing about the thing itself."""


@frozen
class Thing:
    """A kind of things that can be shown.

    Args:
      parameter: The parameter with its name.
      key: The field with the list of its parts.
      columns: The titles of the table of these, with the field of each.
    """

    parameter: str
    key: str
    columns: Mapping[str, str]


THINGS: Mapping[str, Thing] = MappingProxyType(
    {
        "queue": Thing(
            "queue",
            "consumers",
            {
                "consumer": "session_id",
                "user": "user",
                "id": "subscription_id",
                "ack": "ack",
                "prefetch": "prefetch",
                "unacked": "unacked",
                "oldest-s": "oldest_unacked_age_s",
            },
        ),
        "connection": Thing(
            "session",
            "subscriptions",
            {
                "destination": "destination",
                "id": "subscription_id",
                "ack": "ack",
                "name": "name",
                "unacked": "unacked",
            },
        ),
    }
)


def main(argv: Sequence[str]) -> int:
    """Run ``show``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    thing = THINGS[given.what]
    record = open_site(given).operate("GET", given.what, {thing.parameter: given.name})
    if given.json:
        show_json(record)
        return WELL
    parts = record.pop(thing.key)
    for name, value in _lines(record):
        print(printable(f"{name:<24} {value}"))
    if parts:
        print()
        show_table(
            [
                ["" if each.get(name) is None else each[name] for name in thing.columns.values()]
                for each in parts
            ],
            *thing.columns,
        )
    return WELL


def _lines(record: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the fields that have a value, with those of a policy on lines of their own."""
    policy = {f"policy.{name}": value for name, value in record.pop("policy", {}).items()}
    fields = [pair for pair in {**record, **policy}.items() if pair[0] not in HEAD]
    return [(name, value) for name, value in fields if value not in (None, "", [])]


def make_parser() -> Parser:
    """Return the parser of the arguments after ``show``."""
    parser = make_tool_parser(NAME, "Show one queue, or one connection.")
    parser.add_argument("what", choices=list(THINGS), metavar="WHAT", help=", ".join(THINGS))
    parser.add_argument("name", metavar="NAME", help="a queue, as /queue/orders, or a session's id")
    add_json(parser)
    add_access(parser)
    return parser
