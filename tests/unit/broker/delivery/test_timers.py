"""Deferred work of the core."""

from functools import partial

from trio_stomp.broker.delivery import NEVER, Timers


def test_calls_come_when_due_in_order_with_the_time_that_it_is():
    timers = Timers()
    reported: list[tuple[str, float]] = []

    def note(name: str, now: float) -> None:
        reported.append((name, now))

    for name, due in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        timers.call_at(due, partial(note, name))
    assert timers.next_due == 1.0
    assert len(timers) == 3
    timers.run(0.9)
    assert reported == []
    timers.run(2.0)
    assert reported == [("a", 2.0), ("b", 2.0)]
    assert timers.next_due == 3.0
    timers.run(9.0)
    assert reported[2:] == [("c", 9.0)]
    assert len(timers) == 0
    assert timers.next_due == NEVER


def test_calls_due_at_the_same_time_come_in_the_order_they_were_made():
    timers = Timers()
    reported: list[int] = []

    def note(number: int, now: float) -> None:
        reported.append(number)

    for number in range(20):
        timers.call_at(5.0, partial(note, number))
    timers.run(5.0)
    assert reported == list(range(20))


def test_a_call_may_make_another_that_is_due_at_once_or_later():
    timers = Timers()
    reported: list[str] = []

    def first(now: float) -> None:
        reported.append("first")
        timers.call_at(now, lambda _: reported.append("at once"))
        timers.call_at(now + 1, lambda _: reported.append("later"))

    timers.call_at(1.0, first)
    timers.run(1.0)
    assert reported == ["first", "at once"]
    assert timers.next_due == 2.0


def test_calls_above_the_limit_of_a_turn_wait_for_the_next_one():
    timers = Timers()
    reported: list[int] = []

    def note(number: int, now: float) -> None:
        reported.append(number)

    count = 1_001
    for number in range(count):
        timers.call_at(5.0, partial(note, number))
    turns = 0
    while timers.next_due == 5.0:  # past: the alarm rings at once
        before = len(reported)
        timers.run(6.0)
        assert 0 < len(reported) - before < count / 2
        turns += 1
    assert turns > 2
    assert reported == list(range(count))
    assert timers.next_due == NEVER


def test_a_call_that_was_cancelled_is_not_made():
    timers = Timers()
    reported: list[int] = []

    def note(number: int, now: float) -> None:
        reported.append(number)

    numbers = [timers.call_at(float(due), partial(note, due)) for due in range(6)]
    timers.cancel(numbers[0])
    timers.cancel(numbers[4])
    timers.run(9.0)
    assert reported == [1, 2, 3, 5]
    assert len(timers) == 0


def test_cancelled_calls_are_not_kept_until_they_would_be_due():
    timers = Timers()
    for _ in range(1000):
        timers.cancel(timers.call_at(1e9, lambda now: None))
        assert len(timers) <= 2
    assert timers.next_due == NEVER
