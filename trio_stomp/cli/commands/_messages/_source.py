"""The messages that a command line sends: one body, a file, or a message for each line."""

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack

import trio
from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._lines import Outgoing, read_line
from trio_stomp.cli._progress import Tell

STANDARD, STDIN = "-", 0
READ_BYTES = 65536


@frozen
class Source:
    """The source of message bodies.

    Args:
      size: The size of the body, in bytes; 0 = unknown.
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


def open_source(given: argparse.Namespace, stack: ExitStack) -> Source:
    """Return ``--file``, which the stack closes, or standard input.

    Raises:
      OptionError: the file cannot be read.
    """
    if not given.file:
        return Source("standard input", STDIN, 0)
    name = f"--file {given.file}"
    try:
        number = os.open(given.file, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, number)
        return Source(name, number, os.fstat(number).st_size)
    except OSError as error:
        raise OptionError(f"{name} cannot be read: {error.strerror}") from None


async def single(
    given: argparse.Namespace, headers: Mapping[str, str], source: Source
) -> AsyncIterator[Outgoing]:
    """Yield one message, ``--count`` times."""
    if given.body not in (None, STANDARD):
        # The exact bytes of the shell: invalid UTF-8 arrives as lone surrogates.
        body = given.body.encode("utf-8", "surrogateescape")
    else:
        parts = []
        while part := await source.read():
            parts.append(part)
        body = b"".join(parts)
    for _ in range(given.count or 1):
        yield Outgoing(given.destination, body, dict(headers))


async def each_line(
    given: argparse.Namespace, headers: Mapping[str, str], source: Source, tell: Tell
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


async def paced(messages: AsyncIterator[Outgoing], interval_s: float) -> AsyncIterator[Outgoing]:
    """Yield messages, each at least this time after the one before. Checkpoint: to wait."""
    at = trio.current_time()
    async for message in messages:
        await trio.sleep_until(at)
        yield message
        at = max(at + interval_s, trio.current_time())
