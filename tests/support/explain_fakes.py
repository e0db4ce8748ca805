"""What the tests of explain ask, and how they read the answers."""

import json
from typing import Any

from tests.support.core import Core, Peer

BROWSER = (("browser", "true"),)


def asks(core: Core, question: str | dict[str, str]) -> dict[str, Any]:
    text = question if isinstance(question, str) else json.dumps(question)
    return core.broker.explainer.explain(text)


def what(answer: dict[str, Any]) -> list[str]:
    return [event["what"] for event in answer["events"]]


def ids(peer: Peer) -> list[str]:
    return [message.get("message-id") or "" for message in peer.messages()]


def facts(core: Core, name: str) -> list[str]:
    found = asks(core, name)
    assert found["summary"] == "; ".join(found["facts"])
    return list(found["facts"])
