"""Functions to build and read frames: ``from trio_stomp.peer import frames``.

A frame is a value: ``Frame(command, headers, body)``, with ``headers`` as pairs of name and value.
These functions build common frames; build others with ``Frame``, as in ``Frame("ACK",
(("id", "1"),))``. Required headers are not checked, since a low-level peer may send invalid frames
as a test.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trio_stomp.base import OptionError, ProtocolError
from trio_stomp.frames import (
    CONNECT,
    CONNECTED,
    DISCONNECT,
    ERROR,
    OPENING,
    SECRET_HEADERS,
    SEND,
    SUBSCRIBE,
    UNESCAPED,
    UNSUBSCRIBE,
    V1_0,
    V1_1,
    V1_2,
    Frame,
    HeaderRules,
    encode_frame,
    encode_header,
    excerpt,
)

__all__ = [
    "Frame",
    "connect",
    "connected",
    "disconnect",
    "encode",
    "error",
    "needed",
    "send",
    "send_string",
    "subscribe",
    "unsubscribe",
]

RULES: Mapping[str, HeaderRules] = MappingProxyType({"1.0": V1_0, "1.1": V1_1, "1.2": V1_2})

_COMMAND = re.compile(r"[!-~]{1,32}")

Pairs = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers, as a mapping or as pairs in order."""


def connect(
    login: str = "",
    passcode: str = "",
    *,
    host: str = "localhost",
    versions: str = "1.2",
    headers: Pairs = (),
) -> Frame:
    """Return a CONNECT.

    Args:
      login: The user name; left out if empty.
      passcode: The passcode; left out if empty.
      host: The virtual host.
      versions: The versions offered, as ``1.0,1.1,1.2``; empty = as a client of STOMP 1.0.
      headers: Further headers.
    """
    fields = (
        ("accept-version", versions),
        ("host", host),
        ("login", login),
        ("passcode", passcode),
    )
    return Frame(CONNECT, (*_without_empty(fields), *_pairs(headers)))


def connected(session: str = "", *, version: str = "1.2", headers: Pairs = ()) -> Frame:
    """Return a server's CONNECTED. ``session`` and ``version`` are left out if empty."""
    fields = (("version", version), ("session", session))
    return Frame(CONNECTED, (*_without_empty(fields), *_pairs(headers)))


def send(destination: str, body: bytes = b"", headers: Pairs = ()) -> Frame:
    """Return a SEND with a body of bytes."""
    return Frame(SEND, (("destination", destination), *_pairs(headers)), body)


def send_string(destination: str, text: str, headers: Pairs = ()) -> Frame:
    """Return a SEND with a text in UTF-8, as ``text/plain`` unless ``headers`` say otherwise."""
    fields = _pairs(headers)
    if all(name != "content-type" for name, _ in fields):
        fields = (("content-type", "text/plain"), *fields)
    return send(destination, text.encode(), fields)


def subscribe(destination: str, *, id: str = "", ack: str = "", headers: Pairs = ()) -> Frame:
    """Return a SUBSCRIBE. ``id`` (needed since STOMP 1.1) and ``ack`` are left out if empty."""
    fields = (("id", id), ("destination", destination), ("ack", ack))
    return Frame(SUBSCRIBE, (*_without_empty(fields), *_pairs(headers)))


def unsubscribe(destination: str = "", *, id: str = "", headers: Pairs = ()) -> Frame:
    """Return an UNSUBSCRIBE, by id or (STOMP 1.0) by destination. Empty values are left out."""
    fields = (("id", id), ("destination", destination))
    return Frame(UNSUBSCRIBE, (*_without_empty(fields), *_pairs(headers)))


def disconnect(receipt: str = "") -> Frame:
    """Return a DISCONNECT. The RECEIPT for ``receipt`` confirms everything sent before."""
    return Frame(DISCONNECT, _without_empty((("receipt", receipt),)))


def error(message: str, body: str = "", frame: Frame | None = None) -> Frame:
    """Return an ERROR, by which a server refuses a frame.

    Args:
      message: One line for people.
      body: Further text.
      frame: The refused frame; its start is quoted before ``body``, without secrets.
    """
    text = f"{body}\n".encode() if body else b""
    if frame is not None:
        text = b"The frame\n-----\n%b\n-----\n%b" % (_quoted(frame), text)
    fields = (("message", message), ("content-type", "text/plain" if text else ""))
    return Frame(ERROR, _without_empty(fields), text)


def needed(frame: Frame, name: str) -> str:
    """Return the value of header ``name``, where ``frame.get(name)`` would return None.

    Raises:
      ProtocolError: it is missing, by the fault of the frame's sender.
    """
    text = frame.get(name)
    if text is None:
        raise ProtocolError("header-missing", f"{frame.command[:32]} needs the header {name}")
    return text


def encode(frame: Frame, version: str = "1.2") -> bytes:
    """Return the frame as bytes, with a ``content-length`` if there is a body.

    Args:
      frame: The frame.
      version: The version whose escaping rules apply: 1.0, 1.1 or 1.2.

    Raises:
      OptionError: the version cannot represent a header, by the caller's fault.
    """
    rules = OPENING if frame.command in UNESCAPED else rules_of(version)
    if not _COMMAND.fullmatch(frame.command):
        raise OptionError(
            f"{frame.command[:40]!r} is no command: write up to 32 visible ASCII characters"
        )
    if frame.receipt is not None:
        raise OptionError("give the receipt in the headers, as ('receipt', '1')")
    headers = [(name, text) for name, text in frame.headers if name != "content-length"]
    for name, text in headers:
        if not name or (not encode_header(name, text, rules) and (text or rules is not V1_0)):
            # The value may be a passcode, so quote only the name.
            raise OptionError(
                f"the header {name[:40]!r} has no name, or holds what STOMP {rules.name} cannot"
                " carry: a NUL, or a line end or a colon where there is no escape for it"
            )
    return encode_frame(frame.command, headers, rules, frame.body)


def rules_of(version: str) -> HeaderRules:
    """Return the escaping rules of a version.

    Raises:
      OptionError: the version is unknown.
    """
    if version not in RULES:
        raise OptionError(f"version={version!r} must be one of {', '.join(RULES)}")
    return RULES[version]


def _without_empty(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs if text)


def _pairs(headers: Pairs) -> tuple[tuple[str, str], ...]:
    return tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)


def _quoted(frame: Frame) -> bytes:
    lines = [frame.command]
    for name, text in frame.headers:
        shown = "***" if name.lower().strip() in SECRET_HEADERS else text
        lines.append(f"{name}:{shown}")
    return excerpt("\n".join(lines).encode(errors="replace")).replace(b"\0", b"?")
