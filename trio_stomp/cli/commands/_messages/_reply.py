"""``trio-stomp reply``: answers requests with a template, or with what a command prints."""

import argparse
import shlex
import shutil
import sys
from functools import partial

import trio
from attrs import define

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument, Command, count, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._lines import headers_of, read_headers
from trio_stomp.cli._session import run_session
from trio_stomp.cli._tool import CANNOT, WELL, report, say
from trio_stomp.cli.commands._messages._signals import end_at_signal
from trio_stomp.cli.commands._messages._template import HELP, Template
from trio_stomp.client import Client, Message, Refused, Subscription

ECHO = "{body}"

EPILOG = f"""\
Each request is answered with FORMAT, by default its own body, or with the output of --command,
which gets the body as its input. CMD is split into words as by a shell, without one; FORMAT's
fields may be in the words: --command 'date -d {{header:day}}'. Several processes share the requests
of a queue.

The answer goes to the request's reply-to, with its correlation-id; then the request is
acknowledged. One that cannot be answered (it has no reply-to, or the command fails) is refused by
NACK, so that it becomes a dead letter, and its reason is on standard error. After a restart of the
broker it goes on.

{HELP}
Ctrl-C ends it in order. The exit code is 0, or 1 if fewer requests than --count were answered.
"""


def _run(given: argparse.Namespace) -> int:
    """Run ``reply``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    replier = Replier(read_headers(given.headers), *_answers(given), given.count)
    run_session(given, partial(_serve, given, replier))
    failed = f", {replier.failed:,} failed" if replier.failed else ""
    return report(
        given,
        {"answered": replier.answered, "failed": replier.failed},
        f"{replier.answered:,} answered{failed}",
        code=WELL if given.count is None or replier.is_done else CANNOT,
    )


def _answers(given: argparse.Namespace) -> tuple[Template, list[Template]]:
    """Return the template of the answer, and those of the command's words."""
    if given.command is None:
        return Template.parse(ECHO if given.text is None else given.text, "FORMAT"), []
    if given.text is not None:
        raise OptionError("reply: FORMAT and --command exclude each other; give one of them")
    try:
        words = shlex.split(given.command)
    except ValueError as error:
        raise OptionError(f"--command: {str(error).lower()}") from None
    if not words or shutil.which(words[0]) is None:
        raise OptionError(f"--command: there is no program {''.join(words[:1])[:80]!r}")
    return Template(()), [Template.parse(word, "--command") for word in words]


class _Unanswerable(Exception):
    """A request cannot be answered; the text says why."""


@define
class Replier:
    """Answers requests.

    Args:
      headers: Further headers of each answer.
      template: The template of answers.
      words: The command whose output is the answer; [] = none.
      wanted: The number of answers after which to stop; None = unlimited.
    """

    headers: dict[str, str]
    template: Template
    words: list[Template]
    wanted: int | None
    answered: int = 0
    failed: int = 0
    _refused_id: str = ""
    """The request whose answer the broker refused: it comes again."""

    @property
    def is_done(self) -> bool:
        """Return whether the wanted number of requests has been answered."""
        return self.wanted is not None and self.answered >= self.wanted

    async def take(self, client: Client, request: Message) -> None:
        """Answer a request, and acknowledge it; or refuse it.

        Raises:
          ClientError: the client has ended.
        """
        try:
            if request.message_id == self._refused_id:
                raise _Unanswerable("the broker refuses its answer")
            to = request.headers.get("reply-to")
            if not to:
                raise _Unanswerable("it has no reply-to")
            body = await self._body(request)
        except _Unanswerable as error:
            self._fail(request, str(error))
            request.nack_nowait(requeue=False)
            return
        correlation = request.headers.get("correlation-id")
        own = {} if correlation is None else {"correlation-id": correlation}
        try:
            await client.send(to, body, headers={**self.headers, **own})
        except Refused as error:
            self._refused_id = request.message_id
            say(f"{to}: {error}", to=sys.stderr)
            return
        self.answered += 1
        request.ack_nowait()

    async def _body(self, request: Message) -> bytes:
        number = self.answered + 1
        if not self.words:
            return self.template.fill(request, number)
        words = [each.fill(request, number) for each in self.words]
        try:
            ran = await trio.run_process(
                words, stdin=request.body, capture_stdout=True, stderr=None, check=False
            )
        except (OSError, ValueError) as error:
            raise _Unanswerable(f"the command cannot be run: {error}") from None
        if ran.returncode:
            raise _Unanswerable(f"the command ended with {ran.returncode}")
        return bytes(ran.stdout)

    def _fail(self, request: Message, why: str) -> None:
        self.failed += 1
        say(f"{request.message_id} of {request.destination}: {why}", to=sys.stderr)


async def _serve(given: argparse.Namespace, replier: Replier, client: Client) -> None:
    """Answer requests until the wanted number is reached."""
    subscribed = client.subscribe(
        given.destination,
        ack="client-individual",
        # One, so that processes that share a queue are equally busy.
        prefetch=1,
        selector=given.selector,
        on_stale="ignore",
    )
    with trio.CancelScope() as scope:
        if given.seconds is not None:
            scope.deadline = trio.current_time() + given.seconds
        async with trio.open_nursery() as watchers:
            await watchers.start(end_at_signal, scope.cancel)
            async with subscribed as requests:
                await _answer_all(requests, replier, client)
            scope.cancel()


async def _answer_all(requests: Subscription, replier: Replier, client: Client) -> None:
    while not replier.is_done:
        await replier.take(client, await requests.receive())


COMMAND = Command(
    _run,
    (
        Argument("DESTINATION", "where requests are sent to"),
        Argument("[FORMAT]", f"the answer (default: {ECHO}, an echo)", dest="text"),
        Argument("--command CMD", "answer with what this command prints"),
        Argument("--count N", "end after this many answers", count),
        Argument("--for SECONDS", "end after this time", seconds, dest="seconds"),
        Argument("--selector S", "only matching requests"),
        headers_of("each answer"),
        Argument("--json", "print the totals as JSON"),
        *ACCESS,
    ),
    epilog=EPILOG,
    defaults={"reconnect": True},
)
