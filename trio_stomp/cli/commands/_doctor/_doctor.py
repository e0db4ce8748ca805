"""``trio-stomp doctor``: checks whether this machine meets a broker's needs."""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import asdict

from trio_stomp.cli._command import JSON, PROGRESS, Argument, Command, count, port_number
from trio_stomp.cli._progress import progress
from trio_stomp.cli._tool import CANNOT, WELL, report
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


def _run(given: argparse.Namespace) -> int:
    """Run ``doctor``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
    """
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
    listed = {"ok": is_well, "checks": [asdict(each) for each in found]}
    return report(given, listed, *_lines(found), code=WELL if is_well else CANNOT)


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


def _lines(found: Sequence[Finding]) -> Iterator[str]:
    width = max(len(each.name) for each in found)
    for each in found:
        yield f"{SIGNS[each.status]:<4}  {each.name:<{width}}  {each.text}"
        if each.remedy:
            yield f"{'':<4}  {'':<{width}}  -> {each.remedy}"


COMMAND = Command(
    _run,
    (
        Argument(
            "-C --config FILE",
            f"settings of the broker, as for serve (default: the file in {CONFIG_VARIABLE})",
        ),
        Argument(
            "-p --port PORT",
            "port of the broker (default: from its settings, or 61613)",
            port_number,
        ),
        Argument(
            "-b --host HOST", "address of the broker (default: from its settings, or 127.0.0.1)"
        ),
        Argument(
            "--data-dir DIR", "data directory of the broker (default: from its settings, or none)"
        ),
        Argument(
            "--connections N",
            "expected number of connections (default: its max_connections, or 20000)",
            count,
            dest="max_connections",
        ),
        Argument("--tls-cert FILE", "its certificate"),
        Argument("--tls-key FILE", "private key, if not in the certificate's file"),
        JSON,
        PROGRESS,
    ),
    epilog=EPILOG,
)
