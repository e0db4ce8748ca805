"""The broker's TLS context: its certificate, accepted versions, and names of client certificates.

Handles: loading with errors that an operator can act on, warnings, reloading, names.
Does not handle: the bytes of a connection (``_tls_wire``), access rules for names.
Spec: RFC 5280, RFC 4514, RFC 9325 (recommended versions and ciphers).
"""

import binascii
import os
import ssl
import stat
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from trio_stomp.base import OptionError
from trio_stomp.transport.tls._der import EXPLICIT_VERSION, date_of, element, time_of
from trio_stomp.transport.tls._revocation import (
    read_authorities,
    read_revoked,
    revocation_warnings,
)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers for TLS 1.2, with forward secrecy and AEAD, as all ciphers of TLS 1.3 have."""
EXPIRY_WARNING_S = 14 * 24 * 3600.0

_VERIFY = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "givenName": "GN",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "surname": "SN",
    "userId": "UID",
}
"""Short forms of OpenSSL's long names. Other names have no short form."""
_OTHER_NAMES = ("email", "DNS", "URI")
_ESCAPED = frozenset('"+,;<>\\')

_CERTIFICATE = b"CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"


class _EncryptedKeyError(Exception):
    """OpenSSL requested a passphrase, for which it would prompt on the terminal by default."""


def make_server_context(
    certificate: str,
    key: str = "",
    *,
    client_ca: str = "",
    client_certificates: str = "off",
    client_crl: str = "",
    minimum: str = "1.2",
) -> ssl.SSLContext:
    """Return a context with the certificate loaded and secure versions and ciphers selected.

    Args:
      certificate: PEM file of the certificate chain, the broker's own certificate first.
      key: PEM file of its private key, without a passphrase; empty = it is in ``certificate``.
      client_ca: PEM file of the authorities that sign client certificates.
      client_certificates: ``off``, ``optional`` or ``required``.
      client_crl: PEM file of revocation lists, one of each authority; empty = none.
      minimum: The minimum version of TLS, ``1.2`` or ``1.3``.

    Raises:
      OptionError: a file cannot be used; the text names it, the cause and the remedy.
      KeyError: ``client_certificates`` or ``minimum`` is another word.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM[minimum]
    context.set_ciphers(CIPHERS)
    context.options |= (
        ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    # WebSocket's opening handshake is HTTP/1.1 (RFC 6455); without this a browser may offer h2.
    context.set_alpn_protocols(["http/1.1"])
    # Connections are long, so resumption saves nothing. Tickets of TLS 1.2 stay enabled: without
    # them OpenSSL would keep up to 20,480 sessions for hours.
    context.num_tickets = 0
    _load_certificate(context, certificate, key or certificate)
    context.verify_mode = _VERIFY[client_certificates]
    if context.verify_mode is not ssl.CERT_NONE:
        # Trust the authorities in the file, root or not, but none of the machine's roots.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_client_ca(context, client_ca)
        if client_crl:
            # Certificates of authorities are not checked: remove revoked ones from ``client_ca``.
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            read_revoked(client_crl)  # has better error texts than OpenSSL
            context.load_verify_locations(client_crl)
    return context


class TlsBox:
    """The context for new connections, which can be reloaded. Existing connections keep theirs.

    Args:
      certificate, key, client_ca, client_crl, others: as ``make_server_context``.

    Attributes:
      revoked: Keys of certificates that are revoked now, and of authorities trusted no more. A
        handshake that began before the last reload does not know all of them.

    Raises:
      OptionError: a file cannot be used.
    """

    __slots__ = (
        "_client_ca",
        "_client_crl",
        "_files",
        "_load",
        "_once_trusted",
        "context",
        "revoked",
    )

    def __init__(
        self,
        certificate: str,
        key: str = "",
        *,
        client_ca: str = "",
        client_crl: str = "",
        **others: str,
    ) -> None:
        self._files = (certificate, key)
        self._client_ca, self._client_crl = client_ca, client_crl
        self._load: Callable[[], ssl.SSLContext] = partial(
            make_server_context,
            certificate,
            key,
            client_ca=client_ca,
            client_crl=client_crl,
            **others,
        )
        self.context, self.revoked = self._load(), frozenset[str]()
        self._once_trusted = read_authorities(client_ca)

    @classmethod
    def over(cls, context: ssl.SSLContext) -> "TlsBox":
        """Return a box with a program's own context, which is never reloaded.

        Raises:
          OptionError: the context is for clients.
        """
        try:
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
        except ssl.SSLError:
            raise OptionError(
                "ssl_context is for clients; create it with"
                " ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), and load a certificate"
            ) from None
        box = cls.__new__(cls)
        box._files, box._load, box.context = ("", ""), lambda: context, context
        box._client_ca = box._client_crl = ""
        box.revoked = box._once_trusted = frozenset()
        return box

    def load(self) -> ssl.SSLContext:
        """Read the files again and return a new context, without using it.

        Raises:
          OptionError: a file cannot be used.
        """
        return self._load()

    def reload(self) -> None:
        """Read the files again, and use them for new connections.

        Raises:
          OptionError: a file cannot be used; the context is unchanged.
        """
        self.context = self._load()

    def read_revoked(self) -> frozenset[str]:
        """Return the keys of revoked certificates, and of authorities trusted no more.

        Raises:
          OptionError: a file cannot be used.
        """
        trusted = read_authorities(self._client_ca)
        self._once_trusted |= trusted
        return read_revoked(self._client_crl) | (self._once_trusted - trusted)

    def warnings(self, wall_s: float) -> tuple[str, ...]:
        """Return ``warnings_of`` for the files of this box."""
        if not any(self._files):
            return ()
        lists = revocation_warnings(self._client_crl, wall_s) if self._client_crl else ()
        return (*warnings_of(*self._files, wall_s), *lists)


def warnings_of(certificate: str, key: str, wall_s: float) -> tuple[str, ...]:
    """Return lines for the log about problems of the files, such as imminent expiry.

    Args:
      certificate: PEM file of the certificate.
      key: PEM file of its private key; empty = it is in ``certificate``.
      wall_s: Wall time, in seconds since 1970.
    """
    return (*_key_warnings(key or certificate), *_date_warnings(certificate, wall_s))


def certificate_names(decoded: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the distinct names in a certificate, in the form used by access rules.

    Names with unprintable characters are omitted, as they can only deceive.

    Args:
      decoded: The result of ``SSLObject.getpeercert()`` for a verified certificate.
    """
    names = []
    subject = decoded.get("subject", ())
    if subject:
        names.append(_distinguished_name(subject))
        values = [value for rdn in subject for kind, value in rdn if kind == "commonName"]
        names += [f"CN={_escaped(value)}" for value in values]
    others = decoded.get("subjectAltName", ())
    names += [f"{kind}:{value}" for kind, value in others if kind in _OTHER_NAMES]
    return tuple(dict.fromkeys(name for name in names if name.isprintable()))


# Loading.


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    _check_pem(certificate, "tls_cert", _CERTIFICATE, "certificate")
    _check_pem(key, "tls_key", _KEY, "private key")
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except _EncryptedKeyError:
        raise OptionError(
            f"{key} (tls_key) has a passphrase, which cannot be entered at start; remove it with "
            f"`openssl pkey -in {key} -out NEW.pem` and give NEW.pem the mode 0600"
        ) from None
    except ssl.SSLError as error:
        raise OptionError(_fault(certificate, key, error.reason or "")) from None
    except OSError as error:
        raise OptionError(f"{certificate} (tls_cert) {_unreadable(error)}") from None


def check_certificates(path: str, option: str) -> None:
    """Check that a file has certificates in PEM.

    Raises:
      OptionError: It cannot be read, or has none.
    """
    _check_pem(path, option, _CERTIFICATE, "certificate")


def _load_client_ca(context: ssl.SSLContext, client_ca: str) -> None:
    if not client_ca:
        raise OptionError(
            "tls_client_certificates needs tls_client_ca, the PEM file of the authorities that "
            "sign them"
        )
    _check_pem(client_ca, "tls_client_ca", _CERTIFICATE, "certificate")
    try:
        context.load_verify_locations(client_ca)
    except OSError:  # includes ssl.SSLError
        raise OptionError(_damaged(client_ca, "tls_client_ca", "certificate")) from None


def _check_pem(path: str, option: str, mark: bytes, what: str) -> None:
    """Check that a file is PEM, because OpenSSL does not report which file is at fault.

    Args:
      path: The file.
      option: The option that names it.
      mark: A part of the expected `-----BEGIN` line.
      what: The expected content, for the error text.

    Raises:
      OptionError: the file cannot be read, or has no such content.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise OptionError(f"{path} ({option}) {_unreadable(error)}") from None
    if mark not in text:
        raise OptionError(
            f"{path} ({option}) holds no {what} in PEM, the format that has `-----BEGIN` lines"
        )


def _unreadable(error: OSError | ValueError) -> str:
    cause = getattr(error, "strerror", None) or str(error)
    return f"cannot be read: {cause.lower()}; name a PEM file that the broker's user may read"


def _damaged(path: str, option: str, what: str) -> str:
    return f"{path} ({option}): the {what} in it is damaged; write the file again"


def _fault(certificate: str, key: str, reason: str) -> str:
    """Return the error text for a certificate and key that OpenSSL refused with ``reason``."""
    # NO_CERTIFICATE_ASSIGNED: the key is of another kind than the certificate.
    if reason.endswith("_MISMATCH") or reason == "NO_CERTIFICATE_ASSIGNED":
        return (
            f"{key} (tls_key) is not the key of {certificate} (tls_cert), where the certificate "
            "of the broker itself must stand first; give two files that belong together"
        )
    if reason.endswith(("_TOO_SMALL", "_TOO_WEAK")):
        weak = reason.replace("_", " ").lower()
        return f"{certificate} (tls_cert) is too weak: {weak}; have a new one issued"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        return _damaged(certificate, "tls_cert", "certificate")
    return _damaged(key, "tls_key", "private key")


def _refuse_passphrase() -> str:
    raise _EncryptedKeyError


# Warnings.


def _key_warnings(key: str) -> list[str]:
    try:
        mode = os.stat(key).st_mode
    except OSError:
        return []  # it was readable a moment ago
    if not mode & (stat.S_IROTH | stat.S_IWOTH):
        return []  # access by a group is common
    return [
        f"{key} (tls_key) has the mode {stat.S_IMODE(mode):04o}: every user of this machine can"
        " read the broker's key; chmod 0600 it"
    ]


def _date_warnings(certificate: str, wall_s: float) -> list[str]:
    try:
        with open(certificate, encoding="latin-1") as file:
            begin_s, end_s = validity(_first_certificate(file.read()))
    except (OSError, ValueError, IndexError):
        return []  # OpenSSL could read it
    name = f"{certificate} (tls_cert)"
    if wall_s < begin_s:
        return [
            f"{name} is not valid before {date_of(begin_s)}; is the clock of this machine right?"
        ]
    if wall_s > end_s:
        return [f"{name} expired on {date_of(end_s)}: clients will refuse it; renew it"]
    if wall_s > end_s - EXPIRY_WARNING_S:
        return [f"{name} expires on {date_of(end_s)}; renew it"]
    return []


def _first_certificate(text: str) -> bytes:
    """Return the first certificate of a PEM file, which is the broker's own."""
    body = text.partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END")[0]
    return binascii.a2b_base64(body)


def validity(certificate: bytes) -> tuple[float, float]:
    """Return begin and end of a certificate's validity (RFC 5280 section 4.1), in s since 1970.

    The ``ssl`` module reports these of peers' certificates only, and ``cryptography`` is optional.
    """
    _, at, _ = element(certificate, 0)
    _, at, _ = element(certificate, at)
    if certificate[at] == EXPLICIT_VERSION:
        _, _, at = element(certificate, at)
    for _ in ("serial number", "signature algorithm", "issuer"):
        _, _, at = element(certificate, at)
    _, begin, _ = element(certificate, at)
    _, _, end = element(certificate, begin)
    return time_of(certificate, begin), time_of(certificate, end)


# Names.


def _distinguished_name(subject: "tuple[tuple[tuple[str, str], ...], ...]") -> str:
    """Return the subject in the form of ``openssl x509 -subject -nameopt RFC2253``."""
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(kind, kind)}={_escaped(value)}" for kind, value in rdn)
        for rdn in reversed(subject)
    )


def _escaped(value: str) -> str:
    """Escape a value as in RFC 4514 section 2.4, so that it cannot look like two."""
    last = len(value) - 1
    escaped = []
    for at, char in enumerate(value):
        is_special = (
            char in _ESCAPED or (char == " " and at in (0, last)) or (char == "#" and at == 0)
        )
        escaped.append(f"\\{char}" if is_special else char)
    return "".join(escaped)
