"""A COMMIT of very much that is to survive: written, and seen, in pieces; and as a whole."""

from tests.support.core import run_of, texts
from tests.support.durable_fakes import DurableBench, answered
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed

MANY = 500
ALL = [f"{n}" for n in range(MANY)]
KEPT = (("persistent", "true"),)
TOPIC = "/topic/t"


def puts(*names: str, count: int = MANY) -> list[FrameRun]:
    return [run_of(names[n % len(names)], [f"{n}"], (*KEPT, ("n", f"{n}"))) for n in range(count)]


def written(desk: DurableBench) -> None:
    while not desk.turns or desk.broker.has_more:
        desk.turn()


def test_no_subscriber_sees_a_part_of_a_commit():
    desk = DurableBench(is_prompt=False)
    names = ("/queue/a", "/queue/b", TOPIC)
    recipients = [desk.actor() for _ in names]
    for taker, name in zip(recipients, names, strict=True):
        taker.subscribes(name)
    busy, other = desk.actor(), desk.actor()
    busy.does(Committed(puts(*names), b"done"))
    written(desk)
    seen = [0, 0, 0]
    while desk.turns or desk.broker.has_more:
        desk.answers()
        if not any(seen):
            other.sends(TOPIC, "other")
        before, seen = seen, [len(taker.outbox.log) for taker in recipients]
        if desk.broker.durability.has_more:
            assert not any(seen)
        assert not any(before) or seen >= before
    assert [texts(taker.writes()) for taker in recipients[:2]] == [ALL[0::3], ALL[1::3]]
    mine = texts(recipients[2].writes())
    assert mine[: len(ALL[2::3])] == ALL[2::3] or mine[-len(ALL[2::3]) :] == ALL[2::3]


def test_a_composite_is_seen_at_once_though_the_time_is_up():
    desk = DurableBench(is_prompt=False)
    taker, busy = desk.actor(), desk.actor()
    taker.subscribes("/queue/a")
    for n in range(60):
        busy.sends("/queue/a,/queue/b", f"{n}", persistent="true", n=f"{n}")
    desk.turn()
    answered(desk)
    assert taker.bodies() == desk.waiting("/queue/b") == ALL[:60]
