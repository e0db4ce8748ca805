"""trio_stomp: a STOMP 1.0-1.2 broker on Trio, over TCP and WebSocket on one port.

Run it with ``python -m trio_stomp``, or inside a program of yours::

    async with trio.open_nursery() as nursery:
        handle = await nursery.start(trio_stomp.serve, Settings.of(port=0))
        ...
        handle.stop()
"""

from typing import TYPE_CHECKING

from trio_stomp._lazy import lazily
from trio_stomp._version import __version__ as __version__

if TYPE_CHECKING:
    from trio_stomp.base import CloseReason as CloseReason
    from trio_stomp.base import OptionError as OptionError
    from trio_stomp.base import StompError as StompError
    from trio_stomp.cli import run as run
    from trio_stomp.cli import run_default as run_default
    from trio_stomp.config import Settings as Settings
    from trio_stomp.frames import Frame as Frame
    from trio_stomp.peer import Peer as Peer
    from trio_stomp.peer import memory_pipe as memory_pipe
    from trio_stomp.peer import open_peer as open_peer
    from trio_stomp.server import ServerEvent as ServerEvent
    from trio_stomp.server import ServerHandle as ServerHandle
    from trio_stomp.startup import serve as serve
else:
    # Where each name lives: looked up when it is used, so that ``trio_stomp.spark`` runs in
    # processes that have Spark and no Trio.
    _HOMES = {
        "base": "CloseReason OptionError StompError",
        "startup": "serve",
        "cli": "run run_default",
        "config": "Settings",
        "frames": "Frame",
        "peer": "Peer memory_pipe open_peer",
        "server": "ServerEvent ServerHandle",
    }
    __getattr__, __dir__ = lazily(__name__, _HOMES)
