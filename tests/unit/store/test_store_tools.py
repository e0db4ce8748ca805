"""The offline tools: verify, inspect, export, import, compact."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import BODIES, HEAD, KINDS, fill, ignore
from tests.support.tool_fakes import environment
from trio_stomp.cli import main
from trio_stomp.cli._progress import progress
from trio_stomp.store import (
    Begin,
    Done,
    JournalOptions,
    JournalStore,
    Keep,
    Put,
    StoreError,
    StoreLocked,
    Turn,
    compact,
    export_from,
    import_to,
    inspect,
    verify,
)
from trio_stomp.store.tools import CheckResult


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A closed directory with records of every kind."""
    target = str(tmp_path / "data")
    store = JournalStore(target)
    fill(store)
    store.close()
    return target


def make_target(kind: str, path: Path) -> str:
    if kind == "sqlite":
        pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
        return f"sqlite:///{path}.db"
    return str(path)


def lines_of(target: str) -> list[dict[str, Any]]:
    """Return the lines of an export without the first one, which describes the store."""
    first, *lines = map(json.loads, export_from(target, ignore))
    assert (first["type"], first["version"]) == ("trio_stomp", 1)
    return lines


def test_an_export_holds_everything_in_the_order_of_ids(journal: str) -> None:
    lines = lines_of(journal)
    messages = [line for line in lines if line["type"] == "message"]
    assert [(line["id"], line["place"], line["level"]) for line in messages] == [
        (1, "queue:/queue/a", 4),
        (2, "queue:/queue/a", 4),
        (3, "queue:/queue/a", 4),
        (4, "queue:/queue/b", 9),
        (6, "queue:/queue/a", 4),
    ]
    assert messages[0] == {
        "type": "message",
        "place": "queue:/queue/a",
        "level": 4,
        "id": 1,
        "received_ms": 5,
        "expires_ms": 9,
        "deliveries": 1,
        "headers": HEAD.decode(),
        "body": "one",
    }
    assert messages[2]["body_base64"] == "/wB0aHJlZQ=="
    assert (messages[4]["headers_base64"], messages[4]["deliveries"]) == ("/zp4Cg==", 2)
    assert lines[0] == {"type": "setting", "key": "durable:x", "text": "so\n"}
    assert [line for line in lines if line["type"] == "stream"] == [
        {"type": "stream", "name": "/stream/s", "epoch": "e1", "first": 7, "next": 10}
    ]
    streamed = [line for line in lines if line["type"] == "streamed"]
    assert [(line["offset"], line["written_ms"]) for line in streamed] == [
        (7, 100),
        (8, 100),
        (9, 200),
    ]
    assert lines[-1] == {"type": "end", "message": 5, "setting": 1, "stream": 1, "streamed": 3}


@pytest.mark.parametrize("way", [("journal",), ("sqlite", "journal"), ("sqlite", "sqlite")])
def test_contents_are_unchanged_in_other_stores(
    journal: str, way: tuple[str, ...], tmp_path: Path
) -> None:
    assert set(way) <= set(KINDS)
    source, expected = journal, lines_of(journal)
    for number, kind in enumerate(way):
        target = make_target(kind, tmp_path / f"copy-{number}")
        count = import_to(target, export_from(source, ignore))
        assert count == {"message": 5, "setting": 1, "stream": 1, "streamed": 3}
        assert lines_of(target) == expected
        assert verify(target, ignore).damage == []
        source = target
    with pytest.raises(StoreError, match="is not empty"):
        import_to(source, export_from(journal, ignore))


def test_an_imported_empty_stream_keeps_its_next_offset(tmp_path: Path) -> None:
    target = str(tmp_path / "data")
    store = JournalStore(target)
    store.append([Turn([Begin("s", "e", 1000)])], store.recover(ignore).commit)
    store.close()
    copy = str(tmp_path / "copy")
    import_to(copy, export_from(target, ignore))
    (state,) = JournalStore(copy).recover(ignore).streams.values()
    assert (state.epoch, state.first, state.next) == ("e", 1000, 1000)


def lines_with(*changes: tuple[int, str | None]) -> Iterator[str]:
    """Return a small export, with some lines changed or left out."""
    lines: list[str | None] = [
        '{"type":"trio_stomp","version":1,"store":"journal","commit":1,"next_id":2}',
        '{"type":"setting","key":"k","text":"t"}',
        '{"type":"end","setting":1}',
    ]
    for place, line in changes:
        lines[place] = line
    return (line for line in lines if line is not None)


@pytest.mark.parametrize(
    ("place", "line", "text"),
    [
        (0, None, "line 1 is not part of an export"),
        (0, '{"type":"trio_stomp","version":2}', "this program knows 1"),
        (1, "{", "line 2 is not part"),
        (1, "[]", "line 2 is not part"),
        (1, '{"type":"other"}', "its type is 'other'"),
        (1, '{"type":"message"}', "line 2 is not part"),
        (1, None, "it announces"),
        (2, None, "missing after line 2"),
    ],
)
def test_file_that_is_no_export_is_refused(
    place: int, line: str | None, text: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=text):
        import_to(str(tmp_path / "new"), lines_with((place, line)))


def test_offsets_that_are_missing_become_empty_messages(tmp_path: Path) -> None:
    lines = [
        '{"type":"trio_stomp","version":1}',
        '{"type":"stream","name":"s","epoch":"e","first":0,"next":3}',
        '{"type":"streamed","stream":"s","offset":0,"written_ms":1,"headers":"","body":"a"}',
        '{"type":"streamed","stream":"s","offset":2,"written_ms":1,"headers":"","body":"c"}',
        '{"type":"end","stream":1,"streamed":2}',
    ]
    target = str(tmp_path / "new")
    assert import_to(target, lines)["filled"] == 1
    found = [line["body"] for line in lines_of(target) if line["type"] == "streamed"]
    assert found == ["a", "", "c"]


def test_verify_counts(journal: str) -> None:
    found = verify(journal, ignore)
    assert isinstance(found, CheckResult)
    assert (found.messages, found.streamed, found.damage) == (5, 3, [])
    assert found.bytes == sum(map(len, BODIES)) + len(b"four" + b"six" + b"ab\xfe")


def data_files(target: str, part: str) -> list[Path]:
    return [path for path in Path(target, part).rglob("*.log") if path.stat().st_size > 200]


def damaged(target: str, part: str, needle: bytes) -> tuple[Path, bytes]:
    """Change one bit of the file with ``needle`` in it. Return the file and its new content."""
    (file,) = [path for path in Path(target, part).rglob("*.log") if needle in path.read_bytes()]
    data = bytearray(file.read_bytes())
    data[data.rindex(needle)] ^= 1
    file.write_bytes(data)
    return file, bytes(data)


@pytest.mark.parametrize(("part", "needle"), [("journal", b"three"), ("streams", b"\xfe")])
def test_verify_names_the_file_and_the_offset_of_damage(
    journal: str, part: str, needle: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = damaged(journal, part, needle)
    before = sorted(str(path) for path in Path(journal).rglob("*"))
    assert main(["store", "verify", journal]) == 1
    output = capsys.readouterr().out
    assert str(file) in output
    assert "1 damaged" in output
    # Nothing was changed, and no copy was put aside.
    assert sorted(str(path) for path in Path(journal).rglob("*")) == before
    assert file.read_bytes() == data


def test_verify_reports_damage_once_with_the_copy_set_aside(journal: str) -> None:
    damaged(journal, "journal", b"three")
    (before,) = verify(journal, ignore).damage
    store = JournalStore(journal)
    store.recover(ignore)
    store.close()
    (copy,) = Path(journal, "damaged").iterdir()
    assert verify(journal, ignore).damage == [f"{before}; set aside in {copy}"]


def test_the_tools_run_beside_a_broker(tmp_path: Path) -> None:
    target = str(tmp_path / "data")
    store = JournalStore(target)
    fill(store)
    try:
        assert verify(target, ignore).messages == 5
        assert len(lines_of(target)) == 11
        with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
            compact(target, ignore)
        with pytest.raises(StoreLocked):
            import_to(target, [])
        # A half written record does not count.
        (file,) = data_files(target, "journal")
        with file.open("ab") as growing:
            growing.write(file.read_bytes()[60:100])
        assert verify(target, ignore).damage == []
    finally:
        store.close()


def test_an_export_continues_though_the_broker_deletes_files(tmp_path: Path) -> None:
    target = str(tmp_path / "data")
    store = JournalStore(target, options=JournalOptions(segment_bytes=4096))
    commit = store.recover(ignore).commit
    for id in range(1, 41):
        commit = store.append([Turn([Put("queue:q", id, HEAD, [b"x" * 1000])])], commit)
    lines = export_from(target, ignore)
    first = [next(lines), next(lines)]
    before = len(data_files(target, "journal"))
    commit = store.append([Turn([Done(range(1, 41))])], commit)
    for _ in range(20):
        commit = store.append([Turn([Keep("k", "t")])], commit)
    assert len(data_files(target, "journal")) < before
    rest = list(lines)
    store.close()
    assert json.loads(first[1])["id"] == 1
    assert json.loads(rest[-1]) == {"type": "end", "message": 40}
    assert lines_of(target)[-1] == {"type": "end", "setting": 1}


def test_compact_keeps_only_live_records(tmp_path: Path) -> None:
    target = str(tmp_path / "data")
    store = JournalStore(target, options=JournalOptions(segment_bytes=65536))
    commit = store.recover(ignore).commit
    for id in range(1, 401):
        commit = store.append([Turn([Put("queue:q", id, HEAD, [b"x" * 1000])])], commit)
    commit = store.append([Turn([Keep("k", "t")])], commit)
    for last in range(1, 400):
        if last % 4:
            commit = store.append([Turn([Done([last])])], commit)
    store.close()
    expected = lines_of(target)
    assert len(expected) == 102
    steps: list[tuple[int, int]] = []
    before, after = compact(target, lambda done, total: steps.append((done, total)))
    assert after < 150_000 < before
    assert steps[-1][0] == steps[-1][1]
    assert lines_of(target) == expected
    assert verify(target, ignore).damage == []


def test_inspect_prints_the_content(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(journal, ignore)
    assert (found["store"], found["settings"]) == ("journal", ["durable:x"])
    assert found["places"] == [
        {
            "place": "queue:/queue/a",
            "level": 4,
            "messages": 4,
            "bytes": sum(map(len, BODIES)) + 3,
            "first_id": 1,
        },
        {"place": "queue:/queue/b", "level": 9, "messages": 1, "bytes": 4, "first_id": 4},
    ]
    assert main(["store", "inspect", journal, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["places"] == found["places"]
    assert main(["store", "inspect", journal]) == 0
    output = capsys.readouterr().out
    for word in ("queue:/queue/a", "/stream/s", "journal/", "store journal"):
        assert word in output


@pytest.mark.parametrize(
    "words", [("inspect", "--json"), ("inspect",), ("verify",), ("export",)], ids=" ".join
)
def test_closed_output_ends_the_command(journal: str, words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        ran = subprocess.run(
            [sys.executable, "-m", "trio_stomp", "store", *words, journal],
            # Otherwise a small amount would be printed only at the end.
            env=environment(PYTHONUNBUFFERED="1"),
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_name_does_not_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = JournalStore(str(tmp_path))
    commit = store.recover(ignore).commit
    store.append([Turn([Put("queue:\x1b[31m\n", 1, HEAD, [b"x"])])], commit)
    store.close()
    assert main(["store", "inspect", str(tmp_path)]) == 0
    assert "queue:\\x1b[31m\\n" in capsys.readouterr().out


def test_export_and_import_by_file(
    journal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = tmp_path / "all.jsonl", str(tmp_path / "new")
    assert main(["store", "export", journal, str(file)]) == 0
    assert main(["store", "import", target, str(file), "--progress"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{target}: 5 message, 1 setting, 1 stream, 3 streamed\n"
    assert "import" in captured.err
    assert main(["store", "export", target]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[1:] == file.read_text(encoding="utf-8").splitlines()[1:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.jsonl", "data", "new"]


@pytest.mark.parametrize("target", ["nowhere", "sqlite:///nowhere.db"])
@pytest.mark.parametrize("command", ["verify", "inspect", "export"])
def test_missing_store_is_an_error_and_nothing_is_created(
    target: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_target(target.partition(":")[0], tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["store", command, target]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"trio-stomp store {command}: error: nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("store", "the following arguments are required: COMMAND"),
        ("store look", "invalid choice: 'look'"),
        ("store verify", "the following arguments are required"),
        ("store verify x --fast", "unrecognized arguments: --fast"),
    ],
)
def test_a_mistake_is_one_line(line: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert captured.err.count("\n") == 1


def test_progress_is_for_terminals() -> None:
    quiet = io.StringIO()
    with progress("work", to=quiet) as tell:
        tell(1, 2)
    assert quiet.getvalue() == ""


def test_progress_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    shown = io.StringIO()
    with progress("work", wanted=True, to=shown) as tell:
        for done in range(101):
            tell(done, 100)
    assert shown.getvalue().endswith("work: 100 %\n")
