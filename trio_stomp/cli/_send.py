"""``trio_stomp send``: a message, a file, or many as lines."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

from attrs import define, field

from trio_stomp._errors import OptionError
from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._lines import Outgoing, add_headers, read_headers, read_line
from trio_stomp.cli._progress import Tell, progress
from trio_stomp.cli._session import Client, run_session
from trio_stomp.cli._tool import (
    WELL,
    Parser,
    add_json,
    add_progress,
    make_tool_parser,
    printable,
)

NAME = "send"
STANDARD = "-"
AT_ONCE = 256
"""Messages on their way without a RECEIPT."""

EPILOG = """\
Without BODY, --file or --lines the body is what standard input holds. With --json, standard input
(or FILE) has a message on each line: {"destination": "/queue/a", "headers": {"type": "x"}, "body":
"text"}, or "body_base64" for bytes; that is what `subscribe --json` prints. DESTINATION and -H hold
for lines that do not say otherwise, and then a line of JSON tells the RECEIPT of each.

A message counts as sent when the broker has confirmed it. What is printed is what it said of it:
stored (in memory, in the journal), matched (so many subscribers), duplicate. If something goes
wrong in the middle, the error tells how many were confirmed.
"""


def main(argv: Sequence[str]) -> int:
    """Do what the words after ``send`` say, and return the exit code.

    Raises:
      OptionError: the operator's fault; its text is the one line to show.
      CannotDo: the broker cannot be reached, or refuses.
    """
    given = make_parser().parse_args(list(argv))
    headers = read_headers(given.headers)
    if given.persistent:
        headers.setdefault("persistent", "true")
    _check(given)
    tally = Tally(as_json=given.json, is_single=_is_single(given))
    with ExitStack() as stack:
        messages = _messages(given, headers, stack)
        total = _size(given)
        tell = stack.enter_context(
            progress("send", wanted=given.progress if not _is_single(given) else False)
        )
        run_session(given, partial(send_all, messages, tally, tell, total), tally.confirmed)
    tally.show()
    return WELL


def _check(given: argparse.Namespace) -> None:
    sources = [given.body is not None, bool(given.file), given.lines and not given.file]
    if given.body is not None and (given.file or given.lines):
        raise OptionError("send: BODY, --file and --lines exclude each other; give one of them")
    if given.lines and given.json:
        raise OptionError("send: --lines and --json exclude each other; give one of them")
    if not given.destination and (not given.json or any(sources[:1])):
        raise OptionError("send: DESTINATION is missing")


def _is_single(given: argparse.Namespace) -> bool:
    return not given.lines and not (given.json and given.body is None)


def _size(given: argparse.Namespace) -> int:
    """Bytes to be read; 0 = nobody knows."""
    try:
        return Path(given.file).stat().st_size if given.file else 0
    except OSError:
        return 0


def _messages(
    given: argparse.Namespace, headers: Mapping[str, str], stack: ExitStack
) -> Iterator[tuple[Outgoing, int]]:
    """The messages, each with how many bytes of the source were read by then.

    Raises:
      OptionError: the file cannot be read.
    """
    to = given.destination or ""
    if given.body is not None and given.body != STANDARD:
        return iter([(Outgoing(to, _encoded(given.body), dict(headers)), 0)])
    source: IO[bytes] = sys.stdin.buffer
    name = "standard input"
    if given.file:
        name = f"--file {given.file}"
        try:
            source = stack.enter_context(open(given.file, "rb"))
        except OSError as error:
            raise OptionError(f"{name} cannot be read: {error.strerror}") from None
    if _is_single(given):
        return iter([(Outgoing(to, _whole(source, name), dict(headers)), 0)])
    return _each_line(given, headers, source, name)


def _encoded(body: str) -> bytes:
    # As the shell gave them: bytes that are no UTF-8 come as lone surrogates.
    return body.encode("utf-8", "surrogateescape")


def _whole(source: IO[bytes], name: str) -> bytes:
    try:
        return source.read()
    except OSError as error:
        raise OptionError(f"{name} cannot be read: {error.strerror}") from None


def _each_line(
    given: argparse.Namespace, headers: Mapping[str, str], source: IO[bytes], name: str
) -> Iterator[tuple[Outgoing, int]]:
    done = 0
    for number, line in enumerate(source, 1):
        done += len(line)
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if not given.json:
            yield Outgoing(given.destination, text, dict(headers)), done
            continue
        if not text.strip():
            continue
        where = f"line {number} of {name}"
        try:
            decoded = text.decode()
        except UnicodeDecodeError:
            raise OptionError(f"{where} is no UTF-8; convert it") from None
        yield read_line(decoded, given.destination or "", headers, where), done


@define
class Tally:
    """What the broker confirmed.

    Args:
      as_json: Whether each RECEIPT is a line of JSON.
      is_single: Whether there is one message, told of in full.
    """

    as_json: bool
    is_single: bool
    count: int = 0
    evidence: Counter[str] = field(factory=Counter)
    destination: str = ""

    def note(self, message: Outgoing, receipt: Mapping[str, str]) -> None:
        """A message has been confirmed."""
        self.count += 1
        self.destination = message.destination
        if self.as_json:
            print(json.dumps({"destination": message.destination, "receipt": dict(receipt)}))
        elif self.is_single:
            told = ", ".join(f"{name} {text}" for name, text in receipt.items())
            print(printable(f"sent to {message.destination}{': ' if told else ''}{told}"))
        else:
            self.evidence.update(
                f"{name} {text}" for name, text in receipt.items() if name in ("stored", "matched")
            )
            self.evidence.update(name for name in receipt if name == "duplicate")

    def confirmed(self) -> str:
        """What to add to an error."""
        return "" if self.is_single else f" ({self.count} messages were confirmed before)"

    def show(self) -> None:
        """Tell of all, if they were not told of one by one."""
        if self.as_json or self.is_single:
            return
        told = ", ".join(f"{count} {printable(what)}" for what, count in self.evidence.most_common(9))
        print(f"{self.count} sent{': ' if told else ''}{told}")


async def send_all(
    messages: Iterator[tuple[Outgoing, int]],
    tally: Tally,
    tell: Tell,
    total: int,
    client: Client,
) -> None:
    """Send messages in their order, many on their way at once."""
    raise NotImplementedError


def make_parser() -> Parser:
    """Return the parser of the words after ``send``."""
    parser = make_tool_parser(NAME, "Send a message, a file, or many as lines.", EPILOG)
    parser.add_argument("destination", nargs="?", metavar="DESTINATION")
    parser.add_argument("body", nargs="?", metavar="BODY", help="a text; - = standard input")
    parser.add_argument("--file", default="", metavar="FILE", help="what it holds is the body")
    parser.add_argument(
        "--lines", action="store_true", help="each line of FILE or standard input is a message"
    )
    parser.add_argument("--persistent", action="store_true", help="it is to survive the broker")
    add_headers(parser, "each message")
    add_json(parser, "a message on each line, in; a RECEIPT on each line, out")
    add_progress(parser)
    add_access(parser)
    return parser
