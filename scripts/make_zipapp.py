"""Make one file that runs the broker anywhere with Python 3.11 or newer: ``python trio-stomp.pyz``.

It holds the package and those of its dependencies that are written in Python. Hashed passcodes and
tokens need compiled libraries, which a file cannot hold.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import zipapp
from pathlib import Path

START = """\
import sys
from trio_stomp.cli import main
sys.exit(main())
"""
ROOT = Path(__file__).resolve().parent.parent
COMPILED = ("argon2-cffi", "cryptography", "pyjwt")
"""Omitted dependencies, which are compiled or need a compiled one."""
FASTER = "msgpack"
"""A compiled dependency that also works without its compiled part."""


def wanted() -> list[str]:
    """Return the dependencies that the file holds, as pip takes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dependencies: list[str] = project["dependencies"]
    return [each for each in dependencies if not each.startswith(COMPILED)]


def make(target: Path) -> None:
    """Build the file.

    Raises:
      CalledProcessError: pip cannot install the libraries, and has printed the reason.
      ValueError: one of them is not written in Python alone.
    """
    with tempfile.TemporaryDirectory() as directory:
        inside = Path(directory)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--target", directory, *wanted()], check=True)
        subprocess.run([*pip, "--target", directory, "--no-deps", str(ROOT)], check=True)
        for library in (inside / FASTER).glob("*.so"):
            library.unlink()
        built = [str(each.relative_to(inside)) for each in inside.rglob("*.so")]
        if built:
            raise ValueError(f"not written in Python alone: {', '.join(built)}")
        for unused in inside.glob("bin"):
            for file in unused.iterdir():
                file.unlink()
            unused.rmdir()
        (inside / "__main__.py").write_text(START)
        zipapp.create_archive(inside, target, interpreter="/usr/bin/env python3", compressed=True)


def main() -> int:
    """Build the file that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("target", nargs="?", default="trio-stomp.pyz", type=Path)
    target: Path = parser.parse_args().target
    make(target)
    print(f"{target}: {target.stat().st_size // 1024} KiB; run it with: python3 {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
