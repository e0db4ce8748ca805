"""Returned messages, compared with a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import run_of
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Message
from trio_stomp.broker.queues._waiting import PIECE, Returned

ORIGIN = Publication(Destination("/queue/q", Kind.QUEUE), run_of("/queue/q").head, [], 0.0, NEVER)

STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 10_000)),
    st.tuples(st.just("run"), st.integers(0, 10_000)),
    st.tuples(st.just("pop"), st.just(0)),
    st.tuples(st.just("behind"), st.integers(-1, 10_001)),
)


@given(st.lists(STEP, max_size=60))
def test_it_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    returned, model = Returned(), set[int]()
    for step, number in steps:
        if step == "put" and number not in model:
            returned.put(Message(number, ORIGIN, b"", 4))
            model.add(number)
        elif step == "run":  # so that there are several pieces
            for each in sorted(
                {*range(number, number + 3 * PIECE)} - model, reverse=number % 2 == 0
            ):
                returned.put(Message(each, ORIGIN, b"", 4))
                model.add(each)
        elif step == "pop" and model:
            assert returned.first.number == min(model)
            assert returned.pop().number == min(model)
            model.remove(min(model))
        elif step == "behind":
            most = 2 * PIECE
            wanted = sorted(each for each in model if each > number)[:most]
            assert [each.number for each in returned.behind(number, most)] == wanted
        assert len(returned) == len(model)
        assert all(0 < len(piece) <= 2 * PIECE for piece in returned.pieces)
    assert [each.number for each in returned] == sorted(model)


def test_messages_set_aside_go_to_their_places() -> None:
    returned = Returned()
    messages = [Message(number, ORIGIN, b"", 4) for number in range(9)]
    for part in (messages[4:6], [], messages[7:], messages[:4], messages[6:7]):
        returned.extend(list(part))
    assert list(returned) == messages
