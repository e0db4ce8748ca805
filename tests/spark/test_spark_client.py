"""The client of streams for Spark: frames, bounds, ranges, absent and silent brokers, TLS."""

import pickle
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import spark as _spark
from tests.support.stream_server import StreamServer, event

_spark.require()

from trio_stomp.spark import StreamAddress, StreamAway, StreamClient, StreamError  # noqa: E402
from trio_stomp.spark._client import (  # noqa: E402
    Connection,
    Following,
    Patience,
    Replay,
)
from trio_stomp.spark._frames import (  # noqa: E402
    FrameError,
    FrameSplitter,
    header,
    split,
    unescaped,
)

MESSAGE = b"MESSAGE\ndestination:a\\cb\ncontent-length:3\n\nx\0y\0"
BARE = b"MESSAGE\ndestination:c\n\n\0"
TWO = [
    (b"MESSAGE\ndestination:a\\cb\ncontent-length:3\n", b"x\0y"),
    (b"MESSAGE\ndestination:c\n", b""),
]


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        yield server


def address(server: StreamServer, **more: Any) -> StreamAddress:
    more = {"timeout_s": 5.0, "retry_s": 5.0} | more
    return StreamAddress(server.url, **more)


def offsets(replay: Replay) -> list[int]:
    return [offset for messages in replay for offset, _, _, _ in messages]


def test_frames_are_cut_wherever_reads_end() -> None:
    data = b"\n" + MESSAGE + b"\n\r\n" + BARE
    assert split(data)[0] == TWO
    for at in range(len(data)):
        splitter = FrameSplitter()
        assert [*splitter.feed(data[:at]), *splitter.feed(data[at:])] == TWO
    splitter = FrameSplitter()
    assert [frame for byte in data for frame in splitter.feed(bytes([byte]))] == TWO


def test_a_large_body_is_joined_once() -> None:
    body = b"x" * 1_000_000
    data = b"MESSAGE\ncontent-length:%d\n\n%b\0" % (len(body), body)
    splitter = FrameSplitter()
    found = [splitter.feed(data[at : at + 1000]) for at in range(0, len(data), 1000)]
    assert found[-1] == [(b"MESSAGE\ncontent-length:1000000\n", body)]
    assert not any(found[:-1])


@pytest.mark.parametrize(
    "data",
    [
        b"MESSAGE\ncontent-length:-1\n\n\0",
        b"MESSAGE\ncontent-length:99999999999\n\n\0",
        b"MESSAGE\ncontent-length:1\n\nxy\0",
        b"HTTP/1.1 200 OK\n" + b"x" * 2_000_000,
    ],
)
def test_data_that_is_not_stomp_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        split(data)


def test_headers_are_found_and_unescaped() -> None:
    head = b"MESSAGE\na:1\nab:2\na:3\n"
    assert (header(head, b"a"), header(head, b"ab"), header(head, b"b")) == (b"1", b"2", None)
    assert unescaped(rb"a\cb\\n\n\r\x") == "a:b\\n\n\r\\x"


def test_bounds_and_a_range(server: StreamServer) -> None:
    client = StreamClient(address(server))
    assert client.bounds() == (server.log.epoch, 0, 0)
    for number in range(2000):
        server.append("DIAG/event/x", event("x", number=number))
    server.trim(10)
    bounds = client.bounds()
    assert bounds == (server.log.epoch, 10, 2000)
    replay = client.read(bounds.epoch, 5, 1500)
    assert offsets(replay) == list(range(10, 1500))
    assert replay.end == bounds


def test_a_range_of_another_epoch_ends_at_once(server: StreamServer) -> None:
    server.append("DIAG/event/x", b"{}")
    replay = StreamClient(address(server)).read("other", 0, 1)
    assert offsets(replay) == []
    assert replay.end == (server.log.epoch, 0, 1)


def test_the_offset_of_a_time(server: StreamServer) -> None:
    for _ in range(3):
        server.append("DIAG/event/x", b"{}")
    client = StreamClient(address(server))
    assert client.offset_at(server.log.times[1]) == 1
    assert client.offset_at(server.log.times[2] + 1) == 3
    asked = [headers for command, headers in server.received if command == "SUBSCRIBE"]
    assert asked[-1]["prefetch-count"] == "1"


def test_a_broken_connection_is_replaced_without_duplicates(
    server: StreamServer,
) -> None:
    for _ in range(1000):
        server.append("DIAG/event/x", b"{}")
    server.cut_after = 700
    replay = StreamClient(address(server)).read(server.log.epoch, 0, 1000)
    assert offsets(replay) == list(range(1000))
    asked = [
        reported["x-stream-offset"]
        for command, reported in server.received
        if command == "SUBSCRIBE"
    ]
    assert asked[0] == "offset=0"
    assert len(asked) == 2
    assert 500 <= int(asked[1].removeprefix("offset=")) <= 700


def test_a_broker_that_comes_back_is_found_again(server: StreamServer) -> None:
    client = StreamClient(address(server))
    server.kill()
    back = threading.Timer(0.3, server.restart)
    back.start()
    assert client.bounds().next == 0
    back.join()


def test_a_broker_that_stays_away_is_given_up(server: StreamServer) -> None:
    server.kill()
    with pytest.raises(StreamAway, match=r"did not answer for \d s \(Connection refused\)"):
        StreamClient(address(server, retry_s=0.3)).bounds()


def test_another_server_at_the_port_is_reported_at_once() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted, suppress(OSError):
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StreamError, match=f"what answers at {url} is no STOMP broker"):
            StreamClient(StreamAddress(url)).bounds()
        thread.join()


def test_a_broker_that_sends_only_heart_beats_is_silent(server: StreamServer) -> None:
    asked = address(server, timeout_s=0.5, retry_s=0.2)
    with pytest.raises(StreamAway, match="no frame for"):
        offsets(StreamClient(asked).read(server.log.epoch, 0, 1))


def test_refused_request_is_not_repeated(server: StreamServer) -> None:
    with pytest.raises(StreamError, match="no stream /stream/other"):
        StreamClient(address(server, stream="/stream/other")).bounds()
    assert [command for command, _ in server.received].count("SEND") == 1


def test_credentials_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("anna\ns3cret\n")
    with StreamServer(passcode="s3cret") as server:
        asked = address(server, credentials_file=str(secret))
        assert StreamClient(asked).bounds().next == 0
        assert server.received[0][1]["login"] == "anna"
        assert "s3cret" not in repr(asked)
        with pytest.raises(StreamError, match="wrong passcode"):
            StreamClient(address(server)).bounds()
        monkeypatch.setenv("OWN_PASSCODE", "s3cret")
        assert StreamClient(address(server, passcode_env="OWN_PASSCODE")).bounds().next == 0
        with pytest.raises(StreamError, match="credentials_file"):
            StreamClient(address(server, credentials_file=str(tmp_path / "none"))).bounds()
    with pytest.raises(StreamError, match="credentials_file"):
        StreamClient(address(server, credentials_file=str(tmp_path / "none"))).bounds()


@pytest.mark.parametrize(
    "url", ["http://h", "stomp://", "h:1", "stomp://h:x", "stomp://h/path", "stomp://[::1"]
)
def test_wrong_url_is_reported(url: str) -> None:
    with pytest.raises(StreamError, match="should be stomp://host:port"):
        StreamAddress(url).address()


def test_a_secret_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(StreamError) as caught:
        StreamAddress("stomp://anna:s3cret@host").address()
    assert "s3cret" not in str(caught.value)


def test_tls_with_its_own_authority(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", *files],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with StreamServer(tls=context) as server:
        for _ in range(100):
            server.append("DIAG/event/x", event("x"))
        client = StreamClient(address(server, ca_file=str(certificate)))
        assert offsets(client.read(client.bounds().epoch, 0, 100)) == list(range(100))
        with pytest.raises(StreamError, match="TLS"):
            StreamClient(address(server)).bounds()
        with pytest.raises(StreamError, match=r"ca_file .*none: No such file"):
            StreamClient(address(server, ca_file=str(tmp_path / "none"))).bounds()


def test_pauses_between_attempts_grow_vary_and_end() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    told: list[str] = []
    there = StreamAddress("stomp://there", retry_s=60)
    patience = Patience(there, lambda: now[0], sleep, told.append)

    def wait_for_ever() -> None:
        while True:
            patience.wait(OSError("away"))

    with pytest.raises(StreamAway, match=r"stomp://there did not answer for (5\d|60) s \(away\)"):
        wait_for_ever()
    assert set(told) == {"waiting for stomp://there: away"}
    assert 9 <= len(told) <= 12, "every five seconds"
    assert 55 <= now[0] <= 60
    assert slept[0] <= 0.1
    assert max(slept) <= 5
    assert len(set(slept)) == len(slept)
    patience.restore()
    patience.wait(OSError("away again"))
    assert slept[-1] <= 0.1


def test_a_broker_that_does_not_tell_the_time_of_storing_is_too_old(server: StreamServer) -> None:
    server.log.is_old = True
    server.append("/topic/a", b"", {"x-stream-timestamp": "5"})
    with pytest.raises(StreamError, match="the broker is too old"):
        list(StreamClient(address(server)).read(server.log.epoch, 0, 1))


def test_a_connection_ends_with_disconnect(server: StreamServer) -> None:
    with Connection(address(server)):
        pass
    for _ in range(100):
        if server.received[-1][0] == "DISCONNECT":
            return
        threading.Event().wait(0.02)
    pytest.fail("no DISCONNECT")


def test_the_bounds_are_followed_over_one_connection(server: StreamServer) -> None:
    pauses: list[float] = []
    following = Following(StreamClient(address(server)), pauses.append)
    server.append("DIAG/event/x", event("x", number=1))
    found = [following.bounds().next for _ in range(3)]
    server.append("DIAG/event/x", event("x", number=2))
    found += [following.bounds().next for _ in range(2)]
    assert found == [1, 1, 1, 2, 2]
    # It waits only if the stream has not grown, as an idle query asks without end.
    assert [pause > 0.1 for pause in pauses] == [False, False, True, True, False]
    copy = pickle.loads(pickle.dumps(following))
    assert [command for command, _ in server.received].count("CONNECT") == 1
    assert copy.bounds().next == 2
    following.close()
    following.close()
    assert following.bounds().next == 2
    for each in (following, copy):
        each.close()
    assert [command for command, _ in server.received].count("CONNECT") == 3


def test_bounds_after_a_lost_connection() -> None:
    with StreamServer() as server:
        port = server.port
        server.append("DIAG/event/x", event("x", number=1))
        following = Following(StreamClient(address(server)))
        assert following.bounds().next == 1
    with StreamServer(port) as server:
        server.append("DIAG/event/x", event("x", number=1))
        server.append("DIAG/event/x", event("x", number=2))
        assert following.bounds().next == 2
        following.close()
