"""``trio_stomp health``: is the broker well? For people, and for Docker's HEALTHCHECK."""

import json
from collections.abc import Sequence

from trio_stomp.cli._connect_options import add_url
from trio_stomp.cli._http_get import Answer, Unreachable, open_site
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_json,
    make_tool_parser,
    printable,
    seconds,
    show_json,
)

NAME = "health"
UNWELL, UNREACHABLE = 1, 2

EPILOG = """\
Asked is /healthz, or /readyz of a broker that has no such page; neither takes a login. The exit
code is 0 if the broker is well, 1 if it is not, 2 if nobody answers, or for a bad option.
"""


def main(argv: Sequence[str]) -> int:
    """Do what the words after ``health`` say, and return the exit code.

    Raises:
      OptionError: the operator's fault; its text is the one line to show.
    """
    given = make_parser().parse_args(list(argv))
    site = open_site(given, with_access=False)
    url = site.address.web_url
    try:
        page = "/healthz"
        answer = site.get(page, given.timeout)
        if answer.status == 404:
            page = "/readyz"
            answer = site.get(page, given.timeout)
    except Unreachable as error:
        told = {"healthy": False, "reachable": False, "url": url, "reason": str(error)}
        _show(told, str(error), as_json=given.json)
        return UNREACHABLE
    healthy = answer.status == 200
    details = _details(answer)
    told = {
        "healthy": healthy,
        "reachable": True,
        "url": f"{url}{page}",
        "status": answer.status,
        "details": details,
    }
    verdict = f"{url}: {'healthy' if healthy else 'not healthy'}"
    if details is None:
        verdict += "" if healthy else f": {answer.text()}"
    else:
        verdict += "".join(
            f"\n  {printable(name)}: {_word(each)}" for name, each in details.items()
        )
    _show(told, verdict, as_json=given.json)
    return WELL if healthy else UNWELL


def _show(told: dict[str, object], verdict: str, *, as_json: bool) -> None:
    if as_json:
        show_json(told)
    else:
        print(verdict)


def _details(answer: Answer) -> dict[str, object] | None:
    """What the page tells beside its status; None = it is no JSON object."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _word(value: object) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value))


def make_parser() -> Parser:
    """Return the parser of the words after ``health``."""
    parser = make_tool_parser(NAME, "Tell whether a broker is well.", EPILOG)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=5.0,
        metavar="SECONDS",
        help="wait no longer than this for an answer (default: 5)",
    )
    add_json(parser)
    add_url(parser)
    return parser
