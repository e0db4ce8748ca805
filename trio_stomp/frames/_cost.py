"""The memory cost of header blocks, for the budget that is charged for stored ones."""

from itertools import chain

from trio_stomp.frames._frame import Head

BLOCK_OVERHEAD_BYTES = 512
"""A block with its plan, and the run that it belongs to; measured and rounded up."""
HEADER_OVERHEAD_BYTES = 176
"""Each header beside its text; likewise."""
COPIES = 2
"""Of a text: as it was parsed, and as it is written."""
COPIES_IF_ESCAPED = 6
"""The same where each version writes it in its own way, and escapes may double it."""
_WIDEST = 4
"""Bytes of a character, wherever one text holds a character beyond ASCII."""


def head_cost(head: Head) -> int:
    """Return the bytes that a header block is charged for, and cache the figure on it.

    It does not change: what was charged can be given back by asking again.
    """
    cost = head.cost
    if not cost:
        joined = "".join(chain.from_iterable(head.headers))
        texts, copies = len(joined), COPIES
        if not joined.isascii():
            texts = sum(map(text_cost, chain.from_iterable(head.headers)))
        if ":" in joined or "\\" in joined or "\n" in joined or "\r" in joined:
            copies = COPIES_IF_ESCAPED
        fixed = BLOCK_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(head.headers)
        cost = head.cost = fixed + copies * texts
    return cost


def text_cost(text: str) -> int:
    """Bytes that the characters of a text take at most."""
    return len(text) if text.isascii() else _WIDEST * len(text)
