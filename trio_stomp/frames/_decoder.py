"""Bytes → frames: incremental, linear in the bytes, bounded before memory is taken.

Operations wanted: many whole frames in one chunk, at a cost per frame near that of slicing its
body; and one frame in very many chunks, at a cost per chunk that does not depend on what came
before. The first is served by a cache of header blocks and by yielding runs. The second by never
looking at a byte twice: what is incomplete waits in a bytearray, with the offset searched so far
and the number of bytes without which there is nothing to do.
"""

import re

from attrs import define, field

from trio_stomp._errors import CloseReason, FrameError
from trio_stomp.frames._frame import DIAG, SEND, UNTIL_NUL, FrameRun, Head
from trio_stomp.frames._headers import body_too_large, decode_text, encode_text, excerpt, parse_head
from trio_stomp.frames._limits import FrameLimits
from trio_stomp.frames._rules import OPENING, V1_0, HeaderRules

MAX_COMMAND_BYTES = 32
"""A first line longer than this is no STOMP command (RabbitMQ's bound, F41)."""

_NOISE = re.compile(rb"(?:[\n\0]|\r\n)*")
_PLAIN = re.compile(rb"[A-Za-z0-9._/+=#@-]*")
"""A receipt id that no version escapes or trims."""
_MAY_HAVE_BODY = frozenset({SEND, DIAG})


@define(eq=False)
class HeadCache:
    """Header blocks already parsed, shared by all decoders of one version and one set of limits.

    Bounded by entries and by the size of what may enter. When full it is emptied: the blocks that
    matter are back within microseconds, and unique blocks cannot push out more than that.
    """

    max_entries: int = 4096
    max_block_bytes: int = 1024
    heads: dict[bytes, Head] = field(factory=dict)

    def put(self, block: bytes, head: Head) -> None:
        """Remember ``head`` for ``block``, if it is small enough to be worth it."""
        if len(block) <= self.max_block_bytes:
            if len(self.heads) >= self.max_entries:
                self.heads.clear()
            self.heads[block] = head


@define(eq=False)
class FrameDecoder:
    """What one peer sends, frame by frame.

    Handles: line ends, escapes, repeated headers, bodies by length or by NUL, noise between
    frames, every limit of ``FrameLimits``. Does not handle: what a command means, and which
    headers it needs.

    Args:
      limits: Bounds of one frame.
      cache: Parsed blocks; share it only between decoders of the same rules and limits.
      rules: OPENING until ``use`` tells the negotiated version. While it is OPENING,
        ``receive_data`` stops after each frame, since the next may be of another version.
    """

    limits: FrameLimits
    cache: HeadCache
    rules: HeaderRules = OPENING
    error: FrameError | None = None
    """Set when the bytes cannot be decoded further; everything after it is ignored."""
    _partial: bytearray = field(factory=bytearray)
    _scanned: int = 0
    _needed: int = 0
    _terminators: tuple[bytes, ...] = ()

    @property
    def buffered_bytes(self) -> int:
        """Bytes held for a frame that is not complete yet."""
        return len(self._partial)

    def use(self, rules: HeaderRules, cache: HeadCache) -> None:
        """Decode what follows by the negotiated version's rules."""
        self.rules = rules
        self.cache = cache
        self._needed = self._scanned = 0
        self._terminators = ()

    def receive_data(self, data: bytes) -> list[FrameRun]:
        """The frames that ``data`` completes, in order; ``error`` is set if it breaks a rule.

        Args:
          data: What came next from the peer, cut anywhere; empty to go on after ``use``.
        """
        if self.error is not None:
            return []
        if self._partial:
            self._partial += data
            if not self._may_go_on():
                return []
            data = bytes(self._partial)
            self._partial.clear()
        self._needed = self._scanned = 0
        self._terminators = ()
        runs: list[FrameRun] = []
        try:
            rest = self._decode(data, runs)
        except FrameError as error:
            self.error = error
            return runs
        if rest < len(data):
            self._partial += data[rest:] if rest else data
        return runs

    def _may_go_on(self) -> bool:
        """Whether the bytes that an incomplete frame waits for may have come."""
        buffer = self._partial
        if len(buffer) < self._needed:
            return False
        if not self._terminators:
            return True
        found = any(buffer.find(end, self._scanned) >= 0 for end in self._terminators)
        # A terminator of three bytes may have begun two bytes before the end.
        self._scanned = max(self._scanned, len(buffer) - 2)
        return found or len(buffer) >= self._limit_while_waiting()

    def _limit_while_waiting(self) -> int:
        if self._terminators == (b"\0",):
            return self.limits.max_header_block_bytes + self.limits.max_body_bytes
        return self.limits.max_header_block_bytes

    def _decode(self, data: bytes, runs: list[FrameRun]) -> int:
        """Append the whole frames in ``data`` to ``runs``; return where the incomplete one begins."""
        heads, largest = self.cache.heads, self.cache.max_block_bytes
        one_only = self.rules is OPENING
        last: Head | None = None
        position, size = 0, len(data)
        blank = -1
        while position < size:
            if data[position] <= 13:
                position = self._skip_noise(data, position)
                if position >= size or data[position] <= 13:
                    return position
            # `blank` stays valid until the position passes it, so no byte is searched twice.
            if blank < position:
                blank = data.find(b"\n\n", position)
                if blank < 0:
                    blank = size
            head = heads.get(data[position:blank]) if blank - position <= largest else None
            receipt: bytes | None = None
            if head is not None:
                start = blank + 2
            else:
                split = self._split_block(data, position, blank)
                if split is None:
                    return position
                block, start = split
                head, receipt = self._parse(block)
            end = self._body_end(data, position, start, head)
            if end < 0:
                return position
            if head is last:
                runs[-1].bodies.append(data[start:end])
            else:
                runs.append(FrameRun(head, [data[start:end]], []))
                last = head
            if receipt is not None:
                runs[-1].receipts.append((len(runs[-1].bodies), receipt))
            position = end + 1
            if one_only:
                return position
        return position

    def _skip_noise(self, data: bytes, position: int) -> int:
        """The first byte that is no line end and no NUL (F05, F06)."""
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
        """The header block that begins at ``position`` and where its body starts, if it is all here.

        Raises:
          FrameError: it cannot become a header block any more.
        """
        size = len(data)
        end, start = blank, blank + 2
        if self.rules.crlf:
            crlf_blank = data.find(b"\n\r\n", position, min(blank + 2, size))
            if crlf_blank >= 0:
                end, start = crlf_blank, crlf_blank + 3
        self._check_command(data, position)
        nul = data.find(b"\0", position, end)
        if nul >= 0:
            raise FrameError(
                "missing-blank-line",
                "the frame ends before the blank line that closes its headers",
                excerpt=excerpt(data[position:nul]),
            )
        if end - position > self.limits.max_header_block_bytes:
            raise FrameError(
                "headers-too-large",
                f"the headers have {end - position} bytes or more, the limit is"
                f" {self.limits.max_header_block_bytes} (option max_header_block_bytes)",
                reason=CloseReason.LIMIT_EXCEEDED,
                excerpt=excerpt(data[position : position + 4096]),
            )
        if end >= size:
            self._wait((b"\n\n", b"\n\r\n", b"\0"), scanned=size - position)
            return None
        return data[position:end], start

    def _check_command(self, data: bytes, position: int) -> None:
        line_end = data.find(b"\n", position, position + MAX_COMMAND_BYTES + 1)
        if line_end < 0 and len(data) - position > MAX_COMMAND_BYTES:
            raise self._not_a_command(data[position : position + MAX_COMMAND_BYTES])

    def _not_a_command(self, start: bytes) -> FrameError:
        return FrameError(
            "invalid-command",
            f"{start!r} begins no STOMP frame: a command of at most {MAX_COMMAND_BYTES} bytes"
            " and a line feed come first",
            excerpt=excerpt(start),
        )

    def _parse(self, block: bytes) -> tuple[Head, bytes | None]:
        """Head and receipt of a block; the receipt is cut out, so that the rest can be cached."""
        heads = self.cache.heads
        if self.rules.crlf and block in heads:
            return heads[block], None
        rest, receipt = block, None
        at = block.find(b"\nreceipt:")
        if at >= 0:
            stop = block.find(b"\n", at + 9)
            raw = block[at + 9 :] if stop < 0 else block[at + 9 : stop]
            rest = block[:at] if stop < 0 else block[:at] + block[stop:]
            receipt = self._receipt_id(raw, block)
        head = heads.get(rest)
        if head is None:
            try:
                head = parse_head(rest, self.rules, self.limits)
            except FrameError as error:
                error.receipt_id = receipt
                raise
            if b"\nreceipt:" not in rest:
                # A second receipt header is ignored here, but would be the first one elsewhere.
                self.cache.put(rest, head)
        return head, receipt

    def _receipt_id(self, raw: bytes, block: bytes) -> bytes:
        """A receipt id as it will be sent back: decoded, checked and escaped again (R01)."""
        if len(raw) > self.limits.max_header_line_bytes:
            raise FrameError(
                "header-line-too-long",
                f"the receipt header has {len(raw)} bytes, the limit is"
                f" {self.limits.max_header_line_bytes} (option max_header_line_bytes)",
                reason=CloseReason.LIMIT_EXCEEDED,
                excerpt=excerpt(block),
            )
        if _PLAIN.fullmatch(raw):
            return raw
        rules = self.rules
        if rules.crlf:
            raw = raw.removesuffix(b"\r")
        if rules is V1_0:
            raw = raw.lstrip(b" \t")
        text = encode_text(decode_text(raw, rules, block), rules)
        if text is None:
            raise FrameError(
                "bare-carriage-return",
                "the receipt header holds a carriage return, which cannot be sent back",
                excerpt=excerpt(block),
            )
        return text.encode()

    def _body_end(self, data: bytes, position: int, start: int, head: Head) -> int:
        """Where the NUL behind the body stands, or -1 if it has not come yet.

        Raises:
          FrameError: no NUL there (F28), a body where none may be (F26), or too long a body.
        """
        length = head.content_length
        if length != UNTIL_NUL:
            end = start + length
            if end >= len(data):
                self._needed = end + 1 - position
                return -1
            if data[end]:
                raise FrameError(
                    "missing-nul",
                    f"no NUL follows the {length} bytes of body that content-length tells",
                    excerpt=excerpt(data[position:start]),
                )
            return end
        end = data.find(b"\0", start)
        reached = (end if end >= 0 else len(data)) - start
        if reached and self.rules is not OPENING and head.command not in _MAY_HAVE_BODY:
            # STOMP 1.0 does not forbid it: there the body is read and ignored.
            if self.rules is not V1_0:
                raise FrameError(
                    "body-not-allowed",
                    f"{head.command} has a body; only SEND may have one",
                    excerpt=excerpt(data[position:start]),
                )
        if reached > self.limits.max_body_bytes:
            raise body_too_large(reached, self.limits, data[position:start])
        if end < 0:
            self._wait((b"\0",), scanned=len(data) - position)
        return end

    def _wait(self, terminators: tuple[bytes, ...], *, scanned: int) -> None:
        self._terminators = terminators
        self._scanned = max(0, scanned - 2)
