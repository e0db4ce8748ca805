r"""Frames → bytes, and the two halves of a MESSAGE.

The front half of a MESSAGE is constant for a subscription (``subscription``, and the tag of its
message ids). The back half is the same for all subscribers, and encoded once:

    MESSAGE\nsubscription:ID\nmessage-id:TAG-  |  COUNT\ndestination:…\n…\n\nbody\0\n

Each frame ends with a line feed after its NUL, in all versions and over all transports, as frames
of RabbitMQ, ActiveMQ and Artemis do: some clients wait for it.
"""

import re
from collections.abc import Iterable

from trio_stomp.frames._frame import Head
from trio_stomp.frames._headers import encode_text
from trio_stomp.frames._rules import OPENING, V1_0, V1_1, V1_2, HeaderRules

FRAME_END = b"\0\n"
"""The end of all frames. Templates in this package contain it literally."""
_WIRE_RULES = (V1_0, V1_1, V1_2)
_UNCARRIED = re.compile(r"[\0\r\n]")

_SPECIAL = re.compile(r"[\\\r\0]")
"""Characters that some version escapes or cannot carry, except colon and line feed."""

# Headers of a SEND that concern this hop only (F39), or that the broker writes itself (F37).
_NOT_PASSED_ON = frozenset(
    {
        "destination",
        "content-length",
        "receipt",
        "transaction",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "delivery-count",
    }
)


def encode_header(name: str, text: str, rules: HeaderRules) -> bytes:
    """Return ``name:value`` and a line feed, or b"" if this version cannot carry it."""
    if rules is V1_0 and not text:
        return b""  # F14: 1.0 has no empty values
    if not rules.encoding and ":" in name:
        return b""  # the receiver would split the line at the wrong colon
    key = encode_text(name, rules)
    written = encode_text(text, rules)
    if key is None or written is None:
        return b""
    return f"{key}:{written}\n".encode()


def encode_frame(
    command: str, headers: Iterable[tuple[str, str]], rules: HeaderRules, body: bytes = b""
) -> bytes:
    """Return an encoded frame, with ``content-length`` if it has a body (F33, F34).

    Args:
      command: The command.
      headers: Names and values, unescaped, in order.
      rules: The header rules of the session; OPENING for CONNECT and CONNECTED.
      body: The body.
    """
    lines = [encode_header(name, text, rules) for name, text in headers]
    if body:
        lines.append(b"content-length:%d\n" % len(body))
    return b"%b\n%b\n%b\0\n" % (command.encode(), b"".join(lines), body)


def encode_receipt(receipt_id: bytes, result_lines: bytes = b"") -> bytes:
    """Return an encoded RECEIPT.

    Args:
      receipt_id: The id, escaped for this session.
      result_lines: Encoded header lines with the result of the frame.
    """
    return b"RECEIPT\nreceipt-id:%b\n%b\n\0\n" % (receipt_id, result_lines)


def subscription_prefix(
    subscription_id: str | None, tag: str, rules: HeaderRules, id_header: bytes = b"message-id"
) -> bytes:
    """Return the front half of every MESSAGE of one subscription.

    Args:
      subscription_id: The id of the subscription; None = no header.
      tag: The constant start of the value of ``id_header``; "" = none.
      rules: The header rules of the version.
      id_header: The header that differs between messages: ``ack`` if clients acknowledge by it.
    """
    line = b"" if subscription_id is None else encode_header("subscription", subscription_id, rules)
    return b"MESSAGE\n%b%b:%b" % (line, id_header, f"{tag}-".encode() if tag else b"")


def redelivered_head(head: Head, delivery_count: int) -> Head:
    """Return a copy of a header block for a message that is delivered again."""
    mark = b"\nredelivered:true\ndelivery-count:%d" % delivery_count
    first, second, third = message_blocks(head)
    copy = Head(head.command, head.headers, head.content_length, head.destination)
    copy.message_blocks = (mark + first, mark + second, mark + third)
    return copy


def message_blocks(head: Head) -> tuple[bytes, bytes, bytes]:
    """Return the bytes between count and body for STOMP 1.0, 1.1 and 1.2, cached on ``head``.

    If no header needs escaping, the three are one object. A block ends with ``content-length:N``
    and the blank line if the SEND had that header, else before them.
    """
    blocks = head.message_blocks
    if blocks is None:
        plain = _plain_block(head)
        if plain is not None:
            blocks = (plain, plain, plain)
        else:
            first, second, third = (_message_block(head, rules) for rules in _WIRE_RULES)
            blocks = (first, second, third)
        head.message_blocks = blocks
    return blocks


def _plain_block(head: Head) -> bytes | None:
    """Return the block for all versions if no header needs escaping in any, else None."""
    lines = [f"destination:{head.destination}"]
    lines += [f"{name}:{text}" for name, text in head.headers if name not in _NOT_PASSED_ON]
    text = "\n".join(lines)
    if (
        text.count(":") != len(lines)
        or text.count("\n") != len(lines) - 1
        or _SPECIAL.search(text)
        or ":\n" in text
        or text.endswith(":")
    ):
        return None
    return b"\n%b\n%b" % (text.encode(), _length_lines(head))


def _length_lines(head: Head) -> bytes:
    """Return ``content-length`` and the blank line if the SEND had that header, else b""."""
    if head.content_length > 0:
        return b"content-length:%d\n\n" % head.content_length
    return b"\n" if head.content_length == 0 else b""


def _message_block(head: Head, rules: HeaderRules) -> bytes:
    destination = head.destination or ""
    # Every MESSAGE has a destination (A01), so other characters are replaced (F24).
    line = encode_header("destination", destination, rules) or encode_header(
        "destination", _UNCARRIED.sub("?", destination), rules
    )
    lines = [line]
    lines += [
        encode_header(name, text, rules)
        for name, text in head.headers
        if name not in _NOT_PASSED_ON
    ]
    return b"\n%b%b" % (b"".join(lines), _length_lines(head))


def message_tail(start: bytes, body: bytes) -> bytes:
    """Return the back half of a MESSAGE whose SEND had no ``content-length`` (F33).

    If the SEND had one, it is in the block, and the back half is the start, the body and
    ``FRAME_END``. Topics, queues and streams each write that in one step: it is the usual case.

    Args:
      start: The number, headers of this delivery alone, and the block.
      body: The body.
    """
    if body:
        return b"%bcontent-length:%d\n\n%b\0\n" % (start, len(body), body)
    return b"%b\n\0\n" % start


def message_tails(head: Head, block: bytes, bodies: list[bytes], first: int) -> list[bytes]:
    """Return an empty tail and then the back halves of a run's messages.

    ``prefix.join(message_tails(…))`` is the encoded run for one subscriber.

    Args:
      head: The header block of the run.
      block: Its bytes for a version, from ``message_blocks``.
      bodies: The bodies of the run.
      first: The number of the first message.
    """
    tails = [b""]
    if head.content_length >= 0:
        tails += [b"%d%b%b\0\n" % (n, block, body) for n, body in enumerate(bodies, first)]
    else:
        tails += [message_tail(b"%d%b" % (n, block), body) for n, body in enumerate(bodies, first)]
    return tails


__all__ = [
    "OPENING",
    "encode_frame",
    "encode_header",
    "encode_receipt",
    "message_blocks",
    "message_tail",
    "message_tails",
    "subscription_prefix",
]
