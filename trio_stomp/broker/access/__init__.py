"""The authorizer, which checks each SEND, SUBSCRIBE and schedule against the access rules.

Handles: refusals, and rules that change while clients are connected.
Does not handle: authentication; see ``security``. The rules themselves; see ``rules``.
"""

from trio_stomp.broker.access._authorizer import Authorizer as Authorizer
