"""The interoperability of other projects' clients with this broker, by client, transport and step.

The expectations stand in interop/expected.toml; docs/reference/interoperability.md is made from
them. With TRIO_STOMP_INTEROP_RESULTS=FILE the results are written there as well (JSON).
"""

import importlib
import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.interop._browser import lines_of_chromium
from tests.interop._libraries import PROGRAMS
from tests.interop._relay import Relay, running_relay
from tests.support.foreign import JS, ROOT, node_or_skip, running_broker
from tests.support.tls import authority

HERE = Path(__file__).parents[1] / "interop"
EXPECTED: list[dict[str, Any]] = tomllib.loads(
    (HERE / "expected.toml").read_text(encoding="utf-8")
)["client"]
PATIENCE_S = 150
BEATS_MS = "300"
OK, NOT_SUPPORTED = "ok", "not supported by the library"
CELLS = [(client["name"], transport) for client in EXPECTED for transport in client["transports"]]
IN_EACH_PUSH = {("stomp.py", "tls"), ("stompjs in Chromium", "ws")}
"""Besides those without TLS and browser."""
MARKED = [
    pytest.param(
        *cell,
        id="-".join(cell),
        marks=()
        if cell in IN_EACH_PUSH or (cell[1] in ("tcp", "ws") and "Chromium" not in cell[0])
        else pytest.mark.full,
    )
    for cell in CELLS
]
STEPS = (
    *("connect", "heart-beat", "topic", "together", "ack-auto", "ack-client"),
    *("ack-client-individual", "nack", "commit", "abort", "receipt", "reply", "wildcard"),
    *("binary", "reconnect", "ordered-stop"),
)
WITH_A_STOP = ("connect", "reconnect")
"""Steps to repeat with a clean stop of the broker in place of a cut link."""


def options() -> tuple[str, ...]:
    """Return the options of a broker with and without TLS that drops clients after 1.3 s of
    silence."""
    beats = ("--heartbeat-send-ms", BEATS_MS, "--heartbeat-expect-ms", BEATS_MS)
    return "--tls-cert", authority().certificate, *beats


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_broker(*options()) as found:
        yield found


@pytest.fixture
def relay(port: int) -> Iterator[Relay]:
    with running_relay(port) as found:
        yield found


@pytest.fixture
def stopping_relay() -> Iterator[Relay]:
    """A relay that has the broker stopped in order, and another started, where it is to cut."""
    with ExitStack() as running:

        def restart() -> int:
            running.close()  # SIGTERM, and an exit code of 0
            return running.enter_context(running_broker(*options()))

        with running_relay(restart(), restart) as found:
            yield found


def run(
    name: str, transport: str, relay: Relay, directory: Path, steps: str = ""
) -> tuple[int, str, str]:
    """Run a client's program, all of it or some steps: its exit code, lines of JSON, complaints."""
    tag = f"{name.replace(' ', '-').replace(':', '-')}-{transport}".replace(".", "-")
    if name == "stompjs in Chromium":
        code, lines = lines_of_chromium(
            transport, relay.port, relay.cut_port, tag, directory, steps=steps
        )
        return code, lines, ""
    where = ["127.0.0.1", str(relay.port), str(relay.cut_port), authority().file]
    done = subprocess.run(
        [*PROGRAMS[name](), transport, *where, tag],
        cwd=ROOT,
        env={**os.environ, **({"INTEROP_STEPS": steps} if steps else {})},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.foreign
@pytest.mark.parametrize(("name", "transport"), MARKED)
def test_a_client_passes_every_step_that_it_supports(
    name: str, transport: str, relay: Relay, tmp_path: Path
) -> None:
    code, printed, complaints = run(name, transport, relay, tmp_path)
    assert printed, complaints
    about, *steps = map(json.loads, printed.splitlines())
    found = {each["step"]: each for each in steps}
    [client] = [each for each in EXPECTED if each["name"] == name]
    lacks = client.get("not_supported", {})
    assert {step: (each["result"], each["detail"]) for step, each in found.items()} == {
        step: (NOT_SUPPORTED, lacks[step]) if step in lacks else (OK, found[step]["detail"])
        for step in STEPS
        if step in found
    }, complaints
    assert tuple(found) == STEPS[:-1], complaints
    assert code == 0, complaints
    assert relay.cuts == 1
    record(name, transport, about, steps)


@pytest.mark.foreign
@pytest.mark.parametrize(("name", "transport"), MARKED)
def test_an_ordered_stop_ends_a_client_as_a_lost_connection_does(
    name: str, transport: str, stopping_relay: Relay, tmp_path: Path
) -> None:
    wanted = ",".join(WITH_A_STOP)
    code, printed, complaints = run(name, transport, stopping_relay, tmp_path, wanted)
    assert printed, complaints
    about, *steps = map(json.loads, printed.splitlines())
    assert [(each["step"], each["result"]) for each in steps] == [
        (step, OK) for step in WITH_A_STOP
    ], (steps, complaints)
    assert code == 0, complaints
    assert stopping_relay.cuts == 1
    record(name, transport, about, [{**steps[-1], "step": "ordered-stop"}])


def record(name: str, transport: str, about: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """Record the results, if requested."""
    wanted = os.environ.get("TRIO_STOMP_INTEROP_RESULTS")
    if not wanted:
        return
    file = Path(wanted)
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    entry = results.setdefault(name, {})
    entry.update(version=about["version"], on=about["on"])
    found = {
        each["step"]: ": ".join(filter(None, (each["result"], each["detail"]))) for each in steps
    }
    entry.setdefault("transports", {}).setdefault(transport, {}).update(found)
    text = json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


# The page.


@pytest.fixture
def table() -> ModuleType:
    return importlib.import_module("interop_table")


def test_the_page_is_made_from_the_expectations(table: ModuleType) -> None:
    page = (ROOT / "docs" / "reference" / "interoperability.md").read_text(encoding="utf-8")
    assert table.page() == page, "run: python scripts/interop_table.py --write"


def test_each_report_has_its_test() -> None:
    reports = tomllib.loads((HERE / "reports.toml").read_text(encoding="utf-8"))["report"]
    assert len(reports) >= 40
    for each in reports:
        file, _, name = each["test"].partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), each["test"]


def test_recorded_results_match_the_expected_ones() -> None:
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    assert {
        (name, transport) for name, each in results.items() for transport in each["transports"]
    } == set(CELLS)
    for client in EXPECTED:
        lacks = client.get("not_supported", {})
        assert set(lacks) <= set(STEPS)
        for transport, steps in results[client["name"]]["transports"].items():
            found = {step: text.partition(": ")[0] for step, text in steps.items()}
            wanted = {step: NOT_SUPPORTED if step in lacks else OK for step in STEPS}
            assert found == wanted, (client["name"], transport)


def test_the_page_tells_of_every_step(table: ModuleType) -> None:
    assert tuple(table.STEPS) == STEPS


# Scenarios with many connections, by Node.


@pytest.mark.foreign
def test_scenarios_in_node(port: int) -> None:
    command = [node_or_skip(), str(JS / "scenarios.mjs"), str(port), "--clients", "50"]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "connections: 50 of 50" in done.stdout
    assert "load: 50 of 50" in done.stdout


@pytest.mark.foreign
def test_scenarios_print_the_failure_and_exit_with_1() -> None:
    command = [node_or_skip(), str(JS / "scenarios.mjs"), "1", "--clients", "1"]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert "FAILED" in done.stdout
