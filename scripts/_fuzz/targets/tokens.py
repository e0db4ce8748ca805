"""Bearer tokens: only those signed by our key are accepted, and only refusals are raised."""

import base64
import hashlib
import hmac
import json
import random

from _fuzz.target import Target, check, check_equal
from _fuzz.targets.files import own_file
from trio_stomp.base._errors import OptionError
from trio_stomp.base._identity import Identity
from trio_stomp.security._tokens import TokenRefused, TokenVerifier

SECRET = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
NOW = 1_700_000_000.0
HASHES = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}
HEADERS = (
    *(b'{"alg":"HS256"}', b'{"alg":"none"}', b'{"alg":"HS512","typ":"JWT"}', b'{"alg":"RS256"}'),
    *(b'{"alg":"HS256","kid":"a"}', b'{"alg":"HS256","kid":null}', b'{"alg":"HS256","crit":["x"]}'),
    *(
        b'{"alg":["HS256"]}',
        b'{"alg":{}}',
        b'{"alg":"hs256"}',
        b"[]",
        b"7",
        b"{",
        b'{"alg":"HS384"}',
    ),
)
CLAIMS = (
    *(
        b'"sub":"ann"',
        b'"exp":1700000060',
        b'"exp":1e400',
        b'"exp":NaN',
        b'"exp":"1"',
        b'"exp":true',
    ),
    *(b'"roles":["a","b"]', b'"roles":"a b"', b'"roles":7', b'"roles":[null]', b'"nbf":1800000000'),
    *(
        b'"iat":0',
        b'"iss":"us"',
        b'"aud":["x"]',
        b'"sub":"anonymous"',
        b'"sub":""',
        b'"sub":"a\\u0000"',
    ),
    *(
        b'"exp":' + b"9" * 400,
        b'"sub":"\\ud800"',
        b'"exp":17000000600',
        b'"x":{"y":[{}]}',
        b'"sub":7',
    ),
)
JWKS = (
    *(b'{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","kid":"a"}]}',),
    *(b'{"kty":"RSA","n":"AQAB","e":"AQAB"}', b'{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}'),
    *(b'{"kty":"OKP","crv":"Ed25519","x":"AA"}', b'{"kty":"oct","k":7}', b'{"kty":["oct"]}'),
    *(b'"use":"enc",', b'"alg":"HS256",', b'"key_ops":["sign"],', b'"d":"x",', b'{"keys":[', b"]}"),
)


def make(name: str) -> Target:
    """Return the target: a token if the first byte is odd, else a file of keys."""
    import cryptography  # noqa: F401  (not installed: the target is skipped)
    import jwt  # noqa: F401

    path = own_file("key")
    path.write_bytes(SECRET)
    verifier = TokenVerifier.load(key_file=str(path))
    keys = own_file("jwks.json")

    def run(data: bytes) -> None:
        if data[:1] and data[0] % 4:
            verify(verifier, data)
        else:
            keys.write_bytes(data[1:])
            read_keys(str(keys))

    words = (
        *HEADERS,
        *CLAIMS,
        *JWKS,
        b",",
        b".",
        b"-----BEGIN PUBLIC KEY-----\n",
        b"\xff",
        b"[" * 500,
    )
    return Target(name, run, ("security/_tokens.py",), generate, words)


def generate(chance: random.Random) -> bytes:
    """Return header and claims to sign, or keys."""
    if chance.random() < 0.2:
        return b"\0" + chance.choice(
            (JWKS[0], b'{"keys":[%b]}' % chance.choice(JWKS), chance.choice(JWKS))
        )
    claims = [*CLAIMS[:2], *chance.choices(CLAIMS, k=chance.randrange(3))]
    chance.shuffle(claims)
    header = HEADERS[0] if chance.random() < 0.7 else chance.choice(HEADERS)
    return bytes([chance.choice((1, 1, 1, 2, 3))]) + header + b"\n{" + b",".join(claims) + b"}"


def encode(part: bytes) -> bytes:
    """Return a part in the Base64 of tokens."""
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def verify(verifier: TokenVerifier, data: bytes) -> None:
    """Sign the input's claims, correctly or not, and check the authenticated user."""
    header, _, claims = data[1:].partition(b"\n")
    signed = encode(header) + b"." + encode(claims)
    kind = HASHES["HS256"]
    for name, each in HASHES.items():
        if name.encode() in header:
            kind = each
    signature = hmac.digest(SECRET, signed, kind)
    if data[0] % 4 == 2:
        signature = hmac.digest(b"another key", signed, kind)
    token = signed + b"." + encode(signature)
    if data[0] % 4 == 3:
        token = data[1:]  # as it is
    try:
        found = verifier.verify(token.decode(errors="replace"), NOW)
    except TokenRefused as error:
        check("\n" not in str(error), f"lines: {error}")
        return
    judge(found, token)


def judge(found: Identity, token: bytes) -> None:
    """Check that an accepted token was signed by us, has not expired, and names a user."""
    signed, _, signature = token.rpartition(b".")
    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + b"==")) for part in signed.split(b".")
    )
    check(header["alg"] in HASHES, f"algorithm: {header['alg']}")
    expected = hmac.digest(SECRET, signed, HASHES[header["alg"]])
    check_equal(base64.urlsafe_b64decode(signature + b"=="), expected, "signature")
    check(found.expires_at > NOW, f"expired: {found.expires_at}")
    check_equal(found.name, claims["sub"], "name")
    check(found.name not in ("", "anonymous"), f"nobody: {found.name}")


def read_keys(path: str) -> None:
    """Read both forms of a file of keys."""
    for key_file, jwks_file in ((path, ""), ("", path)):
        try:
            verifier = TokenVerifier.load(key_file, jwks_file)
        except OptionError as error:
            check(path in str(error), f"the file is not named: {error}")
            continue
        try:
            verifier.verify("a.b.c", NOW)
        except TokenRefused:
            continue
