"""Certificates for tests: one authority, created once, and the certificates that it signed."""

import ssl
import tempfile
from functools import cache
from pathlib import Path

import trustme
from attrs import frozen


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
