"""Addresses as people write them, and which server is tried when."""

import random

import pytest

from trio_stomp.nats import Address, NatsError, parse_address
from trio_stomp.nats._address import MAX_LEARNED, Servers

LIKE = Address("x", 1, is_tls=True, login="joe", passcode="secret")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nats://a:1", Address("a", 1)),
        ("a", Address("a", 4222)),
        ("10.0.0.1:5", Address("10.0.0.1", 5)),
        ("tls://[::1]:7", Address("::1", 7, is_tls=True)),
        ("nats://j%40e:p%3A@a", Address("a", 4222, login="j@e", passcode="p:")),
    ],
)
def test_addresses_are_parsed_and_printed(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == Address(address.host, address.port, address.is_tls)


def test_learned_address_is_used_like_its_source() -> None:
    assert parse_address("b:2", like=LIKE) == Address("b", 2, True, "joe", "secret")


@pytest.mark.parametrize("text", ["", "http://a:1", "nats://", "a:0", "a:99999", "nats://a:x"])
def test_malformed_addresses(text: str) -> None:
    with pytest.raises(NatsError, match="nats://host:port"):
        parse_address(text)


def test_a_passcode_is_not_repeated_in_an_error() -> None:
    with pytest.raises(NatsError) as caught:
        parse_address("http://joe:secret@a")
    assert "secret" not in str(caught.value)


def servers() -> Servers:
    return Servers([Address("a", 1), Address("b", 1)], 0.1, 1.0, random.Random(1))


def test_all_are_tried_at_once_and_then_after_growing_pauses() -> None:
    pool = servers()
    rounds = [[pool.next() for _ in range(2)] for _ in range(8)]
    for each in rounds:
        assert {address.host for address, _ in each} == {"a", "b"}
        assert each[1][1] == 0
    pauses = [each[0][1] for each in rounds]
    assert pauses[0] == 0
    for pause, longest in zip(pauses[1:], [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=True):
        assert longest / 2 <= pause <= longest


def test_success_restarts_with_the_addresses_of_the_server() -> None:
    pool = servers()
    for _ in range(7):
        pool.next()
    pool.note_success(LIKE, {"connect_urls": ["c:1", "ws://d", "a:1"]})
    tried = [pool.next() for _ in range(3)]
    assert [pause for _, pause in tried] == [0, 0, 0]
    assert {address.host for address, _ in tried} == {"a", "b", "c"}
    assert Address("c", 1, True, "joe", "secret") in [address for address, _ in tried]
    assert Address("a", 1) in [address for address, _ in tried]  # as configured
    pool.note_success(LIKE, {})  # what it does not tell again stays


def test_a_server_cannot_fill_the_memory_with_addresses() -> None:
    pool = servers()
    pool.note_success(LIKE, {"connect_urls": [f"h{number}:1" for number in range(10_000)]})
    assert len({pool.next()[0] for _ in range(MAX_LEARNED + 2)}) == MAX_LEARNED + 2
    assert pool.next()[1] > 0
