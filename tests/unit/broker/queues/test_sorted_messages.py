"""Messages in order, compared with a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import run_of
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Message
from trio_stomp.broker.queues._waiting import PIECE, SortedMessages

ORIGIN = Publication(Destination("/queue/q", Kind.QUEUE), run_of("/queue/q").head, [], 0.0, NEVER)

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
