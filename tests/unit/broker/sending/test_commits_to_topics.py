"""A COMMIT to topics of many recipients: in pieces, without messages of others in between."""

import pytest

from tests.support.core import Actor, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import Clocked
from trio_stomp.broker import DestinationPolicy
from trio_stomp.protocol import Committed

TOPIC = "/topic/t"
TAKERS = 20
RUNS = 150


def recipients(desk: Clocked | DurableBench, *names: str, count: int = TAKERS) -> list[Actor]:
    actors = [desk.actor() for _ in range(count)]
    for actor in actors:
        for place, name in enumerate(names or (TOPIC,)):
            actor.subscribes(name, f"{place}")
    desk.settles()
    return actors


def bodies(actor: Actor, id: str = "0") -> list[str]:
    return [frame.text for frame in actor.writes() if frame.get("subscription") == id]


def receipts(actor: Actor) -> list[str]:
    return [frame.get("receipt-id") or "" for frame in actor.frames() if frame.command == "RECEIPT"]


# Messages that cannot be held follow the COMMIT.


# Other frames in a COMMIT.


def test_a_commit_of_much_may_schedule_and_tell_ids():
    desk = Clocked(book={"/topic/**": DestinationPolicy(dedup_window=1000)})
    actors = recipients(desk)
    busy = desk.actor()
    once = [
        run_of(TOPIC, [f"{n}"], (("n", f"{n}"), ("x-dedup-id", f"id{n // 2}")))
        for n in range(2 * RUNS)
    ]
    later = run_of(TOPIC, ["later"], (("AMQ_SCHEDULED_DELAY", "1000"),))
    asked = run_of("DIAG/mine", ["?"])
    busy.does(Committed([*once[:RUNS], later, asked, *once[RUNS:]], b"done"))
    desk.settles()
    assert receipts(busy) == ["done"]
    assert [bodies(actor) for actor in actors] == [[f"{n}" for n in range(0, 2 * RUNS, 2)]] * TAKERS
    desk.passes(2)
    assert bodies(actors[0]) == ["later"]


def test_a_commit_of_ids_that_there_is_no_memory_for_does_nothing():
    desk = Clocked(book={"/topic/**": DestinationPolicy(dedup_window=1000)})
    actors = recipients(desk)
    busy = desk.actor()
    desk.memory.limit_bytes = 0
    desk.memory.force_table(-desk.memory.tables_bytes + desk.memory.tables_room - 4096)
    once = [run_of(TOPIC, [f"{n}"], (("n", f"{n}"), ("x-dedup-id", f"id{n}"))) for n in range(RUNS)]
    busy.does(Committed(once, b"done"))
    while busy.client in desk.broker.turns:
        desk.turn()
    assert busy.error().get("receipt-id") == "done"
    assert all(actor.outbox.log == [] for actor in actors)


@pytest.mark.parametrize("runs_before", [1, 2 * RUNS])
def test_a_commit_with_a_schedule_in_the_past_does_nothing(desk: Clocked, runs_before: int):
    [taker] = recipients(desk, count=1)
    busy = desk.actor()
    never = run_of(TOPIC, ["x"], (("AMQ_SCHEDULED_TIME", "631152000000"),))
    soon = run_of(TOPIC, ["x"], (("AMQ_SCHEDULED_DELAY", "1"),))
    many = [run_of(TOPIC, ["a"], (("n", f"{n}"),)) for n in range(runs_before)]
    busy.does(Committed([*many, soon, never], b"done"))
    desk.settles()
    assert busy.error().get("code") == "invalid-schedule"
    assert taker.outbox.log == []
    assert desk.broker.scheduler.waiting == 0
