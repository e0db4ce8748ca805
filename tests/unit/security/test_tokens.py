"""Bearer tokens: whose key, which algorithm, what time, which name; and every way around it."""

import base64
import hmac
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from attrs import evolve
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import HMACAlgorithm

from trio_stomp.base import Identity, OptionError, StompError
from trio_stomp.security import _tokens
from trio_stomp.security._token_keys import _secret, _Unusable

TokenVerifier = _tokens.TokenVerifier
MAX_KEYS, MAX_NAME_BYTES, MAX_TOKEN_CHARS = 100, 255, 16 * 1024

NOW = 1_700_000_000.0
HOUR = 3600
SECRET = b"0123456789abcdef" * 4
HS256 = {"alg": "HS256"}

# Made once: an RSA key takes a while.
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
SMALL_RSA = rsa.generate_private_key(65537, 1024)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
P521 = ec.generate_private_key(ec.SECP521R1())
K256 = ec.generate_private_key(ec.SECP256K1())
ED25519 = ed25519.Ed25519PrivateKey.generate()
ED448 = ed448.Ed448PrivateKey.generate()

KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "rsa": (RSA, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "p256": (P256, ("ES256",)),
    "p384": (P384, ("ES384",)),
    "p521": (P521, ("ES512",)),
    "k256": (K256, ("ES256K",)),
    "ed25519": (ED25519, ("EdDSA",)),
    "ed448": (ED448, ("EdDSA",)),
    "secret": (SECRET, ("HS256", "HS384", "HS512")),
}
SIGNED = [(kind, name) for kind, (_, names) in KINDS.items() for name in names]
ALGORITHMS = sorted({name for _, name in SIGNED})

PEM = serialization.Encoding.PEM
DER = serialization.Encoding.DER
SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
PKCS8 = serialization.PrivateFormat.PKCS8
PLAIN = serialization.NoEncryption()

Write = Callable[[bytes | str | object], str]


def public(key: Any, encoding: Any = PEM, form: Any = SPKI) -> bytes:
    data: bytes = key if isinstance(key, bytes) else key.public_key().public_bytes(encoding, form)
    return data


def private(key: Any, form: Any = PKCS8, encoding: Any = PEM) -> bytes:
    data: bytes = key.private_bytes(encoding, form, PLAIN)
    return data


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(key: Any, **more: object) -> dict[str, object]:
    """A key as a set has it: public, or a secret."""
    if isinstance(key, bytes):
        return {"kty": "oct", "k": b64(key), **more}
    shown = key.public_key()
    if isinstance(shown, rsa.RSAPublicKey):
        numbers = shown.public_numbers()
        n, e = (value.to_bytes((value.bit_length() + 7) // 8) for value in (numbers.n, numbers.e))
        return {"kty": "RSA", "n": b64(n), "e": b64(e), **more}
    if isinstance(shown, ec.EllipticCurvePublicKey):
        names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        size = (shown.curve.key_size + 7) // 8
        point = shown.public_numbers()
        x, y = b64(point.x.to_bytes(size)), b64(point.y.to_bytes(size))
        crv = names.get(shown.curve.name, shown.curve.name)
        return {"kty": "EC", "crv": crv, "x": x, "y": y, **more}
    crv = {32: "Ed25519", 57: "Ed448"}[len(shown.public_bytes_raw())]
    return {"kty": "OKP", "crv": crv, "x": b64(shown.public_bytes_raw()), **more}


def claims(**more: object) -> dict[str, object]:
    """Good claims, but for ``more``; None leaves one out."""
    claims_sent = {"sub": "ann", "exp": NOW + HOUR, **more}
    return {name: value for name, value in claims_sent.items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **more: Any) -> str:
    headers = {"kid": kid} if kid is not None else None
    return jwt.encode(claims(**more), key, algorithm=algorithm, headers=headers)


def by_hand(header: object, payload: object, secret: bytes = SECRET) -> str:
    """A token signed by the hash of its header, or SHA-256, whatever it says.

    Bytes and text go in as they are.
    """

    def segment(part: object) -> str:
        if isinstance(part, bytes):
            return b64(part)
        return b64((part if isinstance(part, str) else json.dumps(part)).encode())

    head = f"{segment(header)}.{segment(payload)}"
    algorithm = header.get("alg") if isinstance(header, dict) else None
    hash_of = {"HS384": "sha384", "HS512": "sha512"}.get(str(algorithm), "sha256")
    return f"{head}.{b64(hmac.digest(secret, head.encode(), hash_of))}"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file, of JSON unless it is text or bytes; its path."""

    def writes(content: object) -> str:
        path = tmp_path / f"file{len(list(tmp_path.iterdir()))}"
        if not isinstance(content, bytes | str):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return writes


@pytest.fixture(scope="module")
def hs(tmp_path_factory: pytest.TempPathFactory) -> TokenVerifier:
    """A verifier of the secret."""
    path = tmp_path_factory.mktemp("keys") / "secret"
    path.write_bytes(SECRET)
    return TokenVerifier.load(key_file=str(path))


def verifier(path: str, **options: Any) -> TokenVerifier:
    return TokenVerifier.load(key_file=path, **options)


def of_set(write: Write, *keys: object) -> TokenVerifier:
    return TokenVerifier.load(jwks_file=write({"keys": keys}))


def refusal(verifier: TokenVerifier, token: str, wall_s: float = NOW) -> str:
    """Why a token is refused; nothing of the token is in it."""
    with pytest.raises(_tokens.TokenRefused) as caught:
        verifier.verify(token, wall_s)
    text = str(caught.value)
    assert isinstance(caught.value, StompError)
    assert caught.value.__cause__ is None
    for part in token.split("."):
        assert len(part) < 8 or part not in text
    assert "s3cret" not in text
    return text


def fault(**options: Any) -> str:
    """Why a verifier cannot be had; one line that names the file."""
    with pytest.raises(OptionError) as caught:
        TokenVerifier.load(**options)
    text = str(caught.value)
    assert "\n" not in text
    for name in ("key_file", "jwks_file"):
        assert options.get(name, "") in text
    return text


# Keys and algorithms


@pytest.mark.parametrize(("kind", "algorithm"), SIGNED)
@pytest.mark.parametrize("form", ["file", "set", "named", "bound"])
def test_token_signed_by_a_configured_key_is_accepted(
    kind: str, algorithm: str, form: str, write: Write
) -> None:
    key, _ = KINDS[kind]
    kid = "k1" if form == "named" else None
    more = {"kid": kid} if kid else {"alg": algorithm} if form == "bound" else {}
    ours = verifier(write(public(key))) if form == "file" else of_set(write, jwk(key, **more))
    result = ours.verify(token(key, algorithm, kid, roles=["r"]), NOW)
    assert result == Identity("ann", frozenset({"r"}), NOW + HOUR + 30, "token")
    assert ours.ignored == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_algorithm_but_its_own_is_taken_for_a_key(
    kind: str, algorithm: str, write: Write
) -> None:
    key, own = KINDS[kind]
    if algorithm in own and algorithm != "EdDSA":
        return
    other = {"ed25519": ED448, "ed448": ED25519}.get(kind)
    signer = other or next(KINDS[each][0] for each, name in SIGNED if name == algorithm)
    forged = token(signer, algorithm if other is None else "EdDSA")
    for ours in (verifier(write(public(key))), of_set(write, jwk(key))):
        refusal(ours, forged)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "secret"])
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_never_a_secret(kind: str, algorithm: str, write: Write) -> None:
    # The classic attack: sign with the text of the public key, which everybody has.
    key, _ = KINDS[kind]
    own = json.dumps(jwk(key, kid="k"))
    secrets = [public(key), public(key).rstrip(), public(key, DER), own.encode()]
    if isinstance(key, rsa.RSAPrivateKey):
        secrets.append(public(key, PEM, serialization.PublicFormat.PKCS1))
    both = TokenVerifier.load(
        key_file=write(public(key)), jwks_file=write({"keys": [jwk(key), jwk(key, kid="k")]})
    )
    for secret in secrets:
        for kid in (None, "k"):
            header = {"alg": algorithm, **({"kid": kid} if kid else {})}
            assert "algorithm" in refusal(both, by_hand(header, claims(), secret))


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "", None, 1, [], {}, ["HS256"], "HS1", "ES521", "hs256"]
)
def test_no_other_algorithm_is_known(algorithm: object, hs: TokenVerifier) -> None:
    for signature in ("", b64(b"x")):
        head, _, _ = by_hand({"alg": algorithm}, claims()).rpartition(".")
        refusal(hs, f"{head}.{signature}")
    assert "HS256, HS384, HS512" in refusal(hs, by_hand({"alg": algorithm}, claims()))
    assert "HS256" in refusal(hs, by_hand({"typ": "JWT"}, claims()))


def test_the_algorithm_of_a_key_in_a_set_binds_it(write: Write) -> None:
    ours = of_set(write, jwk(RSA, alg="PS256"))
    assert ours.verify(token(RSA, "PS256"), NOW).name == "ann"
    assert refusal(ours, token(RSA, "RS256")).endswith(": PS256")


@pytest.mark.parametrize(
    ("length", "names"), [(32, ["HS256"]), (48, ["HS256", "HS384"]), (63, ["HS256", "HS384"])]
)
def test_a_secret_signs_by_no_hash_that_is_longer(
    length: int, names: list[str], write: Write
) -> None:
    ours = verifier(write(SECRET[:length]))
    for name in ("HS256", "HS384", "HS512"):
        result = by_hand({"alg": name}, claims(), SECRET[:length])
        if name in names:
            assert ours.verify(result, NOW).name == "ann"
        else:
            refusal(ours, result)


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_token_is_refused(kind: str, write: Write) -> None:
    key, (algorithm, *_) = KINDS[kind]
    ours = verifier(write(public(key)))
    header, payload, signature = token(key, algorithm).split(".")
    changed = b64(json.dumps(claims(sub="eve")).encode())
    assert "not signed by" in refusal(ours, f"{header}.{changed}.{signature}")
    longer = b64(json.dumps({"alg": algorithm, "typ": "JWT", "x": 1}).encode())
    assert "not signed by" in refusal(ours, f"{longer}.{payload}.{signature}")
    for other in ("AAAA", signature[:-4], signature + "AAAA", b64(b"\0" * 64), "A", "AA=="):
        refusal(ours, f"{header}.{payload}.{other}")
    if kind == "rsa":
        refusal(ours, token(OTHER_RSA, algorithm))


@given(st.data())
def test_no_letter_of_a_token_may_be_changed(hs: TokenVerifier, data: st.DataObject) -> None:
    good = token()
    place = data.draw(st.integers(0, len(good) - 1))
    letter = data.draw(st.characters(codec="utf-8"))
    if letter != good[place]:
        refusal(hs, good[:place] + letter + good[place + 1 :])


# Names of keys


def test_a_key_is_found_by_its_name(write: Write) -> None:
    ours = of_set(write, jwk(RSA, kid="a"), jwk(OTHER_RSA, kid="b"), jwk(P256))
    assert ours.verify(token(RSA, "RS256", "a"), NOW).name == "ann"
    assert ours.verify(token(OTHER_RSA, "RS256", "b"), NOW).name == "ann"
    assert ours.verify(token(P256, "ES256"), NOW).name == "ann"
    assert "not signed by" in refusal(ours, token(RSA, "RS256", "b"))
    assert "algorithm" in refusal(ours, token(RSA, "RS256"))
    assert "algorithm" in refusal(ours, token(P256, "ES256", "a"))
    assert "out of date" in refusal(ours, token(RSA, "RS256", "s3cret"))
    assert "out of date" in refusal(ours, token(P256, "ES256", ""))


def test_keys_that_share_a_name_are_all_tried(write: Write) -> None:
    keys = [jwk(RSA, kid="a"), jwk(OTHER_RSA, kid="a"), jwk(P256, kid="a"), jwk(SECRET, kid="a")]
    ours = of_set(write, *keys)
    for key, name in ((RSA, "RS256"), (OTHER_RSA, "PS512"), (P256, "ES256"), (SECRET, "HS256")):
        assert ours.verify(token(key, name, "a"), NOW).name == "ann"


def test_keys_without_a_name_are_all_tried_for_tokens_without_one(write: Write) -> None:
    ours = of_set(write, jwk(OTHER_RSA), jwk(RSA))
    assert ours.verify(token(RSA, "RS256"), NOW).name == "ann"
    named = of_set(write, jwk(RSA, kid="a"))
    assert "names no key" in refusal(named, token(RSA, "RS256"))


def test_the_key_of_a_file_is_tried_whatever_name_a_token_tells(write: Write) -> None:
    alone = verifier(write(public(RSA)))
    assert alone.verify(token(RSA, "RS256", "any"), NOW).name == "ann"
    keys = {"keys": [jwk(OTHER_RSA, kid="a")]}
    both = TokenVerifier.load(key_file=write(public(RSA)), jwks_file=write(keys))
    assert both.verify(token(RSA, "RS256", "a"), NOW).name == "ann"
    assert both.verify(token(OTHER_RSA, "RS256", "a"), NOW).name == "ann"
    assert "not signed by" in refusal(both, token(OTHER_RSA, "RS256"))


@pytest.mark.parametrize("kid", [None, 1, True, [], {}, ["a"]])
def test_a_name_that_is_no_text_is_no_keys(kid: object, write: Write) -> None:
    ours = TokenVerifier.load(
        key_file=write(SECRET),
        jwks_file=write({"keys": [jwk(SECRET, kid="1"), jwk(SECRET), jwk(SECRET, kid=None)]}),
    )
    assert ours.ignored == ()
    assert "kid" in refusal(ours, by_hand({"alg": "HS256", "kid": kid}, claims()))


# The form of a token


@pytest.mark.parametrize(
    "bad",
    [
        "", ".", "..", "a", "a.b", "a.b.c.d", "a.b.c.d.e", ".b.c", "a..c", "a.b.", " a.b.c",
        "a.b.c\n", "a.b=.c", "a.b+.c", "a.b\xe4.c", "a.b\ud800.c",
    ],
)  # fmt: skip
def test_malformed_tokens(bad: str, hs: TokenVerifier) -> None:
    assert "three parts" in refusal(hs, bad)
    assert "not valid JSON in base64url" in refusal(hs, "eyJhb.e30.AA")
    assert "header" in refusal(hs, "A.e30.AA")


@pytest.mark.parametrize(
    ("header", "payload", "why"),
    [
        (b"\xff", claims(), "not valid JSON in"),
        ("{", claims(), "not valid JSON in"),
        ("[" * 9000, claims(), "not valid JSON in"),
        ("1" * 9000, claims(), "not valid JSON in"),
        ("[]", claims(), "not a JSON object"),
        ('"alg"', claims(), "not a JSON object"),
        ("null", claims(), "not a JSON object"),
        (HS256 | {"crit": ["exp"]}, claims(), "extension"),
        (HS256 | {"crit": []}, claims(), "extension"),
        (HS256 | {"crit": ["b64"], "b64": False}, claims(), "extension"),
        (HS256 | {"b64": False}, claims(), "extension"),
        (HS256, b"\xff", "not valid JSON in"),
        (HS256, "", "three parts"),
        (HS256, "{", "not valid JSON in"),
        (HS256, '{"sub":"ann","exp":' + "9" * 5000 + "}", "not valid JSON in"),
        (HS256, '{"sub":' + "[" * 9000, "not valid JSON in"),
        (HS256, json.dumps(claims()).encode("utf-16"), "not valid JSON in"),
        (HS256, "\ufeff" + json.dumps(claims()), "not valid JSON in"),
        (HS256, "[]", "not a JSON object"),
        (HS256, "null", "not a JSON object"),
    ],
)
def test_a_header_or_claims_that_cannot_be_heeded(
    header: object, payload: object, why: str, hs: TokenVerifier
) -> None:
    assert why in refusal(hs, by_hand(header, payload))


def test_a_token_may_be_long_and_no_longer(hs: TokenVerifier) -> None:
    good = token(x="")
    for padding in range(MAX_TOKEN_CHARS * 3 // 4 - len(good), MAX_TOKEN_CHARS):
        long = token(x="x" * padding)
        if len(long) > MAX_TOKEN_CHARS:
            break
        assert hs.verify(long, NOW).name == "ann"
    assert len(long) <= MAX_TOKEN_CHARS + 2
    assert "longer than 16384" in refusal(hs, long)


@given(st.text() | st.lists(st.text("eyJ.-_A0="), max_size=4).map(".".join))
def test_anything_is_refused_and_nothing_else_happens(hs: TokenVerifier, text: str) -> None:
    with pytest.raises(_tokens.TokenRefused):
        hs.verify(text, NOW)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
JSON = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=2), SCALARS)
NAMES = ["sub", "exp", "nbf", "iat", "iss", "aud", "roles", "alg", "kid", "typ"]


@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.dictionaries(st.sampled_from(NAMES), JSON))
def test_signed_claims_give_an_identity_or_are_refused(
    hs: TokenVerifier, header: dict[str, Any], payload: dict[str, Any]
) -> None:
    result = by_hand({"alg": "HS256", **header}, {**claims(), **payload})
    try:
        identity = hs.verify(result, NOW)
    except _tokens.TokenRefused:
        return
    assert identity.expires_at > NOW
    assert math.isfinite(identity.expires_at)
    assert identity.name == {**claims(), **payload}["sub"]
    assert identity.name.isprintable()


# Times


@pytest.mark.parametrize(
    ("times", "wall_s", "why"),
    [
        ({"exp": 1000}, 1029.9, ""),
        ({"exp": 1000}, 1030, "expired (exp, with a leeway of 30 s)"),
        ({"exp": 1000}, 999, ""),
        ({"exp": 1000.5}, 1030.25, ""),
        ({"exp": 1000.5}, 1030.5, "expired"),
        ({"exp": 0}, 1000, "expired"),
        ({"exp": -5}, 1000, "expired"),
        ({"nbf": 1000}, 970, ""),
        ({"nbf": 1000}, 969.9, "not valid yet (nbf"),
        ({"iat": 1000}, 970, ""),
        ({"iat": 1000}, 969.9, "not valid yet (iat"),
        ({"iat": 1000, "nbf": 1000}, 1e6, ""),
        ({"exp": None}, 1000, "only tokens that expire"),
    ],
)
def test_a_token_is_valid_within_its_times(
    times: dict[str, Any], wall_s: float, why: str, hs: TokenVerifier
) -> None:
    result = token(**{"exp": 1e9, **times})
    if why:
        assert why in refusal(hs, result, wall_s)
    else:
        expires_at = hs.verify(result, wall_s).expires_at
        assert expires_at == times.get("exp", 1e9) + 30
        assert expires_at > wall_s


NO_TIMES = ["true", "null", '"2000000000"', "[]", "{}", "NaN", "Infinity", "-Infinity", "1e400"]


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("bad", [*NO_TIMES, pytest.param("9" * 400, id="beyond-all-floats")])
def test_an_invalid_time_is_refused(name: str, bad: str, hs: TokenVerifier) -> None:
    payload = json.dumps(claims(**{name: "BAD"})).replace('"BAD"', bad)
    assert f"its claim {name} is not a" in refusal(hs, by_hand(HS256, payload))


def test_the_leeway_is_an_option(write: Write) -> None:
    ours = verifier(write(SECRET), leeway_s=0)
    assert ours.verify(token(exp=1000), 999.9).expires_at == 1000
    assert "leeway of 0 s" in refusal(ours, token(exp=1000), 1000)


def test_no_clock_is_read(hs: TokenVerifier) -> None:
    # In 1970 and in 3000: PyJWT by itself would refuse both.
    assert hs.verify(token(exp=100, nbf=1, iat=1), 50).expires_at == 130
    assert hs.verify(token(exp=4e10, nbf=3e10, iat=3e10), 3.5e10).name == "ann"


# The audience


@pytest.mark.parametrize(
    ("options", "reported", "why"),
    [
        ({"issuer": "https://i"}, {"iss": "https://i"}, ""),
        ({"issuer": "https://i"}, {"iss": "https://i/"}, "token_issuer"),
        ({"issuer": "https://i"}, {"iss": ["https://i"]}, "token_issuer"),
        ({"issuer": "https://i"}, {"iss": "https://I"}, "token_issuer"),
        ({"issuer": "https://i"}, {}, "token_issuer"),
        ({}, {"iss": "s3cret", "aud": "s3cret"}, ""),
        ({"audience": "broker"}, {"aud": "broker"}, ""),
        ({"audience": "broker"}, {"aud": ["x", "broker"]}, ""),
        ({"audience": "broker"}, {"aud": "broker2"}, "token_audience"),
        ({"audience": "broker"}, {"aud": "x broker"}, "token_audience"),
        ({"audience": "broker"}, {"aud": ["x", 1, None]}, "token_audience"),
        ({"audience": "broker"}, {"aud": []}, "token_audience"),
        ({"audience": "broker"}, {"aud": {"broker": 1}}, "token_audience"),
        ({"audience": "broker"}, {"aud": [["broker"]]}, "token_audience"),
        ({"audience": "broker"}, {}, "token_audience"),
        ({"user_claim": "user.name"}, {}, "user.name"),
        ({"user_claim": "user.name"}, {"user": None}, "user.name"),
        ({"user_claim": "user.name"}, {"user": "ann"}, "user.name"),
        ({"user_claim": "user.name"}, {"user": {"nam": "ann"}}, "user.name"),
    ],
)
def test_issuer_audience_and_user_claim_are_checked(
    options: dict[str, Any], reported: dict[str, Any], why: str, write: Write
) -> None:
    ours = verifier(write(SECRET), **options)
    signed = by_hand(HS256, claims(**reported))
    if why:
        assert why in refusal(ours, signed)
    else:
        assert ours.verify(signed, NOW).name == "ann"


# Names and roles


@pytest.mark.parametrize(
    ("claim", "reported", "name"),
    [
        ("sub", {}, "ann"),
        ("email", {"email": "ann@x.example"}, "ann@x.example"),
        ("user.name", {"user": {"name": "bob"}}, "bob"),
        ("user.name", {"user.name": "carl", "user": {"name": "bob"}}, "carl"),
        ("https://x.example/name", {"https://x.example/name": "dora"}, "dora"),
        ("a.b.c.d", {"a": {"b.c": {"d": "eve"}}}, "eve"),
        ("a.b.c.d", {"a": {"b": {"x": 1}, "b.c": {"d": "eve"}}}, "eve"),
        ("sub", {"sub": "Zo\xeb \u5c71"}, "Zo\xeb \u5c71"),
        ("sub", {"sub": "Anonymous"}, "Anonymous"),
        ("sub", {"sub": "x" * MAX_NAME_BYTES}, "x" * MAX_NAME_BYTES),
    ],
)
def test_the_user_is_a_claim(claim: str, reported: dict[str, Any], name: str, write: Write) -> None:
    ours = verifier(write(SECRET), user_claim=claim)
    assert ours.verify(by_hand(HS256, claims(**reported)), NOW).name == name


@pytest.mark.parametrize(
    ("sub", "why"),
    [
        (None, "missing"),
        (1, "not text"),
        (["ann"], "not text"),
        ({"name": "ann"}, "not text"),
        (True, "not text"),
        ("", "empty"),
        (" ", "empty"),
        (" ann", "begins or ends"),
        ("ann\u3000", "begins or ends"),
        *[(f"an{each}n", "control") for each in "\n\x00\x7f\x85\u202e\u2028\ud800\u200b"],
        ("anonymous", "cannot be a user's name"),
        ("x" * (MAX_NAME_BYTES + 1), "longer than 255 bytes"),
        ("\xeb" * 128, "longer than 255 bytes"),
    ],
)
def test_an_invalid_user_is_refused(sub: object, why: str, hs: TokenVerifier) -> None:
    text = refusal(hs, by_hand(HS256, claims(sub=sub)))
    assert why in text
    assert "its claim sub (option token_user_claim)" in text


@pytest.mark.parametrize(
    ("claim", "reported", "roles"),
    [
        ("roles", {}, set()),
        ("roles", {"roles": None}, set()),
        ("roles", {"roles": []}, set()),
        ("roles", {"roles": ""}, set()),
        ("roles", {"roles": ["a", "b", "a"]}, {"a", "b"}),
        ("roles", {"roles": ["Domain Admins"]}, {"Domain Admins"}),
        ("scope", {"scope": "a  b"}, {"a", "b"}),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}}, {"a"}),
        ("realm_access.roles", {"realm_access": ["roles"]}, set()),
        ("resource_access.my.app.roles", {"resource_access": {"my.app": {"roles": "a"}}}, {"a"}),
        ("", {"roles": ["a"], "": ["b"]}, set()),
    ],
)
def test_the_roles_are_a_claim(
    claim: str, reported: dict[str, Any], roles: set[str], write: Write
) -> None:
    ours = verifier(write(SECRET), roles_claim=claim)
    assert ours.verify(by_hand(HS256, claims(**reported)), NOW).roles == roles


@pytest.mark.parametrize(
    "roles", [1, True, {"a": 1}, [1], ["a", None], [["a"]], [""], [" a"], ["a\n"], ["x" * 256]]
)
def test_roles_that_are_none_are_refused(roles: object, hs: TokenVerifier) -> None:
    text = refusal(hs, by_hand(HS256, claims(roles=roles)))
    assert "its claim roles (option token_roles_claim)" in text


# Files: the operator's faults


def test_without_its_libraries_the_error_names_the_package(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("jwt", "cryptography"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(OptionError, match=rf"{missing}.*'pyjwt\[crypto\]'"):
                TokenVerifier.load(key_file=write(SECRET))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "token_key_file or token_jwks_file"),
        ({"key_file": "x", "user_claim": ""}, "token_user_claim"),
        ({"key_file": "x", "leeway_s": -1}, "-1"),
        ({"key_file": "x", "leeway_s": math.inf}, "inf"),
        ({"key_file": "x", "leeway_s": math.nan}, "nan"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        TokenVerifier.load(**options)


@pytest.mark.parametrize("name", ["key_file", "jwks_file"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path, write: Write) -> None:
    assert "no such file" in fault(**{name: str(tmp_path / "absent")})
    assert "directory" in fault(**{name: str(tmp_path)})
    assert "null byte" in fault(**{name: "a\0b"})
    assert "longer than 1048576" in fault(**{name: write(b"x" * (1024 * 1024 + 1))})


CERTIFICATE_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])


def certificate(encoding: Any = PEM) -> bytes:
    import datetime

    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(
        CERTIFICATE_NAME,
        CERTIFICATE_NAME,
        P256.public_key(),
        1,
        start,
        start + datetime.timedelta(days=1),
    )
    return builder.sign(P256, hashes.SHA256()).public_bytes(encoding)


SSH = ED25519.public_key().public_bytes(
    serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
)
LOCKED = RSA.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x"))
TRADITIONAL = serialization.PrivateFormat.TraditionalOpenSSL
OPENSSH = serialization.PrivateFormat.OpenSSH
X25519 = x25519.X25519PrivateKey.generate()
BODY = b"".join(public(RSA).splitlines()[1:-1])
IS_KEY = "is a key, but neither"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (private(RSA), "openssl pkey -in PRIVATE -pubout"),
        (private(RSA, TRADITIONAL), "openssl pkey"),
        (private(P256, TRADITIONAL), "openssl pkey"),
        (private(ED25519, OPENSSH), "openssl pkey"),
        (LOCKED, "openssl pkey"),
        (public(RSA) + private(RSA), "openssl pkey"),
        (certificate(), "openssl x509"),
        (public(RSA) + public(P256), "more than one key"),
        (public(RSA)[:-60], "holds no public key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\n" + b"x" * 40, "holds no public key in PEM"),
        (public(X25519), "signs no tokens"),
        (public(dsa.generate_private_key(1024)), "signs no tokens"),
        (public(ec.generate_private_key(ec.SECP224R1())), "signs no tokens"),
        (public(SMALL_RSA), "has 1024 bits; RSA must have 2048"),
        (b"", "it has 0; make one with openssl rand -hex 32"),
        (b"x" * 31, "32 bytes or more: it has 31"),
        (b"x" * 31 + b"\r\n", "it has 31"),
        (b"x" * 31 + b"\n\n", "it has 31"),
        # Public content, in any encoding, must not be taken for a secret.
        (public(RSA, DER), IS_KEY),
        (private(RSA, encoding=DER), IS_KEY),
        (certificate(DER), IS_KEY),
        (BODY, IS_KEY),
        (b"\n".join(public(P256).splitlines()[1:-1]), IS_KEY),
        (base64.b64encode(public(RSA)), IS_KEY),
        (base64.b64encode(certificate(DER)), IS_KEY),
        (public(RSA).decode().encode("utf-16"), IS_KEY),
        (public(RSA).decode().encode("utf-16-be"), IS_KEY),
        (b"\xef\xbb\xbf" + BODY, IS_KEY),
        (BODY.decode().encode("utf-16"), IS_KEY),
        # Named: what is made anew in each process must not name a test.
        pytest.param(b"\r\n " + SSH, IS_KEY, id="ssh"),
        pytest.param(SSH.split()[1], IS_KEY, id="ssh-body"),
        pytest.param(b"---- BEGIN SSH2 PUBLIC KEY ----\n" + SSH.split()[1], IS_KEY, id="ssh2"),
        (json.dumps(jwk(RSA)).encode(), IS_KEY),
        (json.dumps({"keys": [jwk(RSA)]}, indent=1).encode(), IS_KEY),
        (json.dumps([jwk(RSA)]).encode(), IS_KEY),
        (json.dumps({"realm": "r", "public_key": BODY.decode()}).encode(), IS_KEY),
        (json.dumps(jwk(RSA)).encode() + b"\n" + json.dumps(jwk(P256)).encode(), IS_KEY),
        (b'{"kty" : 1}, {"other": 1111111111111111}', IS_KEY),
        (json.dumps(jwk(RSA)).encode() + b",", IS_KEY),
    ],
)
def test_a_file_that_holds_no_key_for_this(content: bytes, why: str, write: Write) -> None:
    text = fault(key_file=write(content))
    assert why in text
    assert not [line for line in content.split(b"\n") if len(line) > 40 and line in text.encode()]


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (SECRET, SECRET),
        (SECRET + b"\n", SECRET),
        (SECRET + b"\r\n", SECRET),
        (b"\x00\xff" * 16 + b"\n", b"\x00\xff" * 16 + b"\n"),
        (b" " + b"x" * 32 + b" ", b" " + b"x" * 32 + b" "),
        (b"{" + b"x" * 32, b"{" + b"x" * 32),
        (b"{" + b"\xff" * 32 + b"}", b"{" + b"\xff" * 32 + b"}"),
        (base64.b64encode(b"x" * 30), base64.b64encode(b"x" * 30)),
        (b"1" * 5000, b"1" * 5000),
    ],
)
def test_a_secret_is_the_file_without_the_end_of_its_line(
    content: bytes, secret: bytes, write: Write
) -> None:
    signed = by_hand(HS256, claims(), secret)
    assert verifier(write(content)).verify(signed, NOW).name == "ann"


@given(
    st.binary(max_size=80)
    | st.lists(
        st.sampled_from(
            (
                *(b"-----BEGIN ", b"---- BEGIN ", b"PUBLIC KEY-----", b"-----END PUBLIC KEY-----"),
                *(b"ssh-rsa ", b'{"kty":1', b"{", b"}", b"[", b"]", b"\n", b" ", b"\0", b"\xff"),
                b"x" * 32,
            )
        )
    ).map(b"".join)
)
def test_secrets_are_also_secrets_for_the_library(data: bytes) -> None:
    # Else every token would be refused, and nobody told why.
    try:
        secret = _secret(data)
    except _Unusable:
        return
    assert HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret) == secret


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (public(RSA), "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        ([], "not a JSON Web Key Set"),
        (jwk(RSA), "not a JSON Web Key Set"),
        ({"keys": jwk(RSA)}, "not a JSON Web Key Set"),
        ({"keys": [jwk(SECRET)] * (MAX_KEYS + 1)}, "100 or less"),
        ({"keys": []}, "it is empty"),
        ({"keys": [{**jwk(RSA), "d": "AQAB"}]}, "key 1 is a private key"),
        ({"keys": [jwk(SECRET), {**jwk(ED25519), "d": "AQAB"}]}, "key 2 is a private key"),
    ],
)
def test_an_invalid_key_set_is_refused(content: object, why: str, write: Write) -> None:
    assert why in fault(jwks_file=write(content))


def test_a_set_may_be_full_and_may_begin_with_a_mark(write: Write) -> None:
    keys = [jwk(P256, kid=str(number)) for number in range(MAX_KEYS)]
    ours = TokenVerifier.load(
        jwks_file=write(b"\xef\xbb\xbf" + json.dumps({"keys": keys}).encode())
    )
    assert ours.verify(token(P256, "ES256", "99"), NOW).name == "ann"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (1, "kty"),
        ({}, "kty"),
        ({"kty": "AKP", "pub": "AAAA"}, "kty"),
        ({"kty": ["RSA"]}, "kty"),
        ({"kty": {}}, "kty"),
        (jwk(RSA, use="enc"), "not for signatures"),
        (jwk(RSA, use=["sig"]), "not for signatures"),
        (jwk(RSA, key_ops=["encrypt"]), "not for signatures"),
        (jwk(RSA, key_ops=1), "not for signatures"),
        (jwk(RSA, key_ops="verify"), "not for signatures"),
        (jwk(RSA, alg="RSA-OAEP"), "its kind; allowed are: RS256"),
        (jwk(RSA, alg="HS256"), "its kind; allowed are: RS256"),
        (jwk(RSA, alg="none"), "its kind; allowed are: RS256"),
        (jwk(RSA, alg=["RS256"]), "its kind; allowed are: RS256"),
        (jwk(SECRET, alg="RS256"), "its kind; allowed are: HS256"),
        (jwk(P256, alg="ES384"), "its kind; allowed are: ES256"),
        (jwk(RSA, kid=1), "not text"),
        (jwk(RSA, n=None), "lacks n"),
        ({"kty": "RSA", "n": "AQAB"}, "lacks e"),
        (jwk(RSA, n="a+/b"), "lacks n"),
        (jwk(RSA, e="AA"), "damaged"),
        (jwk(RSA, n="AQAB"), "damaged"),
        (jwk(SMALL_RSA), "has 1024 bits"),
        (jwk(P256, x="AQAB"), "damaged"),
        (jwk(P256, x=jwk(P256)["y"]), "damaged"),
        (jwk(P256, crv="P-384"), "damaged"),
        (jwk(P256, crv="P-224"), "damaged"),
        (jwk(ED25519, x="AQAB"), "damaged"),
        (jwk(ED25519, crv="X25519"), "damaged"),
        (jwk(SECRET, k=b64(b"x" * 31)), "it has 31"),
        (jwk(SECRET, k="A"), "damaged"),
        (jwk(SECRET, k=b64(public(RSA))), IS_KEY),
        (jwk(SECRET, k=b64(public(RSA, DER))), IS_KEY),
        (jwk(SECRET, k=b64(json.dumps(jwk(RSA)).encode())), IS_KEY),
    ],
)
def test_unsuitable_key_is_skipped_and_reported(entry: object, why: str, write: Write) -> None:
    assert why in fault(jwks_file=write({"keys": [entry]}))
    path = write({"keys": [jwk(P256), entry]})
    ours = TokenVerifier.load(jwks_file=path)
    (reported,) = ours.ignored
    assert reported.startswith(f"{path}: key 2 ")
    assert why in reported
    assert ours.verify(token(P256, "ES256"), NOW).name == "ann"


def test_nothing_shows_a_secret(hs: TokenVerifier) -> None:
    assert hs.single is not None
    for shown in (repr(hs), repr(hs.single), str(hs), f"{hs.single}"):
        assert SECRET.decode()[:16] not in shown


# Warnings for operators.


def told_of(path: Path, form: str, **options: str) -> list[str]:
    name = "jwks_file" if form == "set" else "key_file"
    ours = TokenVerifier.load(**{name: str(path)}, **options)  # type: ignore[arg-type]
    files = {"key_file": "", "jwks_file": "", name: str(path)}
    return [*_tokens.warnings(ours, **files)]


@pytest.mark.parametrize(("mode", "is_wide"), [(0o600, False), (0o640, False), (0o644, True)])
@pytest.mark.parametrize("form", ["file", "set"])
def test_a_secret_that_others_can_read_is_warned_of(
    form: str, mode: int, is_wide: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a key"
    path.write_bytes(json.dumps({"keys": [jwk(SECRET)]}).encode() if form == "set" else SECRET)
    path.chmod(mode)
    result = told_of(path, form, audience="us")
    assert [f"has mode {mode:04o}" in line for line in result] == [True] * is_wide
    assert all(f"chmod 600 '{path}'" in line for line in result)


def test_a_public_key_may_be_read_by_all(write: Write) -> None:
    path = Path(write(public(RSA)))
    path.chmod(0o644)
    assert told_of(path, "file", audience="us") == []


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({}, "token_issuer, token_audience"),
        ({"issuer": "i"}, "(token_audience"),
        ({"audience": "a"}, ""),
    ],
)
def test_a_missing_audience_or_issuer_is_a_warning(
    options: dict[str, str], missing: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    result = told_of(path, "file", **options)
    assert len(result) == bool(missing)
    assert all(missing in line and "--token-audience" in line for line in result)


def test_an_identity_is_proved_while_its_key_and_audience_are_configured(
    write: Write,
) -> None:
    ours = verifier(write(public(RSA)))
    identity = ours.verify(token(RSA, "RS256"), NOW)
    assert ours.still_proves(identity)
    # The same key in a set, by another name.
    assert of_set(write, jwk(RSA, kid="k")).still_proves(identity)
    assert not verifier(write(SECRET)).still_proves(identity)
    assert not verifier(write(public(RSA)), audience="us").still_proves(identity)
    assert not ours.still_proves(evolve(identity, key=""))
