"""scripts/suites.py parses output of other projects' suites, and reports unexplained results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from _suites import gem, outcomes, report, running
from _suites.outcomes import FAILED, PASSED, SKIPPED
from _suites.sides import Side
from _suites.suites import SUITES
from attrs import evolve

PYTEST = """<testsuites><testsuite>
<testcase classname="tests.test_s12.Test12" name="test_a"/>
<testcase classname="tests.test_s12.Test12" name="test_b"><failure message="no"/></testcase>
<testcase classname="tests.test_s12.Test12" name="test_c"><skipped/></testcase>
<testcase classname="tests.test_s12.Test12" name="test_d"/>
<testcase classname="tests.test_s12.Test12" name="test_d"><error message="teardown"/></testcase>
</testsuite></testsuites>"""

TEST_UNIT = """Loaded suite -e
Started
TestAnonymous: \n\
  test_connection_open?:\t\t\t\t.: (0.000859)
  test_client_ack_with_symbol_10:\t\t\t.: (0.005819)
TestConnection1P: \n\
  test_conn_1p_0124:\t\t\t\t\tF
===============================================================================
Failure: test_conn_1p_0124(TestConnection1P)
<["kv3", "kv2", "kv1"]> expected but was
<"kv3">
===============================================================================
: (0.010000)
  test_conn_1p_0130:\t\t\t\t\t.: (0.002000)
  test_conn_1p_0135:\t\t\t\t\t
Logger initialized
.: (65.002000)
  test_left_out:\t\t\t\t\tO
: (0.001000)

Finished in 12.3 seconds.
"""

SPEC_LINES = """CLIENT 1: >>> SEND
SPEC {"name": "Ack sends", "status": "passed"}
SPEC {"name": "Ack waits", "status": "failed"}
SPEC {"name": "Ack later", "status": "pending"}
"""


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            outcomes.of_junit_xml(PYTEST),
            {
                "Test12.test_a": PASSED,
                "Test12.test_b": FAILED,
                "Test12.test_c": SKIPPED,
                "Test12.test_d": FAILED,
            },
            id="pytest",
        ),
        pytest.param(
            outcomes.of_test_unit(TEST_UNIT),
            {
                "TestAnonymous.test_connection_open?": PASSED,
                "TestAnonymous.test_client_ack_with_symbol_10": PASSED,
                "TestConnection1P.test_conn_1p_0124": FAILED,
                "TestConnection1P.test_conn_1p_0130": PASSED,
                "TestConnection1P.test_conn_1p_0135": PASSED,
                "TestConnection1P.test_left_out": SKIPPED,
            },
            id="test-unit",
        ),
        pytest.param(
            outcomes.of_spec_lines(SPEC_LINES),
            {"Ack sends": PASSED, "Ack waits": FAILED, "Ack later": SKIPPED},
            id="lines of our own",
        ),
    ],
)
def test_output_of_each_suite_is_parsed(
    found: outcomes.Outcomes, expected: outcomes.Outcomes
) -> None:
    assert found == expected


def test_skipped_tests_do_not_count() -> None:
    assert outcomes.count({"a": PASSED, "b": FAILED, "c": SKIPPED}) == (1, 2)


def test_an_unexplained_failure_is_named() -> None:
    ours = {"Parsing.a": FAILED, "Parsing.b": FAILED, "Ack.c": FAILED, "Ack.d": PASSED}
    explained = {"Parsing.*": "bytes", "Ack.d": "it passes now"}
    assert report.unexplained(ours, explained) == ["Ack.c"]
    lines = list(report.differences("a suite", ours, {"Ack.c": PASSED, "Ack.d": FAILED}, explained))
    assert lines[3:] == [
        "| Ack.c | failed | passed | NOT EXPLAINED |",
        "| Ack.d | passed | failed |  |",
        "| Parsing.a | failed | - | bytes |",
        "| Parsing.b | failed | - | bytes |",
    ]


def test_recorded_results_belong_to_known_suites_and_are_explained() -> None:
    figures = json.loads(report.FIGURES.read_text(encoding="utf-8"))
    assert set(figures) <= {suite.name for suite in SUITES}
    for name, figure in figures.items():
        failed = dict.fromkeys(figure["failed"], FAILED)
        assert report.unexplained(failed, report.explanations(name)) == [], name


def test_why_tests_are_left_out_stands_in_the_docs_only_where_somebody_said_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = tmp_path / "explained.toml"
    explained.write_text('[theirs]\n"Bean.*" = "looks inside"\n"Wire.b" = "another word"\n')
    monkeypatch.setattr(report, "EXPLAINED", explained)
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures.json")
    ours = {"Bean.a": SKIPPED, "Bean.b": SKIPPED, "Slow.c": SKIPPED, "Wire.b": FAILED}
    report.record("theirs", "Their tests", ours, {"Wire.b": PASSED})
    report.record("theirs", "Their tests", ours, None)  # not run again: 1 of 1 stays
    assert list(report.section()) == [
        "| suite | here | the broker that it was written for |",
        "|---|---|---|",
        "| Their tests | 0 of 1 | 1 of 1 |",
        "",
        "| suite | fails here | why |",
        "|---|---|---|",
        "| Their tests | `Wire.b` | another word |",
        "",
        "| suite | is left out here | why |",
        "|---|---|---|",
        "| Their tests | `Bean.a`, `Bean.b` | looks inside |",
    ]


def test_a_suite_says_which_program_or_file_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    jar = tmp_path / "theirs.jar"
    suite = evolve(SUITES[0], folder="theirs", needs=("python3", str(jar)))
    assert suite.lacks(tmp_path) == f"{jar} is not installed"
    jar.touch()
    assert suite.lacks(tmp_path) == ""
    assert evolve(suite, needs=("no-such-program",)).lacks(tmp_path)


def test_the_gems_long_tests_are_run_in_each_setting_and_count_even_if_they_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ruby(
        command: Sequence[str], folder: Path, reported: Mapping[str, str], patience_s: int
    ) -> str:
        assert (folder, patience_s) == (tmp_path / "stomp-gem", gem.PATIENCE_S)
        only = command[-1] if "-n" in command else "test_all"
        assert ("STOMP_HB11LONG" in reported) == (only in gem.LONG)
        assert ("STOMP_AMQ11" in reported) == (only == gem.NO_CONTENT_LENGTH)
        return "" if only == gem.LONG[0] else f"TestConnection1P: \n  {only}:\t.: (65.0)\n"

    monkeypatch.setattr(running, "run", ruby)
    found = gem.run(tmp_path, Side("ours", 61613, 0, 0), tmp_path)
    versions = ["1.1", "1.1 STOMP", "1.2", "1.2 STOMP", "1.2 CRLF", "1.2 CRLF STOMP"]
    tests = ["test_all", *gem.LONG, gem.NO_CONTENT_LENGTH]
    expected = {f"TestConnection1P.{test} [{each}]": PASSED for test in tests for each in versions}
    expected["TestConnection1P.test_all [1.0]"] = PASSED
    for each in versions:
        expected[f"TestConnection1P.{gem.LONG[0]} [{each}]"] = FAILED
    assert found == expected
