"""A stored message for very many durable subscriptions: written and seen in pieces, as a whole."""

from tests.support.core import Actor, run_of
from tests.support.durable_fakes import DurableBench, answered
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Subscribed

COUNT = 1400
"""Durable subscriptions: more than one turn writes copies for."""
SOME = 800
"""The same, in one turn more."""
TOPIC = "/topic/t"
KEPT = (("persistent", "true"),)
AMPLE = BrokerPolicies(max_subscriptions_per_connection=2 * COUNT, max_durables_per_user=2 * COUNT)


def made(
    count: int = COUNT, *, book: dict[str, DestinationPolicy] | None = None, **headers: str
) -> tuple[DurableBench, Actor]:
    """Return a broker with durable subscriptions, and the client that has them all."""
    desk = DurableBench(policies=AMPLE, is_prompt=False, book=book or {})
    keeper = desk.actor()
    for n in range(count):
        pairs = (("durable-subscription-name", f"d{n}"), *headers.items())
        keeper.does(Subscribed(f"{n}", TOPIC, "client", pairs, None))
    answered(desk)
    return desk, keeper


def sent(text: str = "x", to: str = TOPIC, **headers: str) -> FrameRun:
    return run_of(to, [text], (*KEPT, *headers.items()), [(1, text.encode())])


def given(actor: Actor) -> dict[str, list[str]]:
    """Return the messages that each subscription of an actor received."""
    got: dict[str, list[str]] = {}
    for frame in actor.writes():
        if frame.command == "MESSAGE":
            got.setdefault(frame.get("subscription") or "", []).append(frame.text)
    return got


def due(count: int = COUNT, to: str = TOPIC, **headers: str) -> tuple[DurableBench, Actor]:
    """Return a broker with a scheduled message that is due now, and the client with the durable
    subscriptions."""
    desk, keeper = made(count, book={"/queue/q": DestinationPolicy(max_messages=1)})
    desk.actor().sends("/queue/q")  # it is full
    desk.actor().does(sent("x", to, AMQ_SCHEDULED_DELAY="1000", **headers))
    desk.turn()
    answered(desk)
    desk.actor().subscribes("/other/>")  # the topic's list of subscribers is out of date
    desk.now += 2
    desk.broker.tick(desk.now)
    return desk, keeper


def test_a_scheduled_message_that_is_refused_waits_as_a_whole():
    desk, keeper = due(SOME, f"{TOPIC},/queue/q")
    answered(desk)
    assert given(keeper) == {}
    assert desk.broker.scheduler.lost == 0
    assert desk.broker.scheduler.waiting == 1
    assert desk.restarts().broker.scheduler.waiting == 1


def test_scheduled_messages_for_many_wait_for_room_one_after_the_other():
    desk, keeper = made(SOME, book={"/queue/q": DestinationPolicy(max_messages=1)})
    desk.actor().sends("/queue/q", "full")
    desk.actor().sends(f"{TOPIC},/queue/q", "x", "y", persistent="true", AMQ_SCHEDULED_DELAY="1000")
    desk.turn()
    answered(desk)
    reader = desk.actor()
    desk.now += 2
    for body in ("full", "x", "y"):
        desk.now += 2
        desk.broker.tick(desk.now)
        answered(desk)
        reader.subscribes("/queue/q", "q")
        answered(desk)
        assert reader.bodies() == [body]
        reader.unsubscribes("q")
    assert given(keeper) == {f"{n}": ["x", "y"] for n in range(SOME)}
    assert desk.broker.scheduler.waiting == 0
    again = desk.restarts()
    assert again.broker.scheduler.waiting == 0
    assert again.store.statistics().live_messages == 2 * SOME
