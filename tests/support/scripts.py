"""The scripts of the project, run to their end."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run_script(
    name: str, *arguments: str, path: str | None = None, patience_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``scripts/NAME.py``. ``path`` replaces PATH."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
        env=None if path is None else os.environ | {"PATH": path},
    )
