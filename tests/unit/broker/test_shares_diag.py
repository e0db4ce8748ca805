"""Requests for statistics whose answers go to many subscribers: answered in pieces, in order."""

from itertools import pairwise

import pytest

from tests.support.core import run_of
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker.routing._fanout_pieces import STEP

TAKERS = 400
REQUESTS = 60
NAME = "DIAG/stats"
ALL = [f"{n}" for n in range(REQUESTS)]


@pytest.mark.parametrize("delay", ["", "500"])
def test_answers_are_bounded_per_turn(desk: Clocked, delay: str):
    actors = [desk.actor() for _ in range(TAKERS)]
    for actor in actors:
        actor.outbox.is_logged = True
        actor.subscribes(NAME)
    desk.settles()
    later = (("AMQ_SCHEDULED_DELAY", delay),) if delay else ()
    busy = desk.actor()
    busy.does(run_of(NAME, ALL, later, [(REQUESTS, b"r")]), run_of(NAME, ["last"]))
    if delay:
        desk.settles()
        desk.now += 1.0
        desk.broker.tick(desk.now)
    given = [0]
    while given[-1] == 0 or desk.broker.has_more:
        given.append(sum(len(actor.outbox.log) for actor in actors))
        desk.turn()
    given.append(sum(len(actor.outbox.log) for actor in actors))
    assert given[-1] == (REQUESTS + 1) * TAKERS
    assert max(b - a for a, b in pairwise(given)) <= MOST * STEP < REQUESTS * TAKERS
    expected = ["last", *ALL] if delay else [*ALL, "last"]
    assert [frame.text for frame in actors[0].writes()] == expected
    [receipt] = busy.writes()
    assert receipt.get("receipt-id") == "r"
    assert delay or receipt.get("matched") == f"{TAKERS}"
    assert not desk.broker.lines.busy
