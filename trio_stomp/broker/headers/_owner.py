"""The owner of a scheduled message or last value in the store.

It is the first header of the stored message. Clients can neither send nor see it.
"""

import json

from trio_stomp.base import Identity
from trio_stomp.frames import V1_2, Head, encode_header

HEADER = "x-trio-stomp-owner"


def owner_line(owner: Identity) -> bytes:
    """Return the header line of an owner, the first of a stored header block."""
    fields: dict[str, object] = {"user": owner.name, "method": owner.method}
    if owner.roles:
        fields["roles"] = sorted(owner.roles)
    return encode_header(HEADER, json.dumps(fields), V1_2)


def split_owner(head: Head) -> tuple[Head, Identity | None]:
    """Split a stored header block into the client's headers and the owner.

    Messages of older brokers have no owner (None). If a client of an older broker sent this header,
    it is accepted: the client gains nothing, because messages without an owner are not restricted.
    """
    text = head.get(HEADER)
    if text is None:
        return head, None
    others = tuple(pair for pair in head.headers if pair[0] != HEADER)
    return Head(head.command, others, head.content_length, head.destination), _read(text)


def _read(text: str) -> Identity | None:
    try:
        fields = json.loads(text)
        user, method, roles = fields["user"], fields["method"], fields.get("roles", [])
        words = [user, method, *roles]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not all(isinstance(word, str) for word in words):
        return None
    return Identity(user, frozenset(roles), method=method)
