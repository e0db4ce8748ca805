"""Bearer tokens (JWT): whether one of our keys signed it, for whom, until when.

Handles: signed tokens in the compact form, keys in PEM, raw secrets, JSON Web Key Sets.
Does not handle: encrypted tokens, fetching of keys, revocation.

Which algorithms may be used follows from the key alone, and never from the token: a public key
verifies what its own kind signs, and nothing that is public is ever taken for a secret.

Spec: RFC 7519 (JWT), RFC 7515 (signatures), RFC 7517 and 7518 (keys), RFC 8725 (best practice).
"""

import base64
import contextlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from trio_stomp._errors import OptionError, StompError
from trio_stomp._identity import ANONYMOUS_NAME, Identity

if TYPE_CHECKING:
    from jwt import PyJWS
    from jwt.algorithms import AllowedPublicKeys

MAX_TOKEN_CHARS = 16 * 1024
MAX_NAME_BYTES = 255
MAX_KEY_FILE_BYTES = 1024 * 1024
MAX_KEYS = 100
MIN_SECRET_BYTES = 32
MIN_RSA_BITS = 2048

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EDWARDS = ("EdDSA",)
_BY_CURVE = {
    "secp256r1": "ES256",
    "secp384r1": "ES384",
    "secp521r1": "ES512",
    "secp256k1": "ES256K",
}
# RFC 7518 section 3.2: a secret is at least as long as the hash.
_BY_SECRET_BYTES = ((32, "HS256"), (48, "HS384"), (64, "HS512"))
_ALL = (*_RSA, *_EDWARDS, *_BY_CURVE.values(), *(name for _, name in _BY_SECRET_BYTES))

# The members that make a public key, or a secret (RFC 7518 section 6, RFC 8037 section 2).
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}

_JWT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_PEM = b"-----BEGIN"
_BEGIN = re.compile(rb"----[- ]BEGIN ")
_SSH = re.compile(rb"ssh-|ecdsa-sha2-")
_BYTE_ORDER_MARKS = b"\xef\xbb\xbf\xff\xfe"
_NOT_IN_NAMES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class TokenRefused(StompError):
    """A token is not good here. The text is for the operator's log and tells nothing of it."""


class _Unusable(Exception):
    """A key cannot verify tokens; the text says why."""


@frozen(eq=False, repr=False)
class TokenKey:
    """A public key or a secret, what it may verify, and its name (``kid``) in its set, if any."""

    material: "AllowedPublicKeys | bytes"
    algorithms: tuple[str, ...]
    kid: str | None = None


@frozen(eq=False, repr=False)
class TokenVerifier:
    """Says whose a token is. To be made by ``load``.

    Args:
      single: The key of the file with one key: it is tried for any token.
      keys: Those of the set: by the name that the token tells, and those without a name for tokens
        that tell none.
      ignored: Why keys of the set cannot be used; for the operator's log.
    """

    single: TokenKey | None
    keys: tuple[TokenKey, ...]
    ignored: tuple[str, ...]
    issuer: str
    audience: str
    user_claim: str
    roles_claim: str
    leeway_s: float
    _jws: "PyJWS"

    @classmethod
    def load(
        cls,
        key_file: str = "",
        jwks_file: str = "",
        issuer: str = "",
        audience: str = "",
        user_claim: str = "sub",
        roles_claim: str = "roles",
        leeway_s: float = 30.0,
    ) -> "TokenVerifier":
        """Read the keys. It reads files and blocks.

        Args:
          key_file: A public key in PEM (RSA, EC, Ed25519), or a secret of 32 bytes or more; line
            ends behind a secret that is text are no part of it.
          jwks_file: A JSON Web Key Set. Keys of it that are not for this are left out, and told.
          issuer: What ``iss`` must be; "" = anything.
          audience: What ``aud`` must hold; "" = anything, so also tokens for other services.
          user_claim: The claim with the user's name. Dots lead into nested claims, unless a claim
            has the whole name.
          roles_claim: The claim with the roles, a list or words; "" = tokens grant none.
          leeway_s: How far the issuer's clock may be from ours, in seconds.

        Raises:
          OptionError: the operator's fault; it names the file, the rule and the remedy.
        """
        try:
            import cryptography  # noqa: F401  # PyJWT does without, but knows no public keys then
            from jwt import PyJWS
        except ImportError as error:
            raise OptionError(f"tokens: {error}: pip install 'trio-stomp[security]'") from None
        if not (key_file or jwks_file):
            raise OptionError("tokens need a key: set token_key_file or token_jwks_file")
        if not user_claim:
            raise OptionError("token_user_claim is empty; it must name the claim that is the user")
        if not 0 <= leeway_s < math.inf:
            raise OptionError(f"the leeway of tokens is {leeway_s} s, but must be 0 s or more")
        single = _read_key(key_file) if key_file else None
        keys, ignored = _read_set(jwks_file) if jwks_file else ((), ())
        claims = (issuer, audience, user_claim, roles_claim)
        return cls(single, keys, ignored, *claims, float(leeway_s), PyJWS(_ALL))

    def verify(self, token: str, wall_s: float) -> Identity:
        """Who a token says its bearer is.

        ``expires_at`` of the answer is ``exp`` and the leeway: always later than ``wall_s``.

        Args:
          wall_s: Now, in seconds of wall time (Unix).

        Raises:
          TokenRefused: it is none of ours, not good now, not for us, or names nobody; the client's
            fault, unless an option is wrong.
        """
        claims = self._signed_claims(token)
        expires_at = self._check_times(claims, wall_s)
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenRefused("its issuer (iss) is not that of the option token_issuer")
        if self.audience:
            told = claims.get("aud")
            if self.audience not in (told if isinstance(told, list) else [told]):
                raise TokenRefused("its audience (aud) lacks that of the option token_audience")
        return Identity(self._name(claims), self._roles(claims), expires_at, "token")

    def _signed_claims(self, token: str) -> dict[str, Any]:
        """What a token says, once a key has been found that signed it."""
        from jwt import PyJWTError

        if len(token) > MAX_TOKEN_CHARS:
            raise TokenRefused(f"it is longer than {MAX_TOKEN_CHARS} characters")
        match = _JWT.fullmatch(token)
        if match is None:
            raise TokenRefused("it is no signed token (JWT), which has three parts in base64url")
        header = _object(match[1], "its header")
        if "crit" in header or "b64" in header:
            # RFC 7515 section 4.1.11: what is critical and not understood must be refused.
            raise TokenRefused("its header asks for an extension (crit, b64); none is known here")
        keys = self._keys_for(header.get("kid"))
        usable = [key for key in keys if header.get("alg") in key.algorithms]
        if not usable:
            allowed = sorted({name for key in keys for name in key.algorithms})
            raise TokenRefused(f"its algorithm is not one of its key's: {', '.join(allowed)}")
        for key in usable:
            try:
                self._jws.decode_complete(token, key.material, key.algorithms)
            except (PyJWTError, ValueError, TypeError):
                continue
            return _object(match[2], "what it claims")
        raise TokenRefused("its signature is by none of the keys that it may be by")

    def _keys_for(self, kid: object) -> list[TokenKey]:
        keys = [key for key in self.keys if key.kid == kid]
        if self.single is not None:
            keys.append(self.single)
        if not keys and kid is None:
            raise TokenRefused("it names no key (kid), and every key of the set has a name")
        if not keys:
            raise TokenRefused("it names a key (kid) that the set lacks; is the set out of date?")
        return keys

    def _check_times(self, claims: Mapping[str, Any], wall_s: float) -> float:
        """Check when a token is good (RFC 7519 sections 4.1.4 to 4.1.6); when it no longer is."""
        leeway = f"with a leeway of {self.leeway_s:g} s"
        expires_at = _seconds(claims, "exp")
        if expires_at is None:
            raise TokenRefused("it has no exp; only tokens that expire are taken")
        if not wall_s < expires_at + self.leeway_s:
            raise TokenRefused(f"it has expired (exp, {leeway})")
        for name in ("nbf", "iat"):
            begins_at = _seconds(claims, name)
            if begins_at is not None and not begins_at - self.leeway_s <= wall_s:
                raise TokenRefused(f"it is not good yet ({name}, {leeway}); is a clock wrong?")
        return expires_at + self.leeway_s

    def _name(self, claims: Mapping[str, Any]) -> str:
        where = f"its claim {self.user_claim} (option token_user_claim)"
        name = _claim(claims, self.user_claim)
        if name is None:
            raise TokenRefused(f"{where} is not there")
        if name == ANONYMOUS_NAME:
            raise TokenRefused(f"{where} is {ANONYMOUS_NAME!r}, which is nobody's name")
        return _word(name, where)

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[str]:
        where = f"its claim {self.roles_claim} (option token_roles_claim)"
        told = _claim(claims, self.roles_claim)
        roles = told.split() if isinstance(told, str) else told or []
        if not isinstance(roles, list):
            raise TokenRefused(f"{where} is neither text nor a list of texts")
        return frozenset(_word(role, where) for role in roles)


def _object(segment: str, what: str) -> dict[str, Any]:
    """The JSON object in a part of a token."""
    try:
        found = json.loads(base64.urlsafe_b64decode(segment + "==").decode())
    except (ValueError, RecursionError):
        raise TokenRefused(f"{what} is no JSON in base64url") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"{what} is no JSON object")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    told = claims.get(name, 0)
    try:
        is_number = isinstance(told, int | float) and not isinstance(told, bool)
        if not (is_number and math.isfinite(told)):
            raise TokenRefused(f"its claim {name} is no number of seconds")
    except OverflowError:
        raise TokenRefused(f"its claim {name} is no time that comes") from None
    return float(told) if name in claims else None


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """A claim, or None: that of the whole name if there is one, else by its dots."""
    if path in claims:
        return claims[path]
    for place, letter in enumerate(path):
        inner = claims.get(path[:place]) if letter == "." else None
        found = _claim(inner, path[place + 1 :]) if isinstance(inner, dict) else None
        if found is not None:
            return found
    return None


def _word(word: object, where: str) -> str:
    """A claim that is fit to be the name of a user or a role."""
    if not isinstance(word, str):
        raise TokenRefused(f"{where} is no text")
    if not word or word != word.strip():
        raise TokenRefused(f"{where} is empty, or begins or ends with a space")
    if any(unicodedata.category(letter) in _NOT_IN_NAMES for letter in word):
        raise TokenRefused(f"{where} holds a control character")
    if len(word.encode()) > MAX_NAME_BYTES:
        raise TokenRefused(f"{where} is longer than {MAX_NAME_BYTES} bytes")
    return word


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"{path}: {why.lower()}; it must be a file of keys") from None
    if len(data) > MAX_KEY_FILE_BYTES:
        raise OptionError(f"{path}: is longer than {MAX_KEY_FILE_BYTES} bytes; it is no key")
    return data


def _read_key(path: str) -> TokenKey:
    """The one key of a file: public in PEM, or a secret."""
    data = _read(path)
    material: AllowedPublicKeys | bytes
    try:
        if _PEM in data:
            material = _public_key(data)
        else:
            text = data.rstrip(b"\r\n")
            is_text = text.isascii() and text.decode().isprintable()
            material = _secret(text if is_text else data)
        return TokenKey(material, _algorithms_of(material))
    except _Unusable as error:
        raise OptionError(f"{path}: {error}") from None


def _public_key(data: bytes) -> "AllowedPublicKeys":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in data:
        raise _Unusable(
            "holds a private key, which must stay with who signs; write its public key:"
            " openssl pkey -in PRIVATE -pubout"
        )
    if b"CERTIFICATE" in data:
        raise _Unusable(
            "holds a certificate; write its public key: openssl x509 -in CERTIFICATE -noout -pubkey"
        )
    if data.count(_PEM) > 1:
        raise _Unusable("holds more than one key; write several as a JSON Web Key Set")
    try:
        return load_pem_public_key(data)  # type: ignore[return-value]  # _algorithms_of checks
    except (ValueError, UnsupportedAlgorithm):
        raise _Unusable(
            "holds no public key in PEM, which begins with -----BEGIN PUBLIC KEY-----"
        ) from None


def _secret(data: bytes) -> bytes:
    """A secret. A key in another form is refused: it may be public, and so may sign nothing."""
    text = data.replace(b"\0", b"").lstrip(_BYTE_ORDER_MARKS).strip()  # UTF-16 has NULs
    forms = [data, text]
    with contextlib.suppress(ValueError):
        forms.append(base64.b64decode(b"".join(text.split()), validate=True))
    if any(_is_key(form) for form in forms):
        raise _Unusable(
            "is a key, but neither a public key in PEM nor a secret; write a public key in ASCII"
            " with its line -----BEGIN PUBLIC KEY-----, and JSON Web Keys as a set"
        )
    if len(data) < MIN_SECRET_BYTES:
        raise _Unusable(
            f"is neither a public key in PEM nor a secret of {MIN_SECRET_BYTES} bytes or more:"
            f" it has {len(data)}; a good one is made by openssl rand -hex 32"
        )
    return data


def _is_key(data: bytes) -> bool:
    """Whether it is a key, public or not, in PEM, SSH's form, JSON or DER."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509 import load_der_x509_certificate

    is_json = data.isascii() and data[:1] + data[-1:] in (b"{}", b"[]")
    if is_json or b'"kty"' in data or _BEGIN.search(data) or _SSH.search(data[:40]):
        return True
    for load in (
        serialization.load_der_public_key,
        load_der_x509_certificate,
        lambda data: serialization.load_der_private_key(data, None),
    ):
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            load(data)
            return True
    return False


def _algorithms_of(material: object) -> tuple[str, ...]:
    """What a key may verify: its kind says so, and its length."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    match material:
        case bytes():
            return tuple(name for least, name in _BY_SECRET_BYTES if len(material) >= least)
        case rsa.RSAPublicKey() if material.key_size < MIN_RSA_BITS:
            raise _Unusable(f"has {material.key_size} bits; RSA must have {MIN_RSA_BITS} or more")
        case rsa.RSAPublicKey():
            return _RSA
        case ec.EllipticCurvePublicKey() if material.curve.name in _BY_CURVE:
            return (_BY_CURVE[material.curve.name],)
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return _EDWARDS
    raise _Unusable("is of a kind that signs no tokens; it must be RSA, EC (P-256) or Ed25519")


def _read_set(path: str) -> tuple[tuple[TokenKey, ...], tuple[str, ...]]:
    """The keys of a set, and why others of it cannot be used (RFC 7517 section 5)."""
    try:
        found = json.loads(_read(path).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise OptionError(f"{path}: is no JSON; it must be a JSON Web Key Set") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise OptionError(
            f'{path}: is no JSON Web Key Set, which is {{"keys": [...]}} with {MAX_KEYS} or less'
        )
    keys, ignored = [], []
    for number, jwk in enumerate(listed, 1):
        try:
            keys.append(_key_of_set(jwk if isinstance(jwk, dict) else {}))
        except _Unusable as error:
            ignored.append(f"key {number} {error}")
        except OptionError as error:
            raise OptionError(f"{path}: key {number} {error}") from None
    if not keys:
        why = ignored[0] if ignored else "it is empty"
        raise OptionError(f"{path}: holds no key that verifies tokens: {why}")
    return tuple(keys), tuple(f"{path}: {each}" for each in ignored)


def _key_of_set(jwk: Mapping[str, Any]) -> TokenKey:
    kid, kind, only = jwk.get("kid"), jwk.get("kty"), jwk.get("alg")
    if kind != "oct" and "d" in jwk:
        raise OptionError(
            "is a private key, which must stay with who signs; write the set of public keys that"
            " the issuer publishes"
        )
    uses = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not (isinstance(uses, list) and "verify" in uses):
        raise _Unusable("is not for signatures (use, key_ops)")
    if not isinstance(kid, str | None):
        raise _Unusable("has a name (kid) that is no text")
    material = _material(kind, jwk)
    algorithms = _algorithms_of(material)
    if only is not None and only not in algorithms:
        raise _Unusable(f"has an alg that is not one of its kind's: {', '.join(algorithms)}")
    return TokenKey(material, algorithms if only is None else (only,), kid)


def _material(kind: object, jwk: Mapping[str, Any]) -> "AllowedPublicKeys | bytes":
    from jwt import InvalidKeyError, algorithms

    public = {name: jwk.get(name) for name in _MEMBERS.get(str(kind), ())}
    if not public:
        raise _Unusable("has a kty that is not known here; it must be RSA, EC, OKP or oct")
    for name, text in public.items():
        if not (isinstance(text, str) and _BASE64URL.fullmatch(text)):
            raise _Unusable(f"lacks {name}, or has one that is no base64url")
    public["kty"] = kind
    try:
        match kind:
            case "RSA":
                return algorithms.RSAAlgorithm.from_jwk(public)  # type: ignore[return-value]
            case "EC":
                return algorithms.ECAlgorithm.from_jwk(public)  # type: ignore[return-value]
            case "OKP":
                return algorithms.OKPAlgorithm.from_jwk(public)  # type: ignore[return-value]
        return _secret(algorithms.HMACAlgorithm.from_jwk(public))
    except (InvalidKeyError, ValueError, TypeError):
        raise _Unusable("is no key of its kind; it may be damaged") from None
