"""A PostgreSQL server of the tests' own, in a temporary directory, on a Unix socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define

PACKAGES = Path("/usr/lib/postgresql")
INSTALL = "apt-get install postgresql"

# Tests need no protection against power cuts.
FAST = "-c fsync=off -c full_page_writes=off -c listen_addresses= -c max_connections=40"


@define
class PostgresServer:
    """A running server. Its only user needs no password."""

    binaries: Path
    directory: Path
    user: int | None
    group: int | None

    def url(self, schema: str = "public") -> str:
        """The URL of the one database, with another schema to work in."""
        options = f"options=-csearch_path%3D{schema}"
        return f"postgresql://tester@/postgres?host={self.directory}&{options}"

    def start(self) -> None:
        """Start it, and wait until it can be connected to."""
        log = str(self.directory / "log")
        self._control("start", "-l", log, "-o", f"{FAST} -k {self.directory}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server, and disconnect its clients."""
        self._control("stop", "-m", mode)

    def _control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-w", "-s", *arguments)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL's on the data directory."""
        subprocess.run(
            [self.binaries / program, "-D", self.directory / "data", *arguments],
            check=True,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
            user=self.user,
            group=self.group,
        )


def _binaries() -> Path | None:
    """Return the directory of initdb: from PATH, or the newest of Debian's."""
    if (found := shutil.which("initdb")) and shutil.which("pg_ctl", path=Path(found).parent):
        return Path(found).parent
    return max((path.parent for path in PACKAGES.glob("*/bin/initdb")), default=None)


def _account() -> tuple[int | None, int | None]:
    """Return the account to run as if this process is root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None, None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    found = known.get("postgres") or known.get("nobody")
    if found is None:
        pytest.skip("NOT TESTED with PostgreSQL: it refuses root; adduser --system postgres")
    return found.pw_uid, found.pw_gid


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server. Skip the test if PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip(f"NOT TESTED with PostgreSQL: there is no initdb; {INSTALL}")
    user, group = _account()
    # Its path must be short, for the socket, and open to the other user.
    directory = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if user is not None and group is not None:
            os.chown(directory, user, group)
        server = PostgresServer(binaries, directory, user, group)
        server.run("initdb", "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(directory)
