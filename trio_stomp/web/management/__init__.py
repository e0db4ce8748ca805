"""The management interface at ``/api/v1``: operations, changes, and views of single things.

Handles: their parameters, rights, progress and results.
Does not handle: what they do to messages (``broker.managing``), lists (``web``).
"""

from trio_stomp.web.management._interface import add_operations as add_operations
from trio_stomp.web.management._interface import add_views as add_views
