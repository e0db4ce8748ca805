"""Operations on queues and their messages: in memory, in the store, and between."""

import pytest

from tests.support.core import Actor, Bench
from tests.support.durable_fakes import DurableBench, answered
from tests.support.managing import drive, into
from trio_stomp.base import Identity, ProtocolError
from trio_stomp.broker import AccessRules, Action, BrokerPolicies, DestinationPolicy, Rule
from trio_stomp.broker.managing import Choice, Step
from trio_stomp.broker.queues import Message
from trio_stomp.broker.sending import SendLater

MAX_REASONS = 16

Q, TO, DEAD = "/queue/q", "/queue/to", "/queue/dead"


def stored(*bodies: str) -> DurableBench:
    """Return a broker that has just started, with all messages in its store only."""
    core = DurableBench()
    for first in range(0, len(bodies), 100):
        core.actor().sends(Q, *bodies[first : first + 100], persistent="true")
        core.turn()
    return core.restarts()


def rest(core: Bench, name: str = Q) -> list[str]:
    return core.reader(name, ack="client", prefetch_count="10000").bodies()


def numbers(first: int, behind: int) -> list[str]:
    return [f"{number:04}" for number in range(first, behind)]


@pytest.fixture(params=["memory", "store", "both"])
def filled(request: pytest.FixtureRequest) -> Bench:
    """A queue of 3000 messages, of which none, all, or most are in the store only."""
    if request.param == "memory":
        core = Bench()
        core.actor().sends(Q, *numbers(0, 3000))
        return core
    core = stored(*numbers(0, 3000))
    if request.param == "both":
        reader = core.reader(Q, ack="client", prefetch_count="1")
        core.broker.end_turn(core.now)
        core.loads()
        assert reader.bodies() == ["0000"]
        reader.is_gone()
        core.turn()
        queue = core.broker.queues.find(Q)
        assert queue is not None
        assert queue.waiting.count
        assert queue.waiting.paged
    return core


def test_all_that_waits_is_purged_and_gone_after_a_restart(filled: Bench) -> None:
    operation = filled.broker.manager.purge(Choice(Q))
    drive(filled, operation)
    assert (operation.done, operation.seen, operation.total) == (3000, 3000, 3000)
    assert filled.broker.statistics().messages.drops["purged"] == 3000
    if isinstance(filled, DurableBench):
        assert rest(filled.restarts()) == []
    filled.ends()


def test_messages_that_arrive_meanwhile_stay(filled: Bench) -> None:
    sent: list[str] = []

    def send() -> None:
        sent.append(f"later {len(sent)}")
        filled.actor().sends(Q, sent[-1])

    operation = filled.broker.manager.purge(Choice(Q))
    send()
    drive(filled, operation, send)
    assert operation.done == 3000
    assert rest(filled) == sent


def test_nothing_is_removed_where_nothing_is_chosen(filled: Bench) -> None:
    operation = filled.broker.manager.purge(Choice(Q, "colour = 'red'"))
    drive(filled, operation)
    assert (operation.done, operation.seen) == (0, 3000)
    assert rest(filled) == numbers(0, 3000)


def test_chosen_messages_are_purged_and_the_others_keep_their_order(filled: Bench) -> None:
    operation = filled.broker.manager.purge(Choice(Q, limit=250))
    drive(filled, operation)
    assert operation.done == 250
    assert rest(filled) == numbers(250, 3000)
    if isinstance(filled, DurableBench):
        assert rest(filled.restarts()) == numbers(250, 3000)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_selector_chooses(is_stored: bool) -> None:
    core = DurableBench() if is_stored else Bench()
    for number in range(300):
        kind = "apple" if number % 3 else "pear"
        core.actor().sends(Q, f"{number}", kind=kind, persistent="true")
        core.turn()
    if isinstance(core, DurableBench):
        core = core.restarts()
    operation = core.broker.manager.purge(Choice(Q, "kind = 'apple'", 150), by="alice")
    drive(core, operation)
    assert operation.done == 150
    left = rest(core)
    assert [each for each in left if int(each) % 3 == 0] == [f"{n}" for n in range(0, 300, 3)]
    assert left[-1] == "299"
    assert len(left) == 150


def test_messages_are_moved_in_order_with_their_headers(filled: Bench) -> None:
    operation = filled.broker.manager.move(Choice(Q, limit=300), TO)
    drive(filled, operation)
    assert operation.problem is None
    assert rest(filled, TO) == numbers(0, 300)
    assert rest(filled) == numbers(300, 3000)
    if isinstance(filled, DurableBench):
        again = filled.restarts()
        assert (rest(again, TO), rest(again)) == (numbers(0, 300), numbers(300, 3000))


@pytest.mark.parametrize("ends", ["moves", "dies"])
def test_durable_and_other_messages_stay_in_order(ends: str) -> None:
    core = DurableBench(book={Q: DestinationPolicy(dead_letter=TO)}, is_prompt=False)
    for number in range(20):
        core.actor().sends(Q, f"{number:04}", persistent="false" if number % 3 else "true")
        answered(core)
    reader = core.reader(TO, ack="client", prefetch_count="100")
    if ends == "moves":
        operation = core.broker.manager.move(Choice(Q), TO)
        for _ in range(40):
            operation.step(core.now)
    else:
        consumer = core.reader(Q, ack="client", prefetch_count="100")
        consumer.nacks(consumer.reads()[-1], requeue=False)
    answered(core)
    assert reader.bodies() == numbers(0, 20)


def test_a_moved_message_has_the_new_destination_and_is_else_as_it_was(bench: Bench) -> None:
    bench.actor().sends(Q, "a", colour="red", priority="7")
    drive(bench, bench.broker.manager.move(Choice(Q), TO))
    (message,) = bench.reader(TO).reads()
    assert (message.get("destination"), message.get("colour")) == (TO, "red")
    assert message.get("priority") == "7"


def test_a_move_ends_where_there_is_no_room(filled: Bench) -> None:
    filled.book[TO] = DestinationPolicy(max_messages=100, overflow="drop-oldest")
    filled.actor().sends("/queue/other", "x")
    operation = filled.broker.manager.move(Choice(Q), TO)
    filled.broker.queues.open(TO).policy = filled.book[TO]
    drive(filled, operation)
    assert operation.problem is not None
    assert operation.problem.code == "queue-full"
    assert operation.done == 100
    assert rest(filled, TO) == numbers(0, 100)
    assert rest(filled) == numbers(100, 3000)


def test_a_message_stays_where_the_queue_that_it_is_moved_to_drops_it(filled: Bench) -> None:
    filled.book[TO] = DestinationPolicy(max_messages=100, overflow="drop-newest")
    filled.actor().sends("/queue/other", "x")
    operation = filled.broker.manager.move(Choice(Q), TO)
    filled.broker.queues.open(TO).policy = filled.book[TO]
    drive(filled, operation)
    assert operation.problem is not None
    assert operation.problem.code == "queue-full"
    assert (rest(filled, TO), rest(filled)) == (numbers(0, 100), numbers(100, 3000))


def test_a_move_to_a_topic_without_subscribers_is_refused(bench: Bench) -> None:
    bench.actor().sends(Q, "a", "b")
    operation = bench.broker.manager.move(Choice(Q), "/topic/t")
    drive(bench, operation)
    assert operation.problem is not None
    assert operation.problem.code == "no-subscriber"
    reader = bench.reader("/topic/t")
    drive(bench, bench.broker.manager.move(Choice(Q), "/topic/t"))
    assert reader.bodies() == ["a", "b"]
    assert rest(bench) == []


def test_a_move_to_another_partition_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.actor().sends(Q, "a")
    monkeypatch.setattr(SendLater, "lacks", lambda _, name: name == TO)
    operation = bench.broker.manager.move(Choice(Q), TO)
    drive(bench, operation)
    assert operation.problem is not None
    assert operation.problem.code == "partitions-apart"
    assert rest(bench) == ["a"]


@pytest.mark.parametrize("to", ["/stream/s", "DIAG/stats"])
def test_messages_are_not_moved_to_a_destination_that_accepts_none(bench: Bench, to: str) -> None:
    bench.actor().sends(Q, "a")
    operation = bench.broker.manager.move(Choice(Q), to)
    drive(bench, operation)
    assert operation.problem is not None
    assert operation.problem.code == "invalid-destination"
    assert rest(bench) == ["a"]


def test_expired_messages_are_neither_moved_nor_shown(bench: Bench) -> None:
    bench.actor().sends(Q, "a", ttl="1000")
    bench.now += 2
    shown: list[bytes] = []
    drive(bench, bench.broker.manager.look(Choice(Q), into(shown, lambda each: each.body)))
    drive(bench, bench.broker.manager.move(Choice(Q), TO))
    assert shown == []
    assert bench.broker.queues.find(TO) is None


def test_a_message_that_is_shown_has_the_id_and_the_time_that_its_consumer_sees(
    filled: Bench,
) -> None:
    manager, shown = filled.broker.manager, [("", 0)]
    drive(
        filled,
        manager.look(
            Choice(Q, limit=2), into(shown, lambda m: (manager.id_of(m), manager.received_ms(m)))
        ),
    )
    reader = filled.reader(Q, ack="client", prefetch_count="2")
    filled.turn()
    assert [name for name, _ in shown[1:]] == [m["message-id"] for m in reader.reads()]
    assert {received for _, received in shown[1:]} == {filled.broker.publisher.wall.ms(filled.now)}


def test_a_look_pauses_where_it_is_told_to(bench: Bench) -> None:
    bench.actor().sends(Q, "a", "b", "c")
    shown: list[bytes] = []

    def take(message: Message) -> bool:
        shown.append(message.body)
        return False

    operation = bench.broker.manager.look(Choice(Q), take)
    for count in (1, 2, 3):
        assert operation.step(bench.now) is Step.MORE or count == 3
        assert len(shown) == count
    assert drive(bench, operation) == 1


@pytest.mark.parametrize("name", ["/reply-queue/1-secret.a", "/reply-topic/1-secret.a"])
def test_a_private_destination_is_no_operator_s(bench: Bench, name: str) -> None:
    manager = bench.broker.manager
    with pytest.raises(ProtocolError, match="belongs to another connection"):
        manager.resolve(name)
    assert manager.resolve(name, is_target=True) == name


def test_the_rights_of_a_send_are_known_before_it(bench: Bench) -> None:
    needs = bench.broker.manager.needs_of_send
    assert needs((("destination", Q),)) == [(Action.SEND, Q)]
    assert needs((("destination", "/temp-queue/x"),)) == [(Action.CREATE, "/temp-queue/x")]
    assert needs((("destination", "DIAG/explain"),)) == [(Action.MONITOR, "DIAG/explain")]


def test_a_look_changes_nothing(filled: Bench) -> None:
    shown: list[bytes] = []
    operation = filled.broker.manager.look(Choice(Q, limit=400), into(shown, lambda m: m.body))
    drive(filled, operation)
    assert [body.decode() for body in shown] == numbers(0, 400)
    assert rest(filled) == numbers(0, 3000)


def test_a_consumer_gets_each_message_once_while_others_are_purged() -> None:
    """The queue does not load a page from which messages are being removed."""
    core = stored(*numbers(0, 3000))
    reader: Actor = core.reader(Q, ack="client-individual", prefetch_count="5")
    got: list[str] = []

    def consume() -> None:
        for frame in reader.reads():
            got.append(frame.text)
            reader.acks(frame)

    operation = core.broker.manager.purge(Choice(Q, limit=400))
    drive(core, operation, consume)
    while len(got) + operation.done < 3000:
        consume()
    assert sorted(got) == got
    assert len(set(got)) == len(got) == 2600
    core.turn()
    assert rest(core.restarts()) == []


def test_a_client_that_goes_ends_its_operation() -> None:
    core = stored(*numbers(0, 3000))
    operation = core.broker.manager.purge(Choice(Q))
    assert operation.step(core.now) is Step.WAIT
    assert operation.step(core.now) is Step.WAIT  # it asks for its page once
    operation.end(core.now)
    core.turn()
    assert rest(core) == numbers(0, 3000)


def test_an_operation_waits_for_a_commit_and_for_the_store() -> None:
    core = stored("a")
    queue = core.broker.queues.find(Q)
    assert queue is not None
    operation = core.broker.manager.purge(Choice(Q))
    core.broker.queues.freeze([queue])
    assert operation.step(core.now) is Step.LATER
    core.broker.queues.thaw([queue])
    core.log.pending_bytes = 1 << 21
    assert operation.step(core.now) is Step.LATER
    core.log.pending_bytes = 0
    reader = core.reader(Q, ack="client")
    core.broker.queues.mark(queue)
    core.broker.end_turn(core.now)  # the queue asks for its page
    assert operation.step(core.now) is Step.LATER
    core.turn()
    assert reader.bodies() == ["a"]
    drive(core, operation)
    assert operation.done == 0


def test_a_store_that_fails_is_waited_for() -> None:
    core = DurableBench(is_prompt=False)
    core.actor().sends(Q, "a", "b", persistent="true")
    core.appends()
    core.is_prompt = True
    operation = core.broker.manager.purge(Choice(Q))
    assert operation.step(core.now) is Step.WAIT
    woken: list[int] = []
    operation.woken = lambda: woken.append(1)
    core.is_prompt = False
    core.turn()
    core.fails()
    assert woken == []
    core.appends()
    assert woken
    assert operation.step(core.now) is Step.DONE
    assert rest(core.restarts()) == []


SHARED = {"/queue/*": DestinationPolicy(dead_letter=DEAD)}


@pytest.fixture(params=[False, True])
def dead(request: pytest.FixtureRequest) -> Bench:
    """Dead letters of four queues in one, in memory or in the store only, and one that is none."""
    core = (DurableBench if request.param else Bench)(book=SHARED)
    for name in ("/queue/a", "/queue/b", "/queue/a", "/queue/c,/queue/d"):
        core.actor().sends(name, name, persistent="true", kind="fruit")
        reader = core.reader(name.partition(",")[0], ack="client-individual")
        core.turn()
        for message in reader.reads():
            reader.nacks(message, requeue=False)
        reader.is_gone()
    core.actor().sends(DEAD, "not dead", persistent="true")
    core.turn()
    if isinstance(core, DurableBench):
        core = core.restarts()
    assert core.queue(DEAD).depth == 5
    return core


NOBODY = Identity()


def test_dead_letters_return_to_where_they_came_from(dead: Bench) -> None:
    operation = dead.broker.manager.retry(Choice(DEAD), "", NOBODY)
    drive(dead, operation)
    assert operation.done == 4
    assert list(operation.left.values()) == [1]
    assert "it is no dead letter" in next(iter(operation.left))
    assert rest(dead, "/queue/a") == ["/queue/a", "/queue/a"]
    (message,) = dead.reader("/queue/c").reads()
    assert (message.get("destination"), message.get("kind")) == ("/queue/c", "fruit")
    assert not [name for name, _ in message.headers if "death" in name or "original" in name]
    if isinstance(dead, DurableBench):
        again = dead.restarts()
        assert (rest(again, DEAD), rest(again, "/queue/b")) == (["not dead"], ["/queue/b"])


def test_dead_letters_are_sent_where_the_operator_says(dead: Bench) -> None:
    drive(dead, dead.broker.manager.retry(Choice(DEAD, limit=2), TO, NOBODY))
    assert rest(dead, TO) == ["/queue/a", "/queue/b"]
    operation = dead.broker.manager.retry(Choice(DEAD), DEAD, NOBODY)
    drive(dead, operation)
    assert operation.left == {f"{DEAD} is the queue itself": 3}


def test_dead_letters_go_only_where_the_operator_may_send(dead: Bench) -> None:
    allow = Rule(True, frozenset(Action), ("/queue/a", DEAD), ("alice",))
    dead.broker.authorizer.rules = AccessRules((allow,))
    operation = dead.broker.manager.retry(Choice(DEAD), "", Identity("alice"))
    drive(dead, operation)
    assert operation.done == 2
    assert operation.left["the right to send to /queue/b is missing"] == 1


def test_the_reasons_why_dead_letters_stay_are_bounded() -> None:
    bench = Bench(book=SHARED)
    bench.actor().sends(DEAD, "over", ttl="1000")
    bench.now += 2
    for number in range(MAX_REASONS + 3):
        bench.actor().sends(f"/queue/{number}", "x")
        reader = bench.reader(f"/queue/{number}", ack="client-individual")
        reader.nacks(reader.reads()[0], requeue=False)
    bench.broker.authorizer.rules = AccessRules(())
    operation = bench.broker.manager.retry(Choice(DEAD), "", NOBODY)
    drive(bench, operation)
    assert operation.done == 0
    assert (len(operation.left), operation.left["other reasons"]) == (MAX_REASONS + 1, 3)


def test_a_paused_queue_hands_out_nothing_and_stays(bench: Bench) -> None:
    reader = bench.reader(Q, ack="client-individual", prefetch_count="1")
    bench.actor().sends(Q, "a", "b")
    (first,) = reader.reads()
    bench.broker.manager.pause(Q)
    reader.acks(first)
    assert reader.reads() == []
    reader.is_gone()
    drive(bench, bench.broker.manager.purge(Choice(Q)))
    assert not bench.queue(Q).is_idle
    bench.actor().sends(Q, "c")
    other = bench.reader(Q)
    assert other.bodies() == []
    bench.broker.manager.resume(Q)
    assert other.bodies() == ["c"]


def test_an_operation_ends_with_its_queue(bench: Bench) -> None:
    bench.actor().sends(Q, "a")
    operation = bench.broker.manager.purge(Choice(Q))
    bench.broker.queues.end(Q, bench.now)
    assert operation.step(bench.now) is Step.DONE
    assert operation.done == 0


def test_impossible_request_is_refused(bench: Bench) -> None:
    manager = bench.broker.manager
    with pytest.raises(ProtocolError, match="there is no queue '/queue/none'"):
        manager.purge(Choice("/queue/none"))
    bench.actor().sends(Q, "a")
    with pytest.raises(ProtocolError, match="is the queue itself"):
        manager.move(Choice(Q), Q)
    with pytest.raises(ProtocolError, match="selector"):
        manager.purge(Choice(Q, "kind ="))
    assert manager.resolve("/queue/a") == "/queue/a"
    with pytest.raises(ProtocolError, match="several destinations"):
        manager.resolve("/queue/a,/queue/b")


def test_a_step_takes_a_share_of_a_turn(bench: Bench) -> None:
    ticks = iter(range(100_000))
    bench.broker.turns.clock = lambda: next(ticks) / 2000
    bench.actor().sends(Q, *numbers(0, 1000))
    operation = bench.broker.manager.purge(Choice(Q))
    steps = 1
    while operation.step(bench.now) is Step.MORE:
        steps += 1
    assert steps > 5
    assert operation.done == 1000


def test_the_user_and_the_operation_are_events_and_explained(bench: Bench) -> None:
    watcher = bench.reader("DIAG/event/purge")
    bench.actor().sends(Q, "a")
    manager = bench.broker.manager
    drive(bench, manager.purge(Choice(Q), by="alice"))
    bench.broker.note_operation("purge", Q, "alice", "1 message")
    (event,) = bench.broker.events.take()
    assert (event.name, event.user, event.destination) == ("purge", "alice", Q)
    assert watcher.outbox.closed is None


def test_operations_need_no_history() -> None:
    core = Bench(BrokerPolicies(explain_events=0))
    core.actor().sends(Q, "a")
    operation = core.broker.manager.purge(Choice(Q))
    drive(core, operation)
    assert operation.done == 1
