"""Make one file that runs the broker anywhere with Python 3.11 or newer: ``python trio-stomp.pyz``.

It holds the package and what its core needs, which is all written in Python; extras (hashed
passcodes, selectors, databases) are libraries that a file cannot hold.
"""

import argparse
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

START = """\
import sys
from trio_stomp.cli import main
sys.exit(main())
"""
ROOT = Path(__file__).resolve().parent.parent


def make(target: Path) -> None:
    """Build the file.

    Raises:
      CalledProcessError: pip cannot have the libraries; it has said why.
      ValueError: one of them is not written in Python alone.
    """
    with tempfile.TemporaryDirectory() as directory:
        inside = Path(directory)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--target", directory, str(ROOT)], check=True)
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
