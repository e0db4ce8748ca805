"""The memory cost of header blocks that are charged to the budget."""

from itertools import chain

from trio_stomp.frames._frame import Head

BLOCK_OVERHEAD_BYTES = 512
"""A block with its plan and its run; measured and rounded up."""
HEADER_OVERHEAD_BYTES = 176
"""Each header in addition to its text; measured and rounded up."""
COPIES = 2
"""Copies of a text: as parsed, and as encoded."""
COPIES_IF_ESCAPED = 6
"""Copies of a text if each version encodes it differently, and escapes may double it."""
_WIDEST = 4
"""Maximum bytes of a character in a text that is not ASCII."""


def head_cost(head: Head) -> int:
    """Return the bytes to charge for a header block, and cache the figure on it.

    It never changes, so the same figure is given back later.
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
    """Return the maximum size of a text's characters, in bytes."""
    return len(text) if text.isascii() else _WIDEST * len(text)
