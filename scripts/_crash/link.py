"""A minimal STOMP 1.2 client on a blocking socket."""

import select
import socket
from collections.abc import Iterator
from typing import NamedTuple

READ_BYTES = 256 * 1024


class Gone(Exception):
    """The broker has closed the connection."""


class Reply(NamedTuple):
    """A frame from the broker. Its body contains no NUL."""

    command: str
    headers: dict[str, str]
    body: str


def reply_of(frame: bytes) -> Reply:
    """Read a frame without its NUL, and with the heart-beats before it."""
    head, _, body = frame.decode().lstrip("\n").partition("\n\n")
    command, *lines = head.split("\n")
    pairs = (line.partition(":") for line in lines)
    return Reply(command, {name: value for name, _, value in pairs}, body)


class Link:
    """One connection, with its session open."""

    def __init__(self, port: int, client_id: str = "", timeout_s: float = 0.2) -> None:
        self._data = b""
        self._is_open = True
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError as error:
            raise Gone from error
        try:
            more = f"client-id:{client_id}\n" if client_id else ""
            self.send(f"CONNECT\naccept-version:1.2\nhost:crash\n{more}\n\0")
            while not (replies := self.receive()):
                if not self._is_open:
                    raise Gone
            if replies[0].command != "CONNECTED":
                raise Gone
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(timeout_s)

    def send(self, text: str) -> None:
        """Send frames."""
        data = text.encode()
        try:
            while data:
                try:
                    data = data[self._socket.send(data) :]
                except TimeoutError:
                    continue
        except OSError as error:
            raise Gone from error

    def receive(self) -> list[Reply]:
        """Return the received frames, after waiting a moment for the first.

        Raises:
          Gone: there are no more.
        """
        if not self._is_open:
            raise Gone
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            self._is_open = False
            raise Gone from error
        if not data:
            self._is_open = False
            raise Gone
        return list(self._split(data))

    def has_more(self) -> bool:
        """Return whether ``receive`` would return without waiting."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def _split(self, data: bytes) -> Iterator[Reply]:
        *frames, self._data = (self._data + data).split(b"\0")
        return map(reply_of, frames)

    def close(self) -> None:
        """Close without DISCONNECT."""
        self._is_open = False
        self._socket.close()
