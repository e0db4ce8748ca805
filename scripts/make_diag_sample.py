"""Write the tables of an invented day: something to analyse without a broker, also for tests.

    python scripts/make_diag_sample.py --root /tmp/day
    trio-stomp spark report --root /tmp/day

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
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _sample import Message, Shop

from trio_stomp.base import PAGE, PREFIX, Table
from trio_stomp.spark._columns import KINDS, RAW, schema_of
from trio_stomp.spark.lake import Totals, Writer, open_store

Row = dict[str, Any]


def day() -> list[Row]:
    """Return the messages of the day as rows of raw, in the order of their offsets.

    Raises:
      SystemExit: one has not the fields of the broker's schema.
    """
    return sorted(map(row, Shop().day()), key=lambda each: int(each["offset"]))


def differences(table: Table, body: Mapping[str, object]) -> list[str]:
    """Return the fields of a message that the table lacks, and its columns that this lacks."""
    expected = {field.name for field in (*PREFIX, *table.beside)}
    if not table.is_list:
        return sorted(set(body) ^ (expected | {field.name for field in table.fields}))
    found = set(body) ^ (expected | {field.name for field in PAGE} | {"items"})
    items = body.get("items")
    for item in items if isinstance(items, list) else ():
        found |= set(item) ^ {field.name for field in table.fields}
    return sorted(found)


def row(message: Message) -> Row:
    """Return a message as a row of raw, after checking it against the broker's schema."""
    body = message.body
    if found := differences(KINDS[message.kind], body):
        raise SystemExit(f"the sample and the schema of {message.kind} differ in {found}")
    return {
        **{name: body[name] for name in ("broker_id", "epoch", "offset", "v")},
        "topic": message.topic,
        "kind": message.kind,
        "stored_at": message.ts,
        "ts": message.ts,
        "body": json.dumps(body, separators=(",", ":")),
    }


def write(root: Path, rows: Iterable[Row]) -> Totals:
    """Write messages to the tables of a root, and return their numbers."""
    writer = Writer(open_store(root), "/stream/DIAG")
    for batch in pa.Table.from_pylist(list(rows), schema_of(RAW)).to_batches():
        writer.add(batch)
    writer.flush()
    return writer.totals


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="where the tables go")
    root = parser.parse_args().root
    done = write(root, day())
    print(f"{done.messages:,} messages, {done.rows:,} rows in {root}")


if __name__ == "__main__":
    main()
