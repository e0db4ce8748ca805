"""Headers that only the broker may say, and those by which a sender says who he is.

A receiver may fold case and strip blanks before it looks for a name: so is looked here.
"""

from trio_stomp.frames import Head, Headers

_OURS = ("x-stream-", "x-death", "x-first-death", "x-trio-stomp-")
"""How the headers begin that streams, dead letters and the store have from the broker alone."""
_ORIGIN = "original-destination"
_SENDER = ("user-id", "jmsxuserid")
_FIRST = frozenset("xXoOuUjJ")
_PLAIN = frozenset("abcdefghiklmnpqrstvwyzABCDEFGHIKLMNPQRSTVWYZ0123456789")
"""How most headers begin, and none of those."""
_BLANKS = "".join(map(chr, range(33)))


def _folded(name: str) -> str:
    """A header's name as a lenient receiver may see it; "" where nothing of here begins so."""
    if name[:1].isalnum() and name[0] not in _FIRST:
        return ""
    return name.strip(_BLANKS).strip().lower()


def is_suspect(headers: Headers) -> bool:
    """Whether any of the headers may be one of those: what is asked of every SEND."""
    return not _PLAIN.issuperset([name[:1] for name, _ in headers])


def without_ours(head: Head) -> Head:
    """The block without what only the broker may say; itself if nothing of that is in it."""
    kept = tuple([pair for pair in head.headers if not _is_ours(pair[0])])
    if len(kept) == len(head.headers):
        return head
    return Head(head.command, kept, head.content_length, head.destination)


def _is_ours(name: str) -> bool:
    folded = _folded(name)
    return folded.startswith(_OURS) or folded == _ORIGIN


def claims(headers: Headers) -> tuple[tuple[str, str], ...]:
    """The headers by which a sender says who he is, however they are spelt."""
    return tuple([pair for pair in headers if _folded(pair[0]) in _SENDER])
