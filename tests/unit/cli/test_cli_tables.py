"""``trio-stomp tables``: what it says, for people and programs, and the remedy of each error."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

from _crash.ports import free_port
from deltalake import DeltaTable

from tests.support.lake import offsets
from tests.support.stream_server import StreamServer, event
from trio_stomp.cli import main
from trio_stomp.cli.commands import _tables
from trio_stomp.spark.lake import open_store

PATIENCE_S = 60


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        for number in range(5):
            server.append("DIAG/event/subscribe", event("subscribe", number=number))
        yield server


def test_a_read_reports_messages_rows_and_the_offset(
    server: StreamServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tables", "--root", str(tmp_path), "--url", server.url, "--once"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {name: record[name] for name in ("event", "messages", "rows", "raw", "offset")} == {
        "event": "read",
        "messages": 5,
        "rows": 5,
        "raw": 0,
        "offset": 5,
    }
    server.append("DIAG/novelty", b"{}")
    assert main([*words, "--compact", "--raw-max-age", "1d"]) == 0
    assert "read  messages 1  rows 1  raw 1  offset 6" in capsys.readouterr().out


def test_the_broker_and_its_authority_are_those_of_the_environment(
    server: StreamServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRIO_STOMP_URL", server.url)
    monkeypatch.setenv("TRIO_STOMP_CA_FILE", "of-other-brokers.pem")  # not read without TLS
    assert main(["tables", "--root", str(tmp_path), "--once"]) == 0
    assert "read  messages 5" in capsys.readouterr().out
    monkeypatch.setenv("TRIO_STOMP_URL", server.url.replace("stomp:", "stomps:"))
    assert main(["tables", "--root", str(tmp_path), "--once"]) == 1
    assert "of-other-brokers.pem" in capsys.readouterr().err


def test_a_stream_of_a_user_becomes_a_table_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = "/stream/topic/prices"
    with StreamServer(stream=stream) as server:
        server.append("/topic/prices", b'{"price":1.5}')
        words = ["tables", "--root", str(tmp_path), "--url", server.url, "--once"]
        words += ["--stream", stream, "--table", "prices", "--body", "json"]
        assert main(words) == 2
        assert "--schema 'price DOUBLE, …' belong together" in capsys.readouterr().err
        assert main([*words, "--schema", "price DOUBLE"]) == 0
        assert "read  messages 1  rows 1  raw 0  offset 1" in capsys.readouterr().out
    (row,) = DeltaTable(tmp_path / "tables" / "prices").to_pyarrow_table().to_pylist()
    assert (row["price"], row["_corrupt_record"], row["offset"]) == (1.5, None, 0)


def test_errors_are_one_line_with_the_remedy(
    server: StreamServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_tables, "PATIENCE_S", 0.2)
    (tmp_path / "file").write_bytes(b"")
    away = f"stomp://127.0.0.1:{free_port()}"
    for words, expected in (
        (("--url", away), f"{away} did not answer for 0 s (Connection refused)"),
        (("--root", str(tmp_path / "file" / "x")), "is not writable"),
        (("--root", "nowhere://x"), "give a directory, or s3://bucket/path"),
        (("--url", "127.0.0.1"), "should be stomp://host:port"),
        (("--stream", "/topic/prices"), "should begin with /stream/: /stream/topic/prices"),
        (("--stream", "/stream/a", "--table", "queue"), "cannot be called 'queue'"),
    ):
        given = ["--url", server.url, "--root", str(tmp_path / "root"), "--once", *words]
        assert main(["tables", *given]) == 1
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
    assert main(["tables", "--raw-max-age", "soon"]) == 2
    assert "'soon' is not like 3d or 12h" in capsys.readouterr().err


def test_a_disk_without_room_is_told_before_the_stream_is_read(
    server: StreamServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["tables", "--root", str(tmp_path), "--url", server.url]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 319 << 20))
    assert main([*words, "--once"]) == 1
    assert "319 MiB of free disk, and a writer needs 320: free some" in capsys.readouterr().err
    assert not server.received
    # What makes room is possible.
    assert main([*words, "--compact", "--raw-max-age", "1d"]) == 0


def test_it_needs_its_packages_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "deltalake.py").write_text("raise ModuleNotFoundError('gone', name='deltalake')")
    path = f"{tmp_path}:{Path(__file__).parents[3]}"
    command = [sys.executable, "-m", "trio_stomp", "tables", "--once", "--root", str(tmp_path)]
    ended = subprocess.run(
        command, check=False, env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "deltalake is not installed: pip install 'trio-stomp[tables]'" in ended.stderr


def test_it_follows_a_broker_that_goes_and_comes_back(server: StreamServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trio_stomp", "tables", "--interval", "0.1"]
    command += ["--root", str(tmp_path), "--url", server.url]
    env = {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as running:
        assert running.stdout is not None
        assert "messages 5" in running.stdout.readline()
        server.kill()
        assert f"waiting for {server.url}" in running.stdout.readline()
        server.restart()
        server.append("DIAG/event/subscribe", event("subscribe", number=5))
        deadline = time.monotonic() + PATIENCE_S
        while "messages 1 " not in (line := running.stdout.readline()):
            assert line
            assert time.monotonic() < deadline
        running.kill()
    assert offsets(open_store(tmp_path), "event") == list(range(6))
