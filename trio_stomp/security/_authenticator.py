"""Authentication, once per session, in the reading task before the core sees CONNECT."""

import logging
import time
from collections.abc import Callable, Hashable
from typing import Protocol

import trio
from attrs import define, evolve, field

from trio_stomp.base import ANONYMOUS, CloseReason, Identity, ProtocolError
from trio_stomp.frames import Headers
from trio_stomp.security._accounts import Accounts
from trio_stomp.security._credentials import Credentials, chosen, from_stomp
from trio_stomp.security._options import SecurityOptions
from trio_stomp.security._passcodes import PasscodeChecker
from trio_stomp.security._throttle import Throttle
from trio_stomp.security._tokens import TokenRefused
from trio_stomp.security._turns import Displaced, Path, Turns

logger = logging.getLogger("trio_stomp")

REMOTE = Identity(key="remote")
"""A client of another machine without a login."""
RETRY_S = 1.0
"""The delay sent to a client in ``retry-after-ms`` when too many others log in."""


class Visitor(Protocol):
    """A connection whose session is about to open.

    Args:
      remote: Its address, ``host:port``.
      is_loopback: Whether it connects from this machine.
      is_exposed: Whether it connects from another machine without encryption.
      certificate_names: The names in its certificate; empty = no certificate.
      offered: The credentials in the WebSocket's upgrade request, if any.
    """

    @property
    def remote(self) -> str: ...
    @property
    def is_loopback(self) -> bool: ...
    @property
    def is_exposed(self) -> bool: ...
    @property
    def certificate_names(self) -> tuple[str, ...]: ...
    @property
    def offered(self) -> Credentials | None: ...


@define(eq=False, repr=False)
class Attempts:
    """The number of logins so far, by result."""

    succeeded: int = 0
    failed: int = 0
    throttled: int = 0
    anonymous: int = 0
    not_anonymous: int = 0
    """Clients without credentials, where anonymous clients are not allowed."""


@define(eq=False, repr=False)
class _Check:
    """The check of a passcode, for whose result equal logins wait."""

    ended: trio.Event = field(factory=trio.Event)
    is_right: bool | None = None
    """The result; None = there is none yet, or the login that it was for has gone."""


_Pair = tuple[PasscodeChecker, Hashable, str, str]
"""Equal logins: who checks them, whether they go first, login and passcode."""


@define(eq=False, repr=False)
class Authenticator:
    """Authenticates visitors.

    Args:
      options: The limit of concurrent logins, and whether anonymous clients are allowed.
      accounts: Users, keys and certificates; replaced as a whole on a reload.
      wall_s: Returns the wall time in seconds since 1970.
      demands_tls: Whether logins from other machines must use TLS.
    """

    options: SecurityOptions
    accounts: Accounts = field(factory=Accounts)
    wall_s: Callable[[], float] = time.time
    demands_tls: bool = False
    throttle: Throttle = field(factory=Throttle)
    attempts: Attempts = field(factory=Attempts)
    _turns: Turns = field(init=False)
    _checks: dict[_Pair, _Check] = field(init=False, factory=dict)
    """The passcode checks that run or are queued, as many as ``_turns`` counts at most."""
    _limiter: trio.CapacityLimiter = field(init=False)
    """Limits the threads, including those whose client has left."""

    def __attrs_post_init__(self) -> None:
        self._turns = Turns(self.options.login_threads)
        self._limiter = trio.CapacityLimiter(self.options.login_threads)

    @property
    def waiting(self) -> int:
        """The number of passcode checks that run or are queued; equal logins share one."""
        return self._turns.count

    def lets_anonymous(self, *, is_loopback: bool) -> bool:
        """Return whether a client may connect without a login."""
        match self.options.anonymous:
            case "always":
                return True
            case "loopback":
                return is_loopback
            case "auto":
                return not self.accounts.exist and (is_loopback or self.options.insecure)
        return False

    def exists(self, identity: Identity) -> bool:
        """Return whether the user of an identity may still connect, as far as known."""
        if not identity.method:
            return self.lets_anonymous(is_loopback=True)
        return self.accounts.exists(identity)

    def knows(self, identity: Identity) -> bool:
        """Return whether what proved an identity would be accepted again."""
        if not identity.method:
            return self.lets_anonymous(is_loopback=not identity.key)
        return identity.expires_at > self.wall_s() and self.accounts.knows(identity)

    def exposure(self, visitor: Visitor) -> ProtocolError | None:
        """Return the error for credentials over an unencrypted connection, or None if allowed."""
        if not (self.demands_tls and visitor.is_exposed and self.accounts.exist):
            return None
        return ProtocolError(
            "tls-required",
            "logins from other machines require TLS: connect with stomps:// or wss://; the "
            "operator can accept them in the clear with --tls optional, or off",
            reason=CloseReason.TLS_REQUIRED,
        )

    async def identify(self, headers: Headers, visitor: Visitor) -> Identity:
        """Authenticate a visitor that sent CONNECT.

        Args:
          headers: The headers of CONNECT. Their credentials override those of the upgrade, and both
            override a certificate.
          visitor: The client and its other credentials.

        Raises:
          ProtocolError: the login is refused, or must wait (``retry-after-ms``).

        Checkpoint: only if a passcode must be hashed. Cancel: a running hash is finished in its
        thread, which counts towards the limit until then.
        """
        credentials = chosen(
            from_stomp(headers, tokens=self.accounts.tokens is not None), visitor.offered
        )
        exposure = self.exposure(visitor)
        if credentials is not None and self.accounts.exist:
            if exposure is not None:
                logger.warning("%s: refused a login in the clear", visitor.remote)
                raise exposure
            return await self._log_in(credentials, visitor)
        certified = self.accounts.certified(visitor.certificate_names)
        if certified is not None:
            self.attempts.succeeded += 1
            return certified
        if self.lets_anonymous(is_loopback=visitor.is_loopback):
            self.attempts.anonymous += 1
            return ANONYMOUS if visitor.is_loopback else REMOTE
        if exposure is not None:
            raise exposure
        self.attempts.not_anonymous += 1
        raise ProtocolError(
            "authentication-required",
            "this broker requires a login; send the headers login and passcode, or a token, in "
            "CONNECT",
            reason=CloseReason.AUTHENTICATION_FAILED,
        )

    async def _log_in(self, credentials: Credentials, visitor: Visitor) -> Identity:
        remote, login = visitor.remote, credentials.login
        if credentials.token:
            # Not throttled: a failure is usually an expired token, and would delay its neighbours.
            identity, why = self._check_token(credentials)
        else:
            identity, why = await self._check_passcode(login, credentials.passcode, remote)
        if identity is None:
            self.attempts.failed += 1
            logger.warning("%s: login of %r failed: %s", remote, login[:60], why)
            raise _failed()
        self.attempts.succeeded += 1
        return identity

    async def _check_passcode(
        self, login: str, passcode: str | None, remote: str
    ) -> tuple[Identity | None, str]:
        """Return the identity, or None and the reason, which is only for the operator."""
        self._check_wait(remote, login)
        identity, why = await self._look_up(login, passcode, remote)
        if identity is None:
            self.throttle.failed(remote, login, trio.current_time())
        else:
            self.throttle.succeeded(remote, login)
        return identity, why

    async def _look_up(
        self, login: str, passcode: str | None, remote: str
    ) -> tuple[Identity | None, str]:
        accounts = self.accounts
        checker = accounts.checker
        if checker is None:
            return None, "there are no users with passcodes (option passwd_file)"
        if passcode == "":
            return None, "an empty passcode proves nothing"
        if not await self._is_right(checker, login, passcode or "", remote):
            return None, "no such user, or the wrong passcode"
        if passcode is None:
            return None, "it sent no passcode"
        identity = accounts.proven(login)
        if not self.knows(identity):
            return None, "the user or the passcode was changed meanwhile"
        return identity, ""

    async def _is_right(
        self, checker: PasscodeChecker, login: str, passcode: str, remote: str
    ) -> bool:
        # A thread would cost more than the rest of the login, if the passcode is remembered.
        while not checker.recalls(login, passcode):
            path = self._path_of(remote, login)
            pair = checker, path[0], login, passcode
            check = self._checks.get(pair)
            if check is None:
                return await self._hash(pair, path, remote)
            await check.ended.wait()
            self._check_wait(remote, login)
            if check.is_right is not None:
                return check.is_right
        return True

    def _path_of(self, remote: str, login: str) -> Path:
        users = self.accounts.users
        return self.throttle.path_of(
            remote, login, is_known=users is not None and login in users.users
        )

    async def _hash(self, pair: _Pair, path: Path, remote: str) -> bool:
        """Check a passcode in a thread when its turn has come, for all equal logins."""
        checker, _, login, passcode = pair
        check = self._checks[pair] = _Check()
        try:
            async with self._turns.turn(path, self.options.max_waiting_logins):
                # Of many guesses sent at once, the first failures delay the others.
                self._check_wait(remote, login)
                check.is_right = await trio.to_thread.run_sync(
                    checker.check, login, passcode, limiter=self._limiter, abandon_on_cancel=True
                )
                return check.is_right
        except (RuntimeError, MemoryError):
            logger.exception("the login of %r could not be checked", login[:60])
            raise self._too_many(RETRY_S) from None
        except Displaced:
            raise self._too_many(RETRY_S) from None
        finally:
            del self._checks[pair]
            check.ended.set()

    def _check_wait(self, remote: str, login: str) -> None:
        wait_s = self.throttle.wait_s(remote, login, trio.current_time())
        if wait_s:
            self.attempts.throttled += 1
            raise self._too_many(wait_s)

    def _check_token(self, credentials: Credentials) -> tuple[Identity | None, str]:
        tokens = self.accounts.tokens
        if tokens is None:
            return None, "it sent a token, but there is no key for tokens (option token_key_file)"
        now_s = self.wall_s()
        try:
            identity = tokens.verify(credentials.token, now_s)
        except TokenRefused as refused:
            return None, str(refused)
        # RabbitMQ's clients send an arbitrary login with it.
        if longest_s := self.options.max_token_session_s:
            ends_at = min(identity.expires_at, now_s + longest_s)
            identity = evolve(identity, expires_at=ends_at)
        return identity, ""

    def _too_many(self, wait_s: float) -> ProtocolError:
        wait_ms = max(1, round(wait_s * 1000))
        return ProtocolError(
            "too-many-attempts",
            f"too many concurrent or failed logins; try again in {wait_ms} ms",
            reason=CloseReason.AUTHENTICATION_FAILED,
            headers=(("retry-after-ms", str(wait_ms)),),
        )


def _failed() -> ProtocolError:
    # One text for all failures, so that it does not reveal which users exist (C08).
    return ProtocolError(
        "authentication-failed",
        "Invalid Login! The login or its passcode or token is wrong",
        reason=CloseReason.AUTHENTICATION_FAILED,
    )
