"""A minimal DER parser, for certificates and revocation lists."""

from datetime import UTC, datetime

EXPLICIT_VERSION = 0xA0
INTEGER = 0x02
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18


def element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at ``at`` (X.690 section 8.1).

    Raises:
      IndexError: there is no element.
    """
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        width = length & 0x7F
        length = int.from_bytes(der[at : at + width], "big")
        at += width
    return tag, at, at + length


def time_of(der: bytes, at: int) -> float:
    """Return the time at ``at`` (RFC 5280 section 4.1.2.5), in seconds since 1970.

    Raises:
      ValueError: it is not a time.
    """
    tag, start, end = element(der, at)
    text = der[start:end].decode("ascii")
    if tag == UTC_TIME:  # RFC 5280 section 4.1.2.5.1
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def date_of(wall_s: float) -> str:
    """Return a time in the form ``2026-11-23 09:30 UTC``."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
