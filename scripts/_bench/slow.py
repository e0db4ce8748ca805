"""Slow consumers that the broker disconnects repeatedly during another load."""

import multiprocessing
import socket
import time
from typing import TYPE_CHECKING

from _bench.process import BenchError
from _bench.wire import Connection, Sends

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

TOPIC = "/topic/slow"
EVENTS = "DIAG/event/disconnect"
ENDED = b'"reason":"slow-consumer"'
CONSUMERS = 10
BODY_BYTES = 4096
AT_ONCE = 16
PAUSE_S = 0.005
"""Interval between writes of AT_ONCE messages: 13 MB/s, so the outbox is full in three seconds."""
WINDOW_BYTES = 4096
ANSWER_S = 60.0


class SlowConsumers:
    """CONSUMERS that never read, a publisher for them, and a client that watches them being
    disconnected. They have their own process. When all have been disconnected, new ones connect.

    Raises:
      BenchError: the broker refused one.
    """

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, port))
        self._process.start()
        theirs.close()
        try:
            self.ended()
        except BenchError:
            self.close()
            raise

    def ended(self) -> int:
        """Return how many consumers the broker has ended so far.

        Raises:
          BenchError: the other process failed.
        """
        try:
            self._pipe.send(True)
            answer = self._pipe.recv() if self._pipe.poll(ANSWER_S) else "they say nothing"
        except (EOFError, OSError):
            answer = "their process has ended"
        if isinstance(answer, int):
            return answer
        raise BenchError(f"the slow consumers: {answer}")

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10)
        self._process.kill()


def _serve(pipe: "Pipe", port: int) -> None:
    """Run the other process, until the pipe is closed."""
    ended = 0
    try:
        publisher = Connection.open(port, websocket=False)
        watcher = Connection.open(port, websocket=False)
        watcher.subscribe(EVENTS)
        watcher.socket.setblocking(False)
        batch = Sends(TOPIC, BODY_BYTES, websocket=False).of(range(AT_ONCE))
        while True:
            consumers = [_consumer(port) for _ in range(CONSUMERS)]
            left = CONSUMERS
            while left > 0:
                while pipe.poll():
                    pipe.recv()
                    pipe.send(ended)
                publisher.socket.sendall(batch)
                time.sleep(PAUSE_S)
                gone = _gone(watcher)
                left -= gone
                ended += gone
            for consumer in consumers:
                consumer.close()
    except EOFError:
        return
    except (BenchError, OSError) as error:
        pipe.send(str(error))


def _consumer(port: int) -> Connection:
    consumer = Connection.open(port, websocket=False)
    assert isinstance(consumer.socket, socket.socket)
    consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
    # No receipt: it would arrive after messages that were parked without a subscriber.
    consumer.socket.sendall(f"SUBSCRIBE\nid:1\ndestination:{TOPIC}\n\n\0".encode())
    return consumer


def _gone(watcher: Connection) -> int:
    """Return the number disconnected since the last call. An event is written in one piece."""
    gone = 0
    try:
        while data := watcher.socket.recv(1 << 16):
            gone += data.count(ENDED)
    except BlockingIOError:
        return gone
    raise BenchError("the broker closed the connection that watches")
