"""The authorizer: asks the rules for each SEND, SUBSCRIBE and schedule, and refuses.

Handles: refusals, rules that change while clients are connected.
Does not handle: who somebody is; see ``security``. What rules say; see ``rules``.
"""

from trio_stomp.broker.access._authorizer import Authorizer as Authorizer
