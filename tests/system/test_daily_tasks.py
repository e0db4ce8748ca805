"""The daily tasks of users of other tools: each command of the page, in a shell, at a broker."""

import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import evolve, frozen

from tests.support.tool_fakes import environment
from trio_stomp import Settings, serve
from trio_stomp.broker import DestinationPolicy
from trio_stomp.client import open_client

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "migrate" / "daily-tasks.md"
COLUMN = 4
POLICIES = (("/topic/log", DestinationPolicy(stream=True)),)
SHELL = f'trio-stomp() {{ "{sys.executable}" -m trio_stomp "$@"; }}; set -e -o pipefail\n'

PRINTED = {
    "Is the broker well?": ("healthy", r"process\.uptime_s +\d"),
    "Which queues are long": (r"/queue/orders +3 +1 +1 ",),
    "Who consumes a queue": (r"\d{19} .* client-individual +1 ",),
    "Who is connected?": (r"127\.0\.0\.1:\d+ +tcp", r"closed \d{19}"),
    "Declare a queue": ("/queue/new: created", "/queue/new: deleted"),
    "Send a message by hand": ("sent to /queue/orders: stored memory",),
    "Look at messages": ("kind:apple", "    two apples", "/queue/orders: 1 shown"),
    "Purge a queue": ("/queue/orders: 2 purged",),
    "Move messages": ("/queue/orders: 1 moved to /queue/later", "DLQ.orders: 1 sent again"),
    "Save and restore definitions": ("0 queues created", "/topic/log", "^user +", "^allowed +"),
    "Send a message, a file": (r"prices: matched \d", "3 sent: 3 matched"),
    "Send many": ("3 sent: 3 matched",),
    "Keep the last value": (r"^1\.1$",),
    "Watch topics": (r"^/topic/prices/tea \d+$",),
    "Print messages in your own format": (r"^\d\d:\d\d /topic/prices/tea: \d+$",),
    "End after some messages": (r"^\d+$",),
    "Miss nothing while away": (r"audit +/topic/prices", "ended 'audit'"),
    "Ask a service": ("TWO APPLES", "1 answered"),
    "Look at a stream": (r"/stream/topic/log +0 +3 +3", r"next +3", "^log 0\nlog 1$", "2 removed"),
    "Keep address and login": ("/topic/prices/tea", "messages/s delivered"),
}
"""The output of the commands of a task, as patterns, by the beginning of the task."""


@frozen
class Task:
    """A row of the page."""

    title: str
    commands: tuple[str, ...]


def tasks() -> Iterator[Task]:
    """Yield the rows of the page's tables."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\) *\| *", line)
        if len(cells) > COLUMN and "trio-stomp" in cells[COLUMN]:
            commands = re.findall("`([^`]+)`", cells[COLUMN].replace("\\|", "|"))
            yield Task(cells[1], tuple(commands))


TASKS = list(tasks())


def test_there_are_ten_tasks_of_each() -> None:
    assert len(TASKS) == 20
    assert [title for title in PRINTED if not any(t.title.startswith(title) for t in TASKS)] == []


@asynccontextmanager
async def scene(url: str) -> AsyncIterator[None]:
    """A queue with a dead letter and a consumer that holds a message, a stream, and a topic."""
    async with open_client(url) as client, trio.open_nursery() as nursery:
        await client.send("/queue/orders", "dead")
        async with client.subscribe("/queue/orders", ack="client-individual") as dying:
            await (await dying.receive()).nack(requeue=False)
        for kind, body in (("", "held"), ("pear", "a"), ("pear", "b"), ("apple", "two apples")):
            await client.send("/queue/orders", body, headers={"kind": kind})
        for number in range(3):
            await client.send("/topic/log", f"log {number}")

        async def prices() -> None:
            number = 0
            while True:
                number += 1
                await client.send("/topic/prices/tea", f"{number}")
                await trio.sleep(0.05)

        nursery.start_soon(prices)
        consumer = client.subscribe("/queue/orders", ack="client-individual", prefetch=1)
        async with consumer as orders, client.subscribe("/topic/prices"):
            await orders.receive()
            yield
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("task", [pytest.param(task, id=task.title) for task in TASKS])
def test_a_task(task: Task, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a file")

    async def main() -> str:
        settings = evolve(Settings.of(port=0, diag_interval_s=0.5), destinations=POLICIES)
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(serve, settings)
            url = f"stomp://{handle.addresses[0]}"
            host, _, port = handle.addresses[0].rpartition(":")
            async with scene(url), await trio.open_tcp_stream(host, int(port)) as victim:
                await victim.send_all(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
                found = re.search(rb"session:(\d+)", await victim.receive_some())
                assert found
                lines = "\n".join(task.commands).replace("SESSION", found[1].decode())
                ran = await trio.run_process(
                    ["bash", "-c", f"{SHELL}{lines}\nwait"],
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    cwd=tmp_path,
                    env=environment(TRIO_STOMP_URL=url, URL=url, PYTHONPATH=str(ROOT)),
                )
            handle.stop()
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout.decode()

    printed = trio.run(main)
    for pattern in next(each for title, each in PRINTED.items() if task.title.startswith(title)):
        assert re.search(pattern, printed, re.MULTILINE), printed
