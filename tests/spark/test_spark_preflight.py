"""The checks before Spark starts: an absent broker, one that comes, and what is none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support import spark as _spark
from tests.support.stream_server import StreamServer

_spark.require()

from trio_stomp.spark import StreamAddress, StreamAway, StreamError  # noqa: E402
from trio_stomp.spark._preflight import await_stream  # noqa: E402


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        yield server


class Time:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.on_sleep = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def checked(address: StreamAddress, time: Time) -> tuple[object, list[str]]:
    said: list[str] = []
    return await_stream(address, said.append, time.clock, time.sleep), said


def test_a_broker_that_is_there_is_asked_once(server: StreamServer) -> None:
    assert checked(StreamAddress(server.url), Time()) == ((server.log.epoch, 0, 0), [])
    assert [command for command, _ in server.received].count("SEND") == 1


def test_a_broker_that_comes_is_waited_for_and_every_five_seconds_it_is_said(
    server: StreamServer,
) -> None:
    server.kill()
    time = Time()

    def start() -> None:
        if time.now == 112:
            server.restart()

    time.on_sleep = start
    bounds, said = checked(StreamAddress(server.url), time)
    assert bounds == (server.log.epoch, 0, 0)
    assert said == [f"waiting for {server.url}: Connection refused"] * 3


def test_a_broker_that_stays_away_is_reported_with_its_address_and_a_remedy(
    server: StreamServer,
) -> None:
    server.kill()
    with pytest.raises(StreamAway) as caught:
        checked(StreamAddress(server.url, retry_s=6), Time())
    assert str(caught.value) == (
        f"{server.url} did not answer for 6 s (Connection refused): is a broker running on port"
        f" {server.port} of 127.0.0.1? check --url, or wait longer with --retry-s"
    )


def test_what_answers_but_is_no_broker_is_not_waited_for() -> None:
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
            checked(StreamAddress(url), Time())
        thread.join()


@pytest.mark.parametrize(
    ("url", "stream", "message"),
    [
        ("localhost:61613", "/stream/DIAG", "should be stomp://host:port"),
        ("", "/topic/prices", "should begin with /stream/: /stream/topic/prices"),
        ("", "/stream/nope", "no stream /stream/nope"),
    ],
)
def test_what_a_retry_would_not_help_is_reported_at_once(
    server: StreamServer, url: str, stream: str, message: str
) -> None:
    with pytest.raises(StreamError, match=message):
        checked(StreamAddress(url or server.url, stream=stream), Time())
