"""The release script: its changes, its refusals, and its files."""

import datetime
import subprocess
from pathlib import Path

import pytest
import release

from trio_stomp import __version__

ROOT = Path(__file__).parents[2]
DAY = datetime.date(2026, 12, 24)
LOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.1.0] - 2026-01-02

### Added

- An older thing.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "trio_stomp").mkdir()
    (tmp_path / "trio_stomp" / "_version.py").write_text('"""It."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    return tmp_path


def test_the_version_and_its_section_are_written(tree: Path) -> None:
    release.prepare(tree, "1.0.0", DAY)
    assert release.current(tree) == "1.0.0"
    changelog = (tree / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [1.0.0] - 2026-12-24\n\n### Added\n\n- A thing.\n" in changelog
    assert release.section(changelog, "Unreleased") == ""
    assert release.section(changelog, "1.0.0") == "### Added\n\n- A thing."
    assert release.section(changelog, "0.1.0") == "### Added\n\n- An older thing."


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "1.0", "v1.0.0", "1.0.0.dev1", "one"])
def test_version_that_is_not_newer_is_refused(tree: Path, version: str) -> None:
    with pytest.raises(release.ReleaseError, match=f"'{version}' must be .* newer than 0.1.0"):
        release.prepare(tree, version, DAY)
    assert release.current(tree) == "0.1.0"


def test_nothing_is_released_twice_or_without_changes(tree: Path) -> None:
    release.prepare(tree, "1.0.0", DAY)
    with pytest.raises(release.ReleaseError, match="no unreleased changes"):
        release.prepare(tree, "1.0.1", DAY)
    with pytest.raises(release.ReleaseError, match=r"has a section of 1\.0\.0 already"):
        release.released((tree / "CHANGELOG.md").read_text(), "1.0.0", DAY)
    assert release.current(tree) == "1.0.0"


def test_the_files_of_a_release_are_built_with_checksums_and_notes(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(target: Path, *, compiled: bool) -> list[Path]:
        assert compiled
        target.mkdir()
        names = ("a.tar.gz", "a.whl")
        for name in names:
            (target / name).write_text(name)
        return [target / name for name in names]

    monkeypatch.setattr("wheels.make", make)
    target = tmp_path / "dist"
    release.prepare(tree, "1.0.0", DAY)
    with pytest.raises(release.ReleaseError, match=r"the tag is v1\.0\.1, but .* is 1\.0\.0"):
        release.build(tree, target, tag="v1.0.1")
    files = release.build(tree, target, tag="v1.0.0")
    assert sorted(files) == sorted(target.iterdir())
    assert (target / "notes.md").read_text() == "### Added\n\n- A thing.\n"
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=target, capture_output=True, text=True
    )
    assert checked.stdout == "a.tar.gz: OK\na.whl: OK\nsbom.json: OK\n"
    with pytest.raises(release.ReleaseError, match="is not empty"):
        release.build(tree, target)


def test_a_tree_that_is_not_prepared_is_not_built(tree: Path, tmp_path: Path) -> None:
    (tree / "CHANGELOG.md").write_text(LOG.replace("0.1.0", "0.0.9"))
    with pytest.raises(release.ReleaseError, match=r"no section of 0\.1\.0: run .* prepare first"):
        release.build(tree, tmp_path / "dist")


def test_this_tree_can_be_prepared() -> None:
    assert release.current(ROOT) == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Added" in release.section(release.released(changelog, "99.0.0", DAY), "99.0.0")
