"""The engines that create inputs: atheris (libFuzzer, guided by edges), or our own.

Ours needs only Python: it mutates by the target's grammar, and adds each input that runs a new line
to its corpus. Both run the same mutations and the same targets.
"""

import importlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _fuzz.harness import Harness
from _fuzz.mutate import Mutator

TRACE_EVERY = 3
"""Tracing lines makes an input several times slower."""
MOST_KEPT = 4000
FRESH_SEEDS = 60


def has_atheris() -> bool:
    """Return whether atheris is installed. It is not available for every platform."""
    return importlib.util.find_spec("atheris") is not None


@contextmanager
def instrumented(engine: str) -> Iterator[None]:
    """Count the edges of modules that are imported in the block, if the engine uses them."""
    if engine != "atheris":
        yield
        return
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["trio_stomp"], enable_loader_override=False):
        yield


def mutate(harness: Harness, corpus: list[bytes], seed: int) -> None:
    """Run our own engine until the time is up. ``corpus`` grows."""
    chance = random.Random(seed)
    mutator = Mutator(harness.target, corpus)
    for data in corpus:
        with harness.lines:
            harness.run(data)
    corpus += [harness.target.generate(chance) for _ in range(FRESH_SEEDS)]
    while not harness.is_over:
        # Recent inputs lead to new lines more often than old ones.
        at = chance.choice((-1, chance.randrange(len(corpus)), chance.randrange(len(corpus))))
        data = mutator.make(corpus[at], chance)
        if harness.executions % TRACE_EVERY:
            harness.run(data)
            continue
        before = len(harness.lines.seen)
        with harness.lines:
            harness.run(data)
        if len(harness.lines.seen) > before and len(corpus) < MOST_KEPT:
            corpus.append(data)


def fuzz_with_atheris(
    harness: Harness,
    corpus: list[bytes],
    seed: int,
    directory: Path,
    end: Callable[[list[bytes]], None],
) -> None:
    """Run atheris until the time is up, call ``end`` with its corpus, and end the process.

    Args:
      directory: Empty, for the corpus.
    """
    atheris: Any = importlib.import_module("atheris")
    chance = random.Random(seed)
    corpus += [harness.target.generate(chance) for _ in range(FRESH_SEEDS)]
    for number, data in enumerate(corpus):
        (directory / f"seed-{number}").write_bytes(data)
    mutator = Mutator(harness.target, corpus)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.2:
            return bytes(atheris.Mutate(data, max_size))
        return mutator.make(data, rng)[:max_size]

    def test_one(data: bytes) -> None:
        harness.run(data)
        if harness.is_over:
            end([path.read_bytes() for path in sorted(directory.iterdir())])
            sys.stderr.flush()
            # libFuzzer offers no other way to end without a finding.
            os._exit(0)

    options = [
        f"-max_len={harness.target.max_bytes}",
        f"-seed={seed % (1 << 31) + 1}",
        f"-artifact_prefix={harness.found}/{harness.target.name}-",
        # The harness checks memory and time itself, and the last report takes a while.
        *("-rss_limit_mb=0", "-timeout=1000000", "-len_control=20"),
    ]
    atheris.Setup([sys.argv[0], *options, str(directory)], test_one, custom_mutator=change)
    atheris.Fuzz()
