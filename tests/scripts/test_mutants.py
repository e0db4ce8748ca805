"""The mutants: their changes, the stable sample, and the report on survivors."""

import ast
import subprocess
from pathlib import Path

import pytest
from _mutants.run import Result, Tree, try_mutant
from _mutants.sites import mutants_of, sample
from mutants import compare

CODE = b'''"""1 < 2"""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 1

def is_allowed(size: int = 0, *, more: bool = True) -> bool:
    """True, or not."""
    if not more or size is None:
        return size > 7
    return [n for n in (size,) if n.real] == [] if more else f"{size}" in "x"
'''


def test_each_condition_and_constant_is_changed_alone() -> None:
    mutants = list(mutants_of("a.py", CODE))
    assert sorted(mutant.what for mutant in mutants) == sorted(
        ["0 and one", "True turned", "or to and", "without not", "is to is not", "> to >=",
         "7 and one", "== to !=", "in to not in",
         *["the other way round"] * 3],
    )  # fmt: skip
    trees = {ast.dump(ast.parse(mutant.applied(CODE))) for mutant in mutants}
    assert len(trees | {ast.dump(ast.parse(CODE))}) == len(mutants) + 1
    assert {mutant.line for mutant in mutants} == {6, 8, 9, 10}


def test_the_sample_stays_when_other_lines_come_and_go() -> None:
    before = list(mutants_of("a.py", CODE))
    after = list(mutants_of("a.py", CODE.replace(b"def is", b"x = y = z = None\n\ndef is")))
    chosen = sample(before, 1, 5)
    assert [each.name for each in sample(after, 1, 5)] == [each.name for each in chosen]
    assert len({each.name for each in before}) == len(before)
    assert sample(before, 2, 5) != chosen


def write_tree(root: Path) -> Tree:
    (root / "a.py").write_text("def smaller(a, b):\n    return a < b\n")
    (root / "test_a.py").write_text(
        "from a import smaller\n"
        "def test_little(): assert smaller(1, 2)\n"
        "def test_much(): assert not smaller(2, 2)\n"
        "def test_for_ever():\n    while not smaller(2, 2): pass\n"
    )
    subprocess.run("git init -q && git add .", shell=True, cwd=root, check=True)
    return Tree(root, root / "copy")


@pytest.mark.parametrize(
    ("tests", "outcome", "by"),
    [
        (["test_little"], "survived", ""),
        (["test_little", "test_much"], "killed", "test_a.py::test_much"),
        ([], "uncovered", ""),
    ],
)
def test_outcomes_of_mutants(tmp_path: Path, tests: list[str], outcome: str, by: str) -> None:
    tree = write_tree(tmp_path)
    (mutant,) = mutants_of("a.py", (tmp_path / "a.py").read_bytes())
    found = try_mutant(tree, mutant, [f"test_a.py::{test}" for test in tests], 30.0)
    assert (found.outcome, found.test, found.where) == (outcome, by, "a.py:2")
    assert (tmp_path / "copy" / "a.py").read_bytes() == (tmp_path / "a.py").read_bytes()


def test_a_mutant_without_an_end_is_a_timeout(tmp_path: Path) -> None:
    tree = write_tree(tmp_path)
    assert tree.run(["test_a.py::test_for_ever"], 3.0) == ("timeout", "")


def test_only_mutants_of_both_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def result(name: str, outcome: str) -> Result:
        return Result(name, "a.py:1", outcome)

    before = {name: result(name, "killed") for name in ("a", "b", "gone")}
    after = {"a": result("a", "timeout"), "b": result("b", "survived"), "new": result("new", "x")}
    assert compare(before, after) == ["b"]
    assert "before: 2 of 2 noticed; killed 2" in capsys.readouterr().out
