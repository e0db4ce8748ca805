"""Write the bill of materials of the image as CycloneDX JSON: locked packages with their hashes.

python scripts/sbom.py FILE

The job that makes a release does this, and releases the file. It needs no network.
"""

import json
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = "conf/requirements-image.txt"


def command() -> list[str]:
    """Return the command that prints the packages of the lock."""
    values = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-format", "JSON")
    return [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", *values, LOCK]


def completed(bom: dict[str, Any]) -> dict[str, Any]:
    """Return the bill of materials with the broker's version and its dependency on all packages."""
    broker = bom["metadata"]["component"]
    version = runpy.run_path(str(ROOT / "trio_stomp" / "_version.py"))["__version__"]
    broker |= {"version": version, "purl": f"pkg:pypi/{broker['name']}@{version}"}
    packages = sorted(each["bom-ref"] for each in bom["components"])
    for each in bom["components"]:
        del each["description"]  # its line of the lock, once more
    others = [each for each in bom["dependencies"] if each["ref"] != broker["bom-ref"]]
    bom["dependencies"] = [{"ref": broker["bom-ref"], "dependsOn": packages}, *others]
    return bom


def main(argv: Sequence[str]) -> int:
    """Write the file. Return 0, or the exit code of the command that failed."""
    if len(argv) != 1:
        sys.stderr.write("usage: python scripts/sbom.py FILE\n")
        return 2
    ran = subprocess.run(command(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        return ran.returncode
    bom = completed(json.loads(ran.stdout))
    Path(argv[0]).write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
