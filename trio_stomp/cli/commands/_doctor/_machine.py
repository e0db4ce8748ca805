"""The checks of ``doctor`` on the process, the port, the clock and the libraries."""

import ctypes
import errno
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from trio_stomp._version import __version__
from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import Address
from trio_stomp.cli._http_get import Site, Unreachable
from trio_stomp.cli._tool import AT_HOME, CannotDo, cause_of, remedy_of_listening
from trio_stomp.cli.process import SPARE_FILES, variant_suffix

OK, WARN, FAIL = "ok", "warn", "fail"
SIGNS = {OK: "ok", WARN: "warn", FAIL: "FAIL"}

FEW_FILES = SPARE_FILES + 16
ANSWER_S = 3.0
JAVA_S = 20.0
JAVA_NEEDED = 17
JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
CLOCK_UNSYNCHRONIZED = 5
"""TIME_ERROR of adjtimex(2)."""
A_DAY_S = 24 * 3600.0

LIBRARIES = (
    ("rich", "rich", "progress bars, and `top`"),
    ("shtab", "shtab", "completion in the shell"),
    ("lark", "lark", "selectors"),
    ("cronsim", "cronsim", "AMQ_SCHEDULED_CRON"),
    ("argon2", "argon2-cffi", "hashed passcodes"),
    ("jwt", "'pyjwt[crypto]'", "bearer tokens"),
    ("sqlalchemy", "'trio-stomp[sql]'", "messages in a database"),
    ("psycopg", "'trio-stomp[postgresql]'", "messages in PostgreSQL"),
    ("prometheus_client", "prometheus-client", "/metrics for Prometheus"),
    ("pyspark", "'trio-stomp[spark]'", "the analysis of the DIAG stream"),
)
"""Modules that a broker starts without, with what pip installs for each and its use."""


@frozen
class Finding:
    """The result of one check.

    Args:
      status: ``ok``, ``warn`` or ``fail``.
      remedy: A remedy; "" = not needed.
    """

    status: str
    name: str
    text: str
    remedy: str = ""


def check_python() -> Iterator[Finding]:
    """Report the versions of Python and the broker."""
    text = f"trio_stomp {__version__}{variant_suffix()}, {platform.python_implementation()} "
    text += f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform == "win32":
        remedy = "use Linux or macOS where messages must survive"
        yield Finding(WARN, "python", f"{text}: no signals, no journal", remedy)
    else:
        yield Finding(OK, "python", text)


def check_user() -> Iterator[Finding]:
    """Check whether the broker would run as root."""
    if getattr(os, "geteuid", lambda: 1)() == 0:
        yield Finding(
            WARN, "user", "this is root, which a broker does not need", "run it as a dedicated user"
        )
    else:
        yield Finding(OK, "user", "not root")


def check_descriptors(connections: int) -> Iterator[Finding]:
    """Check whether the process may open enough files for all connections."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The broker raises the soft limit itself.
    reach = float("inf") if hard == resource.RLIM_INFINITY else hard
    limits = f"soft limit {_limit(soft)}, hard limit {_limit(hard)}"
    wanted = connections + SPARE_FILES
    if reach >= wanted:
        yield Finding(OK, "descriptors", f"{limits}: enough for {connections} connections")
        return
    room = max(int(reach) - SPARE_FILES, 0)
    yield Finding(
        FAIL if reach < FEW_FILES else WARN,
        "descriptors",
        f"{limits}: enough for about {room} of {connections} connections",
        f"raise the hard limit: ulimit -Hn {wanted}, or LimitNOFILE={wanted} in systemd",
    )


def _limit(value: int) -> str:
    import resource

    return "none" if value == resource.RLIM_INFINITY else str(value)


def check_port(host: str, port: int) -> Iterator[Finding]:
    """Check whether the port is free, and identify its user if not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = Address(host, port, is_tls=False).netloc
    try:
        socket.create_server((host, port), family=family).close()
    except (OSError, UnicodeError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            yield _who_answers(host, port, place)
            return
        text = f"{place} is not available: {cause_of(error)}"
        yield Finding(FAIL, "port", text, remedy_of_listening(error) or AT_HOME)
        return
    yield Finding(OK, "port", f"{place} is free" if port else f"{host} has free ports")


def _who_answers(host: str, port: int, place: str) -> Finding:
    site = Site(Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, False), None)
    other = "stop it, or choose another --port"
    try:
        answer = site.get("/livez", ANSWER_S)
    except Unreachable:
        return Finding(
            FAIL, "port", f"{place} is in use by a program that does not speak plain HTTP", other
        )
    if answer.status != 200 or answer.body.strip() != b"ok":
        return Finding(FAIL, "port", f"{place} is in use by another program", other)
    try:
        pid = site.operate("GET", "overview")["process"]["pid"]
    except CannotDo:
        pid = None
    who = f" (process {pid})" if isinstance(pid, int) else ""
    return Finding(OK, "port", f"{place}: another trio_stomp is running there{who}")


def check_clock(now: float | None = None) -> Iterator[Finding]:
    """Check whether the clock is plausible and synchronized."""
    now = time.time() if now is None else now
    today = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    remedy = "set the clock, and synchronize it with chrony, ntpd or systemd-timesyncd"
    written = Path(__file__).stat().st_mtime
    if now < written - A_DAY_S:
        text = f"it is {today}, before this program was installed: expiry and tokens will fail"
        yield Finding(FAIL, "clock", text, remedy)
    elif is_synchronized() is False:
        yield Finding(WARN, "clock", f"it is {today}; the clock is not synchronized", remedy)
    else:
        yield Finding(OK, "clock", f"it is {today}")


def is_synchronized() -> bool | None:
    """Return whether the system synchronizes its clock, or None if that is unknown."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # A structure of zeros (some 208 bytes) queries the state without changing it.
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024)))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != CLOCK_UNSYNCHRONIZED


def check_tls(certificate: str, key: str) -> Iterator[Finding]:
    """Check the certificate and key, and when the certificate expires."""
    if not certificate:
        if key:
            yield Finding(FAIL, "tls", "--tls-key without --tls-cert", "give the certificate too")
        return
    # Imported late, because it imports the whole broker.
    from trio_stomp.transport import TlsBox

    try:
        warnings = TlsBox(certificate, key).warnings(time.time())
    except OptionError as error:
        yield Finding(FAIL, "tls", str(error))
        return
    for warning in warnings:
        yield Finding(WARN, "tls", warning)
    if not warnings:
        yield Finding(OK, "tls", f"{certificate} and its key are usable")


def check_java() -> Iterator[Finding]:
    """Check for a version of Java that Spark supports."""
    home = os.environ.get("JAVA_HOME", "")
    path = str(Path(home, "bin")) if home else None
    java = shutil.which("java", path=path)
    remedy = f"install Java {JAVA_NEEDED} or newer, or set JAVA_HOME; only the analysis needs it"
    if java is None:
        place = f"in JAVA_HOME={home}" if home else "on the PATH"
        yield Finding(WARN, "java", f"no Java {place}: the Spark analysis is not available", remedy)
        return
    try:
        ran = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        yield Finding(WARN, "java", f"{java} does not run", remedy)
        return
    version = java_version(ran.stderr + ran.stdout)
    if version is None:
        yield Finding(WARN, "java", f"{java} does not report its version", remedy)
    elif version < JAVA_NEEDED:
        yield Finding(WARN, "java", f"{java} is Java {version}: too old for Spark", remedy)
    else:
        yield Finding(OK, "java", f"{java} is Java {version}")


def java_version(text: str) -> int | None:
    """Return the version from ``java -version``: 17 for ``17.0.9``, 8 for ``1.8.0_392``."""
    found = JAVA_VERSION.search(text)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def check_libraries() -> Iterator[Finding]:
    """Check which optional libraries are installed."""
    for module, package, brings in LIBRARIES:
        if importlib.util.find_spec(module) is not None:
            yield Finding(OK, module, brings)
        else:
            remedy = f"if you want it: pip install {package}"
            yield Finding(WARN, module, f"not installed; it provides {brings}", remedy)
