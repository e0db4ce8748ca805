"""Parameters that several requests have, and the errors of the interface."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from trio_stomp.base import ProtocolError
from trio_stomp.transport import HttpError
from trio_stomp.web._query import BAD_REQUEST, Query
from trio_stomp.web.declared import Parameter, Word

if TYPE_CHECKING:
    from trio_stomp.broker import Manager

ERRORS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        BAD_REQUEST: (400, "a parameter is missing, unknown or wrong"),
        "invalid-selector": (400, "the selector is wrong"),
        "invalid-destination": (400, "the destination is wrong, or cannot be used for this"),
        "wildcard-in-send": (400, "the destination is a wildcard; name one destination"),
        "destination-too-long": (400, "the name is longer than the option max_destination_bytes"),
        "invalid-settings": (400, "a file of settings, users or rules is wrong"),
        "invalid-definitions": (400, "the body is no export of definitions"),
        "authentication-failed": (401, "log in"),
        "not-authorized": (
            403,
            "a right is missing, or the request came from a web page of another origin",
        ),
        "not-allowed": (403, "the destination belongs to a connection, which alone may use it"),
        "no-such-address": (404, "openapi.json lists the addresses"),
        "no-such-queue": (404, "queues exist while they have messages or consumers"),
        "no-such-destination": (404, "nobody has used the destination"),
        "no-such-session": (404, "the connection has ended, or has no part in the queue"),
        "no-such-subscription": (404, "there is no such durable subscription"),
        "unknown-stream": (404, "the topic has no stream"),
        "invalid-schedule": (400, "the id is not a number or a range such as 17-20"),
        "method-not-allowed": (405, "GET instead of POST, or the reverse"),
        "queue-full": (409, "the target of a move is full; `moved` messages were moved"),
        "no-subscriber": (409, "the target of a move is a topic without subscribers"),
        "partitions-apart": (409, "the target of a move lies in another partition of the cluster"),
        "ambiguous-subscription": (
            409,
            "several durable subscriptions have the name; give destination and owner, too",
        ),
        "queue-not-empty": (409, "the queue has messages; purge it, or give force=1"),
        "queue-in-use": (409, "the queue has consumers; force=1 closes their connections"),
        "length-required": (411, "send the body with its length, not in chunks"),
        "too-large": (413, "the body is too large"),
        "memory-limit": (503, "the memory of the broker, or the user's share of it, is full"),
        "storage": (503, "the store has failed; the message is not stored"),
        "busy": (503, "too many operations are running, or answers are not read"),
    }
)
"""The stable codes of errors: the status of HTTP, and the cause."""
OF_PUBLIC = (BAD_REQUEST, "method-not-allowed", "busy")
"""Codes that every request may get."""
OF_ALL = (*OF_PUBLIC, "authentication-failed", "not-authorized")
"""Codes that every request that is not public may get."""
COPIES = Word(
    "copies",
    "in a cluster with partitions: 0 leaves out those that another partition has, too, and counts;"
    " 1 lists only these",
    choices=("0", "1"),
)


def destination_of(
    manager: "Manager", query: Query, parameter: Parameter, *, is_target: bool = False
) -> str:
    """Return the destination that a parameter names. Only messages' targets may be private.

    Raises:
      HttpError: the parameter is no single destination, or a private one.
    """
    try:
        return manager.resolve(query.text(parameter), is_target=is_target)
    except ProtocolError as error:
        raise as_http(error) from None


def as_http(error: ProtocolError) -> HttpError:
    """Return the HTTP form of an error of the core."""
    status, _ = ERRORS.get(error.code, (400, ""))
    return HttpError(status, error.message, code=error.code)


def http_error(code: str, text: str) -> HttpError:
    """Return an error of this interface."""
    return HttpError(ERRORS[code][0], text, code=code)
