"""The accounts: users, token keys and certificate names, as last read from the files."""

from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType

from attrs import frozen

from trio_stomp.base import ANONYMOUS_NAME, Identity, OptionError
from trio_stomp.security._options import SecurityOptions
from trio_stomp.security._passcodes import PasscodeChecker
from trio_stomp.security._tokens import TokenVerifier
from trio_stomp.security._tokens import warnings as token_warnings
from trio_stomp.security._users import UserBook, read_user_file, warnings

NO_CERTIFICATES: Mapping[str, str] = MappingProxyType({})
COMMON_NAME, MAPPED = "common-name", "mapped"
PASSCODE, TOKEN, CERTIFICATE = "passcode", "token", "certificate"


@frozen(repr=False)
class Accounts:
    """Users, the keys of tokens, and the users of certificates.

    Args:
      tls_login: How a certificate identifies its user: ``off``, ``common-name`` or ``mapped``.
      certificates: The user of each certificate name, for ``mapped``.
    """

    users: UserBook | None = None
    checker: PasscodeChecker | None = None
    tokens: TokenVerifier | None = None
    tls_login: str = "off"
    certificates: Mapping[str, str] = NO_CERTIFICATES

    @classmethod
    def read(
        cls, options: SecurityOptions, tls_login: str, certificates: Mapping[str, str]
    ) -> "Accounts":
        """Read all files. This may take as long as a hash, so call it in a thread.

        Raises:
          OptionError: a file is wrong; the text names the file and the line.
        """
        users = read_user_file(options.passwd_file) if options.passwd_file else None
        tokens = None
        if options.token_key_file or options.token_jwks_file:
            tokens = TokenVerifier.load(
                key_file=options.token_key_file,
                jwks_file=options.token_jwks_file,
                issuer=options.token_issuer,
                audience=options.token_audience,
                user_claim=options.token_user_claim,
                roles_claim=options.token_roles_claim,
            )
        if tls_login == MAPPED and not certificates:
            raise OptionError(
                "tls_login is 'mapped', but no certificate is mapped: write a table [certificates]"
                " into the file of --acl-file"
            )
        checker = PasscodeChecker(users) if users is not None else None
        return cls(users, checker, tokens, tls_login, certificates)

    @property
    def exist(self) -> bool:
        """Return whether there is any way to log in."""
        return self.users is not None or self.tokens is not None or self.tls_login != "off"

    def warnings(self, options: SecurityOptions) -> tuple[str, ...]:
        """Return warnings about the files that ``read`` has read."""
        found: tuple[str, ...] = ()
        if self.tokens is not None:
            files = options.token_key_file, options.token_jwks_file
            found = tuple(token_warnings(self.tokens, *files))
        if self.users is not None:
            passwd_file = options.passwd_file
            found += warnings(passwd_file, self.users)
            if not self.users.users:
                found += (f"{passwd_file}: has no users, so no client can log in with a passcode",)
            if self.checker is not None and self.checker.odd:
                found += (
                    f"{passwd_file}: {self.checker.odd} of {len(self.users.users)} users have"
                    " hashes with other parameters than most: the time of a failed login tells"
                    " that they exist; renew them: python -m trio_stomp passwd add --replace",
                )
        return found

    def certified(self, names: tuple[str, ...]) -> Identity | None:
        """Return the identity of a client with a certificate, or None if it maps to no user.

        Args:
          names: The names in the certificate, most specific first.
        """
        user, key = None, ""
        if self.tls_login == MAPPED:
            key = next((each for each in names if each in self.certificates), "")
            user = self.certificates.get(key)
        elif self.tls_login == COMMON_NAME:
            # The last one: the first is the whole subject, which may begin the same way.
            user = next((each[3:] for each in reversed(names) if each.startswith("CN=")), None)
        if not user or user == ANONYMOUS_NAME or not user.isprintable():
            return None
        return Identity(user, method=CERTIFICATE, key=key)

    def proven(self, login: str) -> Identity:
        """Return the identity of a user with the right passcode."""
        return Identity(login, method=PASSCODE, key=self._line_of(login))

    def _line_of(self, login: str) -> str:
        """Return a digest of a user's line, by which a later one is told apart; "" = no user."""
        stored = None if self.users is None else self.users.users.get(login)
        return "" if stored is None else blake2b(stored.encode(), digest_size=16).hexdigest()

    def exists(self, identity: Identity) -> bool:
        """Return whether the user of an identity may still log in.

        For a token user this says only that tokens are accepted; for a common name, that
        certificates are.
        """
        match identity.method:
            case "passcode":
                return self.users is not None and identity.name in self.users.users
            case "token":
                return self.tokens is not None
        if self.tls_login == MAPPED:
            return identity.name in self.certificates.values()
        return self.tls_login == COMMON_NAME

    def knows(self, identity: Identity) -> bool:
        """Return whether the credentials that proved an identity are still valid.

        If they are unknown, as for the sender of a stored message, its user must exist.
        """
        if not identity.key:
            return self.exists(identity)
        match identity.method:
            case "passcode":
                return self._line_of(identity.name) == identity.key
            case "token":
                return self.tokens is not None and self.tokens.still_proves(identity)
        return self.tls_login == MAPPED and self.certificates.get(identity.key) == identity.name
