"""Revoked certificates of clients: parsing of the lists, and the broker's refusals."""

import ssl
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import pytest
import trio
import trustme

from tests.support.fakes import Client
from tests.support.served import Served, served
from tests.support.tls import DAY, NOW, Employee, authority, revocation_list
from trio_stomp import OptionError, Settings
from trio_stomp.transport.tls._revocation import (
    certificate_keys,
    read_authorities,
    read_revoked,
    revocation_warnings,
)


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.fixture
def ca() -> trustme.CA:
    return authority().ca


@pytest.fixture
def crl(tmp_path: Path) -> Path:
    return tmp_path / "revoked.pem"


# --- what is read ---------------------------------------------------------------------------------


def test_revocation_lists_name_serial_numbers_and_authority(ca: trustme.CA, crl: Path) -> None:
    other = trustme.CA(organization_name="another")
    gone, goes, stays = (Employee.of(name, ca) for name in ("gone", "goes", "stays"))
    foreign = Employee.of("foreign", other)
    crl.write_bytes(b"words\n" + revocation_list(ca, gone, goes) + revocation_list(other, foreign))
    revoked = read_revoked(str(crl))
    assert len(revoked) == 3
    assert all(len(revoked & certificate_keys(each.der)) == 1 for each in (gone, goes, foreign))
    assert not revoked & certificate_keys(stays.der)
    # The same serial number of another authority is another certificate.
    crl.write_bytes(revocation_list(other, gone))
    assert not certificate_keys(gone.der) & read_revoked(str(crl))


def test_a_list_may_be_empty(ca: trustme.CA, crl: Path) -> None:
    crl.write_bytes(revocation_list(ca))
    assert read_revoked(str(crl)) == frozenset()
    assert read_revoked("") == frozenset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "holds no list"),
        (b"-----BEGIN CERTIFICATE-----\n", "holds no list"),
        (b"-----BEGIN X509 CRL-----\nMAAA\n-----END X509 CRL-----\n", "damaged"),
        (b"-----BEGIN X509 CRL-----\nM\n-----END X509 CRL-----\n", "damaged"),
        (None, "no such file"),
    ],
)
def test_file_that_is_no_list_is_refused_with_its_name(
    crl: Path, text: bytes | None, why: str
) -> None:
    if text is not None:
        crl.write_bytes(text)
    with pytest.raises(OptionError, match=why) as caught:
        read_revoked(str(crl))
    assert str(caught.value).startswith(f"{crl} (tls_client_crl)")


@pytest.mark.parametrize(
    ("left", "words"), [(2 * DAY, ""), (DAY / 2, "expires on"), (-DAY, "expired on")]
)
def test_a_list_that_ends_is_warned_of(
    ca: trustme.CA, crl: Path, left: timedelta, words: str
) -> None:
    crl.write_bytes(revocation_list(ca, until=NOW + left))
    found = list(revocation_warnings(str(crl), NOW.timestamp()))
    assert len(found) == bool(words)
    assert all(words in line and "SIGHUP" in line for line in found)


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x00"])
def test_file_that_is_no_certificate_has_no_key(der: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        certificate_keys(der)


# --- a broker -------------------------------------------------------------------------------------


async def enter(broker: Served, who: Employee) -> Client:
    client = await broker.open(who.context())
    await client.connect()
    return client


async def refuses(broker: Served, who: Employee) -> None:
    with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
        await enter(broker, who)


def guarded(crl: Path | None, way: str = "required") -> AbstractAsyncContextManager[Served]:
    """A broker that requires certificates."""
    return served(
        tls_cert=authority().certificate,
        tls_client_ca=authority().file,
        tls_client_certificates=way,
        tls_client_crl=str(crl or ""),
    )


@pytest.mark.parametrize("way", ["required", "optional"])
async def test_a_revoked_certificate_is_refused_and_its_connections_end_at_sighup(
    ca: trustme.CA, crl: Path, way: str
) -> None:
    """A client whose certificate was stolen had no way to revoke it (F17)."""
    thief, owner, later = (Employee.of(name, ca) for name in ("thief", "owner", "later"))
    put(crl, revocation_list(ca, thief))
    async with guarded(crl, way) as door:
        await refuses(door, thief)
        stays, goes = await enter(door, owner), await enter(door, later)
        put(crl, revocation_list(ca, thief, later))
        await door.handle.reload()
        error = await goes.expect_error("authentication-failed")
        assert "revoked" in error["message"]
        assert await stays.fence() == []
        await refuses(door, later)
        put(crl, b"nonsense")
        with pytest.raises(OptionError, match="tls_client_crl"):
            await door.handle.reload()
        await refuses(door, later)
        await enter(door, owner)


async def test_connections_of_an_authority_that_is_no_longer_trusted_end_at_sighup(
    ca: trustme.CA, tmp_path: Path
) -> None:
    """Mosquitto 3568: the authorities of clients were those of the start, whatever the file said.

    Its clients cannot log in again, so those that are open end, too.
    """
    trusted, between = tmp_path / "trusted.pem", ca.create_child_ca()
    other = trustme.CA(organization_name="another")
    first, second, third = Employee.of("a", ca), Employee.of("b", other), Employee.of("c", between)
    trusted.write_bytes(ca.cert_pem.bytes() + other.cert_pem.bytes())
    async with served(
        tls_cert=authority().certificate,
        tls_client_ca=str(trusted),
        tls_client_certificates="optional",
    ) as door:
        stays, goes, chained = [await enter(door, each) for each in (first, second, third)]
        await door.handle.reload()
        assert await goes.fence() == []
        trusted.write_bytes(ca.cert_pem.bytes())
        await door.handle.reload()
        await goes.expect_error("authentication-failed")
        await refuses(door, second)
        assert await stays.fence() == await chained.fence() == []
        trusted.write_bytes(ca.cert_pem.bytes() + other.cert_pem.bytes())
        await door.handle.reload()
        assert await (await enter(door, second)).fence() == []


def test_a_file_that_cannot_be_read_names_no_authority(ca: trustme.CA, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(ca.cert_pem.bytes())
    assert read_authorities(str(file)) <= certificate_keys(Employee.of("a", ca).der)
    file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")
    assert read_authorities(str(file)) == read_authorities("") == frozenset()


async def test_a_list_that_is_too_old_lets_no_certificate_in(
    ca: trustme.CA, crl: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(crl, revocation_list(ca, until=NOW - DAY))
    async with guarded(crl) as door:
        assert "expired on" in caplog.text
        await refuses(door, Employee.of("owner", ca))


async def test_without_a_revocation_list_certificates_are_accepted(ca: trustme.CA) -> None:
    async with guarded(None) as door:
        await enter(door, Employee.of("owner", ca))


def test_lists_need_certificates() -> None:
    with pytest.raises(OptionError, match="tls_client_crl needs"):
        Settings.of(tls_cert="x", tls_client_crl="y")
