"""A third opinion on STOMP frames, for the fuzzer: the whole input at once, slow, obvious.

Written from the three specifications and from docs/reference/conformance.md ("Framing"), without a
look at ``trio_stomp.frames``: it has no chunks, no cache, no offsets, and no codes of errors. It
says what must come out and leaves open what the specifications do: see ``Ending``. The decoder that
the tests of the codec compare with (``_strategies.NaiveDecoder``) knows the codes as well, but was
written beside ours.
"""

import re
from collections.abc import Iterator
from enum import Enum

from attrs import frozen

COMMANDS = (
    *("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK"),
    *("BEGIN", "COMMIT", "ABORT", "DISCONNECT"),
)
ESCAPES = {
    "CONNECT": {},
    "1.0": {},
    "1.1": {r"\n": "\n", r"\c": ":", r"\\": "\\"},
    "1.2": {r"\r": "\r", r"\n": "\n", r"\c": ":", r"\\": "\\"},
}
"""Undone within headers; before CONNECT has chosen a version nothing is (F22)."""
HAS_CRLF = ("CONNECT", "1.2")
NEAR_BYTES = 4
"""How exactly a limit of bytes is known: whether line ends count is nobody's business."""
MAX_BLANK_BYTES = 4
"""A body that is so many line ends and nothing else is none (F26)."""


class Ending(Enum):
    """How an input ends."""

    BETWEEN = "between frames"
    """No refusal may have come."""
    OPEN = "in a frame that may become a good one"
    """No refusal may have come."""
    DOOMED = "in a frame that no byte can save"
    """A refusal may have come, or may come yet."""
    REFUSED = "behind a whole frame, or a head, that is wrong"
    """A refusal must have come."""
    FREE = "with what the specification leaves open"
    """Anything may have come."""


@frozen
class NaiveFrame:
    """A frame: every header once, in order, ``receipt`` too."""

    command: str
    headers: dict[str, str]
    body: bytes


@frozen
class Reading:
    """What an input must come to."""

    frames: list[NaiveFrame]
    ending: Ending


@frozen
class Bounds:
    """Limits of a frame (F40)."""

    body_bytes: int = 16 * 1024 * 1024
    headers: int = 256
    line_bytes: int = 16 * 1024
    block_bytes: int = 64 * 1024


class Wrong(Exception):
    """The frame breaks a rule."""


class Open(Exception):
    """The specification does not say."""


class More(Exception):
    """The frame is not whole."""


def read(data: bytes, version: str, bounds: Bounds) -> Reading:
    """Read ``data`` as all that a client ever sends.

    Args:
      version: ``1.0``, ``1.1``, ``1.2``; or ``CONNECT`` for what precedes the choice of one.
    """
    frames: list[NaiveFrame] = []
    while True:
        noise = re.match(rb"(?:\r?\n|\0)*", data)  # F05, F06
        assert noise
        data = data[noise.end() :]
        if not data:
            return Reading(frames, Ending.BETWEEN)
        if data == b"\r":
            return Reading(frames, Ending.OPEN)
        try:
            frame, data = read_frame(data, version, bounds)
        except More:
            can = any(is_good_head(tail, version, bounds) for tail in completions(data, version))
            return Reading(frames, Ending.OPEN if can else Ending.DOOMED)
        except Wrong:
            return Reading(frames, Ending.REFUSED)
        except Open:
            return Reading(frames, Ending.FREE)
        frames.append(frame)


def read_frame(data: bytes, version: str, bounds: Bounds) -> tuple[NaiveFrame, bytes]:
    """The frame that ``data`` begins with, and what follows it."""
    blank = find_blank(data, version)
    if blank is None:
        if data[0:1] < b"\x20" or b"\0" in data or len(data) > bounds.block_bytes:
            raise Open  # refused now or later
        raise More
    command, headers = read_head(data[: blank.start()], version, bounds)
    rest = data[blank.end() :]
    length = rest.find(b"\0")
    if command == "SEND" and "content-length" in headers:  # F27, F30
        told = headers["content-length"]
        length = read_length(told.strip() if version == "1.0" else told, bounds)
        if len(rest) <= length:
            raise More
        if rest[length : length + 1] != b"\0":  # F28
            raise Wrong
    may_have_body = command == "SEND" or version in ("CONNECT", "1.0")  # F26
    body = rest if length < 0 else rest[:length]
    if not may_have_body and (len(body) > MAX_BLANK_BYTES or body.strip(b"\r\n")):
        raise Wrong
    if may_have_body and len(body) > bounds.body_bytes:
        raise Wrong
    if length < 0:
        raise More
    return NaiveFrame(command, headers, rest[:length]), rest[length + 1 :]


def find_blank(data: bytes, version: str) -> re.Match[bytes] | None:
    """Where the head ends."""
    return re.search(rb"\n\r?\n" if version in HAS_CRLF else rb"\n\n", data)


def read_head(block: bytes, version: str, bounds: Bounds) -> tuple[str, dict[str, str]]:
    """Command and headers of a block without the blank line."""
    if len(block) > bounds.block_bytes + NEAR_BYTES or b"\0" in block:
        raise Wrong
    if len(block) > bounds.block_bytes - NEAR_BYTES:
        raise Open
    lines = block.split(b"\n")
    if version in HAS_CRLF:  # F03, F04
        lines = [line.removesuffix(b"\r") for line in lines]
        if any(b"\r" in line for line in lines):
            raise Wrong
    command, *header_lines = lines
    if command.decode("latin-1") not in COMMANDS:
        raise Open  # refused by whoever comes to it, at the latest by the session
    if len(header_lines) > bounds.headers:
        raise Wrong
    headers: dict[str, str] = {}
    for line in header_lines:
        name, text = read_line(line, version, bounds)
        headers.setdefault(name, text)  # F36
    if "\r" in headers.get("receipt", "") and version in ("CONNECT", "1.0"):
        raise Open  # no RECEIPT can carry it back (F24)
    return command.decode(), headers


def read_line(line: bytes, version: str, bounds: Bounds) -> tuple[str, str]:
    """Name and value of a header line."""
    if len(line) > bounds.line_bytes:
        raise Wrong
    name, colon, text = line.partition(b":")  # F12, F13
    if not name or not colon:  # F15, F16
        raise Wrong
    if version == "1.0":
        text = text.lstrip(b" \t")  # F10
    return unescape(name, version), unescape(text, version)


def unescape(raw: bytes, version: str) -> str:
    """Text that a client meant (F08, F17-F20, F23)."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Wrong from None
    escapes: dict[str, str] = ESCAPES[version]
    if not escapes:
        return text
    pieces = re.split(r"(\\.|\\\Z)", text, flags=re.DOTALL)
    for place in range(1, len(pieces), 2):
        if pieces[place] not in escapes:
            raise Wrong
        pieces[place] = escapes[pieces[place]]
    return "".join(pieces)


def escape(text: str, version: str) -> str:
    """The reverse (F21), one character after the other."""
    back = {meant: written for written, meant in ESCAPES[version].items()}
    return "".join(back.get(letter, letter) for letter in text)


def read_length(text: str, bounds: Bounds) -> int:
    """The value of ``content-length`` (F31)."""
    if not re.fullmatch(r"[0-9]+", text):
        raise Wrong
    number = text.lstrip("0") or "0"
    if len(number) < len(text):
        raise Open  # 007 is an integer to some
    if len(number) > 18 or int(number) > bounds.body_bytes:
        raise Wrong
    return int(number)


def is_good_head(data: bytes, version: str, bounds: Bounds) -> bool:
    """Whether ``data`` begins with a head that says nothing wrong, and nothing open."""
    try:
        read_frame(data, version, bounds)
    except More:
        return find_blank(data, version) is not None
    except (Wrong, Open):
        return False
    return True


def completions(data: bytes, version: str) -> Iterator[bytes]:
    """Ways in which a frame may go on. That there are others only makes the oracle milder."""
    yield data
    for command in COMMANDS:
        if command.encode().startswith(data):
            yield command.encode() + b"\n\n"
    # A name, an escape or a character of several bytes may have been cut.
    letters: tuple[bytes, ...] = (
        b"",
        b"\x80",
        b"\x80\x80",
        b"\x80" * 3,
        b"\xa0",
        b"\xa0\x80",
        b"\x9f\x80",
    )
    letters += (b"\x90\x80\x80", b"\x8f\x80\x80")
    escapes = (b"", b"c", b"\\") if ESCAPES[version] else (b"",)
    for letter in letters:
        for escaped in escapes:
            for end in (b"\n", b"\n\n", b":\n\n", b"x:\n\n"):
                yield data + letter + escaped + end
