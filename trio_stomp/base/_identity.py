"""The identity of an authenticated client, from which its permissions follow."""

import math

from attrs import field, frozen

ANONYMOUS_NAME = "anonymous"
"""The name of clients without login in rules and logs; no user may have it."""


@frozen
class Identity:
    """A client's name, and the credentials that proved it.

    Args:
      name: The user; "" = not logged in.
      roles: Groups granted by the credentials (a token), in addition to those of the rules.
      expires_at: When the credentials expire, in seconds since 1970; inf = never.
      method: The kind of credentials: ``passcode``, ``token``, ``certificate``; "" = none.
      key: What the credentials were checked with: for a token a digest of its key and of the
        options, for a passcode a digest of the user's line, for a certificate the name that was
        mapped, for no login where the client is. "" = unknown, or this machine.
    """

    name: str = ""
    roles: frozenset[str] = frozenset()
    expires_at: float = math.inf
    method: str = ""
    key: str = field(default="", eq=False, repr=False)


ANONYMOUS = Identity()
