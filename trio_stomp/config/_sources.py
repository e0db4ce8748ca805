"""The sources of option values, and how they are shown."""

import json
import re

from attrs import frozen

DEFAULT = "default"
FILE = "file"
ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_PASSWORD_IN_URL = re.compile(r"(://[^:/?#@]*:).*@")
_PASSWORD_IN_QUERY = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|secret|token)[^=&]*=)[^&]*")


@frozen
class Source:
    """The source of a value.

    Args:
      kind: ``default``, ``file``, ``environment`` or ``command line``.
      name: The file, the variable, or the flag or word.
      line: Of the file; 0 = it is not known, or there is none.
    """

    kind: str = DEFAULT
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.name:
            return self.kind
        return f"{self.name}:{self.line}" if self.line else self.name

    @property
    def place(self) -> str:
        """Return the position that an error begins with, or "" for a flag, whose name suffices."""
        return str(self) if self.kind in (FILE, ENVIRONMENT) else ""


@frozen(repr=False)
class Given:
    """A value that somebody gave, in the option's own type."""

    value: object
    source: Source


def toml(value: object) -> str:
    """Return a value as TOML: a truth, a number, a text, or a list of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def shown(value: object) -> str:
    """Return a value as TOML that may be logged: the password in a database's URL is left out."""
    if isinstance(value, str):
        value = _PASSWORD_IN_QUERY.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1***@", value))
    return toml(value)
