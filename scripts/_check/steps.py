"""The steps of each tier, as lanes: a lane runs its steps in order, beside the other lanes.

CONTRIBUTING.md has the table of what each tier proves, and how long each step took.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
DOCUMENTS = ("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
NODE_TESTS = TESTS / "js"
PYTHON_CODE = ("trio_stomp", "pyspark_stomp.py", "scripts", "tests")
RESULTS = ROOT / "build" / "check"
"""The folder of pytest's reports, one for each step: the slowest files are read from them."""

# Floors without a single await: every branch of theirs can be reached by a plain test.
SYNCHRONOUS_FLOORS = ("frames", "protocol", "broker", "nats/codec")
FLOOR_COVERAGE = 100
"""The required coverage in percent, branches included, without rounding up."""

FLOOR = re.compile(
    rf"^(?:from|import) trio_stomp\.(?:{'|'.join(SYNCHRONOUS_FLOORS).replace('/', '[.]')})\b", re.M
)
ABOVE = re.compile(
    r"^(?:from|import) (?:trio_stomp\.(?:transport|security|client|server|peer|diag|web|config|cli"
    r"|testing|spark)|trio|subprocess|socket|spark)\b",
    re.M,
)
"""Imports that exclude a file of tests from the tests of the synchronous floors."""

PROCESSES = ("-n", "3", "--dist", "loadfile")
"""More processes than cores: many tests wait for sockets, not for a processor."""

TRACED = (
    *(f"tests/unit/{floor}" for floor in SYNCHRONOUS_FLOORS),
    "tests/model/test_stream_model.py",
    "tests/system/test_stream_flow.py",
    "tests/unit/diag/test_monitor.py",
    "tests/unit/diag/test_queries.py",
    "tests/unit/diag/test_tables.py",
)
"""Tests that reach every branch of the synchronous floors. Only these are traced, because tracing
more than doubles the time of a test."""

OTHERS = ("tests/foreign", "tests/house/test_docs_commands.py")
"""Tests that wait for programs of others and of ours: beside the others, as they need no core."""

FUZZ_S = {"push": 2, "full": 15}
"""Seconds for each target. docs/inside/lab-notes/reliability.md describes longer runs."""

TORTURE = {
    "push": (("--plain", "--minutes", "0.2", "--clients", "50"), ("--minutes", "0.2")),
    "full": (("--plain", "--minutes", "0.35", "--clients", "60"), ("--minutes", "2")),
}
"""One run without a store, and one with selectors, groups, little memory and restarts. Plus some
seconds to drain; before a release, run ten minutes with 100 clients."""

COMBINATIONS = ("--minutes", "10", "--scenarios", "12")
"""Each night only, as long as its model is young: a finding may be the model's."""

RESTARTS = ("--clients", "40", "--restart-s", "6")

DEEP = ("memory", "journal")
"""Stores of the run, each night, with a million messages in front of a selector and a group."""

COMPILED = ROOT / "build" / "compiled"
COMPILED_TESTS = (
    *("acknowledger", "broker", "broker_model", "browse", "connection", "consumer", "decoder"),
    *(
        "destinations",
        "encoder",
        "fanout",
        "hand_out",
        "histogram_memory",
        "inbox",
        "last_values",
        "message",
    ),
    *("message_ids", "no_cycles", "outbox", "publisher", "queue", "queue_model", "quiet_sockets"),
    *("server", "session", "subscriber", "tracer", "transaction"),
    *("transaction_window", "turns", "waiting", "websocket"),
)
"""Tests that involve the compiled modules. They are listed by name, because the copy has no ``.ci``
and need not repeat the tests of documents, options or packages."""


class Step(NamedTuple):
    """One check: its name, command and directory."""

    name: str
    command: Sequence[str]
    cwd: Path = ROOT


Lane = Sequence[Step]


def files_of_tests() -> Iterator[Path]:
    """Yield every file of tests, in the order of their names."""
    yield from sorted(TESTS.rglob("test_*.py"))


def test_file(name: str) -> str:
    """Return the path of the test file called ``name``, anywhere in ``tests/``."""
    (file,) = TESTS.rglob(f"test_{name}.py")
    return file.relative_to(ROOT).as_posix()


def floor_tests() -> list[str]:
    """Return the test files that use only the synchronous floors."""
    found = []
    for file in files_of_tests():
        text = file.read_text(encoding="utf-8")
        if FLOOR.search(text) and not ABOVE.search(text):
            found.append(file.relative_to(ROOT).as_posix())
    return found


def pytest_step(name: str, *more: str, cwd: Path = ROOT, path: Path | None = None) -> Step:
    """Return a step that runs pytest and writes each test's time to RESULTS."""
    result = RESULTS / f"{name.replace(' ', '-')}.xml"
    set_path = ("env", f"PYTHONPATH={path}") if path else ()
    command = (*set_path, sys.executable, "-m", "pytest", "-q", f"--junitxml={result}", *more)
    return Step(name, command, cwd)


def lint_steps() -> Iterator[Step]:
    """Yield the checks of style, which do not run the code."""
    run = (sys.executable, "-m", "ruff")
    yield Step("lint", (*run, "check", *PYTHON_CODE))
    yield Step("format", (*run, "format", "--check", *PYTHON_CODE))
    yield Step("spelling", (sys.executable, "-m", "codespell_lib", *PYTHON_CODE, *DOCUMENTS))


def ways_step() -> Step:
    """Return the step that counts the functions on the way of a frame."""
    command = (sys.executable, "-m", "_check.ways", "--check")
    return Step("ways of frames", command, ROOT / "scripts")


def types_step() -> Step:
    """Return the step of mypy: a minute or two on a new cache."""
    return Step("types", (sys.executable, "-m", "mypy", "--strict", *PYTHON_CODE))


def tests_steps(tier: str) -> Iterator[Step]:
    """Yield all tests but Spark's, in several processes, and the gate on the floors' coverage."""
    # One process rewrites the asserts of all files: else each of the others does all of it again.
    yield Step("collecting", (sys.executable, "-m", "pytest", "--collect-only", "-qqq"))
    sources = (f"--cov=trio_stomp/{floor}" for floor in SYNCHRONOUS_FLOORS)
    which = ("-m", marked(tier, "not spark"))
    traced = (*sources, "--cov-branch", "--cov-report=", *TRACED)
    yield pytest_step("traced tests", *PROCESSES, *which, *traced)
    report = (sys.executable, "-m", "coverage", "report", f"--fail-under={FLOOR_COVERAGE}")
    yield Step("branch coverage of the synchronous floors", report)
    elsewhere = (f"--ignore={path}" for path in (*TRACED, *OTHERS))
    yield pytest_step("tests", *PROCESSES, *which, *elsewhere)


def spark_step(tier: str) -> Step:
    """Return the tests of Spark, one after the other: they share one session."""
    files = (
        file.relative_to(ROOT).as_posix()
        for file in files_of_tests()
        if "pytest.mark.spark" in file.read_text(encoding="utf-8")
    )
    return pytest_step("tests of Spark", "-m", marked(tier, "spark"), *files)


def marked(tier: str, which: str) -> str:
    """Return pytest's -m of a tier."""
    return which if tier == "full" else f"{which} and not full"


def compiled_steps(tier: str) -> Iterator[Step]:
    """Yield the checks of the variant compiled by mypyc, or none without a C compiler."""
    if not has_compiler():
        return
    quick = () if tier == "full" else ("--quick",)
    yield Step("compile", (sys.executable, "scripts/compile.py", str(COMPILED), *quick))
    files = map(test_file, COMPILED_TESTS)
    chosen = () if tier == "full" else ("-m", "not full")
    name = "tests of the compiled variant"
    yield pytest_step(name, "-n", "2", *chosen, *files, cwd=COMPILED, path=COMPILED)


def has_compiler() -> bool:
    """Return whether there is a C compiler."""
    return any(map(shutil.which, ("cc", "gcc", "clang")))


def fuzz_steps(tier: str) -> Iterator[Step]:
    """Yield the steps of fuzzing, torture and combinations, whose time does not depend on the
    machine, and those of deep queues."""
    fuzz = ("scripts/fuzz.py", "--seconds", f"{FUZZ_S[tier]}", "--jobs", "2")
    yield Step("fuzz", (sys.executable, *fuzz))
    plain, mixed = TORTURE[tier]
    yield Step("torture", (sys.executable, "scripts/torture.py", *plain))
    restarts = (sys.executable, "scripts/torture.py", *mixed, *RESTARTS)
    yield Step("torture of a store", restarts)
    if tier == "full":
        combined = (sys.executable, "scripts/combinations.py", *COMBINATIONS)
        yield Step("combinations of features", combined)
    for store in DEEP if tier == "full" else ():
        deep = (sys.executable, "scripts/deep_queues.py", "--store", store)
        yield Step(f"deep queues in {store}", deep)


def node_steps() -> Iterator[Step]:
    """Yield the step that installs the browser's client, unless that is done or npm is missing."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return
    lock = NODE_TESTS / "package-lock.json"
    installed = NODE_TESTS / "node_modules" / ".package-lock.json"
    if not (installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime):
        yield Step("npm packages of tests/js", (npm, "ci"), NODE_TESTS)


def fast_lanes() -> Iterator[Lane]:
    """Yield the lanes of ``--fast``: the sources, floors 0 to 2, and the store."""
    stores = sorted(
        path.relative_to(ROOT).as_posix() for path in (TESTS / "unit" / "store").rglob("test_*.py")
    )
    yield (*lint_steps(), types_step())
    yield (
        pytest_step(
            "tests of floors and store", "-n", "2", "-m", "not full", *floor_tests(), *stores
        ),
    )


def core_lane() -> Lane:
    """Return the tests that a new Python or Trio can break: the floors, and all code that runs on
    Trio."""
    files = {*floor_tests(), *map(test_file, COMPILED_TESTS)}
    return (pytest_step("tests of the core", *PROCESSES, "-m", "not full", *sorted(files)),)


def lanes(tier: str) -> Iterator[Lane]:
    """Yield the lanes of a tier: "core", "fast", "push" or "full"."""
    if tier == "core":
        yield core_lane()
        return
    if tier == "fast":
        yield from fast_lanes()
        return
    audit = Step("known holes of packages", (sys.executable, "scripts/audit.py"))
    # The tests take longest: one lane of all other steps runs beside them.
    yield (*lint_steps(), ways_step())
    yield tuple(tests_steps(tier))
    yield (pytest_step("tests with other programs", "-m", marked(tier, "not spark"), *OTHERS),)
    yield (types_step(), audit, *compiled_steps(tier), spark_step(tier), *fuzz_steps(tier))


def absent() -> Iterator[str]:
    """Yield a warning for each check that this machine cannot run."""
    if not has_compiler():
        yield "there is no C compiler: the compiled variant is NOT tested"
    if shutil.which("npm") is None or shutil.which("node") is None:
        yield "node or npm is missing: the tests with stompjs are SKIPPED"
