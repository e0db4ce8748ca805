"""The log: one line a record, for people on a terminal, as JSON for everything else."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

FORMATS = ("auto", "human", "json")

# A client's text must not forge a line of the log, nor drive the terminal that shows it.
UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}

# What every record has; whatever else it has was given with ``extra``, and is told as a field.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class HumanFormatter(logging.Formatter):
    """One line for each record; only a bug's traceback has more."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(UNPRINTABLE)


class JsonFormatter(logging.Formatter):
    """A JSON object for each record, on one line: time, level, message, and its fields.

    Fields are ``connection``, ``user``, ``remote``, ``transport``, ``reason``, where a record is
    about a connection; ``traceback`` of a bug.
    """

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        told |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def set_up_log(level: str, format: str = "auto", stream: TextIO | None = None) -> None:
    """Log to standard error.

    Args:
      level: The least level that is logged, as ``info``.
      format: One of FORMATS; ``auto`` = for people if that is a terminal.
      stream: Instead of standard error.
    """
    stream = stream if stream is not None else sys.stderr
    is_human = format == "human" or (format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter() if is_human else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
