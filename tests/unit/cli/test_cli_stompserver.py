"""stompserver's flags on our command line: -q -s -w -c."""

from pathlib import Path

import pytest

from trio_stomp.cli import main, parse
from trio_stomp.config import Settings

ALWAYS = {"persistent": "always"}


def journal(directory: str) -> dict[str, object]:
    return {"store": "journal", "data_dir": directory, **ALWAYS}


def sqlite(path: str) -> dict[str, object]:
    return {"store": "sql", "store_url": f"sqlite:///{path}", **ALWAYS}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("-q memory", {}),
        ("-q file", journal(".stompserver")),
        ("-qfile -s .queue", journal(".queue")),
        ("-q file -w /var/run", journal("/var/run/.stompserver")),
        ("-q file -w /var/run -s queue", journal("/var/run/queue")),
        ("-q file -w /var/run -s /queue", journal("/queue")),
        ("--queuetype=file --storage=x --working_dir=y", journal("y/x")),
        ("--queuetype file --storage x --working-dir y", journal("y/x")),
        ("-q dbm", sqlite(".stompserver/queues.db")),
        ("-q dbm -s /x", sqlite("/x/queues.db")),
        ("-q activerecord -w /w", sqlite("/w/.stompserver/stompserver_development")),
        (
            "-q activerecord --store-url postgresql://x/y",
            {"store": "sql", "store_url": "postgresql://x/y", **ALWAYS},
        ),
        ("-c 3", {"checkpoint_s": 3.0}),
        ("--checkpoint 3 -q file", {"checkpoint_s": 3.0, **journal(".stompserver")}),
        ("-s x -w y", {}),
        ("-q file -d -p 1 port=2", {"port": 1, "log_level": "debug", **journal(".stompserver")}),
        # Our own flags win.
        ("-q file --data-dir d", journal("d")),
        ("--data-dir d -q dbm", {"data_dir": "d", **ALWAYS}),
        ("-q file --store-url sqlite:///x", {"store_url": "sqlite:///x", **ALWAYS}),
        ("-q dbm --store-url sqlite:///x", sqlite("x")),
        ("-q file --store memory", {"store": "memory", **ALWAYS}),
        ("-q file --store journal", journal(".stompserver")),
        ("-q file --persistent header", {**journal(".stompserver"), "persistent": "header"}),
        ("-c 3 --checkpoint-s 4", {"checkpoint_s": 4.0}),
    ],
)
def test_profiles_select_options(line: str, values: dict[str, object]) -> None:
    assert parse(line.split()).settings == Settings.of(**values)


def test_users_are_where_stompserver_has_them(tmp_path: Path) -> None:
    def passwd_file(line: str) -> str:
        return parse(line.split()).settings.security.passwd_file

    assert passwd_file(f"-a -w {tmp_path}") == f"{tmp_path}/etc/.passwd"
    (tmp_path / ".passwd").touch()
    assert passwd_file(f"--auth -w {tmp_path}") == f"{tmp_path}/.passwd"
    assert passwd_file(f"-a -w {tmp_path} --passwd-file x") == "x"


def test_each_value_names_its_flag() -> None:
    line = "-q file -a -c 3 --no-diag-stream --ttl 5 port=1"
    given = parse(line.split(), {}).configuration
    assert {name: str(given.source(name)) for name in given.given} == {
        "checkpoint_s": "--checkpoint",
        "passwd_file": "--auth",
        "persistent": "--queuetype",
        "store": "--queuetype",
        "data_dir": "--queuetype",
        "port": "port=1",
        "diag_stream": "--no-diag-stream",
        "ttl_ms": "--ttl-ms",
    }


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        ("", ""),
        ("-q memory", ""),
        ("-q file", ""),
        ("-q dbm -s x", "x"),
        ("-q activerecord", ".stompserver"),
        ("-q activerecord --store-url sqlite:///y", ""),
    ],
)
def test_the_directory_of_a_database_is_made(line: str, directory: str) -> None:
    assert parse(line.split()).new_directory == directory


def test_failure_to_create_a_directory_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.cli.commands._serve.set_up_log", lambda *_: None)
    monkeypatch.setattr("trio_stomp.cli.commands._serve.set_up_garbage_collection", lambda: None)
    (tmp_path / "file").touch()
    assert main(["-q", "dbm", "-s", str(tmp_path / "file" / "x")]) == 1
    assert "cannot be created: Not a directory; name another" in capsys.readouterr().err
