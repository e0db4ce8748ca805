"""What a SEND's header block means for routing: worked out once, kept on the block."""

from collections.abc import Iterator

from attrs import evolve, frozen

from trio_stomp.broker.headers._dialect import Dialect, resolve
from trio_stomp.broker.headers._forged_headers import claims, is_suspect, without_ours
from trio_stomp.broker.headers._schedule import (
    MANAGEMENT,
    Removal,
    Schedule,
    parse_removal,
    parse_schedule,
)
from trio_stomp.broker.headers._send_options import PLAIN_SEND, SendOptions, parse_send_options
from trio_stomp.broker.names import check_sendable
from trio_stomp.frames import Head, Headers

TEMPORARY = ("/temp-queue/", "/temp-topic/")


@frozen
class SendPlan:
    """The destinations of a header block's messages, and their options.

    Args:
      names: Destinations, several if it is composite.
      options: What its headers ask for, or None if nothing out of the ordinary.
      schedule: When it is to be sent, or None for at once; or which schedules it is to end.
      is_personal: Whether a name or ``reply-to`` means something of this client's own, so that the
        plan holds for this client alone.
      claims: Headers that say who sends it, as the sender says.
      renamed: The block for each name, in order, where it names it in another way; None = in all
        MESSAGEs the destination is as the sender spelt it.
      honest: The block without headers that only the broker may say; None = it has none of them.
    """

    names: tuple[str, ...]
    options: SendOptions | None = None
    schedule: Schedule | Removal | None = None
    is_personal: bool = False
    claims: Headers = ()
    renamed: tuple[Head, ...] | None = None
    honest: Head | None = None

    def heads_by_name(self, head: Head) -> Iterator[tuple[str, Head]]:
        """Yield each destination with its block. ``head`` is the one that this is the plan of."""
        return zip(self.names, self.renamed or (head,), strict=True)

    def without_temporary(self) -> "SendPlan":
        """Return the part of it that names nothing of the client's own."""
        names = tuple(name for name in self.names if not name.startswith(TEMPORARY))
        return evolve(self, names=names, options=None)


def make_plan(head: Head, dialect: Dialect) -> SendPlan:
    """Work out the plan of a header block.

    Raises:
      ProtocolError: a destination that nobody may send to, or a header with a bad value.
    """
    options = parse_send_options(head.headers, dialect)
    names = resolve(head.destination or "", dialect, options.routing)
    for name in names:
        check_sendable(name, dialect.wildcards)
    claimed: Headers = ()
    honest = None
    if is_suspect(head.headers):
        claimed = claims(head.headers)
        cleaned = without_ours(head)
        honest = cleaned if cleaned is not head else None
    renamed = None
    if names != (head.destination,):
        renamed = tuple([_renamed(head, name) for name in names])
    if options is PLAIN_SEND:
        personal = any(name.startswith(TEMPORARY) for name in names)
        return SendPlan(
            names,
            options=None,
            schedule=None,
            is_personal=personal,
            claims=claimed,
            renamed=renamed,
            honest=honest,
        )
    personal = any(name.startswith(TEMPORARY) for name in (*names, options.reply_to))
    schedule: Schedule | Removal | None = None
    if options.scheduled:
        schedule = parse_removal(head) if MANAGEMENT.issuperset(names) else None
        schedule = schedule or parse_schedule(head)
    return SendPlan(
        names,
        options=options,
        schedule=schedule,
        is_personal=personal,
        claims=claimed,
        renamed=renamed,
        honest=honest,
    )


def _renamed(head: Head, destination: str) -> Head:
    """Return the block with another destination: the name that its subscribers know it by."""
    headers = [
        (name, destination if name == "destination" else text) for name, text in head.headers
    ]
    return Head(head.command, tuple(headers), head.content_length, destination)
