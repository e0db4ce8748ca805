"""Fuzz the parsers of external input with valid, nearly valid and hostile data.

    python scripts/fuzz.py --seconds 15
    python scripts/fuzz.py --target decoder-1.2 --target journal --seconds 600 --jobs 2
    python scripts/fuzz.py --replay fuzz-findings/decoder-1.2-0a1b2c3d.bin

A finding is an exception that the code does not document, a check of the target that fails (two
decoders that disagree, an answer that depends on how the bytes are cut), an input that takes more
than a second, or memory that grows. Each is written to a file, made as short as a few seconds
allow; the exit code is then 1. Each target runs in a process of its own.

The engine is atheris where it is installed (edges guide it), else one of our own (lines do). Both
begin with the corpora in ``tests/data/fuzz``, which ``--keep`` extends by inputs with new lines.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _fuzz import corpus, report
from _fuzz.engine import has_atheris
from _fuzz.harness import read_current
from _fuzz.targets import MODULES

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
"""Extra time for a target's process beyond its own limit."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    args = parse(words)
    sys.path.insert(0, str(ROOT))
    if args.child:
        from _fuzz import child

        child.run(
            args.child, args.engine, args.seconds, args.seed, found=args.findings, is_kept=args.keep
        )
        return 0
    if args.replay:
        from _fuzz import child

        return child.replay(args.replay, args.target[0] if args.target else "")
    return fuzz(args)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="for each target")
    parser.add_argument(
        "--target", action="append", choices=sorted(MODULES), help="all, if none is named"
    )
    parser.add_argument("--engine", choices=("auto", "atheris", "mutate"), default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="directory")
    parser.add_argument("--keep", action="store_true", help="extend the corpora of the tests")
    parser.add_argument("--replay", type=Path, help="run one input, and show what it does")
    parser.add_argument("--child", choices=sorted(MODULES), help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.engine == "auto":
        args.engine = "atheris" if has_atheris() else "mutate"
    return args


def fuzz(args: argparse.Namespace) -> int:
    """Run the targets, each in a process of its own, and print the results."""
    args.findings.mkdir(parents=True, exist_ok=True)
    names = args.target or list(MODULES)
    print(f"engine {args.engine}, {len(names)} targets, {args.seconds:g} s each, seed {args.seed}")
    print(report.HEAD, flush=True)
    results = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(lambda name: run_target(name, args), names):
            print(report.row(result), flush=True)
            results.append(result)
    print(report.summary(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(any(result["findings"] for result in results))


def run_target(name: str, args: argparse.Namespace) -> report.Result:
    """Run one target, and clean up afterwards in any case."""
    words = [sys.executable, str(Path(__file__).resolve()), "--child", name]
    words += ["--engine", args.engine, "--seconds", str(args.seconds), "--seed", str(args.seed)]
    words += ["--findings", str(args.findings), *["--keep"] * args.keep]
    patience = args.seconds + PATIENCE_S
    began = time.monotonic()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch,
    ):
        # A fixed hash seed makes runs repeatable.
        env = os.environ | {"PYTHONHASHSEED": "0", "TMPDIR": scratch}
        try:
            process = subprocess.run(words, stderr=errors, timeout=patience, env=env, check=False)
            end = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            end = f"hangs: still running after {patience:g} s"
        errors.seek(0)
        outcome = errors.read()
    current = args.findings / f"current-{name}"
    result_path = args.findings / f"result-{name}.json"
    try:
        result: report.Result = json.loads(result_path.read_text(encoding="utf-8"))
        result_path.unlink()
    except OSError:
        result = {"target": name, "seconds": time.monotonic() - began}
        result["findings"] = {f"{end}: {outcome[-800:]}": keep_current(current, name)}
    result["edges"] = report.edges(outcome)
    current.unlink(missing_ok=True)
    return result


def keep_current(current: Path, name: str) -> str:
    """Keep the input that ended a target's process, if any."""
    if not current.exists():
        return "no input"
    path = current.with_name(f"{name}-end.bin")
    path.write_bytes(read_current(current))
    return str(path)


__all__ = ["corpus", "main"]

if __name__ == "__main__":
    sys.exit(main())
