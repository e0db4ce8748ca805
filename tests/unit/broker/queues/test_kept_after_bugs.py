"""A bug in the middle of the end of a message: the message is kept, and so is the rest of a list.

Each end of three messages is done with a method that raises an exception at one of its calls. After
a while each message is where it belongs, once, in memory and in the store.
"""

from collections.abc import Callable

import pytest
from attrs import define, field

from tests.support.bugs import plant
from tests.support.core import Actor, Bench, Received
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.managing import Choice, Step

Q, DEAD, ELSEWHERE, WORK = "/queue/q", "/queue/dead", "/queue/elsewhere", "#work"
ALL = ["0", "1", "2"]
FINISH, FINISH_ALL = "durability._log.Log.finish", "durability._log.Log.finish_all"
PUT = "durability._log.Log.put"
NOTE_FAILED = "durability._log.Log.note_failed"
DEAD_LETTER = "queues._queues.QueueBook.dead_letter"
NAME = "routing._destination_policy.DestinationPolicy.dead_letter_for"
DELAY = "routing._destination_policy.DestinationPolicy.delay_s"
HEAD = "queues._queues.dead_head"
INSERT = "queues._queues.QueueBook.insert"
GIVE = "topics._bindings.Bindings._give"
RECORD = "routing._events.BrokerEvents.record"


@define
class Scene:
    """A broker with three messages in Q."""

    desk: Bench
    bugs: int = 0
    clients: list[Actor] = field(factory=list)

    @classmethod
    def of(cls, kind: type[Bench], **policy: object) -> "Scene":
        """Return a scene with a policy for Q."""
        full = DestinationPolicy(**{"dead_letter": DEAD, **policy})  # type: ignore[arg-type]
        return cls(kind(book={Q: full}))

    def sends(self, *bodies: str, **headers: str) -> None:
        """Have a client send messages."""
        self.desk.actor().sends(Q, *bodies, persistent="true", **headers)  # type: ignore[arg-type]
        self.settles()

    def taken(self, ack: str = "client-individual") -> tuple[Actor, list[Received]]:
        """Return a consumer, with the three messages."""
        self.sends(*ALL)
        reader = self.desk.reader(Q, ack=ack)
        self.settles()
        return reader, reader.reads()

    def does(self, action: Callable[[], object], client: Actor | None = None) -> None:
        """Do something. A bug is counted, and ends the client."""
        try:
            action()
        except KeyError:
            self.bugs += 1
            if client is not None:
                self.does(lambda: client.is_gone(CloseReason.INTERNAL_ERROR))

    def settles(self) -> None:
        """Let the broker do what is left."""
        self.does(self.desk.turn)
        while self.desk.broker.has_more:
            self.does(self.desk.turn)

    def later(self, seconds: float = 2.5) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 2)):
            self.does(lambda: self.desk.passes(0.5))
        self.settles()

    def ends_with(
        self,
        *,
        q: list[str] = [],  # noqa: B006
        dead: list[str] = [],  # noqa: B006
        bugs: int = 1,
        again: list[list[str]] | None = None,
    ) -> None:
        """Check where the messages are, in memory and after a restart, and that the bug was told.

        ``again``: the messages of both queues after a restart, if they differ.
        """
        assert self.bugs == bugs
        self.later()
        assert self.bugs == bugs
        assert (self.held(Q), sorted(self.desk.waiting(DEAD))) == (q, dead)
        if isinstance(self.desk, DurableBench):
            later = Scene(self.desk.restarts())
            readers = {name: later.desk.reader(name) for name in (Q, DEAD)}
            later.settles()
            found = [sorted(each.text for each in readers[name].reads()) for name in (Q, DEAD)]
            assert found == (again or [q, dead])
        for queue in list(self.desk.broker.queues):
            queue.policy = DestinationPolicy()
        self.desk.ends()

    def held(self, name: str) -> list[str]:
        """Return the messages that are waiting in a queue or not acknowledged."""
        queue = self.desk.broker.queues.find(name)
        if queue is None:
            return []
        unacked = [
            each.body.decode() for consumer in queue.consumers for each in consumer.unacked.values()
        ]
        assert (queue.unacked, queue.delayed) == (len(unacked), 0)
        return sorted(self.desk.waiting(name) + unacked)


@pytest.mark.parametrize(
    ("ack", "is_run", "where", "at", "left"),
    [
        ("client-individual", False, FINISH, 2, ["1", "2"]),
        ("client-individual", True, FINISH_ALL, 1, ALL),
        ("client", False, FINISH, 1, ALL),
        ("client", False, FINISH, 2, ["1", "2"]),
        ("client", False, FINISH, 3, ["2"]),
    ],
)
def test_an_acknowledgement(
    ack: str, is_run: bool, where: str, at: int, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(DurableBench)
    reader, frames = scene.taken(ack)
    runs = [frames] if is_run else [[each] for each in frames] if ack != "client" else [frames[-1:]]
    plant(monkeypatch, where, at)
    for run in runs:
        if not scene.bugs:
            scene.does(lambda run=run: reader.acks(*run), reader)  # type: ignore[misc]
    scene.settles()
    scene.ends_with(q=left)


@pytest.mark.parametrize("is_run", [False, True])
def test_acknowledgements_of_several_queues(is_run: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(DurableBench)
    reader = scene.desk.reader("/queue/*", ack="client-individual" if is_run else "client")
    for name in (Q, DEAD):
        scene.desk.actor().sends(name, name, persistent="true")
        scene.settles()
    frames = reader.reads()
    plant(monkeypatch, FINISH, 2)
    scene.does(lambda: reader.acks(*frames[0 if is_run else -1 :]), reader)
    scene.settles()
    scene.ends_with(dead=[DEAD])


ENDS = [FINISH, PUT, DEAD_LETTER, HEAD]
PLACES = [pytest.param(DurableBench, where, id=f"store-{where}") for where in ENDS] + [
    pytest.param(Bench, where, id=f"memory-{where}") for where in (INSERT, DEAD_LETTER, HEAD)
]


@pytest.mark.parametrize(("kind", "where"), PLACES)
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("why", ["rejected", "limit", "timeout"])
def test_a_dead_letter(
    why: str, at: int, kind: type[Bench], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(kind, max_redeliveries=0, ack_timeout_ms=500 if why == "timeout" else 0)
    reader, frames = scene.taken()
    plant(monkeypatch, where, at)
    if why == "timeout":
        scene.does(lambda: scene.desk.passes(0.6))
    else:
        scene.does(lambda: reader.nacks(*frames, requeue=why == "limit"), reader)
    scene.settles()
    scene.ends_with(dead=ALL)


@pytest.mark.parametrize(("kind", "where"), PLACES)
@pytest.mark.parametrize("when", ["waiting", "at the hand-out", "for a selector", "unsent"])
def test_an_expired_message(
    when: str, kind: type[Bench], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(kind, dead_letter_expired=True)
    reader = scene.desk.reader(Q, ack="client") if when == "unsent" else scene.desk.actor()
    scene.sends(*ALL, ttl="1000")
    plant(monkeypatch, where)
    if when == "waiting":
        scene.does(lambda: scene.desk.passes(1.5))
    else:
        scene.desk.now += 1.5
    if when == "unsent":
        scene.does(reader.writes)
    elif when != "waiting":
        selector = {"selector": "a = 1"} if when == "for a selector" else {}
        scene.does(lambda: reader.subscribes(Q, ack="client", **selector))
    scene.settles()
    scene.ends_with(dead=ALL)


@pytest.mark.parametrize(
    ("overflow", "where"),
    [*(("dead-letter", where) for where in ENDS), ("drop-oldest", FINISH)],
)
def test_a_message_that_leaves_for_another_one(
    overflow: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(DurableBench, max_messages=3, overflow=overflow)
    desk = scene.desk
    assert isinstance(desk, DurableBench)
    desk.is_prompt = False
    sender = desk.actor()
    sender.sends(Q, *ALL, persistent="true")
    sender.sends(Q, "3", persistent="true")  # room is made when it is stored
    plant(monkeypatch, where)
    desk.is_prompt = True
    scene.settles()
    # After a restart the policy is applied again.
    pushed_out = ALL[:1] if overflow == "dead-letter" else []
    scene.ends_with(q=[*ALL, "3"], again=[["1", "2", "3"], pushed_out])


def test_a_message_that_cannot_leave_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender gets an ERROR, and may send it again."""
    scene = Scene.of(Bench, max_messages=3, overflow="dead-letter")
    scene.sends(*ALL)
    sender = scene.desk.actor()
    plant(monkeypatch, HEAD)
    sender.sends(Q, "3")
    scene.settles()
    (error,) = sender.writes()
    assert error.get("code") == "queue-full"
    scene.desk.actor().sends(Q, "4")
    scene.ends_with(q=["1", "2", "4"], dead=["0"])


@pytest.mark.parametrize(
    ("why", "where"),
    [
        *(("nack", where) for where in (DELAY, NOTE_FAILED, NAME)),
        *(("timeout", where) for where in (DELAY, NOTE_FAILED, NAME)),
        *(("lost", where) for where in (NOTE_FAILED, NAME)),
    ],
)
def test_a_message_that_returns(why: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(
        DurableBench,
        max_redeliveries=0 if where == NAME else 5,
        ack_timeout_ms=500 if why == "timeout" else 0,
    )
    reader, frames = scene.taken()
    plant(monkeypatch, where)
    if why == "timeout":
        scene.does(lambda: scene.desk.passes(0.6))
        scene.settles()
        scene.does(reader.is_gone)
    elif why == "nack":
        scene.does(lambda: reader.nacks(*frames[:1]), reader)
    else:
        scene.does(reader.is_gone)
    scene.settles()
    assert scene.bugs == 1
    scene.later()
    assert sorted(scene.held(Q) + scene.desk.waiting(DEAD)) == ALL


@pytest.mark.parametrize("is_moved", [False, True], ids=["purge", "move"])
def test_an_operation(is_moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(DurableBench)
    scene.sends(*ALL)
    manager = scene.desk.broker.manager
    choice = Choice(Q)
    operation = manager.move(choice, DEAD) if is_moved else manager.purge(choice, by="")
    plant(monkeypatch, FINISH)
    scene.does(lambda: operation.step(scene.desk.now))
    scene.does(lambda: operation.end(scene.desk.now))
    scene.settles()
    scene.ends_with(q=ALL)


def test_a_purge_of_what_is_in_the_store_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(DurableBench)
    scene.sends(*ALL)
    again = Scene(scene.desk.restarts())  # type: ignore[attr-defined]
    operation = again.desk.broker.manager.purge(Choice(Q), by="")
    assert operation.step(again.desk.now) is Step.WAIT
    again.settles()
    plant(monkeypatch, FINISH_ALL)
    again.does(lambda: operation.step(again.desk.now))
    again.does(lambda: operation.end(again.desk.now))
    reader = again.desk.reader(Q, ack="client")
    again.settles()
    assert [each.text for each in reader.reads()] == ALL
    assert again.bugs == 1
    reader.is_gone()
    again.desk.broker.queues.end(Q, again.desk.now)
    again.settles()
    again.desk.ends()


@pytest.mark.parametrize(
    ("ack", "where"),
    [
        ("client", "queues._consumer.Consumer.deliver"),
        ("client", "queues._consumer.message_blocks"),
        ("client", "queues._queues.QueueBook.note_delivered"),
        ("client", "durability._log.Log.hand_out"),
        ("auto", "queues._consumer.Consumer.deliver"),
        ("auto", FINISH_ALL),
    ],
)
def test_a_hand_out_is_tried_again(ack: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(DurableBench)
    reader = scene.desk.reader(Q, ack=ack)
    scene.settles()
    plant(monkeypatch, where)
    scene.sends(*ALL)
    assert scene.bugs == 1
    scene.does(lambda: scene.desk.passes(0.9))
    assert scene.bugs == 1
    scene.does(lambda: scene.desk.passes(0.2))
    assert sorted({each.text for each in reader.reads()}) == ALL
    if ack == "client":
        assert scene.held(Q) == ALL
        scene.does(reader.is_gone)
    scene.ends_with(q=ALL if ack == "client" else [])


@pytest.mark.parametrize(
    "where",
    [GIVE, "routing._fanout.FanOut.encode_for", "delivery._delivery.Destination.recipients"],
)
@pytest.mark.parametrize("is_refused", [True, False], ids=["NACK", "leaving"])
@pytest.mark.parametrize("is_long", [False, True])
def test_a_message_for_another_member(
    is_long: bool, is_refused: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_long:
        monkeypatch.setattr("trio_stomp.broker.topics._bindings.LIGHT_S", 0.0)
    scene = Scene(Bench())
    reader = scene.desk.reader(WORK, ack="client")
    scene.desk.actor().sends(WORK, "0")
    scene.settles()
    (frame,) = reader.reads()
    other = scene.desk.reader(WORK, selector="TRUE")
    scene.settles()
    plant(monkeypatch, where)
    scene.does(lambda: reader.nacks(frame) if is_refused else reader.is_gone())
    scene.settles()
    assert scene.bugs == 1
    scene.later()
    scene.does(reader.is_gone)
    scene.later()
    assert [each.text for each in other.reads()] == ["0"]
    scene.desk.ends()


def test_the_end_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(DurableBench)
    scene.sends(*ALL)
    plant(monkeypatch, FINISH, 2)
    scene.does(lambda: scene.desk.broker.queues.end(Q, scene.desk.now))
    scene.settles()
    scene.ends_with()


def test_the_other_subscriptions_of_a_leaving_client_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.of(Bench)
    reader = scene.desk.reader(Q)
    reader.subscribes(DEAD, "1")
    plant(monkeypatch, RECORD)
    scene.does(reader.is_gone)
    scene.later()
    assert scene.bugs == 1
    assert not reader.client.subscriptions
    assert reader.client not in scene.desk.broker.clients


def test_a_message_that_a_selector_passed_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the selector raises, all consumers look at all messages again."""
    scene = Scene.of(DurableBench)
    reader, frames = scene.taken("client-individual")
    reader.consumer().is_early = True  # it gets no more
    scene.sends(*(f"{number}" for number in range(3, 30)))
    other = scene.desk.reader(Q, selector="a = 1")
    scene.sends("last", a="1")
    assert [each.text for each in other.reads()] == ["last"]
    plant(monkeypatch, "queues._scan_positions.ScanPositions.note_back")
    scene.does(lambda: reader.nacks(frames[0]))
    scene.settles()
    assert scene.bugs == 1
    scene.does(reader.is_gone)
    scene.later()
    found = scene.desk.reader(Q)
    scene.settles()
    assert sorted(each.text for each in found.reads()) == sorted(map(str, range(30)))
