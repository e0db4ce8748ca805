"""``trio-stomp reload``: makes a local broker reload users, rules and certificates."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_access, is_loopback
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import (
    WELL,
    CannotDo,
    Parser,
    add_json,
    make_tool_parser,
    show_json,
)

NAME = "reload"

EPILOG = """\
It sends SIGHUP to the process that the broker reports (/varz), or that --pid names. The process
must run on this machine, and as the same user unless you are root. The broker's log reports the
result: if one file is wrong, nothing changes.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``reload``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: no answer arrived, or the process cannot be signalled.
    """
    given = make_parser().parse_args(list(argv))
    if sys.platform == "win32":
        raise CannotDo("there are no signals on Windows; restart the broker instead")
    if given.pid is None:
        site = open_site(given)
        if not is_loopback(site.address.host):
            raise OptionError(
                f"reload: {site.address.host} is another machine, which signals cannot reach; run "
                "this command there"
            )
        pid = _checked(site.operate("GET", "overview")["process"]["pid"])
    else:
        pid = given.pid
        if pid <= 1:
            raise OptionError(f"reload: --pid is {pid}, but must be the process of a broker")
    _hang_up(pid)
    if given.json:
        show_json({"pid": pid, "signal": "SIGHUP"})
    else:
        print(f"signalled process {pid} to reload its files; see its log for errors")
    return WELL


def _checked(pid: object) -> int:
    """Return the process id that the broker reports, if such a process here can be a broker.

    A broker in a container reports its id in the container, which is another process out here.
    """
    if not isinstance(pid, int) or pid <= 0:
        raise CannotDo("the broker does not report its process id; give it with --pid")
    file = Path(f"/proc/{pid}/cmdline")
    try:
        words = file.read_bytes()
    except OSError:
        words = None
    is_ours = words is not None and any(name in words for name in (b"trio_stomp", b"trio-stomp"))
    if pid == 1 or (Path("/proc/self/cmdline").exists() and not is_ours):
        raise CannotDo(
            f"the broker says it is process {pid}, which is another program here: if it runs in a "
            "container, run this there; else name the process with --pid"
        )
    return pid


def _hang_up(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        raise CannotDo(f"there is no process {pid}; has the broker ended?") from None
    except PermissionError:
        raise CannotDo(f"process {pid} belongs to another user; run this as that one") from None
    except OverflowError:
        raise CannotDo(f"no process has the number {pid}") from None


def make_parser() -> Parser:
    """Return the parser of the arguments after ``reload``."""
    parser = make_tool_parser(
        NAME, "Have a broker reload users, rules, keys and certificates.", EPILOG
    )
    parser.add_argument(
        "--pid", type=int, metavar="N", help="process id of the broker (default: ask the broker)"
    )
    add_json(parser)
    add_access(parser)
    return parser
