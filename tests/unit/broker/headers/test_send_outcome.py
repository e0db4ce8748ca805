"""The outcome of a SEND: the order of a RECEIPT's lines, its numbers, and shared blocks."""

from typing import Any

import pytest

from tests.support.core import Bench, run_of
from trio_stomp.broker.headers import (
    DUPLICATE,
    IN_MEMORY,
    NOTHING,
    SendOutcome,
    combined,
    matched,
    of_run,
    parked,
    unmatched,
)

ALL = SendOutcome(
    0, "so", is_duplicate=True, stored="journal", offset=9, job=5, removed=2, dedup_window=8
)


def test_one_place_says_the_order_of_the_lines() -> None:
    assert ALL.header_lines().split() == (
        b"matched:0 hint:so removed:2 duplicate:true dedup-window:8 stored:journal"
        b" x-stream-offset:9 scheduledJobId:5"
    ).split(b" ")
    assert NOTHING.header_lines() == b""


def test_a_later_message_of_the_run_has_higher_numbers() -> None:
    assert ALL.header_lines() is ALL.header_lines()
    later = ALL.header_lines().replace(b":9", b":12").replace(b"Id:5", b"Id:8")
    assert ALL.header_lines(3) == later != ALL.header_lines()


def test_messages_that_differ_have_their_own_lines() -> None:
    outcome = of_run([matched(1), DUPLICATE, matched(2)])
    lines = [b"matched:1\n", b"duplicate:true\n", b"matched:2\n"]
    assert [outcome.header_lines(index) for index in range(3)] == lines


def test_a_common_outcome_is_made_once() -> None:
    for count in (0, 1, 256):
        assert matched(count) is matched(count)
    assert matched(257) == SendOutcome(matched=257)
    for name in ("a", "queue/a", "topic/a"):
        assert unmatched(name) is unmatched(name)
        assert parked(name) is parked(name)
        assert parked(name) == unmatched(name) | IN_MEMORY


def test_two_outcomes_of_one_destination_are_one() -> None:
    offset = SendOutcome(offset=0)
    assert (NOTHING | offset) is (offset | NOTHING) is offset
    parts = [SendOutcome(**{name: value}) for name, value in vars_of(ALL).items()]
    joined = NOTHING
    for part in parts:
        assert part | joined == joined | part
        joined |= part
    assert joined == ALL


def vars_of(outcome: SendOutcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in SendOutcome.__match_args__}


@pytest.mark.parametrize(
    ("outcome", "is_lost"),
    [
        (unmatched("queue/a"), True),
        (parked("a"), False),
        (matched(0) | SendOutcome(offset=0), False),
        (matched(1), False),
        (NOTHING, False),  # it continues in pieces
    ],
)
def test_outcome_without_recipients(outcome: SendOutcome, is_lost: bool) -> None:
    assert outcome.is_lost is is_lost


def test_a_composite_promises_as_much_as_its_weakest_part() -> None:
    stored = SendOutcome(stored="journal")
    assert combined([stored, IN_MEMORY]) == IN_MEMORY
    assert combined([stored, stored]) == stored
    assert combined([DUPLICATE, DUPLICATE | stored]) == DUPLICATE | stored
    assert combined([DUPLICATE, matched(2), matched(1)]) == matched(3)


def test_a_run_without_receipts_makes_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SendOutcome] = []
    encode = SendOutcome.header_lines

    def header_lines(self: SendOutcome, index: int = 0) -> bytes:
        asked.append(self)
        return encode(self, index)

    monkeypatch.setattr(SendOutcome, "header_lines", header_lines)
    bench = Bench()
    reader, sender = bench.actor(), bench.actor()
    reader.subscribes("/topic/a")
    for name in ("/topic/a", "/topic/b", "/queue/c"):
        sender.sends(name, "x")
    assert asked == []
    sender.does(run_of("/topic/a", ("x", "y"), (), [(2, b"r")]))
    assert asked == [matched(1)]
