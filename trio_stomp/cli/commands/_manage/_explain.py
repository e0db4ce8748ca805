"""``trio-stomp explain``: what happened to a message, or why a subscriber received none."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import report

EPILOG = """\
MESSAGE-ID is the header message-id of a MESSAGE. --destination explains the state of a destination;
with --session or --user, why that client receives nothing from it. The broker remembers the last
seconds under load, and the last days when it is quiet. It answers clients on its own machine, and
those with the right to monitor.
"""


ARGUMENTS = (
    Argument("[MESSAGE-ID]", "its header message-id"),
    Argument("--destination D", "explain this destination"),
    Argument("--session S", "session of the client, as in its CONNECTED"),
    Argument("--user U", "all sessions of this user"),
)


def explain(given: argparse.Namespace) -> int:
    """Ask the broker, and print what it answers.

    Raises:
      OptionError: the options exclude each other.
      CannotDo: no answer arrived, or the broker refused the question.
    """
    question = {
        name.replace("_", "-"): value
        for name in ("message_id", "destination", "session", "user")
        if (value := getattr(given, name)) is not None
    }
    _check(question)
    found = open_site(given).operate("GET", "explain", {"q": json.dumps(question)})
    return report(given, found, *_lines(found))


def _check(question: dict[str, str]) -> None:
    if "message-id" in question and len(question) > 1:
        raise OptionError("explain: a MESSAGE-ID takes no other options; leave them out")
    if "message-id" not in question and "destination" not in question:
        raise OptionError("explain: give a MESSAGE-ID, or --destination D")
    if "session" in question and "user" in question:
        raise OptionError("explain: --session and --user exclude each other; give one of them")


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield from found.get("facts") or [found.get("summary", "the broker gave no answer")]
    for event in found.get("events") or ():
        yield f"  {_ago(event)}  {_text(event)}"
    horizon = found.get("horizon_s")
    if isinstance(horizon, int | float):
        yield f"(everything of the last {horizon:,.1f} s is remembered)"


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
