"""The commands of management, against a broker."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.support.commands import BAD_OPTION, CANNOT
from tests.support.files import save
from tests.support.tool_fakes import PATIENCE_S, OutputOf, Terminal, fake_site, run
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.cli import _http_get, main
from trio_stomp.cli.commands._manage import _kinds
from trio_stomp.client import open_client
from trio_stomp.testing import threaded_broker

Q = "/queue/q"


@pytest.fixture
def url(output_of: OutputOf, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A broker whose queue has three messages."""
    with threaded_broker() as broker:
        url = f"stomp://{broker.host}:{broker.port}"
        monkeypatch.setenv("TRIO_STOMP_URL", url)
        for kind in ("apple", "pear", "apple"):
            output_of("send", Q, f"a {kind}", "-H", f"kind:{kind}")
        yield url


def test_messages_are_shown(output_of: OutputOf, url: str) -> None:
    lines = output_of("peek", Q, "--selector", "kind = 'apple'", "--bytes", "3").splitlines()
    assert [line.strip() for line in lines[1::2]] == ["a a ...", "a a ..."]
    assert "kind:apple" in lines[0]
    assert lines[-1] == f"{Q}: 2 shown, 3 waiting"
    shown = json.loads(output_of("peek", Q, "--offset", "1", "--count", "1", "--json"))
    assert [each["body"] for each in shown["messages"]] == ["a pear"]
    assert (shown["queue"], shown["total"]) == (Q, 3)


def test_all_messages_are_shown_page_by_page(
    output_of: OutputOf, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http_get, "LISTED", 2)
    for most, bodies in (("3", 3), ("2", 2), ("9", 3)):
        assert output_of("peek", Q, "--count", most).count("bytes") == bodies
    assert output_of("dlq", "show", Q, "--exact").count("bytes") == 3


def test_messages_are_chosen_by_body_time_and_id(output_of: OutputOf, url: str) -> None:
    shown = json.loads(output_of("peek", Q, "--body", "pear", "--since", "1h", "--json"))
    (message,) = shown["messages"]
    assert message["body"] == "a pear"
    assert output_of("peek", Q, "--until", "1h").endswith(f"{Q}: 0 shown, 3 waiting\n")
    purge = output_of("purge", Q, "--id", message["message_id"], "--id", "none-1", "--yes")
    assert purge == f"{Q}: 1 purged\n"


def test_definitions_are_carried_to_another_broker(
    output_of: OutputOf, url: str, tmp_path: Path
) -> None:
    output_of("create", "/queue/new")
    for kind in ("toml", "json"):
        exported = output_of("export", "--format", kind)
        assert "/queue/new" in exported
        file = save(tmp_path / kind, exported)
        assert output_of("import", file) == "0 queues created, 1 existed\n"
    with threaded_broker() as broker:
        where = ("--url", f"stomp://{broker.host}:{broker.port}")
        dry = output_of("import", file, "--dry-run", *where).splitlines()
        assert dry[:2] == ["1 queues would be created, 0 existed", "  /queue/new"]
        assert json.loads(output_of("import", file, "--json", *where))["created"] == ["/queue/new"]
        assert output_of("ls", "queues", "--names", *where) == "/queue/new\n"
    assert "/nowhere cannot be read: No such file" in output_of(
        "import", "/nowhere", code=BAD_OPTION
    )
    bad = save(tmp_path / "bad", "version = 7")
    assert "the body has no definitions" in output_of("import", bad, code=CANNOT)


def test_settings_and_policies_are_listed_with_their_source(output_of: OutputOf, url: str) -> None:
    assert "default" in output_of("ls", "settings", "--name", "max_connections")
    assert "ttl_ms" in output_of("show", "setting", "ttl_ms")
    assert output_of("ls", "policies").startswith("pattern")


def test_a_broker_reads_its_files_again(output_of: OutputOf, tmp_path: Path) -> None:
    users = tmp_path / "users"
    save(users, "u:geheim\n")
    rules = save(tmp_path / "acl", '[[rule]]\nuser = "u"\nallow = ["admin"]\nto = "DIAG"\n')
    with threaded_broker(passwd_file=str(users), acl_file=rules) as broker:
        login = (
            "--url",
            broker.url,
            "--login",
            "u",
            "--passcode-file",
            save(tmp_path / "p", "geheim"),
        )
        users.write_text(f"{users.read_text()}\nv:other")
        assert output_of("reload", *login).splitlines() == [
            "the broker has read its files again: 1 changes",
            "  [users] v: - -> a passcode",
        ]
        users.write_text("u")
        assert "error: " in output_of("reload", *login, code=CANNOT)


def test_a_queue_is_created_and_deleted(output_of: OutputOf, url: str) -> None:
    assert output_of("create", "/queue/new") == "/queue/new: created\n"
    assert output_of("create", "/queue/new") == "/queue/new: existed\n"
    assert (
        output_of("delete", "/queue/new", "--yes")
        == "/queue/new: deleted, 0 messages purged, 0 held by consumers\n"
    )
    assert "error: " in output_of("delete", Q, "--yes", code=CANNOT)
    assert (
        output_of("delete", Q, "--force", "--yes")
        == f"{Q}: deleted, 3 messages purged, 0 held by consumers\n"
    )


def test_unacknowledged_messages_return_to_their_queue(output_of: OutputOf, url: str) -> None:
    async def hold() -> None:
        async with (
            open_client(url) as client,
            client.subscribe(Q, ack="client-individual", prefetch=1) as messages,
        ):
            await messages.receive()
            ran = await trio.to_thread.run_sync(lambda: run("redeliver", Q, TRIO_STOMP_URL=url))
            assert ran.stdout == f"{Q}: 1 returned to the queue\n"

    trio.run(hold)


def test_streams_are_listed_and_trimmed(output_of: OutputOf) -> None:
    with threaded_broker(diag_interval_s=0.05) as broker:
        where = ("--url", broker.url)
        output_of("subscribe", "/stream/DIAG", "--from", "first", "--count", "5", *where)
        assert output_of("ls", "streams", "--names", *where) == "/stream/DIAG\n"
        assert "first                    0\n" in output_of("show", "stream", "/stream/DIAG", *where)
        trimmed = output_of("trim", "/stream/DIAG", "--offset", "3", "--yes", *where)
        assert trimmed == "/stream/DIAG: 3 removed, the first is 3\n"


def test_messages_are_moved_and_purged(output_of: OutputOf, url: str) -> None:
    assert output_of("move", Q, "/queue/r", "--count", "2") == f"{Q}: 2 moved to /queue/r\n"
    assert json.loads(output_of("move", Q, "/queue/r", "--json")) == {
        "queue": Q,
        "to": "/queue/r",
        "moved": 1,
    }
    purge = ("purge", "/queue/r", "--yes")
    assert output_of(*purge, "--selector", "kind = 'pear'") == "/queue/r: 1 purged\n"
    assert json.loads(output_of(*purge, "--json", "--no-progress")) == {
        "queue": "/queue/r",
        "purged": 2,
    }


@pytest.mark.parametrize(
    ("options", "question"),
    [
        ([], f"Purge messages of {Q} for good? [y/N]"),
        (["--count", "2"], f"Purge messages of {Q} for good (count 2)?"),
        (
            ["--selector", "a = 1", "--count", "2"],
            f"Purge messages of {Q} for good (selector a = 1, count 2)?",
        ),
    ],
)
def test_a_purge_asks_first(
    output_of: OutputOf,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    question: str,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    assert main(["purge", Q, *options]) == 0
    captured = capsys.readouterr()
    assert question in captured.err
    assert captured.out == "nothing was changed\n"
    assert output_of("peek", Q).endswith("3 waiting\n")


def test_a_queue_is_paused_and_shown(output_of: OutputOf, url: str) -> None:
    assert output_of("pause", Q) == f"{Q}: paused\n"
    lines = output_of("show", "queue", Q).splitlines()
    assert ["input_depth", "3"] in [line.split() for line in lines]
    assert ["paused", "yes"] in [line.split() for line in lines]
    assert ["policy.overflow", "reject"] in [line.split() for line in lines]
    assert json.loads(output_of("resume", Q, "--json")) == {"queue": Q, "paused": False}
    assert "no queue" in output_of("show", "queue", "/queue/none", code=CANNOT)


def test_lists_are_printed_and_a_connection_is_closed(output_of: OutputOf, url: str) -> None:
    assert Q in output_of("ls", "queues")
    assert json.loads(output_of("ls", "queues", "--json"))[0]["input_depth"] == 3
    assert output_of("ls", "queues", "--names", "--name", "/queue/*") == f"{Q}\n"
    assert output_of("ls", "destinations", "--count", "1", "--sort", "enqueued").count(Q) == 1
    assert output_of("ls", "subscriptions").startswith("destination")
    assert json.loads(output_of("ls", "connections", "--json"))[0]["session_id"]
    assert "tcp" in output_of("ls", "connections")
    assert output_of("show", "destination", Q).startswith(f"destination              {Q}\n")
    assert "process.uptime_s" in output_of("show", "overview")
    assert "no session" in output_of("close", "12", code=CANNOT)
    assert "no session" in output_of("show", "connection", "12", code=CANNOT)


def test_errors_name_the_cause_or_the_command_that_was_meant(output_of: OutputOf, url: str) -> None:
    assert "there is no queue '/queue/none'" in output_of("peek", "/queue/none", code=CANNOT)
    assert "nobody is subscribed" in output_of("move", Q, "/topic/t", code=CANNOT)
    assert "invalid choice: 'foo'" in output_of("ls", "foo", code=BAD_OPTION)
    assert "did you mean purge?" in output_of("purge_queue", code=BAD_OPTION)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (409, b'{"error": "full", "code": "queue-full", "moved": 7}', "7 moved, then: full"),
        (404, b"Nothing is here\n", "the broker has no management interface"),
        (500, b"x", "x"),
        (200, b"[]", "[]"),
        (200, b"", "status 200"),
    ],
)
def test_answers_of_other_brokers(output_of: OutputOf, status: int, body: bytes, text: str) -> None:
    with fake_site({"/api/v1/messages": (status, body)}) as site:
        out = output_of("peek", Q, "--url", f"http://127.0.0.1:{site.port}", code=CANNOT)
        assert text in out


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = b'{"seen": 1, "total": 4}\n{"seen": 3, "total": 4}\n{"queue": "q", "purged": 4}\n'
    with fake_site({"/api/v1/purge": (200, lines)}, "POST", "application/x-ndjson") as site:
        where = f"http://127.0.0.1:{site.port}"
        assert main(["purge", Q, "--yes", "--progress", "--url", where]) == 0
    captured = capsys.readouterr()
    assert captured.out == "q: 4 purged\n"
    assert "purge:  25 %" in captured.err


def test_an_item_of_a_list_is_shown_by_its_name(output_of: OutputOf, url: str) -> None:
    async def subscribe() -> None:
        for name, topic in (("prices", "/topic/a"), ("prices", "/topic/b"), ("x", "/topic/a")):
            async with open_client(url) as client, client.subscribe(topic, durable=name):
                pass

    trio.run(subscribe)
    assert output_of("ls", "durables").count("away") == 3
    shown = output_of("show", "durable", "prices").splitlines()
    assert [line.split()[1] for line in shown if line.startswith("destination ")] == [
        "/topic/a",
        "/topic/b",
    ]
    assert len(json.loads(output_of("show", "durable", "prices", "--json"))) == 2
    assert json.loads(output_of("show", "durable", "x", "--json"))["name"] == "x"
    out = output_of("show", "durable", "pri", code=CANNOT)
    assert "there is no durable 'pri'; trio-stomp ls durables lists them" in out


def test_fields_are_written_for_people() -> None:
    record = {"none": None, "at_ms": 1_700_000_000_000, "for_ms": 5000, "list": ["a", 1], "b": True}
    cells = [_kinds.cell(record, name) for name in (*record, "missing")]
    assert cells == ["", "2023-11-14T22:13:20Z", 5000, "a, 1", "yes", ""]


def test_last_values_are_listed_and_cleared(output_of: OutputOf, url: str) -> None:
    topic = "/topic/rates"
    output_of("send", topic, "1.1", "-H", "retain:set")
    assert output_of("ls", "last-values", "--names") == f"{topic}\n"
    assert output_of("ls", "last-values").split()[:5] == ["topic", "user", "bytes", "set", "stored"]
    assert output_of("clear", topic, "--yes") == f"{topic}: cleared\n"
    assert output_of("clear", topic, "--yes") == f"{topic}: had no last value\n"


def test_the_history_of_a_queue(output_of: OutputOf) -> None:
    with threaded_broker(diag_interval_s=0.1) as broker:
        url = ("--url", broker.url)
        output_of("send", Q, "a", "--count", "3", *url)
        deadline = time.monotonic() + PATIENCE_S
        while not (shown := json.loads(output_of("history", Q, "--json", *url)))["points"]:
            assert time.monotonic() < deadline
        lines = output_of("history", Q, "--since", "1h", "--points", "2", *url).splitlines()
    assert shown["points"][0]["waiting"] == 3
    assert shown["oldest_ms"] <= shown["points"][0]["ts_ms"]
    assert lines[0].split() == ["time", "waiting", "unacked", "bytes", "in/s", "out/s", "oldest-s"]
    assert lines[-1].startswith(f"{Q}: the broker remembers from 20")
    with threaded_broker(diag_interval_s=0) as broker:
        assert "no stream" in output_of("history", Q, "--url", broker.url, code=CANNOT)
