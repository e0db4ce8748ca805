"""Requests to explain, and readers of the answers."""

import json
from collections.abc import Generator
from typing import Any, TypeVar

from tests.support.core import Core, Peer

T = TypeVar("T")
BROWSER = (("browser", "true"),)


def asks(core: Core, question: str | dict[str, str]) -> dict[str, Any]:
    text = question if isinstance(question, str) else json.dumps(question)
    return answered(core.broker.explainer.explain(text))


def answered(pieces: Generator[None, None, T]) -> T:
    """Have all pieces found of an answer."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: T = end.value
            return found


def what(answer: dict[str, Any]) -> list[str]:
    return [event["what"] for event in answer["events"]]


def ids(peer: Peer) -> list[str]:
    return [message.get("message-id") or "" for message in peer.messages()]


def facts(core: Core, name: str) -> list[str]:
    found = asks(core, name)
    assert found["summary"] == "; ".join(found["facts"])
    return list(found["facts"])
