"""The command line: ``python -m trio_stomp``, or ``trio-stomp``.

Handles: commands and their help; a broker's options, generated from ``config``; the options of
stompserver's and stompica's command lines; logging, signals, and the set-up of a broker's process;
tools that use and operate a running broker.

Does not handle: the broker itself (``server``), or the meaning of options (their own floors).
"""

from typing import TYPE_CHECKING

from trio_stomp._lazy import lazily
from trio_stomp.cli._main import main as main

if TYPE_CHECKING:
    from trio_stomp.cli._arguments import Arguments as Arguments
    from trio_stomp.cli._arguments import parse as parse
    from trio_stomp.cli.commands._run import run as run
    from trio_stomp.cli.commands._run import run_default as run_default
else:
    # These import the whole broker, which would make a health check slow.
    _HOMES = {"_arguments": "Arguments parse", "commands._run": "run run_default"}
    __getattr__, __dir__ = lazily(__name__, _HOMES)
