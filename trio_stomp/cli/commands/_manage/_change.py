"""Commands that send one request, which changes something."""

import argparse
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from trio_stomp.cli._command import PROGRESS, Argument, Command
from trio_stomp.cli._http_get import Refused, open_site
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import CANNOT, WELL, ask_yes, report, say
from trio_stomp.cli.commands._manage._arguments import YES, parameters, tool
from trio_stomp.cli.commands._manage._dead import queue_of

Record = dict[str, Any]


@frozen
class Change:
    """A command that sends one POST.

    Args:
      verb: The last part of the request's address.
      arguments: The arguments, most of which are parameters of the request.
      done: Returns what is printed, given the answer.
      question: The question to confirm first, with fields of the command line; "" = none.
      is_long: Whether the broker reports progress.
      missing: The figures that mean nothing was done, if no such queue exists; {} = an error.
      epilog: The end of the help.
    """

    verb: str
    arguments: tuple[Argument, ...]
    done: Callable[[Record], str]
    question: str = ""
    is_long: bool = False
    missing: Mapping[str, Any] = MappingProxyType({})
    epilog: str = ""

    def command(self, text: str = "") -> Command:
        """Return the command, with a line of help unless it is that of the list of commands."""
        asking, telling = [YES][: bool(self.question)], [PROGRESS][: self.is_long]
        return tool(self.run, (*self.arguments, *asking, *telling), text, self.epilog)

    def run(self, given: argparse.Namespace) -> int:
        """Send the request, and print the result.

        Raises:
          OptionError: an option is wrong, or there is no terminal to ask at.
          CannotDo: the broker cannot be reached, or refuses.
        """
        query = {**dict(parameters(given, self.arguments)), **queue_of(given)}
        if self.question and not given.yes and not ask_yes(_asked(self.question, query)):
            say("nothing was changed")
            return WELL
        with progress(self.verb, wanted=given.progress if self.is_long else False) as tell:
            try:
                result = open_site(given).operate(
                    "POST",
                    self.verb,
                    query,
                    tell=lambda line: tell(line.get("seen", 0), line.get("total", 0)),
                )
            except Refused as error:
                if not self.missing or error.code != "no-such-queue":
                    raise
                result = {**query, **self.missing}
        lines = self.done(result).splitlines()
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
