"""Answers of the store take effect in pieces, too, and the state held until then is bounded."""

from tests.support.core import Actor, run_of, texts
from tests.support.durable_fakes import DurableBench, answered
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed

TOPIC = "/topic/t"
TAKERS = 20


def made(*selectors: str) -> tuple[DurableBench, list[Actor]]:
    """A broker with a durable subscription, and TAKERS subscribers for each selector."""
    desk = DurableBench(is_prompt=False)
    actors = [desk.actor() for _ in range(TAKERS * max(1, len(selectors)))]
    for number, actor in enumerate(actors):
        headers = {"selector": selectors[number // TAKERS]} if selectors else {}
        actor.subscribes(TOPIC, **headers)
        actor.subscribes("/topic/u", "u")
    keeper = desk.actor()
    keeper.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "d"),), None))
    answered(desk)
    keeper.is_gone()
    desk.turn()
    return desk, actors


def sent(desk: DurableBench, sender: Actor, *events: FrameRun | Committed) -> None:
    """It has been written, and the store has not answered."""
    sender.does(*events)
    desk.turn()
    desk.settles()


def given(actors: list[Actor]) -> int:
    return sum(len(actor.outbox.log) for actor in actors)


def test_transient_messages_appear_with_the_stored_ones_of_their_commit():
    desk, actors = made()
    busy = desk.actor()
    stored = run_of("/queue/q", ["x"], (("persistent", "true"),))
    sent(desk, busy, Committed([run_of(TOPIC, ["transient"]), stored], b"done"))
    assert given(actors) == 0
    answered(desk)
    assert [texts(actor.writes()) for actor in actors] == [["transient"]] * TAKERS
    assert desk.waiting("/queue/q") == ["x"]
