"""A broker without the features that only Linux has, and without those that Windows lacks."""

import subprocess
import sys
from pathlib import Path

from tests.support.tool_fakes import PATIENCE_S, run, running

# Features that macOS and the BSDs lack. Trio itself continues to use epoll.
ELSEWHERE = """
import io, os, socket, sys, types
from trio_stomp.transport.wire import _sliced_poll
_sliced_poll.select = types.SimpleNamespace()
del os.fdatasync, os.posix_fadvise, socket.SOCK_CLOEXEC
of_linux = io.open
def open_elsewhere(file, *words, **more):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(2, "there is no /proc here", file)
    return of_linux(file, *words, **more)
io.open = open_elsewhere
from trio_stomp.cli import main
sys.exit(main(sys.argv[1:]))
"""
ON_WINDOWS = """
import sys
sys.modules["fcntl"] = None
from trio_stomp.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_broker_stores_and_delivers_without_functions_of_linux(tmp_path: Path) -> None:
    options = ["--port", "0", "--log-format", "human", "--data-dir", str(tmp_path / "data")]
    command = [sys.executable, "-c", ELSEWHERE, *options]
    for words in (
        ["send", "/queue/a", "x", "--persistent"],
        ["subscribe", "/queue/a", "--count=1"],
    ):
        with running(command, stderr=subprocess.PIPE, text=True) as broker:
            assert broker.stderr is not None
            line = broker.stderr.readline()
            assert "listening on 127.0.0.1:" in line
            port = line.partition("listening on 127.0.0.1:")[2].partition(";")[0]
            ran = run(*words, "--url", f"stomp://127.0.0.1:{port}")
            assert ran.returncode == 0, ran.stderr
            broker.terminate()
            _, log = broker.communicate(timeout=PATIENCE_S)
            assert (broker.returncode, "Traceback" in log) == (0, False), log
    assert ran.stdout == "x\n"


def test_missing_feature_on_windows_is_reported_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_WINDOWS, "--port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (
        1,
        "trio-stomp serve: error: this system has no fcntl, which Linux and macOS have; on Windows,"
        " use WSL\n",
    )
