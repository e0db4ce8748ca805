"""The documents as a site, and those of their parts that are made from the code and the tests."""

import importlib.util
import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import ModuleType
from urllib.parse import quote

import pytest

from tests.support.chromium import chromium_or_skip, running_chromium
from tests.support.testing_links import ARGUMENTS
from trio_stomp.broker.headers import SEND_HEADERS, SUBSCRIBE_HEADERS, SendOutcome, _dialect
from trio_stomp.protocol import DURABLE_NAMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLE = re.compile(r'^```python title="([\w/]+\.py)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PATIENCE_S = 120

pytest_plugins = ["pytester"]


@pytest.fixture
def hooks() -> ModuleType:
    return importlib.import_module("mkdocs_hooks")


@pytest.fixture
def table() -> ModuleType:
    return importlib.import_module("conformance_table")


# The site.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("mkdocs", "material"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name.upper()} IS NOT THERE (extra docs): the site was not built")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder))
    built = subprocess.run(
        [*command, "--config-file", str(ROOT / "conf" / "mkdocs.yml")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_has_every_page_and_the_files_that_they_lead_to(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    sources = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert sources | {Path("readme"), Path("changes")} <= pages
    readme = (site / "readme.html").read_text(encoding="utf-8")
    assert 'href="reference/limits.html"' in readme
    assert 'src="dashboard.png"' in readme
    assert (site / "files" / "conf" / "acl.toml").is_file()


SOUGHT = {
    "authentication": "operate/authentication",
    "password": "operate/authentication",
    "embed": "use/embedding",
    "docker": "operate/deploy",
    "kubernetes": "operate/deploy",
    "nginx": "operate/deploy",
    "prometheus": "operate/metrics",
    "dead letter": "use/queues",
    "exactly once": "use/transactions",
    "ttl": "use/scheduling",
    "replay": "use/streams",
    "cli": "use/cli",
    "asyncio": "use/client",
    "fastapi": "use/fastapi",
    "django": "use/django",
    "node": "use/node",
    "opentelemetry": "use/tracing",
    "limits": "reference/limits",
    "heart-beat": "reference/wire",
    "overflow": "use/queues",
    "stale queue": "use/destinations",
    "backup": "operate/deploy",
    "request reply": "use/temporary-destinations",
}
"""Searches of readers, and the page that must come first."""


class Files(SimpleHTTPRequestHandler):
    """The site, without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log."""


def test_the_search_finds_the_page_of_a_subject_first(site: Path, tmp_path: Path) -> None:
    found = {}
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(site))) as server,
        running_chromium(chromium_or_skip(), tmp_path) as browser,
    ):
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            for words in SOUGHT:
                url = f"http://127.0.0.1:{server.server_port}/index.html?q={quote(words)}"
                with browser.page(url) as page:
                    first = page.until("document.querySelector('.md-search-result__link')?.href")
                    found[words] = re.sub(r"^\w+://[^/]+/|\.html.*$", "", first)
        finally:
            server.shutdown()
            thread.join()
    assert found == SOUGHT


def test_every_page_has_a_place_in_the_navigation(hooks: ModuleType) -> None:
    text = (ROOT / "conf" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    found = re.findall(r"(\S+\.md)$", text, re.MULTILINE)
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
    output = (DOCS / "reference" / "conformance.md").read_text(encoding="utf-8")
    assert made.stdout == output, "run: python scripts/conformance_table.py --write"


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
    known = {*SEND_HEADERS, *SUBSCRIBE_HEADERS, *DURABLE_NAMES}
    known |= {"durable", "persistent", "auto-delete", "x-queue-name", "id", "client-id"}
    assert len(known) > 20
    assert sorted(name for name in known if f"`{name}`" not in page) == []


def test_every_kind_of_name_is_in_the_table_of_destinations() -> None:
    pages = ("use/destinations.md", "reference/dialects.md")
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    assert sorted(name for name in _dialect._PREFIXES if f"`/{name}/" not in text) == []


def test_every_header_of_a_receipt_is_in_the_list() -> None:
    page = (DOCS / "reference" / "headers.md").read_text(encoding="utf-8")
    made = SendOutcome(1, "hint", is_duplicate=True, stored="x", offset=1, job=1, removed=1)
    names = [line.partition(":")[0] for line in made.header_lines().decode().splitlines()]
    assert len(names) == 7
    assert [name for name in names if f"`{name}" not in page] == []


# Pages whose examples are files, some of them tests.


@pytest.mark.parametrize(
    ("page", "files", "tests", "needed"),
    [
        ("testing", 4, 9, ("pytest_asyncio",)),
        ("fastapi", 2, 2, ("pytest_asyncio", "fastapi", "httpx")),
        ("django", 6, 1, ("django",)),
    ],
)
def test_the_examples_pass(
    pytester: pytest.Pytester, page: str, files: int, tests: int, needed: tuple[str, ...]
) -> None:
    if missing := [name for name in needed if find_spec(name) is None]:
        pytest.skip(f"no {', '.join(missing)}: the examples of {page}.md are NOT tested")
    examples = EXAMPLE.findall((DOCS / "use" / f"{page}.md").read_text(encoding="utf-8"))
    assert len(examples) == files
    for name, text in examples:
        file = pytester.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess(*ARGUMENTS, "-W", "error").assert_outcomes(passed=tests)
