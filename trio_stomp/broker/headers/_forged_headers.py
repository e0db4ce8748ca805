"""Headers that only the broker may set, and headers that claim the identity of the sender.

Receivers may fold case and strip blanks in names, so these functions do the same.
"""

from trio_stomp.frames import Head, Headers

STREAMS = "x-stream-"
"""Prefix of the headers with the position of a message in a stream."""
_OURS = (STREAMS, "x-death", "x-first-death", "x-trio-stomp-")
"""Prefixes of headers that only the broker sets: streams, dead letters, the store."""
_ORIGIN = "original-destination"
_FIRST = frozenset("xXoOuUjJ")
_PLAIN = frozenset("abcdefghiklmnpqrstvwyzABCDEFGHIKLMNPQRSTVWYZ0123456789")
"""First characters that none of these headers has."""
_BLANKS = "".join(map(chr, range(33)))


def _folded(name: str) -> str:
    """Return a header's name as a lenient receiver may read it, or "" if it is none of these."""
    if name[:1].isalnum() and name[0] not in _FIRST:
        return ""
    return name.strip(_BLANKS).strip().lower()


def is_suspect(headers: Headers) -> bool:
    """Return whether any header may be one of these. A cheap test for each header block."""
    return not _PLAIN.issuperset([name[:1] for name, _ in headers])


def without_ours(head: Head) -> Head:
    """Return the header block without headers that only the broker may set.

    Returns:
      ``head`` itself if it has none of them.
    """
    return _without(head, _OURS, _ORIGIN)


def without_places(head: Head) -> Head:
    """Return the header block without positions in streams.

    Headers of dead letters stay, because a stream may also get dead letters.
    """
    return _without(head, STREAMS)


def _without(head: Head, prefixes: str | tuple[str, ...], exact: str = "") -> Head:
    folded = [_folded(name) for name, _ in head.headers]
    others = tuple(
        [
            pair
            for name, pair in zip(folded, head.headers, strict=True)
            if not name.startswith(prefixes) and (not exact or name != exact)
        ]
    )
    if len(others) == len(head.headers):
        return head
    return Head(head.command, others, head.content_length, head.destination)


def claims(headers: Headers, sender_header: str) -> tuple[tuple[str, str], ...]:
    """Return the headers that claim the identity of the sender, in any spelling."""
    if not sender_header:
        return ()
    return tuple([pair for pair in headers if _folded(pair[0]) == sender_header])


def without_claims(head: Head, claimed: Headers) -> Head:
    """Return the header block without headers that claim the identity of the sender."""
    others = tuple([pair for pair in head.headers if pair not in claimed])
    return Head(head.command, others, head.content_length, head.destination)
