"""Public reports about the operation of other brokers: files, signals, proxies, environments."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from attrs import evolve

from tests.support.served import QUIET, Served, served, served_with
from tests.support.tls import authority, issue
from trio_stomp import OptionError, Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.cli import main

ROOT = Path(__file__).parents[2]
Q = "/queue/q"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:here\n\n\0"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"


async def serial(broker: Served) -> int:
    """Return the number of the certificate that a new connection gets."""
    context = authority().client_context("alice")
    stream = trio.SSLStream(await broker.stream(), context, server_hostname="127.0.0.1")
    await stream.do_handshake()
    found = stream.getpeercert()
    await stream.transport_stream.aclose()
    return int(found["serialNumber"], 16)


async def test_a_renewed_certificate_is_used_and_clients_stay(tmp_path: Path) -> None:
    """Mosquitto 524, 1402, 1877, NATS 3475: renewed behind a symbolic link, as Kubernetes does it.

    SIGHUP kept the old certificate, or disconnected clients with certificates of their own. A
    certificate and a key that do not belong together, half renewed, change nothing.
    """
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        issue(authority(), tmp_path / name / "tls.pem")
    (tmp_path / "live").symlink_to("old")
    options = {"tls_client_ca": authority().file, "tls_client_certificates": "required"}
    async with served(
        tls_cert=str(tmp_path / "live" / "tls.pem"), tls_login="common-name", **options
    ) as broker:
        client = await broker.open(authority().client_context("alice"))
        await client.connect()
        before = await serial(broker)
        (tmp_path / "next").symlink_to("new")
        (tmp_path / "next").replace(tmp_path / "live")
        await broker.handle.reload()
        assert (renewed := await serial(broker)) != before
        file = tmp_path / "new" / "tls.pem"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        with pytest.raises(OptionError):
            await broker.handle.reload()
        assert await serial(broker) == renewed
        assert await client.fence() == []


async def test_a_file_of_users_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    """Mosquitto 588, 1023: after SIGHUP, everybody could connect; in another version, nobody."""
    users = tmp_path / "users"
    users.write_text("alice:secret-of-alice\n")
    login = {"login": "alice", "passcode": "secret-of-alice"}
    async with served(passwd_file=str(users)) as broker:
        client = await broker.connect(login)
        for text in (None, "no user\n"):
            users.unlink(missing_ok=True)
            if text is not None:
                users.write_text(text)
            with pytest.raises(OptionError):
                await broker.handle.reload()
            await broker.connect(login)
            stranger = await broker.open()
            await stranger.send_bytes(CONNECT)
            await stranger.expect_error("authentication-required")
        assert await client.fence() == []


async def test_clients_without_a_login_stay_after_a_reload() -> None:
    """Mosquitto 2029: SIGHUP, sent for the log, disconnected local clients for good."""
    async with served() as broker:
        client = await broker.connect({})
        await broker.handle.reload()
        assert await client.fence() == []
        await broker.connect({})


async def test_a_policy_of_a_reload_rules_queues_that_exist() -> None:
    """LavinMQ 187, 999: the former limit remained, or the new one was ignored."""
    before = {Q: DestinationPolicy(max_bytes=1000, max_redeliveries=9, backoff_s=(0.0,))}
    after = {Q: DestinationPolicy(max_messages=4, max_redeliveries=0)}
    async with served_with(before, {}) as broker:
        client = await broker.connect({})
        await client.publish(Q, b"x" * 400, b"x" * 400, receipt=True)
        await client.subscribe("/queue/DLQ.q", "dead")
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1", "ack": "client-individual"})
        messages = await client.receive_many(2)
        settings = evolve(Settings.of(port=0, **QUIET), destinations=tuple(after.items()))
        await broker.handle.reload(settings)
        await client.publish(Q, b"x" * 400, b"x" * 400, receipt=True)
        await client.receive_many(2)
        await client.send("NACK", {"id": messages[0]["ack"]})
        assert (await client.receive())["x-death-reason"] == "delivery-limit"
        producer = await broker.connect({})
        await producer.publish(Q, b"one more", b"and one")
        await producer.expect_error("queue-full")


@pytest.mark.parametrize("header", [b"\x20\x00\x00\x00", b"\x20\x11\x00\x0c" + bytes(12)])
async def test_a_proxy_may_check_the_broker_itself(
    header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ 8654: the health check of a load balancer crashed the connection's process."""
    async with served(proxy_addresses="127.0.0.1", tls="off") as broker:
        async with await broker.stream() as check:
            await check.send_all(PROXY_V2 + header)
        client = await broker.open()
        await client.send_bytes(PROXY_V2 + header + CONNECT)
        assert (await client.receive()).command == "CONNECTED"
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]


async def test_the_end_of_a_journal_that_is_missing_takes_no_other_message(tmp_path: Path) -> None:
    """LavinMQ 1693: delayed messages that were cut off by a crash prevented every start."""
    later = {"AMQ_SCHEDULED_DELAY": "1000", "persistent": "true"}
    async with served(data_dir=str(tmp_path)) as broker:
        client = await broker.connect({})
        for number in range(10):
            await client.publish(Q, b"%d" % number * 100, headers=later, receipt=True)
    segment = max((tmp_path / "journal").iterdir())
    os.truncate(segment, segment.read_bytes().rindex(b"9" * 100) + 50)
    async with served(data_dir=str(tmp_path)) as broker:
        client = await broker.connect({})
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1"})
        found = await client.receive_many(9)
        assert [each.body[:1] for each in found] == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_from_windows(
    tmp_path: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """RabbitMQ 13748, Mosquitto 1724: a mark before the text; other encodings are named."""
    file = tmp_path / "broker.toml"
    file.write_bytes("[server]\r\nmax_connections = 50\r\n".encode(encoding))
    assert main(["config", "check", str(file)]) == (0 if encoding == "utf-8-sig" else 2)
    assert "is no TOML: the text is not UTF-8" in capsys.readouterr().err or encoding != "utf-16"


def test_an_environment_of_a_container(tmp_path: Path) -> None:
    """Kubernetes 59552, Bitnami RabbitMQ 129, Docker's RabbitMQ 35: variables of services and of
    commits; no home; SIGTERM, which process 1 must handle itself."""
    environ = {
        "TRIO_STOMP_PORT": "tcp://10.0.0.1:61613",
        "TRIO_STOMP_SERVICE_HOST": "10.0.0.1",
        "CI_COMMIT_MESSAGE": "Merge branch 'a'\n\ninto \"b\"",
    }
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "trio_stomp", "--port", f"{port}", "--data-dir", "data"]
    environ["PYTHONPATH"] = str(ROOT)
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            answer = b""
            while not answer:
                assert process.poll() is None
                time.sleep(0.05)
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link:
                    link.sendall(CONNECT)
                    answer = link.recv(4096)
            assert answer.startswith(b"CONNECTED\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
