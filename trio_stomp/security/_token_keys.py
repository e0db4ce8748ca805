"""The keys that sign bearer tokens: PEM, raw secrets, JSON Web Key Sets.

Does not handle: fetching of keys.

The key alone determines the permitted algorithms, never the token: a public key verifies only
signatures of its kind, and nothing public is ever used as a secret.

Spec: RFC 7517 and 7518 (keys), RFC 8037 (Edwards curves).
"""

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from trio_stomp.base import OptionError

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

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
ALL_ALGORITHMS = (*_RSA, *_EDWARDS, *_BY_CURVE.values(), *(name for _, name in _BY_SECRET_BYTES))

# The members that make a public key, or a secret (RFC 7518 section 6, RFC 8037 section 2).
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_PEM = b"-----BEGIN"
_BEGIN = re.compile(rb"----[- ]BEGIN ")
_SSH = re.compile(rb"ssh-|ecdsa-sha2-")
_BYTE_ORDER_MARKS = b"\xef\xbb\xbf\xff\xfe"


class _Unusable(Exception):
    """A key cannot verify tokens. The text says why."""


@frozen(eq=False, repr=False)
class TokenKey:
    """A public key or secret, its permitted algorithms, and its name (``kid``) in a set, if any."""

    material: "AllowedPublicKeys | bytes"
    algorithms: tuple[str, ...]
    kid: str | None = None

    @property
    def is_secret(self) -> bool:
        """Return whether the key that verifies can also sign."""
        return isinstance(self.material, bytes)

    @property
    def digest(self) -> bytes:
        """A digest of the key material, independent of its name and file."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        material = self.material
        if not isinstance(material, bytes):
            material = material.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(material).digest()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"{path}: {why.lower()}; it must be a file of keys") from None
    if len(data) > MAX_KEY_FILE_BYTES:
        raise OptionError(f"{path}: is longer than {MAX_KEY_FILE_BYTES} bytes; it is not a key")
    return data


def read_key(path: str) -> TokenKey:
    """Return the key in a file with one key: a public key in PEM, or a secret.

    Raises:
      OptionError: the file cannot be read, or has no usable key.
    """
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
            "contains a private key, which must stay with the issuer; write its public key: "
            "openssl pkey -in PRIVATE -pubout"
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
    """Return a secret. Keys in another form are refused: a public key must not sign."""
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
            f" it has {len(data)}; make one with openssl rand -hex 32"
        )
    return data


def _is_key(data: bytes) -> bool:
    """Return whether data is a public or private key in PEM, SSH, JSON or DER format."""
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
    """Return the permitted algorithms of a key, by its kind and length."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    match material:
        case bytes():
            return tuple(name for minimum, name in _BY_SECRET_BYTES if len(material) >= minimum)
        case rsa.RSAPublicKey() if material.key_size < MIN_RSA_BITS:
            raise _Unusable(f"has {material.key_size} bits; RSA must have {MIN_RSA_BITS} or more")
        case rsa.RSAPublicKey():
            return _RSA
        case ec.EllipticCurvePublicKey() if material.curve.name in _BY_CURVE:
            return (_BY_CURVE[material.curve.name],)
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return _EDWARDS
    raise _Unusable("is of a kind that signs no tokens; it must be RSA, EC (P-256) or Ed25519")


def read_key_set(path: str) -> tuple[tuple[TokenKey, ...], tuple[str, ...]]:
    """Return the usable keys of a set, and why others are not usable (RFC 7517 section 5).

    Raises:
      OptionError: the file cannot be read, has no usable key, or has a private key.
    """
    try:
        found = json.loads(_read(path).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise OptionError(f"{path}: is not valid JSON; it must be a JSON Web Key Set") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise OptionError(
            f'{path}: is not a JSON Web Key Set, which is {{"keys": [...]}} with {MAX_KEYS} or less'
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
            "is a private key, which must stay with the issuer; write the set of public keys "
            "that the issuer publishes"
        )
    uses = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not (isinstance(uses, list) and "verify" in uses):
        raise _Unusable("is not for signatures (use, key_ops)")
    if not isinstance(kid, str | None):
        raise _Unusable("has a name (kid) that is not text")
    material = _material(kind, jwk)
    algorithms = _algorithms_of(material)
    if only is not None and only not in algorithms:
        raise _Unusable(
            f"has an alg that does not fit its kind; allowed are: {', '.join(algorithms)}"
        )
    return TokenKey(material, algorithms if only is None else (only,), kid)


def _material(kind: object, jwk: Mapping[str, Any]) -> "AllowedPublicKeys | bytes":
    from jwt import InvalidKeyError, algorithms

    public = {name: jwk.get(name) for name in _MEMBERS.get(str(kind), ())}
    if not public:
        raise _Unusable("has an unsupported kty; it must be RSA, EC, OKP or oct")
    for name, text in public.items():
        if not (isinstance(text, str) and _BASE64URL.fullmatch(text)):
            raise _Unusable(f"lacks {name}, or has one that is not valid base64url")
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
        raise _Unusable("is not a valid key of its kind; it may be damaged") from None
