"""``completion``: its scripts, run by the shells that are on this machine."""

import os
import pty
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.tool_fakes import PATIENCE_S, OutputOf, environment, run, running
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.testing import threaded_broker


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_the_script_is_one(shell: str) -> None:
    pytest.importorskip("shtab", reason="pip install 'trio-stomp[cli]'")
    ran = run("completion", shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    for name in commands.names():
        assert name in ran.stdout
    assert "trio-stomp" in ran.stdout
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=ran.stdout, text=True, check=False)
        assert checked.returncode == 0


def test_bash_completes() -> None:
    pytest.importorskip("shtab", reason="pip install 'trio-stomp[cli]'")
    script = run("completion", "bash").stdout
    ask = (
        '\n_ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
        '_shtab_trio_stomp; echo "${COMPREPLY[@]}"; }\n'
        "_ask trio-stomp hea\n_ask trio-stomp dlq re\n_ask trio-stomp serve --max-body\n"
        "_ask trio-stomp subscribe --ack client-\n_ask trio-stomp subscribe --select\n"
        "_ask trio-stomp send --passcode\n_ask trio-stomp dlq ls --tok\n"
    )
    ran = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=False)
    printed = ran.stdout.splitlines()
    assert printed == [
        *("health", "retry", "--max-body-bytes", "client-individual"),
        *("--selector", "--passcode-file", "--token-file"),
    ]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a shell that finds ``trio-stomp``, and a broker with a queue."""
    pytest.importorskip("shtab", reason="pip install 'trio-stomp[cli]'")
    file = tmp_path / "trio-stomp"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m trio_stomp "$@"\n')
    file.chmod(0o755)
    with threaded_broker() as broker:
        url = {"TRIO_STOMP_URL": broker.url}
        assert run("send", "/queue/or{x ders", "x", **url).returncode == 0
        path = f"{tmp_path}:{os.environ['PATH']}"
        yield environment(PATH=path, HOME=str(tmp_path), TERM="dumb", **url)


def shell_of(name: str) -> str:
    """Return the program of a shell, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}: apt-get install {name}")
    return found


def test_fish_completes(program: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "completions.fish"
    file.write_text(run("completion", "fish").stdout)

    def offered(line: str) -> list[str]:
        ask = f"source {file}; complete -C {shlex.quote(line)}"
        words = [shell_of("fish"), "--no-config", "-c", ask]
        ran = subprocess.run(words, env=program, capture_output=True, text=True, check=True)
        return [each.partition("\t")[0] for each in ran.stdout.splitlines()]

    assert offered("trio-stomp hea") == ["health"]
    assert offered("trio-stomp dlq re") == ["retry"]
    assert offered("trio-stomp send --passc") == ["--passcode-file"]
    assert offered("trio-stomp peek /queue/o") == ["/queue/or{x ders"]


def test_zsh_completes(program: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "_trio-stomp").write_text(run("completion", "zsh").stdout)
    setup = f"PROMPT='> '; fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D\n"
    ours, theirs = pty.openpty()
    with running(
        [shell_of("zsh"), "-f", "-i"], env=program, stdin=theirs, stdout=theirs, stderr=theirs
    ) as shell:
        os.close(theirs)

        def completed(typed: str, wanted: str) -> None:
            """Press the tabulator behind a text, and wait for what it becomes; then delete it."""
            os.write(ours, f"{typed}\t".encode())
            shown, deadline = b"", time.monotonic() + PATIENCE_S
            while wanted.encode() not in shown:
                assert time.monotonic() < deadline, shown
                shown += os.read(ours, 65536)
            os.write(ours, b"\x15")

        os.write(ours, setup.encode())
        completed("trio-stomp hea", "trio-stomp health")
        completed("trio-stomp dlq re", "dlq retry")
        completed("trio-stomp send --passc", "--passcode-file")
        completed("trio-stomp peek /queue/o", r"peek /queue/or\{x\ ders")
        shell.kill()
    os.close(ours)


def test_without_shtab_it_is_named(output_of: OutputOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert output_of("completion", "bash", code=1) == (
        "trio-stomp completion: error: this needs shtab, which is not installed: "
        "pip install shtab\n"
    )
