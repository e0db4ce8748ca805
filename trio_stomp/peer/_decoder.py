"""What comes from either side, client or server: bytes → frames, by the decoder of floor 0."""

from collections.abc import Iterator

from trio_stomp.frames import (
    OPENING,
    SEND,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    Head,
    HeadCache,
    parse_head,
)
from trio_stomp.peer.frames import UNESCAPED, rules_of

_RECEIPT = b"\nreceipt:"


class PeerDecoder(FrameDecoder):
    """The decoder for frames of both sides: each may have a body by length.

    It stops nowhere: which version holds was told at the start, and CONNECT and CONNECTED are
    known by their names.
    """

    def _note_rules(self) -> None:
        super()._note_rules()
        self._has_plain_acks = False
        self._stoppers = frozenset()

    def _parse(self, block: bytes) -> tuple[Head, bytes | None]:
        command, line_end, lines = block.partition(b"\n")
        name = command.rstrip(b"\r").decode(errors="replace")
        rules = OPENING if name in UNESCAPED else self.rules
        # parse_head reads the content-length of a SEND alone, and leaves the receipt out.
        head = parse_head(SEND.encode() + line_end + lines, rules, self.limits)
        at = block.find(_RECEIPT)
        if at >= 0:
            line = block[at + len(_RECEIPT) :].partition(b"\n")[0]
            receipt = parse_head(b"SEND\nreceipt-id:" + line, rules, self.limits).get("receipt-id")
            head.headers += (("receipt", receipt or ""),)
        head.command = name
        return head, None

    def frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes, in order.

        ``error`` is set if it breaks a rule.
        """
        for run in self.receive_data(data):
            assert isinstance(run, FrameRun)  # plain ACKs are none of a peer's
            yield from run.frames()


def make_decoder(version: str, limits: FrameLimits) -> PeerDecoder:
    """Return a decoder that remembers no header blocks.

    Raises:
      OptionError: there is no such version.
    """
    return PeerDecoder(limits, HeadCache(max_block_bytes=0), rules_of(version))
