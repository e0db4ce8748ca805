"""``trio_stomp.run``: ``python -m trio_stomp`` as a function call."""

import trio

from trio_stomp.cli._log import set_up_log
from trio_stomp.cli.commands._serve import CannotStart
from trio_stomp.cli.commands._serve import run as serve_until_signal
from trio_stomp.cli.process import raise_file_limit, set_up_garbage_collection, set_up_threads
from trio_stomp.config import Settings


def run(**settings: object) -> None:
    """Run a broker until a signal stops it, as ``python -m trio_stomp`` does. This blocks.

    SIGINT and SIGTERM stop it in order, a second one at once. SIGHUP reloads users, rules, keys
    and certificates. The broker logs to standard error, unless the program has set up ``logging``.

    Args:
      settings: As for ``Settings.of``: ``run(port=3490, ttl_ms=5000)``. Neither files nor
        environment variables are read.

    Raises:
      OptionError: a setting is wrong, or a broker without authentication would be exposed beyond
        this machine; no port was opened.
      OSError: the broker cannot listen on the address.
      StoreError: the store is not available.

    Limits: call it in the main thread of a process of its own, since it sets up file limit,
    garbage collection and signals of the whole process. To run a broker beside other tasks, use
    ``trio_stomp.serve``.
    """
    chosen = Settings.of(**settings)
    set_up_log(chosen.log.log_level, chosen.log.log_format)
    warning = raise_file_limit(chosen.server.max_connections)
    set_up_garbage_collection()
    set_up_threads()
    failure: BaseException | None = None
    try:
        trio.run(serve_until_signal, chosen, warning)
    except CannotStart as error:
        # The command line wraps errors in one line of text; a program gets the original error.
        failure = error.__cause__
        assert failure is not None
        failure.add_note(str(error))
    if failure is not None:
        raise failure


def run_default() -> None:
    """Call ``run`` with all defaults: 127.0.0.1, port 61613."""
    run()
