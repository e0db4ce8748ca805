"""A long start: probes, the supervisor, and the end of a start that is given up."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.support.startup import Embedding, serve_one
from tests.support.tls import authority
from tests.support.tool_fakes import PATIENCE_S, environment, running
from trio_stomp.config import Settings
from trio_stomp.server import EventFeed
from trio_stomp.startup import _starting
from trio_stomp.store import (
    JournalOptions,
    JournalStore,
    MemoryStore,
    Progress,
    Put,
    Recovered,
    Turn,
)


@define(eq=False)
class Slow(MemoryStore):
    """A store of which two of five parts are read until it may go on."""

    may_go_on: threading.Event = field(factory=threading.Event)
    is_closed: bool = False

    def recover(self, progress: Progress) -> Recovered:
        while not self.may_go_on.wait(0.01):
            progress(2, 5)
        return super().recover(progress)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer probes from the beginning."""
    monkeypatch.setattr(_starting, "PATIENCE_S", 0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def ask(port: int, path: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the answer to a probe, as soon as there is one."""
    while True:
        try:
            return await ask_once(port, path, tls)
        except (OSError, trio.BrokenResourceError):
            await trio.sleep(0.01)


async def ask_once(port: int, path: str, tls: ssl.SSLContext | None) -> bytes:
    """Return the answer to a probe."""
    stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="localhost", https_compatible=True)
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        found = b""
        while not found.endswith(b"\n") or b"\r\n\r\n" not in found:
            part = await stream.receive_some(4096)
            if not part:
                break
            found += part
        return found


@pytest.mark.parametrize("is_secret", [False, True])
async def test_probes_while_the_store_is_read(is_secret: bool) -> None:
    store, port, told = Slow(), free_port(), list[float]()
    client_tls = authority().client_context() if is_secret else None
    settings = Settings.of(port=port, tls_cert=authority().certificate if is_secret else "")
    embedding = Embedding(EventFeed(), None, None, store=store, on_starting=told.append)
    async with trio.open_nursery() as nursery:
        runs = trio.Event()

        async def run() -> None:
            await nursery.start(serve_one, settings, None, embedding)
            runs.set()

        nursery.start_soon(run)
        with trio.fail_after(PATIENCE_S):
            assert b" 200 " in await ask(port, "/livez", client_tls)
            unready = b""
            while not unready.endswith(b"starting, 40%\n"):  # as soon as its thread says so
                unready = await ask(port, "/readyz", client_tls)
                assert b" 503 " in unready
            assert await ask(port, "\r\n", client_tls) != b""
            store.may_go_on.set()
            await runs.wait()
            assert b" 200 " in await ask(port, "/readyz", client_tls)
        nursery.cancel_scope.cancel()
    assert told[:1] == [0.0]


async def test_a_stomp_client_is_closed_while_the_store_is_read() -> None:
    store, port = Slow(), free_port()
    embedding = Embedding(EventFeed(), None, None, store=store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nursery.start, serve_one, Settings.of(port=port), None, embedding)
        with trio.fail_after(PATIENCE_S):
            await ask(port, "/livez")
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
                assert await stream.receive_some() == b""
        nursery.cancel_scope.cancel()
    assert store.is_closed


async def test_a_port_in_use_ends_a_long_start() -> None:
    store = Slow()
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = Settings.of(port=server.getsockname()[1])
        embedding = Embedding(EventFeed(), None, None, store=store)
        with pytest.raises(OSError, match="in use"), trio.fail_after(PATIENCE_S):
            await serve_one(settings, None, embedding, trio.TASK_STATUS_IGNORED)
    assert store.is_closed


def test_progress_is_told_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = 100.0, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    starting = _starting.Starting("journal", told.append)
    starting.report(1, 4)
    starting.report(2, 4)
    now += 1.5
    starting.report(0, 0)
    starting.report(9, 4)
    now += 1
    starting.go_on()
    assert told == [0.25, 0.5, 1.0]


# As a process.


def many_small_messages(path: str) -> None:
    store = JournalStore(path, options=JournalOptions(segment_bytes=256 * 1024))
    found = store.recover(lambda _done, _total: None)
    next_id, commit = found.next_id, found.commit
    for _ in range(60):
        put = Put("queue:/queue/a", next_id, b"destination:/queue/a\n", [b"x"] * 5_000)
        commit = store.append([Turn([put])], commit)
        next_id += 5_000
    store.close()


def test_a_supervisor_with_a_short_limit_sees_that_the_start_goes_on(tmp_path: Path) -> None:
    path, data = str(tmp_path / "notify"), str(tmp_path / "data")
    many_small_messages(data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(path)
        supervisor.settimeout(PATIENCE_S)
        with running(
            [sys.executable, "-m", "trio_stomp", "--port", "0", "--data-dir", data],
            env=environment(NOTIFY_SOCKET=path),
            stderr=subprocess.DEVNULL,
        ):
            heard = [supervisor.recv(200).decode()]
            while not heard[-1].startswith("READY=1"):
                heard.append(supervisor.recv(200).decode())
    assert len(heard) > 1
    for each in heard[:-1]:
        assert each.startswith("EXTEND_TIMEOUT_USEC=60000000\nSTATUS=starting, ")


def test_a_start_hears_sigterm(tmp_path: Path) -> None:
    path, data = str(tmp_path / "notify"), str(tmp_path / "data")
    many_small_messages(data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(path)
        supervisor.settimeout(PATIENCE_S)
        with running(
            [sys.executable, "-m", "trio_stomp", "--port", "0", "--data-dir", data],
            env=environment(NOTIFY_SOCKET=path),
            stderr=subprocess.PIPE,
        ) as process:
            assert supervisor.recv(200).startswith(b"EXTEND")
            os.kill(process.pid, signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert b"stopping before the start is over: got SIGTERM" in errors
