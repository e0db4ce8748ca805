"""The management interface: operations at ``/api/v1``, which take many turns of the broker.

Handles: their parameters, rights, progress and results.
Does not handle: what they do to messages (``broker.managing``), lists (``web``).
"""

from trio_stomp.web.management._operations import add_operations as add_operations
