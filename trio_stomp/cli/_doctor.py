"""``trio_stomp doctor``: does this machine have what a broker needs?"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trio_stomp.cli._doctor_disk import check_data_directory
from trio_stomp.cli._doctor_machine import (
    FAIL,
    SIGNS,
    Finding,
    check_clock,
    check_descriptors,
    check_java,
    check_libraries,
    check_port,
    check_python,
    check_tls,
    check_user,
)
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import (
    CANNOT,
    WELL,
    Parser,
    add_json,
    add_progress,
    count,
    make_tool_parser,
    port_number,
    printable,
    show_json,
)

NAME = "doctor"

EPILOG = """\
Each line is ok, warn (it works, but not as well as it could) or FAIL, with the remedy. The exit
code is 1 if there is a FAIL. It changes nothing: what it writes to the data directory, to see how
fast the disk is, it takes away again.
"""

Check = Callable[[], Iterator[Finding]]


def main(argv: Sequence[str]) -> int:
    """Do what the words after ``doctor`` say, and return the exit code.

    Raises:
      OptionError: the operator's fault; its text is the one line to show.
    """
    given = make_parser().parse_args(list(argv))
    checks: list[Check] = [
        check_python,
        check_user,
        partial(check_descriptors, given.connections),
        partial(check_port, given.host, given.port),
        check_clock,
        partial(check_data_directory, given.data_dir),
        partial(check_tls, given.tls_cert, given.tls_key),
        check_java,
        check_libraries,
    ]
    found: list[Finding] = []
    with progress("doctor", wanted=given.progress) as tell:
        for number, check in enumerate(checks, 1):
            found += check()
            tell(number, len(checks))
    is_well = all(finding.status != FAIL for finding in found)
    if given.json:
        show_json(
            {
                "ok": is_well,
                "checks": [
                    {
                        "name": each.name,
                        "status": each.status,
                        "text": each.text,
                        "remedy": each.remedy,
                    }
                    for each in found
                ],
            }
        )
    else:
        _show(found)
    return WELL if is_well else CANNOT


def _show(found: Sequence[Finding]) -> None:
    width = max(len(each.name) for each in found)
    for each in found:
        print(f"{SIGNS[each.status]:<4}  {each.name:<{width}}  {printable(each.text)}")
        if each.remedy:
            print(f"{'':<4}  {'':<{width}}  -> {printable(each.remedy)}")


def make_parser() -> Parser:
    """Return the parser of the words after ``doctor``."""
    parser = make_tool_parser(NAME, "Check what a broker needs of this machine.", EPILOG)
    parser.add_argument(
        "-p",
        "--port",
        type=port_number,
        default=61613,
        metavar="PORT",
        help="of the broker (default: 61613)",
    )
    parser.add_argument(
        "-b", "--host", default="127.0.0.1", metavar="HOST", help="of it (default: 127.0.0.1)"
    )
    parser.add_argument("--data-dir", default="", metavar="DIR", help="of it (default: none)")
    parser.add_argument(
        "--connections",
        type=count,
        default=20_000,
        metavar="N",
        help="how many it is to take, its --max-connections (default: 20000)",
    )
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="its certificate")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="its key, if apart")
    add_json(parser)
    add_progress(parser)
    return parser
