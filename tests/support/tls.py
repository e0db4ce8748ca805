"""Certificates for tests: one authority, created once, and the certificates that it signed."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


@frozen
class Authority:
    """A certificate authority, and where its files are."""

    ca: trustme.CA
    directory: Path

    @property
    def file(self) -> str:
        """Its own certificate."""
        return str(self.directory / "ca.pem")

    @property
    def certificate(self) -> str:
        """Return the path of the broker's certificate for this machine, with its key."""
        return str(self.directory / "broker.pem")

    def client_context(self, common_name: str = "") -> ssl.SSLContext:
        """Return a client's context, with a certificate of its own if ``common_name`` is given."""
        context = ssl.create_default_context(cafile=self.file)
        if common_name:
            issued = self.ca.issue_cert(f"{common_name}@clients.example", common_name=common_name)
            issued.configure_cert(context)
        return context


def issue(authority: Authority, path: Path) -> None:
    """Write a fresh certificate for this machine, and its key, into a file."""
    issued = authority.ca.issue_cert("localhost", "127.0.0.1", "::1")
    path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    path.chmod(0o600)


@cache
def authority() -> Authority:
    """The authority of this test run."""
    made = Authority(trustme.CA(), Path(tempfile.mkdtemp(prefix="trio-stomp-tls-")))
    made.ca.cert_pem.write_to_path(made.file)
    issue(made, Path(made.certificate))
    return made


@frozen
class Employee:
    """An owner of a certificate."""

    name: str
    leaf: trustme.LeafCert

    @classmethod
    def of(cls, name: str, ca: trustme.CA) -> "Employee":
        return cls(name, ca.issue_cert(f"{name}@clients.example", common_name=name))

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.leaf.cert_chain_pems[0].bytes())

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority().file)
        self.leaf.configure_cert(context)
        return context


def revocation_list(ca: trustme.CA, *revoked: Employee, until: datetime = NOW + 7 * DAY) -> bytes:
    """A revocation list, in PEM."""
    signer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    made = x509.CertificateRevocationListBuilder().issuer_name(signer.subject)
    made = made.last_update(NOW - 2 * DAY).next_update(until)
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
        made = made.add_revoked_certificate(entry.revocation_date(NOW - DAY).build())
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
