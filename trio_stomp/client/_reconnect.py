"""The policy for reconnecting: exponential back-off with full jitter."""

import random
from collections.abc import Callable

from attrs import field, frozen

from trio_stomp.base import OptionError, StompError
from trio_stomp.client._errors import AuthenticationError, Refused, may_pass


@frozen
class ReconnectPolicy:
    """The delays and limits of attempts to connect again.

    The wait before attempt n is a random share of ``first_delay_s`` * 2**(n-1), at most
    ``max_delay_s``, so that clients that lost their connections together do not return together.

    Args:
      first_delay_s, max_delay_s: Bounds of the wait, in seconds.
      max_attempts: Failed attempts in a row before the client gives up; 0 = unlimited.
      stable_after_s: The age at which a connection resets the count of attempts.
      retry_first: Whether to retry the first connection instead of raising at once.
      retry_authentication: Whether to retry after a refused login, for passwords about to change.
        Off by default, as it causes a storm of refused logins.
      random: Gives a number from 0 to 1; for tests.
    """

    first_delay_s: float = 0.2
    max_delay_s: float = 30.0
    max_attempts: int = 0
    stable_after_s: float = 10.0
    retry_first: bool = False
    retry_authentication: bool = False
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __attrs_post_init__(self) -> None:
        if not 0 < self.first_delay_s <= self.max_delay_s:
            raise OptionError(
                f"first_delay_s={self.first_delay_s:g} must be above 0 and at most"
                f" max_delay_s={self.max_delay_s:g}"
            )
        if self.max_attempts < 0:
            raise OptionError(f"max_attempts={self.max_attempts} must be 0 or more")

    def delay_s(self, attempt: int, error: StompError) -> float:
        """Return the seconds before an attempt, at least the wait requested by the broker."""
        longest = self.first_delay_s * 2.0 ** min(attempt - 1, 60)
        wait_s = self.random() * min(longest, self.max_delay_s)
        if isinstance(error, Refused):
            wait_s += error.retry_after_s
        return wait_s

    def goes_on(self, attempt: int, error: StompError) -> bool:
        """Return whether to make this attempt."""
        if self.max_attempts and attempt > self.max_attempts:
            return False
        if isinstance(error, AuthenticationError):
            return self.retry_authentication
        return may_pass(error)
