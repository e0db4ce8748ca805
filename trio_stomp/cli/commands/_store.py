"""``trio-stomp store``: inspect, check, move and compact a store."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from trio_stomp.cli._command import JSON, PROGRESS, Argument, Command, act
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import WELL, put, report, say, show_json
from trio_stomp.store import StoreError, compact, export_from, import_to, inspect, verify

DAMAGED = 1

EPILOG = """\
DIR is the --data-dir of a broker; URL its --store-url. verify, inspect and export change nothing
and may run beside the broker: they read a snapshot. import needs a new directory or an empty
database; compact needs a directory that no broker uses. The exit code is 0 on success, 1 if
something is damaged or failed, 2 for a bad option.
"""


def _run(given: argparse.Namespace) -> int:
    """Run ``store``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
    """
    try:
        return act(given)
    except BrokenPipeError:
        raise  # The reader of the output, such as `head`, closed the pipe; this is no error.
    except (StoreError, OSError) as error:
        say(f"trio-stomp store {given.command}: error: {error}", to=sys.stderr)
        return DAMAGED


def _verify(given: argparse.Namespace) -> int:
    with progress("verify", wanted=given.progress) as tell:
        found = verify(given.target, tell)
    names = ("messages", "streamed", "bytes", "records", "damage")
    result = f"{len(found.damage)} damaged" if found.damage else "nothing damaged"
    return report(
        given,
        {name: getattr(found, name) for name in names},
        *found.damage,
        f"{given.target}: {found.messages} messages, {found.streamed} in streams, "
        f"{found.bytes} bytes; {result}",
        code=DAMAGED if found.damage else WELL,
    )


def _inspect(given: argparse.Namespace) -> int:
    with progress("inspect", wanted=given.progress) as tell:
        found = inspect(given.target, tell)
    if given.json:
        show_json(found)
        return WELL
    say(f"store {found['store']}, commit {found['commit']}, next id {found['next_id']}")
    say(f"settings {len(_rows(found['settings']))}, redelivered {found['redelivered']}")
    _table(_rows(found["places"]), "messages", "bytes", "level", "place")
    _table(_rows(found["streams"]), "first", "next", "bytes", "name")
    _table(_rows(found["files"]), "bytes", "file")
    for line in _rows(found["damage"]):
        say(f"damaged: {line}")
    return WELL


def _rows(value: object) -> list[Any]:
    assert isinstance(value, list)
    return value


def _table(rows: Iterable[dict[str, object]], *columns: str) -> None:
    """Print a table: numbers aligned to the right, the name last."""
    rows = list(rows)
    if not rows:
        return
    *numbers, name = columns
    heads = "".join(f"{column:>16}" for column in numbers)
    say("", f"{heads}  {name}")
    for row in rows:
        say("".join(f"{row[column]:>16}" for column in numbers) + f"  {row[name]}")


def _export(given: argparse.Namespace) -> int:
    with progress("export", wanted=given.progress) as tell:
        lines = export_from(given.target, tell)
        if given.file == "-":
            for line in lines:
                put(f"{line}\n")
        else:
            _replace(Path(given.file), lines)
    return WELL


def _replace(target: Path, lines: Iterable[str]) -> None:
    """Write a file of this user alone, whose name never holds an incomplete one."""
    handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise


def _import(given: argparse.Namespace) -> int:
    if given.file == "-":
        return _imported(given, sys.stdin)
    with (
        Path(given.file).open(encoding="utf-8", newline="\n") as file,
        progress("import", wanted=given.progress) as tell,
    ):
        total = Path(given.file).stat().st_size
        return _imported(given, _with_progress(file, total, tell))


def _with_progress(file: TextIO, total: int, tell: Callable[[int, int], None]) -> Iterable[str]:
    done = 0
    for line in file:
        done += len(line)
        tell(min(done, total), total)
        yield line


def _imported(given: argparse.Namespace, lines: Iterable[str]) -> int:
    count = import_to(given.target, lines)
    found = dict(sorted(count.items()))
    counts = ", ".join(f"{number} {kind}" for kind, number in found.items())
    return report(given, found, f"{given.target}: {counts or 'nothing'}")


def _compact(given: argparse.Namespace) -> int:
    with progress("compact", wanted=given.progress) as tell:
        before, after = compact(given.target, tell)
    text = f"{given.target}: {before} bytes before, {after} bytes now"
    return report(given, {"bytes_before": before, "bytes_now": after}, text)


TARGET = Argument("DIR|URL", dest="target")
COMMAND = Command(
    _run,
    epilog=EPILOG,
    commands={
        "verify": Command(
            _verify,
            (TARGET, PROGRESS, JSON),
            "read everything, and report damage: file, offset, size",
        ),
        "inspect": Command(
            _inspect, (TARGET, PROGRESS, JSON), "list the contents: keys, streams, files"
        ),
        "export": Command(
            _export,
            (
                TARGET,
                PROGRESS,
                Argument("[FILE]", "write to this file (default: -, the standard)", default="-"),
            ),
            "export everything as JSON lines",
        ),
        "import": Command(
            _import,
            (
                TARGET,
                PROGRESS,
                JSON,
                Argument("[FILE]", "read from this file (default: -, the standard)", default="-"),
            ),
            "import JSON lines into an empty store",
        ),
        "compact": Command(
            _compact,
            (Argument("DIR", dest="target"), PROGRESS, JSON),
            "rewrite live records together, and free the rest of the disk",
        ),
    },
)
