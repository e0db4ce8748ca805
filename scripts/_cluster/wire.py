"""The network between a node and a server of NATS: it can stall, and go on."""

import contextlib
import socket
import threading

READ_BYTES = 256 * 1024


class Wire:
    """Passes the bytes of connections to a port on, both ways, in threads.

    While it stalls, connections stay open and bytes wait, as on a network that loses all packets.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Let nothing pass until ``go_on``."""
        self._passes.clear()

    def go_on(self) -> None:
        """Pass on what waits, and all that follows."""
        self._passes.set()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._passes.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            for source, into in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, into), daemon=True).start()

    def _copy(self, source: socket.socket, into: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                self._passes.wait()
                into.sendall(data)
        for each in (source, into):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
