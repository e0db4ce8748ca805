"""Header blocks: parsing to ``Head``, and encoding of header texts."""

import re

from trio_stomp.base import CloseReason, FrameError
from trio_stomp.frames._frame import (
    DEDUP_HEADERS,
    SECRET_HEADERS,
    SEND,
    UNTIL_NUL,
    Head,
    Headers,
)
from trio_stomp.frames._limits import FrameLimits
from trio_stomp.frames._rules import HeaderRules, Side

_DEDUP_ID, _DUPL_ID = DEDUP_HEADERS
_QUOTED = 512
_SECRET = re.compile(rb"(?mi)^([ \t]*(?:%b)\b).*$" % "|".join(SECRET_HEADERS).encode())
_MAX_DIGITS = 18
MAX_BLANK_BODY_BYTES = 4
"""Size of two line ends CR LF."""


def excerpt(block: bytes) -> bytes:
    """Return the start of an invalid frame for an error: at most 512 bytes, no secrets (R13)."""
    return _SECRET.sub(rb"\1:***", block[: 4 * _QUOTED])[:_QUOTED]


def quote(line: bytes) -> str:
    """Return an invalid line for an error's message: short, printable, no secrets (R13)."""
    return repr(excerpt(line)[:60])


def _decode_text(raw: bytes, rules: HeaderRules, line: bytes, block: bytes) -> str:
    """Decode and unescape header bytes by the version's rules. Errors quote ``line``.

    Raises:
      FrameError: not UTF-8 (F08), or an escape that the version does not define (F19, F20).
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise FrameError(
            "invalid-utf8",
            f"the header line {quote(line)} is not UTF-8, as STOMP requires",
            excerpt=excerpt(block),
        ) from None
    if "\\" in text and rules.escapes:
        return _unescape(text, rules, line, block)
    return text


def _unescape(text: str, rules: HeaderRules, line: bytes, block: bytes) -> str:
    pieces = text.split("\\")
    out = [pieces[0]]
    follow = iter(pieces[1:])
    for piece in follow:
        letter, rest = piece[:1], piece[1:]
        if not piece:
            # Two consecutive backslashes; or one at the end of the line.
            after = next(follow, None)
            letter, rest = ("", "") if after is None else ("\\", after)
        meant = rules.escapes.get(letter)
        if meant is None:
            escapes = " ".join("\\" + key for key in rules.escapes)
            raise FrameError(
                "invalid-escape",
                f"the header line {quote(line)} holds the escape \\{letter}, which STOMP"
                f" {rules.name} does not define; it defines {escapes}",
                excerpt=excerpt(block),
            )
        out.append(meant)
        out.append(rest)
    return "".join(out)


def encode_text(text: str, rules: HeaderRules) -> str | None:
    """Return a header text escaped for a version, or None if it cannot carry it (F24)."""
    if "\0" in text:
        return None  # in any version
    if not rules.carries_lf and "\n" in text:
        return None
    if not rules.carries_cr and "\r" in text:
        return None
    if rules.encoding:
        return text.translate(rules.encoding)
    return text


def parse_head(
    block: bytes,
    rules: HeaderRules,
    limits: FrameLimits,
    *,
    count: int | None = None,
    side: Side = Side.CLIENT,
) -> Head:
    """Parse a header block.

    Args:
      block: The bytes of the block, without the blank line.
      rules: The header rules of the version.
      limits: The limits on headers.
      count: Number of headers of the frame, if one was removed from ``block``.
      side: The sender.

    Raises:
      FrameError: the block violates the version's rules or a limit.

    Spec: STOMP 1.2 "STOMP Frames", "Value Encoding", "Repeated Header Entries", "Size Limits".
    """
    count = block.count(b"\n") if count is None else count
    if count > limits.max_headers:
        raise FrameError(
            "too-many-headers",
            f"the frame has {count} headers, the limit is {limits.max_headers}"
            " (option max_headers)",
            reason=CloseReason.LIMIT_EXCEEDED,
            excerpt=excerpt(block),
        )
    plain = _split_plain(block, rules, limits)
    command, found = plain if plain is not None else _split_careful(block, rules, limits)
    if side is not Side.EITHER:
        found.pop("receipt", None)
    headers: Headers = tuple(found.items())
    length = UNTIL_NUL
    if "content-length" in found and (command == SEND or side is not Side.CLIENT):
        text = found["content-length"]
        length = _parse_length(text.strip() if rules.trims else text, limits, block)
    is_single = _DEDUP_ID in found or _DUPL_ID in found
    return Head(command, headers, length, found.get("destination"), is_single)


def _split_plain(
    block: bytes, rules: HeaderRules, limits: FrameLimits
) -> tuple[str, dict[str, str]] | None:
    """Return the command and headers of a block without special bytes, or None for other blocks."""
    if rules.trims or len(block) > limits.max_header_line_bytes or b"\\" in block or b"\r" in block:
        return None
    try:
        command, *lines = block.decode().split("\n")
    except UnicodeDecodeError:
        return None
    found: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name:
            return None
        if name not in found:
            found[name] = text
    return command, found


def _split_careful(
    block: bytes, rules: HeaderRules, limits: FrameLimits
) -> tuple[str, dict[str, str]]:
    """Return the command and headers of any block.

    Raises:
      FrameError: as ``parse_head``.
    """
    lines = block.split(b"\n")
    if rules.crlf:
        lines = [_without_cr(line, block) for line in lines]
    command = _decode_text(lines[0], rules, lines[0], block)
    found: dict[str, str] = {}
    for line in lines[1:]:
        name, text = _parse_line(line, rules, limits, block)
        found.setdefault(name, text)
    return command, found


def _without_cr(line: bytes, block: bytes) -> bytes:
    if line.endswith(b"\r"):
        line = line[:-1]
    if b"\r" in line:
        raise FrameError(
            "bare-carriage-return",
            f"the line {quote(line)} holds a carriage return that ends no line; STOMP 1.2 allows"
            " it only before a line feed, or escaped as \\r",
            excerpt=excerpt(block),
        )
    return line


def _parse_line(
    line: bytes, rules: HeaderRules, limits: FrameLimits, block: bytes
) -> tuple[str, str]:
    if len(line) > limits.max_header_line_bytes:
        raise FrameError(
            "header-line-too-long",
            f"a header line has {len(line)} bytes, the limit is {limits.max_header_line_bytes}"
            " (option max_header_line_bytes)",
            reason=CloseReason.LIMIT_EXCEEDED,
            excerpt=excerpt(block),
        )
    name, colon, text = line.partition(b":")
    if not colon or not name:
        what = "an empty name" if colon else "no colon"
        raise FrameError(
            "invalid-header",
            f"the header line {quote(line)} has {what}; headers are written name:value",
            excerpt=excerpt(block),
        )
    if rules.trims:
        text = text.lstrip(b" \t")
    return _decode_text(name, rules, line, block), _decode_text(text, rules, line, block)


def parse_receipt(
    line: bytes, rules: HeaderRules, limits: FrameLimits, block: bytes
) -> bytes | None:
    """Return the id of a ``receipt`` line: decoded, checked and escaped for the RECEIPT (R01).

    Returns:
      The id; None if it is empty in STOMP 1.0, which has no empty values (F14).

    Raises:
      FrameError: the line is invalid, or the id cannot be sent back.
    """
    if rules.crlf:
        line = _without_cr(line, block)
    _, text = _parse_line(line, rules, limits, block)
    written = encode_text(text, rules)
    if written is None:
        raise FrameError(
            "bare-carriage-return",
            "the receipt header holds a carriage return, which STOMP"
            f" {rules.name} cannot send back; end lines with a line feed alone",
            excerpt=excerpt(block),
        )
    return written.encode() if written or not rules.trims else None


def _parse_length(text: str, limits: FrameLimits, block: bytes) -> int:
    """Parse a ``content-length`` (F31), and check its limit before memory is allocated."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise FrameError(
            "invalid-content-length",
            f"content-length:{text[:40]} is not a number of octets; write decimal digits only",
            excerpt=excerpt(block),
        )
    length = int(text)
    if length > limits.max_body_bytes:
        raise body_too_large(f"content-length:{length}", limits, block)
    return length


def is_blank(body: bytes) -> bool:
    """Return whether a body has line ends only, which many clients send before the NUL."""
    return len(body) <= MAX_BLANK_BODY_BYTES and not body.strip(b"\r\n")


def body_too_large(what: str, limits: FrameLimits, block: bytes) -> FrameError:
    """Return the error for a body over the limit (F40). ``what`` begins its text."""
    return FrameError(
        "body-too-large",
        f"{what} is more than {limits.max_body_bytes} bytes, which is the limit for a body"
        " (option max_body_bytes)",
        reason=CloseReason.LIMIT_EXCEEDED,
        excerpt=excerpt(block),
    )


def missing_nul(length: int, block: bytes) -> FrameError:
    """Return the error of a body that does not end after ``length`` bytes."""
    # Programs that send a message on with the headers of the one they got have two lengths.
    is_repeated = block.count(b"\ncontent-length:") > 1
    hint = "; it is there more than once, and the first one counts" if is_repeated else ""
    return FrameError(
        "missing-nul",
        f"no NUL follows the {length} bytes of body that content-length announces{hint}",
        excerpt=excerpt(block),
    )
