"""``trio-stomp move``: move the waiting messages of a queue to another destination."""

from collections.abc import Sequence

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, make_tool_parser, show_json
from trio_stomp.cli.commands._manage._choice import add_choice, telling

NAME = "move"

EPILOG = """\
Messages keep their headers, except for the destination, and their order. A stored message is in
one of the two queues at any time. Unacknowledged messages, those that wait for their redelivery,
and those that arrive meanwhile stay. It ends at the first message for which TO has no room; the
others stay. Ctrl-C ends it, too. It needs the right to receive from QUEUE and to send to TO.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``move``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    parameters = {
        "queue": given.queue,
        "to": given.to,
        "selector": given.selector,
        "count": given.count,
    }
    with telling(NAME, given) as tell:
        result = open_site(given).operate("POST", NAME, parameters, tell)
    if given.json:
        show_json(result)
    else:
        print(f"{result['queue']}: {result['moved']:,} moved to {result['to']}")
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``move``."""
    parser = make_tool_parser(NAME, "Move the waiting messages of a queue.", EPILOG)
    add_choice(parser)
    parser.add_argument("to", metavar="TO", help="the destination to move them to")
    add_json(parser)
    add_access(parser)
    return parser
