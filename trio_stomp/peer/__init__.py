"""Floor 4: a low-level STOMP peer: frames in and out over any stream, and nothing more.

Handles: framing, bounded channels, the order of the end. For tests, tools, bridges, and servers
and clients of one's own.
Does not handle: what frames mean, versions to agree upon, heart-beats, reconnecting; for those
there is ``trio_stomp.client``.
"""

from trio_stomp.peer import frames as frames
from trio_stomp.peer._peer import IncompleteFrame as IncompleteFrame
from trio_stomp.peer._peer import Peer as Peer
from trio_stomp.peer._peer import memory_pipe as memory_pipe
from trio_stomp.peer._peer import open_peer as open_peer
