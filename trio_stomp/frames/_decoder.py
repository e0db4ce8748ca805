"""Bytes → frames: incremental, in linear time, with limits checked before memory is allocated.

It is optimized for many frames in one chunk, whose cost is near that of slicing their bodies, by a
cache of header blocks and by runs; and for one frame in many chunks, whose cost does not depend on
earlier chunks, because no byte is searched twice: an incomplete frame is buffered with the position
searched so far and the number of bytes needed to continue.
"""

import re

from attrs import define, field

from trio_stomp.base import UNBOUNDED, CloseReason, FrameError
from trio_stomp.frames._frame import (
    CLIENT_COMMANDS,
    CONNECT,
    CONNECTED,
    DISCONNECT,
    SEND,
    STOMP,
    UNESCAPED,
    UNTIL_NUL,
    AckRun,
    FrameRun,
    Head,
)
from trio_stomp.frames._headers import (
    MAX_BLANK_BODY_BYTES,
    body_too_large,
    excerpt,
    is_blank,
    missing_nul,
    parse_head,
    parse_receipt,
    quote,
)
from trio_stomp.frames._limits import FrameLimits
from trio_stomp.frames._rules import OPENING, V1_0, V1_2, HeaderRules, Side

MAX_COMMAND_BYTES = 32
"""Maximum length of a command line (RabbitMQ's limit, F41)."""
PIECE_BYTES = 16 * 1024
"""Smaller pieces of an incomplete frame are joined, to save an object for each."""

_NOISE = re.compile(rb"[\n\0]*+(?:\r\n[\n\0]*+)*+")
_PLAIN = re.compile(rb"[A-Za-z0-9._/+=#@-]+")
"""A receipt id that no version escapes or trims."""
_PLAIN_ACK = re.compile(rb"ACK\nid:([A-Za-z0-9._/+=#@-]{1,125})\n\n\0")
"""The ACK of STOMP 1.2 as clients write it: the hot frame of a consumer."""
_PLAIN_ACKS = re.compile(rb"(?:[\n\0]*+ACK\nid:[A-Za-z0-9._/+=#@-]{1,125}\n\n\0)++")
"""A sequence of such ACKs: two passes in C cost less than a step for each."""
_A = ord("A")
_PLAIN_ACK_LINE_BYTES = 128
"""Maximum length of its header line. With a lower limit on lines the fast path is off."""
_BODILESS = CLIENT_COMMANDS - {SEND}
_OPENERS = frozenset({CONNECT, STOMP})
_CLOSERS = frozenset({DISCONNECT})
_ANSWERS = frozenset({CONNECTED})
_UNESCAPED = frozenset(command.encode() for command in UNESCAPED)
_BLANK_ENDS = (b"\n\n", b"\0", b"\n\r\n")
"""Terminators of a header block; the last one only if CR LF may end a line."""
_NO_TERMINATORS: tuple[bytes, ...] = ()
"""A typed constant: after an assignment of ``()`` mypyc would infer an empty tuple."""
_BLANK_BYTES = 3
"""An incomplete block may end with two bytes of the blank line, so it exceeds the limit for certain
if it has this many bytes more."""
_FAR = 1 << 62
"""Position of a blank line that was not found: beyond every block that may be cached."""
_RUN_WORK = 32
"""The work of beginning a run, in bytes of a header block to be parsed: some 9 µs with all that
follows from it. A frame that continues a run costs next to nothing."""


@define(eq=False)
class HeadCache:
    """Parsed header blocks, shared by all decoders with the same version and limits.

    The number of entries and their size are limited. A full cache is emptied: frequent blocks are
    back within microseconds.
    """

    max_entries: int = 4096
    max_block_bytes: int = 1024
    max_block_headers: int = 32
    heads: dict[bytes, Head] = field(factory=dict)

    def put(self, block: bytes, head: Head) -> None:
        """Cache ``head`` for ``block``, unless it is too large."""
        # A parsed header takes at least a hundred bytes, so their number is limited too.
        if len(block) <= self.max_block_bytes and len(head.headers) <= self.max_block_headers:
            if len(self.heads) >= self.max_entries:
                self.heads.clear()
            self.heads[block] = head


@define(eq=False)
class HeldBytes:
    """A buffer that returns all its bytes at once.

    No memory is allocated for announced bytes. A growing body is not copied repeatedly: unless the
    bytes are to be searched, large pieces are joined only by ``take``.

    Args:
      start: The first bytes; all bytes while they are to be searched.
      size: Number of bytes.
    """

    start: bytearray = field(factory=bytearray)
    size: int = 0
    _pieces: list[bytes | bytearray] = field(factory=list)
    """The bytes after ``start``."""

    def add(self, data: bytes, *, searched: bool) -> None:
        """Append bytes.

        Args:
          data: The bytes.
          searched: Append them to ``start``; requires that all earlier bytes were.
        """
        self.size += len(data)
        pieces = self._pieces
        if len(data) >= PIECE_BYTES and not searched:
            pieces.append(data)
        elif not pieces:
            self.start += data
        elif isinstance(last := pieces[-1], bytearray):
            last += data
        else:
            pieces.append(bytearray(data))

    def take(self) -> bytes:
        """Return all bytes, and clear the buffer."""
        data = b"".join((self.start, *self._pieces)) if self._pieces else bytes(self.start)
        self.start.clear()
        self._pieces.clear()
        self.size = 0
        return data


@define(eq=False)
class FrameDecoder:
    """The decoder of one peer's bytes, frame by frame.

    Handles: line ends, escapes, repeated headers, bodies by length or by NUL, line ends and NULs
    between frames, all limits of ``FrameLimits``. Does not handle: the meaning of commands, and
    required headers.

    Args:
      limits: Limits on one frame.
      cache: Parsed blocks, shared only with decoders of the same rules and limits.
      rules: OPENING until ``use`` sets the negotiated version. With OPENING, ``receive_data`` stops
        after a client's CONNECT or a server's CONNECTED, as other rules may follow.
      reopens: Whether another CONNECT may follow a DISCONNECT; then it stops there too.
      side: The sender. EITHER never stops: its version is known from the start, and CONNECT and
        CONNECTED are recognized. Only header blocks of clients are cached.
    """

    limits: FrameLimits
    cache: HeadCache
    rules: HeaderRules = OPENING
    reopens: bool = False
    side: Side = Side.CLIENT
    error: FrameError | None = None
    """Set when the bytes cannot be decoded any further. Later bytes are ignored."""
    has_more: bool = False
    """Whether decoding stopped for its bound on work. Continue with ``receive_data(b"")``."""
    _held: HeldBytes = field(factory=HeldBytes)
    _scanned: int = 0
    _needed: int = 0
    _terminators: tuple[bytes, ...] = _NO_TERMINATORS
    _stoppers: frozenset[str] = field(init=False)
    """Commands after which other rules may apply. Decoding stops there until ``use``."""
    _has_plain_acks: bool = field(init=False)
    _is_of_client: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._note_rules()

    def _note_rules(self) -> None:
        within_limits = self.limits.takes_lines_of(_PLAIN_ACK_LINE_BYTES)
        self._is_of_client = self.side is Side.CLIENT
        self._has_plain_acks = self._is_of_client and self.rules is V1_2 and within_limits
        self._stoppers = frozenset()
        if self.rules is OPENING and self.side is not Side.EITHER:
            self._stoppers = _OPENERS if self._is_of_client else _ANSWERS
        elif self.reopens:
            self._stoppers = _CLOSERS

    @property
    def buffered_bytes(self) -> int:
        """Return the number of bytes buffered for an incomplete frame."""
        return self._held.size

    def discard(self) -> None:
        """Discard the buffered bytes."""
        self._held = HeldBytes()

    def reclaim(self, most: int) -> bytes:
        """Remove and return the bytes of an incomplete frame, or b"" if more than ``most``."""
        if not 0 < self._held.size <= most:
            return b""
        self._needed = self._scanned = 0
        self._terminators = _NO_TERMINATORS
        return self._held.take()

    def use(self, rules: HeaderRules, cache: HeadCache) -> None:
        """Use the rules of the negotiated version, and their cache, from now on."""
        self.rules = rules
        self.cache = cache
        self._needed = self._scanned = 0
        self._terminators = _NO_TERMINATORS
        self._note_rules()

    def receive_data(self, data: bytes, most: int = UNBOUNDED) -> list[FrameRun | AckRun]:
        """Decode the frames that ``data`` completes.

        Args:
          data: The next bytes from the peer, in any pieces; b"" to continue after ``use``, or if
            ``has_more``.
          most: The work after which to stop: bytes of header blocks, plus 32 for each new run.

        Returns:
          The runs in order. ``error`` is set if the data violates a rule.
        """
        self.has_more = False
        if self.error is not None:
            return []
        held = self._held
        if held.size:
            held.add(data, searched=bool(self._terminators))
            if not self._may_go_on():
                return []
            data = held.take()
        self._needed = self._scanned = 0
        self._terminators = _NO_TERMINATORS
        runs: list[FrameRun | AckRun] = []
        try:
            rest = self._decode(data, runs, most)
        except FrameError as error:
            self.error = error.without_traceback()
            return runs
        if rest < len(data):
            held.add(data[rest:], searched=bool(self._terminators))
        return runs

    def _may_go_on(self) -> bool:
        """Return whether the bytes that an incomplete frame needs may have arrived."""
        if self._held.size >= self._needed:
            return True
        buffer = self._held.start
        found = any(buffer.find(end, self._scanned) >= 0 for end in self._terminators)
        # A terminator of three bytes may have begun two bytes before the end.
        self._scanned = max(self._scanned, len(buffer) - 2)
        return found

    def _decode(self, data: bytes, runs: list[FrameRun | AckRun], left: int) -> int:
        """Append frames to ``runs`` until no work is left, and return where the rest begins."""
        heads, largest = self.cache.heads, self.cache.max_block_bytes
        stoppers, has_plain_acks = self._stoppers, self._has_plain_acks
        last: Head | None = None
        position, blank, size = 0, -1, len(data)
        run: FrameRun | None = None
        acks: AckRun | None = None
        while position < size and left > 0:
            first = data[position]
            if first <= 13:
                position = self._skip_noise(data, position)
                if position >= size or data[position] <= 13:
                    return position
                first = data[position]
            if first == _A and has_plain_acks and (match := _PLAIN_ACKS.match(data, position)):
                if acks is None:
                    runs.append(acks := AckRun([]))
                acks.ids += _PLAIN_ACK.findall(data, position, match.end())
                last, position = None, match.end()
                continue
            # `blank` stays valid until the position passes it, so no byte is searched twice.
            if blank < position:
                blank = data.find(b"\n\n", position)
                if blank < 0:
                    blank = _FAR
            head = heads.get(data[position:blank]) if blank - position <= largest else None
            receipt: bytes | None = None
            if head is not None:
                start = blank + 2
            else:
                split = self._split_block(data, position, blank)
                if split is None:
                    return position
                block, start = split
                left -= start - position
                head, receipt = self._parse(block)
            try:
                end = self._body_end(data, position, start, head)
            except FrameError as error:
                error.receipt_id = receipt
                raise
            if end < 0:
                return position
            following = end + 1
            if run is not None and head is last:
                run.bodies.append(data[start:end])
                if receipt is None and head.content_length != UNTIL_NUL:
                    following = take_repeats(data, position, start, end, run.bodies)
            else:
                run = FrameRun(head, [data[start:end]], [])
                runs.append(run)
                last, acks, left = None if head.is_single else head, None, left - _RUN_WORK
            if receipt is not None:
                run.receipts.append((len(run.bodies), receipt))
            position = following
            if stoppers and head.command in stoppers:
                return position
        self.has_more = position < size
        return position

    def _skip_noise(self, data: bytes, position: int) -> int:
        """Return the position of the next byte that is not a line end or NUL (F05, F06)."""
        match = _NOISE.match(data, position)
        position = match.end() if match is not None else position
        if data[position : position + 1] == b"\r" and position + 1 < len(data):
            raise FrameError(
                "bare-carriage-return",
                "a carriage return between frames must be followed by a line feed",
            )
        if position < len(data) and data[position] <= 13 and data[position] != 13:
            raise self._not_a_command(data[position : position + MAX_COMMAND_BYTES])
        return position

    def _split_block(self, data: bytes, position: int, blank: int) -> tuple[bytes, int] | None:
        """Return the header block at ``position`` and the start of its body, or None if incomplete.

        Raises:
          FrameError: the block is invalid, whatever follows.
        """
        end, start = blank, blank + 2
        if self.rules.crlf:
            crlf_blank = data.find(b"\n\r\n", position, start)
            if crlf_blank >= 0:
                end, start = crlf_blank, crlf_blank + 3
        if data.find(b"\n", position, position + MAX_COMMAND_BYTES + 1) < 0:
            self._check_command(data, position)
        # Check quickly first: this is done for every new header block.
        if (
            end - position > self.limits.max_header_block_bytes
            or data.find(b"\0", position, end) >= 0
        ):
            self._check_block(data, position, end)
            return None
        return data[position:end], start

    def _check_command(self, data: bytes, position: int) -> None:
        line = data[position : position + MAX_COMMAND_BYTES + 1]
        if len(line) > MAX_COMMAND_BYTES and b"\0" not in line:
            raise self._not_a_command(line)

    def _check_block(self, data: bytes, position: int, end: int) -> None:
        """Wait for the rest of a header block, unless it is already invalid.

        The result does not depend on how the bytes were split. Before a blank line was found, the
        last two bytes may belong to it.

        Raises:
          FrameError: it has a NUL, or is too large.
        """
        limit = self.limits.max_header_block_bytes
        too_many = limit + _BLANK_BYTES
        nul = data.find(b"\0", position, min(end, position + too_many))
        if nul >= 0:
            raise self._no_blank_line(data[position:nul])
        if end != _FAR or len(data) - position >= too_many:
            raise FrameError(
                "headers-too-large",
                f"the headers have more than {limit} bytes, which is the limit"
                " (option max_header_block_bytes)",
                reason=CloseReason.LIMIT_EXCEEDED,
                excerpt=excerpt(data[position : position + 4096]),
            )
        has_command = data.find(b"\n", position) >= 0
        self._wait(
            _BLANK_ENDS if self.rules.crlf else _BLANK_ENDS[:2],
            scanned=len(data) - position,
            needed=too_many if has_command else MAX_COMMAND_BYTES + 1,
        )

    def _no_blank_line(self, block: bytes) -> FrameError:
        hint = ""
        if b"\n\r\n" in block:
            hint = f"; STOMP {self.rules.name} ends lines with a line feed alone"
        return FrameError(
            "missing-blank-line",
            f"the frame ends before the blank line that closes its headers{hint}",
            excerpt=excerpt(block),
        )

    def _not_a_command(self, start: bytes) -> FrameError:
        return FrameError(
            "invalid-command",
            f"{quote(start)} does not begin a STOMP frame: a command of at most "
            f"{MAX_COMMAND_BYTES} bytes and a line feed come first",
            excerpt=excerpt(start),
        )

    def _parse(self, block: bytes) -> tuple[Head, bytes | None]:
        """Return the head and the receipt of a block.

        A client's receipt is removed first, so that the rest can be cached.
        """
        if not self._is_of_client:
            return self._parse_uncached(block), None
        heads = self.cache.heads
        if self.rules.crlf and block in heads:
            return heads[block], None
        rest, receipt = block, None
        at = block.find(b"\nreceipt:")
        if at >= 0:
            stop = block.find(b"\n", at + 9)
            line = block[at + 1 :] if stop < 0 else block[at + 1 : stop]
            rest = block[:at] if stop < 0 else block[:at] + block[stop:]
            receipt = line[8:]
            if len(line) > self.limits.max_header_line_bytes or not _PLAIN.fullmatch(receipt):
                receipt = parse_receipt(line, self.rules, self.limits, block)
        head = heads.get(rest)
        if head is None:
            count = block.count(b"\n")
            try:
                head = parse_head(rest, self.rules, self.limits, count=count)
            except FrameError as error:
                error.receipt_id = receipt
                raise
            # Not cached: a block with a second receipt header, which would be the first one in
            # other blocks; and one with the maximum number of headers, too many with a receipt.
            if count < self.limits.max_headers and b"\nreceipt:" not in rest:
                self.cache.put(rest, head)
        return head, receipt

    def _parse_uncached(self, block: bytes) -> Head:
        rules = self.rules
        if self.side is Side.EITHER and block.partition(b"\n")[0].rstrip(b"\r") in _UNESCAPED:
            rules = OPENING
        return parse_head(block, rules, self.limits, side=self.side)

    def _body_end(self, data: bytes, position: int, start: int, head: Head) -> int:
        """Return the position of the NUL after the body, or -1 if it has not arrived yet.

        Raises:
          FrameError: the NUL is missing (F28), the command has no body (F26), or it is too long.
        """
        length = head.content_length
        if length != UNTIL_NUL:
            end = start + length
            if end >= len(data):
                self._needed = end + 1 - position
                return -1
            if data[end]:
                raise missing_nul(length, data[position:start])
            return end
        end = data.find(b"\0", start)
        reached = (end if end >= 0 else len(data)) - start
        most = self.limits.max_body_bytes
        if head.command in _BODILESS and self.rules is not OPENING and self.rules is not V1_0:
            # STOMP 1.0 allows bodies, which are read and ignored. The version of a CONNECT is
            # unknown here; the session checks its body.
            looked_at = min(reached, MAX_BLANK_BODY_BYTES + 1)
            if looked_at and not is_blank(data[start : start + looked_at]):
                raise FrameError(
                    "body-not-allowed",
                    f"{head.command} has a body; only SEND may have one",
                    excerpt=excerpt(data[position:start]),
                )
            most = reached  # the next byte must be checked as soon as it arrives
        if reached > most:
            raise body_too_large("the body", self.limits, data[position:start])
        if end < 0:
            scanned = len(data) - position
            self._wait((b"\0",), scanned=scanned, needed=start - position + most + 1)
        return end

    def _wait(self, terminators: tuple[bytes, ...], *, scanned: int, needed: int) -> None:
        """Pause until a terminator arrives, or ``needed`` bytes of this frame are buffered."""
        self._terminators = terminators
        self._scanned = max(0, scanned - 2)
        self._needed = needed


def take_repeats(data: bytes, position: int, start: int, end: int, bodies: list[bytes]) -> int:
    """Append the bodies of complete frames that follow one and have its header block and length.

    Comparing header blocks costs a third of finding the end of each and looking it up. Stop at
    anything else, which the decoder then handles.

    Args:
      data: The received bytes.
      position: Start of the first frame.
      start: Start of its body.
      end: Position of its NUL, according to its content-length.
      bodies: The list to which the bodies are appended.

    Returns:
      The end of the last frame with an appended body.
    """
    block = data[position:start]
    size, lead, length = len(data), start - position, end - start
    position = end + 1
    while data.startswith(block, position):
        start = position + lead
        end = start + length
        if end >= size or data[end]:
            break
        bodies.append(data[start:end])
        position = end + 1
    return position
