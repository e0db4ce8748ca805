"""The address of a stream of the broker, and the errors of those who use it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_PORT = 61613
STREAMS = "/stream/"
DIAG = "/stream/DIAG"
"""The stream of the broker's statistics."""

LOGIN_ENV = "TRIO_STOMP_LOGIN"
PASSCODE_ENV = "TRIO_STOMP_PASSCODE"


class StreamError(Exception):
    """The broker refused, or an option is wrong. A retry would not help."""


class StreamAway(ConnectionError):
    """The broker cannot be reached, fell silent, or closed the connection."""


class StreamAddress(NamedTuple):
    """The address of a stream. It names the files of secrets, and contains none.

    Args:
      url: ``stomp://host:port``, or ``stomps://`` for TLS.
      ca_file: Certificates to trust instead of the system's; "" = the system's.
      credentials_file: A file with the login in its first line and the passcode in its second;
        "" = environment.
      timeout_s: The longest silence of the broker.
      retry_s: How long to retry while the broker is away.
    """

    url: str
    stream: str = DIAG
    ca_file: str = ""
    credentials_file: str = ""
    login_env: str = LOGIN_ENV
    passcode_env: str = PASSCODE_ENV
    timeout_s: float = 30.0
    retry_s: float = 60.0

    def address(self) -> tuple[str, int, bool]:
        """Host, port, and whether to speak TLS.

        Raises:
          StreamError: it is invalid. The error does not quote a URL that may hold a secret.
        """
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if not self.stream.startswith(STREAMS):
            meant = STREAMS + self.stream.removeprefix("/")
            raise StreamError(f"stream={self.stream} should begin with {STREAMS}: {meant}")
        if "@" in self.url:
            raise StreamError(
                "no credentials in the url: name a credentials_file, or set"
                f" {self.login_env} and {self.passcode_env}"
            )
        if parts.scheme not in ("stomp", "stomps") or not host or parts.path not in ("", "/"):
            raise StreamError(f"url:{self.url} should be stomp://host:port or stomps://host:port")
        return host, port or DEFAULT_PORT, parts.scheme == "stomps"

    def credentials(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the headers of CONNECT. The file is read again, as the passcode may have changed.

        Raises:
          StreamError: the file cannot be read.
        """
        if self.credentials_file:
            try:
                lines = Path(self.credentials_file).read_text(encoding="utf-8").splitlines()
            except OSError as error:
                raise StreamError(f"credentials_file: {error}") from None
            values: list[str | None] = [*lines, None, None]
        else:
            values = [environ.get(self.login_env), environ.get(self.passcode_env)]
        pairs = zip(("login", "passcode"), values, strict=False)
        return {name: value.strip() for name, value in pairs if value}
