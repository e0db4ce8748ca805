"""Every command: an output that lacks characters, is full or closed, is a terminal; SIGTERM."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.commands import CANNOT, UNWRITTEN, WELL
from tests.support.files import save
from tests.support.stores import fill
from tests.support.tool_fakes import PATIENCE_S, ROOT, answering, environment, running
from trio_stomp.cli import main
from trio_stomp.store import JournalStore
from trio_stomp.testing import threaded_broker

QUEUE = "/queue/€\x1b[31m\x9b1m\u202e"
BODY = "€ \x1b]0;x\x07 \u202e"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

LINES = {
    "serve": ["--help"],
    "config": ["show"],
    "passwd": ["list", "USERS"],
    "acl": ["show", "--acl-file", "RULES"],
    "store": ["inspect", "STORE"],
    "doctor": ["--json"],
    "send": [QUEUE, BODY],
    "request": [QUEUE, BODY, "--timeout", "0.01"],
    "subscribe": [QUEUE, "--browse"],
    "reply": [QUEUE, "--for", "0.01"],
    "bench": ["--subs", "1", "--seconds", "0.1"],
    "spark": ["notebook", "NEW"],
    "tables": ["--once", "--root", "ROOT"],
    "top": ["--once", "--json"],
    "health": [],
    "ls": ["queues"],
    "show": ["queue", QUEUE],
    "history": [QUEUE],
    "create": ["/queue/€"],
    "delete": [QUEUE, "--force", "--yes"],
    "peek": [QUEUE],
    "purge": [QUEUE, "--yes"],
    "move": [QUEUE, "/queue/€"],
    "redeliver": [QUEUE],
    "pause": [QUEUE],
    "resume": [QUEUE],
    "close": ["€"],
    "trim": ["/stream/DIAG", "1", "--yes"],
    "clear": ["/topic/€", "--yes"],
    "cancel": ["--all", "--yes"],
    "export": [],
    "import": ["QUEUES"],
    "explain": ["--destination", QUEUE],
    "dlq": ["ls"],
    "subs": ["ls"],
    "schedules": ["ls"],
    "cluster": ["status", "--cluster", "nats://127.0.0.1:1"],
    "reload": [],
    "completion": ["bash"],
}
NEEDS_NO_OUTPUT = ("close", "cluster", "request", "trim", "clear", "reload")
"""Commands that only report an error here."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker."""
    with threaded_broker(data_dir=str(tmp_path_factory.mktemp("data"))) as broker:
        yield f"stomp://{broker.host}:{broker.port}"


@pytest.fixture
def words(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the values of the placeholders in ``LINES``, at a broker with such names."""
    monkeypatch.setenv("TRIO_STOMP_URL", url)
    for each in (["send", QUEUE, BODY], ["create", "/queue/ä\u202e\x9b"]):
        assert main(each) == WELL
    store = str(tmp_path / "store")
    journal = JournalStore(store)
    fill(journal)
    journal.close()
    rule = '[[rule]]\nuser = "é€"\nallow = ["send"]\nto = "/queue/q"\n'
    queues = '{"version": 1, "queues": [{"name": "/queue/€2"}]}'
    return {
        "USERS": save(tmp_path / "users", "é€:geheim\n"),
        "RULES": save(tmp_path / "acl", rule),
        "STORE": store,
        "NEW": str(tmp_path / "€.ipynb"),
        "ROOT": str(tmp_path / "tables"),
        "QUEUES": save(tmp_path / "queues", queues),
    }


class Output(io.TextIOWrapper):
    """Standard output on a file of its own, so that nothing of the test's own output is lost."""

    is_terminal = False

    def isatty(self) -> bool:
        return self.is_terminal


def tried(
    name: str, words: dict[str, str], out: Output, monkeypatch: pytest.MonkeyPatch
) -> int | str | None:
    """Run a command with an output, and return the exit code."""
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", out)
        try:
            return main([name, *(words.get(each, each) for each in LINES[name])])
        except SystemExit as ended:
            return ended.code


def test_every_command_is_walked() -> None:
    assert LINES.keys() == set(commands.names())


@pytest.mark.parametrize("name", LINES)
def test_an_output_without_some_characters(
    name: str,
    words: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    with (tmp_path / "out").open("wb") as file, Output(file, encoding="ascii") as out:
        code = tried(name, words, out, monkeypatch)
        assert "codec" not in capsys.readouterr().err
        out.flush()
        assert code in (WELL, None) or name in NEEDS_NO_OUTPUT


@pytest.mark.parametrize("name", LINES)
def test_an_output_that_is_full(
    name: str,
    words: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    capsys.readouterr()
    with Output(open("/dev/full", "wb"), encoding="utf-8") as out:
        code = tried(name, words, out, monkeypatch)
    if name not in NEEDS_NO_OUTPUT:
        assert code == UNWRITTEN
        (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
        assert "the output cannot be written: No space left on device" in line
    else:
        assert isinstance(code, int)


@pytest.mark.parametrize("name", LINES)
def test_an_output_that_is_closed(
    name: str,
    words: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read, write = os.pipe()
    os.close(read)
    with Output(os.fdopen(write, "wb"), encoding="utf-8") as out:
        code = tried(name, words, out, monkeypatch)
    if name not in NEEDS_NO_OUTPUT:
        assert code == commands.PIPE_CLOSED
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [each for each in LINES if each != "top"])
def test_nothing_controls_a_terminal(
    name: str,
    words: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = tmp_path / "out"
    capsys.readouterr()
    with shown.open("wb") as file, Output(file, encoding="utf-8") as out:
        out.is_terminal = True
        tried(name, words, out, monkeypatch)
    assert not HARMFUL.search(shown.read_text(encoding="utf-8") + capsys.readouterr().err)


def test_no_command_writes_past_the_functions_for_output() -> None:
    written = re.compile(r"(?<![\w.])print\(|sys\.std(out|err)\.(write|buffer)|(?<![\w.])input\(")
    for path in (ROOT / "trio_stomp/cli").rglob("*.py"):
        if path.name != "_tool.py":
            assert not written.search(path.read_text()), path


def test_nothing_is_reported_twice_at_the_end_of_the_process() -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "trio_stomp", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=PATIENCE_S,
            check=False,
        )
    assert ran.returncode == UNWRITTEN
    assert len(ran.stderr.splitlines()) == 1


# Answers of something that is no broker.


@pytest.mark.parametrize(
    "body",
    [
        b'{"cancelled": "a"}',
        b'{"cancelled": [1], "queues": 3, "schedules": 4}',
        b'{"schedules": [7], "queues": [7], "messages": null}',
        b'{"schedules": [{"id": 1e999, "due_ms": ' + b"9" * 400 + b"}]}",
    ],
)
@pytest.mark.parametrize("line", [["cancel", "1", "--yes"], ["ls", "schedules"], ["peek", "/q"]])
def test_answers_with_other_types(
    line: list[str], body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with answering(head % len(body) + body) as port:
        assert main([*line, "--url", f"http://127.0.0.1:{port}"]) in (WELL, CANNOT)
    assert "Traceback" not in capsys.readouterr().err


# SIGTERM.

LONG = {
    "serve": ["--port", "0"],
    "subscribe": ["/topic/t"],
    "reply": ["/queue/r"],
    "send": ["/topic/t", "x", "--count", "99999", "--interval", "0.05"],
    "request": ["/queue/r", "x", "--timeout", "99"],
    "bench": ["--subs", "1", "--seconds", "99"],
    "top": ["--json", "--interval", "0.1"],
    "tables": ["--interval", "0.1", "--root", "ROOT"],
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_command_handles_sigterm(name: str, tmp_path: Path) -> None:
    """The kernel drops a signal that process 1 does not handle; others end with -15 then."""
    with threaded_broker(data_dir=str(tmp_path / "data")) as broker:
        url = f"stomp://{broker.host}:{broker.port}"
        line = [each.replace("ROOT", str(tmp_path / "tables")) for each in LONG[name]]
        with running(
            [sys.executable, "-m", "trio_stomp", name, *line],
            env=environment(TRIO_STOMP_URL=url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            wait_for_handler(process.pid)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (WELL, commands.TERMINATED)
    assert b"Traceback" not in errors


def wait_for_handler(pid: int) -> None:
    """Wait until a process handles SIGTERM, and a moment longer, until it works."""
    end = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end, "SIGTERM is not handled"
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(re.findall(r"SigCgt:\s*(\w+)", status)[0], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.05)
    time.sleep(1.0)
