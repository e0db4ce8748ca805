"""``trio-stomp explain``: what happened to a message, or why a subscriber received none."""

import argparse
import json
from typing import Any

from trio_stomp.base import OptionError
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, say, show_json
from trio_stomp.cli.commands._manage._arguments import Argument, parameters

EPILOG = """\
MESSAGE-ID is the header message-id of a MESSAGE. --destination explains the state of a destination;
with --session or --user, why that client receives nothing from it. The broker remembers the last
seconds under load, and the last days when it is quiet. It answers clients on its own machine, and
those with the right to monitor.
"""


ARGUMENTS = (
    Argument("message_id", nargs="?", metavar="MESSAGE-ID", help="its header message-id"),
    Argument("--destination", metavar="D", help="explain this destination"),
    Argument("--session", metavar="S", help="session of the client, as in its CONNECTED"),
    Argument("--user", metavar="U", help="all sessions of this user"),
)


def explain(given: argparse.Namespace) -> int:
    """Ask the broker, and print what it answers.

    Raises:
      OptionError: the options exclude each other.
      CannotDo: no answer arrived, or the broker refused the question.
    """
    question = {
        name.replace("_", "-"): value
        for name, value in parameters(given, ARGUMENTS)
        if value is not None
    }
    _check(question)
    found = open_site(given).operate("GET", "explain", {"q": json.dumps(question)})
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
    say(*facts)
    for event in found.get("events") or ():
        say(f"  {_ago(event)}  {_text(event)}")
    horizon = found.get("horizon_s")
    if isinstance(horizon, int | float):
        say(f"(everything of the last {horizon:,.1f} s is remembered)")


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
