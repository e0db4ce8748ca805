"""The tools that speak STOMP: send, subscribe, bench, dlq, subs, schedules, top."""

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.files import save
from tests.support.tool_fakes import (
    PATIENCE_S,
    OutputOf,
    Terminal,
    check_refused,
    environment,
    run,
    run_unread,
    started,
)
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.cli import main
from trio_stomp.cli.commands import _bench
from trio_stomp.cli.commands._manage import _cancel
from trio_stomp.cli.commands._manage._messages import of_dead_letter
from trio_stomp.cli.commands._messages import _send
from trio_stomp.cli.commands._messages._printer import Printer
from trio_stomp.cli.commands._messages._subscribe import start_of
from trio_stomp.client import (
    open_client,
)
from trio_stomp.testing import ThreadedBroker, threaded_broker


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0.2) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> ThreadedBroker:
    monkeypatch.setenv("TRIO_STOMP_URL", shared_broker.url)
    return shared_broker


# send


def test_fate_of_a_message_is_printed(output_of: OutputOf) -> None:
    assert output_of("send", "/queue/s1", "hello") == "sent to /queue/s1: stored memory\n"
    assert output_of("send", "/topic/s1", "hello") == "sent to /topic/s1: matched 0\n"
    hint = "the name of a queue begins with /queue/"
    missed = output_of("send", "queue/s1", "hello")
    assert missed == f"sent to queue/s1: matched 0, hint {hint}\n"
    line = json.loads(output_of("send", "/queue/s1", "hello", "--json"))
    assert line == {"destination": "/queue/s1", "receipt": {"stored": "memory"}}
    out = output_of("subscribe", "/queue/s1", "--count", "2", "--for", "30")
    assert out == "hello\nhello\n"


def test_bodies_come_from_many_places(broker: ThreadedBroker, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00\n")
    assert run("send", "/queue/s2", stdin="in").returncode == 0
    assert run("send", "/queue/s2", "-", stdin="dash").returncode == 0
    assert run("send", "/queue/s2", "--file", str(file), "--persistent").returncode == 0
    ran = run("subscribe", "/queue/s2", "--count", "3", "--for", "30", "--json")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each.get("body") for each in found] == ["in", "dash", None]
    assert base64.b64decode(found[2]["body_base64"]) == b"\xff\x00\n"
    assert found[2]["headers"]["persistent"] == "true"


@pytest.fixture(autouse=True)
def _environment_of_tools(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools in this process and in others know the broker."""
    if {"broker", "output_of"} & {*request.fixturenames}:
        url = request.getfixturevalue("broker").url
        monkeypatch.setattr(
            "tests.support.tool_fakes.environment",
            lambda **more: environment(**{"TRIO_STOMP_URL": url, **more}),
        )


def test_lines_keep_their_order(broker: ThreadedBroker, tmp_path: Path) -> None:
    lines = [f"line {number} {'x' * (number % 100)}" for number in range(3000)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines))
    ran = run("send", "/queue/s3", "--lines", "--file", str(file), "--progress")
    assert (ran.returncode, ran.stdout) == (0, "3000 sent: 3000 stored memory\n")
    assert "send: 100 %" in ran.stderr
    ran = run("subscribe", "/queue/s3", "--count", "3000", "--for", "40")
    assert ran.stdout.splitlines() == lines


def test_printed_message_can_be_sent(output_of: OutputOf) -> None:
    for number in range(3):
        output_of("send", "/queue/s4", f"body {number}", "-H", f"n:{number}")
    taken = output_of("subscribe", "/queue/s4", "--json", "--count", "3", "--for", "30")
    ran = run("send", "--json", stdin=taken + "\n\n")
    assert [json.loads(line)["receipt"] for line in ran.stdout.splitlines()] == [
        {"stored": "memory"}
    ] * 3
    again = output_of("subscribe", "/queue/s4", "--json", "--count", "3", "--for", "30")
    found = [json.loads(line) for line in again.splitlines()]
    assert [(each["body"], each["headers"]["n"]) for each in found] == [
        (f"body {number}", f"{number}") for number in range(3)
    ]


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        ('{"body": "a"}\n{"bdy": "b"}\n', "line 2 of standard input: unknown key 'bdy'"),
        ('{"body": "a"}\n{"headers": {"ack": "x", "receipt-id": "y"}, "x": 1}', "unknown key 'x'"),
        ('{"body": "a"}\n\udcff\n', "line 2 of standard input is not UTF-8"),
    ],
)
def test_a_mistake_in_the_middle_tells_how_far_it_came(
    broker: ThreadedBroker, stdin: str, expected: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "trio_stomp", "send", "/topic/s5", "--json"],
        env=environment(TRIO_STOMP_URL=broker.url),
        input=stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )
    error = ran.stderr.decode()
    assert ran.returncode == 2
    assert expected in error
    assert error.endswith("(1 messages were confirmed before that)\n")
    assert ran.stdout.count(b"\n") == 1


def test_unreadable_or_unsendable_input_is_refused(output_of: OutputOf) -> None:
    out = output_of("send", "d", "--file", "/", code=2)
    assert "--file / cannot be read: Is a directory" in out
    assert "the header receipt is written by the client" in output_of(
        "send", "/topic/a", "x", "-H", "receipt:5", code=2
    )


def test_little_is_on_its_way_where_messages_are_large(
    tmp_path: Path, output_of: OutputOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_send, "BYTES_AT_ONCE", 10)
    file = tmp_path / "lines"
    file.write_text("x" * 100 + "\nshort\nshort\n\n" + "y" * 70_000)
    out = output_of("send", "/topic/s8", "--lines", "--file", str(file))
    assert out == "5 sent: 5 matched 0\n"


def test_unsendable_input_ends_the_command(
    tmp_path: Path, output_of: OutputOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_send, "AT_ONCE", 1)
    file = tmp_path / "lines"
    lines = [{"body": "a"}, {"headers": {"a": "\0"}}, {"body": "never"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = output_of("send", "/topic/s9", "--json", "--file", str(file), code=2)
    assert out.count("receipt") == 1
    assert "contains a NUL, or a line end for which STOMP 1.2 has no escape" in out
    assert out.endswith("(1 messages were confirmed before that)\n")


def test_a_slow_producer_does_not_lose_its_session(broker: ThreadedBroker) -> None:
    command = ("send", "/topic/s6", "--json")
    with started(*command, TRIO_STOMP_URL=broker.url) as (process, stdin, stdout, _):
        # The RECEIPT is printed while standard input is still open with half a line in it.
        stdin.write('{"body": "a"}\n{"bo')
        stdin.flush()
        assert '"matched": "0"' in stdout.readline()
        stdin.write('dy": "b"}')
        stdin.close()
        assert '"matched": "0"' in stdout.readline()
        assert process.wait(PATIENCE_S) == 0


def test_missing_broker_is_one_line_with_the_remedy() -> None:
    ran = run("send", "/queue/a", "x", "--url", "stomp://127.0.0.1:1")
    check_refused(ran, "is the broker running there? check --url", code=1)
    assert ran.stderr.startswith("trio-stomp send: error: ")


def test_a_wrong_login_is_one_line(tmp_path: Path, output_of: OutputOf) -> None:
    users = save(tmp_path / "users", "u:geheim\n")
    wrong, right = (save(tmp_path / word, f"{word}\n") for word in ("falsch", "geheim"))
    with threaded_broker(passwd_file=users) as broker:
        line = ["send", "/queue/a", "x", "--url", broker.url, "--login", "u", "--passcode-file"]
        assert "check --login and the passcode" in output_of(*line, wrong, code=1)
        assert output_of(*line, right).startswith("sent to /queue/a")
        ran = run(*line[:-1], TRIO_STOMP_PASSCODE="geheim")
        assert ran.stdout.startswith("sent to /queue/a")


# subscribe


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("first", "first"),
        ("42", "offset=42"),
        ("@1700000000.5", "timestamp=1700000000.500000"),
        ("2023-11-14T22:13:20Z", "timestamp=1700000000.000000"),
        ("1960-01-01T00:00:00Z", "timestamp=0.000000"),
    ],
)
def test_start_of_a_stream_becomes_a_header(text: str, header: str) -> None:
    assert start_of(text) == header


def test_fewer_than_wanted_is_exit_1(output_of: OutputOf) -> None:
    line = ("subscribe", "/queue/t1", "--count", "1", "--for", "0.2")
    assert output_of(*line, code=1) == ""
    assert output_of("subscribe", "/queue/t1", "--for", "0.2") == ""


def test_browsing_takes_nothing(output_of: OutputOf) -> None:
    output_of("send", "/queue/t2", "a")
    output_of("send", "/queue/t3", "b")
    for _ in range(2):
        out = output_of("subscribe", "/queue/t2", "/queue/t3", "--browse", "--for", "30")
        assert sorted(out.splitlines()) == ["a", "b"]


def test_a_selector_and_headers_reach_the_broker(output_of: OutputOf) -> None:
    pytest.importorskip("lark")
    output_of("send", "/queue/t4", "no", "-H", "type:a")
    output_of("send", "/queue/t4", "yes", "-H", "type:b")
    line = ("subscribe", "/queue/t4", "--selector", "type = 'b'", "--count", "1", "--for", "30")
    assert output_of(*line) == "yes\n"


def test_printed_messages_are_acknowledged(output_of: OutputOf) -> None:
    for body in ("a", "b"):
        output_of("send", "/queue/t5", body)
    assert output_of("subscribe", "/queue/t5", "--count", "1", "--for", "30") == "a\n"
    assert output_of("subscribe", "/queue/t5", "--browse") == "b\n"


def test_a_stream_from_its_first_message(output_of: OutputOf) -> None:
    out = output_of(
        *("subscribe", "/stream/DIAG", "--from", "first", "--count", "2", "--for", "30", "--json"),
    )
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["headers"]["x-stream-offset"] for each in found] == ["0", "1"]


def test_signals_are_handled_before_the_first_line(
    output_of: OutputOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the output may send a signal. An earlier one would be lost in the background."""
    order: list[str] = []
    listen, show = trio.open_signal_receiver, Printer.show

    def listening(*signals: int) -> AbstractContextManager[AsyncIterator[int]]:
        order.append("listens")
        return listen(*signals)

    def printing(printer: Printer, message: Any) -> None:
        order.append("prints")
        show(printer, message)

    monkeypatch.setattr(trio, "open_signal_receiver", listening)
    monkeypatch.setattr(Printer, "show", printing)
    runs = 12  # tasks that begin together do so in any order
    for number in range(runs):
        output_of("send", "/queue/t8", f"{number}")
        output_of("subscribe", "/queue/t8", "--count", "1", "--for", "30")
    assert order == ["listens", "prints"] * runs


def test_ctrl_c_ends_a_subscriber_in_order(broker: ThreadedBroker, output_of: OutputOf) -> None:
    command = ("subscribe", "/queue/t6")
    with started(*command, TRIO_STOMP_URL=broker.url) as (process, _, stdout, stderr):
        output_of("send", "/queue/t6", "hello")
        assert stdout.readline() == "hello\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert stderr.read() == ""
    assert output_of("subscribe", "/queue/t6", "--browse") == ""


def test_messages_not_read_from_the_pipe_are_not_acknowledged(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    output_of("send", "/queue/t7", "kept")
    ran = run_unread("subscribe", "/queue/t7", TRIO_STOMP_URL=broker.url)
    assert (ran.returncode, ran.stderr) == (141, b"")
    assert output_of("subscribe", "/queue/t7", "/queue/DLQ.t7", "--browse") == "kept\n"


def test_a_terminal_is_not_driven_by_a_body(
    broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        async with open_client(broker.url) as client:
            await client.send("/queue/t9", b"a\tb\n\x1b[31m\xff")

    trio.run(send)
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["subscribe", "/queue/t9", "--count", "1", "--for", "30"]) == 0
    assert out.getvalue() == "a\tb\n\\x1b[31m\\xff\n"


def test_lost_broker_is_reported() -> None:
    with (
        threaded_broker() as broker,
        started("subscribe", "/queue/a", "--url", broker.url) as (process, _, stdout, stderr),
    ):
        assert run("send", "/queue/a", "x", "--url", broker.url).returncode == 0
        assert stdout.readline() == "x\n"
        broker.stop()
        assert process.wait(PATIENCE_S) == 1
        error = stderr.read()
    assert error.startswith("trio-stomp subscribe: error: ")
    assert error.count("\n") == 1


# dlq


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("a", "/queue/DLQ.a"),
        ("/queue/a", "/queue/DLQ.a"),
        ("#a", "/queue/DLQ.a"),
        ("/topic/a", "/queue/DLQ.topic/a"),
        ("/queue/DLQ.a", "/queue/DLQ.a"),
        ("/queue/deadletter", "/queue/deadletter"),
    ],
)
def test_the_queue_of_dead_letters(
    name: str, queue: str, broker: ThreadedBroker, output_of: OutputOf
) -> None:
    assert output_of("dlq", "show", name) == f"{queue}: 0 shown, 0 waiting\n"


def kill(
    broker: ThreadedBroker,
    queue: str,
    *bodies: str,
    headers: dict[str, str] | None = None,
    requeue: bool = False,
) -> None:
    """Make dead letters."""

    async def work() -> None:
        async with open_client(broker.url) as client:
            for number, body in enumerate(bodies):
                await client.send(queue, body, headers={"n": str(number), **(headers or {})})
            async with client.subscribe(queue, ack="client-individual") as messages:
                for _ in bodies:
                    await (await messages.receive()).nack(requeue=requeue)

    trio.run(work)


def test_dead_letters_are_listed_and_shown(broker: ThreadedBroker, output_of: OutputOf) -> None:
    kill(broker, "/queue/d1", "a\x1b[31m", "b" * 300)
    rows = json.loads(output_of("dlq", "ls", "--json"))
    assert [row["input_depth"] for row in rows if row["destination"] == "/queue/DLQ.d1"] == [2]
    assert "/queue/DLQ.d1" in output_of("dlq", "ls")
    assert "/queue/DLQ.d1" in output_of("dlq", "ls", "--names").splitlines()
    lines = output_of("dlq", "show", "d1").splitlines()
    assert len(lines) == 5
    assert lines[0].endswith("  6 bytes  rejected after 1 delivery, sent to /queue/d1")
    assert lines[1] == "    a\\x1b[31m"
    assert lines[3] == f"    {'b' * 240} ..."
    assert len(output_of("dlq", "show", "d1", "--count", "1").splitlines()) == 3
    found = json.loads(output_of("dlq", "show", "d1", "--json", "--count", "1"))
    assert found["messages"][0]["headers"]["x-death-reason"] == "rejected"
    assert output_of("dlq", "show", "nobody") == "/queue/DLQ.nobody: 0 shown, 0 waiting\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [("1", "1 delivery"), ("0", "0 deliveries"), ("11", "11 deliveries"), ("?", "? deliveries")],
)
def test_number_of_deliveries_of_a_dead_letter_is_shown(count: str, text: str) -> None:
    message = {"size": 5, "headers": {"x-death-count": count, "x-death-reason": "rejected"}}
    assert of_dead_letter(message) == f"5 bytes  rejected after {text}, sent to ?"


def test_dead_letters_are_sent_again(broker: ThreadedBroker, output_of: OutputOf) -> None:
    kill(broker, "/queue/d2", "a", "b", "c")
    assert output_of("dlq", "retry", "d2", "--count", "1") == "/queue/DLQ.d2: 1 sent again\n"
    out = output_of("dlq", "retry", "/queue/DLQ.d2", "--exact", "--to", "/queue/d3", "--json")
    assert json.loads(out) == {"queue": "/queue/DLQ.d2", "sent": 2, "left": {}}
    first = output_of("subscribe", "/queue/d2", "--json", "--count", "1", "--for", "30")
    headers = json.loads(first)["headers"]
    assert headers["n"] == "0"
    assert not [name for name in headers if "death" in name or name.startswith("original")]
    assert output_of("subscribe", "/queue/d3", "--count", "2", "--for", "30") == "b\nc\n"
    assert output_of("dlq", "retry", "d2") == "/queue/DLQ.d2: 0 sent again\n"


def test_resent_file_is_no_duplicate(broker: ThreadedBroker, output_of: OutputOf) -> None:
    async def work() -> None:
        async with open_client(broker.url) as client:
            headers = {"x-dedup-id": "7", "AMQ_SCHEDULED_DELAY": "1"}
            await client.send("/queue/d8", "a", headers=headers)
            async with client.subscribe("/queue/d8", ack="client-individual") as messages:
                await (await messages.receive()).nack(requeue=False)

    trio.run(work)
    assert output_of("dlq", "retry", "d8") == "/queue/DLQ.d8: 1 sent again\n"
    assert output_of("subscribe", "/queue/d8", "--count", "1", "--for", "30") == "a\n"


def test_a_message_that_is_no_dead_letter_stays(output_of: OutputOf) -> None:
    output_of("send", "/queue/d4", "x")
    out = output_of("dlq", "retry", "/queue/d4", "--exact", code=1)
    assert "/queue/d4: 1 stay: no original-destination: it is no dead letter" in out


def test_claimed_origin_of_a_message_does_not_gain_the_rights_of_the_retrying_user(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    """F4: mallory has an operator send to where he himself may not."""
    kill(broker, "/queue/d9", "evil", headers={"original-destination": "/queue/secret"})
    assert output_of("dlq", "retry", "d9") == "/queue/DLQ.d9: 1 sent again\n"
    assert output_of("subscribe", "/queue/d9", "--count", "1", "--for", "30") == "evil\n"


def test_the_dead_letters_of_several_queues_are_sent_each_to_its_own(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    for name in ("/queue/d10", "/queue/d11"):
        kill(broker, name, name, headers={"max-exceptions": "0"}, requeue=True)
    dead_letters = "/queue/deadletter"
    assert output_of("dlq", "retry", dead_letters) == f"{dead_letters}: 2 sent again\n"
    for name in ("/queue/d10", "/queue/d11"):
        assert output_of("subscribe", name, "--count", "1", "--for", "30") == f"{name}\n"


def test_a_destination_that_takes_none_leaves_them_dead(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    kill(broker, "/queue/d5", "a")
    out = output_of("dlq", "retry", "d5", "--to", "/topic/*", code=1)
    assert "error: " in out
    rows = json.loads(output_of("dlq", "ls", "--json"))
    assert [row["input_depth"] for row in rows if row["destination"] == "/queue/DLQ.d5"] == [1]


def test_dead_letters_are_dropped(
    broker: ThreadedBroker,
    output_of: OutputOf,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill(broker, "/queue/d6", "a", "b", "c")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["dlq", "drop", "d6"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "Drop messages of /queue/DLQ.d6 for good? [y/N] "
    assert captured.out == "nothing was changed\n"
    out = output_of("dlq", "drop", "d6", "--yes", "--count", "1", "--json")
    assert json.loads(out) == {"queue": "/queue/DLQ.d6", "purged": 1}
    assert output_of("dlq", "drop", "d6", "--yes") == "/queue/DLQ.d6: 2 dropped\n"
    assert output_of("dlq", "drop", "d6", "--yes") == "/queue/DLQ.d6: 0 dropped\n"


# subs


def test_durable_subscriptions_are_listed_and_ended(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    async def work() -> None:
        async with (
            open_client(broker.url, client_id="shop") as client,
            client.subscribe("/topic/u1", durable="prices"),
        ):
            listed = await trio.to_thread.run_sync(lambda: run("subs", "ls"))
            assert listed.returncode == 0
            assert table(listed.stdout) == [
                ["name", "client-id", "destination", "owner", "state", "waiting", "unacked"],
                ["prices", "shop", "/topic/u1", "connected", "0", "0"],
            ]

    trio.run(work)
    output_of("send", "/topic/u1", "1")
    assert table(output_of("subs", "ls"))[1:] == [["prices", "shop", "/topic/u1", "away", "1", "0"]]
    (each,) = json.loads(output_of("subs", "ls", "--json"))
    assert (each["name"], each["destination"], each["waiting"]) == ("prices", "/topic/u1", 1)
    assert output_of("subs", "rm", "prices", "--client-id", "shop", "--yes") == "ended 'prices'\n"
    assert table(output_of("subs", "ls"))[1:] == []
    out = output_of("subs", "rm", "nobody", "--yes", "--json", code=1)
    assert "error: there is no durable subscription 'nobody'" in out


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_one_of_several_durable_subscriptions_of_one_name_is_ended(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    async def work() -> None:
        for destination in ("/topic/u2", "/topic/u3"):
            async with (
                open_client(broker.url) as client,
                client.subscribe(destination, durable="s"),
            ):
                pass

    trio.run(work)
    assert "several" in output_of("subs", "rm", "s", "--yes", code=1)
    out = output_of("subs", "rm", "s", "--destination", "/topic/u3", "--yes")
    assert out == "ended 's'\n"
    assert output_of("subs", "ls", "--names") == "s\n"
    assert [row[1] for row in table(output_of("subs", "ls"))[1:]] == ["/topic/u2"]
    out = output_of("subs", "rm", "s", "--yes", "--json")
    assert json.loads(out) == {"name": "s", "ended": 1}


def test_ending_is_asked_for(
    output_of: OutputOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["subs", "rm", "x", "--destination", "/topic/a"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "nothing was changed\n"
    assert captured.err == (
        "End the durable subscription 'x', and drop its messages (destination /topic/a)? [y/N] "
    )


# bench


def test_bench_counts_its_messages(output_of: OutputOf) -> None:
    line = ("bench", "--subs", "3", "--seconds", "0.3", "--json")
    figures = json.loads(output_of(*line))
    assert figures["sent"] > 0
    assert figures["delivered"] == 3 * figures["sent"]
    assert figures["lost"] == 0
    assert 0 < figures["latency_ms_p50"] <= figures["latency_ms_p99"] <= figures["latency_ms_max"]


def test_bench_at_a_steady_rate(broker: ThreadedBroker) -> None:
    ran = run("bench", "--subs", "1", "--seconds", "0.3", "--rate", "50", "--size", "8")
    assert ran.returncode == 0, ran.stderr
    sent = int(ran.stdout.split()[0].replace(",", ""))
    assert 1 <= sent <= 17
    for name in ("p50", "p90", "p99", "p99.9", "longest"):
        line = rf"(?m)^ *[\d.,]+ ms latency, {re.escape(name)}$"
        assert re.search(line, ran.stdout), ran.stdout


def test_lost_deliveries_are_an_error(output_of: OutputOf, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(given: object, run: _bench.Run, tell: object, client: object) -> None:
        run.sent, run.took_s = 2, 1.0
        run.received = [2, 1, 2]

    monkeypatch.setattr(_bench, "_measure", lose)
    out = output_of("bench", "--subs", "3", code=1)
    assert "bench: error: 1 deliveries did not come within 30 s" in out


def test_a_histogram_of_latencies_is_right_to_six_per_cent() -> None:
    latencies = _bench.Latencies()
    assert latencies.percentile_ms(0.5) == 0.0
    for number in range(1, 1001):
        latencies.add(number / 1000)
    for share in (0.5, 0.9, 0.99):
        assert share * 1000 <= latencies.percentile_ms(share) <= share * 1000 * 1.06
    assert latencies.percentile_ms(1.0) == 1000.0
    # A clock that stands still, or goes back, is no error.
    latencies.add(0.0)
    latencies.add(-1.0, 2)
    assert latencies.total == 1003


# schedules


def sends(broker: ThreadedBroker, to: str, *bodies: str, **headers: str) -> list[str]:
    """Their numbers, if they are sent later."""

    async def work() -> list[str]:
        async with open_client(broker.url) as client:
            receipts = [await client.send(to, body, headers=headers) for body in bodies]
        return [each.headers.get("scheduledJobId", "") for each in receipts]

    return trio.run(work)


def schedule(broker: ThreadedBroker, *bodies: str) -> list[str]:
    return sends(broker, "/queue/later", *bodies, AMQ_SCHEDULED_DELAY="3600000")


def test_schedules_are_listed_and_cancelled(
    broker: ThreadedBroker,
    output_of: OutputOf,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ids = schedule(broker, "a", "bc", "d")
    rows = table(output_of("schedules", "ls"))
    assert rows[0][:5] == ["id", "user", "destination", "messages", "bytes"]
    assert [row[0] for row in rows[1:]] == ids
    assert rows[2][1:5] == ["anonymous", "/queue/later", "1", "2"]
    assert rows[2][6:] == ["no", "0", "no"]
    assert json.loads(output_of("schedules", "ls", "--json", "--user", "bob")) == []
    assert "bytes                    2" in output_of("show", "schedule", ids[1])
    assert output_of("schedules", "cancel", ids[1], "--yes") == "1 messages will not be sent\n"
    assert output_of("cancel", ids[1], "--yes", code=1) == "0 messages will not be sent\n"
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert main(["cancel", ids[0], ids[2]]) == 0
    assert capsys.readouterr().err == f"Cancel the schedules {ids[0]}, {ids[2]}? [y/N] "
    assert output_of("ls", "schedules", "--names").splitlines() == []
    assert "error: " in output_of("cancel", "x", "--yes", code=1)


def test_many_schedules_are_cancelled_at_once(
    broker: ThreadedBroker, output_of: OutputOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cancel, "AT_ONCE", 2)
    schedule(broker, "a", "b", "c")
    line = ("schedules", "cancel", "--yes")
    assert output_of(*line, "--user", "bob") == "0 messages will not be sent\n"
    assert output_of(*line, "--user", "anonymous") == "3 messages will not be sent\n"
    schedule(broker, "a")
    assert json.loads(output_of(*line, "--all", "--json")) == {"cancelled": 1}
    for words in ((), ("7", "--all"), ("--user", "a", "--all")):
        assert "name IDs, or --user, or --all" in output_of("cancel", *words, code=2)
