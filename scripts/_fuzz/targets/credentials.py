"""Clients' credentials, which are accepted or refused, and never shown."""

import base64
import random
from collections.abc import Callable

from _fuzz.target import Target, check
from trio_stomp.base._errors import ProtocolError
from trio_stomp.security._credentials import Credentials, from_http, from_stomp, without_secrets

SECRET = b"xyzzySECRET"
TOKEN = b"eyJhbGciOiJub25lIn0." + SECRET + b".sig"
BASIC = (
    b"Basic " + base64.b64encode(b"ann:" + SECRET),
    b"Basic " + base64.b64encode(b"ann" + SECRET),
    b"basic  " + base64.b64encode(b"\xff:" + SECRET),
    b"Basic " + SECRET,
)
AUTHORIZATIONS = (
    *BASIC,
    b"Bearer " + TOKEN,
    b"bearer " + SECRET + b"=",
    b"Digest x",
    b"",
    b"Bearer",
)
NAMES = (b"login", b"passcode", b"Authorization", b"AUTHORIZATION", b"cookie", b"origin", b"host")
TARGETS = (
    *(
        b"/ws?access_token=" + TOKEN,
        b"/ws?a=b&access_token=" + SECRET,
        b"/?access%5ftoken=" + SECRET,
    ),
    *(
        b"/?access_token=a&access_token=" + SECRET,
        b"http://u:" + SECRET + b"@h/",
        b"/#access_token=x",
    ),
    *(
        b"/?access_token=%zz",
        b"/?access+token=" + SECRET,
        b"/?x=" + TOKEN,
        b"/?access_token=" + SECRET,
    ),
)
COOKIES = (
    b"token=" + TOKEN,
    b'a=b; token="' + SECRET + b'"',
    b"token=a; token=b",
    b"token",
    b";;=",
)


def make(name: str) -> Target:
    """The target."""
    words: tuple[bytes, ...] = (
        *AUTHORIZATIONS,
        *NAMES,
        *TARGETS,
        *COOKIES,
        SECRET,
        TOKEN,
        b"\n",
        b":",
        b"&",
        b"%",
        b"eyJ",
    )
    words += (b"access_token=", b"=" * 5, b"e" * 500, b"eyJ." * 200, b"\xff", b"+", b"\t")
    return Target(name, run, ("security/_credentials.py",), generate, words)


def generate(chance: random.Random) -> bytes:
    """Return a target, then headers."""
    lines = [chance.choice(TARGETS)]
    for _ in range(chance.randint(0, 4)):
        name = chance.choice(NAMES)
        contents = {b"cookie": COOKIES, b"login": (b"ann", b""), b"passcode": (SECRET, TOKEN, b"")}
        lines.append(name + b":" + chance.choice(contents.get(name, AUTHORIZATIONS)))
    return chance.randbytes(1) + b"\n".join(lines)


def run(data: bytes) -> None:
    """Read as headers of CONNECT and of HTTP."""
    choice = data[0] if data else 0
    tokens, ambient = bool(choice & 1), bool(choice & 2)
    target, *lines = data[1:].split(b"\n")
    pairs = [line.partition(b":")[::2] for line in lines]
    texts = [(name.decode(errors="replace"), text.decode(errors="replace")) for name, text in pairs]
    path = target.decode("latin-1")
    judge(lambda: from_stomp(texts, tokens=tokens))
    judge(lambda: from_http(pairs, path, ambient=ambient, cookie_name="token", tokens=tokens))
    asked = judge(lambda: from_http((), path, ambient=False))
    shown = without_secrets(path)
    # A short secret may occur in other parts, too.
    if asked is not None and len(asked.token) > 8:
        is_hidden = shown.count(asked.token) < max(1, path.count(asked.token))
        check(is_hidden, f"shown: {shown:.200}")
    check(len(shown) < 400, f"long: {len(shown)}")


def judge(ask: Callable[[], Credentials | None]) -> Credentials | None:
    """Check that credentials are of one kind, and are hidden in texts, also when refused."""
    try:
        found = ask()
    except ProtocolError as error:
        check(error.code == "bad-credentials", f"code: {error.code}")
        check(SECRET.decode() not in error.message, f"tells: {error.message}")
        return None
    if found is None:
        return None
    check(not (found.token and found.passcode is not None), "both: token and passcode")
    check(bool(found.login or found.passcode is not None or found.token), "nothing: but not None")
    if SECRET.decode() not in found.login:
        check(SECRET.decode() not in repr(found), "repr: tells a passcode")
    return found
