"""The supply chain: versions above known vulnerabilities, locks with hashes, one unit."""

import ast
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from trio_stomp import __version__

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
LOCKS = ("requirements-dev.txt", "requirements-image.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HOLES = {
    # Direct requirements.
    "h11": ("0.16.0", "CVE-2025-43859"),
    "pyjwt": ("2.10.1", "CVE-2024-53861"),
    "cryptography": ("46.0.5", "CVE-2026-26007"),
    "setuptools": ("78.1.1", "CVE-2025-47273"),
    "mkdocs-material": ("9.5.32", "XSS in the search's results"),
    "duckdb": ("1.1.0", "CVE-2024-41672"),
    "tqdm": ("4.66.3", "CVE-2024-34062"),
    "sqlalchemy": ("1.3.0", "CVE-2019-7164"),
    # Indirect requirements.
    "certifi": ("2024.7.4", "CVE-2024-39689"),
    "idna": ("3.7", "CVE-2024-3651"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "jupyter-core": ("5.8.1", "CVE-2025-30167"),
    "pillow": ("11.3.0", "CVE-2025-48379"),
    "pyarrow": ("14.0.1", "CVE-2023-47248"),
    "pymdown-extensions": ("10.0", "CVE-2023-32309"),
    "requests": ("2.32.4", "CVE-2024-47081"),
    "tornado": ("6.5.0", "CVE-2025-47287"),
    "urllib3": ("2.6.0", "CVE-2025-66418"),
}
"""By package: the first version without the hole, and its name."""


def requirements(extra: str = "") -> Iterator[Requirement]:
    """Yield the requirements of the project, or of an extra and those that it includes."""
    reported = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    for each in map(Requirement, reported):
        if each.name == PROJECT["name"]:
            for other in sorted(each.extras):
                yield from requirements(other)
        else:
            yield each


def every_requirement() -> list[Requirement]:
    extras = [each for name in PROJECT["optional-dependencies"] for each in requirements(name)]
    return [*requirements(), *extras]


def floor(requirement: Requirement) -> Version | None:
    """The oldest version that is let in."""
    oldest = [each.version for each in requirement.specifier if each.operator in (">=", "==", "~=")]
    return Version(oldest[0]) if oldest else None


def locked(name: str) -> list[tuple[Requirement, int]]:
    """The packages of a lock, and how many hashes each has."""
    text = (CONF / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [
        (Requirement(line.partition(" --hash")[0]), line.count("--hash=sha256:")) for line in lines
    ]


# Floors.


def test_everything_has_a_floor() -> None:
    assert [str(each) for each in every_requirement() if floor(each) is None] == []


def test_no_floor_lets_a_known_hole_in() -> None:
    let_in = []
    for each in every_requirement():
        fixed, hole = HOLES.get(canonicalize_name(each.name), ("0", ""))
        oldest = floor(each)
        assert oldest is not None
        if oldest < Version(fixed):
            let_in.append(f"{each}: {hole}, fixed in {fixed}")
    assert let_in == []


def test_extras_that_everybody_gets_now_can_still_be_named() -> None:
    """Commands of older documents and scripts go on to work without a warning."""
    for extra in ("cli", "client", "cluster", "jms", "metrics", "security"):
        assert PROJECT["optional-dependencies"][extra] == []


@pytest.mark.parametrize(("room", "extra"), [("spark/lake", "tables"), ("spark", "spark")])
def test_an_extra_has_every_package_that_its_room_imports(room: str, extra: str) -> None:
    imported = set()
    for file in (ROOT / "trio_stomp" / room).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    packages = (
        {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"trio_stomp"}
    )
    assert packages <= {each.name for each in (*requirements(), *requirements(extra))}


def test_signing_step_is_named() -> None:
    """PyJWT's extra takes any cryptography."""
    assert "cryptography" in {each.name for each in requirements()}


# Locks.


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_a_version_and_hashes_of_everything(name: str) -> None:
    for each, hashes in locked(name):
        assert [it.operator for it in each.specifier] == ["=="], each
        assert hashes > 0, each


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_place(name: str) -> None:
    """No registry, no machine: the installing user chooses the source of packages."""
    text = (CONF / name).read_text(encoding="utf-8")
    assert re.findall(r"https?:|file:|--\S*(?:index|links|host)\S*|^-e|\s/\w", text) == []


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_has_a_known_hole(name: str) -> None:
    versions = [(canonicalize_name(each.name), floor(each)) for each, _ in locked(name)]
    old = [
        (package, version, HOLES[package])
        for package, version in versions
        if package in HOLES and version is not None and version < Version(HOLES[package][0])
    ]
    assert old == []


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("requirements-dev.txt", ["dev"]),
        ("requirements-image.txt", []),
    ],
)
def test_a_lock_satisfies_every_requirement_of_its_extras(name: str, extras: list[str]) -> None:
    assert list(importlib.import_module("lock").FILES[name]) == extras
    found = [(canonicalize_name(each.name), floor(each)) for each, _ in locked(name)]
    wanted = [*requirements(), *(each for extra in extras for each in requirements(extra))]
    missing = [
        str(each)
        for each in wanted
        # Some packages have several versions, each for another Python.
        if not any(
            package == canonicalize_name(each.name) and each.specifier.contains(str(version))
            for package, version in found
        )
    ]
    assert missing == [], "run: python scripts/lock.py"


def test_the_image_has_the_tested_versions() -> None:
    dev = {(each.name, str(each.specifier)) for each, _ in locked("requirements-dev.txt")}
    image = {(each.name, str(each.specifier)) for each, _ in locked("requirements-image.txt")}
    assert image - dev == set()


# The users of the lock files.


def test_everybody_installs_from_the_locks() -> None:
    install = "pip install --require-hashes -r conf/requirements-dev.txt"
    for file in ("README.md", ".ci/run", "scripts/check.py"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert install in text, file
        assert "pip install --no-deps -e ." in text, file
    image = (CONF / "Dockerfile").read_text(encoding="utf-8")
    installs = [line.strip() for line in image.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs), installs
    assert "--require-hashes -r conf/requirements-image.txt" in image


def test_a_release_can_name_the_base_by_its_digest() -> None:
    image = (CONF / "Dockerfile").read_text(encoding="utf-8")
    named = "${PYTHON}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}"
    assert re.findall(r"^FROM (\S+)", image, re.M) == ["${BUILD}", named]
    assert f"\nARG BUILD={named}\n" in image
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
    assert '--build-arg PYTHON_DIGEST="$digest"' in page


def test_the_documents_show_the_one_unit() -> None:
    unit = (CONF / "trio-stomp.service").read_text(encoding="utf-8")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    shown = {
        (page.name, block)
        for page in pages
        for block in re.findall(
            r"^```ini\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
        )
        if "python -m trio_stomp " in block
    }
    assert shown == {("deploy.md", unit)}


# The audit.


@pytest.fixture
def audit() -> ModuleType:
    return importlib.import_module("audit")


HOLED = '{"name": "h11", "version": "0.14", "vulns": [{"id": "CVE-1", "fix_versions": ["0.16"]}]}'
SKIPPED = '{"name": "attrs", "skip_reason": "not there"}'
WELL = '{"name": "trio", "version": "1", "vulns": []}'


@pytest.mark.parametrize(
    ("packages", "holes", "why"),
    [
        ([WELL], [], ""),
        ([WELL, HOLED], ["h11 0.14: CVE-1, fixed in 0.16"], ""),
        ([SKIPPED, WELL], [], "1 of 2 packages of x were NOT AUDITED: unknown there"),
        (None, [], "x was NOT AUDITED: pip-audit or its database was out of reach"),
    ],
)
def test_results_of_the_audit(
    audit: ModuleType, packages: list[str] | None, holes: list[str], why: str
) -> None:
    printed = "" if packages is None else f'{{"dependencies": [{", ".join(packages)}]}}'
    assert audit.judged("x", printed) == (holes, why)


def test_the_audit_covers_every_lock_file(audit: ModuleType) -> None:
    assert tuple(Path(each).name for each in audit.FILES) == LOCKS
    for name in audit.FILES:
        assert "--require-hashes" in audit.command(name)
        assert (ROOT / name).exists()


# The bill of materials of a release.


def test_the_bill_of_materials_has_the_packages_of_the_image(tmp_path: Path) -> None:
    written = tmp_path / "sbom.json"
    assert importlib.import_module("sbom").main([str(written)]) == 0
    text = written.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    broker = bom["metadata"]["component"]
    assert (broker["name"], broker["version"]) == (PROJECT["name"], __version__)
    found = {
        (each["name"], f"=={each['version']}", len(each["externalReferences"][0]["hashes"]))
        for each in bom["components"]
    }
    lock = locked("requirements-image.txt")
    assert found == {(each.name, str(each.specifier), hashes) for each, hashes in lock}
    (root,) = (each for each in bom["dependencies"] if each["ref"] == broker["bom-ref"])
    assert root["dependsOn"] == sorted(each["bom-ref"] for each in bom["components"])
