"""``trio-stomp pause`` and ``resume``: stop and continue the hand-out of a queue."""

from collections.abc import Sequence

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, make_tool_parser, show_json

PAUSE, RESUME = "pause", "resume"
TEXTS = {
    PAUSE: "Stop the hand-out of a queue to its consumers.",
    RESUME: "Continue the hand-out of a queue.",
}

EPILOG = """\
A paused queue accepts messages, and those already delivered can be acknowledged. It is paused until
it is resumed, or the broker restarts. It needs the right admin at DIAG.
"""


def main(argv: Sequence[str], name: str = PAUSE) -> int:
    """Run ``pause`` or ``resume``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser(name).parse_args(list(argv))
    result = open_site(given).operate("POST", name, {"queue": given.queue})
    if given.json:
        show_json(result)
    else:
        print(f"{result['queue']}: {name}d")
    return WELL


def make_parser(name: str = PAUSE) -> Parser:
    """Return the parser of the arguments after ``pause`` or ``resume``."""
    parser = make_tool_parser(name, TEXTS[name], EPILOG)
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue, such as /queue/orders")
    add_json(parser)
    add_access(parser)
    return parser
