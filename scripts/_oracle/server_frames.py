"""A strict and slow reader of a server's frames that shares no code with our codec.

An AssertionError says where the bytes are not valid frames of this broker.
"""

from collections.abc import Iterable

from attrs import frozen

COMMANDS = ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR", "DIAG")
ESCAPES: dict[str, dict[str, str]] = {
    "CONNECT": {},  # before there is a version, and in CONNECTED
    "1.0": {},
    "1.1": {"\\n": "\n", "\\c": ":", "\\\\": "\\"},
    "1.2": {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"},
}
Pairs = tuple[tuple[str, str], ...]


@frozen
class Received:
    """A frame from the broker, as bytes and unescaped."""

    command: str
    headers: Pairs
    body: bytes
    raw: bytes

    def __getitem__(self, name: str) -> str:
        return next(text for key, text in self.headers if key == name)

    def get(self, name: str) -> str | None:
        """Return the first header ``name``, or None."""
        return next((text for key, text in self.headers if key == name), None)

    @property
    def names(self) -> list[str]:
        """Return the header names in order."""
        return [key for key, _ in self.headers]

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode()


class FrameReader:
    """Reads frames from data in pieces."""

    def __init__(self, version: str = "1.0") -> None:
        self.version = version  # until CONNECTED arrives
        self.heartbeats = 0
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Add received data."""
        self._buffer += data

    @property
    def rest(self) -> bytes:
        """Return the bytes of an incomplete frame."""
        return self._buffer

    def next(self) -> Received | None:
        """Return the next complete frame, or None."""
        while self._buffer.startswith(b"\n"):
            self._buffer = self._buffer[1:]
            self.heartbeats += 1
        frame = read_frame(self._buffer, 0, self.version)
        if frame is not None:
            self._buffer = self._buffer[len(frame.raw) :]
        return frame


def read_frames(data: bytes, version: str, *, repeats: bool = False) -> list[Received]:
    """Return all frames of complete data. A header may be repeated if a test sent it so."""
    frames: list[Received] = []
    place = 0
    while place < len(data):
        frame = read_frame(data, place, version, repeats=repeats)
        assert frame is not None, data[place : place + 200]
        frames.append(frame)
        place += len(frame.raw)
    return frames


def read_frame(data: bytes, start: int, version: str, *, repeats: bool = False) -> Received | None:
    """Return the frame at an offset, or None if it is incomplete."""
    blank = data.find(b"\n\n", start)
    if blank < 0:
        return None
    command, *lines = data[start:blank].decode().split("\n")
    assert command in COMMANDS, data[start:blank]
    # CONNECTED is never escaped (F22).
    headers = tuple(
        _read_line(line, "1.0" if command == "CONNECTED" else version) for line in lines
    )
    names = [name for name, _ in headers]
    assert repeats or len(set(names)) == len(names), f"repeated header: {names}"
    body = blank + 2
    result = dict(reversed(headers)).get("content-length")
    end = data.find(b"\0", body) if result is None else body + int(result)
    if end < 0 or len(data) < end + 2:
        return None
    assert data[end : end + 2] == b"\0\n", "no NUL and line feed behind the body"
    return Received(command, headers, data[body:end], data[start : end + 2])


def _read_line(line: str, version: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    assert name, line
    assert colon, line
    assert text or version != "1.0", f"an empty value in 1.0: {line}"
    assert ":" not in text or not ESCAPES[version], f"an unescaped colon: {line}"
    if version != "1.1":
        assert "\r" not in line, line
    return unescape(name, version), unescape(text, version)


def unescape(text: str, version: str) -> str:
    """Return unescaped header text."""
    if "\\" not in text:
        return text  # letter by letter, a long one takes a while
    out, table = "", ESCAPES[version]
    while table and text:
        step = 2 if text[0] == "\\" else 1
        out += table[text[:2]] if step == 2 else text[0]
        text = text[step:]
    return out + text


def escape(text: str, version: str) -> str:
    """Return header text as a client of ``version`` writes it."""
    table = {meant: written for written, meant in ESCAPES[version].items()}
    return "".join(table.get(letter, letter) for letter in text)


def bodies(frames: Iterable[Received]) -> list[bytes]:
    """Return the bodies of the MESSAGEs among ``frames``."""
    return [frame.body for frame in frames if frame.command == "MESSAGE"]
