"""The broker's certificate: loading, errors for operators, warnings, reloading, names."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from trio_stomp.base._errors import OptionError
from trio_stomp.transport.tls._tls_context import (
    TlsBox,
    certificate_names,
    make_server_context,
    warnings_of,
)

DAY_S = 24 * 3600.0


@frozen
class Files:
    """A certificate authority, and a pair of files that it made."""

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
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def talk(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Shake hands in memory; the server's end, and the client's."""
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


# What is spoken.


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
    # Nothing is kept of it: neither a ticket of TLS 1.3 on its way, nor a session here.
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
    talk(make_server_context(files.write("both.pem", both)), client_of(files))


# What is wrong with the files.


def refusal(*arguments: str, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        make_server_context(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "_ssl.c" not in text
    return text


def test_missing_files(files: Files) -> None:
    missing = str(files.directory / "none.pem")
    for text, option in (
        (refusal(missing, files.key), "tls_cert"),
        (refusal(files.certificate, missing), "tls_key"),
        (
            refusal(
                files.certificate, files.key, client_ca=missing, client_certificates="required"
            ),
            "tls_client_ca",
        ),
    ):
        assert text.startswith(f"{missing} ({option}) cannot be read: no such file")


def test_what_is_no_file(files: Files) -> None:
    assert "is a directory" in refusal(str(files.directory), files.key)
    assert "cannot be read: embedded null" in refusal("a\0b", files.key)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_that_may_not_be_read(files: Files) -> None:
    Path(files.key).chmod(0)
    text = refusal(files.certificate, files.key)
    assert text.startswith(f"{files.key} (tls_key) cannot be read: permission denied")


def test_files_that_are_no_pem(files: Files) -> None:
    der = files.write("der", ssl.PEM_cert_to_DER_cert(first_pem(files.certificate)))
    assert refusal(der, files.key).startswith(f"{der} (tls_cert) holds no certificate in PEM")
    # The two files swapped, and a certificate where the key should be.
    assert "holds no certificate" in refusal(files.key, files.certificate)
    assert "holds no private key" in refusal(files.certificate, files.certificate)
    assert "holds no private key" in refusal(files.certificate)
    text = refusal(
        files.certificate, files.key, client_ca=files.key, client_certificates="optional"
    )
    assert text.startswith(f"{files.key} (tls_client_ca) holds no certificate")


def first_pem(path: str) -> str:
    return trustme.Blob(Path(path).read_bytes()).bytes().decode().split("-----END")[0] + (
        "-----END CERTIFICATE-----\n"
    )


def test_damaged_files(files: Files) -> None:
    certificate = Path(files.certificate).read_bytes()
    at = certificate.index(b"\n") + 100
    bad = files.write("bad.crt", certificate[:at] + b"AAAAAAAA" + certificate[at + 20 :])
    assert refusal(bad, files.key) == (
        f"{bad} (tls_cert): the certificate in it is damaged; write the file again"
    )
    key = Path(files.key).read_bytes()
    bad_key = files.write("bad.key", key[:60] + b"AAAAAAAA" + key[80:])
    assert refusal(files.certificate, bad_key) == (
        f"{bad_key} (tls_key): the private key in it is damaged; write the file again"
    )
    text = refusal(files.certificate, files.key, client_ca=bad, client_certificates="required")
    assert text.startswith(f"{bad} (tls_client_ca): the certificate in it is damaged")


def test_a_key_of_another_certificate(files: Files, ca: trustme.CA) -> None:
    other = files.write("other.key", ca.issue_cert("other").private_key_pem.bytes())
    text = refusal(files.certificate, other)
    assert text.startswith(f"{other} (tls_key) is not the key of {files.certificate}")


def test_a_key_of_another_kind(files: Files) -> None:
    rsa_key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    other = files.write("rsa.key", rsa_key)
    assert "is not the key of" in refusal(files.certificate, other)


def test_a_certificate_that_is_too_weak(files: Files) -> None:
    now = datetime.now(UTC)
    certificate, key = self_signed(now, now + timedelta(days=1), bits=1024)
    path = files.write("weak.crt", certificate)
    text = refusal(path, files.write("weak.key", key))
    assert text.startswith(f"{path} (tls_cert) is too weak")


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


def test_a_file_that_goes_between_two_looks(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    assert "cannot be read: no such file" in refusal(files.certificate, files.key)


def test_clients_certificates_need_who_signs_them(files: Files) -> None:
    text = refusal(files.certificate, files.key, client_certificates="required")
    assert "tls_client_ca" in text


def test_no_such_word_is_the_callers_fault(files: Files) -> None:
    with pytest.raises(KeyError):
        make_server_context(files.certificate, files.key, minimum="1.1")
    with pytest.raises(KeyError):
        make_server_context(files.certificate, files.key, client_certificates="maybe")


# Certificates of clients.


def authority(files: Files, ca: trustme.CA) -> str:
    return files.write("clients.pem", ca.cert_pem.bytes())


def test_who_signs_need_not_be_a_root(files: Files, ca: trustme.CA) -> None:
    department = ca.create_child_ca()
    context = make_server_context(
        files.certificate,
        files.key,
        client_ca=authority(files, department),
        client_certificates="required",
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


@pytest.mark.parametrize(
    ("mode", "warns"),
    [
        (0o600, 0),
        (0o400, 0),
        (0o640, 0),
        (0o440, 0),
        (0o644, 1),
        (0o604, 1),
        (0o602, 1),
        (0o601, 0),
    ],
)
def test_who_can_read_the_key(files: Files, mode: int, warns: int) -> None:
    Path(files.key).chmod(mode)
    now = datetime.now(UTC).timestamp()
    warnings = warnings_of(files.certificate, files.key, now)
    assert len(warnings) == warns
    if warns:
        assert warnings[0].startswith(f"{files.key} (tls_key) has the mode {mode:04o}:")
        assert "chmod 0600" in warnings[0]


def test_a_key_in_the_file_of_the_certificate_is_looked_after(files: Files) -> None:
    both = files.write(
        "both.pem", Path(files.key).read_bytes() + Path(files.certificate).read_bytes()
    )
    Path(both).chmod(0o644)
    (warning,) = warnings_of(both, "", datetime.now(UTC).timestamp())
    assert both in warning


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_when_a_certificate_ends(files: Files, year: int) -> None:
    # Before 2050 the date has two digits of the year, from then on four (RFC 5280 4.1.2.5).
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
    certificate, key = self_signed(
        datetime(2001, 1, 1, tzinfo=UTC), datetime(2002, 1, 1, tzinfo=UTC)
    )
    make_server_context(files.write("old.crt", certificate), files.write("old.key", key))


def test_the_first_certificate_of_a_chain_counts(files: Files) -> None:
    now = datetime.now(UTC)
    soon, _ = self_signed(now - timedelta(days=1), now + timedelta(days=1))
    late, _ = self_signed(now - timedelta(days=1), now + timedelta(days=999))
    path = files.write("chain.crt", b"a comment\n" + late + soon)
    assert warnings_of(path, files.key, now.timestamp()) == ()
    path = files.write("chain.crt", soon + late)
    assert len(warnings_of(path, files.key, now.timestamp())) == 1


def test_what_cannot_be_looked_at_is_no_warning(files: Files) -> None:
    assert warnings_of("/nowhere/crt", "/nowhere/key", 0.0) == ()
    der = ssl.PEM_cert_to_DER_cert(first_pem(files.certificate))
    for cut in range(0, len(der), 7):
        pem = ssl.DER_cert_to_PEM_cert(der[:cut]) if cut else ""
        path = files.write("cut.crt", pem.encode())
        assert len(warnings_of(path, files.key, 0.0)) <= 1


def test_a_version_1_certificate_has_dates_too(files: Files) -> None:
    # X.509 v1 leaves the version out, so that the serial number comes first.
    now = datetime.now(UTC)
    certificate, _ = self_signed(now - timedelta(days=1), now + timedelta(days=1))
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    at = der.index(b"\xa0\x03\x02\x01\x02")
    without = ssl.DER_cert_to_PEM_cert(der[:at] + der[at + 5 :])
    path = files.write("v1.crt", without.encode())
    assert len(warnings_of(path, files.key, now.timestamp())) == 1


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
        # One value must not look like two.
        (subject((("commonName", "admin,O=Bank"),)), ("CN=admin\\,O=Bank",)),
        (subject((("commonName", 'a+b"c\\d<e>f;g=h'),)), ('CN=a\\+b\\"c\\\\d\\<e\\>f\\;g=h',)),
        (subject((("commonName", " a b "),)), ("CN=\\ a b\\ ",)),
        (subject((("commonName", " "),)), ("CN=\\ ",)),
        (subject((("commonName", "#a#"),)), ("CN=\\#a#",)),
        (subject((("commonName", "Łukasz"),)), ("CN=Łukasz",)),
        (subject((("emailAddress", "a@b"),)), ("emailAddress=a@b",)),
        (subject((("1.2.3.4", "x"),)), ("1.2.3.4=x",)),
        # What cannot be printed is nobody's name.
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
