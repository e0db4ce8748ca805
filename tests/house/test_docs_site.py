"""The documents as a site, and those of their parts that are made from the code and the tests."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.testing_links import ARGUMENTS
from trio_stomp.broker.headers import _send_options, _subscribe_options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLE = re.compile(r'^```python title="(test_\w+\.py)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PATIENCE_S = 120

pytest_plugins = ["pytester"]


@pytest.fixture
def hooks() -> ModuleType:
    return importlib.import_module("mkdocs_hooks")


@pytest.fixture
def table() -> ModuleType:
    return importlib.import_module("conformance_table")


# The site.


def test_the_site_can_be_built(tmp_path: Path) -> None:
    for name in ("mkdocs", "material"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name.upper()} IS NOT THERE (extra docs): the site was not built")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path))
    built = subprocess.run(
        [*command, "--config-file", str(ROOT / "conf" / "mkdocs.yml")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")}
    sources = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert sources | {Path("readme"), Path("changes")} <= pages
    readme = (tmp_path / "readme.html").read_text(encoding="utf-8")
    assert 'href="reference/limits.html"' in readme
    assert 'src="dashboard.png"' in readme
    assert (tmp_path / "files" / "conf" / "acl.toml").is_file()


def test_every_page_has_a_place_in_the_navigation(hooks: ModuleType) -> None:
    told = (ROOT / "conf" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    found = re.findall(r"(\S+\.md)$", told, re.MULTILINE)
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(found) == sorted([*pages, *hooks.PAGES.values()])


@pytest.mark.parametrize(
    ("home", "link", "moved"),
    [
        (DOCS, "[a](use/queues.md#queues)", "[a](use/queues.md#queues)"),
        (DOCS / "use", "[a](queues.md) [b](../design.md)", "[a](queues.md) [b](../design.md)"),
        (DOCS, "[a](../README.md#wildcards)", "[a](readme.md#wildcards)"),
        (DOCS / "use", "[a](../../README.md#wildcards)", "[a](../readme.md#wildcards)"),
        (DOCS, "[a](../CHANGELOG.md)", "[a](changes.md)"),
        (DOCS / "use", "[a](../../conf/acl.toml)", "[a](../files/conf/acl.toml)"),
        (DOCS, "[a](../nothing.md) [b](#here)", "[a](../nothing.md) [b](#here)"),
        (DOCS, "[a](../../etc/passwd)", "[a](../../etc/passwd)"),
        (DOCS, "[a](https://x.example/README.md)", "[a](https://x.example/README.md)"),
        (ROOT, "![a](docs/dashboard.png)", "![a](dashboard.png)"),
        (ROOT, "[a](docs/use/cli.md#top) [b](CHANGELOG.md)", "[a](use/cli.md#top) [b](changes.md)"),
    ],
)
def test_links_of_pages_are_moved(hooks: ModuleType, home: Path, link: str, moved: str) -> None:
    assert hooks.moved(link, home) == moved


def test_files_that_pages_lead_to_are_copied(hooks: ModuleType) -> None:
    found = hooks.linked_files()
    assert "conf/trio_stomp.toml" in found
    assert not any(name.startswith("docs/") or name in hooks.PAGES for name in found)


# Parts that are made.


def test_the_conformance_table_is_true() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "conformance_table.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    told = (DOCS / "reference" / "conformance.md").read_text(encoding="utf-8")
    assert made.stdout == told, "run: python scripts/conformance_table.py --write"


BARE = "| no | lvl | statement |\n|---|---|---|\n| F01 | M | a `\\|` b |\n| F02 | S | c |\n\n| x |"
MADE = (
    "| no | lvl | statement | covered by |\n|---|---|---|---|\n"
    "| F01 | M | a `\\|` b | f_frames, decoder |\n| F02 | S | c | **nothing** |\n\n| x |"
)


def test_a_table_gets_its_column_once(table: ModuleType) -> None:
    covered = {"F01": {"test_decoder", "test_f_frames"}, "C01": {"test_c_connect"}}
    assert table.updated(BARE, covered) == MADE
    assert table.updated(MADE, covered) == MADE
    assert "| M | a `\\|` b | x |" in table.updated(MADE, {"F01": {"test_x"}})


def test_every_header_that_means_something_is_in_the_list() -> None:
    page = (DOCS / "reference" / "headers.md").read_text(encoding="utf-8")
    known = {*_send_options._MEANINGS, *_subscribe_options._MEANINGS}
    known |= _subscribe_options._DURABLE_HEADERS
    assert len(known) > 20
    assert sorted(name for name in known if f"`{name}`" not in page) == []


# docs/use/testing.md.


def test_the_examples_of_testing_pass(pytester: pytest.Pytester) -> None:
    examples = EXAMPLE.findall((DOCS / "use" / "testing.md").read_text(encoding="utf-8"))
    assert len(examples) == 3
    for name, text in examples:
        pytester.path.joinpath(name).write_text(text, encoding="utf-8")
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=7)
