"""HTTP requests to the broker: its pages, and operations of its management interface."""

import argparse
import base64
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from attrs import frozen

from trio_stomp.base import noop
from trio_stomp.cli._connect_options import (
    Access,
    Address,
    read_access,
    read_address,
    remedy_of,
    tls_context,
)
from trio_stomp.cli._tool import CannotDo, printable

TIMEOUT_S = 10.0
OPERATION_S = 60.0
"""Time limit of each network operation while the broker works."""
MAX_PAGE_BYTES = 64 * 1024 * 1024
SHOWN_CHARS = 300
NOBODY = Access()
DONE = ("purged", "moved")
"""Fields of results that count what was done before an error."""


class Unreachable(CannotDo):
    """No HTTP answer arrived."""


class Refused(CannotDo):
    """The broker refused an operation.

    Args:
      code: The stable code of the error; "" = it has none.
    """

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


@frozen
class Answer:
    """An HTTP response."""

    status: int
    body: bytes

    def text(self) -> str:
        """Return the first line for people, or the ``error`` of a JSON document."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            return printable(found["error"][:SHOWN_CHARS])
        lines = self.body.decode(errors="replace").strip().splitlines()
        return printable(lines[0][:SHOWN_CHARS]) if lines else f"status {self.status}"


@frozen
class Site:
    """The pages of one broker."""

    address: Address
    tls: ssl.SSLContext | None
    access: Access = NOBODY

    def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Answer:
        """Request a page.

        Args:
          path: The path and query, escaped.
          timeout_s: The time limit of each network operation, in seconds.

        Raises:
          Unreachable: no HTTP answer arrived.
        """
        with self._asking("GET", path, timeout_s) as response:
            body = response.read(MAX_PAGE_BYTES + 1)
        if len(body) > MAX_PAGE_BYTES:
            url = self.address.web_url
            raise Unreachable(f"{url}{path} has over {MAX_PAGE_BYTES} bytes: is it a broker?")
        return Answer(response.status, body)

    def operate(
        self,
        method: str,
        name: str,
        parameters: dict[str, Any],
        tell: Callable[[dict[str, Any]], None] = noop,
    ) -> dict[str, Any]:
        """Have the broker do an operation, and return the result.

        Args:
          method: GET or POST.
          name: The last part of its address.
          parameters: Its parameters. None or "" = not given.
          tell: Called with figures about the progress.

        Raises:
          CannotDo: no answer arrived, or the broker refused: ``Refused``.
        """
        query = urlencode({key: each for key, each in parameters.items() if each})
        accept = {"Accept": "application/x-ndjson"}
        with self._asking(method, f"/api/v1/{name}?{query}", OPERATION_S, accept) as response:
            last = b""
            for line in response:
                if last:
                    tell(json.loads(last))
                last = line
        if response.status == 404 and not last.startswith(b"{"):
            raise CannotDo("the broker has no management interface: it is older")
        answer = Answer(response.status, last)
        try:
            found = json.loads(last)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or response.status != 200 or "error" in found:
            done = [f"{found[key]} {key}, then: " for key in DONE if found and found.get(key)]
            code = str(found.get("code", "")) if isinstance(found, dict) else ""
            raise Refused("".join(done) + answer.text(), code)
        return found

    @contextmanager
    def _asking(
        self, method: str, path: str, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Provide the response to a request, whose body is not read yet.

        Raises:
          Unreachable: no HTTP answer arrived, or its end did not.
        """
        url = self.address.web_url
        connection = self._connect(timeout_s)
        try:
            connection.request(method, path, headers=self._headers() | (headers or {}))
            yield connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(
                f"{url}: its certificate is not trusted: {error.verify_message}; {remedy_of(error)}"
            ) from None
        except (ssl.SSLError, http.client.HTTPException) as error:
            raise Unreachable(
                f"{url} answers, but not like a broker ({type(error).__name__}); check scheme and "
                "port of --url"
            ) from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"cannot reach {url}: {_cause(error)}; {remedy_of(None)}") from None
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.tls)

    def _headers(self) -> dict[str, str]:
        access = self.access
        if access.token:
            return {"Authorization": f"Bearer {access.token}"}
        if access.login:
            pair = base64.b64encode(f"{access.login}:{access.passcode}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def get_json(self, path: str) -> dict[str, Any]:
        """Request a page that is a JSON object.

        Raises:
          CannotDo: no answer arrived, the page is missing or forbidden, or it is not a JSON object.
        """
        answer = self.get(path)
        page = self.address.web_url + path.partition("?")[0]
        if answer.status == 401:
            raise CannotDo(f"{page} requires a login: give --login or --token-file")
        if answer.status == 404:
            raise CannotDo(f"{page} does not exist: the broker is older, or not trio_stomp")
        if answer.status != 200:
            raise CannotDo(f"{page} answers {answer.status}: {answer.text()}")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise CannotDo(f"{page} does not answer in JSON: is that a trio_stomp broker?")
        return found


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "no such host"
    return (getattr(error, "strerror", None) or str(error)).lower()


def open_site(given: argparse.Namespace) -> Site:
    """Return the pages of the broker that the command line names.

    Raises:
      OptionError: an option is wrong.
    """
    address = read_address(given)
    tls = tls_context(given, address)
    return Site(address, tls, read_access(given))


def pid_of(varz: dict[str, Any]) -> object:
    """Return the process id that ``/varz`` names, or None."""
    process = varz.get("process")
    return varz.get("pid", process.get("pid") if isinstance(process, dict) else None)
