"""The simulation of clusters: it finds no faults but the planted ones, and is repeatable."""

import cluster_sim
import pytest
from _cluster.parted import simulation as parted
from _cluster.simulation import FENCE, PLANTS, simulate

FEW = "--nodes", "3", "--duration", "3"


def test_some_seeds_have_no_violations(capsys: pytest.CaptureFixture[str]) -> None:
    code = cluster_sim.main(["--seeds", "20", *FEW])
    printed = capsys.readouterr().out
    assert code == 0, printed
    figures = dict(line.rsplit(maxsplit=1) for line in printed.splitlines())
    assert int(figures["takeovers"]) > 10
    assert int(figures["confirmed appends"].replace(",", "")) > 500
    assert figures["seeds with violations"] == "0"


@pytest.mark.full
def test_seeds_of_all_sizes_have_no_violations(capsys: pytest.CaptureFixture[str]) -> None:
    code = cluster_sim.main(["--seeds", "100"])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(1, 21):
        code = cluster_sim.main(["--seed", f"{seed}", *FEW, "--plant", plant])
        printed = capsys.readouterr().out
        if code:
            break
    assert code == 1
    assert "VIOLATION " in printed
    assert f"--seed {seed} --nodes 3 --duration 3 --plant {plant}" in printed


def test_a_seed_always_leads_to_the_same_events() -> None:
    once, again = (simulate(1, (3, 3), plant=FENCE, duration_s=3) for _ in range(2))
    assert once == again
    assert once.trace


PARTED = *FEW, "--partitions", "2"


def test_clients_of_partitions_see_all_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = cluster_sim.main(["--seeds", "2", *PARTED])
    printed = capsys.readouterr().out
    assert code == 0, printed
    figures = dict(line.rsplit(maxsplit=1) for line in printed.splitlines())
    assert int(figures["- over partitions"]) > 10


@pytest.mark.full
@pytest.mark.parametrize("plant", parted.PLANTS)
def test_a_planted_fault_of_forwarding_is_found(
    plant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = (
        cluster_sim.main(["--seed", f"{seed}", *PARTED, "--plant", plant]) for seed in range(1, 41)
    )
    assert any(codes), capsys.readouterr().out
