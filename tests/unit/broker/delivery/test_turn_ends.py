"""The end of a turn: only the parts that have asked for it are called, whatever fails."""

import pytest

from tests.support.core import counted_turns
from tests.support.durable_fakes import DurableBench


class Bug(Exception):
    """A bug."""


def test_a_call_is_made_once_at_the_end_of_the_turn_that_asked_for_it():
    turns, made = counted_turns(), list[str]()

    def call() -> None:
        made.append("call")

    turns.at_end(call)
    turns.at_end(call)
    assert made == []
    turns.end()
    turns.end()
    assert made == ["call"]


def test_a_call_that_asks_again_is_made_in_the_next_turn():
    turns, made = counted_turns(), list[str]()

    def call() -> None:
        made.append("call")
        turns.at_end(call)

    turns.at_end(call)
    turns.end()
    assert made == ["call"]
    turns.end()
    assert made == ["call", "call"]


def test_a_bug_keeps_no_other_call_from_being_made_and_its_own_is_made_again():
    turns, made = counted_turns(), list[str]()
    faults = [Bug("first"), Bug("second"), None]

    def failing() -> None:
        if (fault := faults.pop(0)) is not None:
            raise fault
        made.append("mended")

    def other() -> None:
        made.append("other")

    turns.at_end(failing)
    turns.at_end(other)
    with pytest.raises(Bug, match="first"):
        turns.end()
    assert made == ["other"]
    with pytest.raises(Bug, match="second"):
        turns.end()
    turns.end()
    assert made == ["other", "mended"]


def test_a_bug_before_the_end_keeps_no_id_from_its_message():
    core = DurableBench(is_prompt=False)
    core.actor().sends("/queue/a", "x", persistent="true", x_dedup_id="1")
    core.broker.turns.bug = Bug("a work")
    with pytest.raises(Bug, match="a work"):
        core.broker.end_turn(core.now)
    turn = core.log.take()
    assert turn is not None
    core.turns.append(turn)
    core.answers()
    after = core.restarts()
    after.actor().sends("/queue/a", "x", persistent="true", x_dedup_id="1")
    after.turn()
    assert after.queue("/queue/a").message_count == 1
