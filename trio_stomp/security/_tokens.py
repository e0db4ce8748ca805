"""Bearer tokens (JWT): verification of signature, user and expiry.

Handles: signed tokens in the compact form. Does not handle: encrypted tokens, revocation.

Spec: RFC 7519 (JWT), RFC 7515 (signatures), RFC 8725 (best practice).
"""

import base64
import hashlib
import json
import math
import os
import re
import shlex
import stat
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from trio_stomp.base import ANONYMOUS_NAME, Identity, OptionError, StompError
from trio_stomp.security._token_keys import ALL_ALGORITHMS, TokenKey, read_key, read_key_set

if TYPE_CHECKING:
    from jwt import PyJWS

MAX_TOKEN_CHARS = 16 * 1024
MAX_NAME_BYTES = 255
_JWT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_NOT_IN_NAMES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class TokenRefused(StompError):
    """A token is refused. The text is for the operator's log, and does not quote the token."""


@frozen(eq=False, repr=False)
class TokenVerifier:
    """Verifies tokens. Created by ``load``.

    Args:
      single: The key of the file with one key, tried for every token.
      keys: The keys of the set, by the name in the token; those without a name are for tokens
        without one.
      ignored: Why keys of the set are not usable, for the operator's log.
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
    proofs: Mapping[TokenKey, str] = field(init=False)
    """The value of ``Identity.key`` for tokens signed by each key."""

    @proofs.default
    def _digests(self) -> Mapping[TokenKey, str]:
        checks = repr((self.issuer, self.audience, self.user_claim, self.roles_claim)).encode()
        return {
            key: hashlib.sha256(key.digest + checks).hexdigest()
            for key in (*self.keys, *([self.single] if self.single is not None else []))
        }

    @classmethod
    def load(
        cls,
        key_file: str = "",
        jwks_file: str = "",
        *,
        issuer: str = "",
        audience: str = "",
        user_claim: str = "sub",
        roles_claim: str = "roles",
        leeway_s: float = 30.0,
    ) -> "TokenVerifier":
        """Read the keys from files. Blocks.

        Args:
          key_file: A public key in PEM (RSA, EC, Ed25519), or a secret of 32 bytes or more; a
            line end after a secret that is text is ignored.
          jwks_file: A JSON Web Key Set. Keys that are not usable are left out and reported.
          issuer: The required value of ``iss``; "" = any.
          audience: The required member of ``aud``; "" = any, so also tokens for other services.
          user_claim: The claim with the user's name. Dots select nested claims, unless a claim has
            the whole name.
          roles_claim: The claim with the roles, a list or words; "" = no roles.
          leeway_s: The tolerated difference to the issuer's clock, in seconds.

        Raises:
          OptionError: a file is wrong; the text names the file, the rule and the remedy.
        """
        try:
            import cryptography  # noqa: F401  # without it PyJWT supports no public keys
            from jwt import PyJWS
        except ImportError as error:
            raise OptionError(f"tokens: {error}: pip install 'pyjwt[crypto]'") from None
        if not (key_file or jwks_file):
            raise OptionError("tokens need a key: set token_key_file or token_jwks_file")
        if not user_claim:
            raise OptionError("token_user_claim is empty; it must name the claim that is the user")
        if not 0 <= leeway_s < math.inf:
            raise OptionError(f"the leeway of tokens is {leeway_s} s, but must be 0 s or more")
        single = read_key(key_file) if key_file else None
        keys, ignored = read_key_set(jwks_file) if jwks_file else ((), ())
        return cls(
            single,
            keys=keys,
            ignored=ignored,
            issuer=issuer,
            audience=audience,
            user_claim=user_claim,
            roles_claim=roles_claim,
            leeway_s=float(leeway_s),
            jws=PyJWS(ALL_ALGORITHMS),
        )

    def verify(self, token: str, wall_s: float) -> Identity:
        """Return the identity that a token proves.

        Its ``expires_at`` is ``exp`` plus the leeway, always later than ``wall_s``.

        Args:
          token: The token.
          wall_s: The wall time now, in seconds since 1970.

        Raises:
          TokenRefused: no key signed it, it is not valid now or not for this audience, or names no
            user; the client's fault, unless an option is wrong.
        """
        claims, key = self._signed_claims(token)
        expires_at = self._check_times(claims, wall_s)
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenRefused("its issuer (iss) is not that of the option token_issuer")
        if self.audience:
            audiences = claims.get("aud")
            if self.audience not in (audiences if isinstance(audiences, list) else [audiences]):
                raise TokenRefused("its audience (aud) lacks that of the option token_audience")
        name, roles = self._name(claims), self._roles(claims)
        return Identity(name, roles, expires_at, "token", self.proofs[key])

    def still_proves(self, identity: Identity) -> bool:
        """Return whether the key of an identity still exists, with the same checks."""
        return identity.key in self.proofs.values()

    def _signed_claims(self, token: str) -> tuple[dict[str, Any], TokenKey]:
        """Return the claims of a token, and the key that signed it."""
        from jwt import PyJWTError

        if len(token) > MAX_TOKEN_CHARS:
            raise TokenRefused(f"it is longer than {MAX_TOKEN_CHARS} characters")
        match = _JWT.fullmatch(token)
        if match is None:
            raise TokenRefused("it is not a signed token (JWT), which has three parts in base64url")
        header = _object(match[1], "its header")
        if "crit" in header or "b64" in header:
            # RFC 7515 section 4.1.11: unknown critical extensions must be refused.
            raise TokenRefused("its header asks for an extension (crit, b64); none is supported")
        keys = self._keys_for(header)
        usable = [key for key in keys if header.get("alg") in key.algorithms]
        if not usable:
            allowed = sorted({name for key in keys for name in key.algorithms})
            raise TokenRefused(
                f"its algorithm does not fit its key, which allows: {', '.join(allowed)}"
            )
        for key in usable:
            try:
                self._jws.decode_complete(token, key.material, key.algorithms)
            except (PyJWTError, ValueError, TypeError):
                continue
            return _object(match[2], "its payload"), key
        raise TokenRefused("it is not signed by any of the configured keys")

    def _keys_for(self, header: Mapping[str, Any]) -> list[TokenKey]:
        kid = header.get("kid")
        if "kid" in header and not isinstance(kid, str):
            raise TokenRefused("its key name (kid) is not text")
        keys = [key for key in self.keys if key.kid == kid]
        if self.single is not None:
            keys.append(self.single)
        if not keys and kid is None:
            raise TokenRefused("it names no key (kid), and every key of the set has a name")
        if not keys:
            raise TokenRefused("it names a key (kid) that the set lacks; is the set out of date?")
        return keys

    def _check_times(self, claims: Mapping[str, Any], wall_s: float) -> float:
        """Check the validity period (RFC 7519 sections 4.1.4 to 4.1.6), and return the expiry."""
        leeway = f"with a leeway of {self.leeway_s:g} s"
        expires_at = _seconds(claims, "exp")
        if expires_at is None:
            raise TokenRefused("it has no exp; only tokens that expire are accepted")
        if not wall_s < expires_at + self.leeway_s:
            raise TokenRefused(f"it has expired (exp, {leeway})")
        for name in ("nbf", "iat"):
            begins_at = _seconds(claims, name)
            if begins_at is not None and not begins_at - self.leeway_s <= wall_s:
                raise TokenRefused(f"it is not valid yet ({name}, {leeway}); is a clock wrong?")
        return expires_at + self.leeway_s

    def _name(self, claims: Mapping[str, Any]) -> str:
        where = f"its claim {self.user_claim} (option token_user_claim)"
        name = _claim(claims, self.user_claim)
        if name is None:
            raise TokenRefused(f"{where} is missing")
        if name == ANONYMOUS_NAME:
            raise TokenRefused(f"{where} is {ANONYMOUS_NAME!r}, which cannot be a user's name")
        return _word(name, where)

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[str]:
        where = f"its claim {self.roles_claim} (option token_roles_claim)"
        claim = _claim(claims, self.roles_claim) if self.roles_claim else None
        roles = claim.split() if isinstance(claim, str) else claim or []
        if not isinstance(roles, list):
            raise TokenRefused(f"{where} is neither text nor a list of texts")
        return frozenset(_word(role, where) for role in roles)


def warnings(verifier: TokenVerifier, key_file: str, jwks_file: str) -> Iterable[str]:
    """Yield warnings about the keys, one line each.

    Args:
      verifier: The verifier of tokens.
      key_file: The file of a key; "" = none.
      jwks_file: The file of a key set; "" = none.
    """
    yield from verifier.ignored
    is_secret = verifier.single is not None and verifier.single.is_secret
    has_secrets = any(key.is_secret for key in verifier.keys)
    for path in [key_file] * is_secret + [jwks_file] * has_secrets:
        with suppress(OSError, ValueError):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if mode & (stat.S_IROTH | stat.S_IWOTH):  # a dedicated group is as common as 0600
                yield (
                    f"{path} has mode {mode:04o}, and holds a secret that tokens are signed with:"
                    " every user of this machine can create tokens for any user; chmod 600"
                    f" {shlex.quote(path)}"
                )
    if not verifier.audience:
        missing = "token_audience" if verifier.issuer else "token_issuer, token_audience"
        yield (
            f"tokens issued for other services are accepted ({missing}: empty); set"
            " --token-audience to what the issuer calls this broker"
        )


def _object(segment: str, what: str) -> dict[str, Any]:
    """Decode a part of a token into a JSON object."""
    try:
        found = json.loads(base64.urlsafe_b64decode(segment + "==").decode())
    except (ValueError, RecursionError):
        raise TokenRefused(f"{what} is not valid JSON in base64url") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"{what} is not a JSON object")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name, 0)
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value)):
            raise TokenRefused(f"its claim {name} is not a number of seconds")
    except OverflowError:
        raise TokenRefused(f"its claim {name} is not a valid time") from None
    return float(value) if name in claims else None


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return the claim of the whole name, else the one selected by its dots, or None."""
    if path in claims:
        return claims[path]
    for index, letter in enumerate(path):
        inner = claims.get(path[:index]) if letter == "." else None
        found = _claim(inner, path[index + 1 :]) if isinstance(inner, dict) else None
        if found is not None:
            return found
    return None


def _word(word: object, where: str) -> str:
    """Return a claim that is valid as the name of a user or a role."""
    if not isinstance(word, str):
        raise TokenRefused(f"{where} is not text")
    if not word or word != word.strip():
        raise TokenRefused(f"{where} is empty, or begins or ends with a space")
    if any(unicodedata.category(letter) in _NOT_IN_NAMES for letter in word):
        raise TokenRefused(f"{where} holds a control character")
    if len(word.encode()) > MAX_NAME_BYTES:
        raise TokenRefused(f"{where} is longer than {MAX_NAME_BYTES} bytes")
    return word
