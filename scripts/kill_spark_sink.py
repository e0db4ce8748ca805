"""Kill Spark's sink and the broker again and again, and count the messages that a consumer gets.

    python scripts/kill_spark_sink.py --kills 10 --broker-kills 2

A producer sends numbered messages to two topics with streams. A query for each reads the stream
and writes each message to a queue, with its epoch and offset as the id. They run micro-batch after
micro-batch in one process, which is killed with SIGKILL at random moments; so is the broker, which
keeps its data directory. Once, between two kills, the checkpoints of the queries are deleted, so
that they start from the beginning. At the end the queues are consumed, and their messages are
compared with the streams.

The result is one line of JSON; the exit code is 0 if each message arrived once.
"""

import argparse
import contextlib
import json
import random
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from _crash.link import Gone, Link
from _crash.ports import free_port
from kill_spark import HarnessError, Process, kill_broker, wait_for

from trio_stomp.spark import StreamAddress, StreamAway, StreamClient, StreamError, open_session

QUEUES = {"/topic/in": "/queue/out", "/topic/more": "/queue/more"}
WINDOW = 1_000_000
POLICY = "".join(
    f'["{topic}"]\nstream = true\n["{queue}"]\ndedup_window = {WINDOW}\n'
    for topic, queue in QUEUES.items()
)
START_LIMIT_S = 600.0
SILENCE_S = 5.0
ATTEMPTS = 5
BURST_S = 0.05


class Producer:
    """Sends numbered messages at an even rate, and again after the broker went away.

    Args:
      port: The broker's.
      rate: Messages in a second.
    """

    def __init__(self, port: int, rate: float) -> None:
        self.sent = 0
        self._port, self._count = port, max(1, round(rate * BURST_S))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for it."""
        self._ended.set()
        self._thread.join(START_LIMIT_S)

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(Gone):
                link = Link(self._port)
                while not self._ended.wait(BURST_S):
                    numbers = range(self.sent, self.sent + self._count)
                    for topic in QUEUES:
                        head = f"SEND\ndestination:{topic}\npersistent:true\n\n"
                        link.send("".join(f"{head}{number}\0" for number in numbers))
                    self.sent += self._count
                link.close()


def run_query(url: str, checkpoint: Path, *, once: bool) -> None:
    """Run the queries that are killed: stream to queue, with an id for each message."""
    spark = open_session("kill_spark_sink")
    spark.sparkContext.setLogLevel("ERROR")
    queries = []
    for topic, queue in QUEUES.items():
        own = str(checkpoint / queue.rpartition("/")[2])
        rows = spark.readStream.format("stomp").options(url=url, stream=f"/stream{topic}").load()
        rows = rows.selectExpr("body", "headers", "message_id AS dedup_id")
        sink = rows.writeStream.format("stomp")
        sink = sink.options(url=url, destination=queue, checkpointLocation=own)
        sink = sink.trigger(availableNow=True) if once else sink.trigger(processingTime="0 seconds")
        queries.append(sink.start())
        # One after the other: Spark gives each worker of Python ten seconds to start.
        while queries[-1].isActive and not queries[-1].lastProgress:
            time.sleep(0.1)
    if not once:
        # If one fails, the process ends, and both are started again.
        spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()


class Query:
    """The query as a process.

    Args:
      port: The broker's.
      root: The directory of its checkpoint and log.
    """

    def __init__(self, port: int, root: Path) -> None:
        self.checkpoint = root / "checkpoint"
        own = (sys.executable, __file__, "--query", f"stomp://127.0.0.1:{port}")
        command = (*own, "--root", str(root))
        self.process = Process(command, root / "query.log")
        self.last = Process((*command, "--once"), root / "query.log")
        self.ended = 0

    def commits(self) -> int:
        """Return the number of committed batches."""
        return sum(file.name.isdigit() for file in self.checkpoint.glob("*/commits/*"))

    def has_more(self, before: int) -> bool:
        """Return whether it has committed more, and start it again if it has ended.

        Spark gives up if a busy machine takes ten seconds to start a worker of Python.
        """
        self.ended += self.process.revive()
        return self.commits() > before

    def finish(self) -> None:
        """Write all that is left.

        Raises:
          HarnessError: it failed again and again.
        """
        for _ in range(ATTEMPTS):
            with contextlib.suppress(HarnessError):
                self.last.finish()
                return
        raise HarnessError(f"the last run failed {ATTEMPTS} times")

    def run_and_kill(self, chance: random.Random) -> None:
        """Start it, let it commit, and kill it at a random moment."""
        before = self.commits()
        self.process.start()
        wait_for("a committed batch", lambda: self.has_more(before))
        time.sleep(chance.uniform(0.2, 3.5))
        self.process.kill(alone=chance.random() < 0.5)


def held(address: StreamAddress) -> list[str]:
    """Return the bodies of the stream."""
    client = StreamClient(address)
    epoch, first, following = client.bounds()
    if first:
        raise HarnessError(f"retention has removed {first} messages: fewer or slower, please")
    replay = client.read(epoch, first, following)
    return [body.decode() for messages in replay for _, _, _, body in messages]


def consumed(port: int, queue: str, expected: int) -> list[tuple[str, str]]:
    """Consume a queue until there is nothing more, and return ids and bodies."""
    link, found = Link(port), list[tuple[str, str]]()
    link.send(f"SUBSCRIBE\nid:1\ndestination:{queue}\n\n\0")
    last = time.monotonic()
    while time.monotonic() < last + (SILENCE_S if len(found) >= expected else START_LIMIT_S):
        if replies := link.receive():
            last = time.monotonic()
            found += [(reply.headers["x-dedup-id"], reply.body) for reply in replies]
    link.close()
    return found


def experiment(options: argparse.Namespace, root: Path) -> dict[str, object]:
    """Run the experiment, and return its figures."""
    chance = random.Random(options.seed)
    port = free_port()
    url = f"stomp://127.0.0.1:{port}"
    streams = [StreamAddress(url, f"/stream{topic}", retry_s=START_LIMIT_S) for topic in QUEUES]
    policies = root / "policies.toml"
    policies.write_text(POLICY, encoding="utf-8")
    settings = ("--policies", str(policies), "--data-dir", str(root / "broker"))
    command = [*shlex.split(options.broker), "--port", str(port), *settings]
    broker = Process(command, root / "broker.log")
    query, producer = Query(port, root), Producer(port, options.rate)
    broker.start()
    started = time.monotonic()
    batches = 0
    try:
        StreamClient(StreamAddress(url, retry_s=START_LIMIT_S)).bounds()
        producer.start()
        broker_rounds = chance.sample(range(options.kills), options.broker_kills)
        for number in range(options.kills):
            killer = threading.Thread(target=kill_broker, args=(broker, chance.uniform(0, 20)))
            if number in broker_rounds:
                killer.start()
            query.run_and_kill(chance)
            if number in broker_rounds:
                killer.join()
            if number == options.kills // 2:
                batches += query.commits()
                shutil.rmtree(query.checkpoint)
            print(f"kill {number + 1}: {producer.sent} messages", file=sys.stderr, flush=True)
        producer.end()
        truths = [held(each) for each in streams]
        query.finish()
        batches += query.commits()
        figures: Counter[str] = Counter()
        for queue, truth in zip(QUEUES.values(), truths, strict=True):
            figures.update(compare(truth, consumed(port, queue, len(truth))))
        return {
            **figures,
            "sent": producer.sent,
            "kills": options.kills,
            "broker_kills": options.broker_kills,
            "ended_on_their_own": query.ended,
            "batches": batches,
            "seconds": round(time.monotonic() - started, 1),
            "seed": options.seed,
        }
    finally:
        broker.kill()
        with contextlib.suppress(AssertionError):
            query.process.kill()


def compare(truth: list[str], found: list[tuple[str, str]]) -> dict[str, int]:
    """Compare what the consumer got with the stream."""
    bodies, ids = Counter(body for _, body in found), Counter(name for name, _ in found)
    expected = Counter(truth)
    return {
        "messages": len(truth),
        "received": len(found),
        "lost": sum((expected - bodies).values()),
        "doubled": sum(ids.values()) - len(ids),
        "unknown": sum((bodies - expected).values()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment, and return the exit code."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    add("--kills", type=int, default=10, help="number of kills of the query")
    add("--broker-kills", type=int, default=2, help="number of kills of the broker")
    add("--rate", type=float, default=200, help="messages in a second")
    add("--seed", type=int, default=random.randrange(10**6))
    add("--root", type=Path, help="directory of the files (default: a temporary one)")
    add("--broker", default=f"{shlex.quote(sys.executable)} -m trio_stomp", help="its command")
    add("--query", metavar="URL", help=argparse.SUPPRESS)
    add("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.query:
        run_query(options.query, options.root / "checkpoint", once=options.once)
        return 0
    try:
        with contextlib.ExitStack() as stack:
            root = options.root or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            root.mkdir(parents=True, exist_ok=True)
            result = experiment(options, root)
    except (HarnessError, StreamError, StreamAway) as error:
        print(f"the experiment failed: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 1 if result["lost"] or result["doubled"] or result["unknown"] else 0


if __name__ == "__main__":
    sys.exit(main())
