"""``trio-stomp close``: close a connection of the broker."""

from collections.abc import Sequence

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, make_tool_parser, show_json

NAME = "close"

EPILOG = """\
The client gets an ERROR with the code closed-by-operator, and what it had not acknowledged goes to
others. It may connect again. It needs the right admin at DIAG.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``close``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    result = open_site(given).operate("POST", NAME, {"session": given.session})
    if given.json:
        show_json(result)
    else:
        print(f"closed {result['session']}")
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``close``."""
    parser = make_tool_parser(NAME, "Close a connection.", EPILOG)
    parser.add_argument(
        "session", metavar="SESSION", help="id of the session, from: trio-stomp ls connections"
    )
    add_json(parser)
    add_access(parser)
    return parser
