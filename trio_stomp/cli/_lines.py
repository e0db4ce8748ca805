"""Reading and writing messages as lines of JSON, and headers of the command line."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._tool import near

KEYS = ("destination", "headers", "body", "body_base64")
OF_ONE_HOP = frozenset(
    {
        "ack",
        "content-length",
        "delivery-count",
        "destination",
        "message-id",
        "receipt",
        "receipt-id",
        "redelivered",
        "subscription",
        "transaction",
    }
)
"""Headers of one delivery, which are not sent again with the message."""
STREAM = "x-stream-"


@frozen
class Outgoing:
    """A message to send."""

    destination: str
    body: bytes
    headers: dict[str, str]


def headers_of(what: str) -> Argument:
    """Return ``-H name:value``, for the headers of something."""
    help = f"a header of {what}; may be repeated"
    return Argument("-H --header NAME:VALUE...", help, default=[], dest="headers")


def read_headers(given: Iterable[str]) -> dict[str, str]:
    """Return the headers of the command line.

    Raises:
      OptionError: a header lacks a name or colon, or is given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise OptionError(f"-H {name[:80]!r} is not a header; write name:value")
        if name in found:
            raise OptionError(f"-H {name[:80]} is given twice; only the first would count")
        found[name] = value
    return found


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a MESSAGE that its sender set."""
    return {
        name: text
        for name, text in headers.items()
        if name not in OF_ONE_HOP and not name.startswith(STREAM)
    }


def read_line(line: str, destination: str, headers: Mapping[str, str], where: str) -> Outgoing:
    """Read a message from a line of JSON.

    Args:
      line: The line.
      destination: The destination of a line that names none; "" = each line must name one.
      headers: The headers of the command line, which override those of the line.
      where: The position of the line, for the error.

    Raises:
      OptionError: the line is not a message; the error does not quote it.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise OptionError(f"{where} is not valid JSON") from None
    if not isinstance(found, dict):
        raise OptionError(f"{where} is not an object; write {{'destination', 'headers', 'body'}}")
    for key in found:
        if key not in KEYS:
            raise OptionError(
                f"{where}: unknown key {key[:80]!r}{near(key, KEYS)} (known: {', '.join(KEYS)})"
            )
    to = found.get("destination") or destination
    if not isinstance(to, str) or not to:
        raise OptionError(f"{where} has no destination; add it there, or to the command line")
    return Outgoing(to, _body(found, where), {**_headers(found, where), **headers})


def _headers(found: dict[str, Any], where: str) -> dict[str, str]:
    headers = found.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise OptionError(f"{where}: headers must be an object of texts")
    return own_headers(headers)


def _body(found: dict[str, Any], where: str) -> bytes:
    text, coded = found.get("body"), found.get("body_base64")
    if text is not None and coded is not None:
        raise OptionError(f"{where} has both body and body_base64; leave one out")
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise OptionError(f"{where}: body_base64 is no Base64") from None
    if not isinstance(text, str | None):
        raise OptionError(f"{where}: body must be a text; put JSON into quotes")
    try:
        return (text or "").encode()
    except UnicodeEncodeError:
        raise OptionError(f"{where}: body holds half a character (a lone surrogate)") from None


def line_of(destination: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return a message as a line of JSON for ``read_line``."""
    fields: dict[str, object] = {"destination": destination, "headers": dict(headers)}
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(fields)
