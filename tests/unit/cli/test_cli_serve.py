"""The process around a broker: its banner, log, limits and signals; the server is a fake."""

import errno
import gc
import json
import logging
import shlex
import signal
import socket
import sys
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from tests.support import commands
from trio_stomp.base import OptionError
from trio_stomp.cli._banner import banner, size, snippet
from trio_stomp.cli.commands._serve import CannotListen, explain, run
from trio_stomp.cli.process import raise_file_limit, set_up_garbage_collection, set_up_threads
from trio_stomp.config import ListenOptions, Settings


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "cannot listen on 127.0.0.1:5000: address already in use; "
            "stop the program that uses it, or choose another --port",
        ),
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "cannot listen on 127.0.0.1:5000: cannot assign requested address; "
            "choose an address of this machine with --host",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "cannot listen on 127.0.0.1:5000: no such host; "
            "choose an address of this machine with --host",
        ),
        (
            UnicodeError("label empty"),
            "cannot listen on 127.0.0.1:5000: no such host; "
            "choose an address of this machine with --host",
        ),
        (OSError("odd"), "cannot listen on 127.0.0.1:5000: odd; check --host and --port"),
    ],
)
def test_an_address_that_cannot_be_had(error: Exception, line: str) -> None:
    assert explain(error, ListenOptions(port=5000)) == line


def test_ipv6_address_is_printed_in_brackets() -> None:
    line = explain(OSError("odd"), ListenOptions(host="::1", port=5000))
    assert line.startswith("cannot listen on [::1]:5000: ")


def test_the_banner_is_one_line_with_all_that_counts() -> None:
    line = banner(["127.0.0.1:5000", "[::1]:5000"], [], Settings.of(max_connections=7, ttl_ms=5000))
    assert "\n" not in line
    assert "listening on 127.0.0.1:5000, [::1]:5000;" in line
    assert "TCP and WebSocket" in line
    assert "limits: 7 connections, 1000 per address, body 16 MiB, outbox 32 MiB" in line
    assert "memory 512 MiB, ttl 5000 ms;" in line
    assert line.endswith(snippet("127.0.0.1:5000"))


def test_the_banner_without_an_address_or_a_ttl() -> None:
    line = banner([], [], Settings())
    assert "listening on no address" in line
    assert line.endswith("ttl off")


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("127.0.0.1:5000", "stomp://127.0.0.1:5000"),
        ("0.0.0.0:5000", "stomp://127.0.0.1:5000"),
        ("[::]:5000", "stomp://[::1]:5000"),
        ("[fe80::1]:5000", "stomp://[fe80::1]:5000"),
    ],
)
def test_the_snippet_names_an_address_that_a_client_can_reach(address: str, target: str) -> None:
    command = snippet(address)
    assert command.endswith(f" --url {target}")
    # A log in JSON, and a shell, take it as it is.
    assert json.dumps(command) == f'"{command}"'
    assert shlex.split(command) == command.split()
    program, *words = command.split()
    assert program == "trio-stomp"
    assert words[0] in commands.names()


def test_the_first_line_is_short_and_its_command_knows_tls_and_users() -> None:
    settings = Settings.of(passwd_file="users", tls="required", tls_cert="cert")
    line = banner(["127.0.0.1:5000"], [], settings)
    assert line.endswith(" --url stomps://127.0.0.1:5000 --login USER")
    assert len(line) < 320


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1 bytes"), (1024, "1 KiB"), (1025, "1025 bytes"), (3 << 20, "3 MiB"), (1 << 30, "1 GiB")],
)
def test_a_size_is_printed_in_the_largest_whole_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.fixture
def collector() -> Iterator[None]:
    """Puts the garbage collector back as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("collector")
def test_garbage_collection_is_rare() -> None:
    set_up_garbage_collection()
    assert gc.get_threshold()[0] == 1_000
    assert gc.get_freeze_count() > 0


class FakeLimit:
    """Stands for the kernel's limit of open files."""

    def __init__(self, soft: int, hard: int, *, refuses: bool = False) -> None:
        self.values = (soft, hard)
        self.refuses = refuses

    def get(self, _: int) -> tuple[int, int]:
        return self.values

    def set(self, _: int, values: tuple[int, int]) -> None:
        if self.refuses:
            raise OSError(errno.EPERM, "Operation not permitted")
        self.values = values


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files")
@pytest.mark.parametrize(
    ("soft", "hard", "refuses", "reached", "warns"),
    [
        (1024, 4096, False, 1064, False),
        (1024, -1, False, 1064, False),
        (5000, 9000, False, 5000, False),
        (-1, -1, False, -1, False),
        (100, 500, False, 500, True),
        (100, 1000, False, 1000, False),
        (100, 4096, True, 100, True),
        (10, 10, False, 10, True),
    ],
)
def test_the_file_limit_is_raised_or_missed_aloud(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, refuses: bool, reached: int, warns: bool
) -> None:
    limit = FakeLimit(soft, hard, refuses=refuses)
    monkeypatch.setattr("resource.getrlimit", limit.get)
    monkeypatch.setattr("resource.setrlimit", limit.set)
    warning = raise_file_limit(1000)
    assert limit.values == (reached, hard)
    assert (warning is not None) == warns
    assert warning is None or f"may open {reached} files" in warning


class FakeServer:
    """A substitute for the server floor that starts, and stops on request."""

    addresses = ("127.0.0.1:5000",)
    tls_addresses: tuple[str, ...] = ()

    def __init__(self, error: Exception | None = None, *, obeys: bool = True) -> None:
        self.error = error
        self.obeys = obeys
        self.stops = 0
        self.reloads = 0
        self.reported = trio.Event()

    async def reload(self, settings: object = None) -> None:
        self.reloads += 1
        if self.reloads > 1:
            raise OptionError("users:3: no colon")

    def stop(self) -> None:
        self.stops += 1
        self.reported.set()

    async def serve(
        self,
        settings: Settings,
        *,
        task_status: trio.TaskStatus["FakeServer"],
        **_: object,
    ) -> None:
        if self.error is not None:
            raise self.error
        task_status.started(self)
        await self.reported.wait()
        if not self.obeys:
            await trio.sleep_forever()


def install(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> None:
    """Let the command line find the fake where it looks for ``serve``."""
    monkeypatch.setattr("trio_stomp.startup.serve", server.serve)


async def signalled(
    monkeypatch: pytest.MonkeyPatch, server: FakeServer, *numbers: signal.Signals
) -> None:
    """Run the command line around a server until these signals have ended it."""
    install(monkeypatch, server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, Settings(), "few files")
        for number in numbers:
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_stops_in_order(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    caplog.set_level(logging.INFO)
    server = FakeServer()
    await signalled(monkeypatch, server, number)
    assert server.stops == 1
    first, second, third = (record.getMessage() for record in caplog.records)
    assert "listening on 127.0.0.1:5000" in first
    assert second == "few files"
    assert third == f"stopping: got {number.name}; a second signal stops at once"


async def test_the_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(obeys=False)
    await signalled(monkeypatch, server, signal.SIGINT, signal.SIGTERM)
    assert server.stops == 1


async def test_sighup_reads_the_files_again_and_a_bad_one_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = FakeServer()
    await signalled(monkeypatch, server, signal.SIGHUP, signal.SIGHUP, signal.SIGTERM)
    assert (server.reloads, server.stops) == (2, 1)
    _, _, first, second, _ = (record.getMessage() for record in caplog.records)
    assert "users" in first
    assert second == "got SIGHUP, but changed nothing: users:3: no colon"


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (OptionError("users:3: no colon"), OptionError, "users:3"),
        (OSError(errno.EADDRINUSE, "Address already in use"), CannotListen, "in use; stop"),
        (LookupError("bug"), ExceptionGroup, "nursery"),  # not taken for an address
    ],
)
async def test_errors_before_it_listens(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception], text: str
) -> None:
    install(monkeypatch, FakeServer(error))
    with pytest.raises(expected, match=text):
        await run(Settings())


def test_the_stores_thread_has_its_turn_soon() -> None:
    before = sys.getswitchinterval()
    try:
        set_up_threads()
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    finally:
        sys.setswitchinterval(before)
