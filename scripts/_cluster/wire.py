"""The network between a node and a server of NATS: it can stall, be cut, and go on."""

import contextlib
import socket
import threading

READ_BYTES = 256 * 1024


class Wire:
    """A proxy that relays connections to a port, in threads.

    While it stalls, connections stay open and bytes wait, as on a network that loses all packets.
    While it is cut, connections are reset, as by a firewall.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        """The port; another one is used by later connections."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Hold back all bytes until ``go_on``."""
        self._passes.clear()

    def cut(self) -> None:
        """End all connections, and refuse others until ``go_on``. Bytes on their way are lost."""
        self._is_cut = True
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def go_on(self) -> None:
        """Relay the held bytes, and continue to relay."""
        self._is_cut = False
        self._passes.set()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._passes.wait()
            if self._is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            self._open |= {near, far}
            for source, into in ((near, far), (far, near)):
                # Nodes and servers send at once; a relay that waits for an ACK adds 40 ms.
                into.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
            self._open.discard(each)
