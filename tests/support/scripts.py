"""The scripts of the project, run to their end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def measured(folder: Path, name: str, *arguments: str, path: str | None = None) -> tuple[Any, str]:
    """Run a script that has to succeed. Return its JSON, and what it printed."""
    file = folder / "result.json"
    result = run_script(name, *arguments, "--json", str(file), path=path)
    assert result.returncode == 0, result.stderr + result.stdout
    return json.loads(file.read_text()), result.stdout
