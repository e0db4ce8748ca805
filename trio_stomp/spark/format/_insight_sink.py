"""Publishes insight: the results of the statistics, to ``/topic/insight/…``."""

import json
import time
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame

from trio_stomp.spark._address import StreamAddress
from trio_stomp.spark._client import StreamClient
from trio_stomp.spark._frames import header, unescaped
from trio_stomp.spark._insight import HISTORY, WINDOW_S, Insight, Result
from trio_stomp.spark._rows import kind_of
from trio_stomp.spark.format._publish import Outgoing, Publisher, send_head

KINDS = ("destination", "latency", "queue")


class InsightSink:
    """The function for ``foreachBatch`` on the stream of statistics. Spark pickles it.

    A new one reads the last hours from the stream before its first batch, so its results do not
    depend on when it was started. Repeated results have the same ids, and the broker takes them
    once.

    Args:
      address: The stream of statistics, and the broker to publish to.
    """

    def __init__(self, address: StreamAddress) -> None:
        self._address = address
        self._insight: Insight | None = None

    def __call__(self, batch: DataFrame, _number: int) -> None:
        """Publish the results of one micro-batch.

        Raises:
          StreamError: the broker refuses.
          StreamAway: the broker was away for longer than ``retry_s``.
        """
        rows = batch.where(batch.kind.isin(*KINDS)).select("epoch", "offset", "kind", "body")
        found = [(row.epoch, row.offset, row.kind, row.body) for row in rows.collect()]
        if found:
            self.publish(found)

    def publish(self, rows: list[tuple[str, int, str, str]]) -> None:
        """Publish the results of rows of epoch, offset, kind and body, in their order."""
        if self._insight is None:
            self._insight = self._recovered(rows[0][0], rows[0][1])
        insight = self._insight
        results = (result for _, _, kind, body in rows for result in insight.add(kind, body))
        Publisher(self._address).publish(messages(results))

    def _recovered(self, epoch: str, offset: int) -> Insight:
        """Return the state after the messages before ``offset``."""
        insight, client = Insight(), StreamClient(self._address)
        began = client.offset_at(time.time() - (HISTORY + 1) * WINDOW_S)
        if began < offset:
            for some in client.read(epoch, began, offset):
                for _, _, head, body in some:
                    kind = kind_of(unescaped(header(head, b"destination") or b""))
                    for _ in insight.add(kind, body):
                        pass  # it was published before
        return insight


def messages(results: Iterable[Result]) -> Iterator[Outgoing]:
    """Yield results as messages. They are not stored: the next minute brings newer ones."""
    for topic, id, record in results:
        headers = {"x-dedup-id": id, "content-type": "application/json", "rule": record["rule"]}
        if "destination" in record:
            headers["about"] = record["destination"]
        yield Outgoing(topic, send_head(topic, headers), json.dumps(record).encode())
