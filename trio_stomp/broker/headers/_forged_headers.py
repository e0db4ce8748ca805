"""Headers that only the broker may say, and those by which a sender says who he is.

A receiver may fold case and strip blanks before it looks for a name: so is looked here.
"""

from trio_stomp.frames import Head, Headers

STREAMS = "x-stream-"
"""How the headers begin that say where a message stands in a stream."""
_OURS = (STREAMS, "x-death", "x-first-death", "x-trio-stomp-")
"""How the headers begin that streams, dead letters and the store have from the broker alone."""
_ORIGIN = "original-destination"
_SENDER = ("user-id", "jmsxuserid")
_FIRST = frozenset("xXoOuUjJ")
_PLAIN = frozenset("abcdefghiklmnpqrstvwyzABCDEFGHIKLMNPQRSTVWYZ0123456789")
"""How most headers begin, and none of those."""
_BLANKS = "".join(map(chr, range(33)))


def _folded(name: str) -> str:
    """Return a header's name as a lenient receiver may see it, or "" if it is none of ours."""
    if name[:1].isalnum() and name[0] not in _FIRST:
        return ""
    return name.strip(_BLANKS).strip().lower()


def is_suspect(headers: Headers) -> bool:
    """Return whether any header may be one of those. Every SEND is asked this."""
    return not _PLAIN.issuperset([name[:1] for name, _ in headers])


def without_ours(head: Head) -> Head:
    """Return the block without what only the broker may say, itself if nothing of that is in it."""
    return _without(head, _OURS, _ORIGIN)


def without_places(head: Head) -> Head:
    """Likewise, without what says where a message stands in a stream.

    What the broker says of a dead letter stays, as it may be sent to a stream, too.
    """
    return _without(head, STREAMS)


def _without(head: Head, begins: str | tuple[str, ...], is_one: str = "") -> Head:
    folded = [_folded(name) for name, _ in head.headers]
    kept = tuple(
        [
            pair
            for name, pair in zip(folded, head.headers, strict=True)
            if not name.startswith(begins) and (not is_one or name != is_one)
        ]
    )
    if len(kept) == len(head.headers):
        return head
    return Head(head.command, kept, head.content_length, head.destination)


def claims(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return the headers by which a sender says who he is, however they are spelt."""
    return tuple([pair for pair in headers if _folded(pair[0]) in _SENDER])
