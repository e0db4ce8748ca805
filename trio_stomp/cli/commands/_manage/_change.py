"""Commands that send one request, which changes something."""

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from trio_stomp.cli._command import PROGRESS, Command
from trio_stomp.cli._http_get import Refused, open_site
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import CANNOT, WELL, ask_yes, report, say
from trio_stomp.cli.commands._manage._arguments import (
    DEAD,
    EXACT,
    YES,
    argument_of,
    tool,
    values_of,
)
from trio_stomp.cli.commands._manage._dead import queue_of
from trio_stomp.web.declared import Verb

Record = dict[str, Any]


@frozen
class Change:
    """A command that sends one POST, as it is declared.

    Args:
      declared: The operation.
      is_of_dead: Whether the queue is named by the destination that dead letters come from.
      missing: The figures that mean nothing was done, if no such queue exists; {} = an error.
    """

    declared: Verb
    is_of_dead: bool = False
    missing: Mapping[str, Any] = MappingProxyType({})

    def command(self, text: str = "") -> Command:
        """Return the command, with a line of help unless it is that of the list of commands."""
        declared = self.declared
        arguments = list(map(argument_of, declared.parameters))
        if self.is_of_dead:
            arguments[:1] = [DEAD, EXACT]
        arguments += [YES][: bool(declared.question)] + [PROGRESS][: declared.has_progress]
        epilog = f"{declared.note}Required right: {declared.right}.\n"
        return tool(self.run, arguments, text, epilog)

    def run(self, given: argparse.Namespace) -> int:
        """Send the request, and print the result.

        Raises:
          OptionError: an option is wrong, or there is no terminal to ask at.
          CannotDo: the broker cannot be reached, or refuses.
        """
        name, question = self.declared.name, self.declared.question
        query = {**values_of(given, self.declared.parameters), **queue_of(given)}
        if question and not given.yes and not ask_yes(_asked(question, query)):
            say("nothing was changed")
            return WELL
        with progress(name, wanted=getattr(given, "progress", False)) as tell:
            try:
                result = open_site(given).operate(
                    "POST",
                    name,
                    query,
                    tell=lambda line: tell(line.get("seen", 0), line.get("total", 0)),
                )
            except Refused as error:
                if not self.missing or error.code != "no-such-queue":
                    raise
                result = {**query, **self.missing}
        lines = self.declared.done(result).splitlines()
        return report(given, result, *lines, code=CANNOT if result.get("left") else WELL)


def _asked(question: str, query: Record) -> str:
    """Return a question with its fields filled in, and the other parameters at its end."""
    shown = {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in query.items()
    }
    which = [
        f"{name} {value}"
        for name, value in shown.items()
        if value not in (None, "") and f"{{{name}" not in question
    ]
    text = question.format_map(shown)
    return f"{text[:-1]} ({', '.join(which)})?" if which else text
