"""Bounds of one event protect neighbours, from 1, 4 and 30 connections.

Just below a bound they wait no longer than promised; just above it the event is refused with the
limit's name.
"""

from functools import partial
from pathlib import Path

import pytest
from _proof import attack_run
from _proof.attack_run import run_attack
from _proof.attacks import send
from _proof.bounds import BOUNDS, CHANGED, Bound, assaults, is_silent, tried

from trio_stomp.testing import threaded_broker

ROOT = Path(__file__).parents[2]
REFUSED = {bound.name: [bound.code] for bound in BOUNDS if bound.above}


@pytest.mark.parametrize("connections", [1, 4, 30])
@pytest.mark.parametrize("number", range(len(BOUNDS)), ids=[bound.name for bound in BOUNDS])
def test_a_bound_protects_neighbours(
    number: int, connections: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_run, "IDLE_S", 0.2)
    assault = assaults(connections)[number]
    felt = run_attack(assault, tmp_path, ROOT)
    assert felt.figures["refusals"] == REFUSED.get(assault.name, [])
    assert [each.line() for each in felt.verdicts if not each.holds] == []


@pytest.mark.parametrize(("used", "told"), [("/queue/refused", [CHANGED]), ("/queue/other", [])])
def test_a_bound_tells_only_of_what_took_effect_though_it_should_not(
    used: str, told: list[str]
) -> None:
    bound = Bound(
        "no bound",
        lambda *_: None,
        lambda attacker: attacker.ask(send(used)),
        is_unchanged=partial(is_silent, "/queue/refused"),
    )
    with threaded_broker(diag_interval_s=0) as broker:
        attackers = tried(bound, 1, broker.port, lambda: None)
        for each in attackers:
            each.line.close()
    assert [each.refusal for each in attackers if each.refusal] == told
