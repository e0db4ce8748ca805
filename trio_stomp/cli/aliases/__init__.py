"""Command lines of other brokers, accepted for compatibility.

Each module can be deleted without touching another.
"""

from trio_stomp.cli.aliases._stompserver import FLAGS as FLAGS
from trio_stomp.cli.aliases._stompserver import Storage as Storage
from trio_stomp.cli.aliases._stompserver import imported as imported
from trio_stomp.cli.aliases._stompserver import read_flags as read_flags
