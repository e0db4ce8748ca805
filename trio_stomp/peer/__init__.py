"""Floor 4: a low-level STOMP peer: frames in and out over any stream.

Handles: framing, bounded channels, an orderly end; for tests, tools, bridges, and custom servers
and clients.

Does not handle: the meaning of frames, version negotiation, heart-beats, reconnecting; for those
use ``trio_stomp.client``.
"""

from trio_stomp.peer import frames as frames
from trio_stomp.peer._peer import IncompleteFrame as IncompleteFrame
from trio_stomp.peer._peer import Peer as Peer
from trio_stomp.peer._peer import memory_pipe as memory_pipe
from trio_stomp.peer._peer import open_peer as open_peer
