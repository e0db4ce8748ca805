"""``trio-stomp doctor``: checks whether this machine meets a broker's needs."""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

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
    say,
    show_json,
)
from trio_stomp.cli.commands._doctor._disk import check_data_directory
from trio_stomp.cli.commands._doctor._machine import (
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
from trio_stomp.config import COMMAND_LINE, CONFIG_VARIABLE, Given, Settings, Source, load

NAME = "doctor"

EPILOG = """\
It checks the settings that a broker would use: those of --config or of the file that
TRIO_STOMP_CONFIG names, of variables such as TRIO_STOMP__LISTEN__PORT, and of these options.

Each line is ok, warn (works, but not as well as it could) or FAIL, with the remedy. The exit code
is 1 if there is a FAIL. Nothing changes: the file that it writes to the data directory, to measure
the disk, is deleted again.
"""

Check = Callable[[], Iterator[Finding]]

OPTIONS = {
    "port": "--port",
    "host": "--host",
    "data_dir": "--data-dir",
    "max_connections": "--connections",
    "tls_cert": "--tls-cert",
    "tls_key": "--tls-key",
}
"""The settings that the command line takes, and their flags."""


def main(argv: Sequence[str]) -> int:
    """Run ``doctor``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
    """
    given = make_parser().parse_args(list(argv))
    settings = _settings(given)
    host, transport = settings.listen.host, settings.transport
    ports = [settings.listen.port, *([transport.tls_port] if transport.tls_port else [])]
    checks: list[Check] = [
        check_python,
        check_user,
        partial(check_descriptors, settings.server.max_connections),
        *(partial(check_port, host, port) for port in ports),
        check_clock,
        partial(check_data_directory, settings.store.data_dir),
        partial(check_tls, transport.tls_cert, transport.tls_key),
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


def _settings(given: argparse.Namespace) -> Settings:
    """Return the settings that ``serve`` would use with these options.

    Raises:
      OptionError: as for ``serve``.
    """
    chosen = {
        name: Given(value, Source(COMMAND_LINE, flag))
        for name, flag in OPTIONS.items()
        if (value := getattr(given, name)) is not None
    }
    return load(given.config, os.environ, chosen).settings


def _show(found: Sequence[Finding]) -> None:
    width = max(len(each.name) for each in found)
    for each in found:
        say(f"{SIGNS[each.status]:<4}  {each.name:<{width}}  {each.text}")
        if each.remedy:
            say(f"{'':<4}  {'':<{width}}  -> {each.remedy}")


def make_parser() -> Parser:
    """Return the parser of the arguments after ``doctor``."""
    parser = make_tool_parser(NAME, "Check whether this machine meets a broker's needs.", EPILOG)
    parser.add_argument(
        "-C",
        "--config",
        metavar="FILE",
        help=f"settings of the broker, as for serve (default: the file in {CONFIG_VARIABLE})",
    )
    parser.add_argument(
        "-p",
        "--port",
        type=port_number,
        metavar="PORT",
        help="port of the broker (default: from its settings, or 61613)",
    )
    parser.add_argument(
        "-b",
        "--host",
        metavar="HOST",
        help="address of the broker (default: from its settings, or 127.0.0.1)",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="data directory of the broker (default: from its settings, or none)",
    )
    parser.add_argument(
        "--connections",
        dest="max_connections",
        type=count,
        metavar="N",
        help="expected number of connections (default: its max_connections, or 20000)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="its certificate")
    parser.add_argument(
        "--tls-key", metavar="FILE", help="private key, if not in the certificate's file"
    )
    add_json(parser)
    add_progress(parser)
    return parser
