"""The texts of ERRORs in another broker's words, for programs that compare them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from trio_stomp.base import RemoteError


@frozen
class ErrorText:
    """One of another broker's ERRORs, and when it would say it.

    Args:
      code: Of our own error.
      message: Its header ``message``.
      body: With ``{words}`` for what stands in the frame at fault: ``command``, a header's name,
        and of a destination ``kind`` and ``rest``.
      commands: Of the frame at fault; none = any.
      needs: Words that the frame at fault has.
      lacks: A header that it has not.
    """

    code: str
    message: str
    body: str
    commands: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    lacks: str = ""


ErrorTexts = Sequence[ErrorText]
"""The first one that fits is said."""

_ENDS: Final = "BEGIN", "COMMIT", "ABORT"
_ACKS: Final = "ACK", "NACK"

RABBITMQ_TEXTS: Final[ErrorTexts] = (
    ErrorText("unsupported-version", "Version mismatch", "Supported versions are 1.0,1.1,1.2\n"),
    ErrorText(
        "authentication-failed",
        "Bad CONNECT",
        "Access refused for user '{login}'\n",
        needs=("login",),
    ),
    ErrorText(
        "unknown-host", "Bad CONNECT", "Virtual host '{host}' access denied", needs=("host",)
    ),
    ErrorText("not-connected", "Illegal command", "You must log in using CONNECT first"),
    ErrorText("unknown-command", "Bad command", 'Could not interpret command "{command}"\n'),
    ErrorText(
        "header-missing",
        "Missing destination",
        "\"{command}\" must include a 'destination' header\n",
        ("SEND", "SUBSCRIBE"),
        lacks="destination",
    ),
    ErrorText(
        "header-missing",
        "Missing Header",
        "Header 'id' is required for durable subscriptions",
        ("SUBSCRIBE",),
        lacks="id",
    ),
    ErrorText(
        "header-missing",
        "Missing destination or id",
        "UNSUBSCRIBE must include a 'destination' or 'id' header",
        ("UNSUBSCRIBE",),
    ),
    ErrorText(
        "header-missing",
        "Missing transaction",
        "\"{command}\" must include a 'transaction' header\n",
        _ENDS,
    ),
    ErrorText(
        "header-missing", "Missing header", '"{command}" must include the "{names}" header\n', _ACKS
    ),
    ErrorText(
        "unknown-ack",
        "Invalid header",
        '"{command}" must include a valid "{names}" header\n',
        _ACKS,
    ),
    ErrorText(
        "header-not-allowed",
        "Invalid header",
        "'message-id' is not allowed on 'SEND'.\n",
        needs=("message-id",),
    ),
    ErrorText(
        "invalid-destination",
        "Invalid destination",
        "'{rest}' is not a valid {kind} destination\n",
        needs=("kind",),
    ),
    ErrorText(
        "invalid-destination",
        "Unknown destination",
        "'{destination}' is not a valid destination.\nValid destination types are: /temp-queue,"
        " /exchange, /topic, /queue, /amq/queue, /reply-queue/.\n",
        needs=("destination",),
    ),
    ErrorText(
        "duplicate-subscription",
        "Duplicated subscription identifier",
        "A subscription identified by 'T_{id}' already exists.",
        needs=("id",),
    ),
    ErrorText(
        "unknown-subscription",
        "No subscription found",
        "UNSUBSCRIBE must refer to an existing subscription.\n"
        "Subscription to \"id='{id}'\" not found.\n",
        needs=("id",),
    ),
    ErrorText(
        "unknown-transaction",
        "Bad transaction",
        'Invalid transaction identifier: "{transaction}"\n',
        needs=("transaction",),
    ),
)
"""RabbitMQ 3.10's, as it was seen to say them."""

_KINDS: Final = {
    "queue": "queue",
    "topic": "topic",
    "exchange": "exchange",
    "temp-queue": "temp_queue",
}
_PLACE: Final = re.compile("/(queue|topic|exchange|temp-queue)((?:/.*)?)")


def find_text(texts: ErrorTexts, error: "RemoteError", names: str) -> tuple[str, str] | None:
    """Return ``message`` and body in another broker's words, or None if it has no such ERROR.

    Args:
      texts: Of that broker.
      error: Ours. What its ``excerpt`` does not hold is not said.
      names: The header that names a delivery in an ACK of the client's version.
    """
    told = _words(error.excerpt.decode(errors="replace"))
    told["names"] = names
    for text in texts:
        if text.code == error.code and _fits(text, told):
            return text.message, text.body.format_map(told)
    return None


def _words(frame: str) -> dict[str, str]:
    """Return what a text may say of the frame at fault."""
    command, *lines = frame.split("\n")
    told: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(":")
        told.setdefault(name, text)
    place = _PLACE.fullmatch(told.get("destination", ""))
    kind, rest = (_KINDS[place[1]], place[2]) if place else ("", "")
    return {**told, "command": command, "kind": kind, "rest": rest}


def _fits(text: ErrorText, told: Mapping[str, str]) -> bool:
    if text.commands and told["command"] not in text.commands:
        return False
    return all(told.get(word) for word in text.needs) and not (text.lacks and told.get(text.lacks))
