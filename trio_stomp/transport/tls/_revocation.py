"""Certificate revocation lists (CRL) in PEM.

OpenSSL checks them in handshakes. They are read here to close existing connections, and to warn
before they expire. Handles: complete lists. Does not handle: deltas, indirect lists, OCSP.

Spec: RFC 5280 section 5.1.
"""

import binascii
import hashlib
import math
import re
from collections.abc import Iterator

from trio_stomp.base import OptionError
from trio_stomp.transport.tls._der import (
    EXPLICIT_VERSION,
    GENERALIZED_TIME,
    INTEGER,
    UTC_TIME,
    date_of,
    element,
    time_of,
)

SOON_S = 24 * 3600.0
"""Time before expiry to warn at. Lists are renewed every few days or hours, so not sooner."""

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----")
_LIST = re.compile(r"-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----")
_SEQUENCE = 0x30
_TIMES = (UTC_TIME, GENERALIZED_TIME)


def certificate_keys(der: bytes) -> frozenset[str]:
    """Return digests of a certificate's issuer and serial number, and of its issuer alone.

    Raises:
      ValueError, IndexError: it is not a certificate.
    """
    serial, issuer, _ = _parts(der)
    return frozenset((_key(issuer, serial), _key(issuer)))


def read_authorities(path: str) -> frozenset[str]:
    """Return the digests of the authorities in a file: ``certificate_keys`` has that of its issuer.

    Args:
      path: A PEM file of certificates. There are none if OpenSSL would not read it.
    """
    try:
        with open(path, encoding="latin-1") as file:
            ders = [binascii.a2b_base64(body) for body in _CERTIFICATE.findall(file.read())]
        return frozenset(_key(_parts(der)[2]) for der in ders)
    except (OSError, ValueError, IndexError):
        return frozenset()


def _parts(der: bytes) -> tuple[bytes, bytes, bytes]:
    """Return serial number, issuer and subject of a certificate (RFC 5280 section 4.1)."""
    _, at, _ = element(der, 0)
    _, at, _ = element(der, at)
    if der[at] == EXPLICIT_VERSION:
        _, _, at = element(der, at)
    found = []
    for _ in ("serial number", "signature algorithm", "issuer", "validity", "subject"):
        _, _, end = element(der, at)
        found.append(der[at:end])
        at = end
    return found[0], found[2], found[4]


def read_revoked(path: str) -> frozenset[str]:
    """Return the keys (in ``certificate_keys``) of certificates revoked by the lists in a file.

    Args:
      path: A PEM file; "" = no revocations.

    Raises:
      OptionError: the file cannot be read, or a list is damaged.
    """
    if not path:
        return frozenset()
    return frozenset(key for der in _lists(path) for key in _revoked(der))


def revocation_warnings(path: str, wall_s: float) -> Iterator[str]:
    """Yield a line for the log if a list has expired or will soon.

    Args:
      path: A PEM file that ``read_revoked`` has read.
      wall_s: Wall time, in seconds since 1970.

    Raises:
      OptionError: as ``read_revoked``.
    """
    ends_at = min((_next_update(der) for der in _lists(path)), default=math.inf)
    if wall_s > ends_at:
        yield (
            f"{path} (tls_client_crl) expired on {date_of(ends_at)}: client certificates are "
            "refused; fetch the new list, and send SIGHUP"
        )
    elif wall_s > ends_at - SOON_S:
        yield (
            f"{path} (tls_client_crl) expires on {date_of(ends_at)}, and then client certificates "
            "are refused; fetch the next list, and send SIGHUP"
        )


def _lists(path: str) -> list[bytes]:
    try:
        with open(path, encoding="latin-1") as file:
            lists = [binascii.a2b_base64(body) for body in _LIST.findall(file.read())]
        for der in lists:
            _next_update(der), list(_revoked(der))
    except (OSError, ValueError, IndexError) as error:
        cause = getattr(error, "strerror", None)
        problem = f"cannot be read: {cause.lower()}" if cause else "the list in it is damaged"
        raise OptionError(
            f"{path} (tls_client_crl): {problem}; give a PEM file of lists of revoked certificates"
        ) from None
    if not lists:
        raise OptionError(
            f"{path} (tls_client_crl) holds no list of revoked certificates in PEM, which begins"
            " with `-----BEGIN X509 CRL-----`"
        )
    return lists


def _body(der: bytes) -> tuple[int, bytes]:
    """Return the position of ``thisUpdate`` in a list, and its issuer."""
    _, at, _ = element(der, 0)
    _, at, _ = element(der, at)
    if der[at] == INTEGER:  # the version
        _, _, at = element(der, at)
    _, _, issuer = element(der, at)
    _, _, end = element(der, issuer)
    return end, der[issuer:end]


def _next_update(der: bytes) -> float:
    at, _ = _body(der)
    time_of(der, at)
    _, _, at = element(der, at)
    return time_of(der, at) if der[at] in _TIMES else math.inf


def _revoked(der: bytes) -> Iterator[str]:
    at, issuer = _body(der)
    while der[at] in _TIMES:
        _, _, at = element(der, at)
    if der[at] != _SEQUENCE:
        return  # nothing is revoked
    _, at, end = element(der, at)
    # In a list without revocations the signature's algorithm follows, which is a sequence too, but
    # its first element is not.
    while at < end and der[at] == _SEQUENCE:
        _, serial, after = element(der, at)
        yield _key(issuer, der[serial : element(der, serial)[2]])
        at = after


def _key(issuer: bytes, serial: bytes = b"") -> str:
    return hashlib.sha256(issuer + serial).hexdigest()
