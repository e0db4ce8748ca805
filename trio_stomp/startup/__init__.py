"""Assembly of a broker from its configuration.

Handles: listeners, security, the store, the server.
Does not handle: the command line; see ``cli``.
"""

from trio_stomp.startup._engine_access import nats_options as nats_options
from trio_stomp.startup._entrances import check_addresses as check_addresses
from trio_stomp.startup._entry import serve as serve
from trio_stomp.startup._security import Security as Security
