"""The sources of option values, and their representation."""

import json
import re

from attrs import frozen

DEFAULT = "default"
FILE = "file"
ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_CREDENTIALS_IN_URL = re.compile(r"(://)(?!/)([^:/?#@]*:)?.*@")
_CREDENTIALS_OF_HOST = re.compile(r"^(?:[^:/?#@]*:(?!//).*|[^/]*)@")
"""The credentials in an address without a scheme."""
_PASSWORD_IN_QUERY = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|secret|token)[^=&]*=)[^&]*")


@frozen
class Source:
    """The source of a value.

    Args:
      kind: ``default``, ``file``, ``environment`` or ``command line``.
      name: The file, the variable, or the flag or word.
      line: The line in the file; 0 = unknown or none.
    """

    kind: str = DEFAULT
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.name:
            return self.kind
        return f"{self.name}:{self.line}" if self.line else self.name

    @property
    def location(self) -> str:
        """Return the position for the start of an error, or "" for a flag, whose name suffices."""
        return str(self) if self.kind in (FILE, ENVIRONMENT) else ""


@frozen(repr=False)
class Given:
    """A given value, in the type of its option."""

    value: object
    source: Source


def toml(value: object) -> str:
    """Return a boolean, number, string or list of them as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        # TOML has the escapes of JSON, but also requires one for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def shown(value: object) -> str:
    """Return a value as TOML for the log, without the credentials in URLs and addresses."""
    if isinstance(value, str):
        value = _CREDENTIALS_OF_HOST.sub("***@", _CREDENTIALS_IN_URL.sub(r"\1\2***@", value))
        value = _PASSWORD_IN_QUERY.sub(r"\1***", value)
    return toml(value)
