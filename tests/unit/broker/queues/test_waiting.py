"""The waiting messages of a queue, in memory and in the store, compared with sorted lists."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import run_of
from trio_stomp.base import BrokenInvariant
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Message
from trio_stomp.broker.queues._waiting import PIECE, SortedMessages, Waiting

ROUTE = Destination("/queue/q", Kind.QUEUE)
ORIGIN = Publication(ROUTE, run_of("/queue/q").head, [], 0.0, NEVER)

STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 10_000)),
    st.tuples(st.just("run"), st.integers(0, 10_000)),
    st.tuples(st.just("extend"), st.integers(0, 10_000)),
    st.tuples(st.just("first"), st.integers(0, 3 * PIECE)),
    st.tuples(st.just("take"), st.integers(0, 10_000)),
    st.tuples(st.just("behind"), st.integers(-1, 10_001)),
)


@given(st.lists(STEP, max_size=60))
def test_it_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    messages, model = SortedMessages(), dict[int, Message]()

    def new(number: int) -> Message:
        model[number] = Message(number, ORIGIN, b"", 4)
        return model[number]

    for step, number in steps:
        fresh = sorted({*range(number, number + 3 * PIECE)} - model.keys())
        order = sorted(model)
        if step == "put" and number not in model:
            messages.put(new(number))
        elif step == "run":  # so that there are several pieces
            for each in reversed(fresh) if number % 2 == 0 else fresh:
                messages.put(new(each))
        elif step == "extend" and fresh:
            messages.extend([new(each) for each in fresh[:PIECE]])
        elif step == "first":
            count = min(number, len(model))
            messages.take_first(count)
            for each in order[:count]:
                del model[each]
        elif step == "take" and model:
            messages.take(model.pop(order[number % len(order)]))
        elif step == "behind":
            most = 2 * PIECE
            wanted = [each for each in order if each > number][:most]
            assert [each.number for each in messages.behind(number, most)] == wanted
        assert len(messages) == len(model)
        assert all(messages.pieces)
    assert [each.number for each in messages] == sorted(model)
    assert not model or messages.first.number == min(model)


def test_a_list_that_grows_from_within_is_split() -> None:
    messages = SortedMessages()
    for number in reversed(range(5 * PIECE)):
        messages.put(Message(number, ORIGIN, b"", 4))
    assert all(0 < len(piece) <= 2 * PIECE for piece in messages.pieces)


def test_messages_that_arrive_late_go_to_their_places() -> None:
    messages = SortedMessages()
    many = [Message(number, ORIGIN, b"", 4) for number in range(9)]
    for part in (many[4:6], many[7:], many[:4], many[6:7]):
        messages.extend(part)
    assert list(messages) == many


def message(number: int, level: int = 4, received_at: float = 0.0) -> Message:
    """Return a message of two bytes."""
    head = run_of("/queue/q").head
    return Message(number, Publication(ROUTE, head, [], received_at, NEVER), b"xy", level)


def put(waiting: Waiting, *messages: Message) -> None:
    """Append messages of one level."""
    waiting.extend(messages[0].level, list(messages))


def drained(waiting: Waiting) -> Iterator[int]:
    """Numbers in the order of ``pop``."""
    while (found := waiting.pop()) is not None:
        yield found.number


def test_higher_levels_come_first_and_within_one_the_earlier():
    waiting = Waiting()
    for number, level in enumerate((4, 0, 9, 4, 9, 0), 1):
        put(waiting, message(number, level))
    assert [each.number for each in waiting.in_order()] == [3, 5, 1, 4, 2, 6]
    assert list(drained(waiting)) == [3, 5, 1, 4, 2, 6]


def test_returned_message_keeps_its_position():
    waiting = Waiting()
    waiting.extend(4, [message(number) for number in range(1, 7)])
    taken = [waiting.pop() for _ in range(4)]
    for each in (taken[2], taken[0], taken[3], taken[1]):
        assert each is not None
        waiting.give_back(each)
    assert waiting.count == 6
    assert [each.number for each in waiting.in_order()] == [1, 2, 3, 4, 5, 6]
    assert list(drained(waiting)) == [1, 2, 3, 4, 5, 6]


def test_the_oldest_stands_first_on_some_level():
    waiting = Waiting()
    assert waiting.oldest_at == NEVER
    for number, (level, received_at) in enumerate(((9, 7.0), (4, 5.0), (4, 6.0), (0, 8.0))):
        put(waiting, message(number, level, received_at=received_at))
    assert waiting.oldest_at == 5.0
    first, second = waiting.pop(), waiting.pop()
    assert waiting.oldest_at == 6.0
    assert second is not None
    waiting.give_back(second)
    assert waiting.oldest_at == 5.0
    assert first is not None
    assert list(drained(waiting)) == [1, 2, 3]
    assert waiting.oldest_at == NEVER


def test_age_of_messages_in_the_store_alone_is_unknown():
    waiting = Waiting()
    waiting.restore(4, count=2, size=4, last=2)
    put(waiting, message(7, level=9, received_at=7.0))
    assert waiting.oldest_at is None
    waiting.loaded(4, [message(1, received_at=3.0)], size=2)
    assert waiting.oldest_at == 3.0
    waiting.pop()
    first = waiting.pop()
    assert first is not None
    waiting.give_back(first)
    assert waiting.oldest_at == 3.0


STEPS = ["put", "late", "leave", "load", "pop", "take", "return"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9))))
def test_waiting_is_a_sorted_list(steps):
    waiting = Waiting()
    inside: list[Message] = []
    outside: list[Message] = []
    coming: list[Message] = []  # on their way to the store
    left: dict[int, list[Message]] = {}  # in the store only, by level

    def position(each: Message) -> tuple[int, int]:
        return (-each.level, each.number)

    for number, (step, level) in enumerate(steps, 1):
        inside.sort(key=position)
        if step == "put":
            coming.append(message(2 * number, level))
            put(waiting, message(2 * number + 1, level))
            inside = waiting.in_order()
        elif step == "late" and coming and not waiting.is_paging(coming[0].level):
            inside.append(coming.pop(0))
            put(waiting, inside[-1])
        elif step in ("late", "leave") and coming:
            each = coming.pop(0)
            left.setdefault(each.level, []).append(each)
            waiting.page_out(each.level, each.number, 1, 2)
        elif step == "load" and left:
            priority, messages = left.popitem()
            waiting.loaded(priority, messages, 2 * len(messages))
            assert waiting.forget_paged(priority).count == 0
            inside += messages
        elif step == "return" and outside:
            inside.append(outside.pop(level % len(outside)))
            waiting.give_back(inside[-1])
        elif step == "pop" and not waiting.paged:
            found = waiting.pop()
            assert found is (inside.pop(0) if inside else None)
            outside += [found] if found is not None else []
        elif step == "take" and inside:
            outside.append(inside.pop(level % len(inside)))
            waiting.take(outside[-1].level, outside[-1])
        inside.sort(key=position)
        assert waiting.in_order() == inside
        assert waiting.count == len(inside)


def test_a_look_up_that_finds_another_message_removes_nothing():
    waiting = Waiting()
    put(waiting, message(1), message(2), message(4))
    for missing in (message(1), message(2), message(3), message(4), message(5)):
        with pytest.raises(BrokenInvariant, match=f"message {missing.number} is not at its place"):
            waiting.take(4, missing)
    with pytest.raises(BrokenInvariant, match="among 3 waiting ones"):
        waiting.take(4, message(3))
    assert list(drained(waiting)) == [1, 2, 4]


def test_messages_in_the_store_must_be_left_and_read_in_order():
    waiting = Waiting()
    waiting.page_out(4, first=5, count=3, size=6)
    with pytest.raises(BrokenInvariant, match="message 7 is to be paged out behind 7"):
        waiting.page_out(4, first=7, count=1, size=2)
    waiting.page_out(4, first=8, count=1, size=2)
    with pytest.raises(BrokenInvariant, match="message 5 was read behind 6"):
        waiting.loaded(4, [message(6), message(5)], size=4)


def test_a_page_may_be_empty():
    waiting = Waiting()
    waiting.page_out(4, first=5, count=1, size=2)
    waiting.loaded(4, [], size=0)
    assert (waiting.count, waiting.paged) == (0, 1)


def test_nothing_is_loaded_while_more_urgent_messages_wait_in_memory():
    waiting = Waiting()
    waiting.page_out(2, first=1, count=3, size=6)
    assert waiting.wanted(1000) == 2
    put(waiting, message(9, level=5))
    assert waiting.wanted(1000) == -1
    assert waiting.pop() is not None
    assert waiting.wanted(1000) == 2


def test_nothing_is_loaded_where_nothing_is_in_the_store_alone():
    waiting = Waiting()
    assert waiting.wanted(1000) == -1
    waiting.page_out(2, first=1, count=3, size=6)
    (paged,) = waiting.forget_all_paged()
    assert paged.size == 6
    assert waiting.wanted(1000) == -1
