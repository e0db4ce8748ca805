"""The corpora in the tests' data: few inputs that together run every line found so far.

One text file for each target, an input a line as Python writes bytes, so that a change can be read.
A line that begins with ``#`` names the fault that the input below it once found. Such inputs are
never removed.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from _fuzz.lines import Lines
from _fuzz.target import Target

DIRECTORY = Path(__file__).resolve().parents[2] / "tests" / "data" / "fuzz"
MOST_BYTES = 2000
"""Maximum length of an input that is stored because of its lines."""
MOST_KEPT_BYTES = 10_000
"""The approximate limit of all inputs of a target."""


def load(name: str) -> list[bytes]:
    """Return the inputs of a target, or none if there is no file."""
    return [data for data, _ in _entries(name)]


def save(target: Target, grown: Sequence[bytes], files: Sequence[Path]) -> None:
    """Keep the inputs of former findings, and others that run a new line."""
    old = list(_entries(target.name))
    kept = [entry for entry in old if entry[1]]
    rest = {data for data, note in old if not note} | set(grown)
    lines = Lines(files)
    size = 0
    for data in (*(data for data, _ in kept), *sorted(rest, key=lambda data: (len(data), data))):
        before = len(lines.seen)
        with lines:
            target.run(data)
        is_new = len(lines.seen) > before and len(data) <= MOST_BYTES
        if is_new and size < MOST_KEPT_BYTES and (data, "") not in kept:
            size += len(data)
            kept.append((data, ""))
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    written = "".join(f"{note}{data!r}\n" for data, note in kept)
    (DIRECTORY / f"{target.name}.txt").write_text(written, encoding="ascii")


def _entries(name: str) -> Iterator[tuple[bytes, str]]:
    """Inputs, each with the comment lines above it."""
    path = DIRECTORY / f"{name}.txt"
    note = ""
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
        if line.startswith("#"):
            note += line + "\n"
        elif line:
            yield ast.literal_eval(line), note
            note = ""
