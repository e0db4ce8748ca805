"""Headers of an application, with the names that some broker knows: none changes a message's fate.

RabbitMQ delivers a message with ``ttl:60``, ActiveMQ one with ``expiration:soon``; here the one was
lost and the other ended the connection, whatever the dialect.
"""

import pytest
import trio

from tests.support.core import DIALECTS
from tests.support.fakes import TCP, open_dial
from trio_stomp.base import ProtocolError
from trio_stomp.broker.headers import (
    SCHEDULE_HEADERS,
    SEND_HEADERS,
    STREAM_HEADERS,
    SUBSCRIBE_HEADERS,
    dialect,
    make_plan,
)
from trio_stomp.frames import DEDUP_HEADERS, Head

OTHERS = ("user-id", "JMSXUserID", "JMSType", "timestamp", "type", "id")
NAMES = sorted(
    {*SEND_HEADERS, *SCHEDULE_HEADERS, *SUBSCRIBE_HEADERS, *STREAM_HEADERS, *OTHERS}
    - {name for name in STREAM_HEADERS if name.startswith("x-stream-")}
)
"""The broker alone sets a message's place in a stream."""


def means_something(name: str, word: str) -> bool:
    """Return whether a SEND with a header is one with options in a dialect."""
    head = Head("SEND", (("destination", "/queue/a"), (name, "1")), -1, "/queue/a")
    try:
        return make_plan(head, dialect(word)).options is not None
    except ProtocolError:
        return True


@pytest.mark.parametrize("text", ["hotel", "1"])
@pytest.mark.parametrize("word", DIALECTS)
async def test_a_header_of_another_broker_is_passed_on(word: str, text: str) -> None:
    meant = [name for name in SEND_HEADERS if means_something(name, word)]
    own = [name for name in NAMES if name not in meant]
    if text == "hotel":  # no number; any text is an id
        own += [n for n in meant if n not in DEDUP_HEADERS and not n.startswith("AMQ_")]
    async with open_dial(TCP, dialect=word) as dial:
        sender = await dial.connect()
        for name in own:
            headers = {"destination": "/queue/a", name: text, "receipt": name}
            await sender.send("SEND", headers, name.encode())
            answer = await sender.receive()
            assert (answer.command, answer["receipt-id"]) == ("RECEIPT", name), answer
            assert answer.get("ignored") in (None, name)
            assert answer["stored"] == "memory"
        await trio.sleep(0.01)
        reader = await dial.connect()
        await reader.subscribe("/queue/a")
        found = {frame.body.decode(): frame for frame in await reader.receive_many(len(own))}
        assert sorted(found) == sorted(own)
        for name, frame in found.items():
            assert frame.get(name) == text, name


@pytest.mark.parametrize(("name", "word"), [("expires", "activemq"), ("expiration", "rabbitmq")])
async def test_what_has_expired_when_it_comes_is_not_said_to_be_stored(
    name: str, word: str
) -> None:
    async with open_dial(TCP, dialect=word) as dial:
        sender = await dial.connect()
        for text, lines in (("1", "expired"), ("9" * 19, None)):
            headers = {"destination": "/queue/a", name: text, "receipt": "r"}
            await sender.send("SEND", headers, text.encode())
            answer = await sender.receive()
            if name == "expires":
                assert answer.get("dropped") == lines
                assert answer.get("stored") == (None if lines else "memory")
        await trio.sleep(0.01)
        await sender.subscribe("/queue/a")
        assert (await sender.receive()).body == b"9" * 19
