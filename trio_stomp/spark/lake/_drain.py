"""Reads a stream into tables without Spark, from the position that the tables have."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa

from trio_stomp.spark._address import StreamAway, StreamError
from trio_stomp.spark._client import Bounds, StreamClient
from trio_stomp.spark._messages import EPOCH, RETENTION, Layout, MessageBuilder, texts
from trio_stomp.spark._rows import RowBuilder, heading
from trio_stomp.spark.lake._store import Store
from trio_stomp.spark.lake._writer import MESSAGES, Writer


class Drain:
    """Reads a stream of one broker into tables: the statistics, or one of a user's.

    Args:
      client: A client of the stream.
      store: The tables.
      table: The table of a user's stream.
      layout: The columns of that table.
      broker_id: The broker of that stream, whose messages do not tell it.
    """

    def __init__(
        self,
        client: StreamClient,
        store: Store,
        *,
        table: str = MESSAGES,
        layout: Layout | None = None,
        broker_id: str = "",
    ) -> None:
        self.writer = Writer(store, client.stream_address.stream, broker_id, table)
        self._client = client
        self._layout, self._epoch = layout or Layout.of("binary"), ""

    def run(self) -> Bounds:
        """Read what is there now, and return the bounds of the stream up to which it was read.

        Raises:
          StreamError: the broker refuses.
          StreamAway: the broker is away.
          LakeError: the storage refuses.
        """
        bounds = self._client.bounds()
        if bounds.first == bounds.next:
            return bounds
        at = self.begin(bounds)
        # A stream that nobody has read yet has lost nothing.
        lo = bounds.first if at is None else at
        if lo < bounds.next:
            try:
                for batch in self._rows(bounds, lo):
                    self.writer.add(batch)
            except (StreamAway, StreamError):
                # The next round reads behind what is committed.
                self.writer.flush()
                raise
        self.writer.flush()
        return bounds

    def begin(self, bounds: Bounds) -> int | None:
        """Return how far the tables have a stream that is not empty; None = nothing is there.

        Then the row for the end of the epoch before is in the next commit, if there was one.

        Raises:
          StreamError: the broker refuses.
          StreamAway: the broker is away.
          LakeError: the storage refuses.
        """
        if self.writer.is_statistics and self._epoch != bounds.epoch:
            # The first message tells the broker.
            for messages in self._client.read(bounds.epoch, bounds.first, bounds.first + 1):
                (broker_id,) = texts([heading(messages[0][3])[0]]).to_pylist()
                self.writer.broker_id, self._epoch = broker_id or "", bounds.epoch
        at = self.writer.position(bounds.epoch)
        if at is None:
            self._note_lost_epoch(bounds.epoch)
        return at

    def _rows(self, bounds: Bounds, lo: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages from ``lo`` on, with a row for those that are lost."""
        rows = self._builder(bounds.epoch, lo)
        replay = self._client.read(bounds.epoch, lo, bounds.next)
        for messages in replay:
            yield from rows.add(messages)
        is_lost = replay.end is not None and replay.end.epoch != bounds.epoch
        if rows.expected < bounds.next and not is_lost:
            rows.gap(bounds.next, RETENTION)
        # If the epoch was lost meanwhile, the next round has another one, and notes the loss.
        yield from rows.flush()

    def _note_lost_epoch(self, epoch: str) -> None:
        """Add a row for the end of the epoch that this broker's stream had before."""
        before = self.writer.previous_epoch(epoch)
        if before is not None:
            at = self.writer.position(before) or 0
            rows = self._builder(before, at)
            rows.gap(at, EPOCH)
            for gap in rows.flush():
                self.writer.add(gap)

    def _builder(self, epoch: str, lo: int) -> MessageBuilder:
        stream, now = self.writer.stream, datetime.now(UTC).isoformat()
        if self.writer.is_statistics:
            return RowBuilder(stream, epoch, lo, planned_at=now, broker_id=self.writer.broker_id)
        return MessageBuilder(self._layout, stream, epoch, lo, planned_at=now, is_strict=False)
