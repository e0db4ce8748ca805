"""The identity of an authenticated client, from which its permissions follow."""

import math

from attrs import field, frozen

ANONYMOUS_NAME = "anonymous"
"""How rules and logs call who did not log in; no user may be called so."""


@frozen
class Identity:
    """A client's name and what came with the proof of it.

    Args:
      name: The user; "" = nobody logged in.
      roles: Groups that the proof itself grants (a token's), beside those of the rules.
      expires_at: When the proof ends, in seconds of wall time (Unix); inf = never.
      method: What proved it: ``passcode``, ``token``, ``certificate``; "" = nothing did.
      key: Of a token, a digest of what it was held to: the key that signed it, and the options.
    """

    name: str = ""
    roles: frozenset[str] = frozenset()
    expires_at: float = math.inf
    method: str = ""
    key: str = field(default="", eq=False, repr=False)


ANONYMOUS = Identity()
