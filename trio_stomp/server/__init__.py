"""Floor 4: the tasks around the core.

Handles: accepting, reading, dispatching in turns, writing, deadlines, memory, shutdown.
Does not handle: the meaning of frames, the choice of statistics, web pages, configuration.
"""

from trio_stomp.server._accepting import Door as Door
from trio_stomp.server._accepting import accept_from as accept_from
from trio_stomp.server._clock import Clock as Clock
from trio_stomp.server._dispatcher import FrameHandler as FrameHandler
from trio_stomp.server._handle import Changes as Changes
from trio_stomp.server._handle import Entrance as Entrance
from trio_stomp.server._handle import EventFeed as EventFeed
from trio_stomp.server._handle import ServerEvent as ServerEvent
from trio_stomp.server._handle import ServerHandle as ServerHandle
from trio_stomp.server._inner import InnerServer as InnerServer
from trio_stomp.server._limits import ServerLimits as ServerLimits
from trio_stomp.server._server import Diagnostics as Diagnostics
from trio_stomp.server._server import Server as Server
from trio_stomp.server._server import Traffic as Traffic
from trio_stomp.server.connection import ANSWER_BYTES as ANSWER_BYTES
from trio_stomp.server.connection import API as API
from trio_stomp.server.connection import Connection as Connection
from trio_stomp.server.connection import Send as Send
from trio_stomp.server.connection import WebOperation as WebOperation
from trio_stomp.server.io import TURN as TURN
