"""The command line: ``python -m trio_stomp``, or ``trio-stomp``.

Handles: options and their help, made from ``config``; the words and flags of the seeds' command
lines; logging, signals, and the set-up of a process that is only a broker.

Does not handle: what a broker does (``server``), or what an option means (the floor it is of).
"""

from trio_stomp.cli._arguments import Arguments as Arguments
from trio_stomp.cli._arguments import parse as parse
from trio_stomp.cli._serve import main as main
