"""Authentication, access rules and TLS from the operator's files, and their reload."""

import logging
import ssl
import time
from collections.abc import Sequence

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import AccessRules, built_in_rules
from trio_stomp.config import Change, Settings, read_acl_file, rule_changes
from trio_stomp.security import Accounts
from trio_stomp.transport import ProxyNetworks, TlsBox

logger = logging.getLogger("trio_stomp")

USERS, PASSCODE, OTHER = "users", "a passcode", "another passcode"


@frozen
class ListenAddress:
    """An address on which the broker is about to listen.

    Args:
      is_loopback: Whether only this machine can reach it.
      is_secret: Whether it is encrypted already, as a program's own TLS listener.
    """

    address: str
    is_loopback: bool
    is_secret: bool = False


@frozen(repr=False)
class Access:
    """The content of the security files, not yet in force."""

    accounts: Accounts
    rules: AccessRules | None
    context: ssl.SSLContext | None
    revoked: frozenset[str] = frozenset()
    """Revoked client certificates, by their keys."""


@define(eq=False, repr=False)
class Security:
    """Authentication, access rules and TLS in force.

    Args:
      context: A TLS context of the embedding program; None = TLS as in the settings.
      tls: None = there is no certificate.
      proxies: None = there are no trusted proxies.
    """

    settings: Settings
    context: ssl.SSLContext | None = None
    accounts: Accounts = field(factory=Accounts)
    rules: AccessRules | None = None
    tls: TlsBox | None = None
    proxies: ProxyNetworks | None = None

    @property
    def tls_way(self) -> str:
        """Return the TLS mode of ordinary listeners: ``off``, ``optional`` or ``required``."""
        if self.context is not None:
            return "required"
        way = self.settings.transport.tls if self.tls is not None else "off"
        return "optional" if way == "auto" else way

    @property
    def demands_tls(self) -> bool:
        """Return whether remote logins must be encrypted: always, unless configured otherwise."""
        return self.settings.transport.tls == "auto"

    async def open(self) -> None:
        """Read all files for the first time.

        Raises:
          OptionError: a file is wrong; the text names it.

        Checkpoint: always. Cancel: after the files have been read.
        """
        await trio.to_thread.run_sync(self._open)

    def _open(self) -> None:
        access = self._read(self.settings)
        self.accounts, self.rules = access.accounts, access.rules
        transport = self.settings.transport
        if self.context is not None:
            if transport.tls_cert:
                raise OptionError("tls_cert, or ssl_context: not both")
            self.tls = TlsBox.over(self.context)
        elif transport.tls_cert:
            self.tls = TlsBox(
                transport.tls_cert,
                transport.tls_key,
                client_ca=transport.tls_client_ca,
                client_certificates=transport.tls_client_certificates,
                client_crl=transport.tls_client_crl,
                minimum=transport.tls_min_version,
            )
        if transport.proxy_addresses:
            self.proxies = ProxyNetworks.parse(transport.proxy_addresses)
        self._warn()

    async def read(self, settings: Settings) -> "Access":
        """Read the files that ``settings`` name again, without putting them in force (see ``use``).

        Raises:
          OptionError: as ``open``.

        Checkpoint: always. Cancel: nothing has changed.
        """
        return await trio.to_thread.run_sync(self._read, settings)

    def changes(self, access: "Access") -> tuple[Change, ...]:
        """Return the differences of users and rules between those in force and others."""
        old, new = (
            {} if each.users is None else each.users.users
            for each in (self.accounts, access.accounts)
        )
        users = [
            Change(
                USERS,
                name,
                before=PASSCODE if name in old else "",
                after="" if name not in new else OTHER if name in old else PASSCODE,
                is_live=True,
            )
            for name in dict.fromkeys([*old, *new])
            if old.get(name) != new.get(name)
        ]
        # Rules in the settings are compared with these.
        is_from_file = bool(self.settings.security.acl_file) or self.settings.rules is None
        return (*users, *(rule_changes(self.rules, access.rules) if is_from_file else ()))

    def use(self, access: "Access") -> None:
        """Put the result of ``read`` in force."""
        self.accounts, self.rules = access.accounts, access.rules
        if self.tls is not None and access.context is not None:
            self.tls.context, self.tls.revoked = access.context, access.revoked
        self._warn()

    def _read(self, settings: Settings) -> "Access":
        options = settings.security
        rules = read_acl_file(options.acl_file) if options.acl_file else settings.rules
        certificates = rules.certificates if rules is not None else {}
        accounts = Accounts.read(options, settings.transport.tls_login, certificates)
        if rules is None and accounts.exist:
            rules = built_in_rules()
        if self.tls is None:
            return Access(accounts, rules, None)
        return Access(accounts, rules, self.tls.load(), self.tls.read_revoked())

    def _warn(self) -> None:
        warnings = list(self.accounts.warnings(self.settings.security))
        if self.tls is not None:
            warnings += self.tls.warnings(time.time())
        for line in warnings:
            logger.warning("%s", line)

    def check_addresses(self, addresses: Sequence[ListenAddress]) -> None:
        """Refuse to listen beyond loopback without authentication, or without encryption.

        Args:
          addresses: The addresses on which the broker is about to listen.

        Raises:
          OptionError: listening there is not safe; the text names the address and the remedies.
        """
        public = [each for each in addresses if not each.is_loopback]
        if not self.accounts.exist:
            if public and not self.settings.security.insecure:
                raise OptionError(
                    f"{public[0].address} is reachable from other machines without a login: give "
                    "users with --passwd-file FILE (made by: python -m trio_stomp passwd add "
                    "FILE USER), or listen on 127.0.0.1, or set --insecure if everybody who can "
                    "reach it may do everything"
                )
            return
        self._check_exposed([each.address for each in public if not each.is_secret])

    def _check_exposed(self, exposed: Sequence[str]) -> None:
        """Refuse an address with unencrypted logins, or warn if the operator allows them."""
        where = exposed[0] if exposed else ""
        if not where and self.proxies is not None:
            where = "connections through a proxy (--proxy-addresses)"
        if not where or self.tls_way == "required":
            return
        if self.demands_tls and self.tls is None:
            raise OptionError(
                f"{where} is reachable from other machines, and without a certificate logins "
                "would be sent in the clear: give --tls-cert FILE (and --tls-key FILE), or "
                "listen on 127.0.0.1, or set --tls off if TLS ends in front of the broker, or if "
                "others on the network path may read passcodes and messages"
            )
        if not self.demands_tls:
            logger.warning(
                "%s accepts logins from other machines in the clear, since --tls is %s: "
                "others on the network path can read passcodes and messages, unless TLS ends "
                "in front of the broker",
                where,
                self.settings.transport.tls,
            )
