"""One table of the limits that a client's frames can hit, run at decoder, session and wire.

An act makes the bytes that a client sends behind CONNECT of 1.2 to come so far: the last frame of
them asks for the RECEIPT ``the last``. One more than the most is refused.
"""

from collections.abc import Callable
from typing import Any

import attrs
from attrs import frozen

from tests.support.core import head_bytes
from tests.support.fakes import frame_bytes
from trio_stomp import CloseReason
from trio_stomp.frames import FrameLimits
from trio_stomp.protocol import ProtocolOptions

# The limits without an option, as docs/reference/limits.md tells them. Tests reach these numbers:
# who changes one in the code changes it here and in the document.
MAX_COMMAND_BYTES = 32
MAX_COMPOSITE = 64
MAX_DEPTH = 32
"""Levels of a selector."""
MAX_DURABLES = 10_000
MAX_GROUPS = 10_000
MAX_PENDING = 10_000
"""Events of one turn."""
MAX_TEMPORARY = 1_000
MAX_WORDS = 32
"""Words of a wildcard."""
MAX_BROWSES = MAX_PAGES = 16
REFUSALS_AT_ONCE = 256
CAPACITY = 256
"""Batches in the inbox."""
JOIN_BYTES = 256 * 1024
"""Bytes of one write."""

RECEIPT = "the last"
TO_T = ("destination", "/t")
IN_A = (TO_T, ("transaction", "a"))
Act = Callable[[int], bytes]
HEAD_CODES = ("headers-too-large", "header-line-too-long", "too-many-headers")
"""Codes for frames without a complete header block, whose receipt is unknown."""


@frozen
class Limit:
    """A limit, and how a client reaches it.

    Args:
      act: Reaches the given amount.
      most: The largest amount that is served.
      code: The code of the ERROR for one more.
      at: The lowest layer that enforces the limit: "decoder", "session", or "wire".
      options: The options that set it; none if it is fixed.
    """

    act: Act
    name: str
    most: int
    code: str
    at: str
    options: dict[str, int]
    reason: CloseReason = CloseReason.LIMIT_EXCEEDED

    def frame_limits(self) -> FrameLimits:
        """The decoder's limits."""
        return FrameLimits(**_of(FrameLimits, self.options))

    def protocol_options(self) -> ProtocolOptions:
        """The session's options."""
        return ProtocolOptions(**_of(ProtocolOptions, self.options))


def _of(kind: type[attrs.AttrsInstance], options: dict[str, int]) -> dict[str, Any]:
    return {each.name: options[each.name] for each in attrs.fields(kind) if each.name in options}


def frame(command: str, *pairs: tuple[str, str], body: bytes = b"") -> bytes:
    return frame_bytes(command, pairs, body, "1.2")


def last(command: str, *pairs: tuple[str, str], body: bytes = b"") -> bytes:
    return frame(command, *pairs, ("receipt", RECEIPT), body=body)


def subscribe(name: str, id: str = "last") -> bytes:
    """SUBSCRIBE, the last one or one before."""
    make = last if id == "last" else frame
    return make("SUBSCRIBE", ("destination", name), ("id", id))


def selecting(text: str) -> bytes:
    return last("SUBSCRIBE", TO_T, ("id", "1"), ("selector", text))


def body_by_nul(size: int) -> bytes:
    return last("SEND", TO_T, body=b"x" * size)


def body_by_length(size: int) -> bytes:
    return last("SEND", TO_T, ("content-length", f"{size}"), body=bytes(size))


def headers(count: int) -> bytes:
    return last("SEND", TO_T, *[(f"h{n}", "x") for n in range(count - 2)])


def same_header(count: int) -> bytes:
    return last("SEND", TO_T, *[("h", "x")] * (count - 2))


def header_line(size: int) -> bytes:
    return last("SEND", TO_T, ("name", "x" * (size - len("name:"))))


def header_name(size: int) -> bytes:
    return last("SEND", TO_T, ("n" * (size - 2), "x"))


def escaped_line(size: int) -> bytes:
    """Return a header line of a size. An escape counts as two bytes."""
    return last("SEND", TO_T, ("n", ":" * ((size - 2) // 2) + "x" * (size % 2)))


def receipt_line(size: int) -> bytes:
    return frame("SEND", TO_T, ("receipt", RECEIPT.ljust(size - len("receipt:"), "x")))


def header_block(size: int) -> bytes:
    bare = last("SEND", TO_T, ("a", "x" * 50), ("b", ""))
    block = len(bare) - len(b"\n\n\0")
    return last("SEND", TO_T, ("a", "x" * 50), ("b", "x" * (size - block)))


def transactions(count: int) -> bytes:
    begun = (frame("BEGIN", ("transaction", f"{number}")) for number in range(count - 1))
    return b"".join(begun) + last("BEGIN", ("transaction", "last"))


def actions(count: int) -> bytes:
    return frame("BEGIN", IN_A[1]) + frame("SEND", *IN_A) * (count - 1) + last("SEND", *IN_A)


def actions_unlike(count: int) -> bytes:
    """Return actions of several kinds, so that no run of equal ones is counted together."""
    sent = (frame("SEND", *IN_A, ("n", f"{number}")) for number in range(count - 1))
    return frame("BEGIN", IN_A[1]) + b"".join(sent) + last("ACK", ("id", "none"), IN_A[1])


def transaction_bytes(size: int) -> bytes:
    # BEGIN costs 256 and its name, each frame 256 beside its body, and their headers are the same.
    rest = size - 257 - 2 * 256 - head_bytes(IN_A)
    return frame("BEGIN", IN_A[1]) + frame("SEND", *IN_A) + last("SEND", *IN_A, body=b"x" * rest)


def subscriptions(count: int) -> bytes:
    return b"".join(subscribe("/t", f"{n}") for n in range(count - 1)) + subscribe("/t")


def wildcard_subscriptions(count: int) -> bytes:
    return b"".join(subscribe(f"/t/{n}/*", f"{n}") for n in range(count - 1)) + subscribe("/t/>")


def words(count: int) -> bytes:
    return subscribe(".".join(["a"] * (count - 1) + ["*"]))


def destinations(count: int) -> bytes:
    return b"".join(subscribe(f"/t{n}", f"{n}") for n in range(count - 1)) + subscribe("/t")


def destinations_and_a_send(count: int) -> bytes:
    before = b"".join(subscribe(f"/t{n}", f"{n}") for n in range(count - 1))
    return before + last("SEND", ("destination", "/new"))


def destination_of_send(size: int) -> bytes:
    return last("SEND", ("destination", "/" + "x" * (size - 1)))


def destination_of_subscribe(size: int) -> bytes:
    return subscribe("/" + "é" * ((size - 1) // 2) + "x" * ((size - 1) % 2))


def destination_of_wildcard(size: int) -> bytes:
    return subscribe("/" + "x" * (size - 3) + "/*")


def temporary(count: int) -> bytes:
    before = b"".join(subscribe(f"/temp-topic/{n}", f"{n}") for n in range(count - 1))
    return before + subscribe("/temp-topic/last")


def selector_bytes(size: int) -> bytes:
    return selecting("a = '" + "x" * (size - 6) + "'")


def selector_depth(depth: int) -> bytes:
    return selecting("(" * (depth - 1) + "a = 1" + ")" * (depth - 1))


def options(at: str, name: str, most: int, code: str, *acts: Act) -> list[Limit]:
    """Return the limits that an option sets."""
    return [Limit(act, name, most, code, at, {name: most}) for act in acts]


def fixed(
    act: Act, name: str, most: int, code: str, reason: CloseReason = CloseReason.LIMIT_EXCEEDED
) -> Limit:
    """Return a limit without an option."""
    return Limit(act, name, most, code, "wire", {}, reason)


TOO_LARGE = "transaction-too-large"
LIMITS = [
    *options("decoder", "max_body_bytes", 100, "body-too-large", body_by_nul, body_by_length),
    *options("decoder", "max_headers", 12, "too-many-headers", headers, same_header),
    *options("decoder", "max_header_line_bytes", 99, "header-line-too-long",
             header_line, header_name, escaped_line, receipt_line),
    *options("decoder", "max_header_block_bytes", 256, "headers-too-large", header_block),
    *options("session", "max_transactions", 3, TOO_LARGE, transactions),
    *options("session", "max_transaction_actions", 5, TOO_LARGE, actions, actions_unlike),
    *options("session", "max_transaction_bytes", 2048, TOO_LARGE, transaction_bytes),
    *options("wire", "max_subscriptions_per_connection", 5, "too-many-subscriptions",
             subscriptions, wildcard_subscriptions),
    *options("wire", "max_destination_bytes", 40, "destination-too-long",
             destination_of_send, destination_of_subscribe, destination_of_wildcard),
    *options("wire", "max_destinations", 16, "too-many-destinations",
             destinations, destinations_and_a_send),
    fixed(words, "words of a wildcard", MAX_WORDS, "invalid-wildcard"),
    fixed(temporary, "temporary destinations", MAX_TEMPORARY, "too-many-temporary-destinations"),
    fixed(selector_bytes, "selector length", 4096, "invalid-selector"),
    fixed(selector_depth, "selector depth", MAX_DEPTH, "invalid-selector",
          CloseReason.PROTOCOL_ERROR),
]  # fmt: skip


def limits_at(*places: str) -> list[Limit]:
    """The limits that these places hold."""
    return [limit for limit in LIMITS if limit.at in places]


def id_of(limit: Limit) -> str:
    """The name of a test's case."""
    return limit.act.__name__
