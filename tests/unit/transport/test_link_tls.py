"""TLS between nodes, over sockets of this machine."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trustme

from tests.support.tls import authority
from trio_stomp.base import OptionError
from trio_stomp.transport import LinkTls, TlsError, TlsWire, WireStream, wire_over

HOST = "127.0.0.1"


def files(folder: Path, *names: str, ca: trustme.CA | None = None) -> tuple[str, str]:
    """Write a certificate for these names, and the authority that signed it."""
    ca = ca or trustme.CA()
    issued = ca.issue_cert(*names)
    certificate, signer = folder / f"{'-'.join(names)}.pem", folder / "signer.pem"
    certificate.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    certificate.chmod(0o600)
    ca.cert_pem.write_to_path(str(signer))
    return str(certificate), str(signer)


def links() -> LinkTls:
    return LinkTls(authority().certificate, "", authority().file)


@asynccontextmanager
async def met(one: LinkTls, other: LinkTls) -> AsyncGenerator[tuple[WireStream, TlsWire]]:
    """Connect one node to another, and return both sides."""
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    accepted = TlsWire(wire_over(theirs), other.accepting.context, is_link=True)
    try:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(accepted.handshake)
            opened = await one.open(ours, HOST)
        yield opened, accepted
    finally:
        await accepted.aclose()


async def test_bytes_pass_in_both_directions_also_after_one_has_ended() -> None:
    async with met(links(), links()) as (opened, accepted):
        async with trio.open_nursery() as tasks:
            tasks.start_soon(opened.send_all, b"x" * 200_000)
            size = 0
            while size < 200_000:
                size += len(await accepted.receive_some(65_536))
        await opened.send_eof()
        assert await accepted.receive_some(10) == b""
        assert accepted.send_nowait(b"farewell") == 8
        await accepted.send_eof()
        assert await opened.receive_some() == b"farewell"
        assert await opened.receive_some() == b""
        await opened.aclose()


async def test_a_node_with_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    stranger = LinkTls(*_split(files(tmp_path, HOST)))
    with pytest.raises(ExceptionGroup) as caught:
        async with met(links(), stranger):
            pass
    assert caught.group_contains(TlsError, match="certificate is not accepted")


async def test_a_client_without_a_certificate_is_refused() -> None:
    context = authority().client_context()
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    accepted = TlsWire(wire_over(theirs), links().accepting.context, is_link=True)

    async def speak() -> None:
        stream = trio.SSLStream(ours, context, server_hostname=HOST)
        with suppress(trio.BrokenResourceError):
            await stream.do_handshake()
            await stream.receive_some(1)
        await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as tasks:
        tasks.start_soon(speak)
        with pytest.raises(TlsError, match="presents no certificate"):
            await accepted.handshake()
        await accepted.aclose()


def _split(pair: tuple[str, str]) -> tuple[str, str, str]:
    return pair[0], "", pair[1]


def test_a_node_checks_that_others_would_accept_it(tmp_path: Path) -> None:
    links().check(HOST)
    with pytest.raises(OptionError, match=r"valid for node-b\.example"):
        links().check("node-b.example")
    certificate, _ = files(tmp_path, HOST)
    with pytest.raises(OptionError, match=r"\(tls_cert\).*signed by an authority in"):
        LinkTls(certificate, "", authority().file).check(HOST)


def test_a_file_without_authorities_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(OptionError, match="node_ca"):
        LinkTls(authority().certificate, "", str(tmp_path / "empty.pem"))


def test_new_files_are_used_after_a_reload_unless_they_are_wrong(tmp_path: Path) -> None:
    certificate, signer = files(tmp_path, HOST)
    tls = LinkTls(certificate, "", signer)
    tls.check(HOST)
    other, _ = files(tmp_path, "localhost")
    Path(certificate).write_bytes(Path(other).read_bytes())
    tls.reload()
    tls.check("localhost")
    Path(signer).write_text("")
    with pytest.raises(OptionError):
        tls.reload()
    tls.check("localhost")
