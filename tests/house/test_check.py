"""The command for all checks: its tiers, the files that they name, and how they run."""

import re
import sys
from pathlib import Path

import check
import pytest
from _check import steps
from _check.run import Runner, slowest_files
from _check.steps import Step

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
TIERS = ("fast", "push", "full")


def commands(tier: str) -> dict[str, tuple[str, ...]]:
    return {step.name: tuple(step.command) for lane in steps.lanes(tier) for step in lane}


def test_every_test_of_the_compiled_variant_is_there() -> None:
    names = steps.COMPILED_TESTS
    assert [name for name in names if len(list(TESTS.rglob(f"test_{name}.py"))) != 1] == []
    assert sorted(set(names)) == list(names)


def test_the_compiled_variant_is_asked_nothing_about_files_that_its_copy_has_not() -> None:
    """It has no ``.ci``: CI once ran the tests of the supply chain there, and failed."""
    texts = {name: (ROOT / steps.test_file(name)).read_text() for name in steps.COMPILED_TESTS}
    assert [name for name, text in texts.items() if '".ci' in text] == []


def test_without_options_it_is_the_push_tier() -> None:
    assert [check.tier_of(words) for words in ([], ["--fast"], ["--core"], ["--full"])] == [
        *("push", "fast", "core", "full")
    ]
    with pytest.raises(SystemExit):
        check.tier_of(["--fast", "--full"])


def test_each_push_runs_every_file_of_tests_without_those_marked_full() -> None:
    result = commands("push")
    named: list[str] = []
    for name in ("traced tests", "tests with other programs"):
        named += [word for word in result[name] if word.startswith("tests/")]
        assert "not spark and not full" in result[name]
    assert [name for name in named if not (ROOT / name).exists()] == []
    left_out = [word for word in result["tests"] if "tests/" in word]
    assert sorted(left_out) == sorted(f"--ignore={name}" for name in named)
    assert "not spark and not full" in result["tests"]
    assert "spark and not full" in result["tests of Spark"]


def test_the_full_tier_leaves_nothing_out() -> None:
    assert commands("full").keys() >= commands("push").keys()
    assert not [word for words in commands("full").values() for word in words if "not full" in word]


def test_only_the_full_tier_compiles_as_for_a_release() -> None:
    assert "--quick" in commands("push")["compile"]
    assert "--quick" not in commands("full")["compile"]


@pytest.mark.parametrize("tier", TIERS)
def test_each_tier_looks_at_style_and_types(tier: str) -> None:
    assert {"lint", "format", "types"} <= commands(tier).keys()


def test_a_failed_step_ends_its_lane_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def says(name: str, code: int = 0) -> Step:
        return Step(name, (sys.executable, "-c", f"print('I am {name}'); exit({code})"))

    runner = Runner()
    assert not runner.run([(says("a", 3), says("b")), (says("c"), says("d"))])
    assert sorted((step.name, step.code) for step in runner.took) == [("a", 3), ("c", 0), ("d", 0)]
    output = capsys.readouterr().out
    assert "=== a: FAILED with exit code 3 in" in output
    assert "I am d\n=== d: passed in" in output
    assert "I am b" not in output


def test_slowest_files_of_all_steps_are_reported(tmp_path: Path) -> None:
    case = '<testcase classname="tests.test_{}" name="t" time="{}"/>'
    for step, cases in {"one": [("a", 1), ("b", 2), ("a", 3)], "two": [("a", 9)]}.items():
        text = "".join(case.format(*each) for each in cases)
        (tmp_path / f"{step}.xml").write_text(f"<testsuites>{text}</testsuites>")
    assert [line.split() for line in slowest_files(tmp_path, 2)] == [
        ["9.0", "s", "tests.test_a", "(two)"],
        ["4.0", "s", "tests.test_a", "(one)"],
    ]


def test_scripts_run_by_the_forge_exist() -> None:
    """The workflows call what a contributor calls: each script, and each option of check.py."""
    named = set()
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        named |= set(re.findall(r"(?<![\w/])((?:\.ci|scripts)/[\w.]+)", text))
        for words in re.findall(r"scripts/check\.py([ \w-]*)", text):
            check.tier_of(words.split())
    assert {".ci/run", "scripts/audit.py", "scripts/check.py", "scripts/release.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
