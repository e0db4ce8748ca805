"""The charge of header blocks: at least their memory, and always the same."""

import tracemalloc

import pytest

from tests.support.core import head_bytes
from trio_stomp.frames import (
    V1_2,
    FrameLimits,
    Head,
    head_cost,
    message_blocks,
    parse_head,
    text_cost,
)

LIMITS = FrameLimits()
COUNT = 40


def block(number: int, count: int, text: str) -> bytes:
    lines = [f"h{place}-{number}:{text}" for place in range(count)]
    return "\n".join(["SEND", "destination:/queue/q", *lines]).encode()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        pytest.param(0, "", id="none"),
        pytest.param(5, "v", id="few"),
        pytest.param(200, "v", id="many"),
        pytest.param(4, "x" * 15_000, id="long"),
        pytest.param(2, "\\\\" * 7_000, id="escaped"),
        pytest.param(2, "a\\c" * 5_000, id="colons"),
        pytest.param(2, "x" * 10_000 + "\U0001f600", id="one-wide"),
        pytest.param(2, "ä" * 7_000, id="latin"),
    ],
)
def test_a_block_is_charged_its_size_even_after_it_was_written(count: int, text: str) -> None:
    raw = [block(number, count, text) for number in range(COUNT)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        heads = [parse_head(each, V1_2, LIMITS) for each in raw]
        for head in heads:
            message_blocks(head)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    charged = sum(map(head_cost, heads))
    assert taken <= charged
    assert charged < 12 * taken


def test_the_charge_does_not_change_with_caches_on_the_block() -> None:
    pairs = (("destination", "/queue/q"), ("a", "1"))
    head = Head("SEND", pairs, -1, "/queue/q")
    before = head_cost(head)
    assert before == head_bytes(pairs) == head.cost
    message_blocks(head)
    head.stored = b"x" * 1000
    assert head_cost(head) == before


@pytest.mark.parametrize(
    "pair", [("a:b", "1"), ("a", "1:2"), ("a", "\\"), ("a", "\n"), ("a", "\r")]
)
def test_forms_of_escaped_text(pair: tuple[str, str]) -> None:
    head = Head("SEND", (pair, ("long", "x" * 100)))
    assert head_cost(head) == 512 + 2 * 176 + 6 * (len("".join(pair)) + 104)


def test_a_text_is_as_wide_as_its_widest_character_may_be() -> None:
    assert text_cost("") == 0
    assert text_cost("a" * 10) == 10
    assert text_cost("a" * 9 + "\U0001f600") == 40
