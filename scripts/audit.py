"""Check the packages of CI and the image for known vulnerabilities with pip-audit.

python scripts/audit.py

The exit code is 1 if a package has one. If pip-audit is missing or its database cannot be reached,
the script prints a warning and the exit code is 0. Nothing is installed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILES = ("conf/requirements-dev.txt", "conf/requirements-image.txt")
PATIENCE_S = 300


def command(name: str) -> list[str]:
    """Return the command that audits one file."""
    values = ("--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json")
    return [sys.executable, "-m", "pip_audit", *values, "--requirement", name]


def vulnerabilities(packages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each known vulnerability."""
    for package in packages:
        for found in package.get("vulns", ()):
            fixed = ", ".join(found.get("fix_versions", ())) or "nothing yet"
            yield f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}"


def judged(name: str, printed: str) -> tuple[list[str], str]:
    """Return the vulnerabilities of a file, and the reason if packages were not checked, or "".

    Args:
      printed: The output of pip-audit: JSON, or nothing if its database was out of reach.
    """
    try:
        packages = json.loads(printed)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], f"{name} was NOT AUDITED: pip-audit or its database was out of reach"
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    why = ""
    if skipped:
        why = (
            f"{len(skipped)} of {len(packages)} packages of {name} were NOT AUDITED: unknown there"
        )
    return list(vulnerabilities(packages)), why


def main() -> int:
    """Audit all files. Return 1 if a package has a known vulnerability."""
    found: list[str] = []
    for name in FILES:
        try:
            ran = subprocess.run(
                command(name),
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            printed = ran.stdout
        except subprocess.TimeoutExpired:
            printed = ""
        holed, why = judged(name, printed)
        found += holed
        if why:
            line = "!" * 78
            print(f"{line}\n{why}\n{line}")
        elif not holed:
            print(f"{name}: no known vulnerability")
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
