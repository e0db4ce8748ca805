"""Measure a client's processor time per message: trio_stomp.client, and stomp.py for comparison.

A broker runs in another process. Only the last message is sent with a RECEIPT. Messages are
received from a topic with ``ack:auto``, and from a queue with ``ack:client-individual``.

python scripts/examples/client_speed.py [--messages 200000] [--asyncio] [--beside]
"""

import argparse
import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from trio_stomp.client import Client, open_client

BODY = b"0123456789" * 5
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


@contextmanager
def broker() -> Iterator[int]:
    """Run a broker in its own process. Yield its port."""
    command = [sys.executable, "-m", "trio_stomp", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = next(match for line in process.stderr if (match := LISTENING.search(line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield int(found[1])
        finally:
            process.terminate()


async def send(client: Client, messages: int) -> float:
    """Return the processor time, in seconds, of sending messages, the last with a RECEIPT."""
    start = time.process_time()
    for _ in range(messages - 1):
        await client.send("/topic/nobody", BODY, receipt=False)
    await client.send("/topic/nobody", BODY)
    return time.process_time() - start


def feed(port: int, destination: str, messages: int) -> "subprocess.Popen[bytes]":
    """Start a process that sends messages."""
    code = (
        "import sys, trio\n"
        "from trio_stomp.client import open_client\n"
        "async def main(port, destination, messages):\n"
        "    async with open_client(f'stomp://127.0.0.1:{port}') as client:\n"
        "        for n in range(int(messages)):\n"
        f"            await client.send(destination, {BODY!r}, receipt=n % 500 == 0)\n"
        "trio.run(main, *sys.argv[1:])\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(port), destination, str(messages)])


async def receive(client: Client, port: int, messages: int, *, in_batches: bool) -> float:
    """Return the processor time, in seconds, of receiving messages from a topic."""
    async with client.subscribe("/topic/feed", prefetch=1000) as received:
        feeder = feed(port, "/topic/feed", messages)
        await received.receive()
        start, count = time.process_time(), 1
        while count < messages:
            if in_batches:
                count += len(await received.receive_batch())
            else:
                message = await received.receive()
                count += len(message.body) == len(BODY)
        spent = time.process_time() - start
        feeder.wait()
        return spent


async def work(client: Client, port: int, messages: int) -> float:
    """Return the processor time, in seconds, of receiving from a queue and acknowledging each."""
    feed(port, "/queue/work", messages).wait()
    async with client.subscribe("/queue/work", ack="client-individual") as received:
        start, count = time.process_time(), 0
        async for message in received:
            async with message:
                count += 1
            if count == messages:
                break
        return time.process_time() - start


async def ours(port: int, messages: int) -> None:
    """Measure trio_stomp.client."""
    async with open_client(f"stomp://127.0.0.1:{port}") as client:
        show("sent", await send(client, messages), messages)
        show("received", await receive(client, port, messages, in_batches=False), messages)
        batched = await receive(client, port, messages, in_batches=True)
        show("received in batches", batched, messages)
        show("taken and acknowledged", await work(client, port, messages // 4), messages // 4)


def theirs(port: int, messages: int) -> None:
    """Measure stomp.py."""
    import stomp

    done = threading.Event()

    class Counter(stomp.ConnectionListener):  # type: ignore[misc]
        count = 0

        def on_message(self, _frame: object) -> None:
            self.count += 1
            if self.count == messages:
                done.set()

        def on_receipt(self, _frame: object) -> None:
            done.set()

    counter = Counter()
    connection = stomp.Connection12([("127.0.0.1", port)])
    connection.set_listener("", counter)
    connection.connect(wait=True)
    start = time.process_time()
    for _ in range(messages - 1):
        connection.send("/topic/nobody", BODY)
    connection.send("/topic/nobody", BODY, receipt="last")
    done.wait(600)
    show("stomp.py: sent", time.process_time() - start, messages)
    done.clear()
    connection.subscribe("/topic/feed", "1")
    start = time.process_time()
    feed(port, "/topic/feed", messages).wait()
    done.wait(600)
    show("stomp.py: received", time.process_time() - start, messages)
    connection.disconnect()


def show(what: str, seconds: float, messages: int) -> None:
    """Print one figure."""
    print(f"{what:<28}{seconds / messages * 1e6:8.2f} CPU s per million", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--asyncio", action="store_true", help="measure on asyncio, not on Trio")
    parser.add_argument("--beside", action="store_true", help="measure stomp.py too")
    options = parser.parse_args()
    with broker() as port:
        if options.asyncio:
            asyncio.run(ours(port, options.messages))
        else:
            trio.run(ours, port, options.messages)
        if options.beside:
            theirs(port, options.messages // 10)


if __name__ == "__main__":
    main()
