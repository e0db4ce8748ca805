"""Further features of send, subscribe, request and reply."""

import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
import trio
import trio.testing
from _crash.ports import free_port

from tests.support.files import save
from tests.support.tool_fakes import PATIENCE_S, OutputOf, run, started
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.base import OptionError
from trio_stomp.cli._lines import Outgoing, line_of, own_headers, read_headers, read_line
from trio_stomp.cli.commands._messages._source import paced
from trio_stomp.cli.commands._messages._template import Template
from trio_stomp.testing import ThreadedBroker, threaded_broker


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> ThreadedBroker:
    monkeypatch.setenv("TRIO_STOMP_URL", shared_broker.url)
    return shared_broker


MESSAGE = SimpleNamespace(
    body=b"\xffbody",
    destination="/topic/\u00e4",
    headers={"destination": "/topic/\u00e4", "subscription": "1", "type": "x", "n": "2"},
)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{body}", b"\xffbody"),
        ("{destination} {n}", "/topic/\u00e4 7".encode()),
        ("{headers}", b"type:x n:2"),
        ("{header:type}-{header:none}", b"x-"),
        ("{{{n}}}\\t\\n\\\\n\\0", b"{7}\t\n\\n\0"),
        ("{time:%%}", b"%"),
        ("\udcff", b"\xff"),
    ],
)
def test_a_template_is_filled(text: str, filled: bytes) -> None:
    assert Template.parse(text, "").fill(MESSAGE, 7) == filled


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{bdy}", "--format: unknown field {bdy}; did you mean body?"),
        ("{body.__class__}", "unknown field {body.__class__}"),
        ("{body!r}", "unknown field {body}"),
        ("{}", "unknown field {}"),
        ("{header}", "{header} needs a name"),
        ("{body", "write {{ and }} for braces"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(text: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        Template.parse(text, "--format")
    assert error in str(caught.value)


def test_messages_are_sent_at_an_interval() -> None:
    async def messages() -> AsyncIterator[Outgoing]:
        for seconds in (0.0, 0.25, 3.0):
            await trio.sleep(seconds)
            yield Outgoing("/queue/a", b"", {})

    async def main() -> list[float]:
        return [trio.current_time() async for _ in paced(messages(), 1.0)]

    clock = trio.testing.MockClock(autojump_threshold=0)
    times = trio.run(main, clock=clock)
    # The third one is late by itself: nothing is made up for.
    assert [round(each - times[0], 2) for each in times] == [0.0, 1.0, 4.0]


def test_a_message_is_sent_many_times(broker: ThreadedBroker, output_of: OutputOf) -> None:
    assert output_of("send", "/queue/m1", "x", "--count", "300") == "300 sent: 300 stored memory\n"
    out = output_of("subscribe", "/queue/m1", "--count", "300", "--for", "30", "--format", "{n}")
    assert out.split() == [f"{number}" for number in range(1, 301)]


def test_ctrl_c_ends_sending_with_the_total(broker: ThreadedBroker, output_of: OutputOf) -> None:
    line = ("send", "/queue/m2", "x", "--count", "9", "--interval", "3000")
    with started(*line, TRIO_STOMP_URL=broker.url) as (process, _, stdout, _):
        assert output_of("subscribe", "/queue/m2", "--count", "1", "--for", "30") == "x\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert stdout.read() == "1 sent: 1 stored memory\n"


def test_messages_are_printed_with_where_they_came_from(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    for _ in range(3):
        output_of("send", "/queue/m3", "two apples", "-H", "kind:apple")
    take = ("subscribe", "/queue/m3", "--count", "1", "--for", "30")
    assert output_of(*take, "-v") == "/queue/m3 two apples\n"
    first, *rest = output_of(*take, "-vv").split("\n")
    assert first.startswith("/queue/m3  message-id:")
    assert first.endswith(" kind:apple")
    assert rest == ["two apples", "", ""]
    assert output_of(*take, "--format", "{header:kind}\\t{body}") == "apple\ttwo apples\n"


def test_the_login_comes_from_the_environment(tmp_path: Path, output_of: OutputOf) -> None:
    users = save(tmp_path / "users", "u:geheim\n")
    with threaded_broker(passwd_file=users) as broker:
        variables = {"TRIO_STOMP_URL": broker.url, "TRIO_STOMP_LOGIN": "u"}
        for command in (["send", "/queue/a", "x"], ["peek", "/queue/a"]):
            assert run(*command, TRIO_STOMP_PASSCODE="geheim", **variables).returncode == 0
            ran = run(*command, TRIO_STOMP_PASSCODE="falsch", **variables)
            assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
            ran = run(*command, **variables)
            assert "the passcode of 'u' is needed" in ran.stderr
        # A token is a login of its own.
        token = save(tmp_path / "token", "a.b.c\n")
        ran = run("peek", "/queue/a", "--token-file", token, **variables)
        assert "the passcode of" not in ran.stderr


@pytest.mark.parametrize(
    "line", [["--json", "--url", "{url}", "dlq", "ls"], ["dlq", "--url={url}", "--json", "ls"]]
)
def test_options_may_stand_before_the_command(
    shared_broker: ThreadedBroker, output_of: OutputOf, line: list[str]
) -> None:
    assert output_of(*(word.format(url=shared_broker.url) for word in line)) == "[]\n"


# Requests.


@contextmanager
def replying(broker: ThreadedBroker, queue: str, *options: str) -> Iterator[IO[str]]:
    """Run `reply` beside the block, and provide its errors. It is ready for requests."""
    line = ("reply", queue, *options)
    with started(*line, TRIO_STOMP_URL=broker.url) as (process, _, stdout, stderr):
        yield stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert stdout.readline().endswith((" answered\n", " failed\n"))


def test_requests_are_answered(broker: ThreadedBroker, output_of: OutputOf) -> None:
    with replying(broker, "/queue/r1", "{n}: {body} of {header:from}", "-H", "type:answer"):
        ask = ("request", "/queue/r1", "-H", "from:me", "--timeout", "30")
        assert output_of(*ask, "hello") == "1: hello of me\n"
        assert output_of(*ask, "hello", "--format", "{header:type}") == "answer\n"
        lines = "\n".join(map(str, range(3, 403)))
        ran = run("send", "--request", *ask[1:], "--lines", stdin=lines, TRIO_STOMP_URL=broker.url)
        assert ran.stdout.splitlines() == [f"{n}: {n} of me" for n in range(3, 403)]


def test_a_command_answers_requests(broker: ThreadedBroker, output_of: OutputOf) -> None:
    code = "import sys; print(sys.stdin.read() + sys.argv[1]); sys.exit(sys.argv[1] == 'bad')"
    command = f'{sys.executable} -c "{code}" {{header:word}}'
    with replying(broker, "/queue/r2", "--command", command) as errors:
        ask = ("request", "/queue/r2", "a", "-H")
        assert output_of(*ask, "word:b; echo $HOME", "--timeout", "30") == "ab; echo $HOME\n\n"
        # A request without an answer becomes a dead letter.
        assert "no answer within 1 s" in output_of(*ask, "word:bad", "--timeout", "1", code=1)
        assert "the command ended with 1" in errors.readline()
        output_of("send", "/queue/r2", "no reply-to")
        assert "it has no reply-to" in errors.readline()
    assert output_of("dlq", "show", "r2", "--json").count('"message_id"') == 2


def test_a_command_that_cannot_be_run_answers_nothing(
    broker: ThreadedBroker, output_of: OutputOf, tmp_path: Path
) -> None:
    body = save(tmp_path / "body", "a\0b")
    with replying(broker, "/queue/r5", "--command", "echo {body}") as errors:
        output_of("send", "/queue/r5", "--file", body, "-H", "reply-to:/queue/answers")
        assert "the command cannot be run: embedded null byte" in errors.readline()


def test_an_answer_that_the_broker_refuses_is_given_up(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    with replying(broker, "/queue/r3") as errors:
        output_of("send", "/queue/r3", "evil", "-H", "reply-to:/topic/*")
        assert errors.readline().startswith("/topic/*: ")
        while "the broker refuses its answer" not in (line := errors.readline()):
            assert "connect" in line
        assert output_of("request", "/queue/r3", "good", "--timeout", "30") == "good\n"
    assert "evil" in output_of("dlq", "show", "r3")


def test_an_answer_that_does_not_come_in_time_is_an_error(
    broker: ThreadedBroker, output_of: OutputOf
) -> None:
    out = output_of("request", "/queue/r4", "x", "--timeout", "0.2", code=1)
    assert out == "trio-stomp request: error: /queue/r4: no answer within 0.2 s\n"
    out = output_of("request", "/topic/r4", "x", code=1)
    assert out == "trio-stomp request: error: nobody is subscribed to /topic/r4\n"


# Restarts of the broker.


def test_a_subscriber_and_a_responder_survive_a_restart() -> None:
    port = free_port()
    url = f"stomp://127.0.0.1:{port}"
    where = {"TRIO_STOMP_URL": url}
    with (
        threaded_broker(port=port) as broker,
        started("subscribe", "/queue/s", "--reconnect", **where) as (process, _, stdout, stderr),
        started("reply", "/queue/r", **where) as (responder, _, _, _),
    ):
        assert run("send", "/queue/s", "before", **where).returncode == 0
        assert stdout.readline() == "before\n"
        assert run("request", "/queue/r", "a", **where).stdout == "a\n"
        broker.stop()
        assert f"127.0.0.1:{port}: the connection broke: " in stderr.readline()
        with threaded_broker(port=port):
            assert stderr.readline() == f"127.0.0.1:{port}: connected again\n"
            assert run("send", "/queue/s", "behind", **where).returncode == 0
            assert stdout.readline() == "behind\n"
            assert run("request", "/queue/r", "b", "--timeout", "40", **where).stdout == "b\n"
            for each in (process, responder):
                each.send_signal(signal.SIGTERM)
                assert each.wait(PATIENCE_S) == 0


def test_messages_on_their_way_survive_a_restart(tmp_path: Path) -> None:
    port = free_port()
    options = {"port": port, "data_dir": str(tmp_path)}
    where = {"TRIO_STOMP_URL": f"stomp://127.0.0.1:{port}"}
    line = ("send", "/queue/s", "--json", "--persistent", "--reconnect")
    stored = (
        '{"destination": "/queue/s", "receipt": {"dedup-window": "10000", "stored": "journal"}}\n'
    )
    with (
        threaded_broker(**options) as broker,
        started(*line, **where) as (process, stdin, stdout, _),
    ):
        stdin.write('{"body": "1"}\n')
        stdin.flush()
        assert stdout.readline() == stored
        broker.stop()
        stdin.write('{"body": "2"}\n')
        stdin.close()
        with threaded_broker(**options):
            assert stdout.readline() == stored
            assert process.wait(PATIENCE_S) == 0
            ran = run("subscribe", "/queue/s", "--count", "2", "--for", "30", **where)
            assert ran.stdout == "1\n2\n"


# Lines of JSON.


@pytest.mark.parametrize(
    "body", [b"", b"text", b"\xff\x00", "\u00e4\n\u2028".encode(), b'{"a": 1}', b"\r\n"]
)
def test_a_message_survives_its_line(body: bytes) -> None:
    line = line_of("/queue/a", {"type": "x:\ny", "message-id": "1", "x-stream-offset": "4"}, body)
    assert "\n" not in line
    assert read_line(line, "", {}, "line 1") == Outgoing("/queue/a", body, {"type": "x:\ny"})


def test_the_command_line_wins_over_the_line() -> None:
    line = '{"headers": {"a": "1", "b": "2"}, "destination": "/queue/b"}'
    found = read_line(line, "/queue/a", {"a": "9"}, "line 1")
    assert found == Outgoing("/queue/b", b"", {"a": "9", "b": "2"})
    assert read_line('{"destination": "d", "headers": []}', "", {}, "line 1").headers == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x", "line 7 is not valid JSON"),
        ("[" * 99_999, "line 7 is not valid JSON"),
        ("[]", "line 7 is not an object"),
        ('{"bdy": "x"}', "line 7: unknown key 'bdy'; did you mean body?"),
        ('{"body": "x"}', "line 7 has no destination"),
        ('{"destination": 5}', "line 7 has no destination"),
        ('{"destination": "d", "headers": [1]}', "headers must be an object of texts"),
        ('{"destination": "d", "headers": {"a": 1}}', "headers must be an object of texts"),
        ('{"destination": "d", "body": {}}', "body must be a text"),
        ('{"destination": "d", "body": "\\ud800"}', "half a character"),
        ('{"destination": "d", "body_base64": "?"}', "body_base64 is no Base64"),
        ('{"destination": "d", "body_base64": 5}', "body_base64 is no Base64"),
        ('{"destination": "d", "body_base64": "\u00e4"}', "body_base64 is no Base64"),
        ('{"destination": "d", "body": "", "body_base64": ""}', "has both body and body_base64"),
    ],
)
def test_an_invalid_line_is_refused(line: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_line(line, "", {}, "line 7")
    assert expected in str(caught.value)


def test_headers_of_the_command_line() -> None:
    assert read_headers(["a:b:c", "d:"]) == {"a": "b:c", "d": ""}
    for wrong, why in (
        (["a"], "is not a header"),
        ([":b"], "is not a header"),
        (["a:1", "a:2"], "twice"),
    ):
        with pytest.raises(OptionError, match=why):
            read_headers(wrong)


def test_headers_of_one_hop_are_not_sent_again() -> None:
    assert own_headers({"ack": "1", "x-stream-epoch": "e", "redelivered": "true", "n": "1"}) == {
        "n": "1"
    }
