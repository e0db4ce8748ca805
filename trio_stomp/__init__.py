"""trio_stomp: a STOMP 1.0-1.2 broker on Trio, over TCP and WebSocket on one port.

Run it with ``python -m trio_stomp``, or inside a program of yours::

    async with trio.open_nursery() as nursery:
        handle = await nursery.start(trio_stomp.serve, Settings.of(port=0))
        ...
        handle.stop()
"""

from trio_stomp._errors import CloseReason as CloseReason
from trio_stomp._errors import OptionError as OptionError
from trio_stomp._errors import StompError as StompError
from trio_stomp._serve import serve as serve
from trio_stomp._version import __version__ as __version__
from trio_stomp.config import Settings as Settings
from trio_stomp.server import ServerHandle as ServerHandle
