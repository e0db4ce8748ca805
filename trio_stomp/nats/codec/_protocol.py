"""The protocol between a NATS client and a server, without I/O.

Source: the NATS documentation, "Client Protocol", and ADR-4 for headers. Operations are accepted in
capitals only, as servers send them.
"""

import json
from collections.abc import Mapping
from enum import Enum

from attrs import define, field, frozen

from trio_stomp.base import value
from trio_stomp.nats.codec._errors import NatsError, NatsProtocolError

MAX_LINE_BYTES = 64 * 1024
"""Maximum length of a line: an INFO with the addresses of some thousand servers."""
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Maximum size of a message, headers included. Servers allow no larger ``max_payload``."""

PING = b"PING\r\n"
PONG = b"PONG\r\n"

_CR = ord("\r")


@value
class Message:
    """A message of a subscription.

    Args:
      sid: The subscription, as given to ``encode_subscribe``.
      reply: The subject for an answer or an acknowledgement; b"" = none.
      headers: The received header block (see ``parse_headers``); b"" = none.
    """

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    payload: bytes


@frozen
class Info:
    """The server's description of itself: sent first, and after each change.

    Args:
      fields: The received object.
    """

    fields: Mapping[str, object]


@frozen
class ServerFault:
    """An error that the server reports (``-ERR``). It closes the connection after most of them.

    Args:
      text: Its text.
    """

    text: str


class Signal(Enum):
    """A server's message without content."""

    PING = "PING"
    PONG = "PONG"


Event = Message | Info | ServerFault | Signal


@define(eq=False, repr=False)
class NatsDecoder:
    """Converts a server's bytes to events, in linear time for any pieces."""

    error: NatsProtocolError | None = None
    """The server's violation of the protocol; later bytes are ignored."""
    _rest: bytearray = field(factory=bytearray)
    """The incomplete rest: a part of a line, or a line and a part of its payload."""
    _wanted: int = 0
    """The length that completes the message in ``_rest``; 0 = its line is incomplete."""

    @property
    def is_empty(self) -> bool:
        """Return whether all bytes have been decoded."""
        return not self._rest

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that ``data`` completes. If the server breaks a rule, set ``error``."""
        if self.error is not None:
            return []
        rest = self._rest
        if rest:
            rest += data
            is_whole = len(rest) >= self._wanted if self._wanted else b"\n" in data
            if not is_whole and len(rest) <= max(self._wanted, MAX_LINE_BYTES):
                return []
            data = bytes(rest)
            rest.clear()
        events: list[Event] = []
        try:
            at = self._decode(data, events)
        except NatsProtocolError as error:
            self.error = error
        else:
            rest += data[at:]
        return events

    def _decode(self, data: bytes, events: list[Event]) -> int:
        """Append the events of all complete messages, and return the position after them."""
        at, total = 0, len(data)
        self._wanted = 0
        while (end := data.find(b"\n", at)) >= 0:
            if end == at or data[end - 1] != _CR:
                raise _broken("a line that ends without a CR", data[at:])
            words = data[at:end].split()
            operation = words[0] if words else b""
            if operation == b"MSG":
                parts, head, size = len(words), 0, words[-1]
            elif operation == b"HMSG" and len(words) > 1:
                parts, head, size = len(words) - 1, _size(words[-2]), words[-1]
            else:
                event = _control(operation, data[at : end - 1])
                if event is not None:
                    events.append(event)
                at = end + 1
                continue
            start = end + 1
            stop = start + (int(size) if size.isdigit() and len(size) < 8 else _size(size))
            if stop + 2 > total:
                self._wanted = stop + 2 - at
                break
            border = start + head
            if not 4 <= parts <= 5 or border > stop or data[stop : stop + 2] != b"\r\n":
                raise _broken("a message that is not as its first line says", data[at:])
            reply = words[3] if parts == 5 else b""
            head_bytes = data[start:border] if head else b""
            events.append(Message(words[1], words[2], reply, head_bytes, data[border:stop]))
            at = stop + 2
        if not self._wanted and total - at > MAX_LINE_BYTES:
            raise _broken("a line that is too long", data[at:])
        return at


def _broken(what: str, data: bytes) -> NatsProtocolError:
    return NatsProtocolError(f"the server sent {what}: {data[:80]!r}")


def _size(word: bytes) -> int:
    """Return the number of bytes in a message's first line.

    Raises:
      NatsProtocolError: it is not a number, or too large.
    """
    if not word.isdigit() or len(word) > 9 or (size := int(word)) > MAX_PAYLOAD_BYTES:
        raise _broken("a message whose size is not a number or too large", word)
    return size


def _control(operation: bytes, line: bytes) -> Info | ServerFault | Signal | None:
    """Return the event of a line without payload, or None for +OK."""
    if operation == b"PING":
        return Signal.PING
    if operation == b"PONG":
        return Signal.PONG
    if operation == b"INFO":
        return Info(parse_object(line[line.index(b"INFO") + 4 :]))
    if operation == b"-ERR":
        return ServerFault(line[line.index(b"-ERR") + 4 :].decode("utf-8", "replace").strip(" '"))
    if operation == b"+OK":
        return None
    raise _broken("a line that is no operation of NATS", line)


def parse_object(text: bytes) -> dict[str, object]:
    """Return the JSON object in ``text``.

    Raises:
      NatsProtocolError: it is not a JSON object.
    """
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _broken("something else where a JSON object must be", text)
    return found


def check_subject(subject: bytes) -> bytes:
    """Return ``subject``.

    Raises:
      NatsError: it is empty or has blanks, which could add words to an operation; by the caller's
        fault.
    """
    if len(subject.split()) != 1 or subject.strip() != subject:
        raise NatsError(f"{subject[:80]!r} is no subject: it must not be empty or have blanks")
    return subject


def encode_connect(fields: Mapping[str, object]) -> bytes:
    """Return the bytes of CONNECT."""
    return b"CONNECT %b\r\n" % json.dumps(fields).encode()


def encode_subscribe(subject: bytes, sid: bytes, group: bytes = b"") -> bytes:
    """Return the bytes of SUB. Each message goes to one subscription of ``group``, if given."""
    if group:
        return b"SUB %b %b %b\r\n" % (check_subject(subject), check_subject(group), sid)
    return b"SUB %b %b\r\n" % (check_subject(subject), sid)


def encode_unsubscribe(sid: bytes) -> bytes:
    """Return the bytes of UNSUB."""
    return b"UNSUB %b\r\n" % sid


def encode_publish(subject: bytes, payload: bytes, headers: bytes = b"") -> bytes:
    """Return the bytes of PUB, or of HPUB if there are ``headers`` (see ``encode_headers``).

    Args:
      subject: A checked subject (see ``check_subject``), or the subject and that for answers, with
        a blank between them.
      payload: The content.
      headers: The header block.
    """
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)
    total = len(headers) + len(payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(headers), total, headers, payload)
