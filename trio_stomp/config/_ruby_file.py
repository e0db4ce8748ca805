"""stompserver's configuration: a simple subset of YAML with Ruby symbols as keys.

    :port: 61613
    :queue: file      # a comment

This needs no YAML library. Values are strings, numbers or booleans.
"""

import re
from collections.abc import Mapping

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.config._toml_file import read_bytes

Value = bool | int | str | None

_NOTHING = re.compile(r"\s*(?:#.*|---\s*(?:#.*)?|\.\.\.\s*)?")
_SETTING = re.compile(r":([A-Za-z_][A-Za-z0-9_]*)[ \t]*:(?:[ \t]+(.*))?")
_QUOTED = re.compile(r"""(?:"([^"\\]*)"|'((?:[^']|'')*)')[ \t]*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*$")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")

_WORDS: tuple[tuple[frozenset[str], bool | None], ...] = (
    (frozenset({"true", "yes", "on"}), True),
    (frozenset({"false", "no", "off"}), False),
    (frozenset({"", "~", "null"}), None),
)
_NOT_SIMPLE = ("[", "{", "&", "*", "!", "|", ">", "%", "@", "`", '"', "'", "- ")
"""Matches the start of a value that is not a plain scalar."""


@frozen(repr=False)
class RubyFile:
    """The settings of a file, in order.

    Args:
      lines: The line of each setting.
    """

    path: str
    values: Mapping[str, Value]
    lines: Mapping[str, int]

    def location(self, key: str) -> str:
        """Return the position of a setting, for the start of an error."""
        return f"{self.path}:{self.lines[key]}" if key in self.lines else self.path


def read_ruby_file(path: str) -> RubyFile:
    """Read stompserver's configuration.

    Raises:
      OptionError: the file cannot be read, or a line is not ``:key: value``; the text names the
        file and the line.

    Limits: ``MAX_FILE_BYTES``.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OptionError(f"{path}: the text is not UTF-8") from None
    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _NOTHING.fullmatch(line):
            continue
        found = _SETTING.fullmatch(line.rstrip())
        if found is None:
            raise OptionError(
                f"{path}:{number}: {line.strip()[:60]!r} is no :key: value{_why(line)}"
            )
        key = found.group(1)
        values[key] = _value(f"{path}:{number}: {key}", (found.group(2) or "").strip())
        lines[key] = number  # the last one counts, as in YAML
    return RubyFile(path, values, lines)


def _why(line: str) -> str:
    if line[:1] in (" ", "\t", "-"):
        return "; stompserver has no settings within settings"
    if re.match(r"[A-Za-z_]\w*:", line):
        return "; stompserver reads keys that begin with a colon, and ignores others"
    return ""


def _value(where: str, text: str) -> Value:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        double, single = quoted.groups()
        return double if double is not None else single.replace("''", "'")
    text = _COMMENT.sub("", text)
    if text.startswith(_NOT_SIMPLE):
        raise OptionError(f"{where} is {text[:60]!r}, but must be a plain text, number or truth")
    for words, value in _WORDS:
        if text.lower() in words:
            return value
    return int(text) if _INTEGER.fullmatch(text) else text
