"""Texts of another broker's ERRORs, for programs that compare them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from trio_stomp.base import RemoteError


@frozen
class ErrorText:
    """One of another broker's ERRORs, and its conditions.

    Args:
      code: The code of our error.
      message: The header ``message``.
      body: A template with fields from the frame at fault: ``command``, names of headers, and
        ``kind`` and ``rest`` of the destination.
      commands: Commands of the frame at fault; empty = any.
      needs: Fields that the frame must have.
      lacks: A header that the frame must not have.
    """

    code: str
    message: str
    body: str
    commands: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    lacks: str = ""


ErrorTexts = Sequence[ErrorText]
"""The first one whose conditions are met applies."""

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
"""The texts of RabbitMQ 3.10, as observed."""

_KINDS: Final = {
    "queue": "queue",
    "topic": "topic",
    "exchange": "exchange",
    "temp-queue": "temp_queue",
}
_PLACE: Final = re.compile("/(queue|topic|exchange|temp-queue)((?:/.*)?)")


def find_text(texts: ErrorTexts, error: "RemoteError", names: str) -> tuple[str, str] | None:
    """Return ``message`` and body of another broker's ERROR, or None if it has none.

    Args:
      texts: The texts of that broker.
      error: Our error. Fields come from its ``excerpt``.
      names: The header with the delivery in an ACK of the client's version.
    """
    fields = _words(error.excerpt.decode(errors="replace"))
    fields["names"] = names
    for text in texts:
        if text.code == error.code and _fits(text, fields):
            return text.message, text.body.format_map(fields)
    return None


def _words(frame: str) -> dict[str, str]:
    """Return the template fields from the excerpt of a frame."""
    command, *lines = frame.split("\n")
    fields: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(":")
        fields.setdefault(name, text)
    target = _PLACE.fullmatch(fields.get("destination", ""))
    kind, rest = (_KINDS[target[1]], target[2]) if target else ("", "")
    return {**fields, "command": command, "kind": kind, "rest": rest}


def _fits(text: ErrorText, fields: Mapping[str, str]) -> bool:
    if text.commands and fields["command"] not in text.commands:
        return False
    return all(fields.get(word) for word in text.needs) and not (
        text.lacks and fields.get(text.lacks)
    )
