"""Who left a message behind that acts later, a scheduled one or a last value: kept in the store.

It stands there as the first header of the message, which no client can send and nobody is shown.
"""

import json

from trio_stomp.base import Identity
from trio_stomp.frames import V1_2, Head, encode_header

HEADER = "x-trio-stomp-owner"


def owner_line(owner: Identity) -> bytes:
    """Return the line that a header block begins with in the store."""
    told: dict[str, object] = {"user": owner.name, "method": owner.method}
    if owner.roles:
        told["roles"] = sorted(owner.roles)
    return encode_header(HEADER, json.dumps(told), V1_2)


def parted(head: Head) -> tuple[Head, Identity | None]:
    """Return a header block of the store without that line, and what it says.

    None = nothing, as in what an older broker wrote. If a client of one sent such a header, it is
    believed: it gains nothing by it, since what is nobody's goes on for ever.
    """
    said = head.get(HEADER)
    if said is None:
        return head, None
    kept = tuple(pair for pair in head.headers if pair[0] != HEADER)
    return Head(head.command, kept, head.content_length, head.destination), _read(said)


def _read(said: str) -> Identity | None:
    try:
        told = json.loads(said)
        user, method, roles = told["user"], told["method"], told.get("roles", [])
        words = [user, method, *roles]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not all(isinstance(word, str) for word in words):
        return None
    return Identity(user, frozenset(roles), method=method)
