"""``trio-stomp send`` and ``request``: send messages, and print what is answered."""

import argparse
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Generic, TypeVar

import trio
from attrs import define, field

from trio_stomp.base import OptionError
from trio_stomp.cli._command import PROGRESS, Argument, Command, count, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._lines import Outgoing, headers_of, read_headers
from trio_stomp.cli._progress import progress
from trio_stomp.cli._session import RECONNECT, run_session
from trio_stomp.cli._tool import WELL, say, show_json
from trio_stomp.cli.commands._messages._printer import PRINTING, Printer, printer_of
from trio_stomp.cli.commands._messages._source import each_line, open_source, paced, single
from trio_stomp.cli.commands._messages._template import HELP
from trio_stomp.client import Client, Message

SEND, REQUEST = "send", "request"
TIMEOUT_S = 10.0
AT_ONCE, BYTES_AT_ONCE = 256, 16 * 1024 * 1024
"""Limits of messages whose answers have not arrived, in number and bytes."""

Answer = TypeVar("Answer")

INPUT = """\
Without BODY, --file or --lines the body is read from standard input. With --json, standard input
(or FILE) has a message on each line: {"destination": "/queue/a", "headers": {"type": "x"}, "body":
"text"}, or "body_base64" for bytes, as printed by `subscribe --json`. DESTINATION and -H are the
defaults of all lines.
"""
EPILOGS = {
    SEND: f"""\
{INPUT}
A message counts as sent when the broker has confirmed it. The output shows the RECEIPT: stored (in
memory, in the journal), matched (the number of subscribers), duplicate; and a hint if there is no
subscriber and the name resembles that of a queue. With --json each RECEIPT is a line of JSON. An
error in the middle says how many messages were confirmed. --request is the command `request`.
""",
    REQUEST: f"""\
{INPUT}
The answer comes to a temporary queue of this connection, named in the header reply-to; `reply`
and all libraries can send it. It is printed as by `subscribe`. The exit code is 1 if an answer
does not come in time.

{HELP}""",
}


def _run(given: argparse.Namespace, name: str) -> int:
    """Run ``send`` or ``request``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses, or an answer did not come.
    """
    headers = read_headers(given.headers)
    if given.persistent:
        headers.setdefault("persistent", "true")
    _check(given, name)
    is_stream = _is_stream(given)
    is_single = not is_stream and given.count is None
    tally = Tally(as_json=given.json, is_single=is_single, is_shown=not given.request)
    printer = printer_of(given, None) if given.request else None
    with ExitStack() as stack:
        source = open_source(given, stack)
        tell = stack.enter_context(progress(name, wanted=given.progress if is_stream else False))
        if is_stream:
            messages = each_line(given, headers, source, tell)
        else:
            messages = single(given, headers, source)
        if given.interval is not None:
            messages = paced(messages, given.interval)

        async def work(client: Client) -> None:
            if printer is None:
                await exchange_all(messages, lambda each: _send(client, each), tally.note)
            else:
                await exchange_all(
                    messages,
                    lambda each: _request(client, each, given.timeout),
                    lambda _, answer: printer.show(answer),
                )

        try:
            run_session(given, work, partial(_so_far, tally, printer))
        except KeyboardInterrupt:
            tally.show()
            raise
    tally.show()
    return WELL


@define(eq=False)
class _Window:
    """Limits the number and bytes of unconfirmed messages."""

    count: int = 0
    bytes: int = 0
    _change: trio.Event = field(factory=trio.Event)

    async def enter(self, size: int) -> None:
        """Wait until there is room for a message."""
        while self.count >= AT_ONCE or (self.count and self.bytes + size > BYTES_AT_ONCE):
            await self._change.wait()
        self.count += 1
        self.bytes += size

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        self._change.set()
        self._change = trio.Event()


async def exchange_all(
    messages: AsyncIterator[Outgoing],
    exchange: Callable[[Outgoing], Awaitable[Answer]],
    note: Callable[[Outgoing, Answer], None],
) -> None:
    """Send messages in order, without waiting for each answer.

    Args:
      messages: The messages.
      exchange: Sends one and waits for its answer, such as a RECEIPT.
      note: Called with each message and its answer, in the order of the messages.

    Raises:
      OptionError: a message cannot be sent; those before it are confirmed.
      ClientError: the broker refused a message, or no answer arrived.
    """
    window, answers = _Window(), _InOrder(note)
    mistake: OptionError | None = None

    async def send(number: int, message: Outgoing, task_status: trio.TaskStatus[None]) -> None:
        # The starter continues when this task first waits: after the SEND was written.
        task_status.started()
        try:
            answers.take(number, message, await exchange(message))
        except OptionError as error:
            answers.mistake = answers.mistake or error
        window.leave(len(message.body))

    async with trio.open_nursery() as nursery:
        number = 0
        try:
            async for message in messages:
                await window.enter(len(message.body))
                if answers.mistake is not None:
                    break
                await nursery.start(send, number, message)
                number += 1
        except OptionError as error:
            mistake = error
    mistake = answers.mistake or mistake
    if mistake is not None:
        raise mistake


@define(eq=False)
class _InOrder(Generic[Answer]):
    """Reports answers in the order of the SENDs, since their tasks wake in any order."""

    note: Callable[[Outgoing, Answer], None]
    mistake: OptionError | None = None
    _next: int = 0
    _early: dict[int, tuple[Outgoing, Answer]] = field(factory=dict)

    def take(self, number: int, message: Outgoing, answer: Answer) -> None:
        self._early[number] = (message, answer)
        while (found := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.note(*found)


async def _send(client: Client, message: Outgoing) -> Mapping[str, str]:
    receipt = await client.send(message.destination, message.body, headers=message.headers)
    return receipt.headers


async def _request(client: Client, message: Outgoing, timeout_s: float) -> Message:
    return await client.request(
        message.destination, message.body, headers=message.headers, timeout_s=timeout_s
    )


def _so_far(tally: "Tally", printer: Printer | None) -> str:
    if printer is None:
        return tally.confirmed()
    return f" ({printer.count} answers came before that)" if printer.count else ""


def _check(given: argparse.Namespace, name: str) -> None:
    if given.body is not None and (given.file or given.lines):
        raise OptionError(f"{name}: BODY, --file and --lines exclude each other; give one of them")
    if given.lines and given.json:
        raise OptionError(f"{name}: --lines and --json exclude each other; give one of them")
    if given.count is not None and _is_stream(given):
        raise OptionError(f"{name}: --count repeats one message, but there is one for each line")
    if not given.destination and (given.lines or not _is_stream(given)):
        raise OptionError(f"{name}: DESTINATION is missing")
    if (given.verbose or given.format is not None) and not given.request:
        raise OptionError(f"{name}: -v and --format are for answers: give --request as well")


def _is_stream(given: argparse.Namespace) -> bool:
    """Return whether there is a message for each line."""
    return given.lines or (given.json and given.body is None)


@define
class Tally:
    """Counts the messages that the broker confirmed, and prints the result.

    Args:
      as_json: Whether to print a line of JSON for each RECEIPT.
      is_single: Whether there is only one message, reported in full.
      is_shown: Whether to print the total.
    """

    as_json: bool
    is_single: bool
    is_shown: bool = True
    count: int = 0
    evidence: Counter[str] = field(factory=Counter)

    def note(self, message: Outgoing, receipt: Mapping[str, str]) -> None:
        """Count a confirmed message."""
        self.count += 1
        if self.as_json:
            receipts = {"destination": message.destination, "receipt": dict(receipt)}
            show_json(receipts, indent=None)
        elif self.is_single:
            details = ", ".join(f"{name} {text}" for name, text in receipt.items())
            say(f"sent to {message.destination}{': ' if details else ''}{details}")
        else:
            self.evidence.update(
                f"{name} {text}"
                for name, text in receipt.items()
                if name in ("stored", "matched", "hint")
            )
            self.evidence.update(name for name in receipt if name == "duplicate")

    def confirmed(self) -> str:
        """Return a text about the confirmed messages, to add to an error."""
        return "" if self.is_single else f" ({self.count} messages were confirmed before that)"

    def show(self) -> None:
        """Print the total, unless messages or answers were printed one by one."""
        if self.as_json or self.is_single or not self.is_shown:
            return
        details = ", ".join(f"{count} {what}" for what, count in self.evidence.most_common(9))
        say(f"{self.count} sent{': ' if details else ''}{details}")


def _arguments(answers: str, *more: Argument) -> tuple[Argument, ...]:
    """Return the arguments of a command, with further ones.

    Args:
      answers: What it prints for each message.
      more: Further arguments.
    """
    json_help = f"read a JSON message from each line, and print the {answers} of each"
    timeout_help = f"time limit of each request (default: {TIMEOUT_S:g})"
    return (
        Argument("[DESTINATION]"),
        Argument("[BODY]", "a text; - = standard input"),
        Argument("--file FILE", "file with the body", default=""),
        Argument("--lines", "send each line of FILE or standard input as a message"),
        Argument("--count N", "send the message N times", count),
        Argument("--interval SECONDS", "time between two messages (default: 0)", seconds),
        Argument("--persistent", "send persistent messages"),
        *more,
        Argument("--timeout SECONDS", timeout_help, seconds, TIMEOUT_S),
        *PRINTING,
        headers_of("each message"),
        Argument("--json", json_help),
        PROGRESS,
        RECONNECT,
        *ACCESS,
    )


EACH = Argument("--request", "wait for an answer to each, and print it")
COMMANDS = {
    SEND: Command(partial(_run, name=SEND), _arguments("RECEIPT", EACH), epilog=EPILOGS[SEND]),
    REQUEST: Command(
        partial(_run, name=REQUEST),
        _arguments("answer"),
        epilog=EPILOGS[REQUEST],
        defaults={"request": True},
    ),
}
