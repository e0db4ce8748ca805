"""Logins over sockets: many at once, and how long they hold."""

import time
from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.support.fakes import TLS, Client, StreamPipe, open_dial
from tests.support.files import save
from tests.support.served import QUIET, Served, served
from tests.support.tls import Employee, authority
from trio_stomp.security import hash_passcode

FLEET = 300
"""More than may wait for a hash."""


async def answers(
    broker: Served, login: str, passcode: str, found: "Counter[tuple[str, str]]"
) -> None:
    """Connect, and count the answer."""
    client = await broker.open()
    headers = {"accept-version": "1.2", "host": "x", "login": login, "passcode": passcode}
    await client.send("CONNECT", headers)
    frame = await client.receive()
    found[login, frame.get("code") or frame.command] += 1


async def test_a_fleet_that_comes_back_after_a_restart_is_let_in(tmp_path: Path) -> None:
    users = save(tmp_path / "users", f"fleet:{hash_passcode('right')}\n")
    found: Counter[tuple[str, str]] = Counter()
    async with served(passwd_file=users) as broker:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(FLEET):
                    nursery.start_soon(answers, broker, "fleet", "right", found)
    assert found == {("fleet", "CONNECTED"): FLEET}


async def test_invented_names_do_not_keep_a_user_behind_a_local_proxy_out(tmp_path: Path) -> None:
    users = save(tmp_path / "users", f"alice:{hash_passcode('right')}\n")
    found: Counter[tuple[str, str]] = Counter()
    options = {"login_threads": 1, "max_waiting_logins": 16, "connect_timeout_s": 60}
    async with served(passwd_file=users, **options) as broker, trio.open_nursery() as nursery:
        for number in range(FLEET):
            nursery.start_soon(answers, broker, f"guess-{number}", "wrong", found)
        await trio.sleep(0.3)
        await answers(broker, "alice", "right", found)
        nursery.cancel_scope.cancel()
    assert found["alice", "CONNECTED"] == 1
    assert sum(code == "authentication-failed" for _, code in found) <= 8


# --- the end of a certificate ---------------------------------------------------------------------


@pytest.mark.parametrize("left_s", [-1.0, 0.8])
async def test_a_session_ends_with_its_certificate(left_s: float) -> None:
    """OpenSSL looks at the end in a full handshake only, not when a session of TLS 1.2 resumes."""
    alice = Employee.of("alice", authority().ca)
    ends_at = alice.certificate.not_valid_after_utc.timestamp()
    options = {"tls_client_ca": authority().file, "tls_client_certificates": "optional", **QUIET}
    async with open_dial(TLS, **options, tls_login="common-name") as dial:
        await dial.start()
        ahead_s = ends_at - left_s - time.time()
        dial.server.authenticator.wall_s = lambda: time.time() + ahead_s
        host, _, port = dial.handle.addresses[0].rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        client = Client(
            StreamPipe(trio.SSLStream(stream, alice.context(), server_hostname="127.0.0.1"))
        )
        with trio.fail_after(10):
            if left_s > 0:
                await client.connect()
                await client.expect_error("credentials-expired")
            else:
                with pytest.raises((trio.BrokenResourceError, AssertionError)):
                    await client.connect()
        client.abort()
