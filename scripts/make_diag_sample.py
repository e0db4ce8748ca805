"""Write a day of DIAG messages in files of `trio-stomp tables --import`: the data of tests.

    python scripts/make_diag_sample.py                   tests/data/diag_day
    python scripts/make_diag_sample.py --root /tmp/day   another directory

The day is the same on each run. It is that of a shop's broker: orders, invoices and
e-mails on queues, prices on topics. Its incidents, in UTC:

    04:00-04:12   nobody read the stream in time: 12 minutes are lost to retention
    10:05-10:35   prices.eu bursts, the input queue fills up, and drops
    11:20         the broker is restarted; its memory had been growing
    12:00-16:30   the consumer of audit forgets one ACK in fifty, until it is disconnected
    17:10-17:40   dave reads prices.us too slowly, and loses messages
    19:30-20:10   reports has no subscriber: the stale queue fills up, and drops
    21:00-21:25   e-mails are consumed slowly
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from _sample import Message, Shop

from trio_stomp.spark._columns import KINDS, RAW, differences, schema_of

DEFAULT = Path(__file__).resolve().parent.parent / "tests" / "data" / "diag_day"
QUERY = "5a3c0f1e"
BATCHES = 4

GLOB = "q=*/batch=*/*.parquet"
SCHEMA = schema_of(RAW)


def checked(messages: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages, after checking them against the broker's schema."""
    for message in messages:
        if found := differences(KINDS[message.kind], message.body):
            raise SystemExit(f"the sample and the schema of {message.kind} differ in {found}")
        yield message


def row(message: Message) -> dict[str, object]:
    """Return a message as a row of raw."""
    body = message.body
    return {
        **{name: body[name] for name in ("broker_id", "epoch", "offset", "v")},
        "topic": message.topic,
        "kind": message.kind,
        "stored_at": message.ts,
        "ts": message.ts,
        "body": json.dumps(body, separators=(",", ":")),
    }


def write(root: Path, rows: Sequence[dict[str, object]]) -> list[Path]:
    """Write the rows as some batches of one query."""
    for old in (root / "raw").glob(GLOB):
        old.unlink()
    size = -(-len(rows) // BATCHES)
    paths = []
    for number in range(BATCHES):
        batch = root / "raw" / f"q={QUERY}" / f"batch={number:010d}"
        batch.mkdir(parents=True, exist_ok=True)
        some = rows[number * size : (number + 1) * size]
        # Sorted by kind: similar texts side by side compress to a tenth of the size.
        table = pa.Table.from_pylist(sorted(some, key=lambda each: str(each["kind"])), SCHEMA)
        path = batch / "part-00000.zstd.parquet"
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=19,
            data_page_size=1 << 26,
            use_dictionary=["broker_id", "epoch", "topic", "kind"],
            column_encoding=dict.fromkeys(
                ("offset", "stored_at", "ts", "v"), "DELTA_BINARY_PACKED"
            ),
        )
        paths.append(path)
    return paths


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=DEFAULT, help="default: %(default)s")
    root = parser.parse_args().root
    rows = [row(message) for message in checked(Shop().day())]
    paths = write(root, rows)
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(rows):,} messages, {size:,} bytes in {root}")


if __name__ == "__main__":
    main()
