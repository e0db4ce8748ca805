"""The documents match the code: options, codes, close reasons, links, examples."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from attrs import fields

from trio_stomp import CloseReason
from trio_stomp.broker import DestinationPolicy
from trio_stomp.config import options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md"), *DOCS.rglob("*.md")])

ERRORS = {"RemoteError", "FrameError", "ProtocolError"}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ +(.+?)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"\bdocs(?:/[\w-]+)+\.md\b")
PATIENCE_S = 60

SET_UP = [
    "python3 -m venv .venv && .venv/bin/pip install . "
    "&& .venv/bin/python -m trio_stomp --port 61613",
    "python3 -m venv .venv && .venv/bin/pip install --require-hashes -r conf/requirements-dev.txt "
    "&& .venv/bin/pip install --no-deps -e . && .venv/bin/python scripts/check.py",
]


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def raised_codes() -> Iterator[str]:
    """Yield the codes that the package raises: first arguments of its errors."""
    for file in (ROOT / "trio_stomp").rglob("*.py"):
        if "spark" in file.parts:
            continue  # a client: its errors are exceptions, not codes
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if ast.unparse(node.func).split(".")[-1] in ERRORS:
                code = node.args[0]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    yield code.value


def first_cells(document: str) -> set[str]:
    """Return the first cells in code font of the rows of all tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE))


def test_every_code_is_documented() -> None:
    codes = set(raised_codes())
    assert len(codes) > 20
    pages = (read("reference/wire.md"), read("reference/management.md"))
    assert sorted(codes - set().union(*map(first_cells, pages))) == []


def test_every_close_reason_is_documented_with_its_websocket_code() -> None:
    wire = read("reference/wire.md")
    missing = [
        reason.text
        for reason in CloseReason
        if f"| `{reason.text}` | {reason.websocket_code} |" not in wire
    ]
    assert missing == []


def test_the_table_of_options_is_true() -> None:
    script = importlib.import_module("options_table")
    reference = read("reference/configuration.md")
    assert script.updated(reference) == reference, "run: python scripts/options_table.py --write"


def test_the_requests_of_the_management_interface_are_documented() -> None:
    script = importlib.import_module("management_table")
    page = read("reference/management.md")
    assert script.page() == page, "run: python scripts/management_table.py --write"


def test_each_pair_of_features_is_decided_once() -> None:
    script = importlib.import_module("features_table")
    decided = [pair.names for pair in script.pairs()] + script.independent()
    assert sorted(decided) == sorted(combinations(script.features(), 2))
    page = read("reference/features-that-meet.md")
    assert script.page() == page, "run: python scripts/features_table.py --write"


def test_every_option_is_documented() -> None:
    reference = read("reference/configuration.md")
    assert [
        spec.flag for spec in options() if f"| `{spec.flag}` | `{spec.name}` |" not in reference
    ] == []


def test_every_field_of_a_policy_is_documented() -> None:
    (found,) = re.findall(
        r"^## Policies per destination$.*", read("reference/dialects.md"), re.M | re.DOTALL
    )
    rows = "".join(line for line in found.splitlines() if line.startswith("| `"))
    names = [field.name for field in fields(DestinationPolicy)]
    assert [name for name in names if f"`{name}`" not in rows] == []


def test_the_readme_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in SET_UP:
        assert readme.count(f"\n{command}\n") == 1


TITLES = {
    "operate/authentication.md": "Authentication",
    "operate/authorization.md": "Authorization",
    "operate/configuration.md": "Configuration",
    "operate/deploy.md": "Deployment: Docker, systemd, Kubernetes, nginx, HAProxy",
    "operate/metrics.md": "Metrics for Prometheus",
    "operate/rate-limiting.md": "Rate limiting",
    "operate/tls.md": "TLS",
    "operate/websocket.md": "WebSocket",
    "reference/configuration.md": "Configuration reference",
    "reference/releases.md": "Releases, versions (SemVer) and deprecation",
    "use/durable-subscriptions.md": "Durable subscriptions",
    "use/embedding.md": "Embedding",
    "use/scheduling.md": "Delayed and scheduled messages, expiry (TTL)",
    "use/transactions.md": "Transactions and exactly-once processing",
}
RIDDLES = re.compile(r"^#+ +(?:What|Whose?|Whoever|Is|How it|How often)\b.*$", re.MULTILINE)


def test_pages_have_the_titles_that_readers_search_for() -> None:
    assert {page: title for page, title in TITLES.items() if f"# {title}" not in read(page)} == {}


def test_headings_of_the_manual_name_their_subject() -> None:
    folders = ("start", "use", "operate", "migrate", "reference")
    pages = [path for name in folders for path in (DOCS / name).rglob("*.md")]
    assert len(pages) > 30
    found = {
        path.name: RIDDLES.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
        for path in pages
    }
    assert {page: headings for page, headings in found.items() if headings} == {}


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub and the site make them."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    titles = (re.sub(r"\]\([^)]*\)", "", title).lower() for title in HEADING.findall(text))
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        file = document.parent / target if target else document
        is_page = file.suffix == ".md" and anchor
        if not file.exists() or (is_page and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_the_code_names_pages_that_are_there() -> None:
    """An error message or a help text that sends a reader to a page, sends him to one."""
    folders = ("trio_stomp", "scripts", "tests", "conf", ".github", ".ci")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]
    kinds = {".py", ".toml", ".yml", ".js", ".json", ".html", ".ipynb", ""}
    read_files = [
        path for path in files if path.suffix in kinds and "node_modules" not in path.parts
    ]
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for path in [*read_files, *DOCUMENTS, ROOT / "pyproject.toml"]
        for page in NAMED.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 30
    assert sorted(each for each in named if not (ROOT / each[1]).exists()) == []


def test_the_embedding_example_runs() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "examples" / "embed.py")],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "listening on 127.0.0.1",
        "received: CONNECTED, MESSAGE",
        "listening in memory",
        "received: CONNECTED, MESSAGE",
    ]
