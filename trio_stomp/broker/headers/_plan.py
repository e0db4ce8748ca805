"""The plan of a SEND: destinations and options of a header block, computed once."""

from collections.abc import Iterator

from attrs import Factory, evolve, field, frozen

from trio_stomp.broker.headers._dialect import Dialect, resolve
from trio_stomp.broker.headers._schedule import (
    MANAGEMENT,
    Removal,
    Schedule,
    parse_removal,
    parse_schedule,
)
from trio_stomp.broker.headers._send_options import PLAIN_SEND, SendOptions, parse_send_options
from trio_stomp.broker.headers._send_outcome import NOTHING, SendOutcome
from trio_stomp.broker.names import check_sendable
from trio_stomp.frames import TEXT, UNTIL_NUL, Head, Headers

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


TEMPORARY = ("/temp-queue/", "/temp-topic/")


@frozen
class SendPlan:
    """The destinations and options of messages with one header block.

    Args:
      names: The destinations; several if composite.
      options: The options in the headers; None = all default.
      later: What ``sending.Later`` does with the messages: a schedule, the schedules to remove, or
        what else it knows; None = they are sent at once.
      is_personal: Whether a name or ``reply-to`` is a temporary destination, so that the plan is
        valid for this client only.
      claims: Headers that claim the identity of the sender.
      renamed: The header block for each of ``names``; None = the sender's block for all.
      honest: The header block without headers that only the broker may set, and marked as that of
        a text if the dialect has these; None = unchanged.
      told: What the RECEIPT says of the headers.
      here: Those of ``names`` that this core has.
    """

    names: tuple[str, ...]
    options: SendOptions | None = None
    later: object | None = None
    is_personal: bool = False
    claims: Headers = ()
    renamed: tuple[Head, ...] | None = None
    honest: Head | None = None
    told: SendOutcome = NOTHING
    here: tuple[str, ...] = field(default=Factory(lambda self: self.names, takes_self=True))

    def heads_by_name(self, head: Head) -> Iterator[tuple[str, Head]]:
        """Yield each destination with its header block. ``head`` is the block of this plan."""
        return zip(self.names, self.renamed or (head,), strict=True)

    def without_temporary(self) -> "SendPlan":
        """Return the plan without temporary destinations and without options."""
        names = tuple(name for name in self.names if not name.startswith(TEMPORARY))
        return evolve(self, names=names, options=None)


def make_plan(head: Head, dialect: Dialect) -> SendPlan:
    """Return the plan of a header block.

    Raises:
      ProtocolError: A destination does not accept a SEND, or a header is invalid.
    """
    options = parse_send_options(head.headers, dialect)
    names = resolve(head.destination or "", dialect, options.routing)
    for name in names:
        check_sendable(name, dialect.wildcards)
    claimed: Headers = ()
    honest = None
    if is_suspect(head.headers):
        claimed = claims(head.headers, dialect.sender_header)
        cleaned = without_ours(head)
        honest = cleaned if cleaned is not head else None
    if dialect.has_text_messages and head.content_length == UNTIL_NUL:
        cleaned = honest or head
        honest = Head(cleaned.command, cleaned.headers, TEXT, cleaned.destination)
    renamed = None
    if names != (head.destination,):
        renamed = tuple([rename_head(head, name) for name in names])
    if options is PLAIN_SEND:
        personal = any(name.startswith(TEMPORARY) for name in names)
        return SendPlan(
            names,
            is_personal=personal,
            claims=claimed,
            renamed=renamed,
            honest=honest,
        )
    personal = any(name.startswith(TEMPORARY) for name in (*names, options.reply_to))
    later: Schedule | Removal | None = None
    if options.scheduled:
        later = parse_removal(head) if MANAGEMENT.issuperset(names) else None
        later = later or parse_schedule(head)
    return SendPlan(
        names,
        options=options,
        later=later,
        is_personal=personal,
        claims=claimed,
        renamed=renamed,
        honest=honest,
        told=SendOutcome(ignored=options.ignored) if options.ignored else NOTHING,
    )


def rename_head(head: Head, destination: str) -> Head:
    """Return the header block with another destination, for its subscribers."""
    headers = [
        (name, destination if name == "destination" else text) for name, text in head.headers
    ]
    return Head(head.command, tuple(headers), head.content_length, destination)
