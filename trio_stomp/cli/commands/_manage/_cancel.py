"""``trio-stomp cancel``: cancel scheduled messages by their ids, or all of a user."""

import argparse

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import CANNOT, WELL, ask_yes, report, say
from trio_stomp.cli.commands._manage._arguments import YES

AT_ONCE = 1_000
"""Ids in one request."""
ARGUMENTS = (
    Argument("[ID...]", "from: trio-stomp ls schedules"),
    Argument("--user USER", "all of this user"),
    Argument("--all", "all of all users"),
    YES,
)


def cancel(given: argparse.Namespace) -> int:
    """Cancel the schedules, after a question, and print the number of messages not sent.

    Raises:
      OptionError: not exactly one selection was given, or there is no terminal to ask at.
      CannotDo: the broker cannot be reached, or refuses.
    """
    if bool(given.id) + (given.user is not None) + given.all != 1:
        raise OptionError("cancel: name IDs, or --user, or --all")
    meant = f"the schedules {', '.join(given.id)}" if given.id else "all schedules"
    meant += f" of {given.user}" if given.user is not None else ""
    if not given.yes and not ask_yes(f"Cancel {meant}?"):
        say("nothing was changed")
        return WELL
    site, ids = open_site(given), given.id
    if not ids:
        ids = [each["id"] for each in site.records("schedules", {"user": given.user})]
    cancelled = 0
    for at in range(0, len(ids), AT_ONCE):
        found = site.operate("POST", "cancel", {"id": ids[at : at + AT_ONCE]})
        cancelled += found["cancelled"]
    text = f"{cancelled:,} messages will not be sent"
    code = CANNOT if given.id and not cancelled else WELL
    return report(given, {"cancelled": cancelled}, text, code=code)
