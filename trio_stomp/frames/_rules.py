r"""The header rules of each protocol version.

| rules   | line end   | escapes          | padding        |
|---------|------------|------------------|----------------|
| OPENING | LF, CR LF  | none             | kept           |
| V1_0    | LF         | none             | leading cut    |
| V1_1    | LF         | ``\n \c \\``     | kept           |
| V1_2    | LF, CR LF  | ``\r \n \c \\`` | kept           |

OPENING applies until CONNECT has negotiated a version: CONNECT and CONNECTED are never escaped
(STOMP 1.2, "Value Encoding").
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from attrs import field, frozen


class Side(Enum):
    """The sender of frames, which decides which of them may have a body by length."""

    CLIENT = "client"
    """Only SEND may; ``receipt`` is separated from the other headers."""
    SERVER = "server"
    """All frames may."""
    EITHER = "either"
    """All frames may; ``receipt`` is a header like any other."""


@frozen(eq=False)
class HeaderRules:
    """The per-version part of the codec.

    Args:
      name: The version's name in error texts.
      crlf: Whether CR LF may end a line (STOMP 1.2 "Augmented BNF").
      trims: Whether a value's leading spaces are padding (the examples of STOMP 1.0).
      escapes: The meaning of each character after a backslash; empty = no escapes.
      carries_cr: Whether header values may have a CR when sent.
      carries_lf: Whether they may have an LF.
      encoding: The escape for each code point.
    """

    name: str
    crlf: bool
    trims: bool
    escapes: Mapping[str, str]
    carries_cr: bool
    carries_lf: bool
    encoding: dict[int, str] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        table = {ord(meant): "\\" + letter for letter, meant in self.escapes.items()}
        object.__setattr__(self, "encoding", table)


_ESCAPES_1_1 = MappingProxyType({"n": "\n", "c": ":", "\\": "\\"})
_ESCAPES_1_2 = MappingProxyType({"r": "\r", **_ESCAPES_1_1})
_NONE: Mapping[str, str] = MappingProxyType({})

OPENING = HeaderRules(
    "CONNECT", crlf=True, trims=False, escapes=_NONE, carries_cr=False, carries_lf=False
)
V1_0 = HeaderRules("1.0", crlf=False, trims=True, escapes=_NONE, carries_cr=False, carries_lf=False)
# CR has no escape in 1.1, but is allowed unescaped (F25); LF is escaped.
V1_1 = HeaderRules(
    "1.1", crlf=False, trims=False, escapes=_ESCAPES_1_1, carries_cr=True, carries_lf=True
)
V1_2 = HeaderRules(
    "1.2", crlf=True, trims=False, escapes=_ESCAPES_1_2, carries_cr=True, carries_lf=True
)
