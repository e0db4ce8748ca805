"""Measure the client of NATS: processor time to publish, consume and acknowledge a message.

    python scripts/bench_nats.py
    python scripts/bench_nats.py --rounds 9 --messages 100000

Each message of 128 bytes is published to a stream with a confirmation, pulled by a consumer, and
acknowledged. Beside it, in turn, nats-py does the same. Times are those of the client's process, in
µs a message: the median of the rounds, and the least and the greatest. A compiled copy
(``scripts/compile.py``) is measured by running this script there.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nats
import trio
from _cluster.machines import Machine, nats_server
from _crash.ports import free_port

from trio_stomp.nats import Address, JetStream, NatsOptions, Puller, open_client

BODY = b"x" * 128
WINDOW = 2000
MANY = 100_000
STREAM = {"name": "bench", "subjects": ["bench.x"], "storage": "memory"}
CONSUMER = {"ack_policy": "explicit", "max_ack_pending": 4 * WINDOW, "durable_name": "c"}
ORDER = {"stream_name": "bench", "config": CONSUMER}


async def ours(port: int, messages: int) -> float:
    """Return the processor time of this project's client, in seconds."""
    answered = published = got = 0

    def note(_answer: object) -> None:
        nonlocal answered
        answered += 1

    async with open_client(NatsOptions([Address("127.0.0.1", port)])) as client:
        await client.wait_until_connected()
        jetstream = JetStream(client)
        await jetstream.create_stream(STREAM)
        await jetstream.call("CONSUMER.CREATE.bench.c", ORDER)
        subject = b"$JS.API.CONSUMER.MSG.NEXT.bench.c"
        puller = Puller(client, subject, window=WINDOW, window_bytes=1 << 24, beat_s=5.0)
        start = time.process_time()
        while got < messages:
            for _ in range(min(WINDOW + got, messages) - published):
                client.start_request(b"bench.x", BODY, note)
                published += 1
            arrived = await puller.receive()
            puller.acknowledge(arrived)
            got += len(arrived)
        await client.flush()
        spent = time.process_time() - start
        await jetstream.call("STREAM.DELETE.bench")
    if answered != messages:
        raise SystemExit(f"bench_nats: {messages - answered} messages were not confirmed")
    return spent


async def theirs(port: int, messages: int) -> float:
    """Return the processor time of nats-py, in seconds."""
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    jetstream = client.jetstream(publish_async_max_pending=4 * WINDOW)
    await jetstream.add_stream(name="bench", subjects=["bench.x"], storage="memory")
    await client.request("$JS.API.CONSUMER.CREATE.bench.c", json.dumps(ORDER).encode())
    puller = await jetstream.pull_subscribe_bind(consumer="c", stream="bench")
    start, published, got = time.process_time(), 0, 0
    while got < messages:
        for _ in range(min(WINDOW + got, messages) - published):
            await jetstream.publish_async("bench.x", BODY)
            published += 1
        for each in await puller.fetch(WINDOW // 2, timeout=5):
            await each.ack()
            got += 1
    await jetstream.publish_async_completed()
    await client.flush()
    spent = time.process_time() - start
    await jetstream.delete_stream("bench")
    await client.close()
    return spent


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=MANY)
    given = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = (nats_server(), "-js", "-sd", folder, "-a", "127.0.0.1", "-p", str(port))
        server = Machine("bench", command, Path(folder, "log"))
        server.start()
        found: dict[str, list[float]] = {"trio_stomp.nats": [], "nats-py": []}
        try:
            for _ in range(given.rounds):
                mine = trio.run(ours, port, given.messages)
                others = asyncio.run(theirs(port, given.messages))
                for times, spent in zip(found.values(), (mine, others), strict=True):
                    times.append(spent / given.messages * 1e6)
        finally:
            server.kill()
    for name, times in found.items():
        print(f"{name:16} {statistics.median(times):6.2f} ({min(times):.2f} - {max(times):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
