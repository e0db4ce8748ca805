"""Make a copy of this project whose codec and hot core are compiled by mypyc.

    python scripts/compile.py build/compiled
    cd build/compiled && python -m trio_stomp

The copy is for tests and measurements. To install the compiled variant: ``TRIO_STOMP_COMPILE=1 pip
install .``
Needs a C compiler and the extra ``dev``.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from _compiled.build import SHIPPED, compile_copy

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="directory of the copy; an old copy is replaced")
    parser.add_argument(
        "--quick",
        action="store_const",
        const="0",
        default=SHIPPED,
        dest="level",
        help="compile without optimization, for tests",
    )
    options = parser.parse_args()
    target = options.target.resolve()
    if target.exists() and not (target / "trio_stomp").is_dir():
        print(f"{target} exists and is no copy of this project: name another", file=sys.stderr)
        return 2
    shutil.rmtree(target, ignore_errors=True)
    try:
        made = compile_copy(ROOT, target, options.level)
    except subprocess.CalledProcessError as error:
        print(f"compiling failed with exit code {error.returncode}: see above", file=sys.stderr)
        return 1
    print(f"{len(made)} libraries in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
