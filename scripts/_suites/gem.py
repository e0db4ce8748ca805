"""The tests of the Ruby gem, including those that take a minute each."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _suites import outcomes, running
from _suites.outcomes import Outcomes
from _suites.sides import LOGIN, PASSCODE, Side

PATIENCE_S = 120
"""Time limit of a setting, which takes 15 s, and of a long test, which takes 65 s."""

LONG = tuple(
    f"test_conn_1p_{number}" for number in ("0080", "0090", "0100", "0130", "0135", "0140")
)
"""The tests of heart-beats, each of which sleeps for 65 s."""
NO_CONTENT_LENGTH = "test_conn_1p_0210"
"""Exists only with the setting for ActiveMQ, which leaves out assertions of other tests: it is run
separately."""

_ALL = 'Dir["./test/test_*.rb"].reject { |f| f =~ /helper/ }.sort.each { |f| require f }'
_ONE = 'require "./test/test_connection1p.rb"'

Settings = Mapping[str, Mapping[str, str]]
"""The variables of each setting, by its name in the results."""


def run(sources: Path, side: Side, scratch: Path) -> Outcomes:
    """Run them once in each version, with the STOMP command and with CRLF where the version permits
    these.

    The long ones mostly sleep, and run in their own processes beside the others.
    """
    del scratch
    folder, settings = sources / "stomp-gem", _settings(side)
    later = {name: reported for name, reported in settings.items() if "STOMP_TEST11p" in reported}
    load = _ALL if side.tls_port else _ALL.replace("helper", "helper|ssl")
    found: dict[str, str] = {}
    with ThreadPoolExecutor(len(later) * len(LONG)) as pool:
        long = [
            pool.submit(_ran, folder, name, {**reported, "STOMP_HB11LONG": "1"}, _ONE, test)
            for name, reported in later.items()
            for test in LONG
        ]
        for name, reported in settings.items():
            found |= _ran(folder, name, reported, load)
        for name, reported in later.items():
            found |= _ran(folder, name, {**reported, "STOMP_AMQ11": "1"}, _ONE, NO_CONTENT_LENGTH)
        for each in long:
            found |= each.result()
    return found


def _settings(side: Side) -> Settings:
    """Return the settings, each with all its variables."""
    base = {
        "STOMP_HOST": "127.0.0.1",
        "STOMP_PORT": str(side.port),
        "STOMP_SSLPORT": str(side.tls_port),
        "STOMP_USER": LOGIN,
        "STOMP_PASSCODE": PASSCODE,
    }
    if side.tls_port:
        base["STOMP_TESTSSL"] = "1"
    if side.name == "rabbitmq":
        base |= {"STOMP_RABBIT": "1", "STOMP_DOTQUEUE": "1", "STOMP_NOWILD": "1"}
    settings = {"1.0": base}
    for version in ("1.1", "1.2"):
        environment = {**base, "STOMP_TEST11p": version}
        settings |= {version: environment, f"{version} STOMP": {**environment, "STOMP_CONN": "1"}}
    crlf = {**base, "STOMP_TEST11p": "1.2", "STOMP_CRLF": "1"}
    return settings | {"1.2 CRLF": crlf, "1.2 CRLF STOMP": {**crlf, "STOMP_CONN": "1"}}


def _ran(
    folder: Path, setting: str, reported: Mapping[str, str], load: str, only: str = ""
) -> Outcomes:
    """Return the outcomes of all tests that it loads, or of one. FAILED if that prints none."""
    command = ["ruby", "-Ilib", "-Itest", "-e", load, "--", "--verbose", "--no-use-color"]
    if only:
        command += ["-n", only]
    result = outcomes.of_test_unit(running.run(command, folder, reported, PATIENCE_S))
    if only:
        name = f"TestConnection1P.{only}"
        result = {name: result.get(name, outcomes.FAILED)}
    return {f"{name} [{setting}]": each for name, each in result.items()}
