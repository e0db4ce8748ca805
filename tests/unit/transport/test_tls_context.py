"""The broker's certificate: loading, errors for operators, warnings, reloading, names."""

import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.support.tls import Employee, authority
from trio_stomp.base import OptionError
from trio_stomp.transport.tls import TlsBox
from trio_stomp.transport.tls._tls_context import (
    certificate_names,
    make_server_context,
    validity,
    warnings_of,
)

DAY_S = 24 * 3600.0


@frozen
class Files:
    """A certificate authority, and a pair of files made by it."""

    ca: trustme.CA
    certificate: str
    key: str
    directory: Path

    def write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def renew(self) -> None:
        issue(self.ca, self.directory)


def issue(ca: trustme.CA, directory: Path) -> tuple[str, str]:
    issued = ca.issue_cert("localhost")
    certificate, key = directory / "broker.crt", directory / "broker.key"
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    return str(certificate), str(key)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(ca: trustme.CA, tmp_path: Path) -> Files:
    return Files(ca, *issue(ca, tmp_path), tmp_path)


def self_signed(begin: datetime, end: datetime, *, bits: int = 0) -> tuple[bytes, bytes]:
    key = rsa.generate_private_key(65537, bits) if bits else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(2**120 + 1)
        .not_valid_before(begin)
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private_pem(key)


def valid_until(days: int, *, bits: int = 0) -> tuple[bytes, bytes]:
    """Return a certificate that expires after a number of days, and its key."""
    now = datetime.now(UTC)
    return self_signed(now - timedelta(days=2), now + timedelta(days=days), bits=bits)


def private_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def talk(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Shake hands in memory; return the server's end and the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    waiting = [theirs, ours]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    return ours, theirs


def client_of(files: Files) -> ssl.SSLContext:
    client = ssl.create_default_context()
    files.ca.configure_trust(client)
    return client


# Protocol versions and ciphers.


def test_modern_and_nothing_else(files: Files) -> None:
    context = make_server_context(files.certificate, files.key)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert context.verify_mode is ssl.CERT_NONE
    assert context.num_tickets == 0
    for option in (ssl.OP_NO_COMPRESSION, ssl.OP_NO_RENEGOTIATION, ssl.OP_CIPHER_SERVER_PREFERENCE):
        assert context.options & option
    for cipher in context.get_ciphers():
        assert cipher["aead"]
        name = cipher["name"]
        assert name.startswith(("TLS_", "ECDHE-"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_gets_in(files: Files, version: ssl.TLSVersion) -> None:
    client = client_of(files)
    client.maximum_version = client.minimum_version = version
    client.set_alpn_protocols(["h2", "http/1.1"])
    context = make_server_context(files.certificate, files.key)
    ours, theirs = talk(context, client)
    assert theirs.selected_alpn_protocol() == "http/1.1"
    assert ours.compression() is None
    assert ours.getpeercert() is None
    # No session is kept: neither a ticket of TLS 1.3 on its way, nor a session here.
    assert context.session_stats()["number"] == 0
    with pytest.raises(ssl.SSLWantReadError):
        theirs.read(1)
    session = theirs.session
    assert session is None or session.has_ticket is (version is ssl.TLSVersion.TLSv1_2)


def test_a_client_of_another_protocol_gets_in_without_alpn(files: Files) -> None:
    client = client_of(files)
    client.set_alpn_protocols(["stomp"])
    _, theirs = talk(make_server_context(files.certificate, files.key), client)
    assert theirs.selected_alpn_protocol() is None


def test_key_and_certificate_in_one_file(files: Files) -> None:
    both = Path(files.key).read_bytes() + Path(files.certificate).read_bytes()
    path = files.write("both.pem", both)
    talk(make_server_context(path), client_of(files))
    Path(path).chmod(0o644)
    (warning,) = warnings_of(path, "", datetime.now(UTC).timestamp())
    assert path in warning


# Faulty files.


def refusal(*arguments: str, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        make_server_context(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "_ssl.c" not in text
    return text


@pytest.fixture
def mistakes(files: Files, ca: trustme.CA) -> None:
    """Write the wrong files that an operator may name by mistake, beside the good ones."""
    certificate, key = Path(files.certificate).read_bytes(), Path(files.key).read_bytes()
    at = certificate.index(b"\n") + 100
    weak, weak_key = valid_until(days=1, bits=1024)
    files.write("weak.crt", weak)
    files.write("weak.key", weak_key)
    files.write("der", ssl.PEM_cert_to_DER_cert(first_pem(files.certificate)))
    files.write("bad.crt", certificate[:at] + b"AAAAAAAA" + certificate[at + 20 :])
    files.write("bad.key", key[:60] + b"AAAAAAAA" + key[80:])
    files.write("other.key", ca.issue_cert("other").private_key_pem.bytes())
    files.write("rsa.key", private_pem(rsa.generate_private_key(65537, 2048)))
    (files.directory / "folder").mkdir()


@pytest.mark.usefixtures("mistakes")
@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ({"certificate": "none.pem"}, "none.pem (tls_cert) cannot be read: no such file"),
        ({"key": "none.pem"}, "none.pem (tls_key) cannot be read: no such file"),
        ({"client_ca": "none.pem"}, "none.pem (tls_client_ca) cannot be read: no such file"),
        ({"certificate": "folder"}, "folder (tls_cert) cannot be read: is a directory"),
        ({"certificate": "a\0b"}, "a\0b (tls_cert) cannot be read: embedded null"),
        ({"certificate": "der"}, "der (tls_cert) holds no certificate in PEM"),
        # The certificate in place of the key, and the other way round.
        ({"key": "broker.crt"}, "broker.crt (tls_key) holds no private key"),
        ({"certificate": "broker.key"}, "broker.key (tls_cert) holds no certificate"),
        ({"client_ca": "broker.key"}, "broker.key (tls_client_ca) holds no certificate"),
        ({"certificate": "bad.crt"}, "bad.crt (tls_cert): the certificate in it is damaged; write"),
        ({"key": "bad.key"}, "bad.key (tls_key): the private key in it is damaged; write the file"),
        ({"client_ca": "bad.crt"}, "bad.crt (tls_client_ca): the certificate in it is damaged"),
        ({"key": "other.key"}, "other.key (tls_key) is not the key of broker.crt"),
        ({"key": "rsa.key"}, "rsa.key (tls_key) is not the key of broker.crt"),
        ({"certificate": "weak.crt", "key": "weak.key"}, "weak.crt (tls_cert) is too weak"),
    ],
)
def test_files_that_are_refused(files: Files, mistake: dict[str, str], says: str) -> None:
    names = {"certificate": "broker.crt", "key": "broker.key", **mistake}
    paths = {option: str(files.directory / name) for option, name in names.items()}
    wanted = "required" if "client_ca" in mistake else "off"
    text = refusal(**paths, client_certificates=wanted)
    assert text.replace(f"{files.directory}/", "").startswith(says)


def test_a_certificate_alone_lacks_its_key(files: Files) -> None:
    assert "holds no private key" in refusal(files.certificate)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_that_may_not_be_read(files: Files) -> None:
    Path(files.key).chmod(0)
    text = refusal(files.certificate, files.key)
    assert text.startswith(f"{files.key} (tls_key) cannot be read: permission denied")


def first_pem(path: str) -> str:
    return trustme.Blob(Path(path).read_bytes()).bytes().decode().split("-----END")[0] + (
        "-----END CERTIFICATE-----\n"
    )


def test_a_key_with_a_passphrase_does_not_ask_for_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        pem = key.private_bytes(
            serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"sesame")
        )
        path = files.write("locked.key", pem)
        text = refusal(files.certificate, path)
        assert text.startswith(f"{path} (tls_key) has a passphrase")
        assert f"openssl pkey -in {path}" in text


def test_a_certificate_file_removed_while_it_is_read_is_refused(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    assert "cannot be read: no such file" in refusal(files.certificate, files.key)


def test_clients_certificates_need_an_authority(files: Files) -> None:
    text = refusal(files.certificate, files.key, client_certificates="required")
    assert "tls_client_ca" in text


def test_no_such_word_is_the_callers_fault(files: Files) -> None:
    with pytest.raises(KeyError):
        make_server_context(files.certificate, files.key, minimum="1.1")
    with pytest.raises(KeyError):
        make_server_context(files.certificate, files.key, client_certificates="maybe")


# Certificates of clients.


def test_trusted_authority_need_not_be_a_root(files: Files, ca: trustme.CA) -> None:
    department = ca.create_child_ca()
    clients = {"client_ca": files.write("clients.pem", department.cert_pem.bytes())}
    context = make_server_context(
        files.certificate, files.key, **clients, client_certificates="required"
    )
    client = client_of(files)
    department.issue_cert("alice@example.com").configure_cert(client)
    talk(context, client)
    other = client_of(files)
    ca.issue_cert("bob@example.com").configure_cert(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(context, other)


# Reloading.


def serial(box: TlsBox, files: Files) -> object:
    _, theirs = talk(box.context, client_of(files))
    return (theirs.getpeercert() or {})["serialNumber"]


def test_reloading(files: Files) -> None:
    box = TlsBox(files.certificate, files.key)
    before, context = serial(box, files), box.context
    ours, theirs = talk(box.context, client_of(files))
    files.renew()
    assert serial(box, files) == before
    box.reload()
    assert box.context is not context
    assert serial(box, files) != before
    theirs.write(b"still here")
    assert ours.read(100) == b"still here"


def test_a_reload_that_fails_changes_nothing(files: Files, ca: trustme.CA) -> None:
    box = TlsBox(files.certificate, files.key, minimum="1.3")
    before, context = serial(box, files), box.context
    # Half of a renewal: the new certificate with the old key.
    files.write("broker.crt", ca.issue_cert("localhost").cert_chain_pems[0].bytes())
    with pytest.raises(OptionError, match="not the key"):
        box.reload()
    assert box.context is context
    assert serial(box, files) == before
    files.renew()
    box.reload()
    assert serial(box, files) != before
    assert box.context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_box_needs_good_files(files: Files) -> None:
    with pytest.raises(OptionError):
        TlsBox(files.certificate, files.certificate)


def test_a_box_warns(files: Files) -> None:
    box = TlsBox(files.certificate, files.key)
    Path(files.key).chmod(0o644)
    now = datetime.now(UTC).timestamp()
    assert box.warnings(now) == warnings_of(files.certificate, files.key, now) != ()


# Warnings.


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440, 0o601])
def test_a_key_that_others_cannot_read(files: Files, mode: int) -> None:
    Path(files.key).chmod(mode)
    assert warnings_of(files.certificate, files.key, datetime.now(UTC).timestamp()) == ()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_a_key_that_others_can_read_or_write(files: Files, mode: int) -> None:
    Path(files.key).chmod(mode)
    (warning,) = warnings_of(files.certificate, files.key, datetime.now(UTC).timestamp())
    assert warning.startswith(f"{files.key} (tls_key) has the mode {mode:04o}:")
    assert "chmod 0600" in warning


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_when_a_certificate_ends(files: Files, year: int) -> None:
    # Before 2050 the date has a year of two digits, from then on of four (RFC 5280 4.1.2.5).
    end = datetime(year, 12, 30, 23, 59, 58, tzinfo=UTC)
    begin = datetime(1950, 1, 1, tzinfo=UTC)
    certificate, _ = self_signed(begin, end)
    path = files.write("dated.crt", certificate)
    end_s = end.timestamp()
    for wall_s, says in (
        (end_s - 14 * DAY_S, ""),
        (end_s - 14 * DAY_S + 1, f"expires on {year}-12-30 23:59 UTC"),
        (end_s, "expires on"),
        (end_s + 1, f"expired on {year}-12-30 23:59 UTC"),
        (begin.timestamp() - 1, "is not valid before 1950-01-01 00:00 UTC"),
        (begin.timestamp(), ""),
    ):
        warnings = warnings_of(path, files.key, wall_s)
        assert len(warnings) == bool(says)
        if says:
            assert warnings[0].startswith(f"{path} (tls_cert) {says}")


def test_an_expired_certificate_is_loaded_nevertheless(files: Files) -> None:
    certificate, key = valid_until(days=-1)
    make_server_context(files.write("old.crt", certificate), files.write("old.key", key))


def test_the_first_certificate_of_a_chain_counts(files: Files) -> None:
    now = datetime.now(UTC)
    soon, late = valid_until(days=1)[0], valid_until(days=999)[0]
    path = files.write("chain.crt", b"a comment\n" + late + soon)
    assert warnings_of(path, files.key, now.timestamp()) == ()
    path = files.write("chain.crt", soon + late)
    assert len(warnings_of(path, files.key, now.timestamp())) == 1


def test_uninspectable_certificate_causes_no_warning(files: Files) -> None:
    assert warnings_of("/nowhere/crt", "/nowhere/key", 0.0) == ()
    der = ssl.PEM_cert_to_DER_cert(first_pem(files.certificate))
    for cut in range(0, len(der), 7):
        pem = ssl.DER_cert_to_PEM_cert(der[:cut]) if cut else ""
        path = files.write("cut.crt", pem.encode())
        assert len(warnings_of(path, files.key, 0.0)) <= 1


def test_a_version_1_certificate_has_dates_too(files: Files) -> None:
    # X.509 v1 leaves the version out, so that the serial number comes first.
    certificate, _ = valid_until(days=1)
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    at = der.index(b"\xa0\x03\x02\x01\x02")
    without = ssl.DER_cert_to_PEM_cert(der[:at] + der[at + 5 :])
    path = files.write("v1.crt", without.encode())
    assert len(warnings_of(path, files.key, datetime.now(UTC).timestamp())) == 1


# Names.


def subject(*rdns: tuple[tuple[str, str], ...]) -> dict[str, object]:
    return {"subject": rdns}


@pytest.mark.parametrize(
    ("decoded", "names"),
    [
        ({}, ()),
        (subject(), ()),
        (subject((("commonName", "alice"),)), ("CN=alice",)),
        (
            subject((("countryName", "DE"),), (("organizationName", "X"),), (("commonName", "a"),)),
            ("CN=a,O=X,C=DE", "CN=a"),
        ),
        (
            subject((("commonName", "a"), ("userId", "7")), (("domainComponent", "org"),)),
            ("DC=org,CN=a+UID=7", "CN=a"),
        ),
        (
            subject((("commonName", "one"),), (("commonName", "two"),)),
            ("CN=two,CN=one", "CN=one", "CN=two"),
        ),
        # One value must not be taken for two.
        (subject((("commonName", "admin,O=Bank"),)), ("CN=admin\\,O=Bank",)),
        (subject((("commonName", 'a+b"c\\d<e>f;g=h'),)), ('CN=a\\+b\\"c\\\\d\\<e\\>f\\;g=h',)),
        (subject((("commonName", " a b "),)), ("CN=\\ a b\\ ",)),
        (subject((("commonName", " "),)), ("CN=\\ ",)),
        (subject((("commonName", "#a#"),)), ("CN=\\#a#",)),
        (subject((("commonName", "Łukasz"),)), ("CN=Łukasz",)),
        (subject((("emailAddress", "a@b"),)), ("emailAddress=a@b",)),
        (subject((("1.2.3.4", "x"),)), ("1.2.3.4=x",)),
        # A name with unprintable characters is ignored.
        (subject((("commonName", "admin\0.evil"),)), ()),
        (subject((("commonName", "a\nb"),), (("organizationName", "X"),)), ()),
        (
            {
                "subject": ((("commonName", "a"),),),
                "subjectAltName": (
                    ("DNS", "a.example"),
                    ("email", "a@example"),
                    ("URI", "spiffe://example/a"),
                    ("IP Address", "10.0.0.1"),
                    ("DirName", ((("commonName", "root"),),)),
                    ("DNS", "a.example"),
                    ("URI", "x\nCN=root"),
                ),
            },
            ("CN=a", "DNS:a.example", "email:a@example", "URI:spiffe://example/a"),
        ),
        ({"subjectAltName": (("DNS", "only"),)}, ("DNS:only",)),
    ],
)
def test_names(decoded: dict[str, object], names: tuple[str, ...]) -> None:
    assert certificate_names(decoded) == names


def test_a_resumed_session_has_the_end_of_its_certificate() -> None:
    context = make_server_context(
        authority().certificate, client_ca=authority().file, client_certificates="required"
    )
    alice = Employee.of("alice", authority().ca)
    offers = alice.context()
    offers.maximum_version = ssl.TLSVersion.TLSv1_2
    session = None
    for _ in range(2):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = offers.wrap_bio(back, there, server_hostname="localhost", session=session)
        server = context.wrap_bio(there, back, server_side=True)
        for side in (client, server) * 4:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        session = client.session
    assert server.session_reused
    der = server.getpeercert(binary_form=True)
    assert der is not None
    assert validity(der)[1] == alice.certificate.not_valid_after_utc.timestamp()
