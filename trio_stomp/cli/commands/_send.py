"""``trio-stomp send``: sends a message, a file, or a message for each line."""

import argparse
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._lines import Outgoing, add_headers, read_headers, read_line
from trio_stomp.cli._progress import Tell, progress
from trio_stomp.cli._session import run_session
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_json,
    add_progress,
    make_tool_parser,
    printable,
)
from trio_stomp.client import Client

NAME = "send"
STANDARD, STDIN = "-", 0
READ_BYTES = 65536
AT_ONCE, BYTES_AT_ONCE = 256, 16 * 1024 * 1024
"""Limits of messages whose RECEIPTs have not arrived, in number and bytes."""

EPILOG = """\
Without BODY, --file or --lines the body is read from standard input. With --json, standard input
(or FILE) has a message on each line: {"destination": "/queue/a", "headers": {"type": "x"}, "body":
"text"}, or "body_base64" for bytes, as printed by `subscribe --json`. DESTINATION and -H are the
defaults of all lines, and each RECEIPT is printed as a line of JSON.

A message counts as sent when the broker has confirmed it. The output shows the RECEIPT: stored (in
memory, in the journal), matched (the number of subscribers), duplicate; and a hint if there is no
subscriber and the name resembles that of a queue. An error in the middle says how many messages
were confirmed.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``send``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    headers = read_headers(given.headers)
    if given.persistent:
        headers.setdefault("persistent", "true")
    _check(given)
    is_single = _is_single(given)
    tally = Tally(as_json=given.json, is_single=is_single)
    with ExitStack() as stack:
        source = _source(given, stack)
        tell = stack.enter_context(progress("send", wanted=False if is_single else given.progress))
        if is_single:
            messages = _single(given, headers, source)
        else:
            messages = _each_line(given, headers, source, tell)
        run_session(given, partial(send_all, messages, tally), tally.confirmed)
    tally.show()
    return WELL


def _check(given: argparse.Namespace) -> None:
    if given.body is not None and (given.file or given.lines):
        raise OptionError("send: BODY, --file and --lines exclude each other; give one of them")
    if given.lines and given.json:
        raise OptionError("send: --lines and --json exclude each other; give one of them")
    if not given.destination and _is_single(given) | given.lines:
        raise OptionError("send: DESTINATION is missing")


def _is_single(given: argparse.Namespace) -> bool:
    return not given.lines and (not given.json or given.body is not None)


@frozen
class _Source:
    """The source of message bodies.

    Args:
      size: In bytes; 0 = unknown.
    """

    name: str
    number: int
    size: int

    async def read(self, size: int = READ_BYTES) -> bytes:
        """Wait for bytes and return them, or b"" at the end.

        This bypasses Python's buffer: a thread that still reads from it when the program ends,
        after Ctrl-C, would crash the program.

        Raises:
          OptionError: the source cannot be read.
        """
        try:
            return await trio.to_thread.run_sync(os.read, self.number, size, abandon_on_cancel=True)
        except OSError as error:
            raise OptionError(f"{self.name} cannot be read: {error.strerror}") from None


def _source(given: argparse.Namespace, stack: ExitStack) -> _Source:
    if not given.file:
        return _Source("standard input", STDIN, 0)
    name = f"--file {given.file}"
    try:
        number = os.open(given.file, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, number)
        return _Source(name, number, os.fstat(number).st_size)
    except OSError as error:
        raise OptionError(f"{name} cannot be read: {error.strerror}") from None


async def _single(
    given: argparse.Namespace, headers: Mapping[str, str], source: _Source
) -> AsyncIterator[Outgoing]:
    """Yield the only message."""
    if given.body not in (None, STANDARD):
        # The exact bytes of the shell: invalid UTF-8 arrives as lone surrogates.
        body = given.body.encode("utf-8", "surrogateescape")
    else:
        parts = []
        while part := await source.read():
            parts.append(part)
        body = b"".join(parts)
    yield Outgoing(given.destination, body, dict(headers))


async def _each_line(
    given: argparse.Namespace, headers: Mapping[str, str], source: _Source, tell: Tell
) -> AsyncIterator[Outgoing]:
    """Yield a message for each line."""
    number = done = 0
    rest: list[bytes] = []
    while True:
        part = await source.read()
        done += len(part)
        tell(done, max(source.size, done))
        *lines, last = part.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest = []
        rest.append(last)
        if not part and (end := b"".join(rest)):
            lines.append(end)
        for line in lines:
            number += 1
            found = _line(
                given, headers, line.removesuffix(b"\r"), f"line {number} of {source.name}"
            )
            if found is not None:
                yield found
        if not part:
            return


def _line(
    given: argparse.Namespace, headers: Mapping[str, str], line: bytes, where: str
) -> Outgoing | None:
    if not given.json:
        return Outgoing(given.destination, line, dict(headers))
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise OptionError(f"{where} is not UTF-8; convert it") from None
    return read_line(text, given.destination or "", headers, where) if text.strip() else None


@define
class Tally:
    """Counts the messages that the broker confirmed, and prints the result.

    Args:
      as_json: Whether to print a line of JSON for each RECEIPT.
      is_single: Whether there is only one message, reported in full.
    """

    as_json: bool
    is_single: bool
    count: int = 0
    evidence: Counter[str] = field(factory=Counter)
    destination: str = ""

    def note(self, message: Outgoing, receipt: Mapping[str, str]) -> None:
        """Count a confirmed message."""
        self.count += 1
        self.destination = message.destination
        if self.as_json:
            print(json.dumps({"destination": message.destination, "receipt": dict(receipt)}))
        elif self.is_single:
            details = ", ".join(f"{name} {text}" for name, text in receipt.items())
            print(printable(f"sent to {message.destination}{': ' if details else ''}{details}"))
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
        """Print the total, unless messages were reported one by one."""
        if self.as_json or self.is_single:
            return
        details = ", ".join(
            f"{count} {printable(what)}" for what, count in self.evidence.most_common(9)
        )
        print(f"{self.count} sent{': ' if details else ''}{details}")


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


async def send_all(messages: AsyncIterator[Outgoing], tally: Tally, client: Client) -> None:
    """Send messages in order, without waiting for each RECEIPT.

    Raises:
      OptionError: a message cannot be sent; those before it are confirmed.
      ClientError: the broker refused a message.
    """
    window, receipts = _Window(), _InOrder(tally)
    mistake: OptionError | None = None

    async def send(number: int, message: Outgoing, task_status: trio.TaskStatus[None]) -> None:
        # The starter continues when this task first waits: after the SEND was written.
        task_status.started()
        size = len(message.body)
        try:
            receipt = await client.send(message.destination, message.body, headers=message.headers)
            receipts.take(number, message, receipt.headers)
        except OptionError as error:
            receipts.mistake = receipts.mistake or error
        window.leave(size)

    async with trio.open_nursery() as nursery:
        number = 0
        try:
            async for message in messages:
                await window.enter(len(message.body))
                if receipts.mistake is not None:
                    break
                await nursery.start(send, number, message)
                number += 1
        except OptionError as error:
            mistake = error
    mistake = receipts.mistake or mistake
    if mistake is not None:
        raise mistake


@define(eq=False)
class _InOrder:
    """Reports RECEIPTs in the order of the SENDs, since their tasks wake in any order."""

    tally: Tally
    mistake: OptionError | None = None
    _next: int = 0
    _early: dict[int, tuple[Outgoing, Mapping[str, str]]] = field(factory=dict)

    def take(self, number: int, message: Outgoing, receipt: Mapping[str, str]) -> None:
        self._early[number] = (message, receipt)
        while (found := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.tally.note(*found)


def make_parser() -> Parser:
    """Return the parser of the arguments after ``send``."""
    parser = make_tool_parser(NAME, "Send a message, a file, or a message for each line.", EPILOG)
    parser.add_argument("destination", nargs="?", metavar="DESTINATION")
    parser.add_argument("body", nargs="?", metavar="BODY", help="a text; - = standard input")
    parser.add_argument("--file", default="", metavar="FILE", help="file with the body")
    parser.add_argument(
        "--lines", action="store_true", help="send each line of FILE or standard input as a message"
    )
    parser.add_argument("--persistent", action="store_true", help="send persistent messages")
    add_headers(parser, "each message")
    add_json(parser, "read a JSON message from each line, and print a RECEIPT for each")
    add_progress(parser)
    add_access(parser)
    return parser
