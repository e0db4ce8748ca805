"""Encodes the frames of a client (SEND, SUBSCRIBE, ACK and others) by version."""

from collections.abc import Iterable

from attrs import define, field

from trio_stomp.base import OptionError
from trio_stomp.frames import (
    DISCONNECT,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V1_0,
    encode_frame,
    encode_header,
)
from trio_stomp.protocol._versions import Version

Pairs = Iterable[tuple[str, str]]

_MAX_LINES = 1024
"""Maximum number of destinations with a cached header line."""
_OWN = frozenset(
    {"destination", "content-length", "receipt", "transaction", "subscription", "message-id", "ack"}
)
"""Headers of a SEND that are written here or by the broker."""


@define(eq=False)
class ClientFrames:
    """Encodes the frames of a client in an open session, except CONNECT.

    Args:
      version: The negotiated version.
    """

    version: Version
    _lines: dict[str, bytes] = field(factory=dict)

    def send(
        self,
        destination: str,
        body: bytes,
        headers: Pairs = (),
        *,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """Return a SEND.

        Args:
          destination: The destination, not empty.
          body: The body.
          headers: Further headers, unescaped.
          receipt: The id of a receipt to request, which needs no escapes; None = none.
          transaction: The transaction, which needs no escapes; None = none.

        Raises:
          OptionError: the version cannot carry a header, or one of ``headers`` is written here.
        """
        line = self._lines.get(destination)
        if line is None:
            if not destination:
                raise OptionError("a SEND needs a destination")
            line = b"SEND\n" + self._line("destination", destination)
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            self._lines[destination] = line
        if headers:
            line += self._own_lines(headers)
        if transaction is not None:
            line += b"transaction:%b\n" % transaction.encode()
        if receipt is not None:
            line += b"receipt:%b\n" % receipt.encode()
        return b"%bcontent-length:%d\n\n%b\0" % (line, len(body), body)

    def subscribe(self, headers: Pairs) -> bytes:
        """Return a SUBSCRIBE with these headers, which may include ``receipt``."""
        lines = b"".join(self._line(name, text) for name, text in headers)
        return b"%b\n%b\n\0" % (SUBSCRIBE.encode(), lines)

    def unsubscribe(self, headers: Pairs) -> bytes:
        """Return an UNSUBSCRIBE with these headers, which may include ``receipt``."""
        lines = b"".join(self._line(name, text) for name, text in headers)
        return b"%b\n%b\n\0" % (UNSUBSCRIBE.encode(), lines)

    def acknowledge(
        self,
        ack: str,
        subscription: str | None,
        *,
        negative: bool = False,
        requeue: bool = True,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """Return an ACK or NACK of a delivery, with the header that the version requires.

        Args:
          ack: The id to acknowledge, as in ``Delivered``.
          subscription: The id of the subscription, as in ``Delivered``.
          negative: Whether it is a NACK.
          requeue: Whether a NACK returns the message to the queue.
          receipt: The id of a receipt to request; None = none.
          transaction: The transaction; None = none.

        Raises:
          OptionError: STOMP 1.0 has no NACK.
        """
        version = self.version
        if negative and not version.nacks:
            raise OptionError(f"STOMP {version.name} has no NACK; offer the version 1.1 or 1.2")
        lines = self._line("id" if version.acks_by_header else "message-id", ack)
        if not version.acks_by_header and subscription:
            lines += self._line("subscription", subscription)
        if transaction is not None:
            lines += b"transaction:%b\n" % transaction.encode()
        if receipt is not None:
            lines += b"receipt:%b\n" % receipt.encode()
        if negative and not requeue:
            lines += b"requeue:false\n"
        return b"%b\n%b\n\0" % (b"NACK" if negative else b"ACK", lines)

    def transact(self, command: str, name: str, receipt: str | None = None) -> bytes:
        """Return a BEGIN, COMMIT or ABORT of the transaction ``name``."""
        receipts = () if receipt is None else (("receipt", receipt),)
        return encode_frame(command, (("transaction", name), *receipts), self.version.rules)

    def disconnect(self, receipt: str) -> bytes:
        """Return a DISCONNECT. Its RECEIPT confirms that all earlier frames have been handled."""
        return encode_frame(DISCONNECT, (("receipt", receipt),), self.version.rules)

    def _own_lines(self, headers: Pairs) -> bytes:
        lines = b""
        for name, text in headers:
            if name in _OWN:
                raise OptionError(f"the header {name} is written by the client; leave it out")
            lines += self._line(name, text)
        return lines

    def _line(self, name: str, text: str) -> bytes:
        rules = self.version.rules
        line = encode_header(name, text, rules)
        if not line and (text or rules is not V1_0):
            raise OptionError(
                f"{_shown(name)} contains a NUL, or a line end for which STOMP {rules.name} has "
                "no escape"
            )
        return line


def _shown(name: str) -> str:
    return f"the header {name[:40]!r}"
