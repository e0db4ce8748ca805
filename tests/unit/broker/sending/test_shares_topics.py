"""A COMMIT to topics of many recipients: in pieces, without messages of others in between."""

import pytest

from tests.support.core import Actor, run_of, texts
from tests.support.share_fakes import MOST, Clocked, ClockedDurable
from trio_stomp.base import CloseReason, FrameBug
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, internal_error
from trio_stomp.broker.delivery._delivery import Publication
from trio_stomp.broker.headers import SendOutcome
from trio_stomp.broker.topics import LastValueOwner
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed, Unsubscribed

TOPIC = "/topic/t"
TAKERS = 20
RUNS = 150
ALL = [f"{n}" for n in range(RUNS)]


def runs(*names: str, mark: str = "", **headers: str) -> list[FrameRun]:
    """RUNS messages to each, with as many header blocks."""
    extra = tuple(headers.items())
    return [
        run_of(name, [f"{mark}{n}"], (("n", f"{n}"), *extra)) for n in range(RUNS) for name in names
    ]


def recipients(desk: Clocked | ClockedDurable, *names: str, count: int = TAKERS) -> list[Actor]:
    actors = [desk.actor() for _ in range(count)]
    for actor in actors:
        for place, name in enumerate(names or (TOPIC,)):
            actor.subscribes(name, f"{place}")
    while desk.broker.has_more:
        desk.turn()
    return actors


def begun(desk: Clocked | ClockedDurable, client: Actor) -> None:
    """Begin a COMMIT, so that some of its messages have been delivered and others not."""
    while not desk.broker.lines.busy:
        assert client.client in desk.broker.turns
        desk.turn()
    desk.turn()
    assert desk.broker.lines.busy


def begun_with_ack(desk: Clocked, client: Actor, other: Actor) -> None:
    """Begin a COMMIT that also acknowledges a message from ``other`` to /queue/a."""
    client.subscribes("/queue/a", ack="client-individual")
    other.sends("/queue/a", "x")
    [held] = client.reads()
    client.does(Committed([*runs(TOPIC), client.acked(held)], b"done"))
    begun(desk, client)


def bodies(actor: Actor, id: str = "0") -> list[str]:
    return [frame.text for frame in actor.writes() if frame.get("subscription") == id]


def receipts(actor: Actor) -> list[str]:
    return [frame.get("receipt-id") or "" for frame in actor.frames() if frame.command == "RECEIPT"]


def at_rest(desk: Clocked) -> None:
    """Check that nothing is left of it."""
    assert not desk.broker.lines.busy
    assert not desk.broker.queues.frozen
    assert desk.memory.kept_bytes == 0


@pytest.mark.parametrize("names", [(TOPIC,), ("/topic/u", TOPIC), ("/topic/u,/topic/t",)])
def test_deliveries_of_a_commit_are_bounded_per_turn(desk: Clocked, names: tuple[str, ...]):
    actors = recipients(desk)
    busy, light = desk.actor(), desk.actor()
    busy.does(Committed(runs(*names), b"done"), run_of("/queue/b", ["behind"]))
    given = [sum(len(actor.outbox.log) for actor in actors)]
    while busy.client in desk.broker.turns:
        desk.turn()
        given.append(sum(len(actor.outbox.log) for actor in actors))
        light.sends("/queue/b", "light")
    desk.settles()
    most = max(after - before for before, after in zip([0, *given], given, strict=False))
    assert most <= MOST * TAKERS < given[-1] == RUNS * TAKERS
    assert max(desk.pieces) <= MOST
    assert [bodies(actor) for actor in actors] == [ALL] * TAKERS
    assert receipts(busy) == ["done"]
    assert "behind" in desk.waiting("/queue/b")[3:], "whoever else sends does not wait"
    assert not desk.broker.lines.busy


def test_messages_of_others_come_before_or_after_a_commit(desk: Clocked):
    actors = recipients(desk)
    busy, one, two = desk.actor(), desk.actor(), desk.actor()
    busy.does(Committed(runs(TOPIC), b"done"), run_of(TOPIC, ["last"]))
    one.sends(TOPIC, "before")
    begun(desk, busy)
    one.sends(TOPIC, "one", receipts=[(1, b"r")])
    one.sends("/queue/q", "behind one")
    two.sends(f"/queue/q,{TOPIC}", "two")
    assert desk.waiting("/queue/q") == [], "each sender's own order is kept"
    assert one.outbox.is_paused
    desk.settles()
    for actor in actors:
        got = bodies(actor)
        first = got.index("0")
        assert got[first : first + RUNS] == ALL
        assert sorted(got[:first] + got[first + RUNS :]) == ["before", "last", "one", "two"]
        assert got.index("one") < got.index("last"), "who waited comes before what it sends next"
    assert sorted(desk.waiting("/queue/q")) == ["behind one", "two"]
    assert receipts(one) == ["r"]
    assert not one.outbox.is_paused


def test_commits_to_the_same_topics_follow_each_other(desk: Clocked):
    actors = recipients(desk, "/topic/t", "/topic/u", count=20)
    one, two, small = desk.actor(), desk.actor(), desk.actor()
    for mark in "ab":
        one.does(Committed(runs("/topic/t", "/topic/u", mark=mark), mark.encode()))
    for mark in "cd":
        two.does(Committed(runs("/topic/u", "/topic/t", mark=mark), mark.encode()))
    begun(desk, one)
    small.does(Committed([run_of("/topic/u", ["s0"]), run_of("/topic/u", ["s1"])], b"s"))
    desk.settles()
    for actor in actors:
        frames = actor.writes()
        for id in "01":
            got = [frame.text for frame in frames if frame.get("subscription") == id]
            blocks = "".join(dict.fromkeys(body[0] for body in got))
            assert len(got) == 4 * RUNS + (2 if id == "1" else 0)
            for mark in blocks:
                which = [place for place, body in enumerate(got) if body[0] == mark]
                assert which == list(range(which[0], which[0] + len(which))), "in one piece"
            assert blocks.index("a") < blocks.index("b")
            assert blocks.index("c") < blocks.index("d")
            assert blocks.index("c") < blocks.index("b"), "in turn"
    assert receipts(one) == ["a", "b"]
    assert receipts(two) == ["c", "d"]
    assert receipts(small) == ["s"]


@pytest.mark.parametrize(
    ("destination", "waits"),
    [(TOPIC, True), ("/topic/*", True), ("/topic/other", False), ("/other/*", False)],
)
def test_subscriber_that_joins_meanwhile_gets_no_part_of_a_commit(
    desk: Clocked, destination: str, waits: bool
):
    recipients(desk)
    busy, late = desk.actor(), desk.actor()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    late.does(Subscribed("0", destination, "auto", (), b"late"))
    assert (late.client in desk.broker.turns) == waits
    desk.settles()
    assert [frame.command for frame in late.writes()] == ["RECEIPT"]
    busy.sends(TOPIC, "next")
    assert late.bodies() == (["next"] if waits else [])


def test_a_wildcard_waits_for_more_topics_than_it_is_compared_with(desk: Clocked, monkeypatch):
    monkeypatch.setattr("trio_stomp.broker.routing._lines.MANY_NAMES", 1)
    recipients(desk, TOPIC, "/topic/u")
    busy, late = desk.actor(), desk.actor()
    busy.does(Committed(runs(TOPIC, "/topic/u"), b"done"))
    begun(desk, busy)
    late.subscribes("/queue/*")
    late.sends("/queue/new", "x")
    assert late.client in desk.broker.turns
    desk.settles()
    assert late.bodies() == ["x"]


def test_a_subscribe_that_waited_and_is_refused_tells_so(desk: Clocked):
    recipients(desk)
    busy, late = desk.actor(), desk.actor()
    busy.does(Committed(runs(TOPIC), b"done"))
    late.subscribes("/topic/mine")
    begun(desk, busy)
    late.does(Subscribed("0", TOPIC, "auto", (), b"late"))
    desk.settles()
    error = late.error()
    assert (error.get("code"), error.get("receipt-id")) == ("duplicate-subscription", "late")


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_taker_that_leaves_half_way_gets_no_more(desk: Clocked, is_lost: bool):
    leaver, *others = recipients(desk)
    busy = desk.actor()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    if is_lost:
        leaver.is_gone()
    else:
        leaver.does(Unsubscribed("0", None, b"bye"))
    desk.settles()
    frames = leaver.writes()
    got = texts(frame for frame in frames if frame.command == "MESSAGE")
    assert 0 < len(got) < RUNS
    assert got == ALL[: len(got)]
    if not is_lost:
        assert frames[-1].get("receipt-id") == "bye"
    assert [bodies(actor) for actor in others] == [ALL] * (TAKERS - 1)


@pytest.mark.parametrize("how", ["lost", "refused"])
def test_commit_of_a_client_that_leaves_is_completed(how: str):
    desk = Clocked(book={"/queue/a": DestinationPolicy(ack_timeout_ms=1000)})
    actors = recipients(desk)
    busy, next_one = desk.actor(), desk.actor()
    busy.subscribes("/queue/a", ack="client-individual")
    next_one.sends("/queue/a", "acked", "nacked", "kept")
    acked, nacked, _ = busy.reads()
    busy.does(
        Committed(
            [
                *runs(TOPIC),
                busy.acked(acked),
                busy.acked(nacked, negative=True, requeue=False),
                run_of("/queue/out", ["o"]),
            ],
            b"done",
        )
    )
    begun(desk, busy)
    assert desk.waiting("/queue/out") == []
    if how == "lost":
        busy.is_gone()
    else:
        desk.broker.refuse(busy.client, internal_error(), desk.now)
    desk.settles()
    assert [bodies(actor) for actor in actors] == [ALL] * TAKERS
    assert desk.waiting("/queue/a") == ["kept"], "what it acknowledged does not come again"
    assert desk.waiting("/queue/DLQ.a") == ["nacked"]
    assert desk.waiting("/queue/out") == ["o"]
    assert desk.broker.acks.acked == desk.broker.acks.nacked == 1
    desk.broker.leaving.finish(desk.now)
    assert busy.client not in desk.broker.clients or how == "refused"


@pytest.mark.parametrize("how", ["times out", "refused"])
def test_acks_in_a_commit_to_queues_are_final(how: str):
    desk = Clocked(book={"/queue/a": DestinationPolicy(ack_timeout_ms=50, backoff_s=())})
    busy, other = desk.actor(), desk.actor()
    busy.subscribes("/queue/a", ack="client-individual")
    other.sends("/queue/a", "x")
    [held] = busy.reads()
    busy.does(Committed([*runs("/queue/q"), busy.acked(held)], b"done"))
    while not desk.broker.queues.frozen:
        desk.turn()
    if how == "refused":
        desk.broker.refuse(busy.client, internal_error(), desk.now)
    else:
        desk.passes(1)
    desk.settles()
    assert len(desk.waiting("/queue/q")) == RUNS
    assert desk.waiting("/queue/a") == []
    assert (desk.broker.acks.acked, desk.broker.acks.redelivered) == (1, 0)


def test_an_ack_that_waits_for_the_rest_of_its_commit_does_not_time_out():
    desk = Clocked(book={"/queue/a": DestinationPolicy(ack_timeout_ms=50, backoff_s=())})
    recipients(desk)
    busy, other = desk.actor(), desk.actor()
    begun_with_ack(desk, busy, other)
    desk.passes(1)
    desk.settles()
    assert desk.broker.acks.redelivered == 0
    assert receipts(busy) == ["done"]


def test_messages_of_a_refused_commit_return_in_order():
    desk = Clocked(book={"/queue/a": DestinationPolicy(backoff_s=())})
    recipients(desk)
    busy, other = desk.actor(), desk.actor()
    busy.subscribes("/queue/a", ack="client-individual", prefetch_count="3")
    other.sends("/queue/a", *"abcdef")
    first = busy.reads()
    nacks = [busy.acked(each, negative=True) for each in reversed(first)]
    busy.does(Committed([nacks[0], *runs(TOPIC), *nacks[1:]], b"done"))
    begun(desk, busy)
    assert busy.writes() == [], "the queue waits for what comes back"
    desk.settles()
    frames = busy.writes()
    assert frames[0].get("receipt-id") == "done"
    assert texts(frames[1:]) == ["a", "b", "c"]
    desk.ends()


def test_a_queue_is_seen_with_the_last_of_a_topic(desk: Clocked):
    recipients(desk)
    busy, reader = desk.actor(), desk.actor()
    reader.subscribes("/queue/q")
    busy.does(Committed([run_of("/queue/q", ["first"]), *runs(f"{TOPIC},/queue/q")], b"done"))
    begun(desk, busy)
    while busy.client in desk.broker.turns:
        assert reader.outbox.log == []
        desk.turn()
    desk.settles()
    assert texts(reader.writes()) == ["first", *ALL]
    desk.ends()
    at_rest(desk)


@pytest.mark.parametrize("selector", ["", "n <> '3'"])
def test_members_of_a_work_queue_have_a_commit_in_turn(desk: Clocked, selector: str):
    members = [desk.actor() for _ in range(TAKERS)]
    for member in members:
        member.does(Subscribed("0", "#w", "auto", (("selector", selector),), None))
    desk.settles()
    busy, other = desk.actor(), desk.actor()
    busy.does(Committed(runs("#w"), b"done"))
    begun(desk, busy)
    other.sends("#w", "other", n="x")
    desk.settles()
    got = [bodies(member) for member in members]
    assert max(map(len, got)) - min(map(len, got)) <= 1
    wanted = [body for body in ALL if not (selector and body == "3")]
    assert sorted(body for each in got for body in each) == sorted([*wanted, "other"])


# Messages that cannot be held follow the COMMIT.


def test_message_due_during_a_commit_follows_it_and_is_charged(desk: Clocked):
    actors = recipients(desk)
    busy, other = desk.actor(), desk.actor()
    other.sends(TOPIC, "due", AMQ_SCHEDULED_DELAY="10000")
    desk.settles()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    before = desk.memory.kept_bytes
    desk.passes(20)
    assert desk.memory.kept_bytes > 0
    assert desk.memory.kept_bytes <= before
    desk.settles()
    assert [bodies(actor) for actor in actors] == [[*ALL, "due"]] * TAKERS
    at_rest(desk)


def test_store_answers_during_a_commit_follow_it():
    desk = ClockedDurable(is_prompt=False)
    actors = recipients(desk)
    keeper = desk.actor()
    keeper.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "d"),), None))
    while desk.turns or desk.broker.has_more:
        desk.answers()
    busy, sender = desk.actor(), desk.actor()
    sender.sends(TOPIC, "first", persistent="true")
    sender.sends(TOPIC, "second", persistent="true", receipts=[(1, b"r")])
    desk.turn()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    desk.answers()
    sender.sends(TOPIC, "third")
    while desk.broker.has_more:
        desk.turn()
    assert [bodies(actor) for actor in actors] == [[*ALL, "first", "second", "third"]] * TAKERS
    assert not desk.broker.lines.busy


def test_a_bug_in_a_later_event_ends_only_its_client(
    desk: Clocked, monkeypatch: pytest.MonkeyPatch
):
    actors = recipients(desk)
    busy, other = desk.actor(), desk.actor()
    for body in ("bad", "good"):
        other.sends(TOPIC, body, AMQ_SCHEDULED_DELAY="10000")
    desk.settles()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    desk.passes(20)
    show = desk.broker.publisher.to_topics.show

    def fails(
        publication: Publication, asked: str, keeper: LastValueOwner, now: float
    ) -> SendOutcome:
        if publication.bodies == [b"bad"]:
            raise ZeroDivisionError
        return show(publication, asked, keeper, now)

    monkeypatch.setattr(
        type(desk.broker.publisher.to_topics), "show", lambda _, *args: fails(*args)
    )
    with pytest.raises(ZeroDivisionError):
        desk.settles()
    desk.settles()
    assert [bodies(actor) for actor in actors] == [[*ALL, "good"]] * TAKERS
    at_rest(desk)


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


def test_a_topic_without_subscribers_is_not_forgotten_in_the_middle():
    desk = Clocked(policies=BrokerPolicies(max_destinations=20))
    busy, other = desk.actor(), desk.actor()
    sent = [run_of("/topic/a", [f"{n}"], (("n", f"{n}"),)) for n in range(4 * RUNS)]
    busy.does(Committed([*sent, run_of("/topic/z", ["x"])], b"done"))
    begun(desk, busy)
    for number in range(40):
        other.sends(f"/topic/{number}", "x")
    desk.settles()
    assert receipts(busy) == ["done"]
    assert other.outbox.closed is None
    desk.broker.destinations.forget_new()
    for number in range(40):
        other.sends(f"/topic/o{number}", "x")
    desk.settles()
    assert desk.broker.destinations.find_current("/topic/a") is None, "and is later"


def test_a_bug_in_the_middle_of_a_commit_leaves_nothing_closed(
    desk: Clocked, monkeypatch: pytest.MonkeyPatch
):
    recipients(desk)
    busy, other = desk.actor(), desk.actor()
    begun_with_ack(desk, busy, other)
    other.sends(TOPIC, "waits")
    monkeypatch.setattr(type(desk.broker.publisher), "send_on", lambda *_, **__: 1 / 0)
    with pytest.raises(FrameBug):
        desk.turn()
    monkeypatch.undo()
    desk.settles()
    assert not desk.broker.lines.busy
    assert other.client not in desk.broker.turns
    assert desk.waiting("/queue/a") == ["x"], "nobody knows whether it was done"


def test_message_of_a_lost_client_that_waited_for_a_topic_is_sent(desk: Clocked):
    actors = recipients(desk)
    busy, other = desk.actor(), desk.actor()
    busy.does(Committed(runs(TOPIC), b"done"))
    begun(desk, busy)
    other.sends(TOPIC, "other")
    reported: list[bool] = []
    desk.broker.forget(
        other.client, CloseReason.CONNECTION_LOST, desk.now, lambda: reported.append(True)
    )
    assert not reported
    desk.settles()
    assert reported == [True]
    assert [bodies(actor) for actor in actors] == [[*ALL, "other"]] * TAKERS
