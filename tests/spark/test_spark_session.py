"""Sessions of the scripts: Spark on this machine by default, errors for missing requirements."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import spark as _spark
from tests.support.stream_server import StreamServer

_spark.require()

from trio_stomp.spark import _session  # noqa: E402

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
LAUNCHERS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


@pytest.fixture(autouse=True)
def nobody_launched_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHERS, "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


def run(script: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script with only the given environment."""
    command = [sys.executable, str(ROOT / "scripts" / script), *options]
    known = {"PYTHONPATH": str(ROOT), **environ}
    return subprocess.run(command, check=False, env=known, capture_output=True, text=True)


def test_a_local_session_is_reachable_from_this_machine_only() -> None:
    result = _session.chosen({"spark.ui.port": "1"})
    assert result["spark.master"] == "local[2]"
    assert result["spark.driver.bindAddress"] == result["spark.driver.host"] == "127.0.0.1"
    assert (result["spark.ui.enabled"], result["spark.ui.port"]) == ("false", "1")
    assert _session.chosen({"spark.master": "local[4]"})["spark.master"] == "local[4]"


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_chooses_the_master(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert _session.chosen({"spark.x": "y"}) == {"spark.x": "y"}


def test_arguments_for_spark_submit_choose_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 2g pyspark-shell")
    assert "spark.master" in _session.chosen({})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert _session.chosen({}) == {}


def test_no_script_and_no_file_chooses_the_master_for_spark_submit() -> None:
    """It would win over the command line's: only ``chosen`` may name one."""
    for name in ("diag_to_parquet", "diag_analysis", "kill_spark", "bench_spark"):
        text = (ROOT / "scripts" / f"{name}.py").read_text(encoding="utf-8")
        assert ".master(" not in text
        assert "spark.master" not in text
    defaults = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    settings = [line.split(None, 1) for line in defaults.splitlines() if line[:1] not in "#"]
    known = dict(setting for setting in settings if setting)
    assert "spark.master" not in known
    assert known["spark.ui.enabled"].strip() == "false"
    for name, value in _session.ANYWHERE.items():
        assert known[name].strip() == value


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("diag_to_parquet.py", ["--once"]),
        ("bench_spark.py", ["source"]),
        ("bench_spark.py", ["rows"]),
    ],
)
@pytest.mark.parametrize("home", [False, True])
def test_a_missing_java_is_one_sentence(
    script: str, options: list[str], home: bool, tmp_path: Path
) -> None:
    environ = {"PATH": str(tmp_path)} | ({"JAVA_HOME": str(tmp_path)} if home else {})
    ended = run(script, *options, "--root", str(tmp_path / "root"), **environ)
    place = f"in JAVA_HOME={tmp_path}" if home else "on the PATH"
    who = "" if "bench" in script else "trio-stomp spark: error: "
    expected = f"{who}Spark needs Java 17 or newer, and there is none {place}\n"
    assert (ended.returncode, ended.stderr) == (1, expected)
    assert not list(tmp_path.glob("root/*/*")), "nothing was begun"


def test_failing_java_is_reported_in_a_sentence(tmp_path: Path) -> None:
    """A Java that is too old ends at the first class of Spark."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n")
    java.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)}
    with StreamServer() as server:
        words = ("--once", "--url", server.url, "--root", str(tmp_path / "root"))
        ended = run("diag_to_parquet.py", *words, **environ)
    text = ended.stderr.splitlines()
    assert ended.returncode == 1
    expected = f"Spark could not start Java: it needs 17 or newer, and takes {java}"
    assert text[-1] == f"trio-stomp spark: error: {expected}"
    assert "Traceback" not in ended.stderr
    assert "UnsupportedClassVersionError" in ended.stderr


@pytest.mark.parametrize("where", ["CI", "SPARK_REQUIRED"])
def test_spark_is_left_out_loudly_and_never_in_ci(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "SPARK_REQUIRED"):
        monkeypatch.delenv(name, raising=False)
    _spark.require("json")
    with pytest.raises(pytest.skip.Exception, match="LEFT OUT: not installed: spork"):
        _spark.require("json", "spork")
    monkeypatch.setenv(where, "1")
    with pytest.raises(pytest.fail.Exception, match="LEFT OUT: not installed: spork"):
        _spark.require("spork")


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="this is no clone")
def test_ci_requires_spark() -> None:
    assert "\nexport SPARK_REQUIRED=1\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_no_java_is_nothing_without_which_spark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert _spark.missing() == ["Java"]
