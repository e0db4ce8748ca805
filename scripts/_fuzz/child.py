"""The code that runs in a target's own process."""

import importlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _fuzz import corpus, engine
from _fuzz.harness import Harness
from _fuzz.lines import Lines
from _fuzz.target import Target
from _fuzz.targets import make_target

PACKAGE = Path(__file__).resolve().parents[2] / "trio_stomp"


def run(name: str, kind: str, seconds: float, seed: int, *, found: Path, is_kept: bool) -> None:
    """Fuzz one target and write ``result-<name>.json``. The process may end here.

    Args:
      kind: The engine, ``atheris`` or ``mutate``.
      found: Directory for findings and the result.
      is_kept: Whether to extend the corpus of the tests.
    """
    result = found / f"result-{name}.json"
    result.unlink(missing_ok=True)
    try:
        with engine.instrumented(kind):
            target = make_target(name)
    except ModuleNotFoundError as error:
        skipped = {"target": name, "skipped": str(error), "findings": {}}
        result.write_text(json.dumps(skipped), encoding="utf-8")
        return
    harness = Harness(target, seconds, found, Lines(files_of(target)))
    inputs = corpus.load(name)

    def end(grown: Sequence[bytes]) -> None:
        figures = harness.report(grown)
        if is_kept and not harness.findings:
            corpus.save(target, grown, files_of(target))
        result.write_text(json.dumps(figures), encoding="utf-8")

    if kind == "atheris":
        with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
            engine.fuzz_with_atheris(harness, inputs, seed, Path(directory), end)
    else:
        engine.mutate(harness, inputs, seed)
        end(inputs)


def files_of(target: Target) -> list[Path]:
    """Return the files whose lines are counted."""
    return [PACKAGE / name for name in target.files]


def replay(path: Path, name: str) -> int:
    """Run the input in ``path``. A finding is raised.

    Args:
      name: The target's name; empty = that at the beginning of the file's name.
    """
    target = make_target(name or path.stem.rpartition("-")[0])
    data = path.read_bytes()
    print(f"{target.name}: {data!r:.400}", file=sys.stderr)
    importlib.import_module("faulthandler").dump_traceback_later(10.0)
    target.run(data)
    print("nothing found", file=sys.stderr)
    return 0
