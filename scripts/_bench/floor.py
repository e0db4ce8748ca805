"""The floor to compare with: a bare loop in C that speaks to the generator as a broker does."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from _bench.process import STOP_S, BenchError, Broker

SOURCE = Path(__file__).with_name("floor.c")
COMPILERS = ("cc", "gcc", "clang")
END_S = 0.5
"""Time in which a process may end after it has closed its sockets."""
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")


@contextmanager
def built_floor() -> Iterator[Path]:
    """Compile the floor into a temporary directory, and yield the program.

    Raises:
      BenchError: there is no compiler, or it refuses.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise BenchError(
            f"the floor is written in C, and none of {', '.join(COMPILERS)} is installed"
        )
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        program = Path(directory) / "floor"
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(program), str(SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{compiler} does not compile {SOURCE}: {done.stderr.strip()}")
        yield program


@contextmanager
def running_floor(program: Path, rest_us: int = 0) -> Iterator[Broker]:
    """Run the floor on a free port of the loopback interface, then kill it.

    Args:
      program: The result of ``built_floor``.
      rest_us: Microseconds to wait before each round of work.

    Raises:
      BenchError: it did not start, or it ended early. The text has its output.
    """
    with subprocess.Popen(
        [program, str(rest_us)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise BenchError(f"the floor did not start: {process.stderr.read().strip()}")
            try:
                yield Broker(int(line), process.pid)
            except (BenchError, OSError) as error:
                # The generator noticed only a lost connection. This is its cause.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
                if process.returncode is not None:
                    raise BenchError(f"the floor ended: {process.stderr.read().strip()}") from error
                raise
        finally:
            process.kill()
            process.wait(STOP_S)
