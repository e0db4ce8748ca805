"""Helpers for tests of the command line's tools: a web site to query, and a way to run a tool."""

import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Protocol

import pytest
from attrs import define, field

from trio_stomp.cli import main

ROOT = Path(__file__).parents[2]
PATIENCE_S = 50

Ran = subprocess.CompletedProcess[str]


@contextmanager
def running(*command: Any, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a process that is killed at the end of the block, also if a check fails."""
    with subprocess.Popen(*command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal(io.StringIO):
    """A terminal for input or output."""

    def isatty(self) -> bool:
        return True


@define
class FakeSite:
    """Pages of a broker.

    Args:
      pages: By path, status and body.
      asked: The requests, in order: target and Authorization.
    """

    pages: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str | None]] = field(factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def fake_site(
    pages: Mapping[str, tuple[int, bytes]], method: str = "GET", kind: str = "application/json"
) -> Iterator[FakeSite]:
    """Serve these pages, of a media type, on a port of loopback."""
    site = FakeSite(dict(pages))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Authorization")))
            status, body = site.pages.get(self.path.partition("?")[0], (404, b"nothing\n"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    setattr(Handler, f"do_{method}", Handler.do_GET)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(reported: bytes | None) -> Iterator[int]:
    """Run a server that sends this to its next client, whatever the request. None = no answer until
    the client leaves."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                while peer.recv(4096) and reported is None:
                    pass
                peer.sendall(reported or b"")

        thread = threading.Thread(target=answer)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def environment(**more: str) -> dict[str, str]:
    """The variables of this process, those of ours left out."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TRIO_STOMP")}
    return {**ours, "COLUMNS": "80", **more}


def run(*arguments: str, stdin: str = "", **more: str) -> Ran:
    """Run the program to its end, as an operator does."""
    return subprocess.run(
        [sys.executable, "-m", "trio_stomp", *arguments],
        cwd=ROOT,
        env=environment(**more),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def run_unread(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end without reading its output."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        return subprocess.run(
            [sys.executable, "-m", "trio_stomp", *arguments],
            env=environment(**more),
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )


@contextmanager
def started(
    *arguments: str, **more: str
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str], IO[str]]]:
    """Run the program beside the block: the process, its input, its output and its errors."""
    command, pipe = [sys.executable, "-m", "trio_stomp", *arguments], subprocess.PIPE
    with running(
        command, env=environment(**more), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        yield process, process.stdin, process.stdout, process.stderr


class OutputOf(Protocol):
    """Runs a tool in this process, and returns its output, with its errors if it fails."""

    def __call__(self, *argv: str, code: int = 0) -> str: ...


@pytest.fixture
def output_of(capsys: pytest.CaptureFixture[str]) -> OutputOf:
    def output_of(*argv: str, code: int = 0) -> str:
        assert main(list(argv)) == code
        captured = capsys.readouterr()
        assert (captured.err == "") is (code in (0, 1)) or "error: " in captured.err
        return captured.out if code == 0 else captured.out + captured.err

    return output_of


def check_refused(ran: Ran, reported: str, code: int = 2) -> None:
    """Check that a tool printed one line of error, and nothing else."""
    assert ran.stdout == ""
    assert ran.stderr.startswith("trio-stomp"), ran.stderr
    assert reported in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.returncode == code
