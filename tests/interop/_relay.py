"""A link between a client and the broker that can be cut."""

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

READ_BYTES = 1 << 16


class Relay:
    """A proxy that relays bytes in both directions. A connection to ``cut_port`` ends all links,
    and gets an answer.

    Args:
      restart: Instead of cutting the links: stops the broker, which ends them, and starts another;
        its port.
    """

    def __init__(self, to_port: int, restart: Callable[[], int] | None = None) -> None:
        self.to_port = to_port
        self._restart = restart
        self._stop, self._stopped = socket.socketpair()
        self._front = socket.create_server(("127.0.0.1", 0))
        self._cutter = socket.create_server(("127.0.0.1", 0))
        self._links: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self.cuts = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port for clients."""
        port: int = self._front.getsockname()[1]
        return port

    @property
    def cut_port(self) -> int:
        """The port on which a connection asks for a cut."""
        port: int = self._cutter.getsockname()[1]
        return port

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in (self._stopped, self._front, self._cutter):
                selector.register(each, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._stopped in ready:
                    return
                if self._front in ready:
                    self._join(self._front.accept()[0])
                if self._cutter in ready:
                    with self._cutter.accept()[0]:
                        self.cuts += 1
                        if self._restart is None:
                            self._cut()
                        else:
                            self.to_port = self._restart()

    def _join(self, client: socket.socket) -> None:
        broker = socket.create_connection(("127.0.0.1", self.to_port))
        self._links.append((client, broker))
        link = threading.Thread(target=_link, args=(client, broker), daemon=True)
        self._threads.append(link)
        link.start()

    def _cut(self) -> None:
        while self._links:
            for each in self._links.pop():
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut all links, and stop accepting."""
        self._stop.close()
        self._thread.join()
        self._cut()
        for thread in self._threads:
            thread.join()
        for each in (self._stopped, self._front, self._cutter):
            each.close()


def _link(client: socket.socket, broker: socket.socket) -> None:
    with client, broker:
        back = threading.Thread(target=_pass_on, args=(broker, client), daemon=True)
        back.start()
        _pass_on(client, broker)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(READ_BYTES):
            target.sendall(data)
    # The data before the end has been relayed; now relay the end.
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def running_relay(to_port: int, restart: Callable[[], int] | None = None) -> Iterator[Relay]:
    """Run one."""
    relay = Relay(to_port, restart)
    try:
        yield relay
    finally:
        relay.close()
