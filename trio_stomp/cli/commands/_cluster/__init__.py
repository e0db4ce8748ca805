"""``trio-stomp cluster``: show the nodes of a cluster, and move it from one to another.

Handles: the command, questions to nodes over the servers of NATS.
Does not handle: starting and stopping nodes; see ``serve``.
"""

from trio_stomp.cli.commands._cluster._command import COMMAND as COMMAND
