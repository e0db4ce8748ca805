"""The types of the client, as seen by an application with the installed package.

The checkers find it where Python finds it, and take its types only because of ``py.typed``; nothing
of this project's configuration counts where the application is.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trio_stomp

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "scripts" / "examples" / "client_shop.py"
PATIENCE_S = 300

USES = """
from collections.abc import Mapping
from typing import Any, assert_type

import trio

from trio_stomp.client import (
    Client,
    ClientEvent,
    ConnectFailed,
    Message,
    Receipt,
    ReconnectPolicy,
    Refused,
    Subscription,
    Transaction,
    open_client,
)


async def dial() -> trio.SocketStream:
    return await trio.open_tcp_stream("localhost", 61613)


async def connect() -> None:
    try:
        async with open_client(dial, reconnect=None) as client:
            assert_type(client, Client)
        policy = ReconnectPolicy(max_attempts=3)
        async with open_client("stomp://a", token=lambda: "x", reconnect=policy) as client:
            assert_type(client.is_connected, bool)
            assert_type(client.connected_headers, Mapping[str, str])
            async for event in client.events:
                assert_type(event, ClientEvent)
    except Refused as error:
        assert_type(error.code, str)
        assert_type(error.retry_after_s, float)
    except ConnectFailed:
        pass


async def send(client: Client, is_request: bool) -> None:
    receipt = await client.send("/queue/a", "tea", headers={"size": "large"})
    assert_type(receipt, Receipt)
    assert_type(receipt.matched, int | None)
    assert_type(receipt.stored, str)
    assert_type(receipt.duplicate, bool)
    assert_type(receipt.headers, Mapping[str, str])
    assert_type(await client.send("/queue/a", b"", persistent=True, receipt=True), Receipt)
    await client.send("/queue/a", receipt=False)
    assert_type(await client.send("/queue/a", receipt=is_request), Receipt | None)


async def receive(client: Client) -> None:
    async with client.subscribe("/queue/a", ack="client-individual", on_stale="ignore") as messages:
        assert_type(messages, Subscription)
        assert_type(messages.next_offset, int | None)
        async for message in messages:
            assert_type(message, Message)
            async with message as same:
                assert_type(same, Message)
        assert_type(await messages.receive(), Message)
        assert_type(messages.receive_nowait(), Message)
        for message in await messages.receive_batch():
            assert_type(message.body, bytes)
            assert_type(message.text, str)
            assert_type(message.json(), Any)
            assert_type(message.headers, Mapping[str, str])
            assert_type(message.stream_offset, int | None)
            assert_type(message.redelivered, bool)
            await message.nack(requeue=False)


async def transact_and_request(client: Client, message: Message) -> None:
    async with client.transaction() as transaction:
        assert_type(transaction, Transaction)
        await transaction.send("/queue/a", b"")
        await transaction.ack(message)
    assert_type(transaction.receipt, Receipt | None)
    assert_type(await client.request("/queue/a", "?", timeout_s=1), Message)


async def misuse(client: Client, message: Message) -> None:
    client.subscribe("/queue/a", ack="sometimes")  # wrong
    client.subscribe("/queue/a", on_stale="shout")  # wrong
    await client.send("/queue/a", 5)  # wrong
    (await client.send("/queue/a", receipt=False)).stored  # wrong
    await client.send("/queue/a", headers={"size": 5})  # wrong
    await client.request("/queue/a")  # wrong
    message.body.encode()  # wrong
    open_client(61613)  # wrong
"""
WRONG = [
    ("uses.py", number)
    for number, line in enumerate(USES.split("\n"), 1)
    if line.endswith("# wrong")
]
"""The lines at which errors must be found, and no others."""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The directory of an application."""
    (tmp_path / "uses.py").write_text(USES, encoding="utf-8")
    shutil.copy(SHOP, tmp_path)
    return tmp_path


def check(app: Path, *command: str) -> list[tuple[str, int]]:
    """Return the file and line of each error that a type checker finds, each once."""
    done = subprocess.run(
        command,
        cwd=app,
        env={**os.environ, "PYTHONPATH": str(Path(trio_stomp.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    found = re.findall(r"(\w+\.py):(\d+):(?:\d+ -)? error: ", done.stdout)
    return sorted({(name, int(line)) for name, line in found})


def test_mypy_sees_the_types(app: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not there: the client's types are NOT checked")
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.cache")
    assert check(app, *command, "uses.py", SHOP.name) == WRONG


def test_pyright_sees_the_types(app: Path) -> None:
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not there: the client's types are checked by mypy ALONE")
    (app / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    assert check(app, pyright, "--pythonpath", sys.executable, "uses.py", SHOP.name) == WRONG
