"""The header rules of each protocol version.

| rules   | line end   | escapes          | padding        |
|---------|------------|------------------|----------------|
| OPENING | LF, CR LF  | none             | kept           |
| V1_0    | LF         | none             | leading cut    |
| V1_1    | LF         | ``\\n \\c \\\\``     | kept           |
| V1_2    | LF, CR LF  | ``\\r \\n \\c \\\\`` | kept           |

OPENING holds until CONNECT has chosen a version: CONNECT and CONNECTED are never escaped
(STOMP 1.2, "Value Encoding").
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from attrs import field, frozen


class Side(Enum):
    """Whose frames are decoded: this tells which of them may have a body by length."""

    CLIENT = "client"
    """Only SEND; ``receipt`` is read apart from the other headers."""
    SERVER = "server"
    """All of them."""
    EITHER = "either"
    """All of them; ``receipt`` is a header like any other."""


@frozen(eq=False)
class HeaderRules:
    """The per-version part of the codec.

    Args:
      name: What error texts call it.
      crlf: Whether CR LF ends a line (STOMP 1.2 "Augmented BNF").
      trims: Whether a value's leading space is padding (the examples of STOMP 1.0).
      escapes: Character after a backslash → character meant; empty = no escaping at all.
      carries_cr: Whether a CR can stand in a header value that we send.
      carries_lf: Whether a LF can.
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
# CR has no escape in 1.1, but is legal as it is (F25); LF is escaped.
V1_1 = HeaderRules(
    "1.1", crlf=False, trims=False, escapes=_ESCAPES_1_1, carries_cr=True, carries_lf=True
)
V1_2 = HeaderRules(
    "1.2", crlf=True, trims=False, escapes=_ESCAPES_1_2, carries_cr=True, carries_lf=True
)
