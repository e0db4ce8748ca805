"""The credentials that clients send, in CONNECT or in the HTTP request of a WebSocket.

Credentials that are invalid or given twice are refused, never ignored: otherwise a client could
be accepted as anonymous, or as another user than a proxy in between assumed.

Spec: RFC 7617 (Basic), RFC 6750 (Bearer), RFC 6265 (cookies); X15.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote_plus

from attrs import evolve, frozen

from trio_stomp.base import CloseReason, ProtocolError

AUTHORIZATION = "authorization"
ACCESS_TOKEN = "access_token"
HIDDEN = "***"

_MOST_LOGGED = 256

_JWT = re.compile(r"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 section 2.1, b64token
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_USERINFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?(//)[^/?#]*@")
_BETWEEN = re.compile(r"([?&;#])")

_Header = tuple[bytes, bytes]


@frozen(repr=False)
class Credentials:
    """The unverified credentials of a client.

    Args:
      login: The user's name; "" = none. With a token, the name in the token counts.
      passcode: None = none.
      token: A bearer token, instead of a passcode; "" = none.
    """

    login: str = ""
    passcode: str | None = None
    token: str = ""

    def __repr__(self) -> str:
        fields = [f"login={self.login[:60]!r}"]
        fields += [f"passcode={HIDDEN}"] if self.passcode is not None else []
        fields += [f"token={HIDDEN}"] if self.token else []
        return f"Credentials({', '.join(fields)})"


def from_stomp(headers: Sequence[tuple[str, str]], *, tokens: bool = False) -> Credentials | None:
    """Return the credentials in the headers of CONNECT, or None if there are none.

    ``login`` and ``passcode`` together take precedence; then ``Authorization``, in any case; then
    either of the two. Some clients send both empty to be anonymous.

    Args:
      headers: The headers of CONNECT.
      tokens: Whether the broker accepts tokens. If so, a passcode that looks like a token is
        one, as sent by clients of RabbitMQ's OAuth plugin.

    Raises:
      ProtocolError: ``Authorization`` is given twice, or is invalid.
    """
    first = dict(reversed(headers))  # STOMP: the first of repeated headers counts
    login, passcode = first.get("login", ""), first.get("passcode")
    given = [text for name, text in headers if name.lower() == AUTHORIZATION]
    _refuse_repeated(given)
    if given and not (login and passcode):
        written = _read_authorization(given[0], tokens=tokens)
        return evolve(written, login=login) if written.token and not written.login else written
    return _of_passcode(login, passcode, tokens=tokens) if login or passcode else None


def from_http(
    headers: Sequence[_Header],
    target: str,
    *,
    ambient: bool,
    cookie_name: str = "",
    tokens: bool = False,
) -> Credentials | None:
    """Return the credentials in the request for a WebSocket, or None if there are none.

    Credentials set by the client's code take precedence over those that a browser adds: a Bearer
    token in ``Authorization`` or ``access_token`` in the query, then another ``Authorization``,
    then the cookie.

    Args:
      headers: The headers of the request, with names in any case.
      target: The request's target, with its query.
      ambient: Whether to accept what browsers add themselves: cookies, and any ``Authorization``
        but Bearer. It must be False for a request that may come from a foreign page (with the
        ``Origin`` of another host), which would act with the rights of its visitor.
      cookie_name: The cookie that holds a token; "" = none.
      tokens: As ``from_stomp``.

    Raises:
      ProtocolError: credentials are given twice, or are invalid.
    """
    given = [content.decode("latin-1") for content in _values(headers, AUTHORIZATION)]
    _refuse_repeated(given)
    written = given[0] if given else ""
    is_bearer = _scheme(written)[0] == "bearer"
    credentials = None
    if given and (ambient or is_bearer):
        credentials = _read_authorization(written, tokens=tokens)
    in_query = _query_token(target)
    if in_query:
        if is_bearer:
            raise _bad("the token is given twice, in Authorization and in access_token")
        return Credentials(token=in_query)
    if credentials is None and ambient and cookie_name:
        credentials = _cookie(headers, cookie_name)
    return credentials


def chosen(stomp: Credentials | None, http: Credentials | None) -> Credentials | None:
    """Return the credentials that count: those of CONNECT, if it has any (X15)."""
    return stomp if stomp is not None else http


def without_secrets(target: str) -> str:
    """Return a URL or request target for a log: shortened, without tokens and passcodes.

    This hides everything that ``from_http`` accepts as a token, or that looks like one.
    """
    pieces = _BETWEEN.split(_USERINFO.sub(rf"\1\2{HIDDEN}@", target))
    shown = "".join(_without_secret(piece) for piece in pieces)
    return shown if len(shown) <= _MOST_LOGGED else shown[:_MOST_LOGGED] + "…"


def _without_secret(piece: str) -> str:
    name, equals, _ = piece.partition("=")
    if equals and unquote_plus(name).strip().lower() == ACCESS_TOKEN:
        return f"{name}={HIDDEN}"
    # Without _JWT, whose failing search takes quadratic time.
    plain = unquote_plus(piece)
    start = plain.find("eyJ")
    return HIDDEN if start >= 0 and plain.count(".", start) >= 2 else piece


def looks_like_token(passcode: str) -> bool:
    """Return whether a text has three base64url parts, the first of which begins a JSON object."""
    return _JWT.fullmatch(passcode) is not None


def _of_passcode(login: str, passcode: str | None, *, tokens: bool) -> Credentials:
    if tokens and passcode is not None and looks_like_token(passcode):
        return Credentials(login, token=passcode)
    return Credentials(login, passcode)


def _read_authorization(written: str, *, tokens: bool) -> Credentials:
    """Return the credentials in the header ``Authorization``."""
    scheme, content = _scheme(written)
    if scheme == "bearer":
        return Credentials(token=_checked_token(content, "Authorization: Bearer"))
    if scheme != "basic":
        raise _bad("Authorization has an unknown scheme; it must be Basic or Bearer")
    try:
        text = base64.b64decode(content, validate=True).decode()
    except ValueError:
        raise _bad("Authorization: Basic must be login:passcode in UTF-8, in base64") from None
    login, colon, passcode = text.partition(":")
    if not colon or _CONTROL.search(text):
        raise _bad(
            "Authorization: Basic must be login:passcode, with a colon and without control"
            " characters"
        )
    return _of_passcode(login, passcode, tokens=tokens)


def _scheme(written: str) -> tuple[str, str]:
    """Return the scheme in lower case, and the rest (RFC 9110 section 11.4)."""
    scheme, _, content = written.strip(" \t").partition(" ")
    return scheme.lower(), content.strip(" ")


def _checked_token(token: str, where: str) -> str:
    if _TOKEN.fullmatch(token) is None:
        raise _bad(f"{where} must hold one token, of letters, digits and -._~+/")
    return token


def _query_token(target: str) -> str:
    """Return the token of the query, or "" if there is none."""
    query = target.partition("#")[0].partition("?")[2]
    pairs = (pair.partition("=") for pair in query.split("&"))
    found = [
        unquote_plus(content) for name, _, content in pairs if unquote_plus(name) == ACCESS_TOKEN
    ]
    if len(found) > 1:
        raise _bad("access_token is given more than once")
    return _checked_token(found[0], "access_token") if found else ""


def _cookie(headers: Sequence[_Header], name: str) -> Credentials | None:
    """Return the token of a cookie. Two different ones are refused, as one may be planted."""
    found = set(_cookies(headers, name)) - {""}
    if len(found) > 1:
        raise _bad("the token's cookie is given more than once, with different values")
    return Credentials(token=_checked_token(found.pop(), "the cookie")) if found else None


def _cookies(headers: Sequence[_Header], name: str) -> Iterator[str]:
    for line in _values(headers, "cookie"):
        for pair in line.decode("latin-1").split(";"):
            key, _, content = pair.partition("=")
            if key.strip(" \t") == name:
                content = content.strip(" \t")
                is_quoted = len(content) > 1 and content[0] == content[-1] == '"'
                yield content[1:-1] if is_quoted else content


def _values(headers: Sequence[_Header], name: str) -> list[bytes]:
    return [content for other, content in headers if other.lower() == name.encode()]


def _refuse_repeated(given: Sequence[str]) -> None:
    if len(given) > 1:
        raise _bad("Authorization is given more than once")


def _bad(what: str) -> ProtocolError:
    # Never quote a wrong secret: it may differ from the right one by one letter.
    return ProtocolError(
        "bad-credentials", f"bad credentials: {what}", reason=CloseReason.AUTHENTICATION_FAILED
    )
