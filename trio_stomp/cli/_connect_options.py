"""Options for connecting to a broker: ``--url``, ``--login``, tokens, certificates.

Passcodes and tokens are never given on the command line, which all users of the machine can see.
"""

import argparse
import getpass
import os
import sys
import warnings
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from attrs import field, frozen

from trio_stomp.base import READ, WRITE, OptionError, exposed
from trio_stomp.cli._command import Argument
from trio_stomp.cli._tool import near, say

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_URL = "stomp://127.0.0.1:61613"
URL_VARIABLE = "TRIO_STOMP_URL"
LOGIN_VARIABLE = "TRIO_STOMP_LOGIN"
CA_FILE_VARIABLE = "TRIO_STOMP_CA_FILE"
PASSCODE_VARIABLE = "TRIO_STOMP_PASSCODE"
MAX_SECRET_BYTES = 64 * 1024

PORTS = {
    "stomp": 61613,
    "tcp": 61613,
    "ws": 80,
    "http": 80,
    "stomps": 61614,
    "stomp+ssl": 61614,
    "ssl": 61614,
    "wss": 443,
    "https": 443,
}
"""The default port of each URL scheme, as in the client."""
CERTIFICATE_REMEDIES = {
    9: "check the clocks of both machines",
    10: "the broker needs a new one",
    62: "name the broker in --url as its certificate does",
    64: "name the broker in --url as its certificate does",
}
"""Remedies by OpenSSL's number (X509_V_ERR): not yet valid, expired, wrong host or address."""
OVER_TLS = frozenset({"stomps", "stomp+ssl", "ssl", "wss", "https"})


@frozen
class Address:
    """The address of a broker.

    Args:
      path: The path of a WebSocket; "" = no WebSocket.
    """

    host: str
    port: int
    is_tls: bool
    is_websocket: bool = False
    path: str = ""

    @property
    def netloc(self) -> str:
        """The host and port as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def stomp_url(self) -> str:
        """The URL for a STOMP client."""
        if self.is_websocket:
            return f"{'wss' if self.is_tls else 'ws'}://{self.netloc}{self.path}"
        return f"{'stomps' if self.is_tls else 'stomp'}://{self.netloc}"

    @property
    def web_url(self) -> str:
        """The URL of the broker's pages."""
        return f"{'https' if self.is_tls else 'http'}://{self.netloc}"


@frozen
class Access:
    """The name and credentials with which a tool logs in.

    Args:
      login: The user name; "" = anonymous.
      token: A bearer token, sent instead of login and passcode; "" = none.
    """

    login: str = ""
    passcode: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


THE_BROKER, LOGIN = "the broker", "login"
CA_FILE_HELP = (
    f"PEM file of trusted certificate authorities (default: {CA_FILE_VARIABLE}, or the system's)"
)
ACCESS = (
    Argument(
        "--url URL",
        "URL of the broker: stomp, stomps, ws, wss, http or https "
        f"(default: {URL_VARIABLE}, or {DEFAULT_URL})",
        section=THE_BROKER,
    ),
    Argument("--ca-file FILE", CA_FILE_HELP, default="", section=THE_BROKER),
    Argument(
        "--insecure-tls",
        "accept any certificate: an impostor could read and change everything",
        section=THE_BROKER,
    ),
    Argument(
        "--login USER",
        f"user name (default: {LOGIN_VARIABLE}, or none); the passcode is taken from "
        f"--passcode-file, {PASSCODE_VARIABLE}, or asked for",
        default="",
        section=LOGIN,
    ),
    Argument("--passcode-file FILE", "file with the passcode", default="", section=LOGIN),
    Argument(
        "--token-file FILE", "a bearer token (JWT), instead of --login", default="", section=LOGIN
    ),
)
"""How a tool reaches a broker, and logs in."""
SOURCE = (
    Argument("--url URL", f"stomp or stomps URL (default: {URL_VARIABLE}, or {DEFAULT_URL})"),
    Argument("--ca-file CA_FILE", CA_FILE_HELP, default=""),
    Argument(
        "--credentials-file CREDENTIALS_FILE",
        "file with a line each for login and passcode "
        f"(default: {LOGIN_VARIABLE} and {PASSCODE_VARIABLE})",
        default="",
    ),
)
"""The same of a tool that reads a stream again and again, without a prompt."""


def complete_source(given: argparse.Namespace) -> None:
    """Set the options of ``SOURCE`` that the command line leaves to variables."""
    given.url = given.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    # Used only with TLS: the variable may be set for all brokers of a machine.
    given.ca_file = given.ca_file or os.environ.get(CA_FILE_VARIABLE, "")


def read_address(given: argparse.Namespace) -> Address:
    """Return the address of the broker.

    Raises:
      OptionError: the URL is not one of a broker.
    """
    if given.url is not None:
        return parse_url(given.url, "--url")
    return parse_url(os.environ.get(URL_VARIABLE) or DEFAULT_URL, URL_VARIABLE)


def parse_url(url: str, where: str = "--url") -> Address:
    """Read a URL.

    Args:
      url: The URL.
      where: The option or variable that gave it, for the error.

    Raises:
      OptionError: the URL is not one of a broker.
    """
    # Accept a host and a port without a scheme.
    text = url if "://" in url else f"stomp://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise OptionError(f"{where} is no URL: {str(error).lower()}; {_like()}") from None
    if parts.username is not None or parts.password is not None:
        # The error omits the URL, which may hold a passcode.
        raise OptionError(
            f"{where} holds a login: leave it out of the URL, and use --login and "
            f"{PASSCODE_VARIABLE}"
        )
    if parts.scheme not in PORTS:
        raise OptionError(
            f"{where} has the scheme {parts.scheme!r}{near(parts.scheme, PORTS)}"
            f" (known: {', '.join(PORTS)})"
        )
    if not parts.hostname or parts.fragment or any(char.isspace() for char in text):
        raise OptionError(f"{where} is {url[:200]!r}; {_like()}")
    is_tls, is_websocket = parts.scheme in OVER_TLS, parts.scheme in ("ws", "wss")
    if port is None:
        port = PORTS[parts.scheme]
    path = ""
    if is_websocket:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    elif parts.path not in ("", "/") or parts.query:
        raise OptionError(f"{where} is {url[:200]!r}, but only ws and wss have a path; {_like()}")
    return Address(parts.hostname, port, is_tls, is_websocket, path)


def _like() -> str:
    return f"it must be like {DEFAULT_URL}"


def read_access(given: argparse.Namespace) -> Access:
    """Return the login and its credentials. Prompt for the passcode at a terminal.

    Raises:
      OptionError: a file cannot be read, or no passcode is available.
    """
    if given.token_file:
        if given.login:
            raise OptionError("--login and --token-file exclude each other; give one of them")
        token = read_secret(given.token_file, "--token-file").strip()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise OptionError(f"--token-file {given.token_file}: its first line is not a token")
        return Access(token=token)
    login = given.login or os.environ.get(LOGIN_VARIABLE, "")
    if not login:
        if given.passcode_file:
            raise OptionError("--passcode-file needs the user name: give --login as well")
        return Access()
    if given.passcode_file:
        return Access(login, read_secret(given.passcode_file, "--passcode-file"))
    passcode = os.environ.get(PASSCODE_VARIABLE)
    return Access(login, ask_passcode(login) if passcode is None else passcode)


def remedy_of(error: BaseException | None) -> str:
    """Return a remedy for a failed connection."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATE_REMEDIES.get(
            error.verify_code, "name its certificate authority with --ca-file"
        )
    if error is not None:
        return "check scheme and port of --url"
    return "is the broker running there? check --url"


def read_secret(path: str, flag: str) -> str:
    """Return the first line of a file.

    Raises:
      OptionError: it cannot be read, or is not text; the error never quotes it.
    """
    try:
        with open(path, "rb") as file:
            line: bytes = file.readline(MAX_SECRET_BYTES + 3)
    except OSError as error:
        raise OptionError(f"{flag} {path} cannot be read: {error.strerror}") from None
    warn_if_exposed(path)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise OptionError(f"{flag} {path}: its first line is empty; write the secret there")
    if len(line) > MAX_SECRET_BYTES:
        raise OptionError(f"{flag} {path}: its first line has over {MAX_SECRET_BYTES} bytes")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise OptionError(f"{flag} {path}: its first line is not UTF-8; convert it") from None


def warn_if_exposed(path: str) -> None:
    """Tell on standard error that others may read or change a file with a secret."""
    if warning := exposed(path, READ | WRITE):
        say(f"warning: {warning}", to=sys.stderr)


def ask_passcode(user: str) -> str:
    """Prompt the operator for a passcode without echo, and return it.

    Raises:
      OptionError: there is no terminal, or nothing was typed.
    """
    others = f"set {PASSCODE_VARIABLE} or use --passcode-file"
    if not sys.stdin.isatty():
        raise OptionError(f"the passcode of {user!r} is needed, and there is no terminal: {others}")
    return typed(f"Passcode of {user}: ", f": {others}", f": {others}")


def typed(prompt: str, unhidden: str, nothing: str) -> str:
    """Return what the operator types, without echo.

    Args:
      prompt: The prompt.
      unhidden: The remedy for a terminal that cannot hide the input.
      nothing: The remedy if nothing is typed.

    Raises:
      OptionError: the input cannot be hidden or read, or nothing was typed.
    """
    try:
        with warnings.catch_warnings():
            # getpass would go on, and echo the passcode.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(prompt)
    except getpass.GetPassWarning:
        raise OptionError(f"the terminal cannot hide the input{unhidden}") from None
    except UnicodeDecodeError:
        raise OptionError("the passcode is not in the terminal's character set") from None
    except EOFError:
        raise OptionError(f"no passcode was entered{nothing}") from None


def tls_context(given: argparse.Namespace, address: Address) -> "SSLContext | None":
    """Return the TLS context that checks the broker's certificate, or None without TLS.

    Raises:
      OptionError: the file cannot be used, or the URL is not a TLS one.
    """
    if given.ca_file and given.insecure_tls:
        raise OptionError("--ca-file and --insecure-tls exclude each other; give one of them")
    if not address.is_tls:
        if given.ca_file or given.insecure_tls:
            raise OptionError("--ca-file and --insecure-tls are for stomps, wss and https")
        return None
    import ssl

    source, ca_file = "--ca-file", given.ca_file
    if not ca_file and not given.insecure_tls:
        # Only with TLS: the variable may be set for all brokers of a machine.
        source, ca_file = CA_FILE_VARIABLE, os.environ.get(CA_FILE_VARIABLE, "")
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        cause = error.strerror if type(error) is not ssl.SSLError else "it contains no certificate"
        raise OptionError(f"{source} {ca_file} cannot be used: {cause}") from None
    if given.insecure_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
