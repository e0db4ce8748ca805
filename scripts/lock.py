"""Write conf/requirements-dev.txt and conf/requirements-image.txt: every package, with its hashes.

python scripts/lock.py             what pyproject.toml requires; keep versions that still fit
python scripts/lock.py --upgrade   the newest of everything

CI and the image install nothing else: ``pip install --require-hashes -r FILE``, and then the
project itself with ``--no-deps``. It needs uv (``pip install uv``) and a network.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES: Mapping[str, tuple[str, ...]] = {
    "requirements-dev.txt": ("dev",),
    "requirements-image.txt": (),
}
"""The extras in each file, in addition to the basic requirements."""
OLDEST_PYTHON = "3.11"


def command(name: str, extras: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return the command that writes one of the files, without addresses of registries."""
    wanted = [word for extra in extras for word in ("--extra", extra)]
    return [
        *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON),
        *("--generate-hashes", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        # pip takes a newer version for a name with extras that the file lists without them.
        "--no-strip-extras",
        *("--custom-compile-command", "python scripts/lock.py"),
        *wanted,
        *("pyproject.toml", "--output-file", f"conf/{name}", *more),
    ]


def main(argv: Sequence[str]) -> int:
    """Write both files. Return 0, or the exit code of the command that failed."""
    for name, extras in FILES.items():
        try:
            code = subprocess.run(command(name, extras, argv), cwd=ROOT, check=False).returncode
        except FileNotFoundError:
            sys.stderr.write("lock: uv is not installed: pip install uv\n")
            return 1
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
