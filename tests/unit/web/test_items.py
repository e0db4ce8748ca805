"""The list of an answer: what of a body is shown, and how much is made before it is sent."""

import json
from typing import Any

import pytest
import trio

from trio_stomp.broker import MemoryBudget
from trio_stomp.web import LIST_BYTES
from trio_stomp.web.management.requests import Answering, Items

BODY_BYTES, FOUND_BYTES, PIECE_CHARS, FLUSH_BYTES = 1 << 20, 256 * 1024, 32 * 1024, 64 * 1024
"""Of the bodies of an answer, of a search; of a piece of a body, and of one that is sent."""


class Reader:
    """Reads an answer, and what was charged meanwhile."""

    def __init__(self, memory: MemoryBudget) -> None:
        self.memory, self.parts, self.charged = memory, list[bytes](), list[int]()

    async def __call__(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.parts.append(data)
        self.charged.append(self.memory.used_bytes)

    def hold(self, size: int) -> None:
        """Implement ``Send.hold``: these answers are made here."""
        raise NotImplementedError

    def answer(self) -> Any:
        return json.loads(b"".join(self.parts).partition(b"\r\n\r\n")[2])


async def answered(*bodies: bytes, shown: int = 16 * BODY_BYTES, header: str = "") -> Reader:
    memory = MemoryBudget()
    reader = Reader(memory)
    items, answering = Items("found", memory, shown), Answering(reader)
    for number, body in enumerate(bodies):
        items.take({"number": number, "headers": {"h": header} if header else {}}, body)
        await items.write(answering)
    await answering.end({"more": items.is_full}, name=items.name)
    items.charge(0)
    assert memory.used_bytes == 0
    return reader


@pytest.mark.parametrize(
    ("body", "shown", "field", "expected"),
    [
        (b"abc", 2, "body", "ab"),
        ("zü".encode(), 2, "body", "z"),
        ("zü".encode(), 3, "body", "zü"),
        (b"\xff", 9, "body_base64", "/w=="),
        (b"", 9, "body", ""),
        (b"abc", 0, "body", ""),
        ("\U0001f600".encode() * PIECE_CHARS, 16 * BODY_BYTES, "body", "\U0001f600" * PIECE_CHARS),
    ],
)
async def test_a_body_is_shown_as_text_if_it_is_one(
    body: bytes, shown: int, field: str, expected: str
) -> None:
    (item,) = (await answered(body, shown=shown)).answer()["found"]
    assert item == {"number": 0, "headers": {}, field: expected}


@pytest.mark.parametrize("body", [b"\x01", b"a", b"\xff", "é".encode(), "\U0001f600".encode()])
async def test_a_body_has_at_most_its_bytes_as_json(body: bytes) -> None:
    reader = await answered(body * (2 * BODY_BYTES))
    (item,) = reader.answer()["found"]
    text = json.dumps(item.get("body", item.get("body_base64")))
    assert BODY_BYTES * 3 // 5 < len(text) <= BODY_BYTES + 2
    assert max(reader.charged) < 3 * BODY_BYTES


async def test_a_short_answer_has_a_length_and_a_long_one_is_sent_while_it_is_made() -> None:
    short = await answered(b"a")
    assert len(short.parts) == 1
    assert b"content-length" in short.parts[0].lower()
    long = await answered(*[b"a" * FLUSH_BYTES] * 3, b"b")
    assert len(long.parts) == 4
    assert b"content-length" not in long.parts[0].lower()
    assert [len(each["body"]) for each in long.answer()["found"]] == [FLUSH_BYTES] * 3 + [1]
    assert min(long.charged[:3]) >= FLUSH_BYTES


async def test_an_answer_ends_before_the_record_that_does_not_fit() -> None:
    found = (await answered(*[b"a" * BODY_BYTES] * 9)).answer()
    assert (len(found["found"]), found["more"]) == (3, True)
    header = "x" * (LIST_BYTES // 20)
    found = (await answered(*[b""] * 40, header=header)).answer()
    assert (len(found["found"]), found["more"]) == (19, True)
    found = (await answered(*[b""] * 19, header=header)).answer()
    assert (len(found["found"]), found["more"]) == (19, False)


def test_an_operation_pauses_before_much_is_found() -> None:
    items = Items("found", MemoryBudget(), BODY_BYTES)
    assert items.take({"headers": {"a": "b"}}, b"x" * (FOUND_BYTES - 3))
    assert not items.take({"headers": {}}, b"x")
    assert items.take({"headers": {}}, b"") is False
