"""``trio-stomp purge``: remove the waiting messages of a queue."""

from collections.abc import Sequence

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, ask_yes, make_tool_parser, show_json
from trio_stomp.cli.commands._manage._choice import add_choice, described, telling

NAME = "purge"

EPILOG = """\
Unacknowledged messages, those that wait for their redelivery, and those that arrive meanwhile
stay. Ctrl-C ends it; what was purged before stays purged. It needs the right to receive from the
queue.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``purge``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    if not given.yes and not ask_yes(f"Purge {described(given)} for good?"):
        print("nothing was purged")
        return WELL
    parameters = {"queue": given.queue, "selector": given.selector, "count": given.count}
    with telling(NAME, given) as tell:
        result = open_site(given).operate("POST", NAME, parameters, tell)
    if given.json:
        show_json(result)
    else:
        print(f"{result['queue']}: {result['purged']:,} purged")
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``purge``."""
    parser = make_tool_parser(NAME, "Remove the waiting messages of a queue for good.", EPILOG)
    add_choice(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)
    add_access(parser)
    return parser
