"""The log: one line for each record, as text on a terminal and as JSON elsewhere."""

import json
import logging
import select
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TextIO

import trio

GATHER_S = 0.02
GATHER_LINES = 64
"""Maximum delay and maximum number of lines that are written together."""
PIPE_CHARS, PATIENCE_MS = 4096, 100
"""The bytes that a pipe takes without blocking if it takes any, and the wait until it does."""

LOST = "{} lines of the log are lost, because nothing has read it"

FORMATS = ("auto", "human", "json")

# A client's text must neither forge log lines nor control the terminal.
UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}

# Attributes of every record; all others come from ``extra`` and become fields.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class HumanFormatter(logging.Formatter):
    """Formats a record as one line, and a traceback on further lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(UNPRINTABLE)


class JsonFormatter(logging.Formatter):
    """A JSON object for each record, on one line: time, level, message, and its fields.

    Records about a connection have the fields ``connection``, ``user``, ``remote``, ``transport``
    and ``reason``; those about a bug have ``traceback``.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes log lines, and joins those below WARNING into one write while ``gather`` runs.

    Each write blocks the event loop for 40 to 100 µs, a quarter of the cost of a short connection.
    So lines below WARNING may wait for GATHER_S; a process that is killed loses them. The order of
    lines is kept. Lines are dropped and counted while nothing reads a pipe or terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._lost = 0
        self._thread = 0
        self._some: trio.Event | None = None
        self._poll: select.poll | None = None
        try:
            poll = select.poll()
            poll.register(stream.fileno(), select.POLLOUT)
            self._poll = poll
        except (AttributeError, OSError, ValueError):
            pass  # it is no file

    def emit(self, record: logging.LogRecord) -> None:
        """Implement ``logging.Handler.emit``. The caller holds the handler's lock."""
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)
            return
        is_many = record.levelno >= logging.WARNING or len(self._lines) >= GATHER_LINES
        if is_many or self._some is None or threading.get_ident() != self._thread:
            self.flush()
        else:
            self._some.set()

    def flush(self) -> None:
        """Write the lines that wait."""
        with self.lock or nullcontext():
            text, self._lines = "".join(self._lines), []
            try:
                if self._lost and text and self._has_room():
                    told = {"levelname": "WARNING", "msg": LOST.format(self._lost)}
                    text, self._lost = f"\n{self.format(logging.makeLogRecord(told))}\n{text}", 0
                for at in range(0, len(text), PIPE_CHARS):
                    if not self._has_room():
                        self._lost += text.count("\n", at)
                        break
                    self.stream.write(text[at : at + PIPE_CHARS])
                    super().flush()
            except Exception:
                # As the standard handler: report the error on stderr, if there is one.
                self.handleError(logging.makeLogRecord({"msg": "", "args": ()}))

    def _has_room(self) -> bool:
        """Return whether the stream takes PIPE_CHARS without blocking, after a short wait."""
        return self._poll is None or bool(self._poll.poll(0 if self._lost else PATIENCE_MS))

    async def gather(self) -> None:
        """Join lines of this thread into fewer writes, until cancelled. Checkpoint: always."""
        self._thread = threading.get_ident()
        self._some = trio.Event()
        try:
            while True:
                await self._some.wait()
                await trio.sleep(GATHER_S)
                self._some = trio.Event()
                self.flush()
        finally:
            self._some = None
            self.flush()


async def gather_lines() -> None:
    """Join log lines into fewer writes, until cancelled, if ``set_up_log`` made the handler."""
    async with trio.open_nursery() as nursery:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineHandler):
                nursery.start_soon(handler.gather)


def set_up_log(level: str, format: str = "auto", stream: TextIO | None = None) -> None:
    """Log to standard error.

    Args:
      level: The lowest level to log, such as ``info``.
      format: One of FORMATS; ``auto`` = text on a terminal, else JSON.
      stream: The stream to write to; None = standard error.
    """
    stream = stream if stream is not None else sys.stderr
    is_human = format == "human" or (format == "auto" and stream.isatty())
    handler = LineHandler(stream)
    handler.setFormatter(HumanFormatter() if is_human else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
