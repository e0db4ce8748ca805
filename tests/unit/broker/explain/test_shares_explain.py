"""``explain`` is answered in pieces, and other clients are served meanwhile."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.core import Actor, Core, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.explain_fakes import answered, asks
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.explain._pieces import chosen, last
from trio_stomp.protocol import Acked, Committed

EXPLAIN, ANSWERS = "DIAG/explain", "/topic/answers"


def asker(desk: Clocked) -> Actor:
    actor = desk.actor()
    actor.subscribes(ANSWERS, "answers")
    return actor


def answers(actor: Actor) -> list[dict[str, Any]]:
    return [json.loads(each.text) for each in actor.writes() if each.command == "MESSAGE"]


def ask(actor: Actor, *questions: dict[str, str] | str) -> None:
    bodies = [each if isinstance(each, str) else json.dumps(each) for each in questions]
    actor.sends(EXPLAIN, *bodies, reply_to=ANSWERS, receipts=[(1, b"r")])


def test_about_many_subscriptions_and_destinations(desk: Clocked):
    reader = desk.actor()
    for number in range(2000):
        reader.subscribes(f"/topic/{number}.*", f"{number}")
    desk.settles()
    one, other = asker(desk), desk.actor()
    names = ",".join(f"/topic/a{number}" for number in range(30))
    desk.pieces.clear()
    ask(one, {"destination": names, "session": reader.client.session_id})
    one.sends("/queue/q", "behind it")
    other.sends("/queue/q", "beside it")
    assert desk.waiting("/queue/q") == ["beside it"]
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 30
    assert desk.waiting("/queue/q") == ["beside it", "behind it"]
    [answer] = answers(one)
    assert len(answer["facts"]) == 31
    assert answer["facts"][1].startswith("has no subscription that reaches /topic/a0; it has")
    assert len(answer["facts"][1]) < 500


def test_about_many_events(desk: Clocked):
    one = asker(desk)
    reader, sender = desk.actor(), desk.actor()
    reader.subscribes("/topic/t", "t")
    for number in range(4000):
        sender.sends("/topic/t", f"{number}")
        desk.now += 0.001
        if number % 2:
            sender.sends("/topic/nobody", "lost")
    desk.settles()
    names = [each.get("message-id") or "" for each in reader.writes()]
    desk.pieces.clear()
    ask(one, names[7], {"destination": "/topic/nobody"})
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 10
    first, second = answers(one)
    assert first["summary"] == "it was sent to 1 subscriber"
    assert [each["ms_ago"] for each in first["events"]]
    ages = [each["ms_ago"] for each in second["events"]]
    assert ages == sorted(ages, reverse=True)
    assert len(ages) == 200


def test_a_message_that_was_delivered_again_and_again():
    desk = Clocked(book={"/queue/q": DestinationPolicy(max_redeliveries=100, backoff_s=())})
    one, worker = asker(desk), desk.actor()
    worker.subscribes("/queue/q", "q", "client-individual")
    desk.actor().sends("/queue/q", "poison")
    name = ""
    for _ in range(40):
        [frame] = [each for each in worker.frames() if each.command == "MESSAGE"]
        name = frame.get("message-id") or ""
        worker.does(Acked([(frame.get("ack") or "").encode()], "id", None, True, True, ()))
    worker.frames()
    ask(one, name)
    desk.settles()
    [answer] = answers(one)
    assert [each["what"] for each in answer["events"]].count("rejected") == 40


def test_a_message_that_many_lost():
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    quick, *slow = [core.peer(), *(core.peer(capacity=1) for _ in range(40))]
    for each in (quick, *slow):
        each.subscribes("/topic/t")
    quick.subscribes("/topic/t", "acknowledging", "client")
    sender = core.peer()
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    core.broker.end_turn(core.now)
    names = [each.get("message-id") or "" for each in quick.messages() if each.text == "b"]
    found = [asks(core, name)["facts"] for name in names]
    [lines] = [each for each in found if each[0].startswith("it was sent")]
    assert len(lines) == 7
    assert lines[-1] == "and 35 more likewise"


def test_questions_wait_for_one_another_and_each_is_answered(desk: Clocked):
    askers = [asker(desk) for _ in range(3)]
    for number, each in enumerate(askers):
        ask(each, {"destination": f"/topic/{number}"})
    desk.settles()
    for each in askers:
        found = [answer["question"]["destination"] for answer in answers(each)]
        assert sorted(found) == ["/topic/0", "/topic/1", "/topic/2"]


def test_subscribers_of_the_given_destination_are_listed_too(desk: Clocked):
    one, listener = asker(desk), desk.actor()
    listener.subscribes(EXPLAIN, "e")
    one.sends(EXPLAIN, json.dumps({"destination": "/topic/x"}), receipts=[(1, b"r")])
    listener.subscribes("/topic/any.*", "w")
    desk.settles()
    assert [answer["question"] for answer in answers(listener)] == [{"destination": "/topic/x"}]
    assert [each.get("matched") for each in one.writes()] == ["1"]


@pytest.mark.parametrize("question", ["{", '{"session": "s1"}', "no-id", "b7.1-x"])
def test_malformed_question_is_refused_immediately(desk: Clocked, question: str):
    plain, committing = desk.actor(), desk.actor()
    plain.sends(EXPLAIN, question)
    assert plain.error().get("code") == "invalid-question"
    run = run_of(EXPLAIN, [question])
    committing.does(Committed([run_of("/queue/q", ["x"]), run], b"r"))
    assert committing.error().get("code") == "invalid-question"
    assert desk.waiting("/queue/q") == []


def test_a_question_in_a_transaction_is_answered(desk: Clocked):
    one = asker(desk)
    head = (("reply-to", ANSWERS),)
    one.does(Committed([run_of(EXPLAIN, ['{"destination": "/topic/x"}'], head)], b"r"))
    desk.settles()
    assert [each.command for each in one.writes()] == ["MESSAGE", "RECEIPT"]


def test_a_question_in_a_stored_transaction_is_answered():
    desk = DurableBench()
    one = desk.actor()
    one.subscribes(ANSWERS, "answers")
    head = (("reply-to", ANSWERS),)
    question = run_of(EXPLAIN, ['{"destination": "/topic/x"}'], head)
    kept = run_of("/queue/q", ["x"], (("persistent", "true"),))
    one.does(Committed([kept, question], b"r"))
    for _ in range(3):
        desk.turn()
    assert sorted(each.command for each in one.writes()) == ["MESSAGE", "RECEIPT"]


@pytest.mark.parametrize("question", ['{"destination": "/topic/x"}', "no question"])
def test_a_question_that_was_due_is_answered_if_it_is_one(desk: Clocked, question: str):
    one = asker(desk)
    one.sends(EXPLAIN, question, reply_to=ANSWERS, AMQ_SCHEDULED_DELAY="1000")
    desk.passes(2)
    desk.settles()
    assert len(answers(one)) == question.startswith("{")


def test_explanation_is_searched_in_pieces():
    assert answered(chosen(range(1000), _is_round)) == list(range(0, 1000, 100))
    assert _last(range(1000)) == 900
    assert _last(range(1, 100)) is None
    assert _last([]) is None


def _last(numbers: Sequence[int]) -> int | None:
    pieces = last(numbers, _is_round)
    return answered(pieces)


def _is_round(number: int) -> bool:
    return number % 100 == 0
