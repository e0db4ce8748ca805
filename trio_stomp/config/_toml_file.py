"""A TOML file: its tables, and the positions of its keys."""

import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.config import _toml_lines
from trio_stomp.config._toml_lines import line_of, lines_of

MAX_FILE_BYTES = 1024 * 1024
SPLIT = "split it into files of conf.d"

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_RUBY = re.compile(r"(?:[ \t]*(?:#[^\n]*|---[^\n]*)?\n)*:[a-z_]+[ \t]*:")
"""A setting such as ``:port: 61613`` of stompserver's YAML with Ruby symbols."""


@frozen(repr=False)
class TomlFile:
    """The content of a file, with its positions.

    Args:
      lines: Line numbers by path of keys.
    """

    path: str
    text: str
    tables: Mapping[str, object]
    lines: Mapping[_toml_lines.Path, int]

    def line(self, *keys: str | int) -> int:
        """Return the line of a key or of its nearest parent, or 0."""
        return line_of(self.lines, keys)

    def location(self, *keys: str | int) -> str:
        """Return the file and that line, for the start of an error."""
        line = self.line(*keys)
        return f"{self.path}:{line}" if line else self.path


def read_toml(path: str, shorter: str = SPLIT) -> TomlFile:
    """Read a file of settings or rules.

    Args:
      path: The file.
      shorter: The remedy if it is too large.

    Raises:
      OptionError: it cannot be read, is too large, or is not TOML; the text names the file, the
        line, and the remedy for a configuration of stompserver.

    Limits: MAX_FILE_BYTES.
    """
    data = read_bytes(path, shorter)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OptionError(f"{path}:{line}: is no TOML: the text is not UTF-8") from None
    if path.lower().endswith((".yaml", ".yml")) or _RUBY.match(text.replace("\r\n", "\n")):
        raise OptionError(
            f"{path}: is YAML, as of stompserver, and settings are TOML; convert it with:"
            f" python -m trio_stomp config import {shlex.quote(path)} > trio_stomp.toml"
        )
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise OptionError(f"{path}: is nested too deep") from None
    except ValueError as error:  # invalid TOML, or a number with thousands of digits
        raise _no_toml(path, text, str(error)) from None
    return TomlFile(path, text, tables, lines_of(text))


def read_bytes(path: str, shorter: str = SPLIT) -> bytes:
    """Return the content of a settings file.

    Args:
      path: The file.
      shorter: The remedy if it is too large.

    Raises:
      OptionError: it cannot be read, or has more than MAX_FILE_BYTES.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"{path}: {reason.lower()}") from None
    if len(data) > MAX_FILE_BYTES:
        raise OptionError(f"{path}: has more than {MAX_FILE_BYTES} bytes; {shorter}")
    return data


def _no_toml(path: str, text: str, message: str) -> OptionError:
    found = _AT.search(message)
    if found is None:
        return OptionError(f"{path}: is no TOML: {message}")
    message = message[: found.start()]
    if found.group(1):
        return OptionError(
            f"{path}:{found.group(1)}: is no TOML: {message} (column {found.group(2)})"
        )
    last = text.count("\n") + (not text.endswith("\n"))
    return OptionError(f"{path}:{last}: is no TOML: {message}, where the file ends")
