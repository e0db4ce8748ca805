"""The reason of an end names the limit and the destination, in the log, events and metrics."""

import logging

import pytest
import trio

from tests.support.served import served_with
from trio_stomp.broker import DestinationPolicy

SMALL = "/queue/small"
FRAME = b"SEND\ndestination:/queue/small\n\nx\0"


async def page(stream: trio.SocketStream, path: str) -> str:
    await stream.send_all(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    )
    return b"".join([part async for part in stream]).decode()


async def test_a_refused_send_without_a_receipt_is_told_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    policies = {SMALL: DestinationPolicy(max_messages=1, overflow="reject")}
    with trio.fail_after(30):
        async with served_with(policies, {}) as broker:
            watcher = await broker.connect({})
            await watcher.send("SUBSCRIBE", {"id": "0", "destination": "DIAG/event/disconnect"})
            async with await broker.stream() as stream:
                await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + FRAME * 2)
                answer = b"".join([part async for part in stream])
            assert b"code:queue-full" in answer
            event = (await watcher.receive()).body.decode()
            assert "queue-full: /queue/small has 1 messages" in event
            assert "policy max_messages" in event
            async with await broker.stream() as stream:
                metrics = await page(stream, "/metrics")
            assert 'trio_stomp_errors_total{code="queue-full"} 1' in metrics
    (closed,) = [each for each in caplog.messages if "closed: limit-exceeded" in each]
    assert "queue-full: /queue/small has 1 messages" in closed
