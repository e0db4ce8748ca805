"""HTTP requests to the broker: its pages, and operations of its management interface."""

import argparse
import base64
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from attrs import frozen

from trio_stomp.base import OptionError, noop
from trio_stomp.cli._connect_options import (
    Access,
    Address,
    read_access,
    read_address,
    remedy_of,
    tls_context,
)
from trio_stomp.cli._tool import CannotDo, cause_of, printable

API = "/api/v1/"
TIMEOUT_S = 10.0
OPERATION_S = 60.0
"""Time limit of each network operation while the broker works; of connecting, ``TIMEOUT_S``."""
MAX_PAGE_BYTES = 64 * 1024 * 1024
SHOWN_CHARS = 300
NOBODY = Access()
DONE = ("purged", "moved")
"""Fields of results that count what was done before an error."""
REMEDIES = {
    "authentication-failed": "; check --login and the passcode, or --token-file",
    "not-authorized": "; its operator can find out why: trio-stomp acl test",
}
"""The remedy for an error, by its code."""
LISTED = 1_000
"""The most records in one answer."""
LINES = "application/x-ndjson"

Record = dict[str, Any]


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

    def record(self) -> Record | None:
        """Return the JSON object that it is, or None."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def text(self) -> str:
        """Return the first line for people, or the ``error`` of a JSON document."""
        found = self.record()
        if found is not None and isinstance(found.get("error"), str):
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
            body = self._whole(response)
        return Answer(response.status, body)

    def _whole(self, response: http.client.HTTPResponse, *, is_line: bool = False) -> bytes:
        """Read the rest of an answer, or its next line.

        Raises:
          Unreachable: it is longer than any of a broker.
        """
        read = response.readline if is_line else response.read
        found = read(MAX_PAGE_BYTES + 1)
        if len(found) > MAX_PAGE_BYTES:
            url = self.address.web_url
            raise Unreachable(f"{url} answers over {MAX_PAGE_BYTES} bytes: is it a broker?")
        return found

    def operate(
        self,
        method: str,
        name: str,
        parameters: Mapping[str, Any] = MappingProxyType({}),
        *,
        body: bytes | None = None,
        kind: str = "",
        tell: Callable[[Record], None] = noop,
    ) -> Record:
        """Send a request to the management interface, and return the answer.

        Args:
          method: GET or POST.
          name: The last part of its address.
          parameters: Its parameters; a list is repeated. None, False, "" and [] = not given.
          body: The request's body.
          kind: The media type of the body.
          tell: Called with figures about the progress.

        Raises:
          CannotDo: no answer arrived, or the broker refused: ``Refused``.
        """
        given = {
            key: 1 if each is True else each
            for key, each in parameters.items()
            if each is not None and each is not False and each != ""
        }
        path = f"{API}{name}?{urlencode(given, doseq=True)}"
        headers = {"Accept": LINES, **({"Content-Type": kind} if kind else {})}
        with self._asking(method, path, OPERATION_S, headers, body) as response:
            # Other answers are one document of several lines.
            is_line = response.headers.get_content_type() == LINES
            last = self._whole(response, is_line=is_line)
            while is_line and (line := self._whole(response, is_line=True)):
                tell(Answer(response.status, last).record() or {})
                last = line
        if response.status == 404 and not last.startswith(b"{"):
            raise CannotDo("the broker has no management interface: it is older")
        answer = Answer(response.status, last)
        found = answer.record()
        if found is None or response.status != 200 or "error" in found:
            found = found or {}
            done = [f"{found[key]} {key}, then: " for key in DONE if found.get(key)]
            code = str(found.get("code", ""))
            raise Refused(f"{''.join(done)}{answer.text()}{REMEDIES.get(code, '')}", code)
        return found

    def records(
        self, name: str, parameters: Mapping[str, Any], most: int | None = None
    ) -> list[Record]:
        """Return the records of a list, of which an answer has a thousand at most.

        Args:
          name: The name of the list.
          parameters: Further parameters of the request.
          most: The most records; None = all.

        Raises:
          CannotDo: as ``operate``.
        """
        title = name.replace("-", "_")
        return [each for page in self.pages(name, parameters, most) for each in page[title]]

    def pages(
        self, name: str, parameters: Mapping[str, Any], most: int | None = None, offset: int = 0
    ) -> Iterator[Record]:
        """Yield the answers that make up a list, each with a thousand records at most.

        Args:
          name: The name of the list.
          parameters: Further parameters of the request.
          most: The most records; None = all.
          offset: The number of records to skip.

        Raises:
          CannotDo: as ``operate``.
        """
        end, title = None if most is None else offset + most, name.replace("-", "_")
        while end is None or offset < end:
            limit = LISTED if end is None else min(LISTED, end - offset)
            page = self.operate("GET", name, {**parameters, "offset": offset, "limit": limit})
            yield page
            offset += len(page[title])
            if len(page[title]) < limit and not page.get("more"):
                return

    @contextmanager
    def _asking(
        self,
        method: str,
        path: str,
        timeout_s: float,
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Provide the response to a request, whose body is not read yet.

        Raises:
          Unreachable: no HTTP answer arrived, or its end did not.
        """
        url = self.address.web_url
        connection = self._connect(min(timeout_s, TIMEOUT_S))
        try:
            connection.connect()
            # From here on the broker works, which may take longer.
            connection.sock.settimeout(timeout_s)
            connection.request(method, path, body, headers={**self._headers(), **headers})
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
            raise Unreachable(f"cannot reach {url}: {cause_of(error)}; {remedy_of(None)}") from None
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


@contextmanager
def understanding(given: argparse.Namespace) -> Iterator[None]:
    """Report what an answer holds, and an answer of a broker does not, in one line.

    Raises:
      Unreachable: fields are missing, or are of other types.
    """
    try:
        yield
    except OptionError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        url, cause = read_address(given).web_url, f"{type(error).__name__}: {error}"[:SHOWN_CHARS]
        raise Unreachable(f"{url} answers, but not like a broker ({cause})") from None


def open_site(given: argparse.Namespace) -> Site:
    """Return the pages of the broker that the command line names.

    Raises:
      OptionError: an option is wrong.
    """
    address = read_address(given)
    tls = tls_context(given, address)
    return Site(address, tls, read_access(given))
