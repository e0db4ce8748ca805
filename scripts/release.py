"""Prepare a release, and build its files.

python scripts/release.py prepare 1.2.0   the version, and its section of CHANGELOG.md
python scripts/release.py build dist      sdist, wheels, bill of materials, notes, checksums

``prepare`` changes two files and prints the commands that commit and tag them. ``build`` needs the
extra ``dev``, a C compiler and a package index; ``--tag`` checks that a tag is of this version.
Nothing is uploaded: docs/reference/releases.md has the last step.
"""

import argparse
import datetime
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import sbom
import wheels
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = Path("trio_stomp/_version.py")
CHANGELOG = Path("CHANGELOG.md")
UNRELEASED = "## [Unreleased]\n"
VERSION_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
SUMS, NOTES, BILL = "SHA256SUMS", "notes.md", "sbom.json"


class ReleaseError(Exception):
    """The release cannot be prepared or built. The text states the reason and the remedy."""


def section(changelog: str, title: str) -> str:
    """Return the text of a section of the changelog, or "" if there is none.

    Args:
      title: ``Unreleased``, or a version.
    """
    found = re.search(
        rf"^## \[{re.escape(title)}\].*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE
    )
    return found[1].strip() if found else ""


def released(changelog: str, version: str, day: datetime.date) -> str:
    """Return the changelog with its unreleased changes as those of a version.

    Raises:
      ReleaseError: there are no changes, or there is a section of this version.
    """
    if section(changelog, version):
        raise ReleaseError(
            f"{CHANGELOG} has a section of {version} already: choose another version"
        )
    if "- " not in section(changelog, "Unreleased"):
        raise ReleaseError(f"{CHANGELOG} has no unreleased changes: there is nothing to release")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day.isoformat()}\n", 1)


def current(root: Path) -> str:
    """Return the version of a tree.

    Raises:
      ReleaseError: the file of the version has another form.
    """
    found = VERSION_LINE.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None:
        raise ReleaseError(f'{VERSION_FILE} has no line __version__ = "…"')
    return found[1]


def prepare(root: Path, version: str, day: datetime.date) -> None:
    """Write a version and its section of the changelog.

    Raises:
      ReleaseError: it is no version of three numbers, or not newer than the present one.
    """
    before = current(root)
    try:
        is_newer = Version(version) > Version(before)
    except InvalidVersion:
        is_newer = False
    if not is_newer or re.fullmatch(r"\d+\.\d+\.\d+(?:rc\d+)?", version) is None:
        raise ReleaseError(f"{version!r} must be three numbers, as 1.2.0, and newer than {before}")
    changed = released((root / CHANGELOG).read_text(encoding="utf-8"), version, day)
    text = (root / VERSION_FILE).read_text(encoding="utf-8")
    line = f'__version__ = "{version}"'
    (root / VERSION_FILE).write_text(VERSION_LINE.sub(line, text), encoding="utf-8")
    (root / CHANGELOG).write_text(changed, encoding="utf-8")


def checksums(files: Iterable[Path]) -> str:
    """Return the lines that ``sha256sum --check`` reads."""
    lines = (f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)
    return "".join(lines)


def build(root: Path, target: Path, tag: str = "") -> list[Path]:
    """Build the files of the release of a tree in a new directory, and return them.

    Args:
      tag: The tag that the release has; "" = not known.

    Raises:
      ReleaseError: the tree is not prepared, the tag is of another version, or something failed.
    """
    version = current(root)
    if tag and tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag}, but the version is {version}: tag v{version} instead"
        )
    notes = section((root / CHANGELOG).read_text(encoding="utf-8"), version)
    if not notes:
        raise ReleaseError(f"{CHANGELOG} has no section of {version}: run release.py prepare first")
    if target.exists() and any(target.iterdir()):
        raise ReleaseError(f"{target} is not empty: name a new directory")
    files = wheels.make(target, compiled=True)
    if sbom.main([str(target / BILL)]):
        raise ReleaseError("the bill of materials was not written: see above")
    (target / SUMS).write_text(checksums([*files, target / BILL]), encoding="utf-8")
    (target / NOTES).write_text(f"{notes}\n", encoding="utf-8")
    return [*files, *(target / name for name in (BILL, SUMS, NOTES))]


def main(argv: Sequence[str]) -> int:
    """Prepare or build. Return 0, or 1 if that failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("prepare").add_argument("version")
    building = parts.add_parser("build")
    building.add_argument("target", type=Path, help="a new directory")
    building.add_argument("--tag", default="", help="the tag that the release has, as v1.2.0")
    given = parser.parse_args(argv)
    try:
        if given.part == "prepare":
            prepare(ROOT, given.version, datetime.datetime.now(datetime.UTC).date())
            print(f"git commit -am 'Release {given.version}'")
            print(f"git tag -a v{given.version} -m 'Version {given.version}'")
        else:
            for file in build(ROOT, given.target.resolve(), given.tag):
                print(file)
    except (ReleaseError, subprocess.CalledProcessError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
