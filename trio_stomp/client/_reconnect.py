"""When to connect again: exponential back-off with full jitter."""

import random
from collections.abc import Callable

from attrs import field, frozen

from trio_stomp.base import OptionError, StompError
from trio_stomp.client._errors import AuthenticationError, Refused, may_pass


@frozen
class ReconnectPolicy:
    """The delays and limits of attempts to connect again.

    The wait before attempt n is a random share of ``first_delay_s`` * 2**(n-1), at most
    ``max_delay_s``: clients that were cut off together do not come back together.

    Args:
      first_delay_s, max_delay_s: Bounds of the wait, in seconds.
      max_attempts: Attempts in a row before the client gives up; 0 = it never does.
      stable_after_s: A link that held that long has the count begin anew.
      retry_first: Whether the first connection is tried again too, instead of an error at once.
      retry_authentication: Whether a wrong password is tried again: for passwords that somebody
        else is about to change. Off, since it makes a storm of refused logins.
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
        """Return the seconds before an attempt, at least those that the broker requests."""
        longest = self.first_delay_s * 2.0 ** min(attempt - 1, 60)
        wait_s = self.random() * min(longest, self.max_delay_s)
        if isinstance(error, Refused):
            wait_s += error.retry_after_s
        return wait_s

    def goes_on(self, attempt: int, error: StompError) -> bool:
        """Return whether to make attempt number ``attempt``."""
        if self.max_attempts and attempt > self.max_attempts:
            return False
        if isinstance(error, AuthenticationError):
            return self.retry_authentication
        return may_pass(error)
