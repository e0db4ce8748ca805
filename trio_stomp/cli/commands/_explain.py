"""``trio-stomp explain``: what happened to a message, or why a subscriber received none."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, Parser, add_json, make_tool_parser, printable, show_json

NAME = "explain"

EPILOG = """\
MESSAGE-ID is the header message-id of a MESSAGE. --destination explains the state of a destination;
with --session or --user, why that client receives nothing from it. The broker remembers the last
seconds under load, and the last days when it is quiet. It answers clients on its own machine, and
those with the right to monitor.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``explain``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: no answer arrived, or the broker refused the question.
    """
    given = make_parser().parse_args(list(argv))
    question: dict[str, str] = {}
    if given.message_id is not None:
        question["message-id"] = given.message_id
    for name in ("destination", "session", "user"):
        if (value := getattr(given, name)) is not None:
            question[name] = value
    _check(question)
    found = open_site(given).get_json(f"/explain?q={quote(json.dumps(question))}")
    if given.json:
        show_json(found)
    else:
        _show(found)
    return WELL


def _check(question: dict[str, str]) -> None:
    if "message-id" in question and len(question) > 1:
        raise OptionError("explain: a MESSAGE-ID takes no other options; leave them out")
    if "message-id" not in question and "destination" not in question:
        raise OptionError("explain: give a MESSAGE-ID, or --destination D")
    if "session" in question and "user" in question:
        raise OptionError("explain: --session and --user exclude each other; give one of them")


def _show(found: dict[str, Any]) -> None:
    facts = found.get("facts") or [found.get("summary", "the broker gave no answer")]
    for fact in facts:
        print(printable(str(fact)))
    for event in found.get("events") or ():
        print(f"  {_ago(event)}  {printable(_text(event))}")
    horizon = found.get("horizon_s")
    if isinstance(horizon, int | float):
        print(f"(everything of the last {horizon:,.1f} s is remembered)")


def _ago(event: dict[str, Any]) -> str:
    ago = event.get("ms_ago")
    return f"{-ago / 1000:>12,.3f} s" if isinstance(ago, int | float) else " " * 14


def _text(event: dict[str, Any]) -> str:
    what, text = str(event.get("what") or ""), str(event.get("text") or "")
    fate, rule, policy = (str(event.get(name) or "") for name in ("fate", "rule", "policy"))
    if rule:
        text = f"{event.get('count', '')} {fate}".strip() or text
    where = [
        f"{name} {event[name]}"
        for name in ("destination", "session")
        if event.get(name) and str(event[name]) not in text
    ]
    line = f"{what}: {text}" if what and text else what or text
    line = f"{line} ({', '.join(where)})" if where else line
    if rule:
        line += f", decided by {rule}" + (f" of policy {policy}" if policy else "")
    return line


def make_parser() -> Parser:
    """Return the parser of the arguments after ``explain``."""
    parser = make_tool_parser(
        NAME, "Explain what happened to a message, or why a client receives none.", EPILOG
    )
    parser.add_argument("message_id", nargs="?", metavar="MESSAGE-ID")
    parser.add_argument("--destination", metavar="D", help="explain this destination")
    parser.add_argument("--session", metavar="S", help="session of the client, as in its CONNECTED")
    parser.add_argument("--user", metavar="U", help="all sessions of this user")
    add_json(parser)
    add_access(parser)
    return parser
