"""``trio_stomp.run``: what ``python -m trio_stomp`` does, called from a program."""

import trio

from trio_stomp.cli._log import set_up_log
from trio_stomp.cli.commands._serve import CannotStart
from trio_stomp.cli.commands._serve import run as serve_until_signal
from trio_stomp.cli.process import (
    raise_file_limit,
    set_up_garbage_collection,
    set_up_threads,
)
from trio_stomp.config import Settings


def run(**settings: object) -> None:
    """Run a broker until a signal stops it, as ``python -m trio_stomp`` does. It blocks.

    SIGINT and SIGTERM stop it in order, a second one at once; SIGHUP has files of users, rules,
    keys and certificates read again. It logs to standard error, unless the program has set up
    ``logging`` before.

    Args:
      settings: As of ``Settings.of``: ``run(port=3490, ttl_ms=5000)``. No file and no variable is
        read.

    Raises:
      OptionError: a setting is wrong, or strangers could reach a broker that nobody has to log in
        to; no port was opened.
      OSError: the address cannot be listened on.
      StoreError: the store cannot be had.

    Limits: for the main thread of a process that is nothing else: file limit, garbage collection
    and signals are set up for the whole process. To run a broker beside other tasks, there is
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
        # What a command line tells in a line is, for a program, the error that was at its root.
        failure = error.__cause__
        assert failure is not None
        failure.add_note(str(error))
    if failure is not None:
        raise failure


def run_default() -> None:
    """``run`` with all defaults: on 127.0.0.1, port 61613."""
    run()
