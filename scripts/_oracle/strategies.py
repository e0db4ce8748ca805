"""Frames and byte streams for hypothesis, and a second codec to compare ours with.

The second decoder goes one byte at a time, keeps no cache and no offsets, and was written from
the specification and from the docstrings of ``trio_stomp.frames``: slow, and easy to verify.
"""

from collections.abc import Iterable
from itertools import pairwise

from attrs import define, field, frozen
from hypothesis import strategies as st

from _oracle.server_frames import read_frames
from trio_stomp.frames import (
    OPENING,
    V1_0,
    V1_1,
    V1_2,
    AckRun,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    HeaderRules,
    Headers,
)

VERSIONS = (V1_0, V1_1, V1_2)
ALL_RULES = (OPENING, *VERSIONS)
SMALL = FrameLimits(
    max_body_bytes=20, max_headers=3, max_header_line_bytes=20, max_header_block_bytes=64
)

ERROR_CODES = frozenset(
    {
        "bare-carriage-return", "body-not-allowed", "body-too-large", "header-line-too-long",
        "headers-too-large", "invalid-command", "invalid-content-length", "invalid-escape",
        "invalid-header", "invalid-utf8", "missing-blank-line", "missing-nul", "too-many-headers",
    }
)  # fmt: skip
"""The codes of all errors of the decoder."""


# Feeding the decoder.


@frozen
class Decoded:
    """The output of a decoder."""

    frames: list[Frame]
    code: str | None
    receipt_id: bytes | None


def frames_in(run: FrameRun | AckRun) -> list[Frame]:
    """Return the frames of a run of any kind."""
    if isinstance(run, AckRun):
        return [Frame("ACK", (("id", name.decode()),)) for name in run.ids]
    return list(run.frames())


def frames_of(decoder: FrameDecoder, chunks: Iterable[bytes]) -> list[Frame]:
    """Feed ``chunks``, and continue after each CONNECT as a session does."""
    frames = []
    for chunk in chunks:
        runs = decoder.receive_data(chunk)
        while runs:
            frames += [frame for run in runs for frame in frames_in(run)]
            runs = decoder.receive_data(b"") if decoder.rules is OPENING else []
    return frames


def outcome(decoder: FrameDecoder, chunks: Iterable[bytes]) -> Decoded:
    """Return the result of ``chunks``, errors included."""
    frames = frames_of(decoder, chunks)
    error = decoder.error
    if error is None:
        return Decoded(frames, None, None)
    return Decoded(frames, error.code, error.receipt_id)


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return ``data`` cut at some positions, in or out of range."""
    borders = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[begin:end] for begin, end in pairwise(borders)]


def chunkings(data: bytes) -> list[list[bytes]]:
    """Return ``data`` whole, byte by byte, and in two at each position."""
    single = [data[i : i + 1] for i in range(len(data))]
    return [[data], single, *([data[:i], data[i:]] for i in range(1, len(data)))]


# The naive decoder.


class Refusal(Exception):
    """An error of the naive decoder: its code, and the requested receipt."""

    def __init__(self, code: str, receipt_id: bytes | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.receipt_id = receipt_id


def naive_decode(data: bytes, rules: HeaderRules, limits: FrameLimits) -> Decoded:
    """Decode ``data`` byte by byte."""
    decoder = NaiveDecoder(rules, limits)
    try:
        for byte in data:
            decoder.push(bytes([byte]))
    except Refusal as refusal:
        return Decoded(decoder.frames, refusal.code, refusal.receipt_id)
    return Decoded(decoder.frames, None, None)


@define
class NaiveDecoder:
    """A decoder that processes one byte at a time."""

    rules: HeaderRules
    limits: FrameLimits
    frames: list[Frame] = field(factory=list)
    between: bytes = b""
    head: bytes = b""
    parsed: Frame | None = None
    length: int | None = None
    body: bytes = b""

    def push(self, byte: bytes) -> None:
        """Process one byte."""
        if self.parsed is not None:
            self._push_body(self.parsed, byte)
        elif self.head:
            self._push_head(byte)
        else:
            self._push_noise(byte)

    def _push_noise(self, byte: bytes) -> None:
        if self.between == b"\r" and byte != b"\n":
            raise Refusal("bare-carriage-return")
        self.between = byte
        if byte not in (b"\n", b"\r", b"\0"):
            if byte <= b"\r":
                raise Refusal("invalid-command")
            self.head = byte

    def _push_head(self, byte: bytes) -> None:
        self.head += byte
        limit = self.limits.max_header_block_bytes
        if byte == b"\0":
            raise Refusal("missing-blank-line")
        for end in (b"\n\r\n", b"\n\n") if self.rules.crlf else (b"\n\n",):
            if self.head.endswith(end):
                block = self.head.removesuffix(end)
                if len(block) > limit:
                    raise Refusal("headers-too-large")
                self.parsed, self.length = naive_parse(block, self.rules, self.limits)
                return
        if len(self.head) == 33 and b"\n" not in self.head:
            raise Refusal("invalid-command")
        if len(self.head) >= limit + 3:
            raise Refusal("headers-too-large")

    def _push_body(self, frame: Frame, byte: bytes) -> None:
        if self.length is not None:
            if len(self.body) == self.length:
                if byte != b"\0":
                    raise Refusal("missing-nul", frame.receipt)
                self._finish(frame)
            else:
                self.body += byte
        elif byte == b"\0":
            self._finish(frame)
        else:
            self.body += byte
            if frame.command in NO_BODY and self.rules in (V1_1, V1_2):
                if len(self.body) > MAX_BLANK_BYTES or self.body.strip(b"\r\n"):
                    raise Refusal("body-not-allowed", frame.receipt)
            elif len(self.body) > self.limits.max_body_bytes:
                raise Refusal("body-too-large", frame.receipt)

    def _finish(self, frame: Frame) -> None:
        self.frames.append(Frame(frame.command, frame.headers, self.body, frame.receipt))
        self.between = self.head = self.body = b""
        self.parsed = self.length = None


MAX_BLANK_BYTES = 4
"""A body of at most this many line ends and nothing else counts as none (F26)."""
NO_BODY = {"CONNECT", "STOMP", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT"}
NO_BODY |= {"ABORT", "DISCONNECT"}


def naive_parse(block: bytes, rules: HeaderRules, limits: FrameLimits) -> tuple[Frame, int | None]:
    """Return a frame without its body, and the body's length if there is a content-length."""
    command, *lines = block.split(b"\n")
    places = [i for i, line in enumerate(lines) if line.startswith(b"receipt:")]
    asks = lines.pop(places[0]) if places else None
    receipt = None if asks is None else naive_receipt(asks, rules, limits)
    try:
        if len(lines) + len(places[:1]) > limits.max_headers:
            raise Refusal("too-many-headers")
        lines = [naive_line(line, rules) for line in lines]
        name = naive_text(naive_line(command, rules), rules)
        pairs = [naive_header(line, rules, limits) for line in lines]
        headers: list[tuple[str, str]] = []
        for key, text in pairs:
            if key != "receipt" and key not in [seen for seen, _ in headers]:
                headers.append((key, text))
        length = None
        if name == "SEND" and "content-length" in dict(headers):
            length = naive_length(dict(headers)["content-length"], limits)
    except Refusal as refusal:
        raise Refusal(refusal.code, receipt) from None
    return Frame(name, tuple(headers), b"", receipt), length


def naive_line(line: bytes, rules: HeaderRules) -> bytes:
    """Return a line without its line end."""
    if rules.crlf:
        line = line.removesuffix(b"\r")
        if b"\r" in line:
            raise Refusal("bare-carriage-return")
    return line


def naive_header(line: bytes, rules: HeaderRules, limits: FrameLimits) -> tuple[str, str]:
    """Return name and value."""
    if len(line) > limits.max_header_line_bytes:
        raise Refusal("header-line-too-long")
    if line.find(b":") < 1:
        raise Refusal("invalid-header")
    name, text = line.split(b":", 1)
    if rules is V1_0:
        text = text.lstrip(b" \t")
    return naive_text(name, rules), naive_text(text, rules)


def naive_text(raw: bytes, rules: HeaderRules) -> str:
    """Return unescaped text."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal("invalid-utf8") from None
    known = {V1_1: "nc\\", V1_2: "rnc\\"}.get(rules)
    if known is None:
        return text
    result = ""
    follow = iter(text)
    for letter in follow:
        if letter == "\\":
            letter = next(follow, "?")
            if letter not in known:
                raise Refusal("invalid-escape")
            letter = {"n": "\n", "c": ":", "r": "\r", "\\": "\\"}[letter]
        result += letter
    return result


def naive_escape(text: str, rules: HeaderRules) -> str:
    """Return escaped text, the reverse of ``naive_text``."""
    if rules in (V1_1, V1_2):
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
    return text.replace("\r", "\\r") if rules is V1_2 else text


def naive_receipt(line: bytes, rules: HeaderRules, limits: FrameLimits) -> bytes | None:
    """Return the receipt as the broker sends it."""
    _, text = naive_header(naive_line(line, rules), rules, limits)
    if rules is V1_0 and not text:
        return None
    if rules in (V1_0, OPENING) and "\r" in text:
        raise Refusal("bare-carriage-return")
    return naive_escape(text, rules).encode()


def naive_length(text: str, limits: FrameLimits) -> int:
    """Return the value of a content-length header."""
    if not text or len(text) > 18 or any(letter not in "0123456789" for letter in text):
        raise Refusal("invalid-content-length")
    if int(text) > limits.max_body_bytes:
        raise Refusal("body-too-large")
    return int(text)


def read_server_frames(wire: bytes, rules: HeaderRules) -> list[Frame]:
    """Return a server's frames as a client reads them, with ``content-length`` if present."""
    pad = " \t" if rules is V1_0 else ""
    return [
        Frame(each.command, tuple((key, text.lstrip(pad)) for key, text in each.headers), each.body)
        for each in read_frames(wire, rules.name, repeats=True)
    ]


# Strategies.


def header_texts(rules: HeaderRules, *, is_name: bool) -> st.SearchStrategy[str]:
    """Return texts that a header of this version can carry, often with difficult characters."""
    forbidden = "\0"
    if rules in (OPENING, V1_0):
        forbidden += "\r\n" + (":" if is_name else "")
    special = st.sampled_from([letter for letter in ':\\\r\n\t é€😀"' if letter not in forbidden])
    plain = st.characters(codec="utf-8", exclude_characters=forbidden)
    texts = st.text(special | plain, min_size=int(is_name or rules is V1_0), max_size=12)
    if rules is V1_0 and not is_name:
        # Leading space is padding there, and an empty value is none.
        texts = texts.map(lambda text: text.lstrip(" \t")).filter(bool)
    return texts


def header_lists(rules: HeaderRules) -> st.SearchStrategy[Headers]:
    """Return unique headers, without names that the codec uses."""
    pairs = st.tuples(header_texts(rules, is_name=True), header_texts(rules, is_name=False))
    listed = st.lists(pairs, max_size=6, unique_by=lambda pair: pair[0])
    reserved = {"content-length", "receipt"}
    return listed.map(lambda found: tuple(pair for pair in found if pair[0] not in reserved))


def frames(rules: HeaderRules) -> st.SearchStrategy[Frame]:
    """Return frames that a client may send in this version."""
    bodies = st.binary(max_size=40) | st.sampled_from(
        [b"\0", b"\n\n\0", b"\r\n\r\n", b"\0SEND\n\n\0"]
    )
    commands = st.sampled_from(["SEND", "SEND", "SUBSCRIBE", "DISCONNECT", "FOO"])
    return st.builds(
        lambda command, headers, body: Frame(command, headers, body if command == "SEND" else b""),
        commands,
        header_lists(rules),
        bodies,
    )


_COMMANDS = [b"SEND", b"SEND", b"SUBSCRIBE", b"CONNECT", b"DIAG", b"send", b"MESSAGE", b"S\xffND"]
_COMMANDS += [b"ACK", b"ACK", b"NACK", b"BEGIN", b"COMMIT", b"ABORT"]
_LINES = [
    *[
        b"destination:/a", b"destination: /b", b"a:b", b"a:\\c", b"a:\\t", b"a:\\", b"a:b\rc",
        b"a:\r",
    ],
    *[b"content-length:0", b"content-length:3", b"content-length:20", b"content-length:21"],
    *[b"content-length:-1", b"content-length: 2", b"content-length:9999999999999999999"],
    *[b"receipt:r-1", b"receipt:a\\cb:c", b"receipt:a\\r", b"receipt:", b"receipt: x"],
    *[b"receipt:a\rb", b"receipt:\xff", b"receipt:0123456789ab", b"receipt:0123456789abc"],
    *[b"id:1.a-2", b"id:1\\c2", b"id:", b"subscription:s", b"message-id:m"],
    *[b"transaction:t", b"transaction:t", b"transaction:", b"requeue:false"],
    *[b":x", b"x", b"\xff:x", b"\xc3\xa9:\\\\", b"0123456789:0123456789", b"", b"\0"],
]  # fmt: skip
_ENDS = [b"\n", b"\n", b"\n", b"\r\n", b"\r\n", b"\r"]
_BODIES = [b"", b"", b"", b"hi", b"\0\0\0", b"\n", b"a\n\nb", b"\r\n\r\n", b"0123456789" * 2]
_NOISE = [b"", b"", b"\n", b"\r\n", b"\r", b"\0", b"\x01", b"A" * 33]


@st.composite
def _near_frames(draw: st.DrawFn) -> bytes:
    """Return a frame, valid or with one or two faults."""
    lines = [draw(st.sampled_from(_COMMANDS)), *draw(st.lists(st.sampled_from(_LINES), max_size=4))]
    eol = draw(st.sampled_from([b"\n", b"\r\n"]))
    if draw(st.booleans()):
        head = eol.join(lines) + eol + eol
    else:
        head = b"".join(line + draw(st.sampled_from(_ENDS)) for line in [*lines, b""])
    return head + draw(st.sampled_from(_BODIES)) + b"\0" + draw(st.sampled_from(_NOISE))


def streams() -> st.SearchStrategy[bytes]:
    """Return valid and nearly valid frames, repetitions and noise."""
    pieces = st.lists(_near_frames(), min_size=1, max_size=3)
    good = st.sampled_from(
        [
            b"SUBSCRIBE\nid:1\n\n\0",
            b"SEND\r\ndestination:/a\r\n\r\nhi\0",
            b"ACK\nid:a.b-7\n\n\0",
            b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0SEND\ndestination:/a\n\n\0",
            b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/a\ntransaction:t\n\n1\0",
        ]
    )
    return st.builds(
        lambda frames, known, noise: b"".join([known, *frames, known, frames[0], noise]),
        pieces,
        good | st.just(b""),
        st.binary(max_size=6) | st.just(b""),
    )


def cuts() -> st.SearchStrategy[list[int]]:
    """Return positions at which to cut a stream."""
    return st.lists(st.integers(0, 400), max_size=8)
