"""The clients of the matrix: how each is started, and what it requires."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.foreign import JS, node_or_skip

HERE = Path(__file__).parent
JARS = Path("/usr/share/java")
ACTIVEMQ = (
    "activemq-stomp",
    "activemq-client",
    "hawtbuf",
    "slf4j-api",
    "geronimo-j2ee-management-1.1-spec",
)
PATIENCE_S = 60

Program = Callable[[], list[str]]
"""The command that runs a client, or a skip that says loudly what is missing."""


def _program_or_skip(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name.upper()} IS NOT THERE: nothing was tested with {what}")
    return path


def _check_or_skip(command: list[str], what: str) -> None:
    found = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    if found.returncode:
        pytest.skip(f"{what.upper()} IS NOT THERE: nothing was tested with it")


def _stomp_py() -> list[str]:
    return [sys.executable, "-m", "tests.interop.stomp_py"]


def _stompest() -> list[str]:
    if importlib.util.find_spec("stompest") is None:
        pytest.skip("STOMPEST IS NOT THERE (extra test): nothing was tested with it")
    return [sys.executable, "-m", "tests.interop.stompest_sync"]


def _stompjs() -> list[str]:
    return [node_or_skip(), str(HERE / "stompjs_node.mjs")]


def _stompit() -> list[str]:
    node = node_or_skip()
    if not (JS / "node_modules" / "stompit").is_dir():
        pytest.skip("STOMPIT IS NOT THERE (npm ci in tests/js): nothing was tested with it")
    return [node, str(HERE / "stompit.mjs")]


def _gem() -> list[str]:
    ruby = _program_or_skip("ruby", "its gem stomp")
    _check_or_skip([ruby, "-e", "require 'stomp'"], "Ruby's gem stomp")
    return [ruby, str(HERE / "stomp_gem.rb")]


def _perl() -> list[str]:
    perl = _program_or_skip("perl", "Net::Stomp")
    _check_or_skip([perl, "-MNet::Stomp", "-MIO::Socket::SSL", "-e1"], "Perl's Net::Stomp")
    return [perl, str(HERE / "net_stomp.pl")]


def _php() -> list[str]:
    php = _program_or_skip("php", "its extension stomp")
    _check_or_skip([php, "-r", "exit(extension_loaded('stomp') ? 0 : 1);"], "PHP's stomp")
    return [php, str(HERE / "stomp.php")]


def _java() -> list[str]:
    java = _program_or_skip("java", "ActiveMQ's StompConnection")
    # It runs a source file, which needs the compiler.
    _program_or_skip("javac", "ActiveMQ's StompConnection")
    jars = [JARS / f"{name}.jar" for name in ACTIVEMQ]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        names = ", ".join(missing)
        pytest.skip(f"LIBACTIVEMQ-JAVA IS NOT THERE ({names}): nothing was tested with it")
    # The file is a link's target if it has a version in its name.
    versions = JARS.glob("activemq-stomp-*.jar")
    version = next((each.stem.removeprefix("activemq-stomp-") for each in versions), "unknown")
    path = ":".join(map(str, jars))
    return [java, f"-Dactivemq.version={version}", "-cp", path, str(HERE / "ActiveMqStomp.java")]


PROGRAMS: Mapping[str, Program] = {
    "stomp.py": _stomp_py,
    "stompest": _stompest,
    "stompjs in Node": _stompjs,
    "stompit": _stompit,
    "stomp (gem)": _gem,
    "Net::Stomp": _perl,
    "php-stomp": _php,
    "StompConnection": _java,
}
"""All but the one that runs in a browser."""
